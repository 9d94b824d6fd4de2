#include "probe_memory.h"

#include <tilewise/device/cuda.h>
#include <tilewise/msg/msg.h>

#include <cstring>
#include <new>

namespace tilewise::worker {
namespace {
constexpr TimeNs kRestNs = 1 * kSecond;
constexpr std::align_val_t kPage{4096};
}  // namespace

// Written once: pages that were only ever read are one page of zeros, which is faster than memory.
Result<ProbeMemory::Bytes> ProbeMemory::on_host() {
  auto* bytes = static_cast<std::byte*>(
      ::operator new(static_cast<std::size_t>(msg::kMaxProbeBytes), kPage, std::nothrow));
  if (bytes == nullptr)
    return error(Errc::kOutOfMemory,
                 "no " + std::to_string(msg::kMaxProbeBytes) + " bytes to measure a link with");
  std::memset(bytes, 0x5a, static_cast<std::size_t>(msg::kMaxProbeBytes));
  return Bytes(bytes, [](std::byte* memory) { ::operator delete(memory, kPage); });
}

Result<device::Slab> ProbeMemory::on_gpu(device::Device& device) {
  auto found = gpus_.find(&device);
  if (found == gpus_.end()) {
    TW_ASSIGN(device::Slab slab, device::add_cuda_memory(device, 2 * msg::kMaxProbeBytes));
    found = gpus_.emplace(&device, std::move(slab)).first;
  }
  return found->second;
}

Result<ProbeMemory::Bytes> ProbeMemory::get(device::Device& device, Way way, TimeNs now) {
  if (device.info().kind == device::Kind::kCuda) {
    TW_ASSIGN(const device::Slab slab, on_gpu(device));
    std::byte* at = slab.data + (way == Way::kSend ? 0 : msg::kMaxProbeBytes);
    return Bytes(at, [](std::byte*) {});  // the device's
  }
  used_at_ = now;
  Bytes& bytes = host_[static_cast<std::size_t>(way)];
  if (bytes == nullptr) {
    TW_ASSIGN(bytes, on_host());
  }
  return bytes;
}

void ProbeMemory::rest(TimeNs now) {
  if (now < next_deadline()) return;
  for (Bytes& bytes : host_) bytes.reset();
}

TimeNs ProbeMemory::next_deadline() const {
  const bool any = host_[0] != nullptr || host_[1] != nullptr;
  return any ? used_at_ + kRestNs : TimeNs{1} << 62;
}

}  // namespace tilewise::worker
