// Built-in kernels of kCall on CUDA, compared with the host's: indices, masks, sorting, merging, searching, gamma numbers.
#include <doctest/doctest.h>
#include <tilewise/ir/builtin.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "pair.h"

namespace tilewise::gpu {
namespace {

using ir::DType;

DType any_dtype(Prng& prng) { return static_cast<DType>(prng.below(ir::kDTypeCount)); }
bool has_order(DType t) { return !ir::is_half(t) && !ir::is_complex(t); }
DType ordered_dtype(Prng& prng) {
  for (;;)
    if (const DType t = any_dtype(prng); has_order(t)) return t;
}

Array filled(Prng& prng, DType t, const ir::Shape& shape, bool edges = true) {
  Array a = kernels::conformance::random_layout(prng, t, shape, prng.chance(0.4));
  kernels::conformance::fill_random(prng, a, edges);
  return a;
}
// Few different values, so that many are equal.
Array with_ties(Prng& prng, DType t, const ir::Shape& shape) {
  Array a = filled(prng, t, shape);
  if (prng.chance(0.5)) {
    for (std::int64_t e = 0; e < a.volume(); ++e) {
      const double special[] = {-0.0, 0.0, std::nan(""), 1.5};
      const auto i = static_cast<std::int64_t>(prng.below(4));
      a.set(e, special[i], i);
    }
  }
  return a;
}
Array indices(Prng& prng, const ir::Shape& shape, std::int64_t extent) {
  Array a = kernels::conformance::random_layout(prng, DType::kInt64, shape, prng.chance(0.4));
  for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, 0, prng.between(-extent, extent - 1));
  return a;
}
Array result(DType t, const ir::Shape& shape) {
  Array a = Array::contiguous(t, shape);
  for (std::byte& b : a.bytes) b = std::byte{0x5A};
  return a;
}
ir::Shape some_shape(Prng& prng, std::int64_t most) {
  ir::Shape shape = kernels::conformance::random_shape(prng, 4, most);
  if (shape.empty()) shape.push_back(prng.between(1, 20));
  for (std::int64_t& n : shape) n = std::max<std::int64_t>(n, 1);
  return shape;
}
std::string text(const std::string& what, DType t, const ir::Shape& shape, std::size_t axis) {
  return what + " of " + std::string(name_of(t)) + ir::to_string(shape) + " along " + std::to_string(axis);
}

// Compiled together where that is cheaper (conformance_check.cc).
void prepare_all(Pair& pair) {
  for (int d = 0; d < ir::kDTypeCount; ++d) {
    const auto t = static_cast<DType>(d);
    const Array a = Array::contiguous(t, {1}), number = Array::contiguous(DType::kInt64, {1});
    must(pair.cuda->prepare(call_step(ir::builtin::Take{}, {1}, {number, a}, {a}).op), "take");
    must(pair.cuda->prepare(call_step(ir::builtin::SortBlock{}, {1}, {a}, {a}).op), "sort");
    must(pair.cuda->prepare(call_step(ir::builtin::SortBlock{}, {1}, {a}, {a, number}).op), "argsort");
    must(pair.cuda->prepare(
             kernels::conformance::map_step(tape({kernels::conformance::instr(ir::TapeOp::kLoad, t)}), {a},
                                            ir::box_of({1}), {1})
                 .op),
         "copy");
    if (t == DType::kFloat32 || t == DType::kFloat64)
      must(pair.cuda->prepare(call_step(ir::builtin::Gamma{}, {1}, {}, {a}).op), "gamma");
  }
}

void takes(Pair& pair) {
  Prng prng(50);
  for (int round = 0; round < 120; ++round) {
    const DType t = any_dtype(prng);
    const ir::Shape shape = some_shape(prng, 2000);
    const std::size_t axis = prng.below(shape.size());
    const std::int64_t lo = prng.between(0, 5), extent = lo + shape[axis] + prng.between(0, 5);
    ir::Shape out = shape;
    out[axis] = prng.between(0, 40);
    const bool own = prng.chance(0.5);  // each line its indices
    const Array at = indices(prng, own ? out : ir::Shape{out[axis]}, extent);
    const auto axis64 = static_cast<std::int64_t>(axis);
    Step step = own ? call_step(ir::builtin::TakeAlong{axis64, extent}, out, {at, filled(prng, t, shape)},
                                {result(t, out)})
                    : call_step(ir::builtin::Take{axis64, extent}, out, {at, filled(prng, t, shape)},
                                {result(t, out)});
    step.input_boxes[1].lo[axis] += lo;
    step.input_boxes[1].hi[axis] += lo;
    step.step = prng.between(0, 1);
    step.steps = 2;
    if (prng.chance(0.05)) step.inputs[1].absent = true;
    pair.compare(step, text(own ? "take_along_axis" : "take", t, shape, axis));
  }
}

// Indices of any number of dimensions.
void grid_takes(Pair& pair) {
  Prng prng(57);
  for (int round = 0; round < 80; ++round) {
    const DType t = any_dtype(prng);
    const ir::Shape shape = some_shape(prng, 600);
    const std::size_t axis = prng.below(shape.size());
    const std::int64_t lo = prng.between(0, 5), extent = lo + shape[axis] + prng.between(0, 5);
    ir::Shape dims;
    for (std::uint64_t d = prng.below(4); d > 0; --d) dims.push_back(prng.between(0, 6));
    ir::Shape out = shape;
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(axis));
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis), dims.begin(), dims.end());
    const Array at = indices(prng, dims, extent);
    Step step = call_step(ir::builtin::Take{static_cast<std::int64_t>(axis), extent}, out,
                          {at, filled(prng, t, shape)}, {result(t, out)});
    step.input_boxes[1].lo[axis] += lo;
    step.input_boxes[1].hi[axis] += lo;
    step.step = prng.between(0, 1);
    step.steps = 2;
    pair.compare(step, text("take at indices " + ir::to_string(dims), t, shape, axis));
    Step wrap = call_step(ir::builtin::WrapIndex{static_cast<std::int64_t>(axis), extent}, dims, {at},
                          {result(DType::kInt64, dims)});
    pair.compare(wrap, text("wrap_index", DType::kInt64, dims, axis));
  }
}

void puts(Pair& pair) {
  Prng prng(51);
  for (int round = 0; round < 120; ++round) {
    const DType t = any_dtype(prng);
    const ir::Shape shape = some_shape(prng, 2000);
    const std::size_t axis = prng.below(shape.size());
    ir::Shape values = shape;
    values[axis] = prng.between(0, 60);
    const std::int64_t lo = prng.between(0, 5), extent = lo + shape[axis] + prng.between(0, 5);
    Step step =
        call_step(ir::builtin::Put{static_cast<std::int64_t>(axis), extent}, shape,
                  {filled(prng, t, shape), indices(prng, {values[axis]}, extent), filled(prng, t, values)},
                  {result(t, shape)});
    step.box.lo[axis] += lo;
    step.box.hi[axis] += lo;
    step.space[axis] = extent;
    step.steps = 2;
    Step want = step;
    for (step.step = 0; step.step < 2; ++step.step) {  // the second goes on with what the first left
      want.step = step.step;
      run(pair.gpu, step);
      run(pair.cpu, want);
      check_same(step.outputs[0], want.outputs[0], text("put", t, shape, axis));
      step.inputs[1] = want.inputs[1] = indices(prng, {values[axis]}, extent);
    }
  }
}

void selections(Pair& pair) {
  Prng prng(52);
  for (const std::int64_t n : {0, 1, 2, 255, 256, 257, 2047, 2048, 2049, 5000, 40'000}) {
    for (const double chance : {0.0, 0.03, 0.5, 1.0}) {
      Array mask = kernels::conformance::random_layout(prng, DType::kBool, {n}, prng.chance(0.5));
      std::int64_t count = 0;
      for (std::int64_t e = 0; e < n; ++e) mask.set(e, 0, prng.chance(chance));
      for (std::int64_t e = 0; e < n; ++e) count += mask.as_int(e);
      Step sum = call_step(ir::builtin::CountTrue{}, {1}, {mask}, {result(DType::kInt64, {1})});
      pair.compare(sum, "count_true of " + std::to_string(n));
      CHECK(sum.outputs[0].as_int(0) == count);
      Step where = call_step(ir::builtin::Compress{}, {count}, {mask}, {result(DType::kInt64, {count})});
      where.input_boxes[0].lo[0] += 17, where.input_boxes[0].hi[0] += 17;
      pair.compare(where, "nonzero of " + std::to_string(n));
      const DType t = any_dtype(prng);
      ir::Shape shape = {n}, out = {count};
      if (n < 3000 && prng.chance(0.5)) shape.push_back(3), out.push_back(3);
      if (n < 300 && prng.chance(0.5)) shape.push_back(2), out.push_back(2);
      Step chosen = call_step(ir::builtin::Compress{}, out, {mask, filled(prng, t, shape)}, {result(t, out)});
      pair.compare(chosen, text("compress", t, shape, 0));
    }
  }
}

// Lines that are sorted, by the host.
Array sorted(Pair& pair, const Array& x, std::size_t axis, bool descending, Array* numbers) {
  std::vector<Array> outputs = {result(x.dtype, x.shape)}, inputs = {x};
  if (numbers != nullptr) outputs.push_back(result(DType::kInt64, x.shape)), inputs.push_back(*numbers);
  Step step = call_step(ir::builtin::SortBlock{static_cast<std::int64_t>(axis), descending}, x.shape, inputs,
                        outputs);
  run(pair.cpu, step);
  if (numbers != nullptr) *numbers = step.outputs[1];
  return step.outputs[0];
}

void sorts(Pair& pair) {
  Prng prng(53);
  const std::int64_t lengths[] = {1,    2,    3,    31,   64,   100,  1000, 2047,
                                  2048, 2049, 4095, 4097, 6000, 8192, 8193, 20'000};
  for (int round = 0; round < 160; ++round) {
    const DType t = round < 2 * ir::kDTypeCount ? static_cast<DType>(round / 2) : ordered_dtype(prng);
    if (!has_order(t)) continue;
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
    pair.compare(step, text(std::string(numbered ? "argsort" : "sort") + (descending ? " down" : " up") +
                                (kept == shape ? "" : ", the first " + std::to_string(kept[axis])),
                            t, shape, axis));
  }
}

void merges(Pair& pair) {
  Prng prng(54);
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
    const Array a = sorted(pair, with_ties(prng, t, x), axis, descending, numbered ? &xn : nullptr),
                b = sorted(pair, with_ties(prng, t, y), axis, descending, numbered ? &yn : nullptr);
    std::vector<Array> inputs = {a, b}, outputs = {result(t, out)};
    if (numbered) inputs.push_back(xn), inputs.push_back(yn), outputs.push_back(result(DType::kInt64, out));
    Step step =
        call_step(ir::builtin::MergeSplit{static_cast<std::int64_t>(axis), descending}, out, inputs, outputs);
    if (!low) step.box.lo[axis] += 1, step.box.hi[axis] += 1;
    pair.compare(step, text(low ? "the low half of a merge" : "the high half of a merge", t, out, axis));
  }
}

void searches(Pair& pair) {
  Prng prng(55);
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
          sorted(pair, with_ties(prng, t, {prng.between(1, 3000)}), 0, false, nullptr);
      run(pair.gpu, step);
      run(pair.cpu, want);
      check_same(step.outputs[0], want.outputs[0], text("searchsorted", t, shape, 0));
    }
  }
}

// The host's within a few last places; another answer of log or cos may change what is accepted, of one number in many.
void gammas(Pair& pair) {
  for (const DType t : {DType::kFloat32, DType::kFloat64}) {
    for (const double alpha : {0.3, 1.0, 2.5, 40.0}) {
      const ir::Shape space = {70, 90};
      ir::builtin::Gamma p{.key = 99,
                           .alpha_bits = std::bit_cast<std::int64_t>(alpha),
                           .scale_bits = std::bit_cast<std::int64_t>(1.5)};
      Step step = call_step(p, {30, 41}, {}, {result(t, {30, 41})});
      step.box = {{7, 9}, {37, 50}};
      step.space = space;
      Step want = step;
      run(pair.gpu, step);
      run(pair.cpu, want);
      const double last = t == DType::kFloat32 ? 0x1p-23 : 0x1p-52;
      int other = 0;
      for (std::int64_t e = 0; e < want.outputs[0].volume(); ++e) {
        const double g = step.outputs[0].as_double(e), w = want.outputs[0].as_double(e);
        // Below one a power with exponent 1 / alpha magnifies.
        other += !(std::fabs(g - w) <= 64 * (1 + 1 / alpha) * last * w);
      }
      CHECK_MESSAGE(other <= 2, name_of(t) << " alpha " << alpha << ": " << other << " differ");
    }
  }
}

// The next step is as it should be.
void faults(Pair& pair) {
  Prng prng(56);
  device::Stream& stream = pair.device->compute_stream(0);
  const auto slab = pair.device->add_slab(1 << 20);
  REQUIRE(slab.has_value());
  const std::int64_t at[4] = {2, 0, 11, -1};
  REQUIRE(stream.copy(slab->data, at, sizeof at).has_value());
  const Step step = call_step(ir::builtin::Take{0, 10}, {4},
                              {Array::contiguous(DType::kInt64, {4}), Array::contiguous(DType::kInt64, {10})},
                              {result(DType::kInt64, {4})});
  kernels::KernelCall call = call_of(step.op, {4});
  const auto launch = [&](std::int64_t count) {
    call.inputs.clear(), call.outputs.clear();
    call.input_boxes = {ir::box_of({count}), ir::box_of({10})};
    call.inputs.push_back(dense(slab->data, DType::kInt64, {count}));
    call.inputs.push_back(dense(slab->data + 512, DType::kInt64, {10}));
    call.outputs.push_back(dense(slab->data + 1024, DType::kInt64, {count}));
    call.output_boxes = {ir::box_of({count})};
    must(pair.cuda->launch(call, stream), "take");
    const std::uint64_t sequence = stream.record();
    pair.device->synchronize();
    return sequence;
  };
  for (int round = 0; round < 3; ++round) {
    launch(2);
    const std::uint64_t bad = launch(4);
    launch(2);
    std::vector<device::StepFailure> failures;
    stream.take_failures(failures);
    REQUIRE(failures.size() == 1);
    CHECK(failures[0].sequence == bad);
    CHECK(failures[0].error.code == Errc::kOutOfRange);
    CHECK(failures[0].error.message == "index 11 is out of bounds for axis 0 with size 10");
    CHECK(pair.device->health().has_value());
  }
}

TEST_CASE("built-in kernels on CUDA are the host's") {
  Pair pair;
  prepare_all(pair);
  SUBCASE("take") { takes(pair); }
  SUBCASE("take at indices of many dimensions") { grid_takes(pair); }
  SUBCASE("put") { puts(pair); }
  SUBCASE("masks") { selections(pair); }
  SUBCASE("sort") { sorts(pair); }
  SUBCASE("merge") { merges(pair); }
  SUBCASE("searchsorted") { searches(pair); }
  SUBCASE("gamma") { gammas(pair); }
  SUBCASE("what is wrong with data is told") { faults(pair); }
}

}  // namespace
}  // namespace tilewise::gpu
