// Built-in kernels that order lines, and that search in ordered ones.
#include <cmath>

#include "conformance/calls.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;

// Lines that are sorted, by the reference.
Array sorted(const Array& x, std::size_t axis, bool descending, Array* numbers) {
  std::vector<Array> outputs = {result(x.dtype, x.shape)}, inputs = {x};
  if (numbers != nullptr) outputs.push_back(result(DType::kInt64, x.shape)), inputs.push_back(*numbers);
  Step step = call_step(ir::builtin::SortBlock{static_cast<std::int64_t>(axis), descending}, x.shape, inputs,
                        outputs);
  run_reference(step);
  if (numbers != nullptr) *numbers = step.outputs[1];
  return step.outputs[0];
}

// A shape whose dimension `axis` has `n` elements, beside up to two small ones.
ir::Shape lines_of(Prng& prng, std::int64_t n, std::size_t& axis) {
  ir::Shape shape = {n};
  while (shape.size() < 3 && ir::volume(shape) < 3000 && prng.chance(0.6))
    shape.push_back(prng.between(1, 3));
  axis = prng.below(shape.size());
  std::swap(shape[0], shape[axis]);
  return shape;
}
// Numbers of elements, each once and in no order.
Array some_numbers(const ir::Shape& shape, std::int64_t first) {
  Array a = Array::contiguous(DType::kInt64, shape);
  for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, 0, first + (e * 7919 + 13) % a.volume());
  return a;
}

void sorts(const Subject& subject) {
  Prng prng(subject.seed + 53);
  const std::int64_t lengths[] = {1,    2,    3,    31,   64,   100,  1000, 2047,
                                  2048, 2049, 4095, 4097, 6000, 8192, 8193, 20'000};
  for (int round = 0; round < 160; ++round) {
    const DType t = round < 2 * ir::kDTypeCount ? static_cast<DType>(round / 2) : ordered_dtype(prng);
    if (ir::is_half(t) || ir::is_complex(t)) continue;
    const std::int64_t n = lengths[prng.below(std::size(lengths))];
    ir::Shape shape = {n};
    while (shape.size() < 3 && ir::volume(shape) < 3000 && prng.chance(0.7))
      shape.push_back(prng.between(1, 3));
    const std::size_t axis = prng.below(shape.size());
    std::swap(shape[0], shape[axis]);
    const bool numbered = prng.chance(0.6), listed = numbered && prng.chance(0.5),
               descending = prng.chance(0.5);
    ir::Shape kept = shape;
    if (prng.chance(0.5)) {  // on both sides of the part below which they are selected
      kept[axis] = prng.chance(0.5)   ? prng.between(1, n)
                   : prng.chance(0.5) ? std::min(n, prng.between(1, 20))
                                      : std::clamp<std::int64_t>(n / 8 + prng.between(-1, 1), 1, n);
    }
    std::vector<Array> inputs = {with_ties(prng, t, shape)}, outputs = {result(t, kept)};
    if (prng.chance(0.2)) {  // in order
      const bool up = prng.chance(0.5);
      for (std::int64_t e = 0; e < inputs[0].volume(); ++e) {
        const std::int64_t value = up ? e / 50 : -e / 50;
        inputs[0].set(e, static_cast<double>(value), value);
      }
    }
    if (listed) inputs.push_back(some_numbers(shape, 0));
    if (numbered) outputs.push_back(result(DType::kInt64, kept));
    Step step = call_step(ir::builtin::SortBlock{static_cast<std::int64_t>(axis), descending}, shape, inputs,
                          outputs);
    step.input_boxes[0].lo[axis] += 5, step.input_boxes[0].hi[axis] += 5;
    compare(subject, step,
            text(std::string(numbered ? "argsort" : "sort") + (descending ? " down" : " up") +
                     (kept == shape ? "" : ", the first " + std::to_string(kept[axis])),
                 t, shape, axis));
  }
}

void deals(const Subject& subject) {
  Prng prng(subject.seed + 56);
  for (int round = 0; round < 80; ++round) {
    const DType t = ordered_dtype(prng);
    const bool numbered = prng.chance(0.5), listed = numbered && prng.chance(0.5),
               descending = prng.chance(0.5);
    std::size_t axis = 0;
    const ir::Shape shape =
        lines_of(prng, prng.chance(0.3) ? prng.between(2000, 9000) : prng.between(1, 90), axis);
    const std::int64_t n = shape[axis], columns = prng.between(1, 40), card = prng.between(1, 9);
    // As long as lines need, or longer.
    const std::int64_t rows = (n + columns * card - 1) / (columns * card) + (prng.chance(0.3) ? 1 : 0);
    ir::Shape out = shape;
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(axis));
    out.push_back(1);
    out.push_back(rows * columns * card);
    std::vector<Array> inputs = {with_ties(prng, t, shape)}, outputs = {result(t, out)};
    if (listed) inputs.push_back(some_numbers(shape, 0));
    if (!numbered && prng.chance(0.5)) {  // of two blocks or three
      inputs.clear();
      std::int64_t left = n;
      for (int i = static_cast<int>(prng.between(1, 2)); i >= 0; --i) {
        ir::Shape part = shape;
        part[axis] = i == 0 ? left : prng.between(0, left);
        left -= part[axis];
        inputs.push_back(with_ties(prng, t, part));
      }
    }
    if (numbered) outputs.push_back(result(DType::kInt64, out));
    Step step = call_step(ir::builtin::DealSorted{static_cast<std::int64_t>(axis), descending, columns, card},
                          out, inputs, outputs);
    step.input_boxes[0].lo[axis] += 5, step.input_boxes[0].hi[axis] += 5;
    compare(subject, step,
            text("dealt to " + std::to_string(columns) + " by " + std::to_string(card) +
                     (numbered ? ", numbered" : ""),
                 t, shape, axis));
  }
}

// Blocks of sorted runs of `length` elements, in one order, beside the dimensions of `out` but `axis`.
std::vector<Array> runs_of(Prng& prng, DType t, const ir::Shape& out, std::size_t axis, bool descending,
                           std::int64_t length, const std::vector<std::int64_t>& runs, bool numbered,
                           std::int64_t first = 0) {
  std::vector<Array> values, numbers;
  for (const std::int64_t count : runs) {
    ir::Shape shape = out;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    shape.push_back(count);
    shape.push_back(length);
    Array which = some_numbers(shape, first);
    first += which.volume();
    values.push_back(
        sorted(with_ties(prng, t, shape), shape.size() - 1, descending, numbered ? &which : nullptr));
    numbers.push_back(std::move(which));
  }
  if (numbered) values.insert(values.end(), numbers.begin(), numbers.end());
  return values;
}

// How pieces of a result come: blocks of one line each, or one block of many.
std::vector<std::int64_t> some_pieces(Prng& prng, std::int64_t length) {
  if (prng.chance(0.5))
    return std::vector<std::int64_t>(static_cast<std::size_t>(prng.between(1, length > 100 ? 5 : 20)), 1);
  return {prng.between(1, length > 100 ? 5 : 40)};
}

void splits(const Subject& subject) {
  Prng prng(subject.seed + 57);
  for (int round = 0; round < 80; ++round) {
    const DType t = ordered_dtype(prng);
    const bool numbered = prng.chance(0.5), descending = prng.chance(0.5);
    const std::int64_t length = prng.chance(0.3) ? prng.between(700, 5000) : prng.between(1, 70);
    const std::vector<std::int64_t> runs = some_pieces(prng, length);
    const std::int64_t columns = static_cast<std::int64_t>(runs.size()) * runs[0];
    ir::Shape out = {prng.between(1, 3), prng.between(1, 3), 1, prng.between(1, columns * length)};
    if (prng.chance(0.5)) out.erase(out.begin());
    const std::size_t axis = out.size() - 1;
    ir::Shape lines = out;
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(axis) - 1);
    const std::vector<Array> inputs = runs_of(prng, t, lines, axis - 1, descending, length, runs, numbered);
    const ir::builtin::SplitRuns how{descending, {columns, length, prng.between(0, length), out[axis]}};
    std::vector<Array> outputs = {result(t, out)};
    if (numbered) outputs.push_back(result(DType::kInt64, out));
    Step step = call_step(how, out, inputs, outputs);
    const std::int64_t window = prng.between(0, columns - 1);
    step.output_boxes.assign(outputs.size(), ir::box_of(out));
    for (ir::Box& box : step.output_boxes)
      box.lo[axis] += window * out[axis], box.hi[axis] += window * out[axis];
    compare(subject, step,
            text("window " + std::to_string(window) + " from " + std::to_string(how.windows.lo(window)) +
                     " of " + std::to_string(columns) + " runs of " + std::to_string(length) +
                     (numbered ? ", numbered" : ""),
                 t, out, axis));
  }
}

void merges(const Subject& subject) {
  Prng prng(subject.seed + 54);
  for (int round = 0; round < 120; ++round) {
    const DType t = ordered_dtype(prng);
    const bool numbered = prng.chance(0.5), descending = prng.chance(0.5);
    const std::int64_t length = prng.chance(0.3) ? prng.between(700, 5000) : prng.between(0, 70);
    const std::vector<std::int64_t> pieces = some_pieces(prng, length);
    const std::int64_t columns = static_cast<std::int64_t>(pieces.size()) * pieces[0], all = columns * length;
    std::size_t axis = 0;
    const ir::Shape out = lines_of(prng, prng.between(0, all), axis);
    std::vector<Array> inputs = runs_of(prng, t, out, axis, descending, length, pieces, numbered);
    // Of two runs or more.
    if (length > 2 && prng.chance(0.7)) {
      const std::vector<Array> others =
          runs_of(prng, t, out, axis, descending, length, pieces, numbered, 1'000'000);
      const std::int64_t from = prng.between(1, length - 1);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        for (std::int64_t e = 0; e < inputs[i].volume(); ++e)
          if (const std::size_t bytes = ir::size_of(inputs[i].dtype); e % length >= from)
            std::copy_n(others[i].bytes.begin() + e * static_cast<std::int64_t>(bytes), bytes,
                        inputs[i].bytes.begin() + e * static_cast<std::int64_t>(bytes));
    }
    ir::builtin::MergeRuns how{
        static_cast<std::int64_t>(axis), descending, {columns, length, 0, length}, 1 << 20};
    std::string what = std::to_string(pieces.size()) + " x " + std::to_string(pieces[0]) + " pieces of " +
                       std::to_string(length);
    std::int64_t at = 0;
    if (length > 2 && prng.chance(0.5)) {  // the second block, made of what begins one before the length
      const std::int64_t skip = prng.between(0, all - out[axis]);
      how.windows.before = 1;
      if (const std::int64_t block = skip + columns * how.windows.lo(1); block > 0) at = how.block = block;
      what += ", beyond " + std::to_string(how.skipped(at));
    }
    std::vector<Array> outputs = {result(t, out)};
    if (numbered) outputs.push_back(result(DType::kInt64, out));
    Step step = call_step(how, out, inputs, outputs);
    step.output_boxes.assign(outputs.size(), ir::box_of(out));
    for (ir::Box& box : step.output_boxes) box.lo[axis] += at, box.hi[axis] += at;
    compare(subject, step, text(what + (numbered ? ", numbered" : ""), t, out, axis));
  }
}

void searches(const Subject& subject) {
  Prng prng(subject.seed + 55);
  for (int round = 0; round < 60; ++round) {
    const DType t = ordered_dtype(prng);
    const ir::Shape shape = some_shape(prng, 1000);
    const Array v = with_ties(prng, t, shape);
    Step step =
        call_step(ir::builtin::SearchSorted{prng.chance(0.5)}, shape, {v, v}, {result(DType::kInt64, shape)});
    Step want = step;
    for (step.step = 0; step.step < 2; ++step.step) {
      want.step = step.step;
      step.inputs[1] = want.inputs[1] =
          sorted(with_ties(prng, t, {prng.between(1, 3000)}), 0, false, nullptr);
      run(subject, step);
      run_reference(want);
      check_same(step.outputs[0], want.outputs[0], text("searchsorted", t, shape, 0));
    }
  }
}

}  // namespace

void conform_order(const Subject& subject) {
  sorts(subject);
  deals(subject);
  splits(subject);
  merges(subject);
  searches(subject);
}

}  // namespace tilewise::kernels::conformance
