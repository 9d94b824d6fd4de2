// What peers (workers, and clients' data endpoints) say to each other about blocks.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/msg/outcome.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tilewise::msg {

struct PeerHello {    // first on a peer link, after authentication
  WorkerId from, to;  // a wrong `to` (another incarnation) closes the link
  std::string host_id;
  std::int32_t slab_fds = 0;  // arenas handed over with this or a later ArenaMap
  friend bool operator==(const PeerHello&, const PeerHello&) = default;
};
// Memory for measuring links to a GPU's memory: no block is ever there.
constexpr std::uint32_t kProbeSlab = UINT32_MAX - 1;
struct SlabDesc {
  DeviceId device;
  std::uint32_t slab = 0;
  std::int64_t bytes = 0;
  std::string
      ipc_handle;  // cuda; those without one travel as file descriptors beside the frame, in this order
  friend bool operator==(const SlabDesc&, const SlabDesc&) = default;
};
struct ArenaMap {  // these slabs of the sender may now be mapped
  std::vector<SlabDesc> slabs;
  std::string ucx_address;  // worker address blob, for the copying lanes; may be empty
  friend bool operator==(const ArenaMap&, const ArenaMap&) = default;
};

struct BlockRef {
  ArrayId array;
  std::int64_t block = 0;  // C-order number
  friend auto operator<=>(const BlockRef&, const BlockRef&) = default;
};
// `op`, a user of the block placed on device `to`, will need it: offer it when sealed. Soft state, may be repeated.
struct Subscribe {
  BlockRef block;
  OpId op;
  DeviceId from;  // the block's owner
  DeviceId to;
  DeviceId via;  // named in an offer, and has not sent it: the owner is to; the owner: it could not
  friend bool operator==(const Subscribe&, const Subscribe&) = default;
};
// The slab of an offer that carries neither inlined bytes nor a place: the receiver must grant a transfer.
constexpr std::uint32_t kNoSlab = UINT32_MAX;
// The block is sealed at `from`; `to` may map or fetch it, and owes a Done for each op it uses it for.
struct Offer {
  BlockRef block;
  OpId op;  // the user that subscribed, or the kFetch that wished for it; owed a Done in any case
  DeviceId from, to;
  std::uint32_t slab = 0;  // kNoSlab: no place to read it in, it may be on disk
  std::int64_t offset = 0, bytes = 0;
  Outcome failed;  // not ok: there will be no bytes; dependents fail with this root cause
  bool inlined = false;
  std::string data;  // the bytes themselves, up to limits::kMaxInlineBytes
  DeviceId via;      // to be granted there, not at `from`: a device that has a copy and keeps it for this
  bool relays =
      false;  // others are to get it from `to`: answered with a Relay, or with one when the bytes are there
  friend bool operator==(const Offer&, const Offer&) = default;
};
constexpr int kTransferBits = 44;  // of a transfer's number; those above number its parts (exchange/parts.h)

// The receiver has memory: send the bytes over the copying lane, tagged with `transfer`.
struct Grant {
  BlockRef block;
  DeviceId from, to;           // as in the offer
  std::uint64_t transfer = 0;  // the receiver's nonce
  DeviceId via;                // as in the offer: who sends it, if not `from`
  bool in_parts = false;       // each part of the block is a transfer of its own (exchange/parts.h)
  friend bool operator==(const Grant&, const Grant&) = default;
};
// Between a block's owner and a device that passes it on, and between that and the devices that get it there
// (docs/design/trees.md).
enum class RelayWord : std::uint8_t {
  kHas = 0,   // to the owner: it is here, and stays for those who are sent here
  kDeclined,  // to the owner: nobody is to be sent here
  kOver,      // from the owner: nobody else will come
  kMissing    // to whom granted `transfer` here: nothing comes, the copy is gone or cannot be sent
};
constexpr int kRelayWordCount = 4;
struct Relay {
  BlockRef block;
  DeviceId from, to;  // who says it, and to whom
  RelayWord word = RelayWord::kHas;
  std::uint64_t transfer = 0;  // of kMissing
  friend bool operator==(const Relay&, const Relay&) = default;
};
// User `op` on device `to` needs the copy at `from` no more. Discharge is a set: repeats do nothing.
struct Done {
  BlockRef block;
  OpId op;
  DeviceId from, to;
  OpId
      also;  // a later op that `to` reads the same loan for: the loan does not end before that op is known. 0: none
  friend bool operator==(const Done&, const Done&) = default;
};
// There is no such block at `from` any more.
struct Gone {
  BlockRef block;
  DeviceId from, to;
  friend bool operator==(const Gone&, const Gone&) = default;
};
// `to` has memory for bytes of no block: send so many of anything, tagged with `transfer`. How long that takes is what it
// wants to know (docs/design/link-probes.md). Who has work does not answer.
constexpr std::int64_t kMaxProbeBytes = 8 << 20;
struct Probe {
  DeviceId from, to;
  std::uint64_t transfer = 0;  // the receiver's nonce, rising
  std::int64_t bytes = 0;      // 1 to kMaxProbeBytes
  friend bool operator==(const Probe&, const Probe&) = default;
};
struct PeerBatch {             // processed in this order
  std::uint64_t recovery = 0;  // the last Recover that the sender has applied
  std::vector<Subscribe> subscribes;
  std::vector<Offer> offers;
  std::vector<Grant> grants;
  std::vector<Relay> relays;
  std::vector<Done> dones;
  std::vector<Gone> gones;
  std::vector<Probe> probes;
  bool empty() const {
    return subscribes.empty() && offers.empty() && grants.empty() && relays.empty() && dones.empty() &&
           gones.empty() && probes.empty();
  }
  friend bool operator==(const PeerBatch&, const PeerBatch&) = default;
};

}  // namespace tilewise::msg
