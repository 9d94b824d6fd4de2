// The CUDA module of a build without a toolkit.
#include <tilewise/device/cuda.h>
#include <tilewise/device/cuda_ipc.h>
#include <tilewise/device/cuda_pinned.h>

namespace tilewise::device {
namespace {
constexpr const char* kReason = "this build has no CUDA module (no cuda.h was found when it was configured)";
}

int cuda_device_count() { return 0; }
std::string cuda_unavailable_reason() { return kReason; }
Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions&) {
  return error(Errc::kUnavailable, kReason);
}

Result<Slab> add_cuda_memory(Device&, std::int64_t) { return error(Errc::kUnavailable, kReason); }

struct CudaPeers::State {};
CudaPeers::CudaPeers(Device&) {}
CudaPeers::~CudaPeers() = default;
Result<std::byte*> CudaPeers::open(std::uint64_t, const std::string&, std::int64_t) {
  return error(Errc::kUnavailable, kReason);
}
Status CudaPeers::close(std::uint64_t) { return {}; }
Status enable_peer_access(Device&, Device&) { return error(Errc::kUnavailable, kReason); }
Result<PeerLink> peer_link(Device&, Device&) { return error(Errc::kUnavailable, kReason); }

PinnedBuffer::~PinnedBuffer() = default;
Result<std::unique_ptr<PinnedBuffer>> PinnedBuffer::make(Device&, std::size_t) {
  return error(Errc::kUnavailable, kReason);
}
Status pin_host_memory(Device&, void*, std::size_t) { return error(Errc::kUnavailable, kReason); }
Status unpin_host_memory(Device&, void*) { return error(Errc::kUnavailable, kReason); }

}  // namespace tilewise::device
