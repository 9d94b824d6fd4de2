// A GPU as a Device: its primary context, an arena of plain allocations, streams, a thread that polls, and one for host tasks.
#pragma once
#include <tilewise/device/cuda.h>

#include <thread>

#include "cuda_stream.h"

namespace tilewise::cuda {

// The poller sleeps while nothing is enqueued; while the GPU works it asks for
// the oldest open event of each stream after 5 us, then at intervals of an eighth of the time since the last progress,
// at most 200 us: steps are noticed within 12.5 % of their length, at a few percent of a core. (Driver callbacks per
// step would delay the stream itself; one blocking wait cannot watch several streams.)
class CudaDevice final : public device::Device {
 public:
  static Result<std::unique_ptr<device::Device>> make(const device::CudaOptions& options);
  ~CudaDevice() override;

  const device::Info& info() const override { return info_; }
  // Slabs are plain cuMemAlloc memory: pool and virtual-memory allocations silently lose the cuda_ipc lane.
  Result<device::Slab> add_slab(std::int64_t bytes) override;
  // Outside what the arena may grow to.
  Result<device::Slab> add_beside(std::int64_t bytes);
  device::Stream& compute_stream(int i) override;
  device::Stream& copy_stream() override { return own_stream(0); }
  device::Stream& spill_stream() override { return own_stream(1); }
  device::Stream& return_stream() override { return own_stream(2); }
  void on_progress(std::function<void()> notify) override;
  Status health() const override;
  void synchronize() override;

  const Context& context() const { return context_; }

 private:
  CudaDevice(const Context& context, device::Info info) : context_(context), info_(std::move(info)) {}
  Status open_streams();
  std::string handle_of(CUdeviceptr address) const;
  void run_poller();
  device::Stream& own_stream(int i) { return *streams_[static_cast<std::size_t>(info_.compute_streams + i)]; }
  bool poll_streams();
  bool poll_all();                    // true if a step completed; tells who asked for that
  void report(const Status& status);  // the first failure is the device's, and is told
  Error own_error(CUresult code);  // of an allocation that was refused, maybe because the context is broken

  Context context_;
  device::Info info_;
  std::vector<device::Slab> slabs_;
  std::int64_t slab_bytes_ = 0;
  std::vector<CUdeviceptr> beside_;
  std::vector<std::unique_ptr<CudaStream>> streams_;  // compute streams, then those for copies
  std::mutex poll_mutex_;
  std::uint64_t notified_ = 0;  // poller only: completed steps of all streams, as last notified
  std::mutex notify_mutex_;
  std::function<void()> notify_;
  mutable std::mutex health_mutex_;
  Status health_;
  std::atomic<bool> broken_{false};     // health_ is an error
  std::atomic<std::uint32_t> work_{0};  // bumped by each record(); the parked poller waits on it
  std::atomic<bool> stopping_{false};
  std::thread poller_;
  std::unique_ptr<HostThread> host_thread_;
};

}  // namespace tilewise::cuda
