// The full sweep for tests, and the digest.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/check.h>

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
      const std::string where = "slab " + std::to_string(s) + " offset " + std::to_string(node.offset);
      TW_CHECK(node.slab == s && node.offset == offset && node.left == left,
               where + ": extents do not partition");
      TW_CHECK(node.bytes > 0 && node.bytes % options_.alignment == 0, where + ": bad size");
      TW_CHECK(node.state != State::kUnused, where + ": a recycled node is linked");
      if (node.state == State::kSettled && left != 0) {
        TW_CHECK(nodes_[left].state != State::kSettled, where + ": settled neighbours are not merged");
      }
      if (node.state == State::kPending) {
        TW_CHECK(fences_[id].at(node.awaited) != 0, where + ": waits for a stream its fence does not name");
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
    for (int bin = 0; bin < kRows * kSteps; ++bin) {
      const bool bit = (bins.steps[bin / kSteps] >> (bin % kSteps)) & 1;
      TW_CHECK(bit == (bins.head[bin] != 0), "bitmap and list disagree at " + std::to_string(bin));
      NodeId prev = 0;
      for (NodeId id = bins.head[bin]; id != 0; prev = id, id = nodes_[id].bin_next) {
        TW_CHECK(nodes_[id].state == state && bin_of(nodes_[id].bytes) == bin && nodes_[id].bin_prev == prev,
                 "an extent is in the wrong list");
        ++listed;
      }
    }
    for (int row = 0; row < kRows; ++row) {
      TW_CHECK(((bins.rows >> row) & 1) == (bins.steps[row] != 0), "rows and steps disagree");
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
