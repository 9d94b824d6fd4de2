// Additions at indices that come several times, and counts.
#include "call.h"

namespace tilewise::fuzz {

namespace {

std::vector<Array> histogram_of(const Call& call) {
  HistogramOptions options;
  if (call.count() > 1) options.weights = call[1];
  if (call.has("first")) options.range = {call.number("first"), call.number("last")};
  const Histogram found = call.has("edges") ? histogram(call[0], call.numbers("edges"), options)
                                            : histogram(call[0], call.integer("bins"), options);
  return {found.counts, found.edges};
}

}  // namespace

Ops counting_ops() {
  return {
      {"put_add", [](const Call& call) { return put_add(call[0], call[1], call[2], call.axis()); }},
      {"add_at", [](const Call& call) { return add_at(call[0], call.terms(2), call[1]); }},
      {"segment_sum",
       [](const Call& call) { return segment_sum(call[0], call[1], call.integer_or_none("num_segments")); }},
      {"bincount",
       [](const Call& call) {
         return bincount(call[0], call.count() > 1 ? call[1] : Array(), call.integer("minlength", 0));
       }},
      {"one_hot",
       [](const Call& call) {
         return one_hot(call[0], call.integer("num_classes"), call.dtype(), *call.axis());
       }},
      {"histogram", histogram_of},
      {"digitize", [](const Call& call) { return digitize(call[0], call[1], call.flag("right")); }},
  };
}

}  // namespace tilewise::fuzz
