#include "call.h"

namespace tilewise::fuzz {

namespace {

Op reduction(Array (*function)(const Array&, const Axes&, bool)) {
  return [function](const Call& call) { return function(call[0], call.axes(), call.flag("keepdims")); };
}

Op sum_like(Array (*function)(const Array&, const Axes&, bool, std::optional<DType>)) {
  return [function](const Call& call) {
    return function(call[0], call.axes(), call.flag("keepdims"), call.dtype_or_none());
  };
}

Op spread(Array (*function)(const Array&, const Axes&, double, bool)) {
  return [function](const Call& call) {
    return function(call[0], call.axes(), call.number("correction"), call.flag("keepdims"));
  };
}

Op running(Array (*function)(const Array&, std::optional<int>, std::optional<DType>, bool)) {
  return [function](const Call& call) {
    return function(call[0], call.axis(), call.dtype_or_none(), call.flag("include_initial"));
  };
}

}  // namespace

Ops reduction_ops() {
  return {
      {"sum", sum_like(sum)},
      {"prod", sum_like(prod)},
      {"mean", reduction(mean)},
      {"min", reduction(min)},
      {"max", reduction(max)},
      {"any", reduction(any)},
      {"all", reduction(all)},
      {"argmin", reduction(argmin)},
      {"argmax", reduction(argmax)},
      {"count_nonzero", reduction(count_nonzero)},
      {"var", spread(var)},
      {"std", spread(stddev)},
      {"nansum", sum_like(nansum)},
      {"nanprod", sum_like(nanprod)},
      {"nanmean", reduction(nanmean)},
      {"nanmin", reduction(nanmin)},
      {"nanmax", reduction(nanmax)},
      {"logsumexp", reduction(logsumexp)},
      {"softmax", [](const Call& call) { return softmax(call[0], call.axes()); }},
      {"log_softmax", [](const Call& call) { return log_softmax(call[0], call.axes()); }},
      {"cumulative_sum", running(cumulative_sum)},
      {"cumulative_prod", running(cumulative_prod)},
  };
}

}  // namespace tilewise::fuzz
