// Copies and reshapes, whole arrays cut and put together again: reblocking, concatenation, windows, views.
#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;

std::vector<std::int64_t> cuts(Prng& prng, std::int64_t extent) {
  std::vector<std::int64_t> at = {0};
  while (at.back() < extent)
    at.push_back(std::min(extent, at.back() + prng.between(1, std::max<std::int64_t>(1, extent))));
  return at;
}

// All blocks of the product of cuts.
std::vector<ir::Box> blocks(Prng& prng, const ir::Shape& shape) {
  std::vector<ir::Box> out = {ir::Box{}};
  for (const std::int64_t extent : shape) {
    const auto at = cuts(prng, extent);
    std::vector<ir::Box> next;
    for (const ir::Box& box : out) {
      for (std::size_t i = 0; i + 1 < at.size(); ++i) {
        next.push_back(box);
        next.back().lo.push_back(at[i]);
        next.back().hi.push_back(at[i + 1]);
      }
    }
    out = std::move(next);
  }
  return out;
}

Array part(const Array& whole, const ir::Box& box) {
  Array a = whole;
  a.shape = box.shape();
  for (std::size_t d = 0; d < box.lo.size(); ++d) a.offset += box.lo[d] * whole.strides[d];
  return a;
}

ir::OperandMap shift_map(const ir::Index& by, std::int64_t before = 0, std::int64_t after = 0) {
  ir::OperandMap map;
  for (std::size_t d = 0; d < by.size(); ++d) {
    map.push_back(
        {ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d), 1, 1, by[d] + before, -by[d] + after});
  }
  return map;
}

// A task's steps: every source block that its region of the operand meets.
void gather(const Subject& subject, Prng& prng, Step& step, const std::vector<Array>& arrays,
            const std::vector<ir::Box>& regions, const std::string& what) {
  Step want = step;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (const ir::Box& source : blocks(prng, arrays[i].shape)) {
      const ir::Box box = ir::intersect(source, regions[i]);
      if (box.volume() == 0) continue;
      step.inputs.assign(arrays.size(), {});
      step.input_boxes.assign(arrays.size(), {});
      for (Array& a : step.inputs) {
        a.absent = true;
        a.dtype = step.outputs[0].dtype;
      }
      step.inputs[i] = part(arrays[i], box);
      step.input_boxes[i] = box;
      want.inputs = step.inputs;
      want.input_boxes = step.input_boxes;
      want.step = step.step;
      run(subject, step);
      run_reference(want);
      ++step.step;
    }
  }
  check_same(step.outputs[0], want.outputs[0], what);
}

Step copy_step(DType t, const ir::Box& box, const ir::Shape& space, const ir::Shape& out) {
  Step step;
  step.op.kind = ir::OpKind::kCopy;
  step.op.outputs.resize(1);
  step.op.outputs[0].dtype = t;
  step.box = box;
  step.space = space;
  step.outputs.push_back(Array::contiguous(t, out));
  step.output_boxes.push_back(box);
  return step;
}

Array source_array(Prng& prng, DType t, const ir::Shape& shape) {
  Array a = random_layout(prng, t, shape, prng.chance(0.3));
  fill_random(prng, a, true);
  return a;
}

// What the output must hold, said without maps: output index x shows element x - by of the operand that has it.
void check_elements(const Step& step, const std::vector<Array>& arrays, const std::vector<ir::Index>& by,
                    const ir::Index& first) {
  const Array& out = step.outputs[0];
  for (std::int64_t e = 0; e < out.volume(); ++e) {
    const ir::Index at = ir::unravel(e, out.shape);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      ir::Index source = at;
      bool inside = true;
      for (std::size_t d = 0; d < at.size(); ++d) {
        source[d] += first[d] - by[i][d];
        inside = inside && source[d] >= 0 && source[d] < arrays[i].shape[d];
      }
      if (!inside) continue;
      const std::int64_t s = ir::ravel(source, arrays[i].shape);
      const bool same = arrays[i].as_int(s) == out.as_int(e);
      if (!same) FAIL("output element " << e << " does not show the operand's element " << s);
    }
  }
}

void reblock_and_concat(const Subject& subject, Prng& prng) {
  const DType t = prng.chance(0.5) ? DType::kInt64 : prng.chance(0.5) ? DType::kInt32 : DType::kBool;
  ir::Shape shape = random_shape(prng, 3, 4000);
  shape.push_back(prng.between(1, 40));
  const auto axis = prng.below(shape.size());
  std::vector<Array> arrays;
  std::vector<ir::Index> by;
  ir::Shape space = shape;
  space[axis] = 0;
  for (std::int64_t i = prng.between(1, 3); i > 0; --i) {
    shape[axis] = prng.between(1, 30);
    by.emplace_back(shape.size(), 0);
    by.back()[axis] = space[axis];
    space[axis] += shape[axis];
    arrays.push_back(source_array(prng, t, shape));
  }
  for (const ir::Box& box : blocks(prng, space)) {
    if (box.volume() == 0) continue;
    Step step = copy_step(t, box, space, box.shape());
    ir::CopyAttrs attrs;
    std::vector<ir::Box> regions;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      attrs.maps.push_back(shift_map(by[i]));
      step.op.operands.push_back({i, ir::View::identity(arrays[i].shape)});
      ir::Box region = box;
      for (std::size_t d = 0; d < by[i].size(); ++d) {
        region.lo[d] -= by[i][d];
        region.hi[d] -= by[i][d];
      }
      regions.push_back(ir::intersect(region, ir::box_of(arrays[i].shape)));
    }
    step.op.attrs = attrs;
    gather(subject, prng, step, arrays, regions, "copy into " + ir::to_string(box));
    check_elements(step, arrays, by, box.lo);
  }
}

// Of an array, or of two tiles of one.
void windows(const Subject& subject, Prng& prng) {
  const ir::Shape shape = {prng.between(2, 30), prng.between(1, 30)};
  const std::int64_t cut = prng.chance(0.5) ? prng.between(1, shape[0] - 1) : shape[0];
  std::vector<Array> tiles{source_array(prng, DType::kInt64, {cut, shape[1]})};
  if (cut < shape[0]) tiles.push_back(source_array(prng, DType::kInt64, {shape[0] - cut, shape[1]}));
  const std::vector<ir::Index> by{{0, 0}, {cut, 0}};
  const std::int64_t before = prng.between(0, 4), after = prng.between(0, 4);
  for (const ir::Box& box : blocks(prng, shape)) {
    ir::Box window = box;
    for (std::size_t d = 0; d < 2; ++d) {
      window.lo[d] = std::max<std::int64_t>(0, window.lo[d] - before);
      window.hi[d] = std::min(shape[d], window.hi[d] + after);
    }
    Step step = copy_step(DType::kInt64, box, shape, window.shape());
    ir::CopyAttrs attrs;
    std::vector<ir::Box> regions;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      step.op.operands.push_back({i, ir::View::identity(tiles[i].shape)});
      attrs.maps.push_back(shift_map(by[i], before, after));
      ir::Box region = window;
      region.lo[0] -= by[i][0];
      region.hi[0] -= by[i][0];
      regions.push_back(ir::intersect(region, ir::box_of(tiles[i].shape)));
    }
    step.op.attrs = attrs;
    gather(subject, prng, step, tiles, regions, "window " + ir::to_string(window));
    check_elements(step, tiles, {by.begin(), by.begin() + static_cast<std::ptrdiff_t>(tiles.size())},
                   window.lo);
  }
}

void reshapes(const Subject& subject, Prng& prng) {
  const std::int64_t a = prng.between(1, 12), b = prng.between(1, 12), c = prng.between(1, 6);
  const ir::Shape froms[] = {{a * b, c}, {a, b * c}, {a, b, c}}, tos[] = {{b, c, a}, {a * b * c}, {c, a * b}};
  const ir::Shape from = froms[prng.below(3)], to = tos[prng.below(3)];
  const Array array = source_array(prng, DType::kFloat32, from);
  // Runs: single indices before a dimension, which is cut, and what is behind it whole.
  const auto runs = [&](const ir::Shape& shape) {
    const auto cut = static_cast<std::size_t>(prng.below(shape.size()));
    const auto at = cuts(prng, shape[cut]);
    const ir::Shape rows(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(cut));
    std::vector<ir::Box> boxes;
    for (std::int64_t row = 0; row < ir::volume(rows); ++row) {
      const ir::Index before = ir::unravel(row, rows);
      for (std::size_t i = 0; i + 1 < at.size(); ++i) {
        ir::Box box = ir::box_of(shape);
        for (std::size_t d = 0; d < cut; ++d) box.lo[d] = before[d], box.hi[d] = before[d] + 1;
        box.lo[cut] = at[i];
        box.hi[cut] = at[i + 1];
        boxes.push_back(box);
      }
    }
    return boxes;
  };
  const auto sources = runs(from);
  for (const ir::Box& box : runs(to)) {
    Step step = copy_step(DType::kFloat32, box, to, box.shape());
    step.op.kind = ir::OpKind::kReshape;
    step.op.attrs = ir::ReshapeAttrs{};
    step.op.operands.push_back({0, ir::View::identity(from)});
    Step want = step;
    const std::int64_t begin = ir::ravel(box.lo, to), end = begin + box.volume();
    for (const ir::Box& source : sources) {
      const std::int64_t first = ir::ravel(source.lo, from);
      if (first + source.volume() <= begin || first >= end) continue;
      step.inputs = {part(array, source)};
      step.input_boxes = {source};
      want.inputs = step.inputs;
      want.input_boxes = step.input_boxes;
      want.step = step.step;
      run(subject, step);
      run_reference(want);
      ++step.step;
    }
    check_same(step.outputs[0], want.outputs[0], "reshape into " + ir::to_string(box));
    for (std::int64_t e = 0; e < step.outputs[0].volume(); ++e) {
      Array one = Array::contiguous(DType::kFloat32, {1}), other = one;
      one.set(0, step.outputs[0].as_double(e), 0);
      other.set(0, array.as_double(begin + e), 0);
      check_same(one, other, "reshape element");
    }
  }
}

// Transposed operands of elements of every size, on both sides of the squares and lines (of a cache) that they are copied in.
void transposes(const Subject& subject, Prng& prng) {
  const auto extent = [&] {
    return prng.chance(0.5) ? 64 * prng.between(1, 2) + prng.between(-1, 1) : prng.between(1, 70);
  };
  for (const DType t :
       {DType::kBool, DType::kInt16, DType::kInt32, DType::kInt64, DType::kFloat64, DType::kComplex128}) {
    const ir::Shape shape{prng.between(1, 3), extent(), extent()};
    const std::int64_t pitch = shape[1] + prng.between(0, 3);
    Array array = Array::contiguous(t, {shape[0], shape[2], pitch});
    fill_random(prng, array, true);
    array.shape = shape;
    array.strides = {shape[2] * pitch, 1, pitch};
    Step step = copy_step(t, ir::box_of(shape), shape, shape);
    step.op.operands.push_back({0, ir::View::identity(shape)});
    step.op.attrs = ir::CopyAttrs{{shift_map({0, 0, 0})}};
    gather(subject, prng, step, {array}, {ir::box_of(shape)}, "transposed " + ir::to_string(shape));
    if (!ir::is_complex(t) && !ir::is_floating(t))
      check_elements(step, {array}, {ir::Index{0, 0, 0}}, {0, 0, 0});
  }
}

// With a dimension between the two.
void permuted(const Subject& subject, Prng& prng) {
  const ir::Shape shape = {67, 5, 101};
  Array array = Array::contiguous(DType::kInt32, {101, 67, 5});
  fill_random(prng, array, true);
  array.shape = shape;
  array.strides = {5, 1, 67 * 5};
  Step step = copy_step(DType::kInt32, ir::box_of(shape), shape, shape);
  step.op.operands.push_back({0, ir::View::identity(shape)});
  step.op.attrs = ir::CopyAttrs{{shift_map({0, 0, 0})}};
  gather(subject, prng, step, {array}, {ir::box_of(shape)}, "permuted copy");
  check_elements(step, {array}, {ir::Index{0, 0, 0}}, {0, 0, 0});
}

}  // namespace

void conform_moves(const Subject& subject) {
  Prng prng(subject.seed + 30);
  for (int round = 0; round < 12; ++round) {
    reblock_and_concat(subject, prng);
    windows(subject, prng);
    reshapes(subject, prng);
    transposes(subject, prng);
  }
  permuted(subject, prng);
}

void run_all(const Subject& subject) {
  MESSAGE("" << std::string(device::name_of(subject.device.info().kind)) << " kernels, seed "
             << subject.seed);
  conform_elementwise(subject);
  conform_special_values(subject);
  conform_tapes(subject);
  conform_random(subject);
  conform_reductions(subject);
  conform_moments(subject);
  conform_scans(subject);
  conform_products(subject);
  conform_moves(subject);
  conform_indices(subject);
  if (subject.order) conform_order(subject);
  conform_numbers(subject);
}

}  // namespace tilewise::kernels::conformance
