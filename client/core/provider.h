// The client's own arrays, and pieces of arrays, on their way out: workers subscribe to blocks of kProvide arrays and are offered
// them, small ones inlined, others to be granted and transmitted. Runs in the endpoint's callbacks, like Fetcher.
#pragma once
#include <tilewise/client/endpoint.h>

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "graph.h"

namespace tilewise::client {

using Outbox = std::map<WorkerId, msg::PeerBatch>;  // what to send when a callback ends

class Provider {
 public:
  Provider(Endpoint& endpoint, DeviceId self) : endpoint_(endpoint), self_(self) {}

  // Until retire(request): its graph is done, so that everyone has read what it needs.
  void provide(ArrayId array, Submission::Provided provided, std::uint64_t request);
  struct Piece {  // each block lies in one of them, or is somebody else's
    ir::Box box;
    std::shared_ptr<const Memory> memory;
    std::optional<Endpoint::Place> place = {};  // where workers can read it, once it is provided
  };
  void provide(ArrayId array, ir::SourceArray source, std::vector<Piece> pieces, std::uint64_t request);
  void retire(std::uint64_t request);
  void retire_all();  // nobody is left to read anything

  // An unknown array is gone, unless a reply is due that may name it.
  void on_subscribe(WorkerId from, const msg::Subscribe& subscribe, bool reply_due, Outbox& out);
  void on_grant(WorkerId from, const msg::Grant& grant, Outbox& out);
  void on_replied(bool reply_due, Outbox& out);

  // When something of what the request provides was last asked for, or it was provided. 0: it provides nothing.
  TimeNs moved_at(std::uint64_t request) const;
  // Some of it is on its way to a worker other than this one.
  bool sends(std::uint64_t request, WorkerId but_to) const;

  std::size_t providing() const { return arrays_.size(); }
  // Bytes of blocks that were offered where they lie, and that were sent, so far. Any thread.
  std::int64_t bytes_in_place() const { return in_place_.load(std::memory_order_relaxed); }
  std::int64_t bytes_sent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    ir::SourceArray array;
    std::vector<Piece> pieces;
    std::unordered_map<std::int64_t, std::uint32_t> piece_of;  // by block, of several pieces
    std::uint64_t request = 0;
    TimeNs moved_at = 0;
    std::set<std::pair<std::int64_t, DeviceId>> in_place;  // blocks, and to whom they were offered so
    std::multiset<WorkerId> sending;                       // to whom blocks are on their way
  };
  struct Found {
    const Memory* memory = nullptr;  // null: there is no such array, or it has no such block here
    std::shared_ptr<const Memory> owner;
    std::optional<Endpoint::Place> place;  // of the piece
    ir::Shape shape;                       // of the piece
    ir::Box box;                           // of the block, in the piece
    std::size_t element_bytes = 0;
    std::int64_t first() const;  // bytes of the piece before the block's first element
    std::int64_t bytes() const { return box.volume() * static_cast<std::int64_t>(element_bytes); }
  };
  Found find(msg::BlockRef block) const;
  void withdraw(const Entry& entry);

  Endpoint& endpoint_;
  std::atomic<std::int64_t> in_place_{0}, sent_{0};
  DeviceId self_;
  std::unordered_map<ArrayId, Entry> arrays_;
  std::deque<std::pair<WorkerId, msg::Subscribe>> early_;
};

}  // namespace tilewise::client
