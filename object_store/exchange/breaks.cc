// Links over TCP that break and are made again. What is above sees one stream of messages each way, in order, each once:
// what is not known to have arrived is kept, each side begins a link by saying how many it has had, and is sent the rest.
//
// Transfers are not resumed. A receiver gives up what it is receiving when it notices the break, and before it speaks on a new
// link; a sender's bytes stay in place until UCX has let go of them, since the receiver may be reading them. UCX's connection
// stays, unless that broke too; transfers have the cookie of the link they belong to in front, so what a grant from
// before the break still sends is not expected by anybody.
#include "impl.h"

namespace tilewise::exchange {

namespace {

constexpr TimeNs kAcceptorMargin = 2 * kSecond;  // it may notice the break first
constexpr std::size_t kMaxKept = 65'536;         // messages

}  // namespace

// ---- breaks -----------------------------------------------------------------------------------------------

// Ends the patience with a peer that is not ready, or not ready again; `patience_ns` is for people.
void Exchange::Impl::give_up_after(Peer& peer, TimeNs ns, TimeNs patience_ns) {
  if (peer.timer != 0) return;
  // A client's link is its own business, as long as the scheduler believes in it: nobody here waits for it.
  if (!peer.dials && peer.info.role == msg::Role::kClient && options.resume_ns > 0) return;
  peer.timer = loop.after(ns, [this, id = peer.info.id, patience_ns] {
    Peer* late = find(id);
    if (late == nullptr) return;
    late->timer = 0;
    const std::string who = text_of(id) + " (" + late->info.name + ")";
    const std::string within = " within " + std::to_string(patience_ns / kSecond) + " s";
    if (late->unauthenticated) return fail(*late, *late->unauthenticated);
    const std::string ways = late->last_relay ? ", nor through another worker" : "";
    if (late->broken && late->ready)
      return give_up(
          *late, error(Errc::kTimeout, "the link to " + who + " broke and could not be made again" + within +
                                           ways + ": " + late->broken->message));
    give_up(*late, error(Errc::kTimeout, "no link to " + who + within + ways +
                                             (late->broken ? ": " + late->broken->message : std::string())));
  });
}

// It is not waited for any longer. What was said to it and has not arrived is kept, for who goes on trying.
void Exchange::Impl::give_up(Peer& peer, const Error& why) {
  if (options.gives_up) return fail(peer, why);
  peer.cut_off = true;
  for (Receive& held : std::exchange(peer.held, {})) end(held, error(Errc::kUnavailable, why.message));
  if (callbacks.on_cut_off) callbacks.on_cut_off(peer.info.id, why);
}

void Exchange::Impl::drop_link(Peer& peer) {
  if (peer.ready && peer.state == Peer::State::kUp) {
    --counters.links;
    counters.ring_links -= has_ring(peer);
  }
  channels.erase(peer.channel);
  peer.channel = 0;
}

void Exchange::Impl::down(Peer& peer, const Error& why) {
  if (options.resume_ns == 0) return fail(peer, why);
  const bool was_up = peer.state == Peer::State::kUp;
  stop_stream(peer);
  if (was_up) peer.sought_since = monotonic_now();
  stop(peer.direct_timer);
  peer.direct.reset();
  drop_link(peer);
  peer.state = peer.dials ? Peer::State::kConnecting : Peer::State::kAwaiting;
  peer.broken = why;
  if (was_up) {
    ++peer.breaks;
    ++counters.breaks;
    if (peer.data) engine->abandon_receives(peer.cookie, error(Errc::kUnavailable, why.message));
    kick();
    if (peer.ready) {
      // A link that is made again, but over which nothing gets through, counts as none.
      const TimeNs patience = options.resume_ns + (peer.dials ? 0 : kAcceptorMargin), now = monotonic_now();
      if (peer.give_up_at == 0) peer.give_up_at = now + patience;
      give_up_after(peer, std::max<TimeNs>(0, peer.give_up_at - now), patience);
      later([this, id = peer.info.id, why] {
        const Peer* p = find(id);
        if (p != nullptr && p->broken && callbacks.on_broken) callbacks.on_broken(id, why);
      });
    }
  }
  if (!peer.dials) return;
  peer.pause_ns = std::clamp(2 * peer.pause_ns, kFirstPause, kLastPause);
  connect_after(peer, peer.pause_ns);
}

// ---- returns ----------------------------------------------------------------------------------------------

// Both have said how far they are. False: it cannot be, and that was the end of it.
bool Exchange::Impl::resume(Peer& peer) {
  Channel& channel = channels.at(peer.channel);
  const std::uint64_t theirs = channel.resume->received, known = peer.sent.first();
  if (theirs < known || !peer.sent.acknowledge(theirs)) {
    broke_protocol(
        peer.channel,
        error(Errc::kCorruptData, "it has had " + std::to_string(theirs) + " messages, of those from " +
                                      std::to_string(known) + " to " + std::to_string(peer.sent.sent())));
    return false;
  }
  peer.received.told();
  peer.pause_ns = 0;
  peer.ack_next = peer.ready;
  std::erase_if(peer.targets, [](const net::Address& a) { return a.kind != net::Address::Kind::kTcp; });
  if (peer.data) engine->rename_peer(peer.cookie, channel.link->cookie());
  peer.cookie = channel.link->cookie();
  for (const courier::Outstanding::Message& message : peer.sent.messages()) {
    const Status sent = channel.link->send(message.type, std::as_bytes(std::span(message.bytes)));
    if (!sent && sent.error().code == Errc::kUnavailable) break;  // on_closed() follows
    if (!sent) return fail(peer, sent.error()), false;
    ++counters.repeated;
  }
  if (theirs > known || peer.sent.messages().empty()) got_through(peer);  // or there is nothing to prove
  peer.sought_since = 0;
  if (peer.via) {
    ++counters.detours;
    try_direct(peer);
  }
  if (!peer.ready) return true;
  want_stream(peer);
  stop(peer.timer);
  peer.cut_off = false;
  ++counters.links;
  ++counters.resumed;
  peer.back_at = monotonic_now();
  peer.broken.reset();
  for (Receive& held : std::exchange(peer.held, {})) begin_receive(peer.info.id, std::move(held));
  later([this, id = peer.info.id] {
    const Peer* p = find(id);
    if (p != nullptr && p->state == Peer::State::kUp && callbacks.on_back) callbacks.on_back(id);
  });
  return true;
}

// Greetings are small and may pass where messages do not (a path that loses large packets): only they end the hurry.
void Exchange::Impl::got_through(Peer& peer) {
  peer.give_up_at = 0;
  if (!peer.via) peer.direct_pause_ns = 0;
}

void Exchange::Impl::close_lane(Peer& peer, const Error& why) {
  if (std::exchange(peer.data, false)) engine->remove_peer(peer.cookie, why);
  kick();
}

// ---- counting ---------------------------------------------------------------------------------------------

// To a peer that is up. kLimitExceeded: it does not fit now; there will be another chance. kUnavailable: the link is about to
// say that it is closed.
Status Exchange::Impl::put(Peer& peer, std::uint16_t type, std::span<const std::byte> bytes,
                           std::vector<net::UniqueFd> fds) {
  net::Link& link = *channels.at(peer.channel).link;
  if (!peer.resumes) return link.send(type, bytes, std::move(fds));
  const std::size_t kept = peer.sent.messages().size();
  const bool fits = kept < kMaxKept && peer.sent.bytes() + bytes.size() <= options.max_kept_bytes;
  if (kept > 0 && !fits)
    return error(Errc::kLimitExceeded,
                 std::to_string(peer.sent.bytes()) + " bytes are not known to have arrived");
  TW_TRY(link.send(type, bytes));
  const bool pushed = peer.sent.push(type, bytes);
  TW_CHECK(pushed, "more is kept than there is room for");
  return {};
}

void Exchange::Impl::take_in(Peer& peer, std::size_t bytes) {
  if (!peer.resumes) return;
  peer.received.add(bytes);
  got_through(peer);
  if (!std::exchange(peer.ack_next, false) && !peer.received.due()) return;
  if (write(peer, msg::Ack{peer.received.total()})) peer.received.told();
}

Status Exchange::Impl::acknowledged(Peer& peer, const msg::Ack& ack) {
  const std::uint64_t before = peer.sent.first();
  if (!peer.sent.acknowledge(ack.received))
    return error(Errc::kCorruptData, "it acknowledges what was never sent");
  if (peer.sent.first() > before) got_through(peer);
  flush(peer);
  return {};
}

}  // namespace tilewise::exchange
