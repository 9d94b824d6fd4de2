// Slabs of other processes' GPUs, opened on ours.
#pragma once
#include <tilewise/device/cuda_ipc.h>
#include <tilewise/msg/msg.h>

#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

namespace tilewise::worker {

// One thread. Devices are known by their position; they outlive this, and nothing reads what it opened when it ends.
class PeerSlabs {
 public:
  // Once for each slab and device. device::CudaPeers' errors; kOutOfRange: the slab that was opened is smaller than it should be.
  Status open(WorkerId peer, const msg::SlabDesc& slab, std::size_t position, device::Device& device);
  // For what runs on that device, or null.
  std::byte* address(DeviceId of, std::uint32_t slab, std::size_t position) const;
  // A copy from there that goes on.
  void use(WorkerId peer) { ++used_[peer]; }
  void unuse(WorkerId peer) { --used_[peer]; }

  // Its slabs are closed when no copy from there goes on and all streams have come to their marks, which settle() sets at its first
  // call after this.
  struct Mark {
    const device::Stream* stream = nullptr;
    std::uint64_t sequence = 0;
    bool passed() const { return stream->completed() >= sequence; }
  };
  void lose(WorkerId peer);
  bool any_lost() const { return !lost_.empty(); }
  void settle(std::span<const Mark> marks);

 private:
  struct Lost {
    std::vector<Mark> marks;
    bool marked = false;
  };
  std::map<std::size_t, std::unique_ptr<device::CudaPeers>> opened_;  // by position
  std::map<std::tuple<DeviceId, std::uint32_t, std::size_t>, std::pair<WorkerId, std::byte*>> addresses_;
  std::map<WorkerId, int> used_;
  std::map<WorkerId, Lost> lost_;
};

}  // namespace tilewise::worker
