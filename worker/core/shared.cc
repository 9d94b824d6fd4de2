#include "shared.h"

#include <algorithm>

namespace tilewise::worker {

std::unique_ptr<const TaskTable> TaskTable::of(const ir::Geometry& geometry, const ir::Placement& placement,
                                               const std::vector<ir::SourceArray>& sources,
                                               const std::vector<DeviceId>& local) {
  if (geometry.point_count() == 0 || geometry.point_count() > kMaxPoints) return nullptr;
  std::size_t blocks = 0;
  for (const ir::SourceArray& source : sources) {
    const std::int64_t count = source.grid.block_count();
    if (count > static_cast<std::int64_t>(kMaxEntries)) return nullptr;
    blocks += static_cast<std::size_t>(count);
  }
  if (blocks > kMaxEntries) return nullptr;

  auto table = std::make_unique<TaskTable>();
  std::vector<ir::Read> reads;
  for (const DeviceId device : local) {
    table->first_row_.push_back(table->rows_.size());
    const std::int64_t owned = placement.owned_count(device);
    for (std::int64_t ordinal = 0; ordinal < owned; ++ordinal) {
      const ir::Index point = placement.nth(device, ordinal);
      if (geometry.steps(point) != 1) return nullptr;
      geometry.reads(point, 0, reads);
      if (table->reads_.size() + reads.size() > kMaxEntries) return nullptr;
      table->rows_.push_back({ir::ravel(point, geometry.counts()),
                              static_cast<std::uint32_t>(table->reads_.size()),
                              static_cast<std::uint32_t>(reads.size())});
      for (const ir::Read& read : reads) table->reads_.push_back({read.operand, read.block});
    }
  }
  std::vector<ir::Geometry::Users> users;
  std::vector<ir::Placement::Share> shares;
  for (std::size_t o = 0; o < sources.size(); ++o) {
    table->first_block_.push_back(table->first_use_.size());
    const std::int64_t count = sources[o].grid.block_count();
    for (std::int64_t block = 0; block < count; ++block) {
      const std::size_t first = table->uses_.size();
      table->first_use_.push_back(static_cast<std::uint32_t>(first));
      geometry.users(static_cast<int>(o), block, users);
      for (const ir::Geometry::Users& box : users) {
        placement.shares(box.points, shares);
        for (const ir::Placement::Share& share : shares) {
          auto use = std::find_if(table->uses_.begin() + static_cast<std::ptrdiff_t>(first),
                                  table->uses_.end(), [&](const Use& u) { return u.device == share.device; });
          if (use == table->uses_.end()) use = table->uses_.insert(use, {share.device, 0, -1});
          use->reads += share.points * box.steps_each;
          if (const auto point = placement.first_owned(share.device, box.points))
            use->ahead = std::max(use->ahead, placement.ordinal(share.device, *point));
        }
      }
      if (table->uses_.size() > kMaxEntries) return nullptr;
    }
  }
  table->first_use_.push_back(static_cast<std::uint32_t>(table->uses_.size()));
  return table;
}

void TaskTables::give(SharedEntry& entry, const std::vector<DeviceId>& local) {
  if (entry.geometry.use_count() < 2) return;  // too large for GeometryCache: no other op has it
  for (std::size_t i = 0; i < known_.size(); ++i) {
    Known& known = known_[i];
    if (known.geometry != entry.geometry || !(known.placement == entry.placement)) continue;
    if (!std::exchange(known.made, true))
      known.table = TaskTable::of(*entry.geometry, entry.placement, entry.sources, local);
    if (known.table == nullptr) return;
    ++known.users;
    entry.table = known.table.get();
    entry.in_tables = i;
    return;
  }
  Known first{entry.geometry, entry.placement, false, nullptr, 0};
  if (known_.size() < kTables) {
    known_.push_back(std::move(first));
    return;
  }
  for (std::size_t i = 0; i < kTables; ++i) {  // one that no op refers to goes
    Known& known = known_[oldest_];
    oldest_ = (oldest_ + 1) % kTables;
    if (known.users > 0) continue;
    known = std::move(first);
    return;
  }
}

void TaskTables::let_go(const SharedEntry& entry) {
  if (entry.table != nullptr) --known_[entry.in_tables].users;
}

}  // namespace tilewise::worker
