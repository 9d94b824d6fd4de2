// Indexing, and what else depends on the data: order, masks, unique elements.
#include "call.h"

namespace tilewise::fuzz {

namespace {

Array index_of(const Call& call) {
  const std::vector<IndexTerm> terms = call.terms(1);
  return call[0].index(std::span<const IndexTerm>(terms));
}

// The value is an operand behind the array, or scalar=.
Array set_index_of(const Call& call) {
  if (call.has("scalar")) return set_index(call[0], call.terms(1), call.scalar());
  return set_index(call[0], call.terms(2), call[1]);
}

std::vector<Array> topk_of(const Call& call) {
  const TopK found = topk(call[0], call.integer("k"), *call.axis(), call.flag("largest"));
  return {found.values, found.indices};
}

Array quantile_of(const Call& call) {
  const std::string method = call.text("method", "linear");
  if (call.flag("several"))
    return quantile(call[0], call.numbers("q"), call.axes(), method, call.flag("keepdims"));
  return quantile(call[0], call.number("q"), call.axes(), method, call.flag("keepdims"));
}

std::vector<Array> unique_counts_of(const Call& call) {
  const UniqueCounts found = unique_counts(call[0]);
  return {found.values, found.counts};
}

std::vector<Array> unique_inverse_of(const Call& call) {
  const UniqueInverse found = unique_inverse(call[0]);
  return {found.values, found.inverse_indices};
}

std::vector<Array> unique_all_of(const Call& call) {
  const UniqueAll found = unique_all(call[0]);
  return {found.values, found.indices, found.inverse_indices, found.counts};
}

}  // namespace

Ops indexing_ops() {
  return {
      {"index", index_of},
      {"set_index", set_index_of},
      {"set", [](const Call& call) { return set(call[0], call.slices(), call[1]); }},
      {"take", [](const Call& call) { return take(call[0], call[1], call.axis()); }},
      {"take_along_axis", [](const Call& call) { return take_along_axis(call[0], call[1], *call.axis()); }},
      {"put", [](const Call& call) { return put(call[0], call[1], call[2], call.axis()); }},
      {"boolean_index", [](const Call& call) { return boolean_index(call[0], call[1]); }},
      {"nonzero", [](const Call& call) { return nonzero(call[0]); }},
      {"sort", [](const Call& call) { return sort(call[0], *call.axis(), call.flag("descending")); }},
      {"argsort", [](const Call& call) { return argsort(call[0], *call.axis(), call.flag("descending")); }},
      {"topk", topk_of},
      {"quantile", quantile_of},
      {"median", [](const Call& call) { return median(call[0], call.axes(), call.flag("keepdims")); }},
      {"searchsorted",
       [](const Call& call) {
         return searchsorted(call[0], call[1], call.text("side"), call.count() > 2 ? call[2] : Array());
       }},
      {"unique_values", [](const Call& call) { return unique_values(call[0]); }},
      {"unique_counts", unique_counts_of},
      {"unique_inverse", unique_inverse_of},
      {"unique_all", unique_all_of},
  };
}

}  // namespace tilewise::fuzz
