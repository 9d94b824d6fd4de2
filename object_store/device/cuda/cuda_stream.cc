#include "cuda_stream.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

namespace tilewise::cuda {
namespace {

Error error_of(const DataFault& fault) {
  char text[256];
  const auto* const format = reinterpret_cast<const char*>(fault.format);
  std::snprintf(text, sizeof text, format, static_cast<long long>(fault.value[0]),
                static_cast<long long>(fault.value[1]), static_cast<long long>(fault.value[2]));
  return error(static_cast<Errc>(fault.code), text);
}

}  // namespace

DataFault* data_fault_of(device::Stream& stream) {
  return static_cast<CudaStream&>(stream).fault_of_next_step();
}

Result<std::unique_ptr<CudaStream>> CudaStream::make(const Context& context, Wakes wakes) {
  TW_TRY(context.make_current());
  const Driver& driver = *context.driver;
  CUstream stream = nullptr;
  // Non-blocking: never ordered behind the legacy default stream, which other libraries of the process may use.
  TW_CUDA_TRY(driver, cuStreamCreate, "cuStreamCreate", &stream, CU_STREAM_NON_BLOCKING);
  const auto words = pinned(driver, sizeof(HostTaskWords));
  const auto faults = words ? pinned(driver, sizeof(Faults)) : words;
  if (!faults) {
    if (words) driver.cuMemFreeHost_(*words);
    driver.cuStreamDestroy_(stream);
    return faults.error();
  }
  return std::unique_ptr<CudaStream>(new CudaStream(context, stream, new (*words) HostTaskWords{},
                                                    new (*faults) Faults{}, std::move(wakes)));
}

Result<void*> CudaStream::pinned(const Driver& driver, std::size_t bytes) {
  void* memory = nullptr;
  TW_CUDA_TRY(driver, cuMemHostAlloc, "pinned memory of a stream", &memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
  return memory;
}

CudaStream::CudaStream(const Context& context, CUstream stream, HostTaskWords* words, Faults* faults,
                       Wakes wakes)
    : context_(context),
      driver_(*context.driver),
      stream_(stream),
      words_(words),
      faults_(faults),
      host_tasks_(words),
      wakes_(std::move(wakes)),
      ring_(std::make_unique<std::array<Slot, kRing>>()) {}

CudaStream::~CudaStream() {
  if (!context_.make_current()) return;
  for (Slot& slot : *ring_)
    if (slot.event != nullptr) driver_.cuEventDestroy_(slot.event);
  driver_.cuStreamDestroy_(stream_);
  driver_.cuMemFreeHost_(words_);
  driver_.cuMemFreeHost_(faults_);
}

Status CudaStream::enqueue(HostWork) {
  return error(Errc::kUnsupported, "a CUDA stream runs no host work; launch kernels on native()");
}

bool CudaStream::is_pageable(const void* data) const {
  CUmemorytype type{};
  // Fails for memory that the driver has never heard of.
  return driver_.cuPointerGetAttribute_(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        reinterpret_cast<CUdeviceptr>(data)) != CUDA_SUCCESS;
}

Status CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  TW_TRY(context_.make_current());
  if (is_pageable(to) || is_pageable(from))
    return copy_pageable(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  return copy_now(to, from, bytes);
}

Status CudaStream::copy_now(void* to, const void* from, std::size_t bytes) {
  // Unified addressing: the driver tells host, device, peer and mapped memory apart by address.
  TW_CUDA_TRY(driver_, cuMemcpyAsync, "cuMemcpyAsync of " + std::to_string(bytes) + " bytes",
              reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  return {};
}

// Through the pinned staging buffer, a piece at a time. Host memory of both kinds on both sides goes this way too.
Status CudaStream::copy_pageable(std::byte* to, const std::byte* from, std::size_t bytes) {
  const bool to_pageable = is_pageable(to), from_pageable = is_pageable(from);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(HostTaskWords::kStagingBytes, bytes - done);
    std::byte* staged = words_->staging;
    if (from_pageable) {
      staged = host_tasks_.join_move(from + done, piece);
      if (staged == nullptr) {
        staged = words_->staging;
        TW_TRY(stop_for(host_tasks_.add_move(staged, from + done, piece)));
      }
    } else {
      TW_TRY(copy_now(staged, from + done, piece));
    }
    if (to_pageable) {
      TW_TRY(stop_for(host_tasks_.add_move(to + done, staged, piece)));
    } else {
      TW_TRY(copy_now(to + done, staged, piece));
    }
    done += piece;
  }
  return {};
}

Status CudaStream::call(std::function<void()> fn) {
  TW_TRY(context_.make_current());
  return stop_for(host_tasks_.add_call(std::move(fn)));
}

Status CudaStream::stop_for(HostTasks::Ticket ticket) {
  if (ticket.arrival != 0)
    TW_CUDA_TRY(driver_, cuStreamWriteValue64, "cuStreamWriteValue64", stream_,
                reinterpret_cast<CUdeviceptr>(&words_->arrived), ticket.arrival,
                CU_STREAM_WRITE_VALUE_DEFAULT);
  TW_CUDA_TRY(driver_, cuStreamWaitValue64, "cuStreamWaitValue64", stream_,
              reinterpret_cast<CUdeviceptr>(&words_->released), ticket.release, CU_STREAM_WAIT_VALUE_GEQ);
  wakes_.host_thread();
  return {};
}

Status CudaStream::wait(Stream& other, std::uint64_t sequence) {
  if (other.completed() >= sequence) return {};
  TW_TRY(context_.make_current());
  if (other.kind() == device::Kind::kHost) return stop_for(host_tasks_.add_wait(other, sequence));
  host_tasks_.close();
  auto& stream = static_cast<CudaStream&>(other);
  const std::lock_guard lock(
      stream.mutex_);  // the step cannot complete, so its event cannot be taken for another
  if (stream.completed() >= sequence) return {};
  if (sequence > stream.recorded_.load(std::memory_order_acquire))
    return error(Errc::kInvalidArgument,
                 "wait for step " + std::to_string(sequence) + ", which is not recorded");
  Slot& slot = (*stream.ring_)[sequence % kRing];
  if (slot.failed &&
      !slot.late) {  // the other stream reports that it failed; its work and all before it may go on
    TW_TRY(stream.record_anew(slot));
    slot.late = true;
    TW_TRY(context_.make_current());
  }
  TW_CUDA_TRY(driver_, cuStreamWaitEvent, "cuStreamWaitEvent", stream_, slot.event, CU_EVENT_WAIT_DEFAULT);
  return {};
}

std::uint64_t CudaStream::record() {
  const std::uint64_t sequence = recorded_.load(std::memory_order_relaxed) + 1;
  // Only the poller may say what is over: it looks at the other streams too.
  while (sequence > completed() + kRing) std::this_thread::yield();
  Slot& slot = (*ring_)[sequence % kRing];
  const Status recorded = record_anew(slot);
  slot.failed = !recorded;
  slot.late = false;
  if (slot.failed) {
    // Told before anybody can take the failure of a step that this is why it was refused.
    if (const Status ok = ask(); !ok) wakes_.broken(ok);
    const std::lock_guard lock(mutex_);
    record_error_ = recorded.error();
  }
  recorded_.store(sequence, std::memory_order_release);
  wakes_.poller();
  return sequence;
}

// Behind all that is in the stream now.
Status CudaStream::record_anew(Slot& slot) {
  TW_TRY(context_.make_current());
  if (slot.event == nullptr)
    TW_CUDA_TRY(driver_, cuEventCreate, "cuEventCreate", &slot.event, CU_EVENT_DISABLE_TIMING);
  TW_CUDA_TRY(driver_, cuEventRecord, "cuEventRecord", slot.event, stream_);
  return {};
}

void CudaStream::take_failures(std::vector<device::StepFailure>& out) {
  const std::lock_guard lock(mutex_);
  out.insert(out.end(), std::make_move_iterator(failures_.begin()), std::make_move_iterator(failures_.end()));
  failures_.clear();
}

bool CudaStream::poll(std::span<const std::unique_ptr<CudaStream>> streams) {
  bool any = false;
  for (const auto& stream : streams) any |= !stream->idle() && stream->look(true);
  if (!any) return false;
  for (const auto& stream : streams)
    if (!stream->idle()) stream->look(false);
  for (const auto& stream : streams) stream->publish();
  return true;
}

// Finds steps that are over, and collects their failures. The first look finds what is to be published.
bool CudaStream::look(bool first) {
  const std::lock_guard lock(mutex_);
  advance();
  if (first) found_ = passed_;
  return found_ != completed();
}

void CudaStream::publish() {
  const std::lock_guard lock(mutex_);
  completed_.store(found_, std::memory_order_release);
}

// Of a step without an event: it is over when the next one that has an event is, when what was recorded for somebody who
// waits for it has passed, or nothing is left to do. CUDA_ERROR_NOT_READY until then: its kernels and copies run all the same,
// and what they touch must not be given to others.
CUresult CudaStream::query_past(std::uint64_t sequence, std::uint64_t recorded) const {
  for (std::uint64_t later = sequence; later <= recorded; ++later) {
    const Slot& slot = (*ring_)[later % kRing];
    if (slot.failed && !slot.late) continue;
    const CUresult code = driver_.cuEventQuery_(slot.event);
    if (code != CUDA_ERROR_NOT_READY || !slot.failed) return code;
  }
  return driver_.cuStreamQuery_(stream_);
}

// A query that fails is of the context, whatever the code: nothing else is asked for. And a stream that cannot be asked may
// still use memory, which so can be given to nobody.
void CudaStream::advance() {
  const std::uint64_t recorded = recorded_.load(std::memory_order_acquire);
  for (; passed_ < recorded; ++passed_) {
    const std::uint64_t step = passed_ + 1;
    const Slot& slot = (*ring_)[step % kRing];
    const CUresult code = slot.failed ? query_past(step, recorded) : driver_.cuEventQuery_(slot.event);
    if (code == CUDA_ERROR_NOT_READY) break;
    if (code != CUDA_SUCCESS) {
      const Status why = broken(code);
      wakes_.broken(why);  // before its steps' failures can be taken
      for (; passed_ < recorded; ++passed_) failures_.push_back({passed_ + 1, why.error()});
      host_tasks_.abandon();
      return;
    }
    // What is wrong with the data says more than that there was no event.
    if (DataFault& fault = (*faults_)[step % faults_->size()]; fault.code != 0) {
      failures_.push_back({step, error_of(fault)});
      fault.code = 0;
    } else if (slot.failed) {
      failures_.push_back({step, record_error_});
    }
  }
}

Status CudaStream::ask() const {
  TW_TRY(context_.make_current());
  const CUresult code = driver_.cuStreamQuery_(stream_);
  return code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY ? Status{} : broken(code);
}

Status CudaStream::broken(CUresult code) const {
  return cuda_error(driver_, code, "cuda:" + std::to_string(context_.ordinal) + " is broken");
}

Status CudaStream::synchronize() {
  TW_TRY(context_.make_current());
  TW_CUDA_TRY(driver_, cuStreamSynchronize, "cuStreamSynchronize on cuda:" + std::to_string(context_.ordinal),
              stream_);
  return {};
}

}  // namespace tilewise::cuda
