#include "server.h"

#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tilewise::scheduler {
namespace {

constexpr TimeNs kEndNs = kSecond;  // how long workers may take to close after a Shutdown
// So many looks make up the time to join. They are counted, so that it is time in which we listened: who did something else for long, or was
// stopped, has not read yet what is there.
constexpr int kLooks = 4;

using daemon::to_string;

std::string describe(const msg::Join& join) {
  static constexpr const char* kRoles[] = {"worker", "client", "tool"};
  return std::string(kRoles[std::min<std::size_t>(static_cast<std::size_t>(join.role), 2)]) + " " + join.name;
}

}  // namespace

Server::Server(net::EventLoop& loop, const ServerOptions& options, std::function<void()> on_end)
    : loop_(loop),
      on_end_(std::move(on_end)),
      core_(std::make_unique<Core>(options.core)),
      join_ns_(options.join_ns),
      disk_watch_(options.disk_watch),
      state_(options.core.state) {}

Server::~Server() {
  loop_.set_batch_hook({});
  if (timer_ != 0) loop_.cancel(timer_);
  if (strangers_timer_ != 0) loop_.cancel(strangers_timer_);
  if (journal_ || ending_) return;  // else nobody need wait for another one
  codec::Buffer bytes;
  if (!codec::encode(msg::Shutdown{}, bytes)) return;
  for (auto& [conn, peer] : peers_) {
    if (peer.link && peer.role == msg::Role::kClient && peer.lease_ns > 0)
      (void)peer.link->send(codec::frame_type(msg::Shutdown{}), bytes.bytes());
  }
}

Result<std::unique_ptr<Server>> Server::open(net::EventLoop& loop, ServerOptions options,
                                             std::function<void()> on_end) {
  std::array<std::byte, 8> random{};
  if (!net::fill_random(random)) return error(Errc::kIo, "the operating system has no random numbers");
  std::memcpy(&options.core.state, random.data(), sizeof options.core.state);
  options.core.state |= 1;  // not 0
  std::unique_ptr<Server> server(new Server(loop, options, std::move(on_end)));
  if (!options.state_dir.empty()) TW_TRY(server->open_state(options));
  net::ListenerOptions listening{
      .handshake = {.token = options.token, .silence_ns = options.core.silence_ns}};
  TW_ASSIGN(
      server->listener_,
      net::Listener::open(
          loop, options.listen, listening,
          [s = server.get()](std::unique_ptr<net::Link> link) { s->accept(std::move(link)); },
          [seldom = daemon::Seldom()](const Error& why, const std::string& peer) mutable {
            if (!peer.empty())
              return daemon::log_warn("connection refused", {{"peer", peer}, {"why", to_string(why)}});
            if (const std::int64_t times = seldom.count(monotonic_now()); times > 0)
              daemon::log_warn("no connection can be accepted", {{"why", to_string(why)}, {"times", times}});
          }));
  loop.set_batch_hook([s = server.get()] { return s->turn(); });
  return server;
}

// ---- links in ------------------------------------------------------------------------------------------------------

void Server::accept(std::unique_ptr<net::Link> link) {
  const Conn conn{++last_conn_};
  Peer& peer = peers_[conn];
  peer.link = std::move(link);
  peer.name = "unjoined " + peer.link->peer();
  peer.self = std::make_shared<Conn>(conn);
  peer.link->start({[this, self = peer.self](net::Frame& frame) { on_frame(*self, frame); },
                    [this, self = peer.self](const Error& why) { on_close(*self, why); },
                    {}});
  strangers_.emplace(conn, 0);
  await_strangers();
}

void Server::await_strangers() {
  if (strangers_timer_ != 0 || strangers_.empty()) return;
  strangers_timer_ = loop_.after(join_ns_ / kLooks, [this] {
    strangers_timer_ = 0;
    look_at_strangers();
    await_strangers();
  });
}

void Server::look_at_strangers() {
  std::vector<Conn> late;
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    auto& [conn, looks] = *stranger;
    const auto it = peers_.find(conn);
    const bool waits = it != peers_.end() && !it->second.joined;
    const bool in_time = waits && ++looks <= kLooks;
    if (waits && !in_time) late.push_back(conn);
    stranger = in_time ? std::next(stranger) : strangers_.erase(stranger);
  }
  for (const Conn conn : late)
    reject(conn, error(Errc::kTimeout, "neither a Join nor a Resume came within " +
                                           std::to_string(join_ns_ / kMillisecond) + " ms"));
}

Conn Server::join_local(const std::string& name, std::function<void(const msg::Message&)> receive) {
  const Conn conn{++last_conn_};
  Peer& peer = peers_[conn];
  peer.name = name;
  peer.receive = std::move(receive);
  msg::Join join;
  join.role = msg::Role::kTool;
  join.name = name;
  join.software_version = config::software_version();
  join.host_id = config::host_id();
  push(Received{conn, std::move(join)});
  return conn;
}

void Server::on_frame(Conn conn, const net::Frame& frame) {
  auto message = codec::decode(frame.payload);
  if (!message) return reject(conn, message.error());
  if (codec::frame_type(*message) != frame.type) {
    return reject(conn,
                  error(Errc::kCorruptData, "the frame says type " + std::to_string(frame.type) +
                                                ", its message is a " + std::string(msg::name_of(*message))));
  }
  Peer& peer = peers_.at(conn);
  const bool first = !std::exchange(peer.spoke, true);
  if (const auto* resumes = std::get_if<msg::Resume>(&*message)) {
    if (first) return resume(conn, *resumes);
    return reject(conn, error(Errc::kInvalidArgument, "a Resume is the first message on its link, or none"));
  }
  if (const auto* ack = std::get_if<msg::Ack>(&*message)) {
    if (!peer.sent.acknowledge(ack->received))
      return reject(conn, error(Errc::kInvalidArgument, "it acknowledges what was never sent"));
    return note_ack(conn, ack->received);
  }
  if (const auto* join = std::get_if<msg::Join>(&*message)) greet(peer, *join);
  if (const auto* failed = std::get_if<msg::TaskFailed>(&*message);
      failed != nullptr && peer.joined && peer.role == msg::Role::kWorker) {
    daemon::log_warn("task failed", {{"worker", peers_.at(conn).name},
                                     {"worker_id", peers_.at(conn).id.value},
                                     {"graph", core_->graph_of(failed->op).value},
                                     {"op", failed->op.value},
                                     {"device", failed->device.value},
                                     {"point", failed->point},
                                     {"cause", name_of(failed->why.code)},
                                     {"why", failed->why.message}});
  }
  if (const auto* words = std::get_if<msg::LastWords>(&*message);
      words != nullptr && peer.joined && peer.role == msg::Role::kTool)
    log_words(*words);
  note_message(conn, frame.payload);
  count_in(conn, peer, frame.payload.size());
  if (const auto* submit = std::get_if<msg::Submit>(&*message)) ops_waiting_ += submit->ops.size();
  events_.push_back(Received{conn, std::move(*message)});
  end_step_if_full();
}

void Server::log_words(const msg::LastWords& words) const {
  std::string executing;
  for (const auto& step : words.running) {
    if (executing.size() > 1000) {
      executing += ", more";
      break;
    }
    executing += (executing.empty() ? "" : ", ") +
                 ("graph " + std::to_string(core_->graph_of(step.op).value)) + " op " +
                 std::to_string(step.op.value) + " point " + std::to_string(step.point);
  }
  daemon::log_warn("worker ended",
                   {{"worker_id", words.worker.value}, {"why", words.how}, {"executing", executing}});
}

// The first one is in force; the core says so to whoever joins again.
void Server::greet(Peer& peer, const msg::Join& join) {
  if (peer.joined) return;
  peer.name = describe(join);
  peer.role = join.role;
  peer.lease_ns = std::max<TimeNs>(0, join.lease_ns);
  peer.joined = true;
}

void Server::push(Event event) {
  note(event);
  events_.push_back(std::move(event));
}

void Server::on_close(Conn conn, const Error& why) {
  const auto it = peers_.find(conn);
  if (it == peers_.end()) return;
  if (Peer& peer = it->second; may_return(peer)) {
    daemon::log_info(
        "peer away",
        {{"peer", peer.name}, {"why", to_string(why)}, {"lease_ms", peer.lease_ns / kMillisecond}});
    peer.link.reset();
    return push(Broken{conn});
  }
  daemon::log_info("peer left", {{"peer", it->second.name}, {"why", to_string(why)}});
  by_id_.erase(it->second.id);
  peers_.erase(it);
  push(Closed{conn, why});
  if (ending_) finish_if_quiet();
}

void Server::reject(Conn conn, const Error& why) {
  daemon::log_warn("bad message, link closed", {{"peer", peers_.at(conn).name}, {"why", to_string(why)}});
  send(conn, msg::Refusal{{why.code, why.message}});
  drop(conn, why);
  push(Closed{conn, why});
}

// What was queued is still written.
void Server::drop(Conn conn, const Error& why) {
  const auto it = peers_.find(conn);
  if (it == peers_.end()) return;
  daemon::log_debug("link closed", {{"peer", it->second.name}, {"why", to_string(why)}});
  if (it->second.link) net::Link::retire(std::move(it->second.link));
  by_id_.erase(it->second.id);
  peers_.erase(it);
}

// ---- one turn ------------------------------------------------------------------------------------------------------

bool Server::turn() {
  if (!failure_) return false;
  bool any = false;
  // Sends that fail become events of the same batch; each closes a link, so this ends.
  for (TimeNs now = clock(); !events_.empty() || now >= core_->next_deadline(); now = clock()) {
    any = true;
    note_step(now);
    core_->step(events_, now, actions_);
    events_.clear();
    ops_waiting_ = 0;
    if (journal_) spent_ns_ += clock() - now;
    if (!actions_.empty() && !keep()) return true;
    for (Action& action : actions_) perform(action);
    actions_.clear();
    log_buffer_.forget();
    if (events_.empty()) break;
  }
  acknowledge_peers();
  compact_if_due();
  arm_timer(clock());
  return any;
}

// What comes next stays in its link, in order, and is neither on record nor acknowledged before it is read. The loop goes on to the other links
// and to timers when this link's turn is over; what was answered goes out now, for this batch of the loop may have more such steps.
void Server::end_step_if_full() {
  if (ops_waiting_ < kStepOps) return;
  turn();
  for (auto& [conn, peer] : peers_) {
    if (peer.link) peer.link->flush();
  }
}

void Server::log_end(const GraphEnded& ended) {
  const daemon::LogLevel level = ended.cause.ok() ? daemon::LogLevel::kDebug : daemon::LogLevel::kWarn;
  daemon::log(level, ended.cause.ok() ? "graph done" : "graph ended early",
              {{"graph", ended.graph.value},
               {"session", ended.session.value},
               {"request", ended.request},
               {"tasks", ended.tasks},
               {"seconds", static_cast<double>(ended.took) * 1e-9},
               {"op", ended.failed_op.value},
               {"cause", name_of(ended.cause.code)},
               {"why", ended.cause.message}});
}

void Server::arm_timer(TimeNs now) {
  const TimeNs next = core_->next_deadline();
  if (timer_ != 0 && timer_at_ <= next) return;  // a timer that comes early arms the next one
  if (timer_ != 0) loop_.cancel(timer_);
  timer_at_ = next;
  timer_ = loop_.after(std::max<TimeNs>(next - now, 10 * kMicrosecond), [this] { timer_ = 0; });
}

void Server::perform(Action& action) {
  if (const auto* out = std::get_if<Send>(&action)) {
    send(out->to, out->message);
  } else if (const auto* close = std::get_if<Close>(&action)) {
    const auto it = peers_.find(close->conn);
    if (it != peers_.end() && !replaying_) {
      daemon::log_info("peer dropped", {{"peer", it->second.name}, {"why", to_string(close->why)}});
    }
    drop(close->conn, close->why);
  } else if (const auto* ended = std::get_if<GraphEnded>(&action)) {
    if (!replaying_) log_end(*ended);
  } else if (!replaying_) {
    end();
  }
}

void Server::send(Conn to, const msg::Message& message) {
  const auto it = peers_.find(to);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  if (peer.receive) return peer.receive(message);
  if (const auto* welcome = std::get_if<msg::Welcome>(&message)) {
    if (welcome->refused.ok()) peer.id = welcome->you, by_id_[peer.id] = to;
    if (replaying_) {
    } else if (welcome->refused.ok()) {
      daemon::log_info("peer joined", {{"peer", peer.name},
                                       {"id", welcome->you.value},
                                       {"devices", welcome->devices.size()},
                                       {"from", peer.link->peer()}});
    } else {
      daemon::log_warn("join refused", {{"peer", peer.name}, {"why", welcome->refused.message}});
    }
  }
  const auto* log = std::get_if<msg::Log>(&message);
  Status sent = log != nullptr ? log_buffer_.encode(*log) : codec::encode(message, buffer_);
  if (log != nullptr && log->entries.size() > 1 && !sent && sent.error().code == Errc::kLimitExceeded)
    return send_halves(to, *log);
  const std::span<const std::byte> bytes = log != nullptr ? log_buffer_.bytes() : buffer_.bytes();
  if (sent && lasts(peer) && !peer.sent.push(codec::frame_type(message), bytes))
    sent = error(Errc::kLimitExceeded, "too much waits for it");
  if (sent && peer.link) {
    sent = peer.link->send(codec::frame_type(message), bytes);
    // A link that has just broken, of which we have not been told yet: what is kept waits for the peer's return.
    if (!sent && !replaying_ && may_return(peer)) return on_close(to, sent.error());
  }
  if (sent || replaying_) return;
  // A log with a gap is worse than none: a peer that cannot take its messages is lost.
  daemon::log_error(
      "cannot send, link closed",
      {{"peer", peer.name}, {"message", msg::name_of(message)}, {"why", to_string(sent.error())}});
  drop(to, sent.error());
  push(Closed{to, sent.error()});
}

// Many requests may be planned in one step, and a newcomer is told of all that live: together more than a message may be.
void Server::send_halves(Conn to, const msg::Log& log) {
  const std::size_t half = log.entries.size() / 2;
  send(to, msg::Log{log.term, log.first, {log.entries, 0, half}});
  send(to, msg::Log{log.term, log.first + half, {log.entries, half, log.entries.size() - half}});
}

// ---- the end -------------------------------------------------------------------------------------------------------

void Server::end() {
  if (ending_) return;
  ending_ = true;
  // An empty snapshot: this state is over, but its terms are not used again.
  if (journal_ && journal_->begin(header_, {})) journal_.reset();
  loop_.after(kEndNs, [this] {
    if (on_end_) std::exchange(on_end_, {})();
  });
  listener_.reset();
  // A tool's link ends with this process: then whoever has asked for the end can start another one.
  std::vector<Conn> clients;
  for (auto& [conn, peer] : peers_) {
    if (peer.link) peer.link->flush();
    if (peer.role == msg::Role::kClient) clients.push_back(conn);
  }
  for (const Conn conn : clients) {
    send(conn, msg::Shutdown{});  // it need not wait for another one
    drop(conn, error(Errc::kUnavailable, "the scheduler ends"));
  }
  finish_if_quiet();
}

void Server::finish_if_quiet() {
  const bool workers = std::any_of(peers_.begin(), peers_.end(),
                                   [](const auto& p) { return p.second.role == msg::Role::kWorker; });
  if (!workers && on_end_) std::exchange(on_end_, {})();
}

}  // namespace tilewise::scheduler
