// Places blocks in the slabs of one device: offsets only, no memory is touched. Pure (no threads, clock or device
// calls), deterministic, O(1) in the usual case, and free of heap allocation once its node pool has grown.
//
// Sets and invariants:
//   * The extents of a slab, used and free, partition it; each is a node, linked to its neighbours by address.
//   * A free extent is *settled* (its fence is complete: anyone may use it) or *pending* (use it only after its
//     fence, in stream order). Two settled extents are never neighbours: they are merged at once.
//   * Pending extents stay apart until they settle, so that one busy stream does not make its neighbours' memory
//     wait. Only when nothing else fits does allocate() join adjacent free extents: the joined extent's fence is, per
//     stream, the maximum of its parts' fences, and it is exactly as long as asked, so that what is not taken keeps
//     its own fence. Splitting one free extent gives both parts its whole fence.
//   * Free extents hang in segregated lists (two levels: power of two, then 32 steps), one set of lists for settled
//     and one for pending; a bitmap finds the first list that fits. See Masmano et al., "TLSF", ECRTS 2004; unlike
//     TLSF the list of the request's own size class is searched too (bounded), which is what keeps blocks of a few
//     repeated sizes from fragmenting.
//
// Growth: the arena never adds memory by itself. When allocate() finds nothing, wants_slab() says how large a slab
// would help; the owner makes it and reports it with add_slab(). Slabs are numbered 0, 1, 2 ... and never go away.
//
// Not thread safe: one owner.
#pragma once
#include <tilewise/alloc/fence.h>
#include <tilewise/base/digest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tilewise::alloc {

struct ArenaOptions {
  std::int64_t max_bytes = 0;    // all slabs together
  std::int64_t slab_bytes = 0;   // usual slab; a larger request gets a slab of its own size
  std::int64_t alignment = 256;  // a power of two; sizes are rounded up to it
};

// Memory lent to the caller, to be given back with free(). A zero-byte extent is valid, touches no slab and costs
// nothing.
struct Extent {
  std::uint32_t slab = 0;
  std::uint32_t node = 0;   // the arena's own handle (0 for empty extents); do not interpret
  std::int64_t offset = 0;  // bytes from the slab's start, aligned
  std::int64_t bytes = 0;   // as asked for
  friend bool operator==(const Extent&, const Extent&) = default;
};

// See Arena::compact().
struct Compaction {
  struct Move {
    std::size_t from = 0;  // position in `movable`
    Extent to;
  };
  std::vector<Extent> gaps;
  std::vector<Move> moves;
};

class Arena {
 public:
  explicit Arena(const ArenaOptions& options);

  // Finds room: settled memory first, then pending. `wait_for` is set to the fence that the user's stream must wait
  // for (empty for settled memory). Nothing when there is no room now: see wants_slab().
  std::optional<Extent> allocate(std::int64_t bytes, Fence& wait_for);
  // Only memory that may be touched at once by anyone: transports, disk, host threads.
  std::optional<Extent> allocate_settled(std::int64_t bytes);
  // Gives `extent` back; it may be touched again after `fence`. Freeing twice or an unknown extent is a bug (abort).
  void free(const Extent& extent, const Fence& fence);
  // Shrinks in place (a result that stayed below its bound). The tail may be touched again after `fence`.
  void trim(Extent& extent, std::int64_t bytes, const Fence& fence);
  // Steps up to `sequence` of `stream` are complete. Never goes back; older news are ignored.
  void completed(std::uint8_t stream, std::uint64_t sequence);
  bool is_complete(const Fence& fence) const;

  // The size of a slab that would make room for `bytes`, or 0 when the arena may not grow that far. Not more than
  // what is left of max_bytes, at least `bytes`.
  std::int64_t wants_slab(std::int64_t bytes) const;
  // The owner has made a slab. Returns its number. Past max_bytes is a bug (abort).
  std::uint32_t add_slab(std::int64_t bytes);

  std::int64_t max_bytes() const { return options_.max_bytes; }
  std::int64_t bytes_in_use() const { return in_use_; }          // rounded up to the alignment
  std::int64_t bytes_resident() const { return resident_; }      // all slabs
  std::int64_t bytes_pending() const { return pending_bytes_; }  // free, but behind a fence
  std::int64_t bytes_free() const { return resident_ - in_use_; }
  // The largest request that allocate() / allocate_settled() would surely serve now without a new slab. A lower
  // bound: adjacent pending extents are not counted together.
  std::int64_t largest_free() const;
  std::int64_t largest_settled() const;
  // Which of these extents, all in use and none twice, would make room for `bytes` if they were freed, together with what is
  // free and settled: neighbours, and as few bytes of them as can be. Positions in `candidates`; empty: no room can be made.
  std::vector<std::size_t> room_by_freeing(std::span<const Extent> candidates, std::int64_t bytes) const;
  // How room for `bytes` in one piece is made by moving blocks: of extents that may be moved, all in use and none twice, those that lie in
  // a range of that length are to be copied elsewhere. Their new places, and what is free in the range, are in use from here on. When
  // the caller has moved the blocks and freed the gaps and their old places, the range is free; to give it up, the gaps and new
  // places are freed. Moves few bytes; nothing if no range can be cleared, and then nothing has changed. O(extents).
  std::optional<Compaction> compact(std::span<const Extent> movable, std::int64_t bytes);
  std::uint32_t slab_count() const { return static_cast<std::uint32_t>(slabs_.size()); }
  std::int64_t slab_bytes(std::uint32_t slab) const { return slabs_[slab].bytes; }

  // Walks everything and aborts with a story when an invariant is broken. For tests: O(extents).
  void check_invariants() const;
  void digest(Digest& into) const;

 private:
  using NodeId = std::uint32_t;  // 0 is none
  enum class State : std::uint8_t { kUnused, kUsed, kSettled, kPending };
  static constexpr int kSteps = 32;  // second level
  // How many extents of one list are compared before the best so far is taken. Bounds the time of an operation.
  static constexpr int kScan = 16, kScanAll = 1 << 30;
  static constexpr int kRows = 52;  // first level: enough for 2^55 alignment units

  struct Node {
    std::int64_t offset = 0, bytes = 0;
    NodeId left = 0, right = 0;           // neighbours by address
    NodeId bin_prev = 0, bin_next = 0;    // free: same list
    NodeId wait_prev = 0, wait_next = 0;  // pending: same awaited stream
    std::uint32_t slab = 0;
    State state = State::kUnused;
    std::uint8_t awaited = 0;  // pending: the stream under which it is queued
  };
  struct Slab {
    std::int64_t bytes = 0;
    NodeId first = 0;
  };
  struct Bins {
    std::uint64_t rows = 0;
    std::array<std::uint32_t, kRows> steps{};
    std::array<NodeId, kRows * kSteps> head{};
  };
  struct Queue {
    NodeId head = 0, tail = 0;
  };

  std::int64_t round_up(std::int64_t bytes) const;
  int bin_of(std::int64_t bytes) const;
  Bins& bins_of(State state) { return state == State::kPending ? pending_ : settled_; }
  const Bins& bins_of(State state) const { return state == State::kPending ? pending_ : settled_; }

  NodeId new_node();
  void drop_node(NodeId id);
  void link(NodeId id);
  void unlink(NodeId id);
  void enqueue_wait(NodeId id);
  void dequeue_wait(NodeId id);
  void make_pending(NodeId id);
  void settle(NodeId id);
  void make_used(NodeId id);
  NodeId absorb(NodeId left, NodeId right);
  NodeId cut(NodeId id, std::int64_t bytes);
  bool prune(Fence& fence) const;
  void settle_all();

  NodeId best_in(NodeId head, std::int64_t bytes, int limit) const;
  NodeId find(const Bins& bins, std::int64_t bytes, int limit) const;
  NodeId run_head(NodeId id) const;
  NodeId best_run(std::int64_t bytes) const;
  NodeId join_run(NodeId head, std::int64_t bytes);
  Extent take(NodeId id, std::int64_t rounded, std::int64_t bytes);
  // Neighbours among some extents in use, with nothing but settled memory between them.
  struct Run {
    std::size_t first = 0, last = 0;  // positions in `used`
    std::int64_t bytes = 0;           // of those, in use
  };
  struct Runs {
    std::vector<std::size_t> order;  // positions in what was given, by address
    std::vector<NodeId> used;        // those extents
    std::vector<Run> runs;           // each would be room for the bytes that are wanted, and less would not
  };
  Runs runs_around(std::span<const Extent> extents, std::int64_t rounded) const;
  bool is_settled(NodeId id) const { return id != 0 && nodes_[id].state == State::kSettled; }
  // From the first extent to the last one, with the settled memory on both sides.
  std::int64_t span_of(NodeId first, NodeId last) const {
    const Node &left = nodes_[first], &right = nodes_[last];
    return right.offset + right.bytes - left.offset + (is_settled(left.left) ? nodes_[left.left].bytes : 0) +
           (is_settled(right.right) ? nodes_[right.right].bytes : 0);
  }
  bool clear(std::span<const Extent> movable, const Runs& all, const Run& run, std::int64_t rounded,
             Compaction& into);
  std::int64_t largest_in(const Bins& bins) const;
  NodeId node_of(const Extent& extent) const;

  ArenaOptions options_;
  std::vector<Node> nodes_;    // [0] is the null node
  std::vector<Fence> fences_;  // parallel to nodes_; meaningful for pending ones
  NodeId unused_ = 0;          // free list through bin_next
  std::vector<Slab> slabs_;
  Bins settled_, pending_;
  std::array<Queue, 256> waits_{};
  std::array<std::uint64_t, 256> completed_{};
  std::int64_t in_use_ = 0, resident_ = 0, pending_bytes_ = 0;
};

}  // namespace tilewise::alloc
