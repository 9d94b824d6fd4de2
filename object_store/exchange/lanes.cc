// The copying lane: UCX on the loop's thread, and what becomes of its transfers when links break.
#include "impl.h"

namespace tilewise::exchange {

namespace {

constexpr TimeNs kBusyTick = 20 * kMillisecond;  // UCX's descriptor is not trusted alone
constexpr TimeNs kIdleTick = 100 * kMillisecond;
constexpr int kRounds = 16;  // of progress in one turn of the loop
// Of two connections to one host that break at once UCX's may be the first that is noticed; and one that is made
// while the other side still closes the old one may break again.
constexpr TimeNs kVerdictNs = 300 * kMillisecond;
constexpr TimeNs kSettlingNs = 2 * kSecond;
constexpr std::size_t kMaxHeld = 65'536;  // receives of one peer

msg::Lane lane_of(transfer::Via via) {
  switch (via) {
    case transfer::Via::kSharedMemory: return msg::Lane::kSharedMemory;
    case transfer::Via::kRdma: return msg::Lane::kRdma;
    case transfer::Via::kCudaIpc: return msg::Lane::kCudaIpc;
    case transfer::Via::kStaged: return msg::Lane::kStaged;
    case transfer::Via::kTcp:
    case transfer::Via::kNone: break;
  }
  return msg::Lane::kTcp;
}

bool is_unavailable(const Status& status) { return !status && status.error().code == Errc::kUnavailable; }

}  // namespace

Status Exchange::Impl::start_ucx() {
  bool loopback = !options.listen.empty();
  for (const std::string& text : options.listen) {
    TW_ASSIGN(const net::Address address, net::Address::parse(text));
    loopback &= net::is_loopback(address);
  }
  // UCX listens too, on all devices if it may; its port proves nobody's identity before our cookies are
  // looked at.
  if (loopback && options.ucx.net_devices.empty()) options.ucx.net_devices = "lo";
  TW_ASSIGN(engine, transfer::UcxEngine::create(options.ucx));
  if (options.prove_ucx) {
    proof_memory.resize(64 << 10);
    const device::Slab memory{.data = proof_memory.data(),
                              .bytes = static_cast<std::int64_t>(proof_memory.size())};
    give_to_ucx(memory, device::Kind::kHost, false);
    if (options.strict_lanes && !engine->supports(device::Kind::kHost))
      return error(Errc::kLaneDenied, "UCX does not move host memory to this process itself and back");
  }
  TW_ASSIGN(watch, loop.watch_fd(engine->event_fd(), [this] { drive(); }));
  engine->set_stream_hooks(
      {.on_work = [this] { kick(); },
       .on_lost = [this](const transfer::Cookie& cookie, const Error& why) { stream_lost(cookie, why); }});
  arm_tick();
  kick();
  return {};
}

void Exchange::Impl::arm_tick() {
  tick = loop.after(engine->idle() ? kIdleTick : kBusyTick, [this] {
    drive();
    arm_tick();
  });
}

void Exchange::Impl::kick() {
  if (driving || !engine) return;
  driving = true;
  later([this] {
    driving = false;
    drive();
  });
}

void Exchange::Impl::drive() {
  for (int i = 0; i < kRounds; ++i) {
    if (engine->progress()) continue;
    if (engine->arm()) return watch->arm();
  }
  kick();  // others are to have their turn
}

bool Exchange::poll() {
  if (!impl_->engine) return false;
  bool any = false;
  for (int i = 0; i < kRounds && impl_->engine->progress(); ++i) any = true;
  if (any) impl_->kick();  // the descriptor has to be armed again
  return any;
}

// Where one lane was to be used and another one was, the bytes have come all the same; whoever is strict wants to hear of it. But while
// UCX makes a connection it goes over TCP at first.
transfer::Done Exchange::Impl::translate(WorkerId id, Done done) {
  const Peer* peer = options.strict_lanes ? find(id) : nullptr;
  if (peer == nullptr) {
    return [done = std::move(done)](Status status, transfer::Via via) {
      if (done) done(std::move(status), lane_of(via));
    };
  }
  // Who does not wish to share memory has chosen the socket.
  const bool near = is_near(peer->info) && options.map_peers && (peer->resumes || peer->would_map);
  return [this, near, cookie = peer->cookie, done = std::move(done)](Status status, transfer::Via via) {
    const msg::Lane lane = lane_of(via);
    if (status && engine->knows_lanes(cookie)) {
      if (lane == msg::Lane::kStaged) {
        status = error(Errc::kLaneDenied, "UCX staged a transfer of device memory through the host");
      } else if (near && via == transfer::Via::kTcp) {
        status =
            error(Errc::kLaneDenied,
                  "a block went through a socket between two processes of one host, which share no memory: "
                  "`tilewise doctor` says what is in the way");
      }
    }
    if (done) done(std::move(status), lane);
  };
}

bool Exchange::Impl::is_near(const msg::PeerInfo& peer) const {
  return !peer.host_id.empty() && peer.host_id == options.host_id;
}

// ---- transfers ---------------------------------------------------------------------------------------------

namespace {

// Runs `post` for a peer with a copying lane; whatever prevents it is heard from `done` like a late failure.
template <class Post>
void begin(Exchange::Impl& me, WorkerId id, device::Kind kind, Exchange::Done& done, Post post,
           bool tell_repeats = false) {
  Peer* peer = me.find(id);
  Status status;
  if (peer == nullptr || peer->state != Peer::State::kUp) {
    status = error(Errc::kUnavailable, "no link to " + text_of(id));
  } else if (!peer->data) {
    status = error(Errc::kUnsupported, "no copying lane to " + text_of(id));
  } else if (!me.engine->supports(kind) && me.options.strict_lanes &&
             !(kind == device::Kind::kHost && me.engine->uses_stream(peer->cookie))) {
    status = error(Errc::kLaneDenied, "this UCX moves no memory of kind " + std::string(name_of(kind)));
  } else {
    status = post(peer->cookie);
  }
  me.kick();
  const bool repeat = !status && status.error().code == Errc::kAlreadyExists;
  if (status || (repeat && !tell_repeats) || !done) return;
  me.later([done = std::move(done), status] { done(status, msg::Lane::kTcp); });
}

}  // namespace

void Exchange::transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                        device::Kind kind, Done done) {
  begin(*impl_, to, kind, done, [&](const net::Cookie& cookie) {
    return impl_->engine->transmit(cookie, transfer, from, bytes, kind, impl_->translate(to, done));
  });
}

void Exchange::transmit(WorkerId to, std::uint64_t transfer, transfer::Source& from, std::int64_t bytes,
                        Done done) {
  const auto post = [&](const net::Cookie& cookie) {
    return impl_->engine->transmit(cookie, transfer, from, bytes, impl_->translate(to, done));
  };
  begin(*impl_, to, device::Kind::kHost, done, post, true);
}

void Exchange::resume(WorkerId id) {
  const Peer* peer = impl_->find(id);
  if (peer == nullptr || !peer->data) return;
  impl_->engine->resume(peer->cookie);
}

void Exchange::receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                       device::Kind kind, Done done, transfer::OnHeld on_held) {
  impl_->receive(from, {transfer, to, nullptr, bytes, kind, std::move(done), std::move(on_held)});
}

void Exchange::receive(WorkerId from, std::uint64_t transfer, transfer::Sink& to, std::int64_t bytes,
                       Done done) {
  impl_->receive(from, {transfer, nullptr, &to, bytes, device::Kind::kHost, std::move(done), {}});
}

void Exchange::Impl::receive(WorkerId from, Receive receive) {
  Peer* peer = find(from);
  // Its deadline is not to begin before its grant can leave; and of a peer that is given up nothing comes until the scheduler has spoken.
  // Whoever was told of either at once would ask again at once.
  const bool waits = peer != nullptr && (peer->state == Peer::State::kFailed ||
                                         ((!peer->ready || peer->broken) && !peer->cut_off));
  if (!waits) return begin_receive(from, std::move(receive));
  const auto same = [&](const Receive& held) { return held.transfer == receive.transfer; };
  if (std::any_of(peer->held.begin(), peer->held.end(), same)) return;
  if (peer->held.size() < kMaxHeld) return peer->held.push_back(std::move(receive));
  end(receive, error(Errc::kLimitExceeded,
                     std::to_string(kMaxHeld) + " transfers wait for the link to " + text_of(from)));
}

void Exchange::extend(WorkerId id, std::uint64_t transfer, bool sending) {
  const Peer* peer = impl_->find(id);
  if (peer != nullptr && peer->data) impl_->engine->extend(peer->cookie, transfer, sending);
}

void Exchange::disarm(WorkerId from, std::uint64_t transfer) {
  Peer* peer = impl_->find(from);
  if (peer == nullptr) return;
  const auto held = std::find_if(peer->held.begin(), peer->held.end(),
                                 [transfer](const Receive& h) { return h.transfer == transfer; });
  if (held != peer->held.end()) {
    impl_->end(*held, error(Errc::kNotFound, text_of(from) + " says that it does not send it"));
    peer->held.erase(held);
  }
  if (!peer->data) return;
  impl_->engine->disarm(peer->cookie, transfer);
  impl_->kick();
}

void Exchange::Impl::begin_receive(WorkerId from, Receive receive) {
  Receive& r = receive;
  r.done = judged(from, std::move(r.done));
  begin(*this, from, r.kind, r.done, [&](const net::Cookie& cookie) {
    const transfer::Done done = translate(from, r.done);
    if (r.sink != nullptr) return engine->expect(cookie, r.transfer, *r.sink, r.bytes, done);
    return engine->expect(cookie, r.transfer, r.to, r.bytes, r.kind, done, std::move(r.on_held));
  });
}

void Exchange::Impl::end(Receive& held, const Error& why) {
  if (!held.done) return;
  later([done = std::move(held.done), why] { done(why, msg::Lane::kTcp); });
}

// ---- why a receive failed ----------------------------------------------------------------------------------

// Whoever asks again as often as a link breaks must not do so where UCX alone has no way.
Exchange::Done Exchange::Impl::judged(WorkerId from, Done done) {
  const Peer* peer = find(from);
  return [this, from, breaks = peer == nullptr ? 0 : peer->breaks, done = std::move(done)](
             Status status, msg::Lane lane) { judge(from, breaks, std::move(status), lane, done, false); };
}

void Exchange::Impl::judge(WorkerId from, std::uint64_t breaks, Status status, msg::Lane lane,
                           const Done& done, bool late) {
  if (!done) return;
  const Peer* peer = find(from);
  const bool in_doubt = is_unavailable(status) && peer != nullptr && peer->state == Peer::State::kUp;
  if (!in_doubt) return done(std::move(status), lane);
  if (!late) {
    loop.after(kVerdictNs, [this, watched = std::weak_ptr<char>(alive), from, breaks, status, lane, done] {
      if (!watched.expired()) judge(from, breaks, status, lane, done, true);
    });
    return;
  }
  const bool broke =
      peer->breaks != breaks || (peer->breaks > 0 && monotonic_now() - peer->back_at < kSettlingNs);
  if (!broke) status = error(Errc::kIo, "without a break of the link: " + status.error().message);
  done(std::move(status), lane);
}

}  // namespace tilewise::exchange
