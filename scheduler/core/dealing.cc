#include "dealing.h"

#include <tilewise/ir/cost.h>
#include <tilewise/place/pace.h>

#include <algorithm>
#include <numeric>

namespace tilewise::scheduler {
namespace {

constexpr std::int64_t kParts = 1 << 16;

}  // namespace

double point_seconds(const State& s, const OpRecord& head) {
  double busy_s = 0;
  std::int64_t done = 0;
  for (const OpShare& share : head.shares) {
    busy_s += 1e-9 * static_cast<double>(share.busy_ns) /
              static_cast<double>(std::max(1, s.device(share.device)->streams));
    done += share.completed;
  }
  if (done > 0 && busy_s > 0) return busy_s / static_cast<double>(done);
  // work_s is what the busiest of its devices had to do.
  const std::size_t devices = std::max<std::size_t>(1, head.placement.devices().size());
  const std::int64_t points = std::max<std::int64_t>(1, head.op.space.block_count());
  return head.work_s * static_cast<double>(devices) / static_cast<double>(points);
}

void Dealing::is_made_again(const ir::Op& op, double seconds) {
  again_s_ += seconds;
  if (!family_.empty() && seconds <= most_s_) return;
  most_s_ = seconds;
  family_ = ir::family_of(op);
}

// Of each device's part where its piece ends, in kParts.
const std::vector<std::int64_t>& Dealing::parts(const std::vector<DeviceId>& open) {
  const auto [found, fresh] = parts_.try_emplace(open);
  if (!fresh) return found->second;
  place::Pace pace;
  std::vector<place::Device> devices;
  for (const DeviceId id : open) {
    devices.push_back(place_device(*s_.device(id)));
    const auto busy = busy_.find(id);
    pace.busy_s.push_back(busy == busy_.end() ? 0 : busy->second);
  }
  const double part_s = std::max(again_s_, 1e-9) / static_cast<double>(kParts);
  for (const double ratio : s_.speeds.coarse_ratios(devices, family_)) pace.item_s.push_back(ratio * part_s);
  found->second = place::shares_by_speed(pace, kParts);
  std::partial_sum(found->second.begin(), found->second.end(), found->second.begin());
  return found->second;
}

DeviceId Dealing::taker_of_one(const ir::Op& op, const std::vector<DeviceId>& open, double seconds) {
  const auto ends = [&](DeviceId id) { return busy_[id] + seconds; };
  const DeviceId least = *std::min_element(open.begin(), open.end(),
                                           [&](DeviceId a, DeviceId b) { return busy_[a] < busy_[b]; });
  DeviceId chosen = least;
  for (const ir::Operand& operand : op.operands) {
    const auto near = made_by_.find(operand.array);
    if (near == made_by_.end() || std::find(open.begin(), open.end(), near->second) == open.end()) continue;
    double all_s = 0;
    for (const DeviceId id : open) all_s += busy_[id];
    const double even_s = (all_s + again_s_) / static_cast<double>(open.size());
    if (ends(near->second) <= std::max(even_s, ends(least))) chosen = near->second;
    break;
  }
  busy_[chosen] += seconds;
  again_s_ = std::max(0.0, again_s_ - seconds);
  for (const ir::OutputSpec& output : op.outputs) made_by_[output.array] = chosen;
  return chosen;
}

DeviceId Dealing::taker(const ir::Op& op, const std::vector<DeviceId>& open, std::size_t i, std::size_t all,
                        double seconds) {
  if (all < open.size()) return taker_of_one(op, open, seconds);
  const std::vector<std::int64_t>& ends = parts(open);
  // Its middle decides, so that the first and the last piece lose alike by rounding.
  const std::int64_t at = static_cast<std::int64_t>((2 * static_cast<__int128>(i) + 1) * kParts / (2 * all));
  const auto piece = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
  return open[std::min(static_cast<std::size_t>(piece), open.size() - 1)];
}

}  // namespace tilewise::scheduler
