// The client's own arrays on their way out: workers subscribe to blocks of kProvide arrays and are offered them, small
// ones inlined, others to be granted and transmitted. Runs in the endpoint's callbacks, like Fetcher.
#pragma once
#include <tilewise/client/endpoint.h>

#include <deque>
#include <unordered_map>

#include "fetcher.h"
#include "graph.h"

namespace tilewise::client {

class Provider {
 public:
  Provider(Endpoint& endpoint, DeviceId self) : endpoint_(endpoint), self_(self) {}

  // Until retire(request): its graph is done, so that everyone has read what it needs.
  void provide(ArrayId array, Submission::Provided provided, std::uint64_t request);
  void retire(std::uint64_t request);

  // An unknown array is gone, unless a reply is due that may name it.
  void on_subscribe(WorkerId from, const msg::Subscribe& subscribe, bool reply_due, Outbox& out);
  void on_grant(WorkerId from, const msg::Grant& grant, Outbox& out);
  void on_replied(bool reply_due, Outbox& out);

  std::size_t providing() const { return arrays_.size(); }

 private:
  struct Entry {
    ir::SourceArray array;
    ir::Shape shape;
    std::shared_ptr<const Memory> memory;
    std::uint64_t request = 0;
  };
  const Entry* find(msg::BlockRef block) const;  // null: no such array, or it has no such block

  Endpoint& endpoint_;
  DeviceId self_;
  std::unordered_map<ArrayId, Entry> arrays_;
  std::deque<std::pair<WorkerId, msg::Subscribe>> early_;
};

}  // namespace tilewise::client
