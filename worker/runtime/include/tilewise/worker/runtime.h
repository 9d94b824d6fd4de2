// The shell around a worker core: owns devices and kernels, turns actions into launches and messages, and completions
// back into events. Everything runs on one thread, the one that calls pump(); post() alone may be called from any.
#pragma once
#include <tilewise/device/copier.h>
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin.h>
#include <tilewise/worker/core.h>
#include <tilewise/worker/data_service.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tilewise::worker {

struct ResolvedStep;

struct RuntimeOptions {
  std::int64_t slab_bytes = 256 << 20;
  bool map_peers = true;
  bool reference_kernels = false;  // slow and plain, for comparison
};

class Runtime {
 public:
  // `wake` is called from any thread when pump() has something to do. `plugins` outlives the runtime; may be null. The
  // devices are added to `copier`, which outlives it too and which the caller polls as well.
  Runtime(std::vector<std::unique_ptr<device::Device>> devices, const kernels::PluginTable* plugins,
          RuntimeOptions options, device::Copier& copier, std::function<void()> wake);
  ~Runtime();

  std::vector<msg::DeviceDesc> describe() const;
  // After the scheduler's welcome; ids in the order of describe(). `service` and `to_scheduler` outlive the runtime.
  Status start(const msg::Welcome& welcome, DataService& service,
               std::function<void(msg::Message)> to_scheduler);

  void post(Event event);
  // Events in, core step, actions out. True when anything was done. Does nothing before start().
  bool pump(TimeNs now);
  TimeNs next_deadline() const;  // when to pump although nothing was posted

  Counters counters() const { return core_ ? core_->counters() : Counters{}; }
  // A device that reports a sticky failure: the process should end with this story.
  Status health() const;

 private:
  struct Local;
  void collect_completions();
  void perform();
  void launch(const Launch& launch);
  bool run_small(Local& local, const Launch& launch, const ResolvedStep& step);
  Status enqueue(Local& local, const Launch& launch, ResolvedStep step);
  Status launch_on_cuda(Local& local, const ResolvedStep& step, std::uint8_t stream);
  std::byte* address(const MemoryRef& ref) const;
  void inline_small(WorkerId peer, msg::PeerBatch& batch) const;

  std::vector<std::unique_ptr<Local>> locals_;
  const kernels::PluginTable* plugins_;
  RuntimeOptions options_;
  device::Copier& copier_;
  std::function<void()> wake_;
  std::unique_ptr<Core> core_;
  DataService* service_ = nullptr;
  std::function<void(msg::Message)> to_scheduler_;
  std::mutex mutex_;  // guards inbox_ only
  std::vector<Event> inbox_;
  std::vector<Event> events_;
  Actions actions_;
  std::vector<ir::Read> reads_;  // scratch, as is the next
  kernels::KernelCall call_;
  TimeNs now_ = 0;
};

}  // namespace tilewise::worker
