// The copying lane inside one process: a receive waits for its transmit, then the bytes are copied.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/device/copier.h>

#include <map>
#include <set>

namespace tilewise::worker {

// One thread, the copier's.
class LocalLane {
 public:
  using Done = device::Copier::Done;

  explicit LocalLane(device::Copier& copier) : copier_(copier) {}  // outlives this
  void receive(WorkerId receiver, std::uint64_t transfer, device::Place to, std::int64_t bytes, Done done);
  // A transfer that nobody waits for (any more) is ignored, its `sent` called all the same.
  void transmit(WorkerId receiver, std::uint64_t transfer, device::Place from, std::int64_t bytes, Done sent);
  // Ends a receive that its sender cannot serve.
  void refuse(WorkerId receiver, std::uint64_t transfer, const Error& why);
  // Ends the client's transfers, uncalled: when this returns no copy touches its memory any more. For good: ids of clients
  // are never used again.
  void forget(WorkerId client);

 private:
  struct Armed {
    device::Place to;
    std::int64_t bytes = 0;
    Done done;
  };

  device::Copier& copier_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Armed> armed_;
  std::set<WorkerId> gone_;
};

}  // namespace tilewise::worker
