#include <tilewise/cuda/driver.h>
#include <tilewise/device/cuda_ipc.h>

#include <cstring>
#include <map>
#include <mutex>

namespace tilewise::device {

struct CudaPeers::State {
  Result<const cuda::Context*> context;
  std::mutex mutex;
  // Each handle may be opened once per context; the key is ordered by peer, so that close() takes a range.
  struct Slab {
    std::byte* address = nullptr;
    std::size_t bytes = SIZE_MAX;  // as far as the driver says
  };
  std::map<std::pair<std::uint64_t, std::string>, Slab> mapped;
};

CudaPeers::CudaPeers(Device& device) : state_(new State{cuda::context_of(device), {}, {}}) {}

CudaPeers::~CudaPeers() {
  if (!state_->context || !(*state_->context)->make_current()) return;
  for (const auto& [key, slab] : state_->mapped)
    (*state_->context)->driver->cuIpcCloseMemHandle_(reinterpret_cast<CUdeviceptr>(slab.address));
}

Result<std::byte*> CudaPeers::open(std::uint64_t peer, const std::string& ipc_handle, std::int64_t bytes) {
  if (!state_->context) return state_->context.error();
  CUipcMemHandle handle;
  if (ipc_handle.size() != sizeof handle)
    return error(Errc::kInvalidArgument,
                 "a CUDA IPC handle of " + std::to_string(ipc_handle.size()) + " bytes");
  std::memcpy(&handle, ipc_handle.data(), sizeof handle);
  const std::lock_guard lock(state_->mutex);
  const std::pair key(peer, ipc_handle);
  auto slab = state_->mapped.find(key);
  if (slab == state_->mapped.end()) {
    const cuda::Context& context = **state_->context;
    TW_TRY(context.make_current());
    CUdeviceptr pointer = 0, base = 0;
    TW_CUDA_TRY(*context.driver, cuIpcOpenMemHandle, "cuIpcOpenMemHandle of a peer's slab", &pointer, handle,
                CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    State::Slab opened{.address = reinterpret_cast<std::byte*>(pointer)};
    // A driver that does not know what it has opened says nothing against it.
    std::size_t there = 0;
    if (context.driver->cuMemGetAddressRange_(&base, &there, pointer) == CUDA_SUCCESS)
      opened.bytes = there - (pointer - base);
    slab = state_->mapped.emplace(key, opened).first;
  }
  if (bytes < 0 || static_cast<std::size_t>(bytes) > slab->second.bytes)
    return error(Errc::kOutOfRange, "a peer's slab of " + std::to_string(bytes) + " bytes has " +
                                        std::to_string(slab->second.bytes));
  return slab->second.address;
}

Status CudaPeers::close(std::uint64_t peer) {
  if (!state_->context) return state_->context.error();
  const cuda::Context& context = **state_->context;
  TW_TRY(context.make_current());
  const std::lock_guard lock(state_->mutex);
  Status status;
  auto it = state_->mapped.lower_bound({peer, std::string()});
  while (it != state_->mapped.end() && it->first.first == peer) {
    const CUresult code =
        context.driver->cuIpcCloseMemHandle_(reinterpret_cast<CUdeviceptr>(it->second.address));
    if (code != CUDA_SUCCESS) status = cuda::cuda_error(*context.driver, code, "cuIpcCloseMemHandle");
    it = state_->mapped.erase(it);
  }
  return status;
}

Status enable_peer_access(Device& from, Device& to) {
  TW_ASSIGN(const cuda::Context* const source, cuda::context_of(from));
  TW_ASSIGN(const cuda::Context* const target, cuda::context_of(to));
  if (source->device == target->device) return {};
  const cuda::Driver& driver = *source->driver;
  int possible = 0;
  TW_CUDA_TRY(driver, cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", &possible, source->device,
              target->device);
  if (possible == 0)
    return error(Errc::kUnsupported, from.info().name + " cannot reach the memory of " + to.info().name);
  TW_TRY(source->make_current());
  const CUresult code = driver.cuCtxEnablePeerAccess_(target->context, 0);
  if (code == CUDA_SUCCESS || code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return {};
  return cuda::cuda_error(driver, code, "cuCtxEnablePeerAccess");
}

Result<PeerLink> peer_link(Device& from, Device& to) {
  TW_ASSIGN(const cuda::Context* const source, cuda::context_of(from));
  TW_ASSIGN(const cuda::Context* const target, cuda::context_of(to));
  if (source->device == target->device) return PeerLink::kNone;
  const cuda::Driver& driver = *source->driver;
  int possible = 0, atomics = 0;
  TW_CUDA_TRY(driver, cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", &possible, source->device,
              target->device);
  if (possible == 0) return PeerLink::kNone;
  TW_CUDA_TRY(driver, cuDeviceGetP2PAttribute, "cuDeviceGetP2PAttribute", &atomics,
              CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, source->device, target->device);
  return atomics != 0 ? PeerLink::kDirect : PeerLink::kBus;
}

}  // namespace tilewise::device
