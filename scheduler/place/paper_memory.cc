#include "paper_memory.h"

#include <tilewise/base/check.h>

#include <algorithm>
#include <utility>

namespace tilewise::place {
namespace {

// Once something has to be written, so much is.
std::int64_t batch_bytes(std::int64_t limit) { return std::min<std::int64_t>(limit / 16, 64 << 20); }

}  // namespace

void PaperMemory::add(Block block, std::int64_t bytes) {
  State& state = blocks_[block];
  state.bytes = bytes;
  bytes_ += bytes;
}

void PaperMemory::rest(Block block, std::int64_t next_use) {
  const auto it = blocks_.find(block);
  if (it == blocks_.end()) return;
  State& state = it->second;
  if (state.rests) may_leave_.erase({state.next_use, block});
  state.rests = state.here;
  state.next_use = next_use;
  if (state.rests) may_leave_.emplace(next_use, block);
}

void PaperMemory::use(Block block) {
  const auto it = blocks_.find(block);
  if (it == blocks_.end() || !std::exchange(it->second.rests, false)) return;
  may_leave_.erase({it->second.next_use, block});
}

void PaperMemory::remove(Block block) {
  use(block);
  const auto it = blocks_.find(block);
  if (it == blocks_.end()) return;
  if (it->second.here) bytes_ -= it->second.bytes;
  if (it->second.tier >= 0) below_[static_cast<std::size_t>(it->second.tier)].free_bytes += it->second.bytes;
  blocks_.erase(it);
}

void PaperMemory::rename(Block from, Block to) {
  use(from);
  const auto it = blocks_.find(from);
  if (it == blocks_.end()) return;
  State state = it->second;
  if (state.tier >= 0) below_[static_cast<std::size_t>(state.tier)].free_bytes += state.bytes;
  state.tier = -1;
  blocks_.erase(it);
  blocks_[to] = state;
}

void PaperMemory::settle() {
  // What was made first has left first: nobody was going to read any of it.
  std::vector<Block> all;
  for (const auto& [next_use, block] : may_leave_) all.push_back(block);
  std::sort(all.begin(), all.end());
  for (const Block block : all) {
    if (bytes_ <= limit_) return;
    State& state = blocks_.at(block);
    const auto tier = std::find_if(below_.begin(), below_.end(),
                                   [&](const Tier& t) { return t.free_bytes >= state.bytes; });
    if (tier == below_.end()) continue;
    tier->free_bytes -= state.bytes;
    state.tier = static_cast<int>(tier - below_.begin());
    leave(block, state);
  }
}

bool PaperMemory::is_below(Block block) const {
  const auto it = blocks_.find(block);
  return it != blocks_.end() && !it->second.here;
}

bool PaperMemory::write(State& state, double& now) {
  if (state.tier >= 0) return true;
  for (std::size_t t = 0; t < below_.size(); ++t) {
    if (below_[t].free_bytes < state.bytes) continue;
    below_[t].free_bytes -= state.bytes;
    state.tier = static_cast<int>(t);
    const double took = static_cast<double>(state.bytes) / below_[t].bytes_per_s;
    writes_until_ = std::max(writes_until_, now) + took;
    now = std::max(now, writes_until_);
    spill_s_ += took;
    spilled_ += state.bytes;
    return true;
  }
  return false;
}

void PaperMemory::leave(Block block, State& state) {
  may_leave_.erase({state.next_use, block});
  state.rests = state.here = false;
  bytes_ -= state.bytes;
}

bool PaperMemory::make_room(std::int64_t bytes, std::int64_t spare, std::int64_t task, double& now) {
  std::int64_t missing = bytes_ + bytes + spare - limit_;
  if (missing <= 0) return true;
  std::int64_t found = 0;
  std::vector<std::int64_t> free;
  for (const Tier& tier : below_) free.push_back(tier.free_bytes);
  std::vector<Block> leaving;
  for (auto it = may_leave_.rbegin(); it != may_leave_.rend() && found < missing && it->first > task; ++it) {
    const State& state = blocks_.at(it->second);
    if (state.tier < 0) {
      const auto place =
          std::find_if(free.begin(), free.end(), [&](std::int64_t f) { return f >= state.bytes; });
      if (place == free.end()) continue;
      *place -= state.bytes;
    }
    found += state.bytes;
    leaving.push_back(it->second);
  }
  if (found < missing) return false;
  const std::int64_t before = spilled_;
  double written = now;
  for (const Block block : leaving) {
    State& state = blocks_.at(block);
    const bool placed = write(state, written);
    TW_CHECK(placed, "there was a place below for a block on paper");
    leave(block, state);
  }
  now = std::max(now, written);
  // The rest of the batch is written beside what runs.
  for (auto it = may_leave_.rbegin(); spilled_ > before && spilled_ - before < batch_bytes(limit_) &&
                                      it != may_leave_.rend() && it->first > task;
       ++it) {
    if (!write(blocks_.at(it->second), written)) break;
  }
  return true;
}

void PaperMemory::bring_back(Block block, double& now) {
  State& state = blocks_.at(block);
  if (state.here) return use(block);
  now = read_below(block, now);
  state.here = true;
  bytes_ += state.bytes;
  returned_ += state.bytes;
}

double PaperMemory::read_below(Block block, double now) {
  const State& state = blocks_.at(block);
  const double took =
      static_cast<double>(state.bytes) / below_[static_cast<std::size_t>(state.tier)].bytes_per_s;
  reads_until_ = std::max(reads_until_, now) + took;
  spill_s_ += took;
  return reads_until_;
}

}  // namespace tilewise::place
