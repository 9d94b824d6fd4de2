// The tables of devices: streams, memory, what goes below it, whose turn it is. Invariants: state.h.
#pragma once
#include "byte_shares.h"
#include "copy.h"
#include "queue_list.h"
#include "window.h"

#include <tilewise/base/block_deque.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace tilewise::worker {

struct InFlight {
  std::uint64_t sequence = 0;
  std::uint64_t number = 0;  // of all the device's launches: later than what it reads
  Slot task = kNone;
  std::uint32_t family = 0;  // OpEntry::family
  std::int64_t model_ns = 0;
  double slower_then = 1;  // DeviceState::slower of its family, when it was enqueued
  boost::container::small_vector<std::pair<std::uint8_t, std::uint64_t>, 2>
      unproven;  // steps whose results it reads or goes on with
  std::int64_t expected_ns() const {
    return static_cast<std::int64_t>(slower_then * static_cast<double>(model_ns));
  }
};
struct StreamState {
  std::uint64_t issued = 0, completed = 0;
  std::int64_t queued_ns = 0;  // what the steps in flight are expected to take
  BlockDeque<InFlight> flight;
  const InFlight* find(std::uint64_t sequence) const {  // none: it is through
    if (flight.empty() || sequence < flight.front().sequence || sequence > flight.back().sequence)
      return nullptr;
    return &flight[sequence - flight.front().sequence];  // none is left out
  }
};

// A Done that waits until the readers it speaks for are complete.
struct PendingDone {
  std::array<std::uint64_t, kMaxStreams> readers{};
  msg::Done done;
  bool foreign = false;  // of memory that a client lent: Actions::given_back
};

// When a block is read next on its device: where in the total order of tasks. Later is better to spill.
struct NextUse {
  std::int64_t queue = -1;  // position among the device's queues
  std::uint64_t op = 0;
  std::int64_t point = 0;
  friend auto operator<=>(const NextUse&, const NextUse&) = default;
};
constexpr std::int64_t kMaxIos = 64;  // under way to and from a tier
constexpr NextUse kBeforeAll{-1, 0, 0};
constexpr NextUse kNever{INT64_MAX, UINT64_MAX, INT64_MAX};

// What may be taken from a device's memory when it is short (memory.cc).
enum class Claim : std::uint8_t {
  kOrdinary,   // may not touch what is owed to the reserve
  kReleasing,  // of a task that frees as much as it takes: only want of memory keeps it waiting
  kLowest      // of the lowest unfinished task: the reserve too
};

// What keeps an ordinary claim from memory that could be had (memory.cc).
enum class Obstacle : std::uint8_t {
  kNone,
  kOwnOrder,  // earlier tasks of the same session
  kSessions,  // others, which have less
  kReserve
};

// Who wants memory, and when what it is for is used.
struct Asker {
  SessionId session;
  Claim claim = Claim::kOrdinary;
  NextUse use;
  bool waits = false;      // a task does, for this memory
  std::int64_t bytes = 0;  // in the arena, of all that is asked for at once
  // Blocks of its own session that are used no later than this do not leave for it.
  const NextUse& later_than() const { return claim == Claim::kLowest ? kBeforeAll : use; }
};

// What may be spilled of one session's blocks on a device, sorted by next use, the last one first to go. Entries go stale.
struct Victims {
  SessionId session;
  std::vector<std::pair<NextUse, Slot>> blocks;
};

enum class Way : std::uint8_t {
  kOut,     // of memory, to a tier
  kBack,    // into memory
  kOnward,  // from a tier to another one: from pinned memory, or from a neighbour's
  kAside    // within memory (compaction.cc)
};

struct Io {           // of a block to or from a tier, or within memory, under way
  Slot copy = kNone;  // none: it went meanwhile, and with the end of this goes what it had
  std::uint16_t device =
      0;  // whose memory it leaves or comes to; of kOnward, that has the block, or is its host
  Way way = Way::kOut;
  Tier tier = Tier::kDisk;  // of kOnward, to which
  bool from_host = false;   // of kOnward, out of a neighbour's memory
  std::int64_t bytes = 0;
  TimeNs since = 0;
  bool has_memory = false;  // of a copy that went
  alloc::Extent memory;     // likewise
  alloc::Extent below;  // its place in the tier, of a copy that went, or of kOnward where it gets another one
  alloc::Extent
      from;         // of kOnward and a copy that went: its place in pinned memory, or the one it was promised
  Lodging lodging;  // of one that went
  alloc::Fence fence;
  alloc::Extent aside;  // of kAside: where it is to be
};

enum class Room : std::uint8_t { kOfLowest, kOfReserve };  // what it is for

// Blocks move out of the way of what is wanted in one piece (compaction.cc).
struct Clearing {
  std::int64_t bytes = 0;  // wanted
  Room of = Room::kOfLowest;
  std::vector<std::pair<alloc::Extent, alloc::Fence>>
      kept;              // gaps, and places that blocks have left: free when the last one has moved
  int moving = 0;        // blocks
  bool in_vain = false;  // one stays where it was
};

// What a session with queues on a device has had of its time (fair_share.cc).
struct FairShare {
  SessionId session;
  std::uint32_t weight = msg::kDefaultWeight;
  double served = 0;  // nanoseconds over weight
  int queues = 0;
  QueueList ready;  // those with ready tasks
};

struct Ungranted {
  Turn turn;  // when it began to wait: nothing that is read sooner comes later
  Slot copy = kNone;
};

// Why a device runs nothing; kStep: it does.
struct Wait {
  msg::TraceKind kind = msg::TraceKind::kStep;
  TimeNs since = 0;
  OpId op;  // of the task that waits
  GraphId graph;
  std::int64_t point = 0;
};

struct DeviceState {
  explicit DeviceState(const DeviceSpec& s)
      : spec(s),
        arena({.max_bytes = s.memory_bytes, .slab_bytes = std::min(s.slab_bytes, s.memory_bytes)}),
        streams(static_cast<std::size_t>(s.streams)) {}
  DeviceSpec spec;
  alloc::Arena arena;
  std::vector<StreamState> streams;
  // By family (OpEntry::family): how many times as long as the model has it its steps took here lately, at least 1; 0: none has run.
  // Noticed at once when it is more, by and by when it is not.
  std::vector<double> slower;
  double slower_than_model(std::uint32_t family) const {
    return family < slower.size() ? std::max(1.0, slower[family]) : 1;
  }
  bool has_run(std::uint32_t family) const { return family < slower.size() && slower[family] > 0; }
  // A step of the family is through, which seems to have taken `times` as long as the model has it.
  void learn(std::uint32_t family, double times) {
    if (family >= slower.size()) slower.resize(family + 1);
    double& known = slower[family];
    known = std::max({1.0, times, known + (times - known) / 4});
  }
  std::uint64_t launches = 0;
  std::map<std::uint64_t, StepFailed> unexplained;  // by number; see Core::Impl::on_step_failed
  boost::unordered_flat_map<std::uint64_t, Slot>
      index;         // (array slot, block) -> copy; looked up, never walked
  QueueList queues;  // all
  boost::unordered_flat_map<std::uint64_t, Slot> queue_by_graph;  // likewise; looked up, never walked
  QueueList to_expand;                                            // something has changed for them
  QueueList blocked;                                              // those with blocked tasks
  QueuePlace turn = kBeforeAllQueues;  // whose it was last, among those of equal standing
  std::vector<FairShare> fair;         // of its time, of the sessions with queues here, rising
  ByteShares shares;                   // of its memory
  std::deque<Ungranted> ungranted;     // offered copies that wait for memory, by turn
  BlockDeque<PendingDone> pending_dones;
  std::deque<std::uint64_t>
      spares;  // keys of replicas kept without a use, oldest first; some are gone or used again
  std::size_t spares_checked = 0;  // how many there were when those that are gone were last left out
  std::vector<alloc::Extent> reserve;
  std::vector<std::int64_t> reserve_want;  // the extents wanted, largest first: for the largest admitted step
  std::int64_t reserve_bytes = 0;          // together
  bool lends = false;                      // of a GPU: peers can open its slabs
  bool slab_pending = false, memory_freed = false;
  bool full = false;       // a slab could not be made: the arena is what it is
  Error refusal = {};      // why the last one that was asked for could not
  int slab_tries = 0;      // since one could, or since the last word that this device is stuck
  TimeNs last_change = 0;  // when memory or streams last moved
  std::int64_t bytes_peak = 0, steps_run = 0, busy_ns = 0;
  // Tiers (tiers.cc).
  std::vector<Slot> resident;     // copies with memory
  std::vector<Slot> guests;       // others' copies that lie here (guests.cc)
  std::int64_t guest_bytes = 0;   // in the arena
  std::vector<Victims> victims;   // by session
  std::uint64_t victims_at = 0;   // the step in which they were looked for
  std::int64_t victims_news = 0;  // copies that have got memory since
  std::deque<Slot> returns;       // spilled copies that tasks wait for or soon will
  bool returns_due = false, disk_short = false;
  // Who made room and found too little in one piece, in this round of asking and in the one before: what is used later and may
  // have a smaller piece must not take what has been freed.
  std::vector<Asker> short_now, short_before;
  std::array<bool, kTiers> cut_off{};      // its copies on the way there fail: it writes there no more
  std::array<bool, kTiers> wants_place{};  // it has found no place there, and is woken when one comes free
  std::int64_t waits_from =
      -1;  // it waits for a place in pinned memory since so many demotions had ended; -1: it does not
  std::int64_t writing_bytes = 0, ios = 0;
  std::array<std::int64_t, kTiers> reading_bytes{};                // on their way from there
  std::array<std::int64_t, kTiers> spilled_bytes{};                // of copies that are there only
  std::array<std::int64_t, kTiers> written_bytes{}, read_bytes{};  // so far, as are the next
  std::int64_t blocks_written = 0, blocks_read_back = 0;
  std::int64_t bytes_high = 0;   // since the last report
  std::int64_t told_in_use = 0;  // of the arena, in that
  std::optional<Clearing> clearing;
  std::optional<alloc::Extent> cleared;  // what has come of one, until the end of the worker's step
  // By Room: for so many bytes, or more, no range can be cleared as things are.
  std::array<std::int64_t, 2> no_range{INT64_MAX, INT64_MAX};
  bool moves_fail = false;           // copies within its memory do
  std::int64_t relocated_bytes = 0;  // so far
  Wait wait;
};

}  // namespace tilewise::worker
