// What users see: allocate, free, fences settling, growth.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/check.h>

#include <algorithm>
#include <bit>
#include <string>

namespace tilewise::alloc {

Arena::Arena(const ArenaOptions& options) : options_(options), nodes_(1), fences_(1) {
  TW_CHECK(options.alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(options.alignment)),
           "alignment " + std::to_string(options.alignment) + " is not a power of two");
  TW_CHECK(options.max_bytes >= 0 && options.slab_bytes > 0, "an arena needs a slab size");
  nodes_.reserve(1024);
  fences_.reserve(1024);
}

std::optional<Extent> Arena::allocate(std::int64_t bytes, Fence& wait_for) {
  wait_for = Fence();
  TW_CHECK(bytes >= 0, "negative allocation of " + std::to_string(bytes) + " bytes");
  if (bytes == 0) return Extent{};
  if (bytes > bytes_free()) return std::nullopt;
  const std::int64_t rounded = round_up(bytes);
  NodeId id = find(settled_, rounded, kScan);
  if (id == 0) id = find(pending_, rounded, kScan);
  if (id == 0) {
    settle_all();
    id = find(settled_, rounded, kScanAll);
    if (id == 0) id = find(pending_, rounded, kScanAll);
    if (id == 0 && (id = best_run(rounded)) != 0) id = join_run(id, rounded);
    if (id == 0) return std::nullopt;
  }
  if (nodes_[id].state == State::kPending) {
    wait_for = fences_[id];
    prune(wait_for);
  }
  return take(id, rounded, bytes);
}

std::optional<Extent> Arena::allocate_settled(std::int64_t bytes) {
  TW_CHECK(bytes >= 0, "negative allocation of " + std::to_string(bytes) + " bytes");
  if (bytes == 0) return Extent{};
  if (bytes > bytes_free()) return std::nullopt;
  const std::int64_t rounded = round_up(bytes);
  NodeId id = find(settled_, rounded, kScan);
  if (id == 0) {
    settle_all();
    id = find(settled_, rounded, kScanAll);
    if (id == 0) return std::nullopt;
  }
  return take(id, rounded, bytes);
}

void Arena::free(const Extent& extent, const Fence& fence) {
  if (extent.bytes == 0) return;
  const NodeId id = node_of(extent);
  in_use_ -= nodes_[id].bytes;
  fences_[id] = fence;
  make_pending(id);
}

void Arena::trim(Extent& extent, std::int64_t bytes, const Fence& fence) {
  TW_CHECK(bytes >= 0 && bytes <= extent.bytes, "an extent can only shrink");
  if (bytes == extent.bytes) return;
  if (bytes == 0) {
    free(extent, fence);
    extent = Extent{};
    return;
  }
  const NodeId id = node_of(extent);
  const std::int64_t rounded = round_up(bytes);
  extent.bytes = bytes;
  if (rounded == nodes_[id].bytes) return;
  const NodeId tail = cut(id, rounded);
  in_use_ -= nodes_[tail].bytes;
  fences_[tail] = fence;
  make_pending(tail);
}

void Arena::completed(std::uint8_t stream, std::uint64_t sequence) {
  if (sequence <= completed_[stream]) return;
  completed_[stream] = sequence;
  // The queue is in the order of the frees, which is nearly that of the sequences: an extent that waits behind a
  // later sequence settles with it, or in settle_all() when memory is short.
  while (const NodeId id = waits_[stream].head) {
    if (fences_[id].at(stream) > sequence) break;
    make_used(id);
    make_pending(id);
  }
}

bool Arena::is_complete(const Fence& fence) const {
  for (int i = 0; i < fence.size(); ++i) {
    if (fence[i].sequence > completed_[fence[i].stream]) return false;
  }
  return true;
}

bool Arena::prune(Fence& fence) const {
  fence.keep_if([&](Fence::Point p) { return p.sequence > completed_[p.stream]; });
  return fence.empty();
}

void Arena::settle_all() {
  if (pending_bytes_ == 0) return;
  for (const Queue& queue : waits_) {
    for (NodeId id = queue.head; id != 0;) {
      // The next one cannot be swallowed by settling this one: settling merges settled neighbours only, and
      // re-queueing under a later stream keeps it pending.
      const NodeId next = nodes_[id].wait_next;
      if (is_complete(fences_[id])) {
        make_used(id);
        settle(id);
      }
      id = next;
    }
  }
}

std::int64_t Arena::wants_slab(std::int64_t bytes) const {
  const std::int64_t left = (options_.max_bytes - resident_) & -options_.alignment;
  if (bytes <= 0 || bytes > left) return 0;
  return std::max(round_up(bytes), std::min(round_up(options_.slab_bytes), left));
}

std::uint32_t Arena::add_slab(std::int64_t bytes) {
  TW_CHECK(bytes > 0 && bytes % options_.alignment == 0, "slab of " + std::to_string(bytes) + " bytes");
  TW_CHECK(bytes <= options_.max_bytes - resident_, "slab of " + std::to_string(bytes) +
                                                        " bytes exceeds the arena's " +
                                                        std::to_string(options_.max_bytes));
  const auto slab = static_cast<std::uint32_t>(slabs_.size());
  const NodeId id = new_node();
  nodes_[id] = Node{.offset = 0, .bytes = bytes, .slab = slab, .state = State::kUsed};
  slabs_.push_back({bytes, id});
  resident_ += bytes;
  settle(id);
  return slab;
}

std::int64_t Arena::largest_free() const { return std::max(largest_in(settled_), largest_in(pending_)); }
std::int64_t Arena::largest_settled() const { return largest_in(settled_); }

// Nodes are recycled, so the handle alone proves nothing: offset, slab and size must agree too.
Arena::NodeId Arena::node_of(const Extent& extent) const {
  const NodeId id = extent.node;
  TW_CHECK(id != 0 && id < nodes_.size() && nodes_[id].state == State::kUsed &&
               nodes_[id].slab == extent.slab && nodes_[id].offset == extent.offset &&
               nodes_[id].bytes == round_up(extent.bytes),
           "not an extent in use: slab " + std::to_string(extent.slab) + " offset " +
               std::to_string(extent.offset) + " bytes " + std::to_string(extent.bytes));
  return id;
}

}  // namespace tilewise::alloc
