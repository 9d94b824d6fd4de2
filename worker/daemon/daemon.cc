#include "daemon.h"

#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>

#include <algorithm>

#include "service.h"

namespace tilewise::worker {
namespace {

constexpr TimeNs kRetryNs = 200 * kMillisecond;
// With one core, while no executor wants it. Two workers that wait for each other's blocks, and park, take a wake-up a hop
// for good: so a wait in the middle of work outlasts a peer's wake-up and its task.
constexpr TimeNs kWaitSpinNs = 500 * kMicrosecond;
constexpr TimeNs kLeavingNs = 1 * kSecond;
// A dead peer is reported lost by the scheduler at once, a silent one within its silence limit; one that is still a
// member of the cluster so long after that is out of reach for us alone.
constexpr TimeNs kUnreachableNs = 5 * kSecond;
// Of the scheduler's log, at a time; one entry may bring more.
constexpr std::size_t kTurnOps = 2048;

std::size_t weight_of(const msg::LogEntry& entry) {
  std::size_t ops = 1;
  if (const auto* plan = std::get_if<msg::Plan>(&entry)) ops += plan->ops.size();
  if (const auto* recover = std::get_if<msg::Recover>(&entry))
    for (const msg::Plan& plan : recover->plans) ops += plan.ops.size();
  return ops;
}

using daemon::to_string;

}  // namespace

Daemon::Daemon(net::EventLoop& loop, DaemonOptions options) : loop_(loop), options_(std::move(options)) {}

Result<std::unique_ptr<Daemon>> Daemon::start(net::EventLoop& loop, DaemonOptions options,
                                              std::vector<std::unique_ptr<device::Device>> devices,
                                              const kernels::PluginTable& plugins,
                                              std::function<void(const std::vector<std::string>&)> on_ready,
                                              std::function<void(Status)> on_end) {
  std::unique_ptr<Daemon> daemon(new Daemon(loop, std::move(options)));
  Daemon& d = *daemon;
  d.on_ready_ = std::move(on_ready);
  d.on_end_ = std::move(on_end);
  for (const auto& entry : plugins.entries()) {
    for (const std::string& kernel : entry.kernels) d.plugins_.push_back({kernel, entry.version, entry.hash});
  }
  exchange::Options peers{.token = d.options_.token};
  peers.host_id = config::host_id();
  peers.listen = d.options_.listen;
  peers.advertise = d.options_.advertise;
  peers.map_peers = d.options_.map_peers;
  peers.silence_ns = peers.resume_ns = d.options_.silence_ns;
  peers.strict_lanes = d.options_.strict_lanes;
  peers.ucx.deadline_ns = d.options_.transfer_ns;
  peers.prove_ucx = true;
  exchange::Callbacks callbacks;
  callbacks.on_batch = [&d](WorkerId from, msg::PeerBatch batch) {
    d.runtime_->post(PeerBatchReceived{from, std::move(batch)});
  };
  callbacks.on_ready = [&d](WorkerId peer, bool mapped) {
    daemon::log_debug("peer ready",
                      {{"id", peer.value},
                       {"mapped", mapped},
                       {"messages", d.exchange_->shares_ring(peer) ? "shared memory" : "socket"}});
    if (!mapped && d.exchange_->would_map(peer))
      daemon::log_warn(
          "no shared memory for the link to a peer of this host: messages and small blocks are copied "
          "through a "
          "socket",
          {{"id", peer.value}});
    d.runtime_->post(PeerReady{peer, mapped});
  };
  callbacks.on_lent = [&d](WorkerId peer, const msg::SlabDesc& slab) {
    if (const Status opened = d.runtime_->peer_lends(peer, slab); !opened)
      daemon::log_warn("a peer's GPU memory cannot be opened here, its blocks are copied by other ways",
                       {{"id", peer.value}, {"why", to_string(opened.error())}});
  };
  callbacks.on_ucx_fault = [&d](const Error& why, bool refused) {
    daemon::log_warn(refused ? "UCX does not do what it says: such memory goes by slower ways"
                             : "a slab could not be registered with UCX: each transfer will be",
                     {{"why", to_string(why)}});
    if (refused && d.options_.strict_lanes)
      d.end(error(Errc::kLaneDenied, "UCX does not do what it says: " + why.message));
  };
  callbacks.on_unreachable = [&d](WorkerId peer, const Error& why) { d.on_unreachable(peer, why); };
  callbacks.on_broken = [&d](WorkerId peer, const Error& why) {
    daemon::log_debug("link to a peer broke", {{"id", peer.value}, {"why", to_string(why)}});
    d.service_->link_broke(peer, why);
  };
  callbacks.on_back = [](WorkerId peer) {
    daemon::log_info("link to a peer made again", {{"id", peer.value}});
  };
  callbacks.on_relay = [](WorkerId from, WorkerId to) {
    daemon::log_info("passes bytes on, for who cannot reach a worker",
                     {{"from", from.value}, {"to", to.value}});
  };
  callbacks.on_deaf = [seldom = daemon::Seldom()](const Error& why) mutable {
    if (const std::int64_t times = seldom.count(monotonic_now()); times > 0)
      daemon::log_warn("no connection can be accepted", {{"why", to_string(why)}, {"times", times}});
  };
  TW_ASSIGN(d.exchange_, exchange::Exchange::create(loop, std::move(peers), std::move(callbacks)));
  TW_ASSIGN(d.addresses_, d.exchange_->listen());
  for (const auto& device : devices) d.devices_.push_back(device.get());
  TW_TRY(d.check_lanes());
  RuntimeOptions runtime;
  runtime.map_peers = d.options_.map_peers;
  runtime.reference_kernels = d.options_.reference_kernels;
  runtime.one_core = d.options_.one_core;
  runtime.trace_records = d.options_.trace_records;
  runtime.black_box = d.options_.black_box;
  runtime.on_broken = d.options_.on_broken;
  runtime.on_disk_full = [directory = d.options_.spill.directory](const Error& why) {
    daemon::log_warn("the spill disk is full: blocks stay in memory",
                     {{"directory", directory}, {"why", to_string(why)}});
  };
  runtime.on_refused = [seldom = daemon::Seldom()](const Error& why) mutable {
    if (const std::int64_t times = seldom.count(monotonic_now()); times > 0)
      daemon::log_warn("a device is refused memory", {{"why", to_string(why)}, {"times", times}});
  };
  runtime.host = config::host_id();
  runtime.in_flight_bytes = d.options_.in_flight_bytes;
  runtime.in_flight_peer_bytes = d.options_.in_flight_peer_bytes;
  const auto gpu = std::find_if(d.devices_.begin(), d.devices_.end(), [](const device::Device* device) {
    return device->info().kind == device::Kind::kCuda;
  });
  d.service_ = std::make_unique<Service>(*d.exchange_, d.copier_, gpu == d.devices_.end() ? nullptr : *gpu);
  d.runtime_ =
      std::make_unique<Runtime>(std::move(devices), &plugins, runtime, d.copier_, [&loop] { loop.wake(); });
  if (!d.options_.spill.directory.empty()) {
    TW_ASSIGN(auto file, store::SpillFile::open(d.options_.spill));
    if (BlackBox* const box = d.options_.black_box; box != nullptr) {
      file->on_io([box](int thread, bool begins) {
        BlackBox::Slot* const slot = box->disk_slot(static_cast<std::size_t>(thread));
        if (slot == nullptr) return;
        begins ? slot->begin(OpId{1}, {}, 0) : slot->end();
      });
    }
    daemon::log_info(
        "disk below memory",
        {{"directory", file->directory()}, {"bytes", file->limit_bytes()}, {"direct", file->direct()}});
    if (file->limit_bytes() > file->free_at_start())
      daemon::log_warn("the spill disk has less free than may be taken of it",
                       {{"directory", file->directory()},
                        {"bytes", file->limit_bytes()},
                        {"free", file->free_at_start()},
                        {"option", "--spill-limit"}});
    TW_TRY(d.runtime_->use_disk(std::move(file)));
  }
  if (d.options_.pinned_bytes > 0) {
    TW_TRY(d.runtime_->use_pinned(d.options_.pinned_bytes));
    daemon::log_info("pinned memory below that of GPUs", {{"bytes", d.options_.pinned_bytes}});
  }
  loop.set_batch_hook([&d] { return d.turn(); });
  d.give_up_at_ = monotonic_now() + d.options_.connect_timeout_ns;
  d.connect();
  return daemon;
}

// A slow way is taken with a word, or not at all. GPUs of one host open each other's memory whatever UCX can do; a way that would
// go through the host all the same is refused when it is taken.
Status Daemon::check_lanes() const {
  const bool cuda = std::any_of(devices_.begin(), devices_.end(), [](const device::Device* device) {
    return device->info().kind == device::Kind::kCuda;
  });
  if (!cuda) return {};
  if (!options_.map_peers) {
    const std::string why = "memory is not shared (--no-map)";
    if (options_.strict_lanes)
      return error(Errc::kLaneDenied, why + ": GPU memory could cross processes through the host only");
    daemon::log_warn("GPU memory crosses processes through the host", {{"why", why}});
  } else if (!exchange_->takes(device::Kind::kCuda)) {
    daemon::log_warn("GPU memory crosses to other hosts through this one's",
                     {{"why", "this UCX was built without CUDA"}});
  }
  return {};
}

Daemon::~Daemon() {
  loop_.set_batch_hook({});
  if (retry_ != 0) loop_.cancel(retry_);
  if (timer_ != 0) loop_.cancel(timer_);
  // A GPU that broke may have been broken by what it ran: then the supervisor has something to say.
  const bool to_blame = options_.black_box != nullptr && runtime_ != nullptr && !runtime_->health();
  if (courier_ && !to_blame &&
      (options_.lease_ns > 0 || options_.black_box != nullptr ||
       (runtime_ != nullptr && runtime_->leaves()))) {  // else nobody waits for a word on us
    if (codec::encode(msg::Leave{}, buffer_))
      (void)courier_->send(codec::frame_type(msg::Leave{}), buffer_.bytes());
    courier_->flush();
  }
  courier_.reset();  // the scheduler sees at once that we go
  // Queued kernels may read peers' memory, and transfers ours: devices come to rest, then the exchange lets go, then
  // the slabs are freed.
  for (device::Device* device : devices_) device->synchronize();
  exchange_.reset();
  if (service_) service_->let_go();
  runtime_.reset();
}

// ---- the scheduler -------------------------------------------------------------------------------------------------

void Daemon::connect() {
  net::HandshakeOptions handshake{.token = options_.token, .silence_ns = options_.silence_ns};
  handshake.deadline_ns = std::min(handshake.deadline_ns, std::max(give_up_at_ - monotonic_now(), kRetryNs));
  attempt_ = net::connect(loop_, options_.scheduler, handshake,
                          [this](Result<std::unique_ptr<net::Link>> link) { on_connected(std::move(link)); });
}

void Daemon::on_connected(Result<std::unique_ptr<net::Link>> link) {
  const std::string where = "scheduler " + options_.scheduler.to_string() + ": ";
  if (!link) {
    const Error& why = link.error();
    // A scheduler that is killed at this moment closes the connection as one does that knows another token: that one does so again.
    const bool refused = why.code == Errc::kUnauthenticated;
    const bool hopeless = (refused && refused_) || why.code == Errc::kVersionMismatch;
    refused_ = refused;
    if (hopeless || monotonic_now() + kRetryNs > give_up_at_)
      return end(error(why.code, where + why.message));
    daemon::log_debug("no scheduler yet", {{"why", to_string(why)}});
    retry_ = loop_.after(kRetryNs, [this] {
      retry_ = 0;
      connect();
    });
    return;
  }
  courier::Handlers handlers;
  handlers.on_message = [this](msg::Message message) { on_message(std::move(message)); };
  handlers.on_lost = [this, where](const Error& why) {
    if (options_.black_box != nullptr) options_.black_box->give_scheduler_up();
    end(error(why.code, where + why.message));
  };
  handlers.on_down = [](const Error& why) {
    daemon::log_warn("scheduler gone, work goes on", {{"why", to_string(why)}});
  };
  handlers.on_back = [](std::uint32_t term) { daemon::log_info("scheduler back", {{"term", term}}); };
  courier_ = std::make_unique<courier::Courier>(
      loop_,
      courier::Options{options_.scheduler, options_.token, options_.reconnect_timeout_ns, options_.lease_ns,
                       options_.silence_ns},
      std::move(handlers), std::move(*link));
  msg::Join join;
  join.role = msg::Role::kWorker;
  join.name = options_.name;
  join.software_version = config::software_version();
  join.host_id = config::host_id();
  join.addresses = addresses_;
  join.devices = runtime_->describe();
  join.plugins = plugins_;
  join.lease_ns = options_.lease_ns;
  if (options_.black_box != nullptr) join.black_box = options_.black_box->number();
  send(join);
}

void Daemon::on_message(msg::Message message) {
  if (const auto* welcome = std::get_if<msg::Welcome>(&message)) return on_welcome(*welcome);
  if (const auto* ping = std::get_if<msg::Ping>(&message)) return send(msg::Pong{ping->nonce});
  if (std::holds_alternative<msg::Pong>(message)) return;
  if (std::holds_alternative<msg::Shutdown>(message)) return end({});
  if (const auto* trace = std::get_if<msg::TraceRequest>(&message)) return send(runtime_->trace(*trace));
  if (const auto* blocks = std::get_if<msg::BlocksRequest>(&message)) return send(runtime_->blocks(*blocks));
  if (const auto* probe = std::get_if<msg::LinkProbe>(&message)) return runtime_->post(*probe);
  if (const auto* refusal = std::get_if<msg::Refusal>(&message)) {
    return daemon::log_warn("the scheduler refused a message", {{"why", refusal->why.message}});
  }
  if (auto* log = std::get_if<msg::Log>(&message); log != nullptr && self_)
    return logs_.push_back(std::move(*log));
  daemon::log_warn("unexpected message", {{"message", msg::name_of(message)}});
}

void Daemon::on_welcome(const msg::Welcome& welcome) {
  if (!welcome.refused.ok())
    return end(error(welcome.refused.code, "the scheduler refused us: " + welcome.refused.message));
  if (self_) return;
  self_ = welcome.you;
  if (options_.black_box != nullptr) options_.black_box->set_worker(self_, welcome.durable);
  exchange_->set_self(self_);
  service_->bind(self_, *runtime_);
  const Status started = runtime_->start(welcome, *service_, [this](const msg::Message& m) { send(m); });
  if (!started) return end(started);
  daemon::log_info(
      "joined", {{"id", self_.value}, {"scheduler", options_.scheduler.to_string()}, {"term", welcome.term}});
  on_ready_(addresses_);
}

void Daemon::send(const msg::Message& message) {
  if (ended_ || !courier_) return;
  Status sent = codec::encode(message, buffer_);
  if (sent) sent = courier_->send(codec::frame_type(message), buffer_.bytes());
  if (!sent)
    end(error(sent.error().code, "scheduler " + options_.scheduler.to_string() + ": cannot send a " +
                                     std::string(msg::name_of(message)) + ": " + sent.error().message));
}

// ---- peers ---------------------------------------------------------------------------------------------------------

// Two workers that cannot reach each other would wait for each other's blocks for ever. If the scheduler still thinks
// that both are there after a while, the younger one leaves, which ends what depended on it with a typed error.
void Daemon::on_unreachable(WorkerId peer, const Error& why) {
  if (service_->is_lost(peer)) return;
  daemon::log_debug("peer unreachable", {{"id", peer.value}, {"why", to_string(why)}});
  // Whoever leaves closes this link and then the scheduler's, which is the usual case and no matter for operators.
  loop_.after(kLeavingNs, [this, peer, why] {
    if (!service_->is_lost(peer))
      daemon::log_warn("peer unreachable", {{"id", peer.value}, {"why", to_string(why)}});
  });
  if (peer > self_ || !service_->is_worker(peer)) return;
  leave_if_unreachable(peer, why, monotonic_now());
}

// A scheduler that was away needs its time to notice who did not come back.
void Daemon::leave_if_unreachable(WorkerId peer, const Error& why, TimeNs since) {
  const TimeNs silent =
      why.code == Errc::kTimeout ? 0 : options_.silence_ns;  // a time-out has waited for that
  if (const TimeNs left = courier_->patience_left(since, silent + kUnreachableNs, monotonic_now());
      left > 0) {
    loop_.after(left, [this, peer, why, since] {
      if (!service_->is_lost(peer)) leave_if_unreachable(peer, why, since);
    });
    return;
  }
  end(error(why.code, "cannot reach worker " + std::to_string(peer.value) + ": " + why.message));
}

// ---- one turn ------------------------------------------------------------------------------------------------------

bool Daemon::turn() {
  if (options_.black_box != nullptr) options_.black_box->beat();
  if (ended_) return false;
  const TimeNs now = monotonic_now();
  bool did = apply_some();
  did |= runtime_->pump(now);
  if (Status ok = runtime_->health(); !ok) {
    end(ok);
    return false;
  }
  did |= exchange_->poll();
  did |= service_->poll();
  if (runtime_->leaves()) {
    daemon::log_info("drained, leaving");
    end({});
    return false;
  }
  if (options_.one_core) {
    const bool waiting = runtime_->has_tasks() && !runtime_->executing();
    loop_.set_spin(waiting ? kWaitSpinNs : 0);
  }
  if (!did) arm_timer(now);
  return did;
}

// A piece of the scheduler's log: others are heard in between, its pings first of all.
bool Daemon::apply_some() {
  std::size_t ops = 0;
  while (!logs_.empty() && ops < kTurnOps) {
    msg::Log& log = logs_.front();
    msg::Log piece{log.term, log.first + log_applied_, {}};
    for (; log_applied_ < log.entries.size() && ops < kTurnOps; ++log_applied_) {
      ops += weight_of(log.entries[log_applied_]);
      piece.entries.push_back(log.entries.give(log_applied_));
    }
    if (log_applied_ == log.entries.size()) logs_.pop_front(), log_applied_ = 0;
    runtime_->post(std::move(piece));
  }
  return ops > 0;
}

void Daemon::arm_timer(TimeNs now) {
  // Before it has joined too: the supervisor counts the turns.
  const TimeNs latest = now + BlackBox::kBeatNs;
  const TimeNs next = self_ ? std::min(runtime_->next_deadline(), latest) : latest;
  if (timer_ != 0 && timer_at_ <= next) return;  // one that comes early arms the next
  if (timer_ != 0) loop_.cancel(timer_);
  timer_at_ = next;
  timer_ = loop_.after(std::max<TimeNs>(next - now, 10 * kMicrosecond), [this] { timer_ = 0; });
}

void Daemon::end(Status why) {
  if (std::exchange(ended_, true)) return;
  // Not now: we may be inside the runtime or a link.
  loop_.defer([this, why = std::move(why)] { on_end_(why); });
}

}  // namespace tilewise::worker
