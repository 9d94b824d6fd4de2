// Copies between memories of this process, whatever kinds of device they belong to.
#pragma once
#include <tilewise/device/device.h>

#include <functional>
#include <map>
#include <vector>

namespace tilewise::device {

struct Place {
  std::byte* data = nullptr;
  Kind kind = Kind::kHost;
};

// By the devices' copy streams, whose failures are its own to take: whoever enqueues copies there goes through it. Devices are
// destroyed before it: that waits for copies under way, whose memory `done` may own. One thread.
class Copier {
 public:
  using Done = std::function<void(const Status&)>;

  void add_device(Device* device) { devices_.push_back(device); }
  // Small copies between host memories are made here and now. `done` is called by poll(), or before this returns; both
  // memories stay valid until then. kDeviceError, kUnavailable without a device that can.
  void copy(Place to, Place from, std::int64_t bytes, Done done);
  // The same on a stream that the caller names, a device's for copies; both memories are in its reach.
  void copy_on(Stream& stream, std::byte* to, const std::byte* from, std::int64_t bytes, Done done);
  // Calls what has completed. True if anything had. Devices' on_progress() says when to look.
  bool poll();
  // Blocks until no copy touches memory any more; poll() calls their `done`.
  void drain();

 private:
  struct Pending {
    Stream* stream = nullptr;
    std::uint64_t sequence = 0;
    Done done;
    Status status;  // of a copy that was refused half-way: told when its other half has ended
  };
  Device* device_for(Place to, Place from) const;

  std::vector<Device*> devices_;
  std::vector<Pending> pending_;
  std::map<std::pair<Stream*, std::uint64_t>, Error> failed_;  // taken from their stream, not yet looked at
};

}  // namespace tilewise::device
