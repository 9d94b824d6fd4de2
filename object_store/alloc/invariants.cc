// The full sweep for tests, and the digest.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/check.h>

#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string>

namespace tilewise::alloc {

void Arena::check_invariants() const {
  std::int64_t resident = 0, in_use = 0, pending = 0;
  std::size_t live = 0, free_extents = 0, pending_extents = 0;
  for (std::uint32_t s = 0; s < slabs_.size(); ++s) {
    std::int64_t offset = 0;
    NodeId left = 0;
    for (NodeId id = slabs_[s].first; id != 0; left = id, id = nodes_[id].right) {
      const Node& node = nodes_[id];
      const auto at = [&](const char* wrong) {
        return "slab " + std::to_string(s) + " offset " + std::to_string(node.offset) + ": " + wrong;
      };
      TW_CHECK(node.slab == s && node.offset == offset && node.left == left, at("extents do not partition"));
      TW_CHECK(node.bytes > 0 && node.bytes % options_.alignment == 0, at("bad size"));
      TW_CHECK(node.state != State::kUnused, at("a recycled node is linked"));
      if (node.state == State::kSettled && left != 0) {
        TW_CHECK(nodes_[left].state != State::kSettled, at("settled neighbours are not merged"));
      }
      if (node.state == State::kPending) {
        TW_CHECK(fences_[id].at(node.awaited) != 0, at("waits for a stream its fence does not name"));
        pending += node.bytes;
        ++pending_extents;
      }
      if (node.state == State::kUsed)
        in_use += node.bytes;
      else
        ++free_extents;
      offset += node.bytes;
      ++live;
    }
    TW_CHECK(offset == slabs_[s].bytes, "slab " + std::to_string(s) + " is not covered");
    resident += offset;
  }
  TW_CHECK(resident == resident_ && in_use == in_use_ && pending == pending_bytes_, "sums disagree");
  TW_CHECK(resident_ <= options_.max_bytes, "grown past the maximum");

  std::size_t listed = 0;
  for (const State state : {State::kSettled, State::kPending}) {
    const Bins& bins = bins_of(state);
    for (int row = 0; row < kRows; ++row) {
      const std::span heads = std::span(bins.head).subspan(row * kSteps, kSteps);
      static constexpr std::array<NodeId, kSteps>
          kEmpty{};  // nearly all rows are, and this is done after every step
      std::uint32_t filled = 0;
      if (std::memcmp(heads.data(), kEmpty.data(), sizeof kEmpty) != 0) {
        for (int step = 0; step < kSteps; ++step) filled |= std::uint32_t{heads[step] != 0} << step;
      }
      TW_CHECK(bins.steps[row] == filled, "bitmap and lists disagree in row " + std::to_string(row));
      TW_CHECK(((bins.rows >> row) & 1) == (filled != 0), "rows and steps disagree");
      for (; filled != 0; filled &= filled - 1) {
        const int step = std::countr_zero(filled);
        NodeId prev = 0;
        for (NodeId id = heads[step]; id != 0; prev = id, id = nodes_[id].bin_next) {
          TW_CHECK(nodes_[id].state == state && bin_of(nodes_[id].bytes) == row * kSteps + step &&
                       nodes_[id].bin_prev == prev,
                   "an extent is in the wrong list");
          ++listed;
        }
      }
    }
  }
  TW_CHECK(listed == free_extents, "a free extent is in no list");

  std::size_t queued = 0;
  for (std::size_t stream = 0; stream < waits_.size(); ++stream) {
    NodeId prev = 0;
    for (NodeId id = waits_[stream].head; id != 0; prev = id, id = nodes_[id].wait_next) {
      TW_CHECK(
          nodes_[id].state == State::kPending && nodes_[id].awaited == stream && nodes_[id].wait_prev == prev,
          "an extent is in the wrong queue");
      ++queued;
    }
    TW_CHECK(waits_[stream].tail == prev, "a queue's tail is wrong");
  }
  TW_CHECK(queued == pending_extents, "a pending extent is in no queue");

  std::size_t recycled = 0;
  for (NodeId id = unused_; id != 0; id = nodes_[id].bin_next) ++recycled;
  TW_CHECK(live + recycled + 1 == nodes_.size(), "nodes leak");
}

void Arena::digest(Digest& into) const {
  for (const Slab& slab : slabs_) {
    into.mix(static_cast<std::uint64_t>(slab.bytes));
    for (NodeId id = slab.first; id != 0; id = nodes_[id].right) {
      into.mix(static_cast<std::uint64_t>(nodes_[id].bytes));
      into.mix(static_cast<std::uint64_t>(nodes_[id].state));
      if (nodes_[id].state != State::kPending) continue;
      for (int i = 0; i < fences_[id].size(); ++i) {
        into.mix(fences_[id][i].stream);
        into.mix(fences_[id][i].sequence);
      }
    }
  }
  into.mix(static_cast<std::uint64_t>(in_use_));
}

}  // namespace tilewise::alloc
