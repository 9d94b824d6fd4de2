#include "answers.h"

#include <algorithm>

namespace tilewise::scheduler {

bool contains(const std::vector<msg::Range>& ranges, std::int64_t block) {
  const auto at = std::upper_bound(ranges.begin(), ranges.end(), block,
                                   [](std::int64_t b, const msg::Range& r) { return b < r.first; });
  return at != ranges.begin() && block < std::prev(at)->first + std::prev(at)->count;
}

Answers::Answers(const std::vector<msg::Held>& all) {
  for (const msg::Held& held : all) {
    cut_ = cut_ || held.cut;
    for (const auto& share : held.shares) shares_[{share.op, share.device}] = &share;
    for (const auto& blocks : held.blocks) blocks_[blocks.array].push_back(&blocks);
  }
  for (auto& [array, devices] : blocks_) {
    std::sort(devices.begin(), devices.end(),
              [](const auto* a, const auto* b) { return a->device < b->device; });
  }
}

const msg::Held::Share* Answers::share(OpId op, DeviceId device) const {
  const auto found = shares_.find({op, device});
  return found == shares_.end() ? nullptr : found->second;
}

const std::vector<const msg::Held::Blocks*>& Answers::blocks(ArrayId array) const {
  static const std::vector<const msg::Held::Blocks*> kNone;
  const auto found = blocks_.find(array);
  return found == blocks_.end() ? kNone : found->second;
}

bool Answers::has(ArrayId array, std::int64_t block, DeviceId device) const {
  const auto& devices = blocks(array);
  const auto at =
      std::find_if(devices.begin(), devices.end(), [&](const auto* on) { return on->device == device; });
  return at != devices.end() && contains((*at)->sealed, block);
}

}  // namespace tilewise::scheduler
