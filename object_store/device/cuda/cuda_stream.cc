#include "cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace tilewise::cuda {

Result<std::unique_ptr<CudaStream>> CudaStream::make(const Context& context, std::function<void()> on_record) {
  TW_TRY(context.make_current());
  const Driver& driver = *context.driver;
  CUstream stream = nullptr, helper = nullptr;
  void* words = nullptr;
  const auto open = [&]() -> Status {
    // Non-blocking: never ordered behind the legacy default stream, which other libraries of the process may use.
    TW_CUDA_TRY(driver, cuStreamCreate, "cuStreamCreate", &stream, CU_STREAM_NON_BLOCKING);
    TW_CUDA_TRY(driver, cuStreamCreate, "cuStreamCreate", &helper, CU_STREAM_NON_BLOCKING);
    TW_CUDA_TRY(driver, cuMemHostAlloc, "pinned memory of a stream", &words, sizeof(Words), CU_MEMHOSTALLOC_PORTABLE);
    return {};
  }();
  if (open)
    return std::unique_ptr<CudaStream>(new CudaStream(context, stream, helper, new (words) Words{}, std::move(on_record)));
  if (stream != nullptr) driver.cuStreamDestroy_(stream);
  if (helper != nullptr) driver.cuStreamDestroy_(helper);
  return open.error();
}

CudaStream::CudaStream(const Context& context, CUstream stream, CUstream helper, Words* words,
                       std::function<void()> on_record)
    : context_(context), driver_(*context.driver), stream_(stream), helper_(helper), words_(words),
      on_record_(std::move(on_record)), ring_(std::make_unique<std::array<Slot, kRing>>()) {}

CudaStream::~CudaStream() {
  if (!context_.make_current()) return;
  for (Slot& slot : *ring_)
    if (slot.event != nullptr) driver_.cuEventDestroy_(slot.event);
  driver_.cuStreamDestroy_(stream_);
  driver_.cuStreamDestroy_(helper_);
  driver_.cuMemFreeHost_(words_);
}

Status CudaStream::enqueue(HostWork) {
  return error(Errc::kUnsupported, "a CUDA stream runs no host work; launch kernels on native()");
}

bool CudaStream::is_pageable(const void* data) const {
  CUmemorytype type{};
  // Fails for memory that the driver has never heard of.
  return driver_.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(data)) !=
         CUDA_SUCCESS;
}

Status CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  TW_TRY(context_.make_current());
  if (is_pageable(to) || is_pageable(from))
    return add_host_task({.step = recorded_.load(std::memory_order_relaxed) + 1, .to = static_cast<std::byte*>(to),
                          .from = static_cast<const std::byte*>(from), .bytes = bytes});
  // Unified addressing: the driver tells host, device, peer and mapped memory apart by address.
  TW_CUDA_TRY(driver_, cuMemcpyAsync, "cuMemcpyAsync of " + std::to_string(bytes) + " bytes",
              reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  return {};
}

Status CudaStream::add_host_task(const HostTask& task) {
  {
    const std::lock_guard lock(mutex_);
    HostTask added = task;
    if (added.other == nullptr) {
      added.sequence = arrivals_made_ + 1;
      TW_CUDA_TRY(driver_, cuStreamWriteValue64, "cuStreamWriteValue64", stream_,
                  reinterpret_cast<CUdeviceptr>(&words_->arrived), added.sequence, CU_STREAM_WRITE_VALUE_DEFAULT);
      ++arrivals_made_;
    }
    TW_CUDA_TRY(driver_, cuStreamWaitValue64, "cuStreamWaitValue64", stream_,
                reinterpret_cast<CUdeviceptr>(&words_->released), host_tasks_made_ + 1, CU_STREAM_WAIT_VALUE_GEQ);
    ++host_tasks_made_;
    host_tasks_.push_back(added);
    host_tasks_open_.store(host_tasks_.size(), std::memory_order_release);
  }
  on_record_();
  return {};
}

Status CudaStream::copy_piece(HostTask& task) {
  const std::size_t piece = std::min(kPieceBytes, task.bytes - task.done);
  const auto to = reinterpret_cast<CUdeviceptr>(task.to + task.done);
  const auto from = reinterpret_cast<CUdeviceptr>(task.from + task.done);
  task.done += piece;
  TW_CUDA_TRY(driver_, cuMemcpyAsync, "a copy from or to pageable memory", to, from, piece, helper_);
  TW_CUDA_TRY(driver_, cuStreamSynchronize, "a copy from or to pageable memory", helper_);
  return {};
}

// One piece at most, so that completions are not noticed late.
void CudaStream::run_host_tasks() {
  while (!host_tasks_.empty()) {
    HostTask& task = host_tasks_.front();
    const std::uint64_t reached =
        task.other != nullptr ? task.other->completed() : words_->arrived.load(std::memory_order_acquire);
    if (reached < task.sequence) return;
    ++host_progress_;
    const bool copies = task.other == nullptr;
    if (copies) {
      if (const Status copied = copy_piece(task); !copied) {
        failures_.push_back({task.step, copied.error()});
        task.done = task.bytes;
      }
      if (task.done < task.bytes) return;
    }
    host_tasks_.pop_front();
    words_->released.store(host_tasks_made_ - host_tasks_.size(), std::memory_order_release);
    host_tasks_open_.store(host_tasks_.size(), std::memory_order_release);
    if (copies) return;
  }
}

Status CudaStream::wait(Stream& other, std::uint64_t sequence) {
  if (other.completed() >= sequence) return {};
  TW_TRY(context_.make_current());
  if (other.kind() == device::Kind::kHost) return add_host_task({.other = &other, .sequence = sequence});
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
  run_host_tasks();
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
      host_tasks_.clear();
      host_tasks_open_.store(0, std::memory_order_release);
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
