// Sums and counts of what belongs together.
#include <tilewise/functions.h>
#include <tilewise/session.h>

#include <algorithm>
#include <cmath>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::block_volume;
using client::extent;
using client::refuse;
using ir::TapeOp;

constexpr std::int64_t kMostSegments = std::int64_t{1} << 48;

Array zeros(const Array& like, const Grid& grid, DType dtype) {
  return Access::record(Access::state(like), nullptr,
                        ir::infer_generate(grid.shape(), grid, [&](ir::TapeBuilder& t, auto) {
                          return client::filled(t, std::int64_t{0}, dtype);
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

// Values to sum, and the cuts of their ids.
struct Summands {
  Array values;
  ir::DimGrid cuts;
};
Summands summands(const Array& values) { return {values, client::computed_cuts(values).dim(0)}; }
// A one for each id.
Summands ones(const Array& ids) {
  const Array one = Access::record(Access::state(ids), nullptr,
                                   ir::infer_generate({}, std::nullopt, [](ir::TapeBuilder& t, auto) {
                                     return client::filled(t, std::int64_t{1}, DType::kInt64);
                                   }));
  return {one.broadcast_to(ids.shape()), client::computed_cuts(ids).dim(0)};
}

// Sums of integers are the same in any order: where blocks of values are longer than all sums, each is summed by itself first.
Array sums_of_blocks(const Summands& given, const Array& ids, std::int64_t count) {
  const Array& values = given.values;
  const std::int64_t length = given.cuts.max_size(), blocks = ir::ceil_div(ids.size(), length);
  std::vector<ir::DimGrid> dims = client::computed_cuts(values).dims();
  dims[0] = client::value_or_throw(ir::DimGrid::uniform(blocks * count, count));
  const Grid grid(std::move(dims));
  // Block b of the sums is made of elements [b * length, (b + 1) * length).
  ir::OperandMap by_block = client::span_map(values.rank());
  by_block[0].mul = length;
  by_block[0].div = count;
  const auto kernel = client::builtin_kernel(ir::builtin::Put{0, count, true, true},
                                             4.0 * static_cast<double>(block_volume(grid)));
  const Array arrays[] = {zeros(values, grid, values.dtype()), ids, values};
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
Array summed(const Summands& given, const Array& ids, std::int64_t count) {
  // What is left out has a segment of its own behind the others.
  const Array inside = where((ids >= 0) & (ids < count), ids, count);
  const std::int64_t all = count + 1;
  const Array& values = given.values;
  if (ir::is_integer(values.dtype()) && all <= given.cuts.max_size() && given.cuts.count() > 1 &&
      values.rank() < limits::kMaxRank)
    return sums_of_blocks(given, inside, all).slice(0, 0, count);
  return put_add(zeros(values, segments(values, all), values.dtype()), inside, values, 0).slice(0, 0, count);
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
    return summed(summands(values.astype(DType::kFloat32)), ids, count).astype(values.dtype());
  return summed(summands(values), ids, count);
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
  return summed(weights.valid() ? summands(weights.astype(DType::kFloat64)) : ones(ids), ids, count);
}

// ---- histograms --------------------------------------------------------------------------------------------------------

namespace {

// Ends of the bins that are cut evenly. Waits for the extremes of `a`, which is kept, unless they are told.
std::pair<double, double> range_of(Array& a, const std::optional<std::pair<double, double>>& told) {
  std::pair<double, double> range = {0, 1};
  if (told) {
    range = *told;
  } else if (a.size() > 0) {
    a = Access::plain(a);
    const Array both = stack({min(a), max(a)}).astype(DType::kFloat64);
    Future future = Access::state(a).submit({.fetch = {Access::key(both)}, .hold = {Access::key(a)}}, {});
    const std::vector<double> found = future.get<double>(0);
    range = {found[0], found[1]};
  }
  if (!std::isfinite(range.second - range.first) || range.first > range.second)
    refuse(Errc::kInvalidArgument,
           "histogram: range from " + std::to_string(range.first) + " to " + std::to_string(range.second), a);
  if (range.first == range.second) range.first -= 0.5, range.second += 0.5;
  return range;
}

// In a dtype that is searched for.
Array sample_of(const Array& a) {
  if (ir::is_complex(a.dtype())) refuse(Errc::kInvalidArgument, "histogram of complex numbers", a);
  const Array flat = a.reshape({-1});
  if (a.dtype() == DType::kBool) return flat.astype(DType::kUInt8);
  return ir::is_half(a.dtype()) ? flat.astype(DType::kFloat32) : flat;
}

Summands weights_of(const Array& a, const Array& sample, const Array& weights) {
  if (!weights.valid()) return ones(sample);
  if (weights.shape() != a.shape())
    refuse(Errc::kShapeMismatch, "histogram with weights of shape " + ir::to_string(weights.shape()), a);
  const Array flat = weights.reshape({-1});
  switch (weights.dtype()) {
    case DType::kBool: return summands(flat.astype(DType::kInt64));
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32: return summands(flat.astype(DType::kFloat64));
    case DType::kComplex64: return summands(flat.astype(DType::kComplex128));
    default: return summands(flat);
  }
}

// `bin`: of each element, or a number that none has.
Histogram counted(const Array& a, const Array& bin, const Array& edges, const HistogramOptions& options) {
  Array counts = summed(weights_of(a, bin, options.weights), bin, edges.size() - 1);
  if (options.weights.valid() && options.weights.dtype() != DType::kBool)
    counts = counts.astype(options.weights.dtype());
  if (options.density) {
    const Array inexact = ir::is_complex(counts.dtype()) ? counts : counts.astype(DType::kFloat64);
    counts = inexact / diff(edges).astype(DType::kFloat64) / sum(inexact);
  }
  return {counts, edges};
}

Histogram counted_between(const Array& a, const Array& edges, const HistogramOptions& options) {
  if (options.range) refuse(Errc::kInvalidArgument, "histogram with edges and a range", a);
  const Array sample = sample_of(a);
  // The bin that begins with the last edge not above; the last one has its end, too.
  const Array begun = searchsorted(edges, sample, "right") - 1;
  return counted(a, where(sample == edges.at(0, -1), edges.size() - 2, begun), edges, options);
}

// Bins of one width.
struct EvenBins {
  std::int64_t count = 0;
  double first = 0, last = 0, step = 0;
  DType dtype = DType::kFloat64;  // of edges

  ir::TapeValue edge(ir::TapeBuilder& t, ir::TapeValue number) const {
    const auto at = t.cast(number, DType::kFloat64);
    const auto rising =
        t.binary(TapeOp::kAdd, t.binary(TapeOp::kMul, at, ir::Scalar(step)), ir::Scalar(first));
    const auto end = t.constant(ir::Scalar(last), DType::kFloat64);
    return t.cast(t.where(t.binary(TapeOp::kEq, number, ir::Scalar(count)), end, rising), dtype);
  }
  // The bin by its width, then by the edges around it, which are rounded. What is outside, and NaN: `count`.
  ir::TapeValue bin(ir::TapeBuilder& t, ir::TapeValue given) const {
    const auto x = t.cast(given, DType::kFloat64);
    const auto wide = [&](ir::TapeValue e) { return t.cast(e, DType::kFloat64); };
    const auto least = [&](ir::TapeValue i) {
      return t.binary(TapeOp::kMaximum, i, ir::Scalar(std::int64_t{0}));
    };
    const auto most = [&](ir::TapeValue i) { return t.binary(TapeOp::kMinimum, i, ir::Scalar(count - 1)); };
    const auto widths =
        t.binary(TapeOp::kDiv, t.binary(TapeOp::kSub, x, ir::Scalar(first)), ir::Scalar(step));
    const auto near = most(least(t.cast(widths, DType::kInt64)));
    const auto next = t.binary(TapeOp::kAdd, near, ir::Scalar(std::int64_t{1}));
    const auto before = t.binary(TapeOp::kSub, near, ir::Scalar(std::int64_t{1}));
    const auto below = t.binary(TapeOp::kLt, x, wide(edge(t, near)));
    const auto behind = t.binary(TapeOp::kGe, x, wide(edge(t, next)));
    const auto found = t.where(below, least(before), t.where(behind, most(next), near));
    const auto ends = [&](std::int64_t i) { return wide(edge(t, t.constant(ir::Scalar(i), DType::kInt64))); };
    const auto inside =
        t.binary(TapeOp::kAnd, t.binary(TapeOp::kGe, x, ends(0)), t.binary(TapeOp::kLe, x, ends(count)));
    return t.where(inside, found, t.constant(ir::Scalar(count), DType::kInt64));
  }
};

}  // namespace

Histogram histogram(const Array& a, std::int64_t bins, const HistogramOptions& options) {
  if (bins < 1) refuse(Errc::kInvalidArgument, "histogram of " + std::to_string(bins) + " bins", a);
  check_number(a, bins, "histogram: number of bins ");
  Array sample = sample_of(a);
  const auto [first, last] = range_of(sample, options.range);
  const EvenBins even{.count = bins,
                      .first = first,
                      .last = last,
                      .step = (last - first) / static_cast<double>(bins),
                      .dtype = ir::is_floating(sample.dtype()) ? sample.dtype() : DType::kFloat64};
  const double epsilon = even.dtype == DType::kFloat32 ? 0x1p-23 : 0x1p-52;
  if (even.step < epsilon * std::max(std::abs(first), std::abs(last)))
    refuse(Errc::kInvalidArgument,
           "histogram: " + std::to_string(bins) + " bins from " + std::to_string(first) + " to " +
               std::to_string(last) + ", too narrow for numbers between them",
           a);
  const Array edges = Access::record(
      Access::state(a), nullptr, ir::infer_generate({bins + 1}, std::nullopt, [&](ir::TapeBuilder& t, auto) {
        return even.edge(t, t.iota(0));
      }));
  const ir::Source source = Access::source(sample);
  const Array bin = Access::record(
      sample, infer_map(std::span(&source, 1), [&](ir::TapeBuilder& t, std::span<const ir::TapeValue> v) {
        return even.bin(t, v[0]);
      }));
  return counted(a, bin, edges, options);
}

Histogram histogram(const Array& a, const std::vector<double>& edges, const HistogramOptions& options) {
  if (edges.empty()) refuse(Errc::kInvalidArgument, "histogram between no edges", a);
  for (std::size_t i = 0; i < edges.size(); ++i)
    if (std::isnan(edges[i]) || (i > 0 && edges[i] < edges[i - 1]))
      refuse(Errc::kInvalidArgument, "histogram: edge " + std::to_string(i) + " is below the one before it",
             a);
  const auto n = static_cast<std::int64_t>(edges.size());
  return counted_between(a, Session(Access::handle(a).session).from_memory(edges, {n}), options);
}

Histogram histogram(const Array& a, const Array& edges, const HistogramOptions& options) {
  if (edges.rank() != 1) refuse(Errc::kShapeMismatch, "histogram wants a vector of edges", edges);
  if (edges.size() == 0) refuse(Errc::kInvalidArgument, "histogram between no edges", a);
  if (ir::is_complex(edges.dtype())) refuse(Errc::kInvalidArgument, "histogram between complex edges", edges);
  const Array rises = edges.slice(0, 1) >= edges.slice(0, {}, -1), numbers = edges == edges;
  if (!(all(concat({rises, numbers}))).item<bool>())
    refuse(Errc::kInvalidArgument, "histogram: an edge is below the one before it, or NaN", edges);
  return counted_between(a, edges, options);
}

Array digitize(const Array& x, const Array& bins, bool right) {
  if (bins.rank() != 1) refuse(Errc::kShapeMismatch, "digitize wants a vector of bins", bins);
  if (ir::is_complex(x.dtype()) || ir::is_complex(bins.dtype()))
    refuse(Errc::kInvalidArgument, "digitize: complex numbers have no order", x);
  return searchsorted(bins, x, right ? "left" : "right");
}

}  // namespace tilewise
