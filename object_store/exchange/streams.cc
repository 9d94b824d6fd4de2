// The connection for blocks beside a link: host memory goes over it, not over UCX, unless both are on hosts with a faster network.
//
// Who dials the link dials this too, to the same address, or through the same third process, and with the same proof of the token; then
//   connector  { ids of both, HMAC(token, "... connector", the link's cookie, this connection's cookie) }
//   acceptor   { the same with "... acceptor" }
// which none but the two ends of the link can say. From then on it carries blocks, no frames (transfer/stream_lane.h). It is the
// peer's, not the link's: it stays when the link is made again. When it breaks it is made again as long as there is a link.
#include <cstring>

#include "impl.h"

namespace tilewise::exchange {

namespace {

constexpr TimeNs kStreamTime = 5 * kSecond;  // for an attempt, its answer included

struct StreamWord {
  std::uint32_t from = 0, to = 0;
  net::Token::Mac proof{};
};
static_assert(sizeof(StreamWord) == 8 + sizeof(net::Token::Mac));

StreamWord word_of(const net::Token& token, std::string_view role, WorkerId from, WorkerId to,
                   const net::Cookie& link, const net::Cookie& stream) {
  StreamWord word{.from = from.value, .to = to.value};
  const std::string label = "tilewise data connection " + std::string(role);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(label)), link, stream,
                                               std::as_bytes(std::span(&word.from, 2))};
  word.proof = token.hmac(pieces);
  return word;
}

std::span<const std::byte> bytes_of(const StreamWord& word) {
  return {reinterpret_cast<const std::byte*>(&word), sizeof word};
}

std::optional<StreamWord> read_word(const net::Frame& frame) {
  if (frame.payload.size() != sizeof(StreamWord) || !frame.fds.empty()) return {};
  StreamWord word;
  std::memcpy(&word, frame.payload.data(), sizeof word);
  return word;
}

}  // namespace

// ---- who dials --------------------------------------------------------------------------------------------

void Exchange::Impl::stop_stream(Peer& peer) {
  stop(peer.stream_timer);
  peer.stream_attempt.reset();
  peer.stream_passage.reset();
  peer.stream_link.reset();
}

// Nothing where there is one that goes the link's way, or somebody else's turn to make one.
void Exchange::Impl::want_stream(Peer& peer) {
  if (!peer.dials || !peer.data || peer.state != Peer::State::kUp || (!peer.reached && !peer.via)) return;
  if (!engine->uses_stream(peer.cookie) || peer.stream_timer != 0) return;
  if (!engine->needs_stream(peer.cookie) && peer.stream_via == peer.via) return;
  dial_stream(peer);
}

void Exchange::Impl::retry_stream(Peer& peer, const Error& why) {
  stop_stream(peer);
  engine->no_stream(peer.cookie, why);
  if (why.code == Errc::kTimeout) return stream_silent(peer, why);
  want_stream_later(peer);
}

void Exchange::Impl::want_stream_later(Peer& peer) {
  if (!peer.dials) return;
  peer.stream_pause_ns = std::clamp(2 * peer.stream_pause_ns, kFirstPause, kLastPause);
  peer.stream_timer = loop.after(peer.stream_pause_ns, [this, id = peer.info.id] {
    Peer* again = find(id);
    if (again == nullptr) return;
    again->stream_timer = 0;
    want_stream(*again);
  });
}

void Exchange::Impl::dial_stream(Peer& peer) {
  const WorkerId id = peer.info.id;
  peer.stream_timer = loop.after(kStreamTime, [this, id] {
    if (Peer* late = find(id)) {
      late->stream_timer = 0;
      retry_stream(*late, error(Errc::kTimeout, "no answer"));
    }
  });
  net::HandshakeOptions how = handshake();
  how.deadline_ns = kStreamTime;
  const auto connected = [this, id](Result<std::unique_ptr<net::Link>> link) {
    Peer* p = find(id);
    if (p == nullptr) return;
    if (!link) return retry_stream(*p, link.error());
    stream_connected(*p, std::move(*link));
  };
  peer.stream_trying = peer.via;
  const Peer* relay = peer.via ? find(peer.via) : nullptr;
  if (peer.via && relay == nullptr) return;  // the link is about to end, too
  if (relay == nullptr)
    peer.stream_attempt = net::connect(loop, *peer.reached, how, connected);
  else
    peer.stream_passage = through(*relay, id, connected);
}

void Exchange::Impl::stream_connected(Peer& peer, std::unique_ptr<net::Link> link) {
  const WorkerId id = peer.info.id;
  peer.stream_attempt.reset();
  peer.stream_passage.reset();
  peer.stream_link = std::move(link);
  const StreamWord word =
      word_of(options.token, "connector", self, id, peer.cookie, peer.stream_link->cookie());
  peer.stream_link->start({.on_frame =
                               [this, id](net::Frame& frame) {
                                 if (Peer* p = find(id); p != nullptr && p->stream_link)
                                   stream_answered(*p, frame);
                               },
                           .on_close =
                               [this, id](const Error& why) {
                                 if (Peer* p = find(id)) retry_stream(*p, why);
                               }});
  if (const Status sent = peer.stream_link->send(kStreamFrame, bytes_of(word)); !sent)
    retry_stream(peer, sent.error());
}

void Exchange::Impl::stream_answered(Peer& peer, net::Frame& frame) {
  const auto word = read_word(frame);
  const StreamWord right =
      word_of(options.token, "acceptor", peer.info.id, self, peer.cookie, peer.stream_link->cookie());
  if (frame.type != kStreamFrame || !word || !net::equal_secrets(word->proof, right.proof)) {
    ++counters.protocol_errors;
    return retry_stream(peer, error(Errc::kCorruptData, "a wrong answer"));
  }
  later([this, id = peer.info.id, link = peer.stream_link.get()] {
    Peer* p = find(id);
    if (p == nullptr || p->stream_link.get() != link) return;
    auto stream = net::Link::into_stream(std::move(p->stream_link));
    stop_stream(*p);
    p->stream_pause_ns = 0;
    if (!stream) return retry_stream(*p, stream.error());
    p->stream_via = p->stream_trying;
    if (const Status attached = attach(*p, std::move(*stream)); !attached) retry_stream(*p, attached.error());
  });
}

// Another than the first ends what is expected, which is to be asked for again as often as after a break of the link (judge()).
Status Exchange::Impl::attach(Peer& peer, std::unique_ptr<net::ByteStream> stream) {
  if (std::exchange(peer.had_stream, true)) stream_broke(peer);
  return engine->attach_stream(peer.cookie, std::move(stream), peer.dials);
}

void Exchange::Impl::stream_broke(Peer& peer) {
  ++peer.breaks;
  peer.back_at = monotonic_now();
}

// Small words of the link may still pass where blocks do not. So it is made again too, which proves its way or finds another one. Inside
// a host there is no way to doubt, and links are not made again.
void Exchange::Impl::stream_silent(Peer& peer, const Error& why) {
  if (!peer.resumes) return want_stream_later(peer);
  later([this, id = peer.info.id, link = peer.channel, why] {
    Peer* p = find(id);
    if (p == nullptr || p->channel != link || p->state != Peer::State::kUp) return;
    down(*p, error(Errc::kUnavailable, "its data connection is silent: " + why.message));
  });
}

// Inside the engine's progress(); what was under way has ended.
void Exchange::Impl::stream_lost(const transfer::Cookie& cookie, const Error& why) {
  for (auto& [id, peer] : peers) {
    if (!peer->data || peer->cookie != cookie) continue;
    stream_broke(*peer);
    if (peer->dials)
      retry_stream(*peer, why);
    else if (why.code == Errc::kTimeout)
      stream_silent(*peer, why);
    return;
  }
}

// ---- who is dialled ---------------------------------------------------------------------------------------

// A stranger that says to be the other end of a link that is up. If that is not so (yet), it will come again.
void Exchange::Impl::take_stream(ChannelId id, const net::Frame& frame) {
  Channel& channel = channels.at(id);
  const auto word = read_word(frame);
  const Peer* peer = word && !channel.hello ? find(WorkerId{word->from}) : nullptr;
  if (peer == nullptr || peer->dials || peer->state != Peer::State::kUp || !peer->data ||
      !engine->uses_stream(peer->cookie))
    return close_stranger(id);
  const net::Cookie& cookie = channel.link->cookie();
  const StreamWord right = word_of(options.token, "connector", peer->info.id, self, peer->cookie, cookie);
  if (word->to != self.value || !net::equal_secrets(word->proof, right.proof)) return close_stranger(id);
  const StreamWord answer = word_of(options.token, "acceptor", self, peer->info.id, peer->cookie, cookie);
  channel.streams = true;
  later([this, id, from = peer->info.id, answer] {
    const auto at = channels.find(id);
    Peer* p = find(from);
    if (at == channels.end()) return;
    if (p == nullptr || !p->data) return close_stranger(id);
    stop(at->second.deadline);
    std::unique_ptr<net::Link> link = std::move(at->second.link);
    channels.erase(at);
    if (!link->send(kStreamFrame, bytes_of(answer))) return;
    link->flush();  // a few bytes on a fresh connection
    if (auto stream = net::Link::into_stream(std::move(link))) (void)!attach(*p, std::move(*stream));
  });
}

}  // namespace tilewise::exchange
