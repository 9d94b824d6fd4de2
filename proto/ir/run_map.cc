#include <tilewise/base/check.h>
#include <tilewise/ir/run_map.h>

#include <algorithm>
#include <tuple>

namespace tilewise::ir {

void append(std::vector<Run>& runs, std::int64_t point, DeviceId device) {
  if (!runs.empty() && runs.back().device == device && runs.back().first + runs.back().count == point)
    ++runs.back().count;
  else
    runs.push_back({point, 1, device});
}

RunMap::RunMap(Shape counts, std::vector<Run> runs) : counts_(std::move(counts)), runs_(std::move(runs)) {
  if (!verify(counts_)) return;  // whoever asks for more has verified it
  for (std::size_t r = 0; r < runs_.size(); ++r) owned_.push_back({runs_[r].device, r, 0});
  std::sort(owned_.begin(), owned_.end(), [](const Owned& a, const Owned& b) {
    return std::tie(a.device, a.run) < std::tie(b.device, b.run);
  });
  for (std::size_t i = 1; i < owned_.size(); ++i) {
    if (owned_[i].device == owned_[i - 1].device)
      owned_[i].before = owned_[i - 1].before + runs_[owned_[i - 1].run].count;
  }
}

Status RunMap::verify(const Shape& counts) const {
  const auto bad = [](std::string text) {
    return error(Errc::kInvalidArgument, "placement: " + std::move(text));
  };
  if (runs_.size() > kMaxRuns) {
    return error(Errc::kLimitExceeded, "placement: " + std::to_string(runs_.size()) + " runs; the limit is " +
                                           std::to_string(kMaxRuns));
  }
  if (counts != counts_) return bad("runs of another space");
  TW_ASSIGN(const std::int64_t total, checked_volume(counts));
  std::int64_t end = 0;
  for (const Run& run : runs_) {
    if (!run.device) return bad("device 0");
    if (run.first < end || run.count < 1 || run.count > total || run.first > total - run.count)
      return bad("runs that do not rise, or leave the space");
    end = run.first + run.count;
  }
  return {};
}

std::size_t RunMap::first_after(std::int64_t point) const {
  return static_cast<std::size_t>(
      std::upper_bound(runs_.begin(), runs_.end(), point,
                       [](std::int64_t p, const Run& run) { return p < run.first + run.count; }) -
      runs_.begin());
}

DeviceId RunMap::owner(const Index& point) const {
  const std::int64_t p = ravel(point, counts_);
  const std::size_t r = first_after(p);
  return r < runs_.size() && runs_[r].first <= p ? runs_[r].device : DeviceId{};
}

std::span<const RunMap::Owned> RunMap::owned_by(DeviceId device) const {
  const auto less = [](const Owned& o, DeviceId id) { return o.device < id; };
  const auto from = std::lower_bound(owned_.begin(), owned_.end(), device, less);
  const auto to =
      std::upper_bound(from, owned_.end(), device, [](DeviceId id, const Owned& o) { return id < o.device; });
  return {from, to};
}

std::int64_t RunMap::owned_count(DeviceId device) const {
  const auto mine = owned_by(device);
  return mine.empty() ? 0 : mine.back().before + runs_[mine.back().run].count;
}

Index RunMap::nth(DeviceId device, std::int64_t ordinal) const {
  const auto mine = owned_by(device);
  TW_CHECK(ordinal >= 0 && ordinal < owned_count(device),
           "a device was asked for a point beyond those it owns");
  const auto at = std::upper_bound(mine.begin(), mine.end(), ordinal,
                                   [](std::int64_t o, const Owned& owned) { return o < owned.before; }) -
                  1;
  return unravel(runs_[at->run].first + ordinal - at->before, counts_);
}

std::int64_t RunMap::ordinal(DeviceId device, const Index& point) const {
  const std::int64_t p = ravel(point, counts_);
  const auto mine = owned_by(device);
  const auto at = std::upper_bound(mine.begin(), mine.end(), p, [&](std::int64_t value, const Owned& owned) {
    return value < runs_[owned.run].first + runs_[owned.run].count;
  });
  TW_CHECK(at != mine.end() && runs_[at->run].first <= p,
           "the ordinal of a point was asked of a device that does not own it");
  return at->before + p - runs_[at->run].first;
}

std::optional<Index> RunMap::first_owned(DeviceId device, const Box& box) const {
  const auto mine = owned_by(device);
  std::optional<Index> found;
  for_rows(box, [&](std::int64_t from, std::int64_t to) {
    const auto at =
        std::upper_bound(mine.begin(), mine.end(), from, [&](std::int64_t value, const Owned& owned) {
          return value < runs_[owned.run].first + runs_[owned.run].count;
        });
    if (at == mine.end()) return false;  // nothing of it lies behind this row either
    if (runs_[at->run].first >= to) return true;
    found = unravel(std::max(from, runs_[at->run].first), counts_);
    return false;
  });
  return found;
}

std::vector<DeviceId> RunMap::devices() const {
  std::vector<DeviceId> all;
  for (const Owned& owned : owned_) {
    if (all.empty() || all.back() != owned.device) all.push_back(owned.device);
  }
  return all;
}

}  // namespace tilewise::ir
