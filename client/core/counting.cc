// Sums and counts of what belongs together.
#include <tilewise/functions.h>

#include <algorithm>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::block_volume;
using client::extent;
using client::refuse;

constexpr std::int64_t kMostSegments = std::int64_t{1} << 48;

Array whole(const Array& like, const Grid& grid, std::int64_t value, DType dtype) {
  return Access::record(Access::state(like), nullptr,
                        ir::infer_generate(grid.shape(), grid, [&](ir::TapeBuilder& t, auto) {
                          return client::filled(t, value, dtype);
                        }));
}

// The cuts of as many segments, and beside them those of the values.
Grid segments(const Array& values, std::int64_t count) {
  const Grid cuts = client::computed_cuts(values);
  const std::int64_t beside = block_volume(cuts) / std::max<std::int64_t>(1, cuts.dim(0).max_size());
  const std::int64_t most = client::kDefaultBlockBytes / static_cast<std::int64_t>(size_of(values.dtype())) /
                            std::max<std::int64_t>(1, beside);
  std::vector<ir::DimGrid> dims = cuts.dims();
  dims[0] = client::value_or_throw(
      ir::DimGrid::uniform(count, std::clamp<std::int64_t>(count, 1, std::max<std::int64_t>(1, most))));
  return Grid(std::move(dims));
}

// Sums of integers are the same in any order: where blocks of values are longer than all sums, each is summed by itself first. `ids` are
// in [0, count).
Array sums_of_blocks(const Array& values, const Array& ids, std::int64_t count, std::int64_t length) {
  const std::int64_t blocks = ir::ceil_div(ids.size(), length);
  const ir::Source source = Access::source(ids);
  const Array parts = Access::record(
      ids, infer_map(std::span(&source, 1), [&](ir::TapeBuilder& t, std::span<const ir::TapeValue> v) {
        const auto block = t.binary(ir::TapeOp::kFloorDiv, t.iota(0), ir::Scalar(length));
        return t.binary(ir::TapeOp::kAdd, v[0], t.binary(ir::TapeOp::kMul, block, ir::Scalar(count)));
      }));
  std::vector<ir::DimGrid> dims = client::computed_cuts(values).dims();
  dims[0] = client::value_or_throw(ir::DimGrid::uniform(blocks * count, count));
  const Grid grid(std::move(dims));
  const Array zeros = whole(values, grid, 0, values.dtype());
  // Block b of the sums is made of elements [b * length, (b + 1) * length).
  ir::OperandMap by_block = client::span_map(values.rank());
  by_block[0].mul = length;
  by_block[0].div = count;
  const auto kernel = client::builtin_kernel(ir::builtin::Put{0, blocks * count, true},
                                             4.0 * static_cast<double>(block_volume(grid)));
  const Array arrays[] = {zeros, parts, values};
  const Array sums = map_blocks(kernel, arrays, {client::span_map(values.rank()), {by_block[0]}, by_block},
                                {{values.dtype(), grid}})
                         .front();
  Shape apart = values.shape();
  apart[0] = count;
  apart.insert(apart.begin(), blocks);
  return sum(sums.reshape(std::span<const std::int64_t>(apart.data(), apart.size())), 0, false,
             values.dtype());
}

// Of values of an addable dtype; ids of others than [0, count) are left out.
Array summed(const Array& values, const Array& ids, std::int64_t count) {
  // What is left out has a segment of its own behind the others.
  const Array inside = where((ids >= 0) & (ids < count), ids, count);
  const std::int64_t all = count + 1;
  const Grid cuts = client::computed_cuts(values);
  const std::int64_t length = cuts.dim(0).max_size();
  if (ir::is_integer(values.dtype()) && all <= length && cuts.dim(0).count() > 1 &&
      values.rank() < limits::kMaxRank)
    return sums_of_blocks(values, inside, all, length).slice(0, 0, count);
  return put_add(whole(values, segments(values, all), 0, values.dtype()), inside, values, 0)
      .slice(0, 0, count);
}

void check_number(const Array& a, std::int64_t count, const std::string& what) {
  if (count < 0) refuse(Errc::kInvalidArgument, what + std::to_string(count), a);
  if (count > kMostSegments) refuse(Errc::kLimitExceeded, what + std::to_string(count), a);
}

// A vector of integers, as int64.
Array ids_of(const Array& ids, const char* function, const char* what) {
  if (!ir::is_integer(ids.dtype()))
    refuse(Errc::kInvalidArgument,
           std::string(function) + ": " + what + " of dtype " + std::string(name_of(ids.dtype())), ids);
  if (ids.rank() != 1)
    refuse(Errc::kShapeMismatch, std::string(function) + " wants a vector of " + what, ids);
  return client::as_positions(ids);
}

struct Extremes {
  std::int64_t least = 0, largest = -1;  // of nothing
  std::int64_t count() const { return std::min(largest, kMostSegments) + 1; }
};
// Waits for them. `ids` are kept, for they will be asked next.
Extremes extremes_of(Array& ids) {
  if (ids.size() == 0) return {};
  ids = Access::plain(ids);
  const Array both = stack({min(ids), max(ids)});
  Future future = Access::state(ids).submit({.fetch = {Access::key(both)}, .hold = {Access::key(ids)}}, {});
  const std::vector<std::int64_t> found = future.get<std::int64_t>(0);
  return {found[0], found[1]};
}

}  // namespace

Array segment_sum(const Array& values, const Array& segment_ids, std::optional<std::int64_t> num_segments) {
  client::check_addable(values, "segment_sum");
  Array ids = ids_of(segment_ids, "segment_sum", "ids");
  if (values.rank() == 0 || extent(values, 0) != ids.size())
    refuse(Errc::kShapeMismatch, "segment_sum with ids of shape " + ir::to_string(ids.shape()), values);
  if (num_segments) check_number(values, *num_segments, "segment_sum: number of segments ");
  const std::int64_t count =
      num_segments ? *num_segments : std::max<std::int64_t>(0, extremes_of(ids).count());
  check_number(values, count, "segment_sum: number of segments ");
  if (ir::is_half(values.dtype()))
    return summed(values.astype(DType::kFloat32), ids, count).astype(values.dtype());
  return summed(values, ids, count);
}

Array bincount(const Array& x, const Array& weights, std::int64_t minlength) {
  Array ids = ids_of(x, "bincount", "integers");
  check_number(x, minlength, "bincount: minlength ");
  if (weights.valid() && weights.shape() != x.shape())
    refuse(Errc::kShapeMismatch, "bincount with weights of shape " + ir::to_string(weights.shape()), x);
  if (weights.valid() && ir::is_complex(weights.dtype()))
    refuse(Errc::kInvalidArgument, "bincount with weights of dtype " + std::string(name_of(weights.dtype())),
           weights);
  const Extremes found = extremes_of(ids);
  if (found.least < 0)
    refuse(Errc::kOutOfRange, "bincount: " + std::to_string(found.least) + " is among the integers", x);
  const std::int64_t count = std::max(found.count(), minlength);
  check_number(x, count, "bincount: number of bins ");
  const Array values = weights.valid() ? weights.astype(DType::kFloat64)
                                       : whole(x, client::computed_cuts(ids), 1, DType::kInt64);
  return summed(values, ids, count);
}

}  // namespace tilewise
