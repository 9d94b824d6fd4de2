// Sorting, merging and searching lines. As kernels/sort and kernels/index/search.cc, which say more.
#include <tilewise/ir/builtin.h>

#include <algorithm>

#include "call.h"

namespace tilewise::cuda {
namespace {

constexpr std::int64_t kSortTile = 8 * kThreads;  // elements that a thread block sorts or merges

// As device/order.cuh.
struct SearchParams {
  Walk walk;
  Place place[2];
  std::int64_t sorted = 0, stride = 0, length = 0;
  std::int32_t right = 0, add = 0;
};
struct Lines {
  Place value, number;
  std::int64_t value_stride = 0, number_stride = 0, first = 0;
};
struct SortParams {
  Walk lines;
  Lines in, out, other;
  std::int64_t length = 0, other_length = 0, run = 0, from = 0, kept = 0, tiles = 0;
  std::int32_t descending = 0, two = 0;
};

std::int64_t tiles_of(std::int64_t count) { return (count + kSortTile - 1) / kSortTile; }
std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
// One array of `count` elements, with numbers or without.
std::int64_t buffer_bytes(std::int64_t count, ir::DType dtype, bool numbered) {
  return align(count * static_cast<std::int64_t>(ir::size_of(dtype))) + (numbered ? align(count * 8) : 0);
}

// Arrays of lines along one axis, of which all walks are merged together.
class LineSet {
 public:
  LineSet(ir::Shape shape, std::size_t axis) : shape_(std::move(shape)), axis_(axis) { shape_[axis] = 1; }

  // `number`: may be null.
  std::size_t add(const Strided& value, const Strided* number, std::int64_t first = 0) {
    strided_.push_back(value);
    strided_.push_back(number != nullptr ? *number : Strided{0, ir::Strides(shape_.size(), 0)});
    firsts_.push_back(first);
    return firsts_.size() - 1;
  }
  Walk merge_walks() { return merge(shape_, strided_, places_); }
  Lines operator[](std::size_t i) const {
    return {places_[2 * i], places_[2 * i + 1], strided_[2 * i].strides[axis_],
            strided_[2 * i + 1].strides[axis_], firsts_[i]};
  }

 private:
  static constexpr std::size_t kMost = 4;
  ir::Shape shape_;
  std::size_t axis_;
  boost::container::static_vector<Strided, 2 * kMost> strided_;
  boost::container::static_vector<std::int64_t, kMost> firsts_;
  Place places_[2 * kMost];
};

Strided own(const TensorView& view) { return {address(view.data), view.strides}; }

// Lines of `length` one behind the other.
Strided lines_at(const std::byte* data, ir::Shape shape, std::size_t axis) {
  const std::int64_t length = shape[axis];
  shape[axis] = 1;
  Strided lines = contiguous(data, shape);
  for (std::int64_t& stride : lines.strides) stride *= length;
  lines.strides[axis] = 1;
  return lines;
}

}  // namespace

bool has_order(ir::DType dtype) { return !ir::is_half(dtype) && !ir::is_complex(dtype); }

Status launch_search(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::SearchSorted p;
  TW_TRY(read_params(call, p));
  const TensorView &v = call.inputs[0], &sorted = call.inputs[1], &out = call.outputs[0];
  if (v.data == nullptr || sorted.data == nullptr) return call.step == 0 ? clear(env, out, stream) : Status{};
  if (out.dtype != ir::DType::kInt64 || sorted.shape.size() != 1 || sorted.dtype != v.dtype ||
      v.shape != out.shape)
    return refuse(call, "wants a sorted vector and values of one dtype");
  if (!has_order(v.dtype)) return refuse(call, std::string(name_of(v.dtype)) + " has no order here");
  const Strided places[2] = {contiguous(out.data, out.shape), strided(v, out.shape)};
  SearchParams params;
  params.walk = merge(out.shape, places, params.place);
  if (params.walk.count == 0) return {};
  params.sorted = address(sorted.data);
  params.stride = sorted.strides[0];
  params.length = sorted.shape[0];
  params.right = p.right != 0;
  params.add = call.step > 0;
  TW_ASSIGN(const Program program, env.programs.order(v.dtype, false));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[0], blocks_for(params.walk.count), 1, &params, stream);
}

// Every other pass of a sort writes beside the output, or beside what is shorter than the lines twice.
std::int64_t sort_scratch_bytes(const ir::Op& op) {
  ir::builtin::SortBlock p;
  const std::string& params = op.get<ir::CallAttrs>().params;
  const ir::Shape largest = op.space.max_block_shape();
  if (!ir::builtin::read(p, params.data(), params.size()) || p.axis < 0 ||
      static_cast<std::size_t>(p.axis) >= largest.size() ||
      largest[static_cast<std::size_t>(p.axis)] <= kSortTile)
    return 0;
  const std::int64_t bytes = buffer_bytes(ir::volume(largest), op.outputs.at(0).dtype, op.outputs.size() > 1);
  return op.outputs[0].grid == op.space ? bytes : 2 * bytes;
}

Status launch_sort(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::SortBlock p;
  TW_TRY(read_params(call, p));
  TW_TRY(null_operand(call, 0));
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  const auto axis = static_cast<std::size_t>(p.axis);
  if (p.axis < 0 || axis >= x.shape.size() || !same_lines(x, out, axis) || x.dtype != out.dtype ||
      out.shape[axis] > x.shape[axis])
    return refuse(call, "the array and the result differ in dtype or extents");
  if (!has_order(x.dtype)) return refuse(call, std::string(name_of(x.dtype)) + " has no order here");
  const bool numbered = call.outputs.size() > 1, listed = call.inputs.size() > 1;
  if ((listed && (call.inputs[1].dtype != ir::DType::kInt64 || call.inputs[1].shape != x.shape)) ||
      (numbered && (call.outputs[1].dtype != ir::DType::kInt64 || call.outputs[1].shape != out.shape)))
    return refuse(call, "numbers are int64, one an element");
  const std::int64_t n = x.shape[axis], kept = out.shape[axis], count = ir::volume(x.shape);
  if (count == 0 || kept == 0) return {};

  int merges = 0;
  for (std::int64_t run = kSortTile; run < n; run *= 2) ++merges;
  LineSet set(x.shape, axis);
  const Strided in = own(x), listed_numbers = listed ? own(call.inputs[1]) : Strided{};
  const std::size_t from =
      set.add(in, numbered && listed ? &listed_numbers : nullptr, call.input_boxes[0].lo[axis]);
  const Strided to = contiguous(out.data, out.shape),
                to_numbers = contiguous(numbered ? call.outputs[1].data : nullptr, out.shape);
  const std::size_t result = set.add(to, numbered ? &to_numbers : nullptr);
  std::size_t beside[2] = {result,
                           result};  // what passes write that are followed by an odd or even number of others
  if (merges > 0) {
    if (call.scratch == nullptr) return error(Errc::kInternal, "a sort without scratch memory");
    for (int b = 0; b < (kept == n ? 1 : 2); ++b) {
      const std::byte* const at = call.scratch + b * buffer_bytes(count, x.dtype, numbered);
      const Strided values = lines_at(at, x.shape, axis),
                    numbers = lines_at(at + align(count * static_cast<std::int64_t>(ir::size_of(x.dtype))),
                                       x.shape, axis);
      beside[b] = set.add(values, numbered ? &numbers : nullptr);
    }
  }
  SortParams params;
  params.lines = set.merge_walks();
  params.length = n;
  params.descending = p.descending != 0;
  TW_ASSIGN(const Program program, env.programs.order(x.dtype, numbered));
  TW_TRY(env.context.make_current());
  std::size_t source = from;
  for (int pass = 0; pass <= merges; ++pass) {
    const bool last = pass == merges;
    const std::size_t target = last ? result : beside[(merges - pass) % 2 == 1 ? 0 : 1];
    params.in = set[source];
    params.out = set[target];
    params.run = pass == 0 ? 0 : kSortTile << (pass - 1);
    params.kept = last ? kept : n;
    params.tiles = tiles_of(params.kept);
    TW_TRY(launch_kernel(env, program.entry[pass == 0 ? 1 : 2], params.lines.count * params.tiles, 1, &params,
                         stream));
    source = target;
  }
  return {};
}

Status launch_merge(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::MergeSplit p;
  TW_TRY(read_params(call, p));
  const std::size_t arrays = call.outputs.size(), blocks = arrays == 0 ? 0 : call.inputs.size() / arrays;
  const auto axis = static_cast<std::size_t>(p.axis);
  bool good = (arrays == 1 || arrays == 2) && (blocks == 1 || blocks == 2) &&
              call.inputs.size() == arrays * blocks && p.axis >= 0 && axis < call.outputs[0].shape.size();
  for (std::size_t i = 0; good && i < call.inputs.size(); ++i) {
    const TensorView &in = call.inputs[i], &out = call.outputs[i / blocks];
    good = in.data != nullptr && in.dtype == out.dtype && same_lines(in, out, axis) &&
           (i < blocks || in.shape[axis] == call.inputs[i - blocks].shape[axis]);
  }
  if (good && arrays == 2)
    good = call.outputs[1].dtype == ir::DType::kInt64 && call.outputs[1].shape == call.outputs[0].shape;
  if (good && blocks == 2)
    good = call.outputs[0].shape[axis] <= call.inputs[0].shape[axis] + call.inputs[1].shape[axis];
  if (!good) return refuse(call, "wants one or two blocks of an array, and of its numbers");
  if (blocks == 1) {
    for (std::size_t i = 0; i < arrays; ++i) {
      const TensorView &in = call.inputs[i], &out = call.outputs[i];
      if (in.shape != out.shape) return refuse(call, "a block alone is as long as its result");
      if (ir::volume(out.shape) > 0) TW_TRY(copy_region(env, in, contiguous(out.data, out.shape), stream));
    }
    return {};
  }
  const TensorView &x = call.inputs[0], &y = call.inputs[1], &out = call.outputs[0];
  if (!has_order(x.dtype)) return refuse(call, std::string(name_of(x.dtype)) + " has no order here");
  if (ir::volume(out.shape) == 0) return {};
  const bool numbered = arrays == 2;
  LineSet set(out.shape, axis);
  const auto add = [&](const Strided& values, const Strided& numbers) {
    return set.add(values, numbered ? &numbers : nullptr);
  };
  const std::size_t first = add(own(x), own(call.inputs[numbered ? 2 : 0])),
                    second = add(own(y), own(call.inputs[numbered ? 3 : 1])),
                    target =
                        add(contiguous(out.data, out.shape), contiguous(call.outputs.back().data, out.shape));
  SortParams params;
  params.lines = set.merge_walks();
  params.in = set[first];
  params.other = set[second];
  params.out = set[target];
  params.length = x.shape[axis];
  params.other_length = y.shape[axis];
  params.kept = out.shape[axis];
  const bool low = call.box.lo[axis] == call.input_boxes[0].lo[axis];
  params.from = low ? 0 : params.length + params.other_length - params.kept;
  params.tiles = tiles_of(params.kept);
  params.descending = p.descending != 0;
  params.two = 1;
  TW_ASSIGN(const Program program, env.programs.order(x.dtype, numbered));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[2], params.lines.count * params.tiles, 1, &params, stream);
}

}  // namespace tilewise::cuda
