#include <tilewise/exchange/exchange.h>

#include "impl.h"

namespace tilewise::exchange {

namespace {

constexpr std::size_t kMaxLost = 65'536;

bool is_unix(const net::Address& address) { return address.kind != net::Address::Kind::kTcp; }

}  // namespace

std::string text_of(WorkerId id) { return "worker " + std::to_string(id.value); }

// ---- life -------------------------------------------------------------------------------------------------

Exchange::Exchange(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exchange::~Exchange() = default;

Exchange::Impl::~Impl() {
  alive.reset();
  stop(tick);
  for (auto& [id, peer] : peers) {
    stop(peer->timer);
    stop(peer->retry);
    stop(peer->stream_timer);
    stop(peer->direct_timer);
  }
  for (auto& [id, channel] : channels) stop(channel.deadline);
  for (auto& [id, entry] : unmapping) stop(entry.second);
  watch.reset();  // before the engine, which owns the descriptor
}

void Exchange::Impl::stop(net::TimerId& timer) {
  if (timer != 0) loop.cancel(std::exchange(timer, 0));
}

net::HandshakeOptions Exchange::Impl::handshake() const {
  return {.token = options.token,
          .silence_ns = options.silence_ns,
          .ring_bytes = options.map_peers ? net::kUsualRingBytes : 0,
          .probes_path = true};
}

void Exchange::Impl::later(net::EventLoop::Fn fn) {
  loop.defer([watched = std::weak_ptr<char>(alive), fn = std::move(fn)] {
    if (!watched.expired()) fn();
  });
}

Result<std::unique_ptr<Exchange>> Exchange::create(net::EventLoop& loop, Options options,
                                                   Callbacks callbacks) {
  auto impl = std::make_unique<Impl>(loop, std::move(options), std::move(callbacks));
  if (impl->options.use_ucx) TW_TRY(impl->start_ucx());
  return std::unique_ptr<Exchange>(new Exchange(std::move(impl)));
}

Result<std::vector<std::string>> Exchange::listen() {
  Impl& me = *impl_;
  std::vector<std::string> unix_addresses, tcp_addresses;
  for (const std::string& text : me.options.listen) {
    TW_ASSIGN(net::Address address, net::Address::parse(text));
    const bool any_host =
        address.kind == net::Address::Kind::kTcp && (address.host == "0.0.0.0" || address.host == "::");
    if (any_host && me.options.advertise.empty()) {
      return error(Errc::kInvalidArgument,
                   text + " is no address that peers can use: say which to advertise");
    }
    net::ListenerOptions options{.handshake = me.handshake()};
    TW_ASSIGN(auto listener, net::Listener::open(
                                 me.loop, address, options,
                                 [&me](std::unique_ptr<net::Link> link) { me.accepted(std::move(link)); },
                                 [&me](const Error& why, const std::string& peer) {
                                   ++me.counters.rejected;
                                   if (peer.empty() && me.callbacks.on_deaf) me.callbacks.on_deaf(why);
                                 }));
    net::Address ours = listener->address();
    if (!is_unix(ours) && !me.options.advertise.empty()) ours.host = me.options.advertise;
    (is_unix(ours) ? unix_addresses : tcp_addresses).push_back(ours.to_string());
    me.listeners.push_back(std::move(listener));
  }
  me.listening = !me.listeners.empty();
  unix_addresses.insert(unix_addresses.end(), tcp_addresses.begin(), tcp_addresses.end());
  return unix_addresses;
}

void Exchange::set_self(WorkerId self) {
  TW_CHECK(!impl_->self && self, "an exchange gets one id, once");
  impl_->self = self;
  impl_->match_strangers();
}

// ---- peers ------------------------------------------------------------------------------------------------

void Exchange::peer_joined(const msg::PeerInfo& info) {
  Impl& me = *impl_;
  TW_CHECK(static_cast<bool>(me.self), "peers are announced after set_self()");
  if (info.id == me.self || !info.id || me.peers.contains(info.id) || me.lost.contains(info.id)) return;
  const bool we_connect = !info.addresses.empty() && (!me.listening || me.self < info.id);
  if (!we_connect && !me.listening) return;  // two clients, or a tool: they have nothing to say to each other
  auto peer = std::make_unique<Peer>();
  peer->info = info;
  peer->dials = we_connect;
  peer->state = we_connect ? Peer::State::kConnecting : Peer::State::kAwaiting;
  Peer& p = *me.peers.emplace(info.id, std::move(peer)).first->second;
  me.give_up_after(p, me.options.link_deadline_ns, me.options.link_deadline_ns);
  if (!we_connect) return me.match_strangers();
  const bool same_host = me.is_near(info);
  for (const std::string& text : info.addresses) {
    auto address = net::Address::parse(text);
    if (address && (same_host || !is_unix(*address))) p.targets.push_back(std::move(*address));
  }
  std::stable_partition(p.targets.begin(), p.targets.end(), is_unix);  // only they hand over memory
  me.connect(p);
}

void Exchange::peer_lost(WorkerId id) {
  Impl& me = *impl_;
  me.lost.insert(id);
  if (me.lost.size() > kMaxLost) me.lost.erase(me.lost.begin());
  me.match_strangers();  // one that waits with its hello is not waited for
  me.end_relays(id);
  Peer* peer = me.find(id);
  if (peer == nullptr) return;
  const auto fence = me.fences.find(id);
  if (fence != me.fences.end() && peer->announced > 0)
    fence->second->raise();  // else it reads nothing of ours
  me.shut(*peer, error(Errc::kWorkerLost, text_of(id) + " was lost"));
  std::erase_if(me.lent, [&](const auto& slab) { return peer->owns(slab.first.first); });
  if (peer->slabs > 0) {
    const net::TimerId timer = me.loop.after(me.options.unmap_grace_ns, [&me, id] { me.unmap(id); });
    me.unmapping[id] = {peer->info.devices, timer};
  } else if (fence != me.fences.end()) {
    me.fences.erase(fence);
  }
  me.peers.erase(id);
}

void Exchange::readers_done(WorkerId peer) { impl_->unmap(peer); }

void Exchange::slab_added(DeviceId device, std::uint32_t slab, const device::Slab& memory) {
  Impl& me = *impl_;
  const device::Kind kind = memory.memfd >= 0 ? device::Kind::kHost : device::Kind::kCuda;
  me.give_to_ucx(memory, kind, slab != msg::kProbeSlab);
  if (memory.memfd < 0 && memory.ipc_handle.empty()) return;
  me.slabs.push_back({{device, slab, memory.bytes, memory.ipc_handle}, memory.memfd});
  for (auto& [id, peer] : me.peers) {
    if (peer->state == Peer::State::kUp) me.flush(*peer);
  }
}

// One registration of a slab instead of one per block. Where it fails UCX tries again per transfer.
void Exchange::Impl::give_to_ucx(const device::Slab& memory, device::Kind kind, bool registers) {
  if (!engine || !engine->supports(kind)) return;
  Status ok;
  if (registers) ok = engine->register_slab(memory, kind);
  if (ok && options.prove_ucx && !proven[static_cast<std::size_t>(kind)] && engine->idle()) {
    ok = engine->prove(memory, kind);
    proven[static_cast<std::size_t>(kind)] = ok.has_value();
  }
  if (ok) return;
  later([this, why = ok.error(), refused = !engine->supports(kind)] {
    if (callbacks.on_ucx_fault) callbacks.on_ucx_fault(why, refused);
  });
}

bool Exchange::inlines(WorkerId id) const {
  const auto found = impl_->peers.find(id);
  return found == impl_->peers.end() || !found->second->maps;
}

bool Exchange::would_map(WorkerId id) const {
  const auto found = impl_->peers.find(id);
  return found != impl_->peers.end() && found->second->would_map;
}

std::optional<WorkerId> Exchange::fenced_by() const {
  for (const auto& [peer, fence] : impl_->fences) {
    if (fence->is_up()) return peer;
  }
  return std::nullopt;
}

bool Exchange::shares_ring(WorkerId id) const {
  const auto found = impl_->peers.find(id);
  return found != impl_->peers.end() && impl_->has_ring(*found->second);
}

std::span<const std::byte> Exchange::mapped(DeviceId device, std::uint32_t slab) const {
  const auto found = impl_->mapped.find({device, slab});
  return found == impl_->mapped.end() ? std::span<const std::byte>() : found->second->bytes();
}

std::shared_ptr<const void> Exchange::pin(DeviceId device, std::uint32_t slab) const {
  const auto found = impl_->mapped.find({device, slab});
  return found == impl_->mapped.end() ? nullptr : found->second;
}

Counters Exchange::counters() const { return impl_->counters; }
transfer::UcxCounters Exchange::ucx_counters() const {
  return impl_->engine ? impl_->engine->counters() : transfer::UcxCounters{};
}

bool Exchange::strict_lanes() const { return impl_->options.strict_lanes; }
bool Exchange::takes(device::Kind kind) const { return impl_->engine && impl_->engine->supports(kind); }
bool Exchange::takes(device::Kind kind, WorkerId id) const {
  return takes(kind) && !(in_chunks(id) && kind != device::Kind::kHost);
}
bool Exchange::is_up(WorkerId id) const {
  const auto* peer = impl_->find(id);
  return peer != nullptr && peer->state == Peer::State::kUp;
}
bool Exchange::in_chunks(WorkerId id) const {
  const auto* peer = impl_->find(id);
  return impl_->engine && peer != nullptr && impl_->engine->uses_stream(peer->cookie);
}

}  // namespace tilewise::exchange
