// A server's state on disk: each step's events before anybody sees what came of them, and now and then all of it anew.
#include <tilewise/base/file.h>
#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>
#include <tilewise/ir/checkpoint.h>

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "server.h"

namespace tilewise::scheduler {
namespace {

using daemon::to_string;

enum Kind : std::uint32_t { kSnapshot = 0, kStep = 1, kSettle = 2, kAck = 3 };
enum class Entry : std::uint8_t {
  kMessage = 0,
  kClosed = 1,
  kCancel = 2,
  kRelease = 3,
  kDrain = 4,
  kBroken = 5,
  kReturned = 6
};

constexpr std::size_t kMaxBuffered = 256 << 10;
// A restart reads all this again and takes these steps again.
constexpr std::uint64_t kCompactBytes = 16 << 20;
constexpr TimeNs kCompactNs = 1'500 * kMillisecond;

template <class T> void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_bytes(std::string& out, std::string_view bytes) {
  put(out, static_cast<std::uint64_t>(bytes.size()));
  out.append(bytes);
}

// After the first thing that does not fit everything is zero and empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <class T> T get() {
    T value{};
    if (sizeof value > rest_.size()) return bad_ = true, rest_ = {}, value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view bytes() {
    const auto n = get<std::uint64_t>();
    if (n > rest_.size()) return bad_ = true, rest_ = {}, rest_;
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  bool more() const { return !rest_.empty(); }
  std::string_view rest() const { return rest_; }
  Status status(const char* what) const {
    if (!bad_) return {};
    return error(Errc::kCorruptData, std::string("a ") + what + " in the journal ends too early");
  }

 private:
  std::string_view rest_;
  bool bad_ = false;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const SnapshotCodec& snapshot_codec() {
  static const SnapshotCodec codec{
      [](const msg::Message& message) -> Result<std::string> {
        codec::Buffer buffer;
        TW_TRY(codec::encode(message, buffer));
        return std::string(text_of(buffer.bytes()));
      },
      [](std::string_view bytes) { return codec::decode(std::as_bytes(std::span(bytes))); }};
  return codec;
}

// What is left by a scheduler that died is found again by the next, also where the state itself is over: the folder has the name
// that is kept beside it.
Result<std::string> checkpoint_folder(const ServerOptions& options) {
  TW_ASSIGN(const File file, File::open(options.state_dir + "/checkpoints", O_RDWR | O_CREAT, 0600));
  std::string name(16, '\0');
  TW_ASSIGN(const std::size_t there, file.read_some(name.data(), name.size(), 0));
  if (there != name.size()) {
    std::uint64_t random = 0;
    if (!net::fill_random(std::as_writable_bytes(std::span(&random, 1))))
      return error(Errc::kIo, "the operating system has no random numbers");
    name = ir::checkpoint::name_of(random);
    TW_TRY(file.write(name.data(), name.size(), 0));
    TW_TRY(file.sync());
  }
  return options.checkpoint_dir + "/tilewise-" + name;
}

}  // namespace

// ---- writing -------------------------------------------------------------------------------------------------------

void Server::note_message(Conn from, std::span<const std::byte> bytes) {
  if (!journal_) return;
  put(entries_, Entry::kMessage);
  put(entries_, from.value);
  put_bytes(entries_, text_of(bytes));
}

void Server::note(const Event& event) {
  if (!journal_) return;
  if (const auto* received = std::get_if<Received>(&event)) {  // of this process: always encodable
    if (codec::encode(received->message, buffer_)) note_message(received->from, buffer_.bytes());
  } else if (const auto* closed = std::get_if<Closed>(&event)) {
    put(entries_, Entry::kClosed);
    put(entries_, closed->conn.value);
    put(entries_, closed->why.code);
    put_bytes(entries_, closed->why.message);
  } else if (const auto* broken = std::get_if<Broken>(&event)) {
    put(entries_, Entry::kBroken);
    put(entries_, broken->conn.value);
  } else if (const auto* returned = std::get_if<Returned>(&event)) {
    put(entries_, Entry::kReturned);
    put(entries_, returned->conn.value);
  } else if (const auto* cancel = std::get_if<OperatorCancel>(&event)) {
    put(entries_, Entry::kCancel);
    put(entries_, cancel->graph.value);
  } else if (const auto* release = std::get_if<OperatorRelease>(&event)) {
    put(entries_, Entry::kRelease);
    put(entries_, release->array.value);
  } else if (const auto* drain = std::get_if<OperatorDrain>(&event)) {
    put(entries_, Entry::kDrain);
    put(entries_, drain->worker.value);
    put(entries_, static_cast<std::uint8_t>(drain->on));
  }
}

void Server::note_step(TimeNs now) {
  if (!journal_) return;
  std::string head;
  put(head, now);
  journal_->append(kStep, head + entries_);
  entries_.clear();
}

void Server::note_ack(Conn from, std::uint64_t received) {
  if (!journal_) return;
  std::string bytes;
  put(bytes, from.value);
  put(bytes, received);
  journal_->append(kAck, bytes);
}

std::optional<DiskWatch::Wait> Server::waiting_for_disk(const char* doing) const {
  if (disk_watch_ == nullptr) return {};
  return disk_watch_->wait(doing);
}

bool Server::keep() {
  if (!journal_) return true;
  const auto waiting = waiting_for_disk("writing the journal");
  if (Status kept = journal_->flush(); !kept) return fail(kept), false;
  return true;
}

// A step that is not on record must not be seen by anybody: this process ends, and the next goes on from the one before.
void Server::fail(Status why) {
  daemon::log_error("cannot keep the state, ending", {{"why", to_string(why.error())}});
  failure_ = std::move(why);
  events_.clear(), actions_.clear();
  if (on_end_) std::exchange(on_end_, {})();
}

bool Server::may_return(const Peer& peer) const {
  return peer.id && lasts(peer) && peer.lease_ns > 0 && !ending_;
}

bool Server::lasts(const Peer& peer) const {
  return peer.role != msg::Role::kTool && (journal_ || peer.lease_ns > 0);
}

void Server::count_in(Conn conn, Peer& peer, std::size_t bytes) {
  if (!lasts(peer)) return;
  peer.received.add(bytes);
  if (peer.received.due()) peer.received.told(), to_acknowledge_.push_back(conn);
}

void Server::acknowledge_peers() {
  if (!failure_) return;
  if (to_acknowledge_.empty() && (!journal_ || journal_->buffered() < kMaxBuffered)) return;
  if (!keep()) return;
  for (const Conn conn : std::exchange(to_acknowledge_, {})) {
    const auto it = peers_.find(conn);
    if (it == peers_.end() || !it->second.link) continue;
    const msg::Message ack = msg::Ack{it->second.received.total()};
    // A link that cannot take it will close.
    if (codec::encode(ack, buffer_)) (void)it->second.link->send(codec::frame_type(ack), buffer_.bytes());
  }
}

// ---- snapshots -----------------------------------------------------------------------------------------------------

Result<std::string> Server::snapshot() const {
  std::string out;
  put(out, last_conn_);
  std::uint32_t count = 0;
  for (const auto& [conn, peer] : peers_) count += peer.id || peer.receive ? 1 : 0;
  put(out, count);
  for (const auto& [conn, peer] : peers_) {
    if (!peer.id && !peer.receive) continue;  // has not joined: nothing depends on it
    put(out, conn.value);
    put(out, peer.id.value);
    put(out, peer.role);
    put(out, peer.lease_ns);
    put_bytes(out, peer.name);
    put(out, peer.received.total());
    put(out, peer.sent.first());
    put(out, static_cast<std::uint64_t>(peer.sent.messages().size()));
    for (const courier::Outstanding::Message& message : peer.sent.messages()) {
      put(out, message.type);
      put_bytes(out, message.bytes);
    }
  }
  TW_ASSIGN(const std::string core, core_->snapshot(snapshot_codec()));
  return out + core;
}

Status Server::begin_generation() {
  const TimeNs began = monotonic_now();
  TW_ASSIGN(const std::string bytes, snapshot());
  {
    const auto waiting = waiting_for_disk("writing a snapshot");
    TW_TRY(journal_->begin(header_, bytes));
  }
  snapshot_bytes_ = bytes.size();
  snapshot_ns_ = monotonic_now() - began;
  spent_ns_ = 0;
  return {};
}

void Server::compact_if_due() {
  if (!journal_ || !failure_ || !events_.empty() || !entries_.empty()) return;
  const bool large = journal_->bytes() >= std::max(kCompactBytes, 4 * snapshot_bytes_);
  const bool slow = spent_ns_ >= std::max(kCompactNs, 10 * snapshot_ns_);
  if (!large && !slow) return;
  const TimeNs now = clock();
  std::string head;
  put(head, now);
  journal_->append(kSettle, head);
  core_->settle(now, actions_);
  if (!keep()) return;
  for (Action& action : actions_) perform(action);
  actions_.clear();
  if (Status begun = begin_generation(); !begun) return fail(begun);
  daemon::log_debug("state compacted", {{"bytes", snapshot_bytes_}, {"ms", snapshot_ns_ / kMillisecond}});
}

// ---- the next life -------------------------------------------------------------------------------------------------

Status Server::open_state(const ServerOptions& options) {
  const TimeNs began = monotonic_now();
  auto waiting = waiting_for_disk("reading the journal");
  TW_ASSIGN(journal_, journal::Journal::open(options.state_dir, {.sync = options.state_sync}));
  bool over = true;
  replaying_ = true;
  const auto read = journal_->read(
      [&](const journal::Header& header) -> Status {
        waiting.reset();  // it has been read
        header_ = header;
        return {};
      },
      [&](std::uint32_t kind, std::string_view bytes) -> Status {
        if (kind == kSnapshot && bytes.empty()) return {};  // ended by an operator
        // The same steps lead to the same state in the same program only.
        if (kind == kSnapshot && header_.software != config::software_version())
          return error(Errc::kVersionMismatch, "the state in " + options.state_dir + " is of version " +
                                                   header_.software + ", this is " +
                                                   config::software_version() +
                                                   ": go on with that, or give another directory");
        over = false;
        return replay(kind, bytes);
      });
  waiting.reset();
  replaying_ = false;
  events_.clear(), actions_.clear(), to_acknowledge_.clear();
  if (!read) return read.error();
  Options core = options.core;
  core.term = std::max(core.term, header_.term + 1);
  core.durable = true;
  if (!options.checkpoint_dir.empty()) {
    const auto naming = waiting_for_disk("looking for the name of the checkpoints' folder");
    TW_ASSIGN(core.checkpoint_dir, checkpoint_folder(options));
  }
  if (over) {
    header_ = {core.state, core.term, config::software_version()};
    core_ = std::make_unique<Core>(core);
    clock_offset_ = 0;
    std::vector<Event> none;
    core_->step(none, clock(), actions_);
    core_->settle(clock(), actions_);
  } else {
    core.state = state_ = header_.state;
    header_.term = core.term;
    clock_offset_ = core_->now() + 1 - monotonic_now();
    for (auto& [conn, peer] : peers_) peer.inherited = peer.sent.sent();
    core_->begin_life(core, clock(), actions_);
  }
  for (Action& action : actions_) perform(action);
  actions_.clear();
  TW_TRY(begin_generation());
  std::vector<Conn> tools;
  for (const auto& [conn, peer] : peers_) {
    if (peer.role == msg::Role::kTool) tools.push_back(conn);
  }
  for (const Conn conn : tools) {
    const Error why = error(Errc::kUnavailable, "the scheduler was started again");
    drop(conn, why);
    push(Closed{conn, why});
  }
  if (read->torn > 0)
    daemon::log_warn("the journal's last record was cut short, and dropped", {{"bytes", read->torn}});
  daemon::log_info("state", {{"directory", options.state_dir},
                             {"term", core.term},
                             {"records", read->records},
                             {"peers", peers_.size()},
                             {"ms", (monotonic_now() - began) / kMillisecond}});
  return {};
}

Status Server::replay(std::uint32_t kind, std::string_view bytes) {
  Reader in(bytes);
  switch (static_cast<Kind>(kind)) {
    case kSnapshot: return restore(bytes);
    case kStep: return replay_step(bytes);
    case kSettle: {
      core_->settle(in.get<TimeNs>(), actions_);
      for (Action& action : actions_) perform(action);
      actions_.clear();
      return in.status("settling");
    }
    case kAck: {
      const Conn conn{in.get<std::uint32_t>()};
      const auto received = in.get<std::uint64_t>();
      const auto it = peers_.find(conn);
      if (it != peers_.end() && !it->second.sent.acknowledge(received))
        return error(Errc::kCorruptData, "the journal acknowledges what was never sent");
      return in.status("acknowledgement");
    }
  }
  return error(Errc::kCorruptData, "the journal has a record of unknown kind " + std::to_string(kind));
}

Status Server::restore(std::string_view snapshot) {
  Reader in(snapshot);
  last_conn_ = in.get<std::uint32_t>();
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.more(); ++i) {
    const Conn conn{in.get<std::uint32_t>()};
    Peer& peer = peers_[conn];
    peer.id = WorkerId{in.get<std::uint32_t>()};
    peer.role = in.get<msg::Role>();
    peer.lease_ns = in.get<TimeNs>();
    peer.name = in.bytes();
    peer.spoke = peer.joined = true;
    peer.received = courier::Received(in.get<std::uint64_t>());
    peer.sent.restart(in.get<std::uint64_t>());
    const auto messages = in.get<std::uint64_t>();
    for (std::uint64_t m = 0; m < messages && in.more(); ++m) {
      const auto type = in.get<std::uint16_t>();
      (void)peer.sent.push(type, std::as_bytes(std::span(in.bytes())));
    }
    if (peer.id) by_id_[peer.id] = conn;
  }
  TW_TRY(in.status("snapshot"));
  return core_->restore(in.rest(), snapshot_codec());
}

Status Server::replay_step(std::string_view bytes) {
  Reader in(bytes);
  const auto now = in.get<TimeNs>();
  while (in.more()) {
    const auto entry = in.get<Entry>();
    switch (entry) {
      case Entry::kMessage: {
        const Conn conn{in.get<std::uint32_t>()};
        const std::string_view text = in.bytes();
        TW_TRY(in.status("message"));
        TW_ASSIGN(msg::Message message, codec::decode(std::as_bytes(std::span(text))));
        last_conn_ = std::max(last_conn_, conn.value);
        if (const auto* join = std::get_if<msg::Join>(&message)) greet(peers_[conn], *join);
        if (const auto it = peers_.find(conn); it != peers_.end()) count_in(conn, it->second, text.size());
        events_.push_back(Received{conn, std::move(message)});
        break;
      }
      case Entry::kClosed: {
        const Conn conn{in.get<std::uint32_t>()};
        const auto code = in.get<Errc>();
        const Error why{code, std::string(in.bytes())};
        drop(conn, why);
        events_.push_back(Closed{conn, why});
        break;
      }
      case Entry::kBroken: events_.push_back(Broken{Conn{in.get<std::uint32_t>()}}); break;
      case Entry::kReturned: events_.push_back(Returned{Conn{in.get<std::uint32_t>()}}); break;
      case Entry::kCancel: events_.push_back(OperatorCancel{GraphId{in.get<std::uint64_t>()}}); break;
      case Entry::kRelease: events_.push_back(OperatorRelease{ArrayId{in.get<std::uint64_t>()}}); break;
      case Entry::kDrain: {
        const WorkerId worker{in.get<std::uint32_t>()};
        events_.push_back(OperatorDrain{worker, in.get<std::uint8_t>() != 0});
        break;
      }
      default: return error(Errc::kCorruptData, "the journal has an event of unknown kind");
    }
  }
  TW_TRY(in.status("step"));
  core_->step(events_, now, actions_);
  events_.clear();
  for (Action& action : actions_) perform(action);
  actions_.clear();
  return {};
}

// ---- peers that come back ------------------------------------------------------------------------------------------

// The fresh link is taken out of the table before anything else: what a turn does to links is no business of it any more.
void Server::resume(Conn fresh, const msg::Resume& resume) {
  std::unique_ptr<net::Link> link = std::move(peers_.at(fresh).link);
  const std::shared_ptr<Conn> self = peers_.at(fresh).self;
  peers_.erase(fresh);
  if (!events_.empty()) turn();  // what came on its older link counts as received when it is on record
  if (!failure_) return;
  const auto refuse = [&](Errc code, const std::string& why) {
    daemon::log_warn("peer not taken back", {{"id", resume.me.value}, {"why", why}});
    const msg::Message answer = msg::Resumed{core_->term(), 0, {code, why}};
    if (codec::encode(answer, buffer_)) (void)link->send(codec::frame_type(answer), buffer_.bytes());
    net::Link::retire(std::move(link));
  };
  if (ending_) return refuse(Errc::kUnavailable, "the scheduler ends");
  if (resume.state != state_)
    return refuse(Errc::kUnavailable, "this scheduler does not go on from that one's state");
  // We slept while another one took over: what it has told them is none of our business.
  if (resume.term > core_->term())
    return refuse(Errc::kUnavailable, "the scheduler of term " + std::to_string(resume.term) +
                                          " goes on from this state, this one is of term " +
                                          std::to_string(core_->term()));
  const auto known = by_id_.find(resume.me);
  if (known == by_id_.end() || !lasts(peers_.at(known->second)))
    return refuse(Errc::kWorkerLost, "it was away for too long and is taken for lost");
  const Conn conn = known->second;
  Peer& peer = peers_.at(conn);
  // Who has not heard of this life of the scheduler has nothing from it, though it may have what an earlier one, with a copy of the
  // state, has said since: other messages than ours of these numbers.
  const std::uint64_t known_here = resume.term < core_->term() ? peer.inherited : peer.sent.sent();
  if (resume.received > known_here || !peer.sent.acknowledge(resume.received)) {
    // What was lost here it has seen: nobody knows what follows from that.
    refuse(Errc::kCorruptData, "it has received " + std::to_string(resume.received) +
                                   " messages, of which this scheduler knows " + std::to_string(known_here));
    const Error why = error(Errc::kCorruptData, "the journal is behind what this peer has seen");
    drop(conn, why);
    return push(Closed{conn, why});
  }
  note_ack(conn, resume.received);
  *self = conn;
  peer.self = self;
  peer.spoke = true;
  peer.link = std::move(link);  // an older one is closed by this, without a word to us
  peer.received.told();
  push(Returned{conn});
  if (!keep()) return;  // what is acknowledged now must not be forgotten
  const msg::Message answer = msg::Resumed{core_->term(), peer.received.total(), {}};
  Status sent = codec::encode(answer, buffer_);
  if (sent) sent = peer.link->send(codec::frame_type(answer), buffer_.bytes());
  for (const courier::Outstanding::Message& message : peer.sent.messages()) {
    if (sent) sent = peer.link->send(message.type, std::as_bytes(std::span(message.bytes)));
  }
  if (!sent) {
    if (may_return(peer)) return on_close(conn, sent.error());
    drop(conn, sent.error());
    return push(Closed{conn, sent.error()});
  }
  daemon::log_info("peer back", {{"peer", peer.name}, {"id", resume.me.value}});
}

}  // namespace tilewise::scheduler
