// The machinery below the arena: nodes, the segregated lists, and the moves between states.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/check.h>

#include <bit>

namespace tilewise::alloc {

std::int64_t Arena::round_up(std::int64_t bytes) const {
  return (bytes + options_.alignment - 1) & -options_.alignment;
}

// List number of an extent: exact below 32 alignment units, then 32 steps per power of two (about 3 %).
int Arena::bin_of(std::int64_t bytes) const {
  const auto units =
      static_cast<std::uint64_t>(bytes) >> std::countr_zero(static_cast<std::uint64_t>(options_.alignment));
  if (units < kSteps) return static_cast<int>(units);
  const int log = std::bit_width(units) - 1;
  return (log - 4) * kSteps + static_cast<int>((units >> (log - 5)) & (kSteps - 1));
}

// ---- nodes ----

Arena::NodeId Arena::new_node() {
  if (unused_ != 0) {
    const NodeId id = unused_;
    unused_ = nodes_[id].bin_next;
    return id;
  }
  nodes_.emplace_back();
  fences_.emplace_back();
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Arena::drop_node(NodeId id) {
  nodes_[id] = Node{.bin_next = unused_, .state = State::kUnused};
  unused_ = id;
}

// Swallows the right neighbour; neither may be in a list. Returns `left`.
Arena::NodeId Arena::absorb(NodeId left, NodeId right) {
  nodes_[left].bytes += nodes_[right].bytes;
  const NodeId after = nodes_[right].right;
  nodes_[left].right = after;
  if (after != 0) nodes_[after].left = left;
  drop_node(right);
  return left;
}

// Cuts a node that is in no list; returns the new tail, in use and in no list either, with the same fence.
Arena::NodeId Arena::cut(NodeId id, std::int64_t bytes) {
  const NodeId tail = new_node();
  Node& head = nodes_[id];
  nodes_[tail] = Node{.offset = head.offset + bytes,
                      .bytes = head.bytes - bytes,
                      .left = id,
                      .right = head.right,
                      .slab = head.slab,
                      .state = State::kUsed};
  if (head.right != 0) nodes_[head.right].left = tail;
  head.right = tail;
  head.bytes = bytes;
  return tail;
}

// ---- lists ----

void Arena::link(NodeId id) {
  Node& node = nodes_[id];
  Bins& bins = bins_of(node.state);
  const int bin = bin_of(node.bytes);
  node.bin_prev = 0;
  node.bin_next = bins.head[bin];
  if (node.bin_next != 0) nodes_[node.bin_next].bin_prev = id;
  bins.head[bin] = id;
  bins.steps[bin / kSteps] |= 1u << (bin % kSteps);
  bins.rows |= std::uint64_t{1} << (bin / kSteps);
}

void Arena::unlink(NodeId id) {
  Node& node = nodes_[id];
  if (node.bin_next != 0) nodes_[node.bin_next].bin_prev = node.bin_prev;
  if (node.bin_prev != 0) {
    nodes_[node.bin_prev].bin_next = node.bin_next;
    return;
  }
  Bins& bins = bins_of(node.state);
  const int bin = bin_of(node.bytes);
  bins.head[bin] = node.bin_next;
  if (node.bin_next != 0) return;
  bins.steps[bin / kSteps] &= ~(1u << (bin % kSteps));
  if (bins.steps[bin / kSteps] == 0) bins.rows &= ~(std::uint64_t{1} << (bin / kSteps));
}

void Arena::enqueue_wait(NodeId id) {
  Queue& queue = waits_[nodes_[id].awaited];
  nodes_[id].wait_prev = queue.tail;
  nodes_[id].wait_next = 0;
  (queue.tail != 0 ? nodes_[queue.tail].wait_next : queue.head) = id;
  queue.tail = id;
}

void Arena::dequeue_wait(NodeId id) {
  Node& node = nodes_[id];
  Queue& queue = waits_[node.awaited];
  (node.wait_prev != 0 ? nodes_[node.wait_prev].wait_next : queue.head) = node.wait_next;
  (node.wait_next != 0 ? nodes_[node.wait_next].wait_prev : queue.tail) = node.wait_prev;
}

// ---- states ----

// Takes a free extent out of its lists; its fence stays readable.
void Arena::make_used(NodeId id) {
  unlink(id);
  if (nodes_[id].state == State::kPending) {
    dequeue_wait(id);
    pending_bytes_ -= nodes_[id].bytes;
  }
  nodes_[id].state = State::kUsed;
}

// From in use (or no list) to free, by the node's fence.
void Arena::make_pending(NodeId id) {
  if (prune(fences_[id])) return settle(id);
  // Neighbours freed behind the same steps are one extent.
  const NodeId left = nodes_[id].left;
  if (left != 0 && nodes_[left].state == State::kPending && fences_[left] == fences_[id]) {
    make_used(left);
    id = absorb(left, id);
  }
  const NodeId right = nodes_[id].right;
  if (right != 0 && nodes_[right].state == State::kPending && fences_[right] == fences_[id]) {
    make_used(right);
    absorb(id, right);
  }
  nodes_[id].state = State::kPending;
  nodes_[id].awaited = fences_[id][0].stream;
  pending_bytes_ += nodes_[id].bytes;
  link(id);
  enqueue_wait(id);
}

void Arena::settle(NodeId id) {
  const NodeId left = nodes_[id].left;
  if (left != 0 && nodes_[left].state == State::kSettled) {
    make_used(left);
    id = absorb(left, id);
  }
  const NodeId right = nodes_[id].right;
  if (right != 0 && nodes_[right].state == State::kSettled) {
    make_used(right);
    absorb(id, right);
  }
  nodes_[id].state = State::kSettled;
  link(id);
}

Extent Arena::take(NodeId id, std::int64_t rounded, std::int64_t bytes) {
  const State state = nodes_[id].state;
  if (state != State::kUsed) make_used(id);
  if (nodes_[id].bytes > rounded) {
    const NodeId tail = cut(id, rounded);
    if (state == State::kPending) {
      fences_[tail] = fences_[id];
      make_pending(tail);
    } else {
      nodes_[tail].state = State::kSettled;  // its right neighbour is not: the whole was one settled extent
      link(tail);
    }
  }
  in_use_ += rounded;
  return Extent{nodes_[id].slab, id, nodes_[id].offset, bytes};
}

// ---- search ----

// The smallest fit among the first `limit` of a list; the lowest address among equals.
Arena::NodeId Arena::best_in(NodeId head, std::int64_t bytes, int limit) const {
  NodeId best = 0;
  for (NodeId id = head; id != 0 && limit > 0; id = nodes_[id].bin_next, --limit) {
    const Node& node = nodes_[id];
    if (node.bytes < bytes) continue;
    if (best == 0 || node.bytes < nodes_[best].bytes ||
        (node.bytes == nodes_[best].bytes &&
         (node.slab < nodes_[best].slab ||
          (node.slab == nodes_[best].slab && node.offset < nodes_[best].offset)))) {
      best = id;
    }
  }
  return best;
}

Arena::NodeId Arena::find(const Bins& bins, std::int64_t bytes, int limit) const {
  const int bin = bin_of(bytes);
  if (const NodeId id = best_in(bins.head[bin], bytes, limit)) return id;
  // Everything in a higher list fits.
  int row = bin / kSteps;
  const int step = bin % kSteps;
  std::uint32_t steps = step + 1 < kSteps ? bins.steps[row] & (~0u << (step + 1)) : 0;
  if (steps == 0) {
    const std::uint64_t rows = row + 1 < 64 ? bins.rows & (~std::uint64_t{0} << (row + 1)) : 0;
    if (rows == 0) return 0;
    row = std::countr_zero(rows);
    steps = bins.steps[row];
  }
  return best_in(bins.head[row * kSteps + std::countr_zero(steps)], bytes, limit);
}

std::int64_t Arena::largest_in(const Bins& bins) const {
  if (bins.rows == 0) return 0;
  const int row = std::bit_width(bins.rows) - 1;
  const int bin = row * kSteps + std::bit_width(bins.steps[row]) - 1;
  std::int64_t largest = 0;
  int limit = 64;
  for (NodeId id = bins.head[bin]; id != 0 && limit > 0; id = nodes_[id].bin_next, --limit) {
    largest = std::max(largest, nodes_[id].bytes);
  }
  return largest;
}

// ---- runs of adjacent free extents, when nothing else fits ----

Arena::NodeId Arena::run_head(NodeId id) const {
  while (nodes_[id].left != 0 && nodes_[nodes_[id].left].state != State::kUsed) id = nodes_[id].left;
  return id;
}

// The head of the smallest run that is long enough and whose fences fit into one. Every run longer than one extent
// has a pending member; a run is measured once, from its first one.
Arena::NodeId Arena::best_run(std::int64_t bytes) const {
  NodeId best = 0;
  std::int64_t best_total = 0;
  for (const Queue& queue : waits_) {
    for (NodeId pending = queue.head; pending != 0; pending = nodes_[pending].wait_next) {
      const NodeId left = nodes_[pending].left;
      if (left != 0 && nodes_[left].state == State::kPending) continue;
      const NodeId before = left != 0 && nodes_[left].state == State::kSettled ? nodes_[left].left : 0;
      if (before != 0 && nodes_[before].state == State::kPending) continue;
      const NodeId head = run_head(pending);
      std::int64_t total = 0, fenced = 0;
      Fence fence;
      for (NodeId id = head; id != 0 && nodes_[id].state != State::kUsed; id = nodes_[id].right) {
        const bool fits = nodes_[id].state != State::kPending || fence.merge(fences_[id]);
        if (!fits && fenced < bytes) break;
        if (fits) fenced += nodes_[id].bytes;
        total += nodes_[id].bytes;
      }
      if (fenced < bytes) continue;
      if (best == 0 || total < best_total ||
          (total == best_total &&
           (nodes_[head].slab < nodes_[best].slab ||
            (nodes_[head].slab == nodes_[best].slab && nodes_[head].offset < nodes_[best].offset)))) {
        best = head;
        best_total = total;
      }
    }
  }
  return best;
}

// Makes exactly `bytes` from the front of a run one pending extent.
Arena::NodeId Arena::join_run(NodeId head, std::int64_t bytes) {
  Fence fence;
  std::int64_t total = 0;
  NodeId joined = 0;
  for (NodeId id = head; total < bytes;) {
    const State state = nodes_[id].state;
    const NodeId next = nodes_[id].right;
    make_used(id);
    if (state == State::kPending) {
      const bool merged = fence.merge(fences_[id]);
      TW_CHECK(merged, "best_run chose a run whose fences do not fit");
    }
    if (total + nodes_[id].bytes > bytes) {
      const NodeId tail = cut(id, bytes - total);
      if (state == State::kPending) {
        fences_[tail] = fences_[id];
        make_pending(tail);
      } else {
        settle(tail);
      }
    }
    total += nodes_[id].bytes;
    joined = joined == 0 ? id : absorb(joined, id);
    id = next;
  }
  fences_[joined] = fence;
  nodes_[joined].state = State::kPending;
  nodes_[joined].awaited = fence.empty() ? 0 : fence[0].stream;
  pending_bytes_ += nodes_[joined].bytes;
  link(joined);
  enqueue_wait(joined);
  return joined;
}

}  // namespace tilewise::alloc
