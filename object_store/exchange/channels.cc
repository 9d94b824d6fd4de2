// Links, from their making until a hello has said whose they are.
#include "impl.h"

namespace tilewise::exchange {

namespace {
constexpr TimeNs kAttemptTime = 5 * kSecond;  // one address, handshake included
constexpr TimeNs kReturnTime = 3 * kSecond;   // the same after a break, at most: packets may be lost still
constexpr TimeNs kRetryPause = 200 * kMillisecond;  // between rounds over all addresses
constexpr TimeNs kCutOffPause = 2 * kSecond;        // the same when nobody waits for it any more
// Somebody who has died is out of reach for everybody, which is known sooner than that.
constexpr TimeNs kRelayAfter = kSecond;
}  // namespace

ChannelId Exchange::Impl::open_channel(std::unique_ptr<net::Link> link, WorkerId peer) {
  const ChannelId id = ++last_channel;
  Channel& channel = channels[id];
  channel.link = std::move(link);
  channel.peer = peer;
  channel.link->start({.on_frame = [this, id](net::Frame& frame) { on_frame(id, frame); },
                       .on_close = [this, id](const Error& why) { on_closed(id, why); },
                       .on_drained =
                           [this, id] {
                             if (Peer* p = find(channels.at(id).peer)) flush(*p);
                           }});
  return id;
}

// ---- accepting --------------------------------------------------------------------------------------------

void Exchange::Impl::accepted(std::unique_ptr<net::Link> link) {
  std::size_t strangers = 0;
  ChannelId oldest = 0;
  for (auto& [id, channel] : channels) {
    if (channel.peer) continue;
    if (oldest == 0) oldest = id;
    ++strangers;
  }
  if (strangers >= options.max_strangers) close_stranger(oldest);  // it has had the most time
  const ChannelId id = open_channel(std::move(link), {});
  channels.at(id).deadline = loop.after(options.link_deadline_ns, [this, id] {
    channels.at(id).deadline = 0;
    close_stranger(id);
  });
}

void Exchange::Impl::close_stranger(ChannelId id) {
  stop(channels.at(id).deadline);
  relaying.erase(id);
  channels.erase(id);
  ++counters.strangers_closed;
}

// The scheduler tells both sides of each other, so a connector may be faster than our own announcement of it.
// A link that takes the place of another one is a later attempt of the same connector. Ours may still look as if all were
// well: only the connector knows that it has given that up.
bool Exchange::Impl::may_take(const Peer& peer, const Channel& channel) const {
  if (peer.dials) return false;  // it is ours to connect
  if (channel.tcp() && channel.resume->state <= peer.attempt_no) return false;
  if (peer.state == Peer::State::kAwaiting) return !peer.resumes || channel.tcp();
  return peer.state == Peer::State::kUp && peer.resumes && channel.tcp() && options.resume_ns > 0;
}

void Exchange::Impl::match_strangers() {
  if (!self) return;
  std::vector<ChannelId> waiting;
  for (auto& [id, channel] : channels) {
    if (!channel.peer && channel.hello && (channel.resume || !channel.tcp())) waiting.push_back(id);
  }
  for (ChannelId id : waiting) {
    const auto at = channels.find(id);
    if (at == channels.end()) continue;
    Channel& channel = at->second;
    const WorkerId from = channel.hello->from;
    // Another incarnation is meant (of us, or one that is no more): nothing it says counts.
    if (channel.hello->to != self || lost.contains(from)) {
      close_stranger(id);
      continue;
    }
    Peer* peer = find(from);
    if (peer == nullptr) continue;  // not announced yet; its deadline runs
    if (!may_take(*peer, channel)) {
      close_stranger(id);
      continue;
    }
    if (peer->state == Peer::State::kUp) down(*peer, error(Errc::kUnavailable, "the peer made another one"));
    stop(channel.deadline);
    channel.peer = from;
    if (channel.tcp()) peer->attempt_no = channel.resume->state;
    peer->channel = id;
    peer->state = Peer::State::kGreeting;
    say_hello(*peer);
    if (peer->state == Peer::State::kGreeting) greeted(*peer);
  }
}

void Exchange::Impl::on_closed(ChannelId id, const Error& why) {
  const auto at = channels.find(id);
  if (at == channels.end()) return;
  if (!at->second.peer) return close_stranger(id);
  const bool broke = why.code == Errc::kUnavailable || why.code == Errc::kTimeout;
  if (!broke) ++counters.protocol_errors;
  Peer* peer = find(at->second.peer);
  if (peer == nullptr) return;
  const Error story = error(
      why.code, "the link to " + text_of(peer->info.id) + " (" + peer->info.name + ") ended: " + why.message);
  return broke && at->second.tcp() ? down(*peer, story) : fail(*peer, story);
}

// ---- connecting -------------------------------------------------------------------------------------------

void Exchange::Impl::connect(Peer& peer) {
  const WorkerId id = peer.info.id;
  if (peer.sought_since == 0) peer.sought_since = monotonic_now();
  if (peer.targets.empty())
    return fail(peer, error(Errc::kUnavailable, text_of(id) + " has no address for us"));
  if (peer.next_target == peer.targets.size()) {
    // Every address was tried. It may only be slow to listen; a wrong token does not get better, unless somebody else has
    // taken the place of a peer that the scheduler is about to lose.
    if (peer.unauthenticated && !peer.resumes) return fail(peer, *peer.unauthenticated);
    peer.unauthenticated.reset();
    if (monotonic_now() - peer.sought_since > kRelayAfter && connect_through(peer)) return;
    return connect_after(peer, peer.cut_off ? kCutOffPause : kRetryPause);
  }
  const net::Address& target = peer.targets[peer.next_target++];
  peer.trying = target;
  net::HandshakeOptions how = handshake();
  // Of the patience there is to be enough left for a relay.
  how.deadline_ns = peer.broken ? std::min(kReturnTime, options.resume_ns / 3) : kAttemptTime;
  peer.attempt = net::connect(loop, target, how, [this, id](Result<std::unique_ptr<net::Link>> link) {
    connected(id, std::move(link));
  });
}

void Exchange::Impl::connect_after(Peer& peer, TimeNs pause_ns) {
  stop(peer.retry);
  peer.attempt.reset();
  peer.passage.reset();
  peer.next_target = 0;
  peer.retry = loop.after(pause_ns, [this, id = peer.info.id] {
    if (Peer* again = find(id)) {
      again->retry = 0;
      connect(*again);
    }
  });
}

// `through`: whose bytes it is made of, if it is not a direct one.
void Exchange::Impl::connected(WorkerId id, Result<std::unique_ptr<net::Link>> link, WorkerId through) {
  Peer* peer = find(id);
  if (peer == nullptr) return;
  peer->attempt.reset();
  peer->passage.reset();
  if (peer->state != Peer::State::kConnecting) return;
  if (!link) {
    if (through) return connect_after(*peer, peer->cut_off ? kCutOffPause : kRetryPause);
    if (link.error().code == Errc::kUnauthenticated) peer->unauthenticated = link.error();
    return connect(*peer);
  }
  peer->state = Peer::State::kGreeting;
  peer->reached = peer->trying;
  peer->via = through;
  peer->channel = open_channel(std::move(*link), id);
  say_hello(*peer);
}

}  // namespace tilewise::exchange
