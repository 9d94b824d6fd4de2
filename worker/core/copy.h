// The tables of blocks: copies, who still needs them, and the arrays that they are of. Invariants: state.h.
#pragma once
#include "pool.h"

#include <tilewise/ir/grid.h>
#include <tilewise/worker/core.h>

#include <array>
#include <boost/container/small_vector.hpp>
#include <optional>

namespace tilewise::worker {

struct Use {
  Slot op = kNone;
  DeviceId device;
  std::int64_t left = 0;    // local: reads not yet enqueued; else 1
  bool subscribed = false;  // other device: wants an offer when sealed
  bool answered = false;    // and has had one since it said so
  bool offered = false;     // other device: may be reading; only its Done ends this
  bool lent = false;        // other device: may be reading the bytes in our memory
  bool sending = false;     // other device: is being sent the bytes that we have below
  Slot next = kNone;
  std::uint8_t detours = 0;  // other device: how often it was to get them elsewhere, since our way failed
};

enum class CopyState : std::uint8_t {
  kExpected,   // not here: its task has not been enqueued, or its owner has not offered it
  kOffered,    // the owner has it; waiting for memory here (copying lanes)
  kReceiving,  // bytes are on their way
  kEnqueued,   // usable in stream order on this device
  kSealed,     // complete; usable by anyone
  kFailed,     // there will be no bytes
  kSpilled,    // complete, but only below its device's memory
  kReturning,  // on its way back from there
};
enum class CopyKind : std::uint8_t {
  kProduced,
  kRemote /* kind of lane not known yet */,
  kBorrowed,
  kReplica
};

// An offered copy that has not been granted: where it stands (grants.cc).
enum class Stands : std::uint8_t { kNowhere, kFresh, kForTurn, kForMemory };

// A guest's place in the memory of another device of this process (guests.cc): `Copy::tier` is kNeighbour, and `Copy::below` is a
// place in the tier `promised`, which nothing has been written to.
struct Lodging {
  std::uint16_t device = 0;
  Tier promised = Tier::kDisk;
  alloc::Extent extent;
  std::uint32_t listed_at = 0;  // among that device's guests
};

struct Copy {
  Slot array = kNone;
  std::int64_t block = 0;
  std::uint16_t device = 0;
  CopyState state = CopyState::kExpected;
  CopyKind kind = CopyKind::kProduced;
  std::uint8_t attempts = 0;         // transfers that failed
  std::uint8_t breaks = 0;           // and those that a broken link ended
  Stands stands = Stands::kNowhere;  // kOffered: somewhere
  bool has_memory = false;
  bool adopted = false;  // made here, without memory: its bytes are a client's (adopt.cc)
  bool spare = false;    // in the device's list of replicas that may go
  DeviceId source;       // remote kinds: the owner
  DeviceId via;          // none, or who has a copy too and sends it (kOffered, kReceiving)
  bool pulls = false;    // its bytes are copied from where they are lent, `at` while it is kOffered: no Grant
  bool relays = false;  // asked for, and given to, others of this host or behind it: a spare when it is whole
  bool in_parts = false;  // kReceiving: it comes so ...
  bool begun = false;     // ... and the first one is here
  Slot tree = kNone;      // of the owner: who passes it on (trees.cc)
  MemoryRef at;           // where the bytes are
  std::int64_t bytes = 0;
  alloc::Extent extent;                              // has_memory
  std::uint8_t stream = 0;                           // kEnqueued: produced there ...
  std::uint64_t sequence = 0;                        // ... by this step
  std::array<std::uint64_t, kMaxStreams> readers{};  // last enqueued reader per stream
  std::uint64_t transfer = 0;
  // Tiers (tiers.cc).
  bool fixed = false;    // has memory that cannot be had by spilling it
  bool writing = false;  // to a tier below; what is in memory stays usable
  bool stored = false;   // `below` holds its bytes
  bool left_below =
      false;  // it could not be brought back; `below` stays for those who are being sent what is there
  bool wanted = false;  // in its device's list of those to bring back
  bool demoting =
      false;  // on its way from pinned memory to disk, or from a neighbour; it is in both places until it is there
  std::int32_t lent = 0, sending = 0;  // uses of that kind
  std::int32_t relayed = 0;            // being sent from here to others, on its owner's behalf
  std::uint64_t io = 0;                // under way, or 0
  Tier tier = Tier::kDisk;             // stored, writing, left_below: where
  alloc::Extent below;                 // there
  Lodging lodging;                     // kNeighbour
  std::uint32_t resident_at = 0;       // has_memory: position in its device's list; spilled: in its tier's
  // For the sake of a worker that is to leave (drain.cc).
  WorkerId kept;           // none, or that worker
  bool kept_open = false;  // not here yet: counted in leaving[kept].left
  bool handed_on = false;  // this worker is the one to leave, and somebody copies it without a claim on it
  TimeNs since = 0;        // when its transfer began
  WorkerId timed;          // none, or on whose link its transfer counts
  WorkerId in_window;      // none, or of whose bytes on their way (window.h)
  Slot producer_task = kNone;  // while its task is live
  // Claims, by rising OpId: ops come and go in that order as a rule, so both ends are near, however many claims there are.
  Slot uses = kNone;
  Slot last_uses = kNone;           // the first claim of the op that has the last one
  Slot waiters = kNone;             // tasks
  Slot prev = kNone, next = kNone;  // same array
  Slot outcome = kNone;             // kFailed: why
};

// Who passes a block on to devices that its owner does not send it to itself: one device of each other host, its *leader*.
// See trees.cc.
struct Leader {
  DeviceId device;
  std::uint32_t host = 0;
  enum class State : std::uint8_t {
    kOut,      // passes nothing on
    kWaiting,  // for the leader that it is to get the block from
    kAsked,    // has been offered the block, and will say whether it passes it on
    kHas       // does
  } state = State::kOut;
};
struct Tree {
  // Who passes the block on to leader number i, where each has `fan_out` after it; none: the owner.
  static std::optional<std::size_t> parent_of(std::size_t i, std::size_t fan_out) {
    return i < fan_out ? std::nullopt : std::optional(i / fan_out - 1);
  }
  boost::container::small_vector<Leader, 4> leaders;  // in the order in which they came
};

struct User {
  Slot op = kNone;
  int operand = 0;
  bool over = false;  // it had read all it ever will, everywhere, when what made the array was retired
};

struct ArrayState {
  ArrayId id;
  SessionId session;                           // whose memory its blocks take (byte_shares.h), ...
  std::uint32_t weight = msg::kDefaultWeight;  // ... with this weight, where it has nothing else
  // Ops that make its blocks: the planned one, then those of recoveries. The last one that names an owner of a block
  // makes it (maker()).
  boost::container::small_vector<Slot, 1> makers;
  int output = 0;
  ir::DType dtype = ir::DType::kFloat64;
  std::size_t element_bytes = 0;
  std::int64_t block_bytes = 0;  // of each; 0: they differ
  ir::Grid grid;
  ir::Shape counts;
  boost::container::small_vector<User, 2> users;
  boost::container::small_vector<Slot, 1> keeps;  // of those: ops that want copies to stay (keep.cc)
  bool held = false;
  std::uint64_t pinned = 0;  // by the loss of this version: copies stay until the Recover that answers it
  Slot copies = kNone;       // list
  Slot to_release = kNone;   // of a released array: the next copy to look at
  std::int64_t live_copies = 0;
};

}  // namespace tilewise::worker
