#include "cuda_stream.h"

#include <chrono>
#include <thread>

namespace tilewise::cuda {
namespace {

struct HostWait {
  device::Stream* other;
  std::uint64_t sequence;
};

// Runs on a thread of the driver; may not call CUDA. Polls briefly, then sleeps: the other side is a host step.
void CUDA_CB wait_for_host(void* argument) {
  const std::unique_ptr<HostWait> wait(static_cast<HostWait*>(argument));
  for (int round = 0; wait->other->completed() < wait->sequence; ++round)
    if (round > 100) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

Result<std::unique_ptr<CudaStream>> CudaStream::make(const Context& context, std::function<void()> on_record) {
  TW_TRY(context.make_current());
  CUstream stream = nullptr;
  // Non-blocking: never ordered behind the legacy default stream, which other libraries of the process may use.
  TW_CUDA_TRY(*context.driver, cuStreamCreate, "cuStreamCreate", &stream, CU_STREAM_NON_BLOCKING);
  return std::unique_ptr<CudaStream>(new CudaStream(context, stream, std::move(on_record)));
}

CudaStream::CudaStream(const Context& context, CUstream stream, std::function<void()> on_record)
    : context_(context), driver_(*context.driver), stream_(stream), on_record_(std::move(on_record)),
      ring_(std::make_unique<std::array<Slot, kRing>>()) {}

CudaStream::~CudaStream() {
  if (!context_.make_current()) return;
  for (Slot& slot : *ring_)
    if (slot.event != nullptr) driver_.cuEventDestroy_(slot.event);
  driver_.cuStreamDestroy_(stream_);
}

Status CudaStream::enqueue(HostWork) {
  return error(Errc::kUnsupported, "a CUDA stream runs no host work; launch kernels on native()");
}

Status CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  TW_TRY(context_.make_current());
  // Unified addressing: the driver tells host, device, peer and mapped memory apart by address.
  TW_CUDA_TRY(driver_, cuMemcpyAsync, "cuMemcpyAsync of " + std::to_string(bytes) + " bytes",
              reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  return {};
}

Status CudaStream::wait(Stream& other, std::uint64_t sequence) {
  if (other.completed() >= sequence) return {};
  TW_TRY(context_.make_current());
  if (other.kind() == device::Kind::kHost) {
    auto wait = std::make_unique<HostWait>(HostWait{&other, sequence});
    TW_CUDA_TRY(driver_, cuLaunchHostFunc, "cuLaunchHostFunc", stream_, wait_for_host, wait.get());
    static_cast<void>(wait.release());  // the callback's now
    return {};
  }
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
