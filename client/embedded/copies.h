// The copying lane inside one process: a receive waits for its transmit, bytes go through a device's copy stream.
#pragma once
#include <tilewise/device/device.h>
#include <tilewise/msg/msg.h>

#include <functional>
#include <map>
#include <vector>

namespace tilewise::embedded {

// One thread.
class Copies {
 public:
  struct Place {
    std::byte* data = nullptr;
    device::Kind kind = device::Kind::kHost;
  };
  using Done = std::function<void(Status)>;

  void add_device(device::Device* device) { devices_.push_back(device); }
  void receive(WorkerId receiver, std::uint64_t transfer, Place to, std::int64_t bytes, Done done);
  // A transfer that nobody waits for (any more) is ignored, its `sent` called all the same.
  void transmit(WorkerId receiver, std::uint64_t transfer, Place from, std::int64_t bytes, Done sent);
  // Calls what has completed. True if anything had.
  bool poll();
  // Drops its receives uncalled; when this returns no copy touches its memory any more. May wait for copies in flight.
  void forget(WorkerId client);

 private:
  struct Armed {
    Place to;
    std::int64_t bytes = 0;
    Done done;
  };
  struct Pending {
    device::Stream* stream = nullptr;
    std::uint64_t sequence = 0;
    WorkerId receiver;
    Done received, sent;
  };
  device::Stream* stream_for(Place from, Place to, std::int64_t bytes);

  std::vector<device::Device*> devices_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Armed> armed_;
  std::vector<Pending> pending_;
  std::map<std::pair<device::Stream*, std::uint64_t>, Error>
      failed_;  // taken from their stream, not yet looked at
};

}  // namespace tilewise::embedded
