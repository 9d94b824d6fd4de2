#include "call.h"

namespace tilewise::fuzz {

namespace {

Array roll_of(const Call& call) {
  if (call.has("shifts")) return roll(call[0], call.integers("shifts"), call.axis_list("axes"));
  return roll(call[0], call.integer("shift"), call.axes());
}

// Counts: an array, a list, or one number.
Array repeat_of(const Call& call) {
  if (call.count() == 2) return repeat(call[0], call[1], call.axis());
  if (call.has("counts")) return repeat(call[0], call.integers("counts"), call.axis());
  return repeat(call[0], call.integer("count"), call.axis());
}

// Widths: before and after of each axis, in a row.
Array pad_of(const Call& call) {
  const std::vector<std::int64_t> ends = call.integers("widths");
  std::vector<std::pair<std::int64_t, std::int64_t>> widths;
  for (std::size_t i = 0; i + 1 < ends.size(); i += 2) widths.emplace_back(ends[i], ends[i + 1]);
  return pad(call[0], widths, call.text("mode"), call.has("scalar") ? call.scalar() : Scalar(0));
}

}  // namespace

Ops movement_ops() {
  return {
      {"permute",
       [](const Call& call) {
         const std::vector<int> axes = call.axis_list("axes");
         return call[0].permute(std::span<const int>(axes));
       }},
      {"moveaxis",
       [](const Call& call) {
         return moveaxis(call[0], call.axis_list("sources"), call.axis_list("destinations"));
       }},
      {"swapaxes",
       [](const Call& call) { return swapaxes(call[0], *call.axis("one"), *call.axis("other")); }},
      {"matrix_transpose", [](const Call& call) { return matrix_transpose(call[0]); }},
      {"flip", [](const Call& call) { return flip(call[0], call.axes()); }},
      {"roll", roll_of},
      {"expand_dims", [](const Call& call) { return call[0].expand_dims(*call.axis()); }},
      {"squeeze", [](const Call& call) { return call[0].squeeze(call.axes()); }},
      {"reshape",
       [](const Call& call) {
         const std::vector<std::int64_t> shape = call.integers("shape");
         return call[0].reshape(std::span<const std::int64_t>(shape));
       }},
      {"reblock", [](const Call& call) { return call[0].reblock(call.block()); }},
      {"broadcast_to", [](const Call& call) { return call[0].broadcast_to(call.shape()); }},
      {"broadcast_arrays", [](const Call& call) { return broadcast_arrays(call.operands()); }},
      {"meshgrid", [](const Call& call) { return meshgrid(call.operands(), call.text("indexing")); }},
      {"concat",
       [](const Call& call) { return concat(std::span<const Array>(call.operands()), call.axis()); }},
      {"stack",
       [](const Call& call) { return stack(std::span<const Array>(call.operands()), *call.axis()); }},
      {"unstack", [](const Call& call) { return unstack(call[0], *call.axis()); }},
      {"repeat", repeat_of},
      {"tile", [](const Call& call) { return tile(call[0], call.integers("counts")); }},
      {"pad", pad_of},
      {"diff",
       [](const Call& call) { return diff(call[0], *call.axis(), call.integer("n"), call[1], call[2]); }},
      {"tril", [](const Call& call) { return tril(call[0], call.integer("k")); }},
      {"triu", [](const Call& call) { return triu(call[0], call.integer("k")); }},
      {"diag", [](const Call& call) { return diag(call[0], call.integer("k")); }},
      {"diagonal", [](const Call& call) { return diagonal(call[0], call.integer("offset")); }},
  };
}

}  // namespace tilewise::fuzz
