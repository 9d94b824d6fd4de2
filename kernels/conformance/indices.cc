// Built-in kernels of kCall that look at data: indices, masks.
#include <cmath>

#include "conformance/calls.h"

namespace tilewise::kernels::conformance {

using ir::DType;

DType any_dtype(Prng& prng) { return static_cast<DType>(prng.below(ir::kDTypeCount)); }
DType ordered_dtype(Prng& prng) {
  for (;;)
    if (const DType t = any_dtype(prng); !ir::is_half(t) && !ir::is_complex(t)) return t;
}

Array filled(Prng& prng, DType t, const ir::Shape& shape, bool edges) {
  Array a = random_layout(prng, t, shape, prng.chance(0.4));
  fill_random(prng, a, edges);
  return a;
}
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
  Array a = random_layout(prng, DType::kInt64, shape, prng.chance(0.4));
  for (std::int64_t e = 0; e < a.volume(); ++e) a.set(e, 0, prng.between(-extent, extent - 1));
  return a;
}
Array result(DType t, const ir::Shape& shape) {
  Array a = Array::contiguous(t, shape);
  for (std::byte& b : a.bytes) b = std::byte{0x5A};
  return a;
}
ir::Shape some_shape(Prng& prng, std::int64_t most) {
  ir::Shape shape = random_shape(prng, 4, most);
  if (shape.empty()) shape.push_back(prng.between(1, 20));
  for (std::int64_t& n : shape) n = std::max<std::int64_t>(n, 1);
  return shape;
}
std::string text(const std::string& what, DType t, const ir::Shape& shape, std::size_t axis) {
  return what + " of " + std::string(name_of(t)) + ir::to_string(shape) + " along " + std::to_string(axis);
}

void compare(const Subject& subject, Step& step, const std::string& what) {
  Step want = step;
  run(subject, step);
  run_reference(want);
  for (std::size_t o = 0; o < want.outputs.size(); ++o)
    check_same(step.outputs[o], want.outputs[o], what + ", output " + std::to_string(o));
}

namespace {

void takes(const Subject& subject) {
  Prng prng(subject.seed + 50);
  for (int round = 0; round < 120; ++round) {
    const DType t = any_dtype(prng);
    const ir::Shape shape = some_shape(prng, 2000);
    const std::size_t axis = prng.below(shape.size());
    const std::int64_t lo = prng.between(0, 5), extent = lo + shape[axis] + prng.between(0, 5);
    ir::Shape out = shape;
    out[axis] = ir::volume(shape) < 50 && prng.chance(0.5) ? prng.between(1000, 2100) : prng.between(0, 40);
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
    compare(subject, step, text(own ? "take_along_axis" : "take", t, shape, axis));
  }
}

// All steps of a sweep, some with a second result for what they keep of the indices: of it nothing is promised.
void swept_takes(const Subject& subject) {
  Prng prng(subject.seed + 58);
  for (int round = 0; round < 80; ++round) {
    const DType t = any_dtype(prng);
    const std::int64_t counts[] = {0, 40, 1023, 1024, 1025, 2000, 3000};
    const std::int64_t count = counts[prng.below(std::size(counts))], steps = prng.between(1, 6);
    ir::Shape shape = some_shape(prng, 8);
    const std::size_t axis = prng.below(shape.size());
    const std::int64_t each = prng.chance(0.3) ? prng.between(0, 9) : prng.between(300, 900);
    shape[axis] = each;
    ir::Shape out = shape, kept(shape.size(), 1);
    out[axis] = kept[axis] = count;
    const std::int64_t extent = std::max<std::int64_t>(1, each * steps);
    const auto axis64 = static_cast<std::int64_t>(axis);
    const bool own = prng.chance(0.3), keeps = !own && prng.chance(0.7);
    const Array at = indices(prng, own ? out : ir::Shape{count}, extent);
    std::vector<Array> outputs = {result(t, out)};
    if (keeps) outputs.push_back(result(DType::kInt64, kept));
    Step step =
        own ? call_step(ir::builtin::TakeAlong{axis64, extent}, out, {at, filled(prng, t, shape)}, outputs)
            : call_step(ir::builtin::Take{axis64, extent}, out, {at, filled(prng, t, shape)}, outputs);
    step.steps = steps;
    Step want = step;
    for (step.step = 0; step.step < steps; ++step.step) {
      want.step = step.step;
      want.inputs[1] = step.inputs[1];
      want.input_boxes = step.input_boxes;
      run(subject, step);
      run_reference(want);
      step.input_boxes[1].lo[axis] += each;
      step.input_boxes[1].hi[axis] += each;
      step.inputs[1] = filled(prng, t, shape);  // other blocks are elsewhere
    }
    check_same(step.outputs[0], want.outputs[0],
               text(std::string(own ? "take_along_axis" : "take") + (keeps ? " with parts" : "") + ", " +
                        std::to_string(steps) + " steps of",
                    t, shape, axis));
  }
}

// Indices of any number of dimensions.
void grid_takes(const Subject& subject) {
  Prng prng(subject.seed + 57);
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
    compare(subject, step, text("take at indices " + ir::to_string(dims), t, shape, axis));
    Step wrap = call_step(ir::builtin::WrapIndex{static_cast<std::int64_t>(axis), extent}, dims, {at},
                          {result(DType::kInt64, dims)});
    compare(subject, wrap, text("wrap_index", DType::kInt64, dims, axis));
  }
}

void writes(const Subject& subject) {
  Prng prng(subject.seed + 51);
  for (int round = 0; round < 240; ++round) {
    const bool adds = round % 2 != 0;
    DType t = any_dtype(prng);
    while (adds && (t == DType::kBool || ir::is_half(t))) t = any_dtype(prng);
    const ir::Shape shape = some_shape(prng, 2000);
    const std::size_t axis = prng.below(shape.size());
    ir::Shape values = shape;
    // Long enough, now and then, that several come to each place.
    values[axis] =
        ir::volume(shape) < 200 && prng.chance(0.3) ? prng.between(900, 1500) : prng.between(0, 60);
    const bool local = prng.chance(0.2);
    const std::int64_t lo = prng.between(0, 5),
                       extent = local ? shape[axis] : lo + shape[axis] + prng.between(0, 5);
    Step step =
        call_step(ir::builtin::Put{static_cast<std::int64_t>(axis), extent, adds, local}, shape,
                  {filled(prng, t, shape), indices(prng, {values[axis]}, extent), filled(prng, t, values)},
                  {result(t, shape)});
    step.box.lo[axis] += lo;
    step.box.hi[axis] += lo;
    step.space[axis] = lo + extent;
    step.steps = 2;
    Step want = step;
    for (step.step = 0; step.step < 2; ++step.step) {  // the second goes on with what the first left
      want.step = step.step;
      run(subject, step);
      run_reference(want);
      check_same(step.outputs[0], want.outputs[0], text(adds ? "put, added," : "put", t, shape, axis));
      step.inputs[1] = want.inputs[1] = indices(prng, {values[axis]}, extent);
    }
  }
}

void selections(const Subject& subject) {
  Prng prng(subject.seed + 52);
  for (const std::int64_t n :
       {0, 1, 2, 7, 8, 9, 255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 40'000}) {
    for (const double chance : {0.0, 0.03, 0.5, 1.0}) {
      Array mask = random_layout(prng, DType::kBool, {n}, prng.chance(0.5));
      std::int64_t count = 0;
      for (std::int64_t e = 0; e < n; ++e) mask.set(e, 0, prng.chance(chance));
      for (std::int64_t e = 0; e < n; ++e) count += mask.as_int(e);
      Step sum = call_step(ir::builtin::CountTrue{}, {1}, {mask}, {result(DType::kInt64, {1})});
      compare(subject, sum, "count_true of " + std::to_string(n));
      CHECK(sum.outputs[0].as_int(0) == count);
      Step where = call_step(ir::builtin::Compress{}, {count}, {mask}, {result(DType::kInt64, {count})});
      where.input_boxes[0].lo[0] += 17, where.input_boxes[0].hi[0] += 17;
      compare(subject, where, "nonzero of " + std::to_string(n));
      const DType t = any_dtype(prng);
      ir::Shape shape = {n}, out = {count};
      if (n < 3000 && prng.chance(0.5)) shape.push_back(3), out.push_back(3);
      if (n < 300 && prng.chance(0.5)) shape.push_back(2), out.push_back(2);
      Step chosen = call_step(ir::builtin::Compress{}, out, {mask, filled(prng, t, shape)}, {result(t, out)});
      compare(subject, chosen, text("compress", t, shape, 0));
    }
  }
}

}  // namespace

void conform_indices(const Subject& subject) {
  takes(subject);
  swept_takes(subject);
  grid_takes(subject);
  writes(subject);
  selections(subject);
}

}  // namespace tilewise::kernels::conformance
