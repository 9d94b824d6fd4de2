// Host memory over streams of our own: who moves what. How it moves is stream_lane.h's business.
#include "ucx_impl.h"

namespace tilewise::transfer {

namespace {
constexpr int kMostDeadlines = 10;  // of a transfer that stands behind others on its connection
}

void UcxEngine::set_stream_hooks(StreamHooks hooks) { impl_->hooks = std::move(hooks); }

bool UcxEngine::prefers_stream(const Cookie& cookie) const {
  const auto peer = impl_->peers.find(cookie);
  return peer != impl_->peers.end() &&
         (peer->second->other_ucx || !(impl_->fast_network && peer->second->fast_network));
}

void UcxEngine::use_stream(const Cookie& cookie) {
  if (const auto peer = impl_->peers.find(cookie); peer != impl_->peers.end()) peer->second->streams = true;
}

bool UcxEngine::uses_stream(const Cookie& cookie) const {
  const auto peer = impl_->peers.find(cookie);
  return peer != impl_->peers.end() && peer->second->streams;
}

bool UcxEngine::needs_stream(const Cookie& cookie) const {
  return uses_stream(cookie) && impl_->peers.at(cookie)->lane == nullptr;
}

Status UcxEngine::attach_stream(const Cookie& cookie, std::unique_ptr<net::ByteStream> stream, bool dialled) {
  if (!uses_stream(cookie)) return error(Errc::kNotFound, "no peer that uses streams");
  Impl& me = *impl_;
  Peer& peer = *me.peers.at(cookie);
  std::erase_if(me.broken_streams, [&](const auto& entry) { return entry.first == peer.cookie; });
  // What either side put into the one before may be lost, and the other may have noticed earlier: what is expected ends here, and
  // is asked for again. What waits to be sent goes.
  if (std::exchange(peer.had_lane, true)) {
    std::deque<Op*> waiting = std::exchange(peer.waiting, {});
    for (Op* op : waiting) op->stream = nullptr;
    me.close_stream(peer, error(Errc::kUnavailable, "another data connection was made"));
    for (Op* op : waiting) op->stream = &peer;
    peer.waiting = std::move(waiting);
  }
  peer.why_none = {Errc::kOk, {}};
  peer.lane = std::make_unique<StreamLane>(
      std::move(stream), dialled,
      StreamLane::Handlers{
          .on_header = [&me, &peer](const AmHeader& header) { return me.stream_header(peer, header); },
          .on_received = [&me](const AmHeader& header, Via via) { me.streamed(header, false, via); },
          .on_sent = [&me](const AmHeader& header, Via via) { me.streamed(header, true, via); },
          .on_refused =
              [&me](const AmHeader& header, const Error& why) {
                if (Op* op = me.on_stream(header, true)) me.finish(*op, why);
              },
          .on_put_back =
              [&me](const AmHeader& header) {
                if (Op* op = me.on_stream(header, false)) op->active = false, op->stream = nullptr;
              },
          .on_pull =
              [&me, &peer] {
                me.pulling.insert(&peer);
                if (me.hooks.on_work) me.hooks.on_work();
              },
          .on_broken =
              [&me, &peer](const Error& why) {
                ++me.counters.endpoints_failed;
                me.broken_streams.emplace_back(
                    peer.cookie, error(why.code, "the data connection to a peer broke: " + why.message));
                if (me.hooks.on_work) me.hooks.on_work();
              }},
      me.options.in_place);
  ++me.counters.streams;
  for (Op* op : std::exchange(peer.waiting, {})) me.put_into_lane(*op, peer);
  if (me.hooks.on_work) me.hooks.on_work();
  return {};
}

void UcxEngine::no_stream(const Cookie& cookie, const Error& why) {
  if (const auto peer = impl_->peers.find(cookie); peer != impl_->peers.end()) peer->second->why_none = why;
}

void UcxEngine::Impl::stream_send(Op& op, Peer& peer) {
  op.stream = &peer;
  if (!peer.lane) return peer.waiting.push_back(&op);
  put_into_lane(op, peer);
}

void UcxEngine::Impl::put_into_lane(Op& op, Peer& peer) {
  op.active = true;
  if (op.source != nullptr)
    peer.lane->send(op.header, *op.source);
  else
    peer.lane->send(op.header, op.data);
}

void UcxEngine::resume(const Cookie& cookie) {
  const auto peer = impl_->peers.find(cookie);
  if (peer != impl_->peers.end() && peer->second->lane) peer->second->lane->resume();
}

// Nothing of the op's memory is touched before all of the header fits.
std::optional<Place> UcxEngine::Impl::stream_header(Peer& peer, const AmHeader& header) {
  if (header.cookie != peer.cookie) {  // of a link before
    ++counters.refused_unknown;
    return {};
  }
  Op* op = wanted(header, true);
  if (op == nullptr) return {};
  op->stream = &peer;
  if (header.bytes != op->header.bytes || op->kind != device::Kind::kHost) {
    ++counters.refused_length;
    finish(*op, error(Errc::kCorruptData, "transfer " + std::to_string(header.transfer) + ": the peer sent " +
                                              std::to_string(header.bytes) + " bytes instead of " +
                                              std::to_string(op->header.bytes)));
    return {};
  }
  op->active = true;
  return Place{op->data, op->sink};
}

// What a lane has to do with; null: it was given up, and its block begun anew under another name.
Op* UcxEngine::Impl::on_stream(const AmHeader& header, bool sending) {
  const auto op = ops.find({header.cookie, header.transfer, sending});
  return op != ops.end() && op->second->stream != nullptr ? op->second.get() : nullptr;
}

void UcxEngine::Impl::streamed(const AmHeader& header, bool sending, Via via) {
  Op* op = on_stream(header, sending);
  if (op == nullptr) return;
  op->via = via;
  complete(*op, UCS_OK);
}

// A piece of each block that lies in the memory of another process.
bool UcxEngine::Impl::pull() {
  bool any = false;
  for (Peer* peer : std::exchange(pulling, {})) {
    if (!peer->lane || !peer->lane->pull()) continue;
    pulling.insert(peer);
    any = true;
  }
  return any;
}

// At once: nobody but us writes the memory. Of a send that is half written the rest has to follow, and one that is read in place is the
// peer's until it says so: they keep their memory while there is headway.
void UcxEngine::Impl::stream_let_go(Op& op, const Error& why) {
  Peer& peer = *op.stream;
  if (!op.sending) {
    if (peer.lane) peer.lane->drop(op.header);
  } else {
    std::erase(peer.waiting, &op);
    if (peer.lane && !peer.lane->withdraw(op.header)) {
      if (op.failure.code == Errc::kOk) {
        op.failure = why;
        ++counters.quarantined;
      }
      return;
    }
  }
  finish(op, why);
}

// Of one whose time is over: its connection may be busy with it, or with what stands before it, which is headway too. But not for ever:
// the sender may have forgotten it. 0: nothing moves.
TimeNs UcxEngine::Impl::later_deadline(const Op& op, TimeNs now) const {
  const auto found = peers.find(op.header.cookie);
  if (found == peers.end() || op.kind != device::Kind::kHost || op.failure.code != Errc::kOk) return 0;
  const Peer& peer = *found->second;
  if (!peer.streams || !peer.lane || (op.stream == nullptr && op.active)) return 0;
  const TimeNs margin = op.sending ? kSenderMargin : 0;
  if (const TimeNs own =
          op.sending ? peer.lane->lent_at(op.header).value_or(0) : peer.lane->received_at(op.header);
      own > 0)
    return own + options.deadline_ns + margin;
  if (now - op.began >= kMostDeadlines * options.deadline_ns + margin) return 0;
  return (op.sending ? peer.lane->wrote_at() : peer.lane->read_at()) + options.deadline_ns;
}

void UcxEngine::extend(const Cookie& cookie, std::uint64_t transfer, bool sending) {
  const auto op = impl_->ops.find({cookie, transfer, sending});
  if (op != impl_->ops.end()) op->second->began = monotonic_now();
}

// Past its time, and half written or lent. True: it is to be looked at again one grace later.
bool UcxEngine::Impl::makes_headway(Op& op, TimeNs now) {
  Peer& peer = *op.stream;
  if (peer.lane) {
    // Of one that is lent others that are moved say nothing.
    const TimeNs moved = peer.lane->lent_at(op.header).value_or(peer.lane->wrote_at());
    if (now - moved < options.grace_ns) return true;
  }
  broken_streams.emplace_back(
      peer.cookie,
      error(Errc::kTimeout, "the data connection to a peer was closed because sending transfer " +
                                std::to_string(op.header.transfer) + " hung"));
  peer.lane.reset();
  return false;
}

// Nobody can want what was granted over a link that is no more.
void UcxEngine::Impl::withdraw_sends(Peer& peer, const Error& why) {
  std::vector<Op*> over;
  for (auto& [key, op] : ops) {
    if (key.cookie == peer.cookie && op->sending && op->stream == &peer) over.push_back(op.get());
  }
  for (Op* op : over) {
    const bool waits = std::erase(peer.waiting, op) > 0;
    if (waits || !peer.lane || peer.lane->withdraw(op->header)) finish(*op, why);
  }
}

// Ends all that is under way over it, and what is expected: it may have been lost with the stream.
void UcxEngine::Impl::close_stream(Peer& peer, const Error& why) {
  if (!peer.streams) return;
  peer.lane.reset();
  peer.waiting.clear();
  pulling.erase(&peer);
  std::vector<Op*> over;
  for (auto& [key, op] : ops) {
    const bool expected = !op->sending && !op->active && key.cookie == peer.cookie;
    if (op->stream == &peer || (expected && op->kind == device::Kind::kHost)) over.push_back(op.get());
  }
  for (Op* op : over) {
    if (op->failure.code != Errc::kOk) --counters.quarantined;
    finish(*op, op->failure.code != Errc::kOk ? op->failure : why);
  }
}

void UcxEngine::Impl::handle_broken_streams() {
  while (!broken_streams.empty()) {
    const auto [cookie, why] = broken_streams.back();
    broken_streams.pop_back();
    const auto found = peers.find(cookie);
    if (found == peers.end()) continue;
    close_stream(*found->second, error(Errc::kUnavailable, why.message));
    if (hooks.on_lost) hooks.on_lost(cookie, why);
  }
}

}  // namespace tilewise::transfer
