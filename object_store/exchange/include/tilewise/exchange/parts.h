// Large blocks in parts, each a transfer of its own: who passes a block on sends a part while the next one comes, so a chain of hosts
// takes hardly longer than its first link (docs/design/trees.md). Both ends cut alike.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/exchange/exchange.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace tilewise::exchange {

// Of a block of so many; the last part may be smaller.
std::int64_t part_bytes_of(std::int64_t block_bytes);

// The loop's thread. Calls of `done` and the like may come from inside calls made here where those of the ways do.
class Parts {
 public:
  // How one transfer goes: as Exchange's.
  struct Ways {
    std::function<void(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                       device::Kind kind, Exchange::Done done)>
        transmit;
    std::function<void(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                       device::Kind kind, Exchange::Done done, transfer::OnHeld held)>
        receive;
    std::function<void(WorkerId from, std::uint64_t transfer)> disarm;
    std::function<void(WorkerId peer, std::uint64_t transfer, bool sending)> extend;
  };
  // `extend_each`: how often, at most, the others of a block are given more time when one has ended.
  explicit Parts(Ways ways, TimeNs extend_each = 5 * kSecond)
      : ways_(std::move(ways)), extend_each_(extend_each) {}
  ~Parts();  // the transport has let go; what was under way is never told of
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // As Exchange's, of a block that is sent in parts. `first`: one of them is here, the block is not. After one has failed the others are
  // not awaited, and `done` comes when nothing of the block is under way: neither to its memory, nor from there to others. Where it ends
  // well others may still be sent it: their own ends are told.
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, device::Kind kind,
               std::function<void()> first, Exchange::Done done, transfer::OnHeld held = {});
  // `follows`: a receive from above, to the same memory: each part is sent when it is here. One that has ended well, or 0: all are here.
  // Where that receive fails, or has just failed, the parts that have not come are not sent, and this ends with its error.
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                device::Kind kind, std::uint64_t follows, Exchange::Done done);
  // The link to it broke, or it is lost: what is sent to it ends, as soon as the parts under way have.
  void peer_broke(WorkerId peer, const Error& why);
  // As Exchange's. False: there is no such receive in parts.
  bool disarm(WorkerId from, std::uint64_t transfer);

 private:
  struct Incoming;
  struct Outgoing;
  template <class Block> void extend(Block& block, WorkerId peer, bool sending);
  void arrived(const std::shared_ptr<Incoming>& in, std::int64_t part, const Status& status, msg::Lane lane);
  void disarm_rest(const Incoming& in);
  void fail(Incoming& in, const Error& why);
  void end_if_over(const std::shared_ptr<Incoming>& in);
  void send(const std::shared_ptr<Outgoing>& out, std::int64_t part);
  void end_if_over(const std::shared_ptr<Outgoing>& out);

  struct Failed {
    std::uint64_t transfer = 0;
    Error why;
  };
  const Ways ways_;
  const TimeNs extend_each_;
  std::map<std::uint64_t, std::shared_ptr<Incoming>> incoming_;  // this process numbers them
  std::map<std::pair<WorkerId, std::uint64_t>, std::shared_ptr<Outgoing>> outgoing_;
  std::deque<Failed> failed_;  // lately
};

}  // namespace tilewise::exchange
