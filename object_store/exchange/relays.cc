// Ways through a third process, for two that cannot reach each other, whichever direction is lost.
//
//   who asks -> relay     { its id, whom it wants }, over a connection of its own, once both have proven the token
//   relay    -> who asks  { outcome }, when the relay has a connection to one of that peer's addresses, or none
// From then on the relay passes bytes on, both ways, and looks at none. The two ends greet each other as over any connection (hello, Resume,
// or the word of a data connection), prove the token to each other, and count messages as ever: so it is the same link, whatever way it took
// before, and what is above notices a break and nothing else. Only who dials asks; only workers are asked, and asked for.
//
// A relay knows the peers that the scheduler has announced to it, and connects to nobody else. It ends what it passes on for whoever the
// scheduler declares lost. While a way goes through a relay the direct one is tried now and then, and taken when it is there.
#include "relays.h"

#include <cstring>

#include "impl.h"

namespace tilewise::exchange {

namespace {

constexpr TimeNs kPassageTime = 6 * kSecond;  // for an attempt, both legs and the greeting
constexpr TimeNs kLegTime = 3 * kSecond;      // a relay's, to the other end
constexpr int kLaterReturns = 16;  // times Options::direct_ns, at most, between attempts to do without
constexpr std::size_t kRelayBuffer = 128 << 10;
constexpr std::size_t kTurnBytes = 1 << 20;  // passed on in one turn of the loop, then others have theirs
constexpr std::size_t kMaxRelayed = 256;     // ways through this process

template <class Word> std::span<const std::byte> bytes_of(const Word& word) {
  return {reinterpret_cast<const std::byte*>(&word), sizeof word};
}

template <class Word> std::optional<Word> read(const net::Frame& frame) {
  if (frame.type != kRelayFrame || frame.payload.size() != sizeof(Word) || !frame.fds.empty()) return {};
  Word word;
  std::memcpy(&word, frame.payload.data(), sizeof word);
  return word;
}

std::optional<net::Address> tcp_address(const msg::PeerInfo& peer) {
  for (const std::string& text : peer.addresses) {
    auto address = net::Address::parse(text);
    if (address && address->kind == net::Address::Kind::kTcp) return *address;
  }
  return {};
}

}  // namespace

// ---- who asks ---------------------------------------------------------------------------------------------

Passage::Passage(net::EventLoop& loop, const net::Address& relay, net::HandshakeOptions how, WorkerId self,
                 WorkerId to, net::Handshake::Done done)
    : loop_(loop),
      how_([&] {
        how.ring_bytes = 0;  // what is passed on are bytes
        how.deadline_ns = kPassageTime;
        return std::move(how);
      }()),
      done_(std::move(done)) {
  deadline_ = loop_.after(kPassageTime, [this] {
    deadline_ = 0;
    end(error(Errc::kTimeout, "no answer through a relay in time"));
  });
  attempt_ = net::connect(loop_, relay, how_, [this, self, to](Result<std::unique_ptr<net::Link>> link) {
    asked(std::move(link), self, to);
  });
}

Passage::~Passage() {
  if (deadline_ != 0) loop_.cancel(deadline_);
}

void Passage::asked(Result<std::unique_ptr<net::Link>> link, WorkerId self, WorkerId to) {
  if (!link) return end(link.error());
  link_ = std::move(*link);
  link_->start({.on_frame = [this](net::Frame& frame) { answered(frame); },
                .on_close = [this](const Error& why) { end(why); }});
  const RelayQuestion question{self.value, to.value};
  if (const Status sent = link_->send(kRelayFrame, bytes_of(question)); !sent) end(sent.error());
}

void Passage::answered(const net::Frame& frame) {
  const auto answer = read<RelayAnswer>(frame);
  if (!answer) return end(error(Errc::kCorruptData, "a relay's answer cannot be read"));
  if (answer->outcome != 0)
    return end(error(static_cast<Errc>(answer->outcome), "the relay does not reach it either"));
  loop_.defer([this, watched = std::weak_ptr<char>(alive_)] {
    if (watched.expired() || !link_) return;
    auto stream = net::Link::into_stream(std::move(link_));
    if (!stream) return end(stream.error());
    handshake_ =
        net::Handshake::start(loop_, std::move(*stream), net::Role::kConnector, how_,
                              [this](Result<std::unique_ptr<net::Link>> made) { end(std::move(made)); });
  });
}

void Passage::end(Result<std::unique_ptr<net::Link>> result) {
  if (!done_) return;
  std::exchange(done_, {})(std::move(result));  // which may destroy this
}

// The next of those that may reach it, in the order of ids, each in turn. None: there is nobody, or it would be of no use, because
// blocks between the two go over a network that no relay passes on.
Peer* Exchange::Impl::relay_for(const Peer& peer) {
  if (peer.info.role != msg::Role::kWorker || !options.relays) return nullptr;
  if (peer.data && !engine->uses_stream(peer.cookie)) return nullptr;
  Peer* first = nullptr;
  for (auto& [id, other] : peers) {
    const bool reaches = other->state == Peer::State::kUp && other->ready && !other->via;
    if (!reaches || id == peer.info.id || other->info.role != msg::Role::kWorker) continue;
    if (!tcp_address(other->info)) continue;
    if (id > peer.last_relay) return other.get();
    if (first == nullptr) first = other.get();
  }
  return first;
}

// False: there is nobody to ask.
bool Exchange::Impl::connect_through(Peer& peer) {
  const Peer* relay = relay_for(peer);
  if (relay == nullptr) return false;
  const WorkerId id = peer.info.id, through = peer.last_relay = relay->info.id;
  peer.trying.reset();
  peer.passage = this->through(*relay, id, [this, id, through](Result<std::unique_ptr<net::Link>> link) {
    connected(id, std::move(link), through);
  });
  return true;
}

std::unique_ptr<Passage> Exchange::Impl::through(const Peer& relay, WorkerId to, net::Handshake::Done done) {
  return std::make_unique<Passage>(loop, *tcp_address(relay.info), handshake(), self, to, std::move(done));
}

// Now and then, while the way goes through another process.
void Exchange::Impl::try_direct(Peer& peer) {
  stop(peer.direct_timer);
  peer.direct.reset();
  if (!peer.via || peer.targets.empty()) return;
  peer.direct_pause_ns =
      std::clamp(2 * peer.direct_pause_ns, options.direct_ns, kLaterReturns * options.direct_ns);
  const WorkerId id = peer.info.id;
  peer.direct_timer = loop.after(peer.direct_pause_ns, [this, id] {
    Peer* p = find(id);
    if (p == nullptr) return;
    p->direct_timer = 0;
    if (!p->via || p->state != Peer::State::kUp) return try_direct(*p);
    const net::Address target = p->targets[p->next_direct++ % p->targets.size()];
    net::HandshakeOptions how = handshake();
    how.deadline_ns = kLegTime;
    p->direct = net::connect(loop, target, how, [this, id, target](Result<std::unique_ptr<net::Link>> link) {
      Peer* again = find(id);
      if (again == nullptr) return;
      if (!link || !again->via || again->state != Peer::State::kUp) return try_direct(*again);
      take_direct(*again, std::move(*link), target);
    });
  });
}

// For both ends a link that broke and was made again.
void Exchange::Impl::take_direct(Peer& peer, std::unique_ptr<net::Link> link, const net::Address& target) {
  down(peer, error(Errc::kUnavailable, "there is a direct way again"));
  if (peer.state != Peer::State::kConnecting) return;
  stop(peer.retry);
  peer.trying = target;
  connected(peer.info.id, std::move(link), {});
}

// ---- who is asked -----------------------------------------------------------------------------------------

void Exchange::Impl::take_relay(ChannelId id, const net::Frame& frame) {
  Channel& channel = channels.at(id);
  const auto question = read<RelayQuestion>(frame);
  const Peer* from = question && !channel.hello ? find(WorkerId{question->from}) : nullptr;
  if (from == nullptr || !channel.tcp()) return close_stranger(id);
  channel.streams = true;
  const WorkerId asker = from->info.id, to{question->to};
  const Peer* peer = find(to);
  const auto address = peer != nullptr && peer->info.role == msg::Role::kWorker && to != asker
                           ? tcp_address(peer->info)
                           : std::nullopt;
  if (!address) return refuse_relay(id, Errc::kNotFound);
  if (!may_relay(asker)) return refuse_relay(id, Errc::kLimitExceeded);
  net::HandshakeOptions how = handshake();
  how.deadline_ns = kLegTime;
  auto connected = [this, id, asker, to](Result<std::unique_ptr<net::ByteStream>> stream) {
    const auto attempt = relaying.extract(id);  // lives until this is over
    if (!channels.contains(id)) return;
    if (!stream || find(asker) == nullptr || find(to) == nullptr)
      return refuse_relay(id, stream ? Errc::kNotFound : Errc::kUnavailable);
    begin_relay(id, asker, to, std::move(*stream));
  };
  relaying[id] = {asker, net::connect_stream(loop, *address, how, std::move(connected))};
}

// Who asks has fewer than are free (a dynamic threshold): one alone half of them, the next half of the rest. What is refused goes through
// other relays.
bool Exchange::Impl::may_relay(WorkerId asker) const {
  const auto its = [asker](const auto& entry) { return entry.second.asker == asker; };
  const auto own = std::ranges::count_if(relayed, its) + std::ranges::count_if(relaying, its);
  return static_cast<std::size_t>(own) + relayed.size() + relaying.size() < kMaxRelayed;
}

void Exchange::Impl::refuse_relay(ChannelId id, Errc why) {
  const RelayAnswer answer{static_cast<std::uint32_t>(why), 0};
  later([this, id, answer] {
    const auto at = channels.find(id);
    if (at == channels.end()) return;
    (void)at->second.link->send(kRelayFrame, bytes_of(answer));
    stop(at->second.deadline);
    net::Link::retire(std::move(at->second.link));
    channels.erase(at);
  });
}

void Exchange::Impl::begin_relay(ChannelId id, WorkerId asker, WorkerId to,
                                 std::unique_ptr<net::ByteStream> target) {
  Channel& channel = channels.at(id);
  stop(channel.deadline);
  std::unique_ptr<net::Link> link = std::move(channel.link);
  channels.erase(id);
  if (!link->send(kRelayFrame, bytes_of(RelayAnswer{}))) return;
  link->flush();  // a few bytes on a fresh connection
  auto stream = net::Link::into_stream(std::move(link));
  if (!stream) return;
  const std::uint64_t number = ++last_relayed;
  ++counters.relayed;
  relayed[number] = {asker, to,
                     std::make_unique<Splice>(std::move(*stream), std::move(target), [this, number] {
                       later([this, number] { relayed.erase(number); });
                     })};
  if (callbacks.on_relay) callbacks.on_relay(asker, to);
}

// Of a peer that was lost: what passes through here for it, and what passes through it for us.
void Exchange::Impl::end_relays(WorkerId lost_peer) {
  std::erase_if(relayed, [&](const auto& entry) {
    return entry.second.asker == lost_peer || entry.second.to == lost_peer;
  });
  for (auto& [id, peer] : peers) {
    if (id == lost_peer) continue;
    if (peer->passage && peer->last_relay == lost_peer) connect_after(*peer, 0);
    if (peer->via != lost_peer) continue;
    if (peer->state == Peer::State::kUp || peer->state == Peer::State::kGreeting)
      down(*peer, error(Errc::kUnavailable,
                        "the way to it went through " + text_of(lost_peer) + ", which was lost"));
  }
}

Splice::Splice(std::unique_ptr<net::ByteStream> asker, std::unique_ptr<net::ByteStream> target,
               std::function<void()> ended)
    : asker_(std::move(asker)), target_(std::move(target)), ended_(std::move(ended)) {
  halves_[0] = {asker_.get(), target_.get(), {}};
  halves_[1] = {target_.get(), asker_.get(), {}};
  for (Half& half : halves_) half.buffer.resize(kRelayBuffer);
  asker_->wait_readable([this] { pump(0); });
}

bool Splice::step(Half& half, std::size_t& moved) {
  moved = 0;
  if (half.begin == half.end) {
    std::vector<net::UniqueFd> fds;
    const auto got = half.from->try_read(half.buffer, fds);
    if (!got || !fds.empty()) return false;
    half.begin = 0, half.end = *got;
    if (*got == 0) return true;
  }
  const net::ByteStream::Piece piece(half.buffer.data() + half.begin, half.end - half.begin);
  const auto put = half.to->try_write({&piece, 1}, {});
  if (!put) return false;
  half.begin += moved = *put;
  return true;
}

void Splice::pump(std::size_t which) {
  Half& half = halves_[which];
  for (std::size_t total = 0, moved = 0; total < kTurnBytes; total += moved) {
    if (!step(half, moved)) {
      asker_->close();
      target_->close();
      return ended_();
    }
    if (which == 0 && half.end > 0 && !std::exchange(answers_, true))
      target_->wait_readable([this] { pump(1); });
    if (moved == 0) break;
  }
  if (half.begin < half.end)
    half.to->wait_writable([this, which] { pump(which); });
  else
    half.from->wait_readable([this, which] { pump(which); });
}

}  // namespace tilewise::exchange
