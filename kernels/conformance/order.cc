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
    if (prng.chance(0.3)) kept[axis] = prng.between(1, n);
    std::vector<Array> inputs = {with_ties(prng, t, shape)}, outputs = {result(t, kept)};
    if (listed) {
      Array numbers = Array::contiguous(DType::kInt64, shape);
      for (std::int64_t e = 0; e < numbers.volume(); ++e)
        numbers.set(e, 0, (e * 7919 + 13) % numbers.volume());
      inputs.push_back(std::move(numbers));
    }
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

void merges(const Subject& subject) {
  Prng prng(subject.seed + 54);
  for (int round = 0; round < 120; ++round) {
    const DType t = ordered_dtype(prng);
    const bool numbered = prng.chance(0.5), descending = prng.chance(0.5), low = prng.chance(0.5);
    ir::Shape x = {prng.chance(0.3) ? prng.between(2000, 7000) : prng.between(0, 50)};
    while (x.size() < 3 && ir::volume(x) < 3000 && prng.chance(0.7)) x.push_back(prng.between(1, 3));
    const std::size_t axis = prng.below(x.size());
    std::swap(x[0], x[axis]);
    ir::Shape y = x, out = x;
    y[axis] = prng.chance(0.3) ? prng.between(0, 5000) : prng.between(0, 50);
    out[axis] = prng.between(0, x[axis] + y[axis]);
    // Numbers of the first block lie before those of the second, as across blocks.
    const auto numbers = [&](const ir::Shape& shape, std::int64_t first) {
      Array a = Array::contiguous(DType::kInt64, shape);
      for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, 0, first + e);
      return a;
    };
    Array xn = numbers(x, 0), yn = numbers(y, 1'000'000);
    const Array a = sorted(with_ties(prng, t, x), axis, descending, numbered ? &xn : nullptr),
                b = sorted(with_ties(prng, t, y), axis, descending, numbered ? &yn : nullptr);
    std::vector<Array> inputs = {a, b}, outputs = {result(t, out)};
    if (numbered) inputs.push_back(xn), inputs.push_back(yn), outputs.push_back(result(DType::kInt64, out));
    Step step =
        call_step(ir::builtin::MergeSplit{static_cast<std::int64_t>(axis), descending}, out, inputs, outputs);
    if (!low) step.box.lo[axis] += 1, step.box.hi[axis] += 1;
    compare(subject, step, text(low ? "the low half of a merge" : "the high half of a merge", t, out, axis));
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
  merges(subject);
  searches(subject);
}

}  // namespace tilewise::kernels::conformance
