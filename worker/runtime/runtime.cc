#include <tilewise/ir/checkpoint.h>
#include <tilewise/ir/file_info.h>
#include <tilewise/worker/runtime.h>

#include "below.h"
#include "host_fallback.h"
#include "observed_steps.h"
#include "peer_slabs.h"
#include "probe_memory.h"
#include "runtime_local.h"

#include <tilewise/base/check.h>
#include <tilewise/device/cuda.h>
#include <tilewise/device/cuda_ipc.h>
#include <tilewise/kernels/host_info.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>

namespace tilewise::worker {
namespace {

constexpr TimeNs kLoneNs = 4 * kMicrosecond;     // less than waking an executor
constexpr TimeNs kShortNs = 250 * kMicrosecond;  // so long may messages wait where there is one core
constexpr std::int64_t kScratchBytes = 1 << 20;  // of a GPU's stream, at first
constexpr TimeNs kTurnNs = 30 * kMicrosecond;    // short steps of one turn: results wait no longer to be told

// Work that may sleep: files, and what reads the bytes of many others.
bool may_sleep(const ir::Op& op) {
  switch (op.kind) {
    case ir::OpKind::kReadNpy:
    case ir::OpKind::kWriteNpy: return true;
    case ir::OpKind::kCall: {
      const std::string& kernel = op.get<ir::CallAttrs>().kernel;
      return ir::is_file_kernel(kernel) || ir::checkpoint::is_kernel(kernel);
    }
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels: {
      static const bool may_wait = !kernels::host_warning().empty();  // for other products to end
      return may_wait;
    }
    default: return false;
  }
}

// Ops that GPUs have no kernel for by nature. Others that lack one (cuBLAS was not found, say) are an error that says so,
// not a GPU that is silently slow.
bool host_may_step_in(const ir::Op& op) {
  switch (op.kind) {
    case ir::OpKind::kReadNpy:
    case ir::OpKind::kWriteNpy:
    case ir::OpKind::kCall: return true;
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels: return op.outputs[0].dtype == ir::DType::kBool;
    default: return false;
  }
}

}  // namespace

Runtime::Runtime(std::vector<std::unique_ptr<device::Device>> devices, const kernels::PluginTable* plugins,
                 RuntimeOptions options, device::Copier& copier, std::function<void()> wake)
    : steps_(options.trace_records),
      plugins_(plugins),
      options_(options),
      copier_(copier),
      wake_(std::move(wake)),
      probe_memory_(std::make_unique<ProbeMemory>()),
      peer_slabs_(std::make_unique<PeerSlabs>()),
      below_(
          std::make_unique<Below>(copier, [this](std::function<void()> call) { later(std::move(call)); })) {
  for (auto& device : devices) {
    auto local = std::make_unique<Local>();
    local->seen.assign(static_cast<std::size_t>(device->info().compute_streams), 0);
    local->enqueued = local->seen;
    local->scratch.resize(local->seen.size());
    local->observed.resize(local->seen.size());
    local->device = std::move(device);
    local->device->on_progress([this, device = local->device.get()] { on_progress(*device); });
    copier_.add_device(local->device.get());
    locals_.push_back(std::move(local));
  }
}

void Runtime::drain() {
  below_->stop();
  for (auto& local : locals_) local->device->synchronize();
}

Runtime::~Runtime() {
  drain();  // queued steps refer to the core's ops
  peer_slabs_.reset();
  below_.reset();   // devices unpin its memory
  locals_.clear();  // their threads call on_progress() to the last
}

void Runtime::on_progress(const device::Device& device) {
  if (options_.on_broken) {
    if (const Status ok = device.health(); !ok && !told_broken_.exchange(true))
      options_.on_broken(ok.error());
  }
  wake_();
}

std::vector<msg::DeviceDesc> Runtime::describe() const {
  const auto gpus = std::ranges::count_if(
      locals_, [](const auto& local) { return local->device->info().kind == device::Kind::kCuda; });
  std::vector<msg::DeviceDesc> out;
  for (const auto& local : locals_) {
    const device::Info& info = local->device->info();
    out.push_back({info.name, static_cast<std::uint8_t>(info.kind), info.model, info.numeric_class,
                   arena_bytes(info), info.compute_streams,
                   below_->disk_bytes() / static_cast<std::int64_t>(locals_.size()),
                   pins(info) ? below_->pinned_bytes() / gpus : 0, info.gpu});
  }
  return out;
}

Status Runtime::start(const msg::Welcome& welcome, DataService& service,
                      std::function<void(msg::Message)> to_scheduler) {
  if (welcome.devices.size() != locals_.size()) {
    return error(Errc::kInternal, "the scheduler named " + std::to_string(welcome.devices.size()) +
                                      " devices for " + std::to_string(locals_.size()));
  }
  Options options;
  options.self = welcome.you;
  options.term = welcome.term;
  options.map_peers = options_.map_peers;
  options.adopts = options_.adopts;
  options.host = options_.host;
  options.stuck_ns = options_.stuck_ns;
  options.in_flight_bytes = options_.in_flight_bytes;
  options.in_flight_peer_bytes = options_.in_flight_peer_bytes;
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    Local& local = *locals_[i];
    const device::Info& info = local.device->info();
    local.id = welcome.devices[i];
    if (info.kind == device::Kind::kCuda) {
      auto made = kernels::make_cuda_kernels(*local.device, plugins_);
      if (!made) return made.error();
      local.kernels = std::move(*made);
      local.fallback = std::make_unique<HostFallback>(*local.device, kernels::make_host_kernels(plugins_));
    } else {
      local.kernels = options_.reference_kernels ? kernels::make_reference_kernels(plugins_)
                                                 : kernels::make_host_kernels(plugins_);
    }
    // A GPU has memory for larger slabs, and each is opened once per peer.
    const std::int64_t slab_bytes =
        info.kind == device::Kind::kCuda ? 8 * options_.slab_bytes : options_.slab_bytes;
    options.devices.push_back({local.id,
                               static_cast<std::uint8_t>(info.kind),
                               arena_bytes(info),
                               std::min(slab_bytes, arena_bytes(info)),
                               std::min(info.compute_streams, kMaxStreams),
                               spills(info),
                               pins(info),
                               {},
                               info.gpu});
  }
  for (std::size_t i = 0; i < locals_.size(); ++i) options.devices[i].neighbours = neighbours_of(i);
  options.spill_bytes = below_->disk_bytes();
  options.pinned_bytes = below_->pinned_bytes();
  service_ = &service;
  to_scheduler_ = std::move(to_scheduler);
  core_ = std::make_unique<Core>(std::move(options));
  lend_probe_memory();
  return {};
}

// GPUs with a link of their own to this one: that is faster than the way to the host's memory. Over the bus they are as near as
// that is, but nearer than the disk.
std::vector<std::uint16_t> Runtime::neighbours_of(std::size_t local) {
  device::Device& device = *locals_[local]->device;
  std::vector<std::uint16_t> direct, others;
  if (device.info().kind != device::Kind::kCuda || !spills(device.info())) return direct;
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    device::Device& other = *locals_[i]->device;
    if (i == local || other.info().kind != device::Kind::kCuda) continue;
    const auto link = device::peer_link(device, other);
    if (!link || *link == device::PeerLink::kNone) continue;
    if (*link == device::PeerLink::kBus && pins(device.info())) continue;
    if (!device::enable_peer_access(device, other)) continue;
    (*link == device::PeerLink::kDirect ? direct : others).push_back(static_cast<std::uint16_t>(i));
  }
  direct.insert(direct.end(), others.begin(), others.end());
  return direct;
}

void Runtime::post(Event event) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    first = inbox_.empty();
    inbox_.push_back(std::move(event));
  }
  if (first) wake_();
}

void Runtime::later(std::function<void()> call) {
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  wake_();
}

device::Device* Runtime::first_gpu() const {
  for (const auto& local : locals_) {
    if (local->device->info().kind == device::Kind::kCuda) return local->device.get();
  }
  return nullptr;
}

Status Runtime::use_disk(std::unique_ptr<store::SpillFile> file) {
  file->on_taken([this](std::int64_t bytes) { post(DiskTaken{bytes}); });
  return below_->use_disk(std::move(file), first_gpu());
}

Status Runtime::use_pinned(std::int64_t bytes) {
  device::Device* gpu = first_gpu();
  if (gpu == nullptr)
    return error(Errc::kInvalidArgument, "pinned memory to spill to, but no GPU among the worker's devices");
  return below_->use_pinned(*gpu, bytes);
}

bool Runtime::pins(const device::Info& info) const {
  return info.kind == device::Kind::kCuda && below_->pinned_bytes() > 0;
}

bool Runtime::spills(const device::Info& info) const { return below_->disk_bytes() > 0 || pins(info); }

// An arena above a tier is full as a rule; kernels' scratch, which grows beside it on GPUs, has a part of its own then.
std::int64_t Runtime::arena_bytes(const device::Info& info) const {
  if (info.kind != device::Kind::kCuda || !spills(info)) return info.memory_bytes;
  const std::int64_t scratch = std::max(info.memory_bytes / 16, info.compute_streams * kScratchBytes);
  return info.memory_bytes - std::min(scratch, info.memory_bytes / 2);
}

std::function<void(Status)> Runtime::io_done(std::uint64_t io, bool to_disk) {
  return [this, io, to_disk](const Status& status) {
    const bool full = !status && status.error().code == Errc::kDiskFull;
    if (to_disk && (status || full) && told_disk_full_.exchange(full) != full && full &&
        options_.on_disk_full)
      later([this, why = status.error()] { options_.on_disk_full(why); });
    post(IoDone{io, status ? Error{Errc::kOk, {}} : status.error()});
  };
}

void Runtime::on_io(const TierIo& io) {
  const Below::Done done = io_done(io.io, io.write && io.tier == Tier::kDisk);
  if (io.from >= 0) return below_->demote(io.from, io.at, io.bytes, done);
  device::Device& device = *locals_[io.device]->device;
  if (io.tier == Tier::kNeighbour)
    below_->move_memory(device, io.write, address(io.memory, io.device), address(io.lodging, io.device),
                        io.bytes, done);
  else if (io.tier == Tier::kPinned)
    below_->move_memory(device, io.write, address(io.memory, io.device), below_->pinned(io.at), io.bytes,
                        done);
  else
    below_->move_disk(device, io.write, address(io.memory, io.device), io.at, io.bytes, done);
}

void Runtime::on_relocate(const Relocate& move) {
  below_->move_memory(*locals_[move.device]->device, true, address(move.from, move.device),
                      address(move.to, move.device), move.bytes, io_done(move.io));
}

// Of a GPU's stream, the step that runs, or is about to.
void Runtime::note_running(std::uint16_t device, std::uint8_t stream) {
  if (options_.black_box == nullptr) return;
  BlackBox::Slot* const slot = options_.black_box->gpu_slot(device, stream);
  if (slot == nullptr) return;
  const Local& local = *locals_[device];
  if (local.observed[stream].empty()) return slot->end();
  const ObservedSteps::Step& step = local.observed[stream].steps().front();
  slot->begin(step.run.id, local.id, step.point, step.sequence);
}

// A device has failed for good. What is open on it says more than what runs: a step that is over may not have been seen to be.
void Runtime::note_open_steps() {
  if (options_.black_box == nullptr || std::exchange(noted_open_, true)) return;
  options_.black_box->gpu_broke();
  for (const auto& local : locals_) {
    if (local->device->health()) continue;
    for (const ObservedSteps& observed : local->observed)
      for (const ObservedSteps::Step& step : observed.steps())
        options_.black_box->add_open(step.run.id, local->id, step.point);
  }
}

void Runtime::observe(std::uint16_t device, std::uint8_t stream, std::uint64_t done) {
  Local& local = *locals_[device];
  local.observed[stream].completed(done, monotonic_now(), [&](const auto& step, TimeNs start, TimeNs end) {
    const OpEntry& op = *step.op;
    local.meter(op).add(op.model_ns, end - start);
    local.busy_ns[stream].fetch_add(end - start, std::memory_order_relaxed);
    std::atomic_ref(*step.run.busy_ns).fetch_add(end - start, std::memory_order_relaxed);
    steps_.add({step.run.id, step.run.graph, step.point, op.family, local.id, stream, start, end});
  });
  note_running(device, stream);
}

// Failures before completions, of all streams: a step that read the result of a failed one on another stream completes
// after it, so once its completion has been read, the failure it depends on is there to be taken (Stream::take_failures).
// The failed step's own completion may be told later: what failed is told at once.
void Runtime::collect_completions() {
  std::vector<StreamCompleted> completed;
  std::vector<device::StepFailure> failures;
  for (std::uint16_t d = 0; d < locals_.size(); ++d) {
    Local& local = *locals_[d];
    const std::size_t first = completed.size();
    for (std::size_t s = 0; s < local.seen.size(); ++s) {
      const std::uint64_t done = local.device->compute_stream(static_cast<int>(s)).completed();
      if (done == local.seen[s]) continue;
      if (options_.on_broken && !local.device->health()) return;  // what runs stays noted
      local.seen[s] = done;
      // Hosts' steps are timed by whoever runs them: no clock is read for them here.
      if (!local.observed[s].empty()) observe(d, static_cast<std::uint8_t>(s), done);
      const std::int64_t busy = local.busy_ns[s].load(std::memory_order_relaxed);
      const std::int64_t took = busy - std::exchange(local.charged_ns[s], busy);
      completed.push_back({d, static_cast<std::uint8_t>(s), done, took});
    }
    if (completed.size() == first) continue;
    for (std::size_t s = 0; s < local.seen.size(); ++s) {
      failures.clear();
      device::Stream& stream = local.device->compute_stream(static_cast<int>(s));
      const std::uint64_t done =
          stream.completed();  // `seen` may be older than what was read of other streams
      stream.take_failures(failures);
      if (local.fallback) local.fallback->settle(static_cast<std::uint8_t>(s), done, failures);
      // The host's come last, though what read them may have failed since.
      std::ranges::stable_sort(failures, {}, &device::StepFailure::sequence);
      for (auto& f : failures) {
        events_.push_back(StepFailed{d, static_cast<std::uint8_t>(s), f.sequence, std::move(f.error)});
      }
      std::erase_if(local.refused, [&](StepFailed& f) {
        if (f.stream != s) return false;
        events_.push_back(std::move(f));
        return true;
      });
    }
  }
  for (const StreamCompleted& event : completed) events_.push_back(event);
}

bool Runtime::pump(TimeNs now) {
  if (!core_) return false;
  now_ = now;
  std::vector<std::function<void()>> calls;
  {
    std::lock_guard lock(mutex_);
    events_.swap(inbox_);
    calls.swap(calls_);
  }
  for (const std::function<void()>& call : calls) call();
  // Steps that the core launched in the turn before: its messages have left since, and peers need not wait for them.
  const bool did = run_here() || !calls.empty();
  collect_completions();
  if (options_.on_broken && !health()) {  // asked when failures have been taken: see Device::health()
    events_.clear();
    return false;
  }
  probe_memory_->rest(now);
  close_peer_slabs();
  for (std::size_t i = 0; i < events_.size() && !probes_.empty(); ++i) {
    const auto* over = std::get_if<TransferDone>(&events_[i]);
    if (over != nullptr && !over->held) probes_.erase(over->transfer);
  }
  if (events_.empty() && now < core_->next_deadline()) return did;
  // Who leaves is struck off while clients take the last from it, and has read all it ever will.
  if (const auto by = core_->is_still() ? std::nullopt : service_->fenced_by()) {
    broken_ = error(Errc::kUnavailable, "taken for lost: worker " + std::to_string(by->value) +
                                            " gives to others the memory that it had lent to this one");
    events_.clear();
    return false;
  }
  core_->step(events_, now, actions_);
  perform();
  return true;
}

TimeNs Runtime::next_deadline() const {
  return core_ ? std::min(core_->next_deadline(), probe_memory_->next_deadline()) : now_ + kSecond;
}

Status Runtime::health() {
  if (!broken_) return broken_;
  for (const auto& local : locals_) {
    if (Status ok = local->device->health(); !ok) {
      note_open_steps();
      return ok;
    }
  }
  return {};
}

// Null where the kernel wants none. It grows outside the arena and takes nothing of what that may grow to, a stream's at a time; what
// it outgrows stays with the device.
Result<std::byte*> Runtime::scratch_on_cuda(Local& local, const ir::Op& op, std::uint8_t s) {
  const std::int64_t bytes = local.kernels->scratch_bytes(op);
  if (bytes <= 0) return nullptr;
  device::Slab& scratch = local.scratch[s];
  if (scratch.bytes < bytes) {
    const std::int64_t wanted = std::max(bytes, kScratchBytes);
    TW_ASSIGN(scratch, device::add_cuda_memory(*local.device, wanted));
  }
  return scratch.data;
}

StepSink Runtime::sink(Local& local, const Launch& launch) {
  return {&local.meter(*launch.op),
          &steps_,
          &local.busy_ns[launch.stream],
          local.id,
          launch.stream,
          options_.black_box == nullptr ? nullptr : options_.black_box->slot(launch.device, launch.stream)};
}

msg::TraceReply Runtime::trace(const msg::TraceRequest& request) const {
  msg::TraceReply reply;
  reply.nonce = request.nonce;
  if (!core_) return reply;
  reply.families = core_->families();
  reply.now_ns = monotonic_now();
  StepLog::Wanted wanted;
  wanted.graph = request.graph;
  if (request.from_age_ns > 0) wanted.from = reply.now_ns - request.from_age_ns;
  if (request.until_age_ns > 0) wanted.until = reply.now_ns - request.until_age_ns;
  // Waits that go on are told as they are so far: the newest of all.
  std::vector<StepRecord> waits = core_->waits(reply.now_ns);
  std::erase_if(waits, [&](const StepRecord& r) {
    return (wanted.graph && r.graph != wanted.graph) || r.end_ns < wanted.from || r.start_ns > wanted.until;
  });
  if (request.max_steps > 0) {
    if (waits.size() > request.max_steps) reply.cut = waits.size() - request.max_steps;
    waits.resize(waits.size() - reply.cut);
    wanted.most = request.max_steps - waits.size();
  }
  StepLog::Read read = steps_.read(wanted);
  reply.lost = read.lost;
  reply.since_ns = read.since;
  reply.cut += read.cut;
  reply.steps = std::move(read.records);
  reply.steps.insert(reply.steps.end(), waits.begin(), waits.end());
  return reply;
}

msg::BlocksReply Runtime::blocks(const msg::BlocksRequest& request) const {
  if (core_) return core_->blocks(request);
  msg::BlocksReply nothing;
  nothing.nonce = request.nonce;
  return nothing;
}

void Runtime::resolve(const Launch& launch, ResolvedStep& step) const {
  step.op = launch.op;
  step.run = launch.run;
  step.point = launch.point;
  step.step = launch.step;
  step.steps = launch.steps;
  step.inputs.clear();
  step.outputs.clear();
  for (const MemoryRef& ref : launch.inputs) step.inputs.push_back(address(ref, launch.device));
  for (const MemoryRef& ref : launch.outputs) step.outputs.push_back(address(ref, launch.device));
}

// Host steps that end soon for all we know; of kernels that users bring, once one has been timed. What makes again what was lost may
// wait for memory.
bool Runtime::may_run_here(const Local& local, const Launch& launch, TimeNs limit) const {
  if (local.device->info().kind != device::Kind::kHost || may_sleep(launch.op->op) || launch.run.again)
    return false;
  const std::size_t family = launch.op->family;
  if (family >= local.meters.size() || local.meters[family].steps() == 0)
    return launch.op->op.kind != ir::OpKind::kCall && launch.op->model_ns <= limit;
  const Meter& meter = local.meters[family];
  return !meter.erratic() && meter.predict(launch.op->model_ns) <= static_cast<double>(limit);
}

// In order, for about a turn's time, or until there is a result that others wait for. False if the executor must end
// something first.
bool Runtime::run_here() {
  const TimeNs until = here_.empty() ? 0 : monotonic_now() + kTurnNs;
  bool ran = false;
  while (!here_.empty()) {
    const Launch& launch = here_.front();
    Local& local = *locals_[launch.device];
    resolve(launch, step_);
    kernels::KernelCall& call = calls_here_.build(step_);
    const StepSink sink = this->sink(local, launch);
    TimeNs ended = 0;
    const auto work = [&] {
      return run_patiently(step_, [&] { return run_on_host(*local.kernels, call, step_, sink, &ended); });
    };
    if (options_.black_box != nullptr) options_.black_box->loop_runs(sink.slot);
    const bool may = local.device->compute_stream(launch.stream).run_now(work);
    if (options_.black_box != nullptr) options_.black_box->loop_runs(nullptr);
    if (!may) return ran;
    ran = true;
    const bool awaited = launch.awaited;
    here_.pop_front();
    if (awaited || ended >= until) break;
  }
  return ran;
}

Status Runtime::enqueue_on_host(Local& local, const Launch& launch, ResolvedStep step) {
  return local.device->compute_stream(launch.stream)
      .enqueue([&local, sink = sink(local, launch), step = std::move(step)]() -> Status {
        thread_local std::vector<ir::Read> reads;
        thread_local kernels::KernelCall call;
        return run_patiently(step, [&] {
          build_call(step, reads, call);
          return run_on_host(*local.kernels, call, step, sink);
        });
      });
}

Status Runtime::enqueue_on_cuda(Local& local, const Launch& launch, ResolvedStep step) {
  const ir::Op& op = step.op->op;
  Result<std::byte*> scratch = nullptr;
  Status can = host_may_step_in(op) ? local.kernels->supports(op) : Status{};
  if (can) {
    scratch = scratch_on_cuda(local, op, launch.stream);
    if (!scratch) can = scratch.error();
  }
  if (!can && host_may_step_in(op) && local.fallback->supports(op))
    return local.fallback->launch(launch, step, sink(local, launch));
  if (!scratch) return scratch.error();
  local.observed[launch.stream].enqueued(
      {launch.op, launch.point, launch.sequence, monotonic_now(), launch.run});
  note_running(launch.device, launch.stream);
  kernels::KernelCall call;
  build_call(step, reads_, call);
  call.scratch = *scratch;
  const Status launched = local.kernels->launch(call, local.device->compute_stream(launch.stream));
  local.observed[launch.stream].launched(monotonic_now());  // it may have been compiled first
  return launched;
}

void Runtime::enqueue(Local& local, const Launch& launch) {
  device::Stream& stream = local.device->compute_stream(launch.stream);
  const auto append = [&]() -> Status {
    for (const auto& [other, sequence] : launch.waits)
      TW_TRY(stream.wait(local.device->compute_stream(other), sequence));
    ResolvedStep step;
    resolve(launch, step);
    return stream.kind() == device::Kind::kHost ? enqueue_on_host(local, launch, std::move(step))
                                                : enqueue_on_cuda(local, launch, std::move(step));
  };
  const Status ok = append();
  const std::uint64_t sequence = stream.record();
  TW_CHECK(sequence == launch.sequence, "the core and the stream count steps differently");
  if (!ok) local.refused.push_back({launch.device, launch.stream, launch.sequence, ok.error()});
}

// A step that comes alone and is small runs on this thread: nobody could run it sooner. Where this thread has the only
// core, so do all short ones that do not come behind a long one.
void Runtime::launch(Launch& launch) {
  Local& local = *locals_[launch.device];
  const device::Stream& stream = local.device->compute_stream(launch.stream);
  std::uint64_t& enqueued = local.enqueued[launch.stream];
  const bool idle = options_.one_core
                        ? stream.completed() >= enqueued
                        : actions_.launches.size() == 1 && stream.completed() + 1 == launch.sequence;
  if (idle && launch.waits.empty() && may_run_here(local, launch, options_.one_core ? kShortNs : kLoneNs)) {
    here_.push_back(std::move(launch));
    return;
  }
  for (const Launch& before : here_) enqueue(*locals_[before.device], before);
  here_.clear();
  enqueue(local, launch);
  enqueued = launch.sequence;
}

bool Runtime::executing() const {
  return std::any_of(locals_.begin(), locals_.end(), [](const auto& local) {
    for (std::size_t s = 0; s < local->seen.size(); ++s) {
      if (local->enqueued[s] > local->seen[s]) return true;
    }
    return false;
  });
}

void Runtime::tell_meters(Local& local, msg::Progress& progress, msg::DeviceStats& stats) const {
  local.told.resize(local.meters.size(), 0);
  for (std::size_t i = 0; i < local.meters.size(); ++i) {
    const Meter& meter = local.meters[i];
    stats.busy_ns += meter.busy_ns();
    const std::int64_t steps = meter.steps();
    if (std::exchange(local.told[i], steps) == steps) continue;
    progress.families.push_back({local.id, core_->families()[i], steps, meter.busy_ns(), meter.model_ns()});
  }
}

void Runtime::perform() {
  for (const msg::TracedStep& note : actions_.notes) steps_.add(note);
  for (const AddSlab& want : actions_.slabs) {
    Local& local = *locals_[want.device];
    auto slab = local.device->add_slab(want.bytes);
    if (!slab && options_.on_refused) options_.on_refused(slab.error());
    if (slab) {
      local.slabs.push_back(*slab);
      service_->slab_added(local.id, static_cast<std::uint32_t>(local.slabs.size() - 1), *slab);
    }
    post(SlabAdded{want.device, want.bytes, slab.has_value(), slab && !slab->ipc_handle.empty(),
                   slab ? Error{} : slab.error()});
  }
  for (const msg::PeerInfo& peer : actions_.joined) service_->peer_joined(peer);
  for (WorkerId peer : actions_.lost) {
    service_->peer_lost(peer);
    peer_slabs_->lose(peer);
  }
  for (Launch& l : actions_.launches) launch(l);
  for (const Receive& r : actions_.receives) {
    service_->receive(r.from, r.transfer, address(r.to, r.device), r.bytes,
                      locals_[r.device]->device->info().kind, r.in_parts);
  }
  for (const Pull& p : actions_.pulls)
    pull(p.peer, p.transfer, p.device, address(p.to, p.device), address(p.from, p.device), p.bytes);
  for (Store& store : actions_.stores) {
    const auto data = std::make_shared<const std::string>(std::move(store.data));  // kept until it is copied
    auto* from = reinterpret_cast<std::byte*>(const_cast<char*>(data->data()));
    copier_.copy({address(store.to, store.device), locals_[store.device]->device->info().kind},
                 {from, device::Kind::kHost}, static_cast<std::int64_t>(data->size()),
                 [this, data, transfer = store.transfer](const Status& ok) {
                   post(TransferDone{transfer, ok ? Error{Errc::kOk, {}} : ok.error(), msg::Lane::kInline});
                 });
  }
  for (const ProbeReceive& probe : actions_.probe_receives) receive_probe(probe);
  for (auto& [peer, batch] : actions_.batches) {
    inline_small(peer, batch);
    service_->send(peer, std::move(batch));
  }
  for (const msg::Done& done : actions_.given_back) service_->given_back(done);
  for (const Vacated& place : actions_.vacated) below_->disk()->vacate(place.at, place.bytes);
  for (const TierIo& io : actions_.ios) on_io(io);
  for (const Relocate& move : actions_.relocations) on_relocate(move);
  for (const Disarm& d : actions_.disarms) service_->disarm(d.from, d.transfer);
  for (const Transmit& t : actions_.transmits) transmit(t);
  for (const ProbeSend& probe : actions_.probe_sends) send_probe(probe);
  for (msg::Message& message : actions_.to_scheduler) {
    if (auto* progress = std::get_if<msg::Progress>(&message)) {
      for (std::size_t d = 0; d < progress->devices.size() && d < locals_.size(); ++d) {
        tell_meters(*locals_[d], *progress, progress->devices[d]);
      }
    }
    to_scheduler_(std::move(message));
  }
  leaves_ |= actions_.leave;
  if (actions_.broken && broken_) broken_ = *actions_.broken;
}

}  // namespace tilewise::worker
