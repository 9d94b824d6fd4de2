// Quantiles: elements of sorted lines, at places that are known before the data is, and what lies between two of them.
#include <tilewise/functions.h>

#include <algorithm>
#include <cmath>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::axes_of;
using client::extent;
using client::refuse;

// `share` of the way from element `before` of a line to the next one.
struct Place {
  std::int64_t before = 0;
  double share = 0;
};

// After R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages" (1996): number 7, and NumPy's variants of it.
Place place_of(double q, std::int64_t n, std::string_view method) {
  const double at = q * static_cast<double>(n - 1), below = std::floor(at);
  const auto number = [](double whole) { return Place{static_cast<std::int64_t>(whole), 0}; };
  Place place = method == "higher"    ? number(std::ceil(at))
                : method == "nearest" ? number(std::nearbyint(at))  // halves to even
                                      : number(below);
  if (method == "linear") place.share = at - below;
  if (method == "midpoint") place.share = at == below ? 0 : 0.5;
  place.before = std::clamp<std::int64_t>(place.before, 0, n - 1);
  if (place.before == n - 1) place.share = 0;
  return place;
}

// From the end that is nearer, so that neither is missed. Of two equal ones, infinities too, that one; one that is infinite is not
// what is gone from, for infinity less itself is NaN.
Array between(const Array& a, const Array& b, double share) {
  const Array step = b - a, up = a + step * share, down = b - step * (1 - share);
  return where(a == b, a, share < 0.5 ? where(isinf(a), down, up) : where(isinf(b), up, down));
}

// Lines in order: the other dimensions of `a`, and behind them all that is reduced, as one. NaN is last.
struct Sorted {
  Array lines;
  std::int64_t count = 0;  // of a line
  Shape kept;              // the shape of a result with keepdims

  Array at(std::int64_t i) const { return lines.at(-1, i); }
  // NaN where there is one in the line.
  Array unless_nan(const Array& found) const {
    return ir::is_floating(lines.dtype()) ? where(isnan(at(count - 1)), at(count - 1), found) : found;
  }
};

Sorted sorted_lines(const Array& a, const Axes& axes, const char* function) {
  if (ir::is_complex(a.dtype()) || a.dtype() == DType::kBool)
    refuse(Errc::kInvalidArgument, std::string(function) + " of dtype " + std::string(name_of(a.dtype())), a);
  const std::vector<int> reduced = axes_of(a, axes, function);
  Sorted out{.lines = {}, .count = 1, .kept = a.shape()};
  for (const int axis : reduced) {
    out.count *= extent(a, axis);
    out.kept[static_cast<std::size_t>(axis)] = 1;
  }
  if (out.count == 0) refuse(Errc::kInvalidArgument, std::string(function) + " of nothing", a);
  Shape shape;
  std::vector<int> order;
  for (int d = 0; d < a.rank(); ++d)
    if (std::find(reduced.begin(), reduced.end(), d) == reduced.end())
      order.push_back(d), shape.push_back(extent(a, d));
  order.insert(order.end(), reduced.begin(), reduced.end());
  shape.push_back(out.count);
  const Array moved = a.rank() == 0 ? a : a.permute(order);
  out.lines = sort(moved.reshape(std::span<const std::int64_t>(shape.data(), shape.size())), -1);
  return out;
}

Array as_wide(const Array& a) { return ir::is_floating(a.dtype()) ? a : a.astype(DType::kFloat64); }

// `whole`: what q = 1 is called.
std::vector<Array> quantiles_of(const Array& a, const std::vector<double>& q, double whole, const Axes& axes,
                                std::string_view method, bool keepdims, const char* function) {
  constexpr std::string_view kMethods[] = {"linear", "lower", "higher", "nearest", "midpoint"};
  if (std::find(std::begin(kMethods), std::end(kMethods), method) == std::end(kMethods))
    refuse(Errc::kInvalidArgument,
           std::string(function) + " by method '" + std::string(method) +
               "', not linear, lower, higher, nearest or midpoint",
           a);
  for (const double each : q)
    if (!(each >= 0 && each <= whole))
      refuse(Errc::kOutOfRange,
             std::string(function) + " " + std::to_string(each) + ", not of [0, " +
                 std::to_string(static_cast<int>(whole)) + "]",
             a);
  if (ir::is_half(a.dtype())) {
    std::vector<Array> wide =
        quantiles_of(a.astype(DType::kFloat32), q, whole, axes, method, keepdims, function);
    for (Array& each : wide) each = each.astype(a.dtype());
    return wide;
  }
  const Sorted sorted = sorted_lines(a, axes, function);
  const bool lies_between = method == "linear" || method == "midpoint";
  std::vector<Array> out;
  for (const double each : q) {
    const Place place = place_of(each / whole, sorted.count, method);
    Array found = sorted.at(place.before);
    if (lies_between) found = as_wide(found);
    if (place.share > 0) found = between(found, as_wide(sorted.at(place.before + 1)), place.share);
    found = sorted.unless_nan(found);
    out.push_back(keepdims
                      ? found.reshape(std::span<const std::int64_t>(sorted.kept.data(), sorted.kept.size()))
                      : found);
  }
  return out;
}

Array stacked(const Array& a, const std::vector<Array>& all, const char* function) {
  if (all.empty()) refuse(Errc::kInvalidArgument, std::string(function) + " at no place", a);
  return stack(all);
}

}  // namespace

Array quantile(const Array& a, double q, const Axes& axes, std::string_view method, bool keepdims) {
  return quantiles_of(a, {q}, 1, axes, method, keepdims, "quantile").front();
}
Array quantile(const Array& a, const std::vector<double>& q, const Axes& axes, std::string_view method,
               bool keepdims) {
  return stacked(a, quantiles_of(a, q, 1, axes, method, keepdims, "quantile"), "quantile");
}

Array percentile(const Array& a, double q, const Axes& axes, std::string_view method, bool keepdims) {
  return quantiles_of(a, {q}, 100, axes, method, keepdims, "percentile").front();
}
Array percentile(const Array& a, const std::vector<double>& q, const Axes& axes, std::string_view method,
                 bool keepdims) {
  return stacked(a, quantiles_of(a, q, 100, axes, method, keepdims, "percentile"), "percentile");
}

Array median(const Array& a, const Axes& axes, bool keepdims) {
  if (ir::is_half(a.dtype())) return median(a.astype(DType::kFloat32), axes, keepdims).astype(a.dtype());
  const Sorted sorted = sorted_lines(a, axes, "median");
  const std::int64_t middle = sorted.count / 2;
  const Array upper = as_wide(sorted.at(middle));
  const Array found =
      sorted.unless_nan(sorted.count % 2 == 1 ? upper : (as_wide(sorted.at(middle - 1)) + upper) / 2.0);
  return keepdims ? found.reshape(std::span<const std::int64_t>(sorted.kept.data(), sorted.kept.size()))
                  : found;
}

}  // namespace tilewise
