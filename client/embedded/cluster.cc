#include <tilewise/embedded/cluster.h>

#include <tilewise/config/allowance.h>
#include <tilewise/device/cuda.h>
#include <tilewise/msg/cases.h>
#include <tilewise/net/event_loop.h>
#include <tilewise/scheduler/core.h>
#include <tilewise/store/spill_file.h>
#include <tilewise/worker/local_lane.h>
#include <tilewise/worker/runtime.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "foreign_memory.h"

namespace tilewise::embedded {
namespace {

const Error kNotSent{Errc::kNotFound, "the sender does not send it"};

constexpr std::uint32_t kFirstClientConn = 1'000'000;

class Impl;

// One client of the cluster. Lives on the user's side; the cluster's thread calls its callbacks.
class LocalEndpoint final : public client::Endpoint {
 public:
  LocalEndpoint(std::shared_ptr<Impl> cluster, scheduler::Conn conn)
      : cluster_(std::move(cluster)), conn_(conn) {}
  ~LocalEndpoint() override;
  const msg::Welcome& welcome() const override { return welcome_; }
  void start(client::EndpointCallbacks callbacks) override;
  void stop() override;
  void send(msg::Message message) override;
  void send(WorkerId peer, msg::PeerBatch batch) override;
  const std::byte* map(DeviceId device, std::uint32_t slab, std::int64_t offset, std::int64_t bytes) override;
  std::shared_ptr<const void> pin(DeviceId device, std::uint32_t slab) override;
  std::optional<Place> lend(const std::shared_ptr<const void>& owner, std::span<const std::byte> bytes,
                            bool adoptable) override;
  void withdraw(std::uint32_t slab) override;
  bool reads_in_place(WorkerId worker) const override;
  std::int64_t kept_bytes() const override;
  void receive(DeviceId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
               std::function<void(Status)> done) override;
  void disarm(WorkerId from, std::uint64_t transfer) override;
  void transmit(DeviceId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                std::function<void(Status)> done) override;

 private:
  friend class Impl;
  friend class LocalService;
  const std::shared_ptr<Impl> cluster_;  // which may have ended
  scheduler::Conn conn_;
  msg::Welcome welcome_;
  std::promise<void> welcomed_;
  client::EndpointCallbacks callbacks_;  // the cluster's thread only
  std::vector<msg::Message> early_;      // came before start()
  bool stopped_ = false;
};

// A worker's way to its peers, all of them in this process.
class LocalService final : public worker::DataService {
 public:
  LocalService(Impl& cluster, std::size_t index) : cluster_(cluster), index_(index) {}
  void peer_joined(const msg::PeerInfo& peer) override;
  void peer_lost(WorkerId) override {}
  void slab_added(DeviceId device, std::uint32_t slab, const device::Slab& memory) override;
  void send(WorkerId peer, msg::PeerBatch batch) override;
  bool inlines(WorkerId) const override { return false; }
  const std::byte* mapped(DeviceId device, std::uint32_t slab) const override;
  void given_back(const msg::Done& done) override;
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                device::Kind kind, Parts parts, OnSent sent) override;
  void refuse(WorkerId to, std::uint64_t transfer, const Error& why) override;
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, device::Kind kind,
               bool in_parts) override;
  void disarm(WorkerId from, std::uint64_t transfer) override;

 private:
  Impl& cluster_;
  std::size_t index_;
};

// Lives as long as its Cluster or a client, and works until the Cluster goes.
class Impl final : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(ClusterOptions options)
      : options_(std::move(options)),
        scheduler_({.max_lineage_ops = 0, .max_recompute_ns = 0, .link_probes = true}) {}
  ~Impl() { end(); }
  Status init();
  std::unique_ptr<client::Endpoint> connect(std::string name);
  void end();

 private:
  friend class LocalEndpoint;
  friend class LocalService;
  struct WorkerSide {
    WorkerId id;
    std::unique_ptr<LocalService> service;
    std::unique_ptr<worker::Runtime> runtime;
  };
  struct PeerMail {  // from a client to a worker
    WorkerId from, to;
    msg::PeerBatch batch;
  };

  Result<std::vector<std::unique_ptr<device::Device>>> make_devices(int worker);
  std::string host_of(std::size_t worker) const {
    if (options_.workers_a_host == 0) return "self";
    return "host-" + std::to_string(worker / static_cast<std::size_t>(options_.workers_a_host));
  }
  TimeNs spin_ns() const { return options_.spin_ns.value_or(usable_cores_ >= 4 ? 50'000 : 0); }
  bool turn();
  void route(scheduler::Action& action);
  void to_worker(std::size_t index, msg::Message& message);
  void arm_timer(TimeNs now);
  WorkerSide* worker_of(WorkerId id);
  // False: it has ended, and nothing was done. No thread calls clients any more.
  bool on_thread(std::function<void()> fn);
  void post_and_wait(const std::function<void()>& fn);
  void call(std::function<void()> fn);
  void tell(const std::function<void()>& put);

  ClusterOptions options_;
  const int usable_cores_ = config::core_allowance().cores;
  kernels::PluginTable plugins_;
  std::unique_ptr<net::EventLoop> loop_;
  scheduler::Core scheduler_;
  device::Copier copier_;
  worker::LocalLane lane_{copier_};
  ForeignMemory foreign_;  // outlives the workers, which read it
  std::vector<WorkerSide> workers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, device::Slab> slabs_;  // (device, slab)
  std::map<std::uint32_t, device::Kind> kinds_;                            // device
  std::map<std::uint32_t, WorkerId> worker_by_device_;
  std::map<std::uint32_t, LocalEndpoint*> clients_;        // conn
  std::map<std::uint32_t, LocalEndpoint*> clients_by_id_;  // WorkerId
  std::mutex
      mutex_;  // guards the three mailboxes; calls come before mail: a receive is armed before its grant leaves
  std::vector<scheduler::Event> inbox_;
  std::vector<std::function<void()>> calls_;
  std::vector<PeerMail> mail_;
  std::vector<scheduler::Event> events_;
  std::vector<scheduler::Action> actions_;
  std::vector<PeerMail> mail_now_;
  std::vector<std::function<void()>> calls_now_;
  net::TimerId timer_ = 0;
  TimeNs timer_at_ = 0;
  std::uint32_t next_client_ = kFirstClientConn;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_;  // its own
  // The end: no call is begun on the thread once it is `ended_`, which waits for those there are; when it is `over_` no thread calls
  // clients any more.
  std::mutex end_mutex_;
  std::condition_variable end_changed_;
  int calls_there_ = 0;
  bool ended_ = false, over_ = false;
};

// ---- starting and ending -------------------------------------------------------------------------------------------

Result<std::vector<std::unique_ptr<device::Device>>> Impl::make_devices(int worker) {
  std::vector<std::unique_ptr<device::Device>> devices;
  if (options_.use_cuda && worker == 0) {
    for (int i = 0; i < device::cuda_device_count(); ++i) {
      TW_ASSIGN(auto device,
                device::make_cuda_device({.ordinal = i, .memory_bytes = options_.cuda_memory_bytes}));
      devices.push_back(std::move(device));
    }
  }
  const int cores = options_.cores > 0 ? options_.cores : usable_cores_;
  int hosts = options_.host_devices;
  if (hosts == 0 && devices.empty()) hosts = std::max(1, cores / options_.workers);
  const std::int64_t memory = options_.memory_bytes > 0 ? options_.memory_bytes
                                                        : config::memory_allowance().now.bytes / 10 * 6 /
                                                              std::max(1, hosts * options_.workers);
  for (int i = 0; i < hosts; ++i) {
    device::HostOptions host;
    host.ordinal = i;
    host.memory_bytes = memory;
    host.spin_ns = spin_ns() / 2;
    if (options_.cores > 0) {  // shared out over the host devices of all workers
      const int all = hosts * options_.workers, index = worker * hosts + i;
      host.threads = std::max(1, cores / all + (index < cores % all ? 1 : 0));
    }
    devices.push_back(device::make_host_device(host));
  }
  return devices;
}

Status Impl::init() {
  if (options_.workers < 1 || options_.workers > 1024 || options_.host_devices < 0 ||
      options_.host_devices > 1024 || options_.workers_a_host < 0) {
    return error(Errc::kInvalidArgument,
                 "an embedded cluster has 1 to 1024 workers of 0 to 1024 host devices");
  }
  TW_TRY(plugins_.add(kernels::builtin_kernels()));
  for (const std::string& path : options_.plugins) TW_TRY(plugins_.load(path));
  TW_ASSIGN(loop_, net::EventLoop::create({.spin_ns = spin_ns()}));
  std::vector<std::promise<void>> ready(static_cast<std::size_t>(options_.workers));
  for (int w = 0; w < options_.workers; ++w) {
    TW_ASSIGN(auto devices, make_devices(w));
    const bool gpus = std::ranges::any_of(
        devices, [](const auto& device) { return device->info().kind == device::Kind::kCuda; });
    WorkerSide side;
    side.service = std::make_unique<LocalService>(*this, static_cast<std::size_t>(w));
    worker::RuntimeOptions runtime;
    runtime.map_peers = options_.map_peers;
    runtime.adopts = true;
    runtime.reference_kernels = options_.reference_kernels;
    runtime.stuck_ns = options_.stuck_ns;
    runtime.host = host_of(static_cast<std::size_t>(w));
    side.runtime = std::make_unique<worker::Runtime>(std::move(devices), &plugins_, runtime, copier_,
                                                     [this] { loop_->wake(); });
    msg::Join join;
    join.role = msg::Role::kWorker;
    join.name = "embedded-" + std::to_string(w);
    join.software_version = "embedded";
    join.host_id = runtime.host;
    if (!options_.spill_directory.empty()) {
      TW_ASSIGN(auto file,
                store::SpillFile::open({options_.spill_directory, options_.spill_bytes / options_.workers}));
      TW_TRY(side.runtime->use_disk(std::move(file)));
    }
    if (gpus && options_.pinned_bytes > 0) TW_TRY(side.runtime->use_pinned(options_.pinned_bytes));
    join.devices = side.runtime->describe();
    for (const auto& plugin : plugins_.entries()) {
      for (const std::string& kernel : plugin.kernels)
        join.plugins.push_back({kernel, plugin.version, plugin.hash});
    }
    inbox_.push_back(
        scheduler::Received{scheduler::Conn{static_cast<std::uint32_t>(w + 1)}, std::move(join)});
    workers_.push_back(std::move(side));
  }
  loop_->set_batch_hook([this] { return turn(); });
  while (turn()) {  // the joins, before anybody connects
  }
  for (const WorkerSide& side : workers_) {
    if (!side.id) return error(Errc::kInternal, "the embedded scheduler refused its worker");
  }
  thread_ = std::thread([this] {
    thread_id_ = std::this_thread::get_id();
    loop_->run();
  });
  return {};
}

// Afterwards clients may still ask: they hear nothing.
void Impl::end() {
  {
    std::unique_lock lock(end_mutex_);
    if (std::exchange(ended_, true)) return;
    end_changed_.wait(lock, [this] { return calls_there_ == 0; });
  }
  if (thread_.joinable()) {
    post_and_wait([this] {
      for (auto& [conn, endpoint] : clients_) {
        if (endpoint->callbacks_.on_lost)
          endpoint->callbacks_.on_lost(error(Errc::kUnavailable, "the embedded cluster ended"));
        lane_.forget(endpoint->welcome_.you);
      }
    });
    loop_->stop();
    thread_.join();
  }
  for (const WorkerSide& side : workers_) side.runtime->drain();  // they read each other's memory
  workers_.clear();  // while the loop that they wake still exists
  slabs_.clear();
  {
    std::lock_guard lock(mutex_);
    inbox_.clear(), calls_.clear(), mail_.clear();  // what they hold may hold this
  }
  std::lock_guard lock(end_mutex_);
  over_ = true;
  end_changed_.notify_all();
}

bool Impl::on_thread(std::function<void()> fn) {
  if (std::this_thread::get_id() == thread_id_) return fn(), true;
  std::unique_lock lock(end_mutex_);
  if (ended_) {
    end_changed_.wait(lock, [this] { return over_; });
    return false;
  }
  ++calls_there_;
  lock.unlock();
  post_and_wait(fn);
  lock.lock();
  --calls_there_;
  end_changed_.notify_all();
  return true;
}

void Impl::post_and_wait(const std::function<void()>& fn) {
  std::promise<void> done;
  loop_->post([&] {
    fn();
    done.set_value();
  });
  done.get_future().wait();
}

void Impl::call(std::function<void()> fn) {
  tell([&] { calls_.push_back(std::move(fn)); });
}

// Puts something into a mailbox.
void Impl::tell(const std::function<void()>& put) {
  std::lock_guard ending(end_mutex_);
  if (ended_) return;
  {
    std::lock_guard lock(mutex_);
    put();
  }
  loop_->wake();
}

std::unique_ptr<client::Endpoint> Impl::connect(std::string name) {
  std::unique_ptr<LocalEndpoint> endpoint;
  on_thread([&] {
    const scheduler::Conn conn{next_client_++};
    endpoint = std::make_unique<LocalEndpoint>(shared_from_this(), conn);
    clients_[conn.value] = endpoint.get();
    msg::Join join;
    join.role = msg::Role::kClient;
    join.name = std::move(name);
    join.software_version = "embedded";
    join.host_id = "self";
    join.devices.push_back({"client", 0, "client memory", "", 0, 1});
    std::lock_guard lock(mutex_);
    inbox_.push_back(scheduler::Received{conn, std::move(join)});
  });
  endpoint->welcomed_.get_future().wait();
  return endpoint;
}

// ---- one turn of the cluster's thread ------------------------------------------------------------------------------

bool Impl::turn() {
  bool any = false;
  for (int rounds = 0; rounds < 64; ++rounds) {
    const TimeNs now = monotonic_now();
    {
      std::lock_guard lock(mutex_);
      events_.swap(inbox_);
      calls_now_.swap(calls_);
      mail_now_.swap(mail_);
    }
    bool did = !mail_now_.empty() || !calls_now_.empty();
    for (const std::function<void()>& call : std::exchange(calls_now_, {})) call();
    for (PeerMail& mail : mail_now_) {
      WorkerSide* to = worker_of(mail.to);
      if (to == nullptr) continue;
      for (const msg::Offer& offer : mail.batch.offers) foreign_.offered(offer);
      to->runtime->post(worker::PeerBatchReceived{mail.from, std::move(mail.batch)});
    }
    mail_now_.clear();
    if (!events_.empty() || now >= scheduler_.next_deadline()) {
      actions_.clear();
      did |= !events_.empty();
      scheduler_.step(events_, now, actions_);
      events_.clear();
      for (scheduler::Action& action : actions_) route(action);
    }
    for (WorkerSide& side : workers_) did |= side.runtime->pump(now);
    did |= copier_.poll();
    any |= did;
    if (!did) {
      arm_timer(now);
      break;
    }
  }
  return any;
}

void Impl::arm_timer(TimeNs now) {
  TimeNs next = scheduler_.next_deadline();
  for (const WorkerSide& side : workers_) next = std::min(next, side.runtime->next_deadline());
  if (timer_ != 0 && timer_at_ <= next && timer_at_ > now) return;
  if (timer_ != 0) loop_->cancel(timer_);
  timer_at_ = next;
  timer_ = loop_->after(std::max<TimeNs>(1'000, next - now), [this] { timer_ = 0; });
}

void Impl::route(scheduler::Action& action) {
  auto* send = std::get_if<scheduler::Send>(&action);
  if (send == nullptr) return;
  if (send->to.value < kFirstClientConn) return to_worker(send->to.value - 1, send->message);
  const auto it = clients_.find(send->to.value);
  if (it == clients_.end()) return;
  LocalEndpoint& endpoint = *it->second;
  if (auto* welcome = std::get_if<msg::Welcome>(&send->message)) {
    endpoint.welcome_ = *welcome;
    clients_by_id_[welcome->you.value] = &endpoint;
    for (DeviceId d : welcome->devices) kinds_[d.value] = device::Kind::kHost;
    endpoint.welcomed_.set_value();
    return;
  }
  if (const auto* ping = std::get_if<msg::Ping>(&send->message)) {
    std::lock_guard lock(mutex_);
    inbox_.push_back(scheduler::Received{send->to, msg::Pong{ping->nonce}});
  }
  if (endpoint.callbacks_.on_message)
    endpoint.callbacks_.on_message(std::move(send->message));
  else
    endpoint.early_.push_back(std::move(send->message));
}

void Impl::to_worker(std::size_t index, msg::Message& message) {
  WorkerSide& side = workers_[index];
  const scheduler::Conn conn{static_cast<std::uint32_t>(index + 1)};
  const auto says = [this, conn](msg::Message m) {
    std::lock_guard lock(mutex_);
    inbox_.push_back(scheduler::Received{conn, std::move(m)});
  };
  std::visit(
      msg::Cases{
          [&](msg::Welcome& welcome) {
            side.id = welcome.you;
            const auto descriptions = side.runtime->describe();
            for (std::size_t i = 0; i < welcome.devices.size() && i < descriptions.size(); ++i) {
              kinds_[welcome.devices[i].value] = static_cast<device::Kind>(descriptions[i].kind);
              worker_by_device_[welcome.devices[i].value] = welcome.you;
            }
            if (!side.runtime->start(welcome, *side.service, says)) side.id = {};
          },
          [&](msg::Log& log) { side.runtime->post(std::move(log)); },
          [&](const msg::LinkProbe& probe) { side.runtime->post(probe); },
          [&](const msg::Ping& ping) { says(msg::Pong{ping.nonce}); },
          [&](const msg::TraceRequest& request) { says(side.runtime->trace(request)); },
          [&](const msg::BlocksRequest& request) { says(side.runtime->blocks(request)); },
          // Its end is the cluster's; it joins once, over a link that does not break, and asks nothing.
          msg::Ignored<msg::Shutdown, msg::Resumed, msg::Ack, msg::Pong, msg::Refusal, msg::SubmitReply,
                       msg::GraphProgress, msg::GraphDone, msg::StatusReply, msg::Explanation,
                       msg::TraceReply, msg::BlocksReply, msg::DrainReply>{},
          msg::NeverOfScheduler{}},
      static_cast<msg::Message::variant&>(message));
}

Impl::WorkerSide* Impl::worker_of(WorkerId id) {
  for (WorkerSide& side : workers_) {
    if (side.id == id) return &side;
  }
  return nullptr;
}

// ---- a worker's peers ----------------------------------------------------------------------------------------------

void LocalService::peer_joined(const msg::PeerInfo& peer) {
  // Of clients: what they lend.
  cluster_.workers_[index_].runtime->post(
      worker::PeerReady{peer.id, peer.host_id == cluster_.host_of(index_)});
}

void LocalService::slab_added(DeviceId device, std::uint32_t slab, const device::Slab& memory) {
  cluster_.slabs_[{device.value, slab}] = memory;
}

void LocalService::send(WorkerId peer, msg::PeerBatch batch) {
  const WorkerId self = cluster_.workers_[index_].id;
  if (Impl::WorkerSide* to = cluster_.worker_of(peer)) {
    to->runtime->post(worker::PeerBatchReceived{self, std::move(batch)});
    return;
  }
  const auto it = cluster_.clients_by_id_.find(peer.value);
  if (it == cluster_.clients_by_id_.end()) return;
  if (it->second->callbacks_.on_peer) it->second->callbacks_.on_peer(self, std::move(batch));
}

void LocalService::given_back(const msg::Done& done) { cluster_.foreign_.given_back(done); }

const std::byte* LocalService::mapped(DeviceId device, std::uint32_t slab) const {
  if (worker::is_foreign(slab)) return cluster_.foreign_.find(slab);
  const auto it = cluster_.slabs_.find({device.value, slab});
  return it == cluster_.slabs_.end() ? nullptr : it->second.data;
}

void LocalService::transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                            device::Kind kind, Parts /* there is one host */, OnSent sent) {
  cluster_.lane_.transmit(to, transfer, {const_cast<std::byte*>(from), kind}, bytes, std::move(sent));
}

void LocalService::refuse(WorkerId to, std::uint64_t transfer, const Error& why) {
  cluster_.lane_.refuse(to, transfer, why);
}

void LocalService::receive(WorkerId, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                           device::Kind kind, bool /* in_parts */) {
  Impl::WorkerSide& side = cluster_.workers_[index_];
  cluster_.lane_.receive(
      side.id, transfer, {to, kind}, bytes, [runtime = side.runtime.get(), transfer](const Status& ok) {
        runtime->post(
            worker::TransferDone{transfer, ok ? Error{Errc::kOk, {}} : ok.error(), msg::Lane::kPeerCopy});
      });
}

void LocalService::disarm(WorkerId, std::uint64_t transfer) {
  cluster_.lane_.refuse(cluster_.workers_[index_].id, transfer, kNotSent);
}

// ---- a client ------------------------------------------------------------------------------------------------------

LocalEndpoint::~LocalEndpoint() { stop(); }

void LocalEndpoint::stop() {
  if (std::exchange(stopped_, true)) return;
  cluster_->on_thread([this] {
    // What this endpoint has asked for and was not begun: begun while it lives, then forgotten.
    std::vector<std::function<void()>> due;
    {
      std::lock_guard lock(cluster_->mutex_);
      due.swap(cluster_->calls_);
    }
    for (const std::function<void()>& call : due) call();
    cluster_->clients_.erase(conn_.value);
    cluster_->clients_by_id_.erase(welcome_.you.value);
    cluster_->lane_.forget(welcome_.you);
    {
      // Offers that nobody has had are not counted as loans yet.
      std::lock_guard lock(cluster_->mutex_);
      std::erase_if(cluster_->mail_, [&](const auto& mail) { return mail.from == welcome_.you; });
    }
    cluster_->foreign_.lender_gone(conn_.value);
    std::lock_guard lock(cluster_->mutex_);
    cluster_->inbox_.push_back(scheduler::Closed{conn_, error(Errc::kUnavailable, "the session ended")});
  });
  cluster_->loop_->wake();
}

void LocalEndpoint::start(client::EndpointCallbacks callbacks) {
  const bool there = cluster_->on_thread([&] {
    callbacks_ = std::move(callbacks);
    for (msg::Message& message : std::exchange(early_, {})) callbacks_.on_message(std::move(message));
  });
  if (!there) callbacks.on_lost(error(Errc::kUnavailable, "the embedded cluster ended"));
}

void LocalEndpoint::send(msg::Message message) {
  cluster_->tell([&] { cluster_->inbox_.push_back(scheduler::Received{conn_, std::move(message)}); });
}

void LocalEndpoint::send(WorkerId peer, msg::PeerBatch batch) {
  cluster_->tell([&] { cluster_->mail_.push_back({welcome_.you, peer, std::move(batch)}); });
}

const std::byte* LocalEndpoint::map(DeviceId device, std::uint32_t slab, std::int64_t offset, std::int64_t) {
  if (worker::is_foreign(slab)) {
    const std::byte* data = cluster_->foreign_.find(slab);
    return data == nullptr ? nullptr : data + offset;
  }
  const auto it = cluster_->slabs_.find({device.value, slab});
  if (it == cluster_->slabs_.end() || cluster_->kinds_[device.value] != device::Kind::kHost) return nullptr;
  return it->second.data + offset;
}

// The cluster's own memory, which outlives the endpoint.
std::shared_ptr<const void> LocalEndpoint::pin(DeviceId device, std::uint32_t slab) {
  const auto it = cluster_->slabs_.find({device.value, slab});
  return it == cluster_->slabs_.end() ? nullptr
                                      : std::shared_ptr<const void>(std::shared_ptr<void>(), it->second.data);
}

std::optional<client::Endpoint::Place> LocalEndpoint::lend(const std::shared_ptr<const void>& owner,
                                                           std::span<const std::byte> bytes, bool adoptable) {
  if (!cluster_->options_.map_peers) return std::nullopt;
  return cluster_->foreign_.lend(conn_.value, owner, bytes, adoptable);
}

void LocalEndpoint::withdraw(std::uint32_t slab) { cluster_->foreign_.withdraw(slab); }

bool LocalEndpoint::reads_in_place(WorkerId worker) const {
  for (std::size_t w = 0; w < cluster_->workers_.size(); ++w)
    if (cluster_->workers_[w].id == worker) return cluster_->host_of(w) == "self";
  return false;
}

std::int64_t LocalEndpoint::kept_bytes() const { return cluster_->foreign_.kept_bytes(); }

void LocalEndpoint::receive(DeviceId, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                            std::function<void(Status)> done) {
  cluster_->call([this, me = welcome_.you, transfer, to, bytes, done = std::move(done)] {
    cluster_->lane_.receive(me, transfer, {to, device::Kind::kHost}, bytes, done);
  });
}

void LocalEndpoint::disarm(WorkerId, std::uint64_t transfer) {
  cluster_->call([this, me = welcome_.you, transfer] { cluster_->lane_.refuse(me, transfer, kNotSent); });
}

void LocalEndpoint::transmit(DeviceId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                             std::function<void(Status)> done) {
  cluster_->call([this, to, transfer, from, bytes, done = std::move(done)] {
    const auto worker = cluster_->worker_by_device_.find(to.value);
    if (worker == cluster_->worker_by_device_.end()) return done(error(Errc::kNotFound, "no such device"));
    cluster_->lane_.transmit(worker->second, transfer, {const_cast<std::byte*>(from), device::Kind::kHost},
                             bytes, done);
  });
}

// ---- who owns it ---------------------------------------------------------------------------------------------------

class Started final : public Cluster {
 public:
  explicit Started(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  ~Started() override { impl_->end(); }
  std::unique_ptr<client::Endpoint> connect(std::string name) override {
    return impl_->connect(std::move(name));
  }

 private:
  const std::shared_ptr<Impl> impl_;
};

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::start(const ClusterOptions& options) {
  const auto impl = std::make_shared<Impl>(options);
  TW_TRY(impl->init());
  return std::make_unique<Started>(impl);
}

}  // namespace tilewise::embedded
