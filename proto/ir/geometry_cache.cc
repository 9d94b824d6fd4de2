#include <tilewise/ir/geometry_cache.h>

namespace tilewise::ir {
namespace {

std::uint64_t quick_key(const Op& op) {
  std::uint64_t key = static_cast<std::uint64_t>(op.kind);
  const auto mix = [&](std::uint64_t x) { key = (key ^ x) * 0x9E3779B97F4A7C15u; };
  mix(op.operands.size());
  mix(op.outputs.size());
  for (const DimGrid& dim : op.space.dims()) mix(static_cast<std::uint64_t>(dim.extent() + dim.count()));
  return key;
}

// Whether two ops have the same geometry, and are both right or both wrong, apart from the lengths of label and params.
bool same_but_for_names(const Op& a, const Op& b) {
  if (a.kind != b.kind || a.space != b.space || a.hint != b.hint || a.operands.size() != b.operands.size() ||
      a.outputs.size() != b.outputs.size())
    return false;
  for (std::size_t i = 0; i < a.operands.size(); ++i)
    if (a.operands[i].view != b.operands[i].view) return false;
  for (std::size_t i = 0; i < a.outputs.size(); ++i)
    if (a.outputs[i].dtype != b.outputs[i].dtype || a.outputs[i].grid != b.outputs[i].grid) return false;
  const auto* x = std::get_if<CallAttrs>(&a.attrs);
  const auto* y = std::get_if<CallAttrs>(&b.attrs);
  if (x == nullptr || y == nullptr) return a.attrs == b.attrs;
  return x->kernel == y->kernel && x->version == y->version && x->maps == y->maps &&
         x->explicit_maps == y->explicit_maps && x->flops_per_point == y->flops_per_point &&
         x->scratch_bytes == y->scratch_bytes;
}

// Entries of its explicit maps. With many an entry would take megabytes, and stay when the op has gone.
constexpr std::size_t kMostReferences = 65'536;
std::size_t references(const Op& op) {
  std::size_t count = 0;
  if (const auto* call = std::get_if<CallAttrs>(&op.attrs))
    for (const ExplicitMap& map : call->explicit_maps) count += map.blocks.size() + map.offsets.size();
  return count;
}

bool names_fit(const Op& op) {
  const auto* call = std::get_if<CallAttrs>(&op.attrs);
  return op.label.size() <= limits::kMaxNameBytes &&
         (call == nullptr || call->params.size() <= limits::kMaxParamBytes);
}

}  // namespace

Result<SharedGeometry> GeometryCache::of(const Op& op, std::vector<SourceArray> sources) {
  const std::uint64_t key = quick_key(op);
  if (names_fit(op)) {
    for (const Entry& entry : entries_)
      if (entry.key == key && entry.sources == sources && same_but_for_names(entry.op, op))
        return entry.geometry;
  }
  TW_ASSIGN(Geometry made, Geometry::make(op, sources));
  if (references(op) > kMostReferences) return std::make_shared<const Geometry>(std::move(made));
  Entry entry{key, op, std::move(sources), std::make_shared<const Geometry>(std::move(made))};
  entry.op.label.clear();
  if (auto* call = std::get_if<CallAttrs>(&entry.op.attrs)) call->params.clear();
  auto geometry = entry.geometry;
  if (entries_.size() < kEntries) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[oldest_] = std::move(entry);
    oldest_ = (oldest_ + 1) % kEntries;
  }
  return geometry;
}

}  // namespace tilewise::ir
