#include "cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace tilewise::cuda {
namespace {

struct HostCopy {
  void* to;
  const void* from;
  std::size_t bytes;
};

// Runs on a thread of the driver, in stream order; may not call CUDA.
void CUDA_CB run_host_copy(void* argument) {
  const std::unique_ptr<HostCopy> copy(static_cast<HostCopy*>(argument));
  std::memcpy(copy->to, copy->from, copy->bytes);
}

}  // namespace

Result<std::unique_ptr<CudaStream>> CudaStream::make(const Context& context, std::function<void()> on_record) {
  TW_TRY(context.make_current());
  CUstream stream = nullptr;
  // Non-blocking: never ordered behind the legacy default stream, which other libraries of the process may use.
  TW_CUDA_TRY(*context.driver, cuStreamCreate, "cuStreamCreate", &stream, CU_STREAM_NON_BLOCKING);
  void* pinned = nullptr;
  if (const CUresult code = context.driver->cuMemHostAlloc_(&pinned, sizeof(Shared), CU_MEMHOSTALLOC_PORTABLE);
      code != CUDA_SUCCESS) {
    context.driver->cuStreamDestroy_(stream);
    return cuda_error(*context.driver, code, "pinned memory of a stream");
  }
  return std::unique_ptr<CudaStream>(new CudaStream(context, stream, new (pinned) Shared{}, std::move(on_record)));
}

CudaStream::CudaStream(const Context& context, CUstream stream, Shared* shared, std::function<void()> on_record)
    : context_(context), driver_(*context.driver), stream_(stream), shared_(shared), on_record_(std::move(on_record)),
      ring_(std::make_unique<std::array<Slot, kRing>>()) {}

CudaStream::~CudaStream() {
  if (!context_.make_current()) return;
  for (Slot& slot : *ring_)
    if (slot.event != nullptr) driver_.cuEventDestroy_(slot.event);
  driver_.cuStreamDestroy_(stream_);
  driver_.cuMemFreeHost_(shared_);
}

Status CudaStream::enqueue(HostWork) {
  return error(Errc::kUnsupported, "a CUDA stream runs no host work; launch kernels on native()");
}

bool CudaStream::is_pageable(const void* data, bool& on_device) const {
  CUmemorytype type{};
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  const bool known = driver_.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS;
  on_device = known && type == CU_MEMORYTYPE_DEVICE;
  return !known;  // the driver has never heard of it
}

Status CudaStream::copy_pinned(void* to, const void* from, std::size_t bytes) {
  // Unified addressing: the driver tells host, device, peer and mapped memory apart by address.
  TW_CUDA_TRY(driver_, cuMemcpyAsync, "cuMemcpyAsync of " + std::to_string(bytes) + " bytes",
              reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  return {};
}

Status CudaStream::copy_by_host(void* to, const void* from, std::size_t bytes) {
  auto copy = std::make_unique<HostCopy>(HostCopy{to, from, bytes});
  TW_CUDA_TRY(driver_, cuLaunchHostFunc, "cuLaunchHostFunc", stream_, run_host_copy, copy.get());
  static_cast<void>(copy.release());  // the callback's now
  return {};
}

Status CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  TW_TRY(context_.make_current());
  bool to_device = false, from_device = false;
  const bool to_pageable = is_pageable(to, to_device), from_pageable = is_pageable(from, from_device);
  if (!to_pageable && !from_pageable) return copy_pinned(to, from, bytes);
  if (!to_device && !from_device) return copy_by_host(to, from, bytes);
  // Stream order alone keeps the pieces from overtaking each other in the one buffer.
  for (std::size_t done = 0; done < bytes; done += kStagingBytes) {
    const std::size_t piece = std::min(kStagingBytes, bytes - done);
    auto* const target = static_cast<std::byte*>(to) + done;
    const auto* const source = static_cast<const std::byte*>(from) + done;
    if (to_pageable) {
      TW_TRY(copy_pinned(shared_->staging, source, piece));
      TW_TRY(copy_by_host(target, shared_->staging, piece));
    } else {
      TW_TRY(copy_by_host(shared_->staging, source, piece));
      TW_TRY(copy_pinned(target, shared_->staging, piece));
    }
  }
  return {};
}

Status CudaStream::wait_for_host(Stream& other, std::uint64_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    TW_CUDA_TRY(driver_, cuStreamWaitValue64, "cuStreamWaitValue64", stream_,
                reinterpret_cast<CUdeviceptr>(&shared_->gate), host_waits_made_ + 1, CU_STREAM_WAIT_VALUE_GEQ);
    ++host_waits_made_;
    host_waits_.push_back({&other, sequence});
    host_waits_open_.store(host_waits_.size(), std::memory_order_release);
  }
  on_record_();
  return {};
}

void CudaStream::release_host_waits() {
  while (!host_waits_.empty() && host_waits_.front().other->completed() >= host_waits_.front().sequence) {
    host_waits_.pop_front();
    shared_->gate.store(host_waits_made_ - host_waits_.size(), std::memory_order_release);
  }
  host_waits_open_.store(host_waits_.size(), std::memory_order_release);
}

Status CudaStream::wait(Stream& other, std::uint64_t sequence) {
  if (other.completed() >= sequence) return {};
  TW_TRY(context_.make_current());
  if (other.kind() == device::Kind::kHost) return wait_for_host(other, sequence);
  auto& stream = static_cast<CudaStream&>(other);
  const std::lock_guard lock(stream.mutex_);  // the step cannot complete, so its event cannot be taken for another
  if (stream.completed() >= sequence) return {};
  if (sequence > stream.recorded_.load(std::memory_order_acquire))
    return error(Errc::kInvalidArgument, "wait for step " + std::to_string(sequence) + ", which is not recorded");
  const Slot& slot = (*stream.ring_)[sequence % kRing];
  if (slot.failed) return {};  // its failure is reported by the other stream
  TW_CUDA_TRY(driver_, cuStreamWaitEvent, "cuStreamWaitEvent", stream_, slot.event, CU_EVENT_WAIT_DEFAULT);
  return {};
}

std::uint64_t CudaStream::record() {
  const std::uint64_t sequence = recorded_.load(std::memory_order_relaxed) + 1;
  while (sequence > completed() + kRing) {
    static_cast<void>(poll());
    std::this_thread::yield();
  }
  Slot& slot = (*ring_)[sequence % kRing];
  const Status recorded = [&]() -> Status {
    TW_TRY(context_.make_current());
    if (slot.event == nullptr)
      TW_CUDA_TRY(driver_, cuEventCreate, "cuEventCreate", &slot.event, CU_EVENT_DISABLE_TIMING);
    TW_CUDA_TRY(driver_, cuEventRecord, "cuEventRecord", slot.event, stream_);
    return {};
  }();
  slot.failed = !recorded;
  if (slot.failed) {
    const std::lock_guard lock(mutex_);
    record_error_ = recorded.error();
  }
  recorded_.store(sequence, std::memory_order_release);
  on_record_();
  return sequence;
}

void CudaStream::take_failures(std::vector<device::StepFailure>& out) {
  const std::lock_guard lock(mutex_);
  out.insert(out.end(), std::make_move_iterator(failures_.begin()), std::make_move_iterator(failures_.end()));
  failures_.clear();
}

Status CudaStream::poll() {
  const std::lock_guard lock(mutex_);
  return poll_locked();
}

Status CudaStream::poll_locked() {
  release_host_waits();
  const std::uint64_t recorded = recorded_.load(std::memory_order_acquire);
  std::uint64_t done = completed();
  Status status;
  while (done < recorded) {
    const Slot& slot = (*ring_)[(done + 1) % kRing];
    if (slot.failed) {
      failures_.push_back({done + 1, record_error_});
    } else if (const CUresult code = driver_.cuEventQuery_(slot.event); code == CUDA_ERROR_NOT_READY) {
      break;
    } else if (code != CUDA_SUCCESS) {
      status = cuda_error(driver_, code, "a step on cuda:" + std::to_string(context_.ordinal));
      for (std::uint64_t step = done + 1; step <= recorded; ++step) failures_.push_back({step, status.error()});
      done = recorded;
      host_waits_.clear();
      host_waits_open_.store(0, std::memory_order_release);
      break;
    }
    ++done;
  }
  completed_.store(done, std::memory_order_release);
  return status;
}

Status CudaStream::synchronize() {
  TW_TRY(context_.make_current());
  TW_CUDA_TRY(driver_, cuStreamSynchronize, "cuStreamSynchronize on cuda:" + std::to_string(context_.ordinal),
              stream_);
  return {};
}

}  // namespace tilewise::cuda
