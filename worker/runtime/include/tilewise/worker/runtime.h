// The shell around a worker core: owns devices and kernels, turns actions into launches and messages, and completions
// back into events. Everything runs on one thread, the one that calls pump(); post() alone may be called from any.
#pragma once
#include <tilewise/base/block_deque.h>
#include <tilewise/device/copier.h>
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin.h>
#include <tilewise/worker/call_cache.h>
#include <tilewise/worker/core.h>
#include <tilewise/worker/data_service.h>
#include <tilewise/worker/step.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tilewise::store {
class SpillFile;
}

namespace tilewise::worker {

class Below;
class PeerSlabs;
class ProbeMemory;

struct RuntimeOptions {
  std::int64_t slab_bytes = 256 << 20;
  bool map_peers = true;
  bool adopts = false;             // Options::adopts
  bool reference_kernels = false;  // slow and plain, for comparison
  BlackBox* black_box = nullptr;   // outlives the runtime
  // There is no core for an executor beside this thread: short steps run here, where no wake-up stands between them.
  bool one_core = false;
  std::uint64_t trace_records = StepLog::kUsual;  // remembered for people; 80 bytes each
  std::string host;  // as in its Join: workers of one host pass blocks on to each other
  std::int64_t in_flight_bytes = Options{}.in_flight_bytes;  // Options, as is the next
  std::int64_t in_flight_peer_bytes = Options{}.in_flight_peer_bytes;
  TimeNs stuck_ns = 5 * kSecond;  // memory is wanted and nothing moves for so long: kOutOfMemory
  // A device has failed for good (Device::health), and the process is to end. From any thread, once. Where this is given, pump() does
  // nothing from then on: what failed is told to nobody, so it is not failed tasks but a lost worker's, to be made again elsewhere.
  std::function<void(const Error&)> on_broken;
  // The system refused a device memory, or has no file descriptor for it; it is asked again while somebody waits. On the runtime's thread.
  std::function<void(const Error&)> on_refused;
  // The spill disk had no room for a block: the first time, and the first after it had some again. On the runtime's thread.
  std::function<void(const Error&)> on_disk_full;
};

class Runtime {
 public:
  // `wake` is called from any thread when pump() has something to do. `plugins` outlives the runtime; may be null. The
  // devices are added to `copier`, which outlives it too and which the caller polls as well.
  Runtime(std::vector<std::unique_ptr<device::Device>> devices, const kernels::PluginTable* plugins,
          RuntimeOptions options, device::Copier& copier, std::function<void()> wake);
  ~Runtime();
  // Waits until the devices have done all that they were given. Where runtimes of one process read each other's memory this comes before
  // the end of the first of them. Nothing else is called after it.
  void drain();

  // Both before describe(), each once. Blocks that memory has no room for go there: those of GPUs to pinned memory first, what
  // that has no room for and those of host devices to the file. kOutOfMemory where the host has no such memory to pin.
  Status use_disk(std::unique_ptr<store::SpillFile> file);
  // kInvalidArgument for a worker without a GPU.
  Status use_pinned(std::int64_t bytes);
  std::vector<msg::DeviceDesc> describe() const;
  // After the scheduler's welcome; ids in the order of describe(). `service` and `to_scheduler` outlive the runtime.
  Status start(const msg::Welcome& welcome, DataService& service,
               std::function<void(msg::Message)> to_scheduler);

  // A slab of a peer's GPU: those of ours that can open it read it from now on. The first failure, where one cannot: blocks are
  // sent to that one.
  Status peer_lends(WorkerId peer, const msg::SlabDesc& slab);

  void post(Event event);
  // Events in, core step, actions out. True when anything was done. Does nothing before start().
  bool pump(TimeNs now);
  TimeNs next_deadline() const;  // when to pump although nothing was posted
  // Executors are at work: where cores are scarce, polling would take theirs.
  bool executing() const;
  // Tasks have begun that wait for something, most likely for peers' blocks.
  bool has_tasks() const { return core_ && core_->has_tasks(); }
  // Drained: nobody needs anything of it any more, and its process is to end, well.
  bool leaves() const { return leaves_; }

  Counters counters() const { return core_ ? core_->counters() : Counters{}; }
  // What this worker remembers of the range, oldest first; `worker` and `of` are left to others. Steps on GPUs are as seen
  // from outside (observed_steps.h).
  msg::TraceReply trace(const msg::TraceRequest& request) const;
  msg::BlocksReply blocks(const msg::BlocksRequest& request) const;
  // That of the first device that has failed for good; or kUnavailable: this worker was taken for lost, and what it reads of others may
  // be anything; or what the core has found wrong with what it was sent. In any case it is to end. The black box has been told what was
  // open on the device by then: it may have broken since the last turn.
  Status health();

 private:
  struct Local;
  bool spills(const device::Info& info) const;
  bool pins(const device::Info& info) const;
  std::vector<std::uint16_t> neighbours_of(std::size_t local);
  std::int64_t arena_bytes(const device::Info& info) const;
  device::Device* first_gpu() const;
  void later(std::function<void()> call);
  void on_progress(const device::Device& device);
  void on_io(const TierIo& io);
  void on_relocate(const Relocate& move);
  std::function<void(Status)> io_done(std::uint64_t io, bool to_disk = false);
  void transmit(const Transmit& transmit);
  void send_from_disk();
  void transmitted(const Transmit& transmit, const Status& status);
  void collect_completions();
  void note_running(std::uint16_t device, std::uint8_t stream);
  void note_open_steps();
  void observe(std::uint16_t device, std::uint8_t stream, std::uint64_t done);
  void perform();
  void launch(Launch& launch);
  bool may_run_here(const Local& local, const Launch& launch, TimeNs limit) const;
  bool run_here();
  void enqueue(Local& local, const Launch& launch);
  Status enqueue_on_host(Local& local, const Launch& launch, ResolvedStep step);
  Status enqueue_on_cuda(Local& local, const Launch& launch, ResolvedStep step);
  void tell_meters(Local& local, msg::Progress& progress, msg::DeviceStats& stats) const;
  StepSink sink(Local& local, const Launch& launch);
  void resolve(const Launch& launch, ResolvedStep& step) const;
  Result<std::byte*> scratch_on_cuda(Local& local, const ir::Op& op, std::uint8_t stream);
  std::byte* address(const MemoryRef& ref, std::size_t device) const;
  void pull(WorkerId peer, std::uint64_t transfer, std::size_t device, std::byte* to, const std::byte* from,
            std::int64_t bytes);
  void close_peer_slabs();
  void lend_probe_memory();
  void inline_small(WorkerId peer, msg::PeerBatch& batch) const;
  void receive_probe(const ProbeReceive& probe);
  void send_probe(const ProbeSend& probe);

  StepLog steps_;  // outlives the devices' threads, which write to it
  std::vector<std::unique_ptr<Local>> locals_;
  const kernels::PluginTable* plugins_;
  RuntimeOptions options_;
  device::Copier& copier_;
  std::function<void()> wake_;
  std::unique_ptr<Core> core_;
  DataService* service_ = nullptr;
  std::function<void(msg::Message)> to_scheduler_;
  std::mutex mutex_;  // guards inbox_ and calls_
  std::vector<Event> inbox_;
  std::vector<std::function<void()>> calls_;  // likewise
  std::vector<Event> events_;
  Actions actions_;
  BlockDeque<Launch> here_;      // steps for this thread, in order: run in the next turn
  CallCache calls_here_;         // of those
  std::vector<ir::Read> reads_;  // scratch, as is the next
  ResolvedStep step_;
  TimeNs now_ = 0;
  bool leaves_ = false;  // the core has said so
  Status broken_;        // not ok: DataService::fenced_by, or the core has said so
  std::atomic<bool> told_broken_{false};
  std::atomic<bool> told_disk_full_{false};
  bool noted_open_ = false;
  // Blocks on their way from disk to peers: read, then sent from here.
  std::deque<Transmit> to_send_;
  std::int64_t sending_bytes_ = 0;
  // Measuring links: the memory, and what of it a transport has, by transfer.
  std::unique_ptr<ProbeMemory> probe_memory_;
  std::map<std::uint64_t, std::shared_ptr<std::byte>> probes_;
  std::unique_ptr<PeerSlabs> peer_slabs_;
  std::unique_ptr<Below> below_;  // goes when nothing touches devices' memory any more
};

}  // namespace tilewise::worker
