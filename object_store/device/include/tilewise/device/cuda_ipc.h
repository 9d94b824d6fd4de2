// Reading and writing the slabs of other processes of this host: a peer sends Slab::ipc_handle over its control link,
// this process maps the slab once and then copies to and from it as from its own memory (lane cuda_ipc).
//
// A peer that dies while its memory is mapped can leave a sticky error in this process: see Device::health().
#pragma once
#include <tilewise/device/device.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tilewise::device {

// The slabs of other processes mapped into one CUDA device's context. Any thread.
class CudaPeers {
 public:
  explicit CudaPeers(Device& device);  // outlives this
  ~CudaPeers();                        // unmaps what is still mapped
  CudaPeers(const CudaPeers&) = delete;
  CudaPeers& operator=(const CudaPeers&) = delete;

  // The address of the peer's slab here; the same for the same handle, mapped on first use. `peer` is the peer's
  // incarnation. kInvalidArgument for a malformed handle; kOutOfRange where what it opens has fewer bytes; kDeviceError for one that
  // this process exported itself (the driver maps memory of other processes only) or that lies on an unreachable GPU.
  Result<std::byte*> open(std::uint64_t peer, const std::string& ipc_handle, std::int64_t bytes);
  // Unmaps all slabs of a peer. No step that uses them may be in flight.
  Status close(std::uint64_t peer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Lets kernels and copies of `from` reach slabs of `to`, a device of the same process. Without it copies between the
// two still work, staged by the driver. kUnsupported where the hardware has no path; nothing to do on one GPU.
Status enable_peer_access(Device& from, Device& to);

// How copies between two GPUs of one process go. kDirect: over a link of their own (NVLink), told by atomic operations that it
// carries and a bus does not. kNone: not without the host's memory; also of a GPU to itself.
enum class PeerLink : std::uint8_t { kNone, kBus, kDirect };
Result<PeerLink> peer_link(Device& from, Device& to);

}  // namespace tilewise::device
