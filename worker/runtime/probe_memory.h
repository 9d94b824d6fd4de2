// Memory for measurements of links: outside the devices' arenas, so that nothing that reckons with memory sees it.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/device/device.h>

#include <cstddef>
#include <map>
#include <memory>

namespace tilewise::worker {

// One thread. Bytes that are sent from one place and received at another mean nothing to anybody.
class ProbeMemory {
 public:
  enum class Way : std::uint8_t { kSend, kReceive };
  using Bytes =
      std::shared_ptr<std::byte>;  // whoever hands them to a transport keeps this until that has let go

  // msg::kMaxProbeBytes of the device's kind, the same again and again. A host device's go some time after their last use,
  // a GPU's stay with it. kOutOfMemory.
  Result<Bytes> get(device::Device& device, Way way, TimeNs now);
  // What get() gives parts of: what is sent first, then room for what is received.
  Result<device::Slab> on_gpu(device::Device& device);
  // Frees what has not been asked for in the last second.
  void rest(TimeNs now);
  TimeNs next_deadline() const;  // of rest()

 private:
  static Result<Bytes> on_host();

  Bytes host_[2];  // by Way; of all host devices
  TimeNs used_at_ = 0;
  std::map<const device::Device*, device::Slab> gpus_;
};

}  // namespace tilewise::worker
