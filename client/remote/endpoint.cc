#include "endpoint.h"

#include <tilewise/config/token.h>
#include <tilewise/config/version.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <future>

namespace tilewise::remote {
namespace {

constexpr TimeNs kRetryNs = 100 * kMillisecond;
// A waiting thread yields for so long before it parks. It takes nothing from others, but keeps a processor from sleeping:
// in a virtual machine the answer would otherwise have to wait for it to come back.
constexpr TimeNs kWaitSpinNs = 250 * kMicrosecond;
// Beyond the limit of silence, which is the scheduler's too: by then it has lost a worker that is dead.
constexpr TimeNs kUnreachableNs = 2 * kSecond;
constexpr TimeNs kTellEveryNs = kSecond;  // while it is so

}  // namespace

// ---- beginning and end ---------------------------------------------------------------------------------------------

// Runs the loop on the calling thread; nobody else knows of it yet.
Result<std::unique_ptr<net::Link>> RemoteEndpoint::dial(TimeNs until) {
  const std::string where = "scheduler " + options_.scheduler.to_string() + ": ";
  for (;;) {
    net::HandshakeOptions handshake{.token = options_.token, .silence_ns = options_.silence_ns};
    handshake.deadline_ns = std::max(until - monotonic_now(), kRetryNs);
    std::optional<Result<std::unique_ptr<net::Link>>> made;
    const auto attempt =
        net::connect(*loop_, options_.scheduler, handshake,
                     [&](Result<std::unique_ptr<net::Link>> link) { made.emplace(std::move(link)); });
    loop_->run_until([&] { return made.has_value(); }, handshake.deadline_ns + kSecond);
    if (!made) return error(Errc::kTimeout, where + "no answer");
    if (*made) return std::move(**made);
    const Error& why = made->error();
    // A launcher may start the scheduler and its clients at once.
    if (why.code != Errc::kUnavailable || monotonic_now() + kRetryNs > until)
      return error(why.code, where + why.message);
    loop_->run_until([] { return false; }, kRetryNs);
  }
}

Status RemoteEndpoint::init() {
  const TimeNs until = monotonic_now() + options_.timeout_ns;
  TW_ASSIGN(loop_, net::EventLoop::create());
  exchange::Options peers{.token = options_.token};
  peers.host_id = config::host_id();
  peers.map_peers = options_.map_peers;
  peers.strict_lanes = options_.strict_lanes;
  peers.silence_ns = options_.silence_ns;
  peers.resume_ns = options_.link_ns;
  peers.link_deadline_ns = std::max(peers.link_deadline_ns, options_.link_ns);
  peers.gives_up = false;
  if (net::is_loopback(options_.scheduler)) peers.ucx.net_devices = "lo";
  exchange::Callbacks callbacks;
  callbacks.on_batch = [this](WorkerId from, msg::PeerBatch batch) {
    if (!told_) callbacks_.on_peer(from, std::move(batch));
  };
  callbacks.on_unreachable = [this](WorkerId peer, const Error& why) { on_unreachable(peer, why); };
  callbacks.on_cut_off = [this](WorkerId peer, const Error& why) { on_unreachable(peer, why); };
  const auto reached = [this](WorkerId peer) {
    forget(peer);
    tell_failed();
  };
  callbacks.on_ready = [reached](WorkerId peer, bool) { reached(peer); };
  callbacks.on_back = reached;
  TW_ASSIGN(exchange_, exchange::Exchange::create(*loop_, std::move(peers), std::move(callbacks)));
  // When all that takes time is done: a link on which nobody joins is not kept.
  TW_ASSIGN(std::unique_ptr<net::Link> link, dial(until));

  courier::Handlers handlers;
  handlers.on_message = [this](msg::Message message) { on_message(std::move(message)); };
  handlers.on_lost = [this](const Error& why) { lose(why); };
  courier_ = std::make_unique<courier::Courier>(
      *loop_,
      courier::Options{options_.scheduler, options_.token, options_.reconnect_ns, options_.lease_ns,
                       options_.silence_ns},
      std::move(handlers), std::move(link));
  msg::Join join;
  join.role = msg::Role::kClient;
  join.name = options_.name.empty() ? config::process_name() : options_.name;
  join.software_version = config::software_version();
  join.host_id = config::host_id();
  join.lease_ns = options_.lease_ns;
  join.devices.push_back({"client", 0, "client memory", "", 0, 1});
  msg::Message message = std::move(join);
  perform(message);
  const auto welcomed = [&] { return welcome_.you || !welcome_.refused.ok() || lost_; };
  if (!loop_->run_until(welcomed, std::max(until - monotonic_now(), kRetryNs))) {
    return error(Errc::kTimeout,
                 "the scheduler at " + options_.scheduler.to_string() + " did not welcome us");
  }
  if (!welcome_.refused.ok()) return error(welcome_.refused.code, welcome_.refused.message);
  if (!welcome_.you) return *lost_;
  // Whoever asks for the devices next is told of those that there are.
  (void)loop_->run_until([&] { return introduced_ >= welcome_.introduced || lost_; },
                         std::max(until - monotonic_now(), kRetryNs));
  if (lost_) return *lost_;
  exchange_->set_self(welcome_.you);
  loop_->set_batch_hook([this] { return turn(); });
  role_.emplace(*loop_);
  thread_ = std::thread([this] { role_->serve(); });
  return {};
}

RemoteEndpoint::~RemoteEndpoint() { stop(); }

void RemoteEndpoint::stop() {
  if (thread_.joinable()) {
    role_->stop();
    thread_.join();
    perform_calls();  // the last ones: releases, say
    msg::Message leave = msg::Leave{};
    if (courier_ && options_.lease_ns > 0) perform(leave);
    if (courier_) courier_->flush();
  }
  exchange_.reset();
  courier_.reset();
  calls_.clear();
}

void RemoteEndpoint::start(client::EndpointCallbacks callbacks) {
  std::promise<void> done;  // what has come is known to the session when it is made
  loop_->post([this, &done, callbacks = std::move(callbacks)]() mutable {
    callbacks_ = std::move(callbacks);
    started_ = true;
    for (msg::Message& message : std::exchange(early_, {})) deliver(std::move(message));
    if (lost_) lose(*lost_);
    done.set_value();
  });
  done.get_future().wait();
}

// ---- calls, from any thread ----------------------------------------------------------------------------------------

void RemoteEndpoint::call(Call call) {
  const bool message = std::holds_alternative<msg::Message>(call);
  bool first;
  {
    const std::scoped_lock lock(mutex_);
    first = calls_.empty();
    calls_.push_back(std::move(call));
  }
  if (!first) return;
  // Between two waits of a user's thread nobody runs the loop. A message can be written without it: that brings no
  // callback, and saves waking a thread.
  if (!role_->take_free()) return loop_->wake();
  if (message && perform_calls()) courier_->flush();
  role_->release();
  if (!message) role_->hurry();
}

bool RemoteEndpoint::drive(const std::function<bool()>& done, TimeNs timeout_ns) {
  const TimeNs until = monotonic_now() + timeout_ns;
  if (!role_->take(until)) return false;
  loop_->set_spin(kWaitSpinNs);
  loop_->run_until(done, std::max<TimeNs>(until - monotonic_now(), 1));
  loop_->set_spin(0);
  role_->release();
  return true;
}

void RemoteEndpoint::send(msg::Message message) { call(std::move(message)); }
void RemoteEndpoint::send(WorkerId peer, msg::PeerBatch batch) { call(ToPeer{peer, std::move(batch)}); }

void RemoteEndpoint::receive(DeviceId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                             std::function<void(Status)> done) {
  call(Transfer{true, from, transfer, to, bytes, std::move(done)});
}

void RemoteEndpoint::disarm(WorkerId from, std::uint64_t transfer) { call(Disarm{from, transfer}); }

void RemoteEndpoint::transmit(DeviceId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                              std::function<void(Status)> done) {
  call(Transfer{false, to, transfer, const_cast<std::byte*>(from), bytes, std::move(done)});
}

const std::byte* RemoteEndpoint::map(DeviceId device, std::uint32_t slab, std::int64_t offset,
                                     std::int64_t bytes) {
  const std::span<const std::byte> memory = exchange_->mapped(device, slab);
  const auto size = static_cast<std::int64_t>(memory.size());
  if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset) return nullptr;
  return memory.empty() ? nullptr : memory.data() + offset;
}

std::shared_ptr<const void> RemoteEndpoint::pin(DeviceId device, std::uint32_t slab) {
  return exchange_->pin(device, slab);
}

Result<std::shared_ptr<std::byte>> RemoteEndpoint::allocate(std::int64_t bytes) {
  if (!options_.map_peers) return client::allocate_plain(bytes);
  return buffers_->take(bytes, [this](std::uint32_t number, const device::Slab& slab) {
    call(NewSlab{number, slab});
  });
}

// The owner is kept by whoever offers the bytes, until its graph is done: then they have been read. Nothing stays there.
std::optional<client::Endpoint::Place> RemoteEndpoint::lend(const std::shared_ptr<const void>& owner,
                                                            std::span<const std::byte> bytes,
                                                            bool adoptable) {
  (void)owner, (void)adoptable;
  return buffers_->find(bytes);
}

// ---- the endpoint's thread -----------------------------------------------------------------------------------------

bool RemoteEndpoint::turn() {
  bool did = perform_calls();
  did |= exchange_->poll();
  return did;
}

bool RemoteEndpoint::perform_calls() {
  {
    const std::scoped_lock lock(mutex_);
    calls_now_.swap(calls_);
  }
  const bool any = !calls_now_.empty();
  for (Call& call : calls_now_) std::visit([this](auto& c) { perform(c); }, call);
  calls_now_.clear();
  return any;
}

void RemoteEndpoint::perform(msg::Message& message) {
  if (lost_) return;
  Status sent = codec::encode(message, buffer_);
  if (sent) sent = courier_->send(codec::frame_type(message), buffer_.bytes());
  if (sent) return;
  const std::string text =
      "a " + std::string(msg::name_of(message)) + " could not be sent: " + sent.error().message;
  // What the codec refuses concerns one request; a gap in the stream concerns them all.
  const auto* submit = std::get_if<msg::Submit>(&message);
  const auto* announce = std::get_if<msg::Announce>(&message);
  if (submit != nullptr || announce != nullptr) {
    const std::uint64_t request = submit != nullptr ? submit->request : announce->request;
    msg::SubmitReply refused{request, {sent.error().code, text}, {}, {}, {}};
    return loop_->defer([this, refused = std::move(refused)] { deliver(refused); });
  }
  loop_->defer([this, why = error(sent.error().code, text)] { lose(why); });
}

void RemoteEndpoint::perform(ToPeer& out) {
  (void)!exchange_->send(out.peer, std::move(out.batch));  // unreachable peers are told about elsewhere
}

void RemoteEndpoint::perform(Transfer& t) {
  const auto owner = owners_.find(t.device);
  const WorkerId worker = owner == owners_.end() ? WorkerId{} : owner->second;  // none: `done` says so
  auto done = [this, worker, done = std::move(t.done)](const Status& status, msg::Lane) {
    if (!done) return;
    if (status || status.error().code != Errc::kUnavailable) return done(status);
    // When this turn is over it is known whether the peer itself is out of reach.
    loop_->defer([this, worker, why = status.error(), done] { transfer_failed(worker, why, done); });
  };
  if (t.receive)
    exchange_->receive(worker, t.transfer, t.bytes, t.size, device::Kind::kHost, std::move(done));
  else
    exchange_->transmit(worker, t.transfer, t.bytes, t.size, device::Kind::kHost, std::move(done));
}

void RemoteEndpoint::perform(Disarm& missing) { exchange_->disarm(missing.from, missing.transfer); }

void RemoteEndpoint::perform(NewSlab& added) {
  exchange_->slab_added(welcome_.devices.front(), added.number, added.slab);
}

void RemoteEndpoint::on_message(msg::Message message) {
  if (const auto* welcome = std::get_if<msg::Welcome>(&message)) {
    if (!welcome_.you) welcome_ = *welcome;
    return;
  }
  if (const auto* ping = std::get_if<msg::Ping>(&message)) {
    msg::Message pong = msg::Pong{ping->nonce};
    perform(pong);
  }
  if (started_) return deliver(std::move(message));
  if (const auto* log = std::get_if<msg::Log>(&message))
    introduced_ += std::ranges::count_if(log->entries, [](const msg::LogEntry& entry) {
      return std::holds_alternative<msg::PeerJoined>(entry);
    });
  early_.push_back(std::move(message));
}

void RemoteEndpoint::deliver(msg::Message message) {
  if (told_ || !started_) return;
  if (const auto* log = std::get_if<msg::Log>(&message)) follow(*log);
  if (callbacks_.on_message) callbacks_.on_message(std::move(message));
  if (!failed_.empty()) tell_failed();  // the session has heard of the loss
}

// Who is out of reach has died, as a rule, and its blocks will be had elsewhere: so a transfer fails when the scheduler has
// said so and not before. If it does not, await_loss() ends the wait, or a link that is there again. Who tried again at once would fail
// at once.
void RemoteEndpoint::transfer_failed(WorkerId peer, const Error& why, std::function<void(Status)> done) {
  if (lost_ || !workers_.contains(peer) || !unreachable_since_.contains(peer)) return done(why);
  failed_.push_back({peer, why, std::move(done)});
}

void RemoteEndpoint::tell_failed() {
  std::vector<Failed> gone;
  std::erase_if(failed_, [&](Failed& failed) {
    if (workers_.contains(failed.peer) && unreachable_since_.contains(failed.peer) &&
        !unreachable_.contains(failed.peer))
      return false;
    gone.push_back(std::move(failed));
    return true;
  });
  for (const Failed& failed : gone) failed.done(failed.why);
}

void RemoteEndpoint::follow(const msg::Log& log) {
  for (const msg::LogEntry& entry : log.entries) {
    if (const auto* joined = std::get_if<msg::PeerJoined>(&entry)) {
      if (joined->peer.role != msg::Role::kWorker) continue;
      for (DeviceId device : joined->peer.devices) owners_[device] = joined->peer.id;
      workers_.insert(joined->peer.id);
      exchange_->peer_joined(joined->peer);
    } else if (std::holds_alternative<msg::PeerLost>(entry) || std::holds_alternative<msg::Drain>(entry)) {
      const auto* lost = std::get_if<msg::PeerLost>(&entry);
      const WorkerId peer = lost != nullptr ? lost->peer : std::get<msg::Drain>(entry).peer;
      if (!peer) continue;  // nobody was lost: the scheduler asks what is here
      workers_.erase(peer);
      forget(peer);
      std::erase_if(owners_, [&](const auto& owner) { return owner.second == peer; });
      exchange_->peer_lost(peer);
    }
  }
}

// The scheduler believes that this worker is there, so what it has or needs would be waited for without end. Whoever has tried for a
// time (exchange) has given the scheduler that time too.
void RemoteEndpoint::on_unreachable(WorkerId peer, const Error& why) {
  const TimeNs tried = why.code == Errc::kTimeout ? options_.link_ns : 0;
  const bool waits = unreachable_since_.contains(peer);
  unreachable_since_[peer] = monotonic_now() - tried;
  if (!waits) await_loss(peer, why);
}

// A scheduler that was away needs its time to notice who did not come back.
void RemoteEndpoint::await_loss(WorkerId peer, const Error& why) {
  const auto since = unreachable_since_.find(peer);
  if (lost_ || since == unreachable_since_.end()) return;  // it is there again, or known to be lost
  const TimeNs left =
      courier_->patience_left(since->second, options_.silence_ns + kUnreachableNs, monotonic_now());
  if (left > 0) return void(loop_->after(left, [this, peer, why] { await_loss(peer, why); }));
  unreachable_.emplace(peer, why);
  if (!std::exchange(telling_, true)) tell_unreachable();
}

// Requests that come later wait for it as long as those did that were there. While the scheduler is away nothing moves, whoever is reached.
void RemoteEndpoint::tell_unreachable() {
  telling_ = !lost_ && !unreachable_.empty();
  if (!telling_) return;
  loop_->after(kTellEveryNs, [this] { tell_unreachable(); });
  const TimeNs patience = std::max(options_.link_ns, options_.silence_ns + kUnreachableNs);
  const TimeNs now = monotonic_now();
  if (courier_->patience_left(now - patience, patience, now) > 0) return;
  for (const auto& [peer, why] : std::map(unreachable_)) {
    if (started_ && callbacks_.on_unreachable) callbacks_.on_unreachable(peer, why, now - patience);
  }
  tell_failed();
}

// There is a link to it, or it is gone.
void RemoteEndpoint::forget(WorkerId peer) {
  unreachable_since_.erase(peer);
  unreachable_.erase(peer);
}

void RemoteEndpoint::lose(Error why) {
  if (!lost_) {
    lost_ = error(why.code, "scheduler " + options_.scheduler.to_string() + ": " + why.message);
    for (WorkerId peer : std::exchange(workers_, {})) exchange_->peer_lost(peer);  // ends what is under way
    owners_.clear();
  }
  if (!started_ || std::exchange(told_, true)) return;
  if (callbacks_.on_lost) callbacks_.on_lost(*lost_);
  tell_failed();
}

Result<std::unique_ptr<client::Endpoint>> connect(const Options& options) {
  auto endpoint = std::make_unique<RemoteEndpoint>(options);
  TW_TRY(endpoint->init());
  return std::unique_ptr<client::Endpoint>(std::move(endpoint));
}

Result<std::unique_ptr<client::Endpoint>> connect_from_environment(const std::string& scheduler,
                                                                   const std::string& name) {
  const auto variable = [](const char* variable_name) {
    const char* value = std::getenv(variable_name);
    return value == nullptr ? std::string() : std::string(value);
  };
  TW_ASSIGN(const net::Address address, net::Address::parse(scheduler));
  TW_ASSIGN(const config::FoundToken token, config::find_token(variable("TILEWISE_TOKEN_FILE"), false));
  Options options{.scheduler = address, .token = token.token};
  options.name = name;
  options.map_peers = variable("TILEWISE_NO_MAP").empty() || variable("TILEWISE_NO_MAP") == "0";
  const auto seconds_in = [&](const char* variable_name, TimeNs& into, double least = 0,
                              double most = 7 * 24 * 3600.0) -> Status {
    const std::string text = variable(variable_name);
    if (text.empty()) return {};
    char* end = nullptr;
    const double seconds = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !(seconds >= least && seconds <= most))
      return error(Errc::kInvalidArgument,
                   std::string(variable_name) + " is '" + text + "', not a number of seconds from " +
                       std::to_string(std::lround(least)) + " to " + std::to_string(std::lround(most)));
    into = static_cast<TimeNs>(seconds * 1e9);
    return {};
  };
  TW_TRY(seconds_in("TILEWISE_LEASE", options.lease_ns));
  TW_TRY(seconds_in("TILEWISE_LINK_TIMEOUT", options.link_ns));
  TW_TRY(seconds_in("TILEWISE_SILENCE_TIMEOUT", options.silence_ns, 2, 20));
  return connect(options);
}

}  // namespace tilewise::remote
