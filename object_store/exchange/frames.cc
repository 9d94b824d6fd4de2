// What peers send. They hold the token, but they may be broken, old or half dead: nothing they say is relied
// on before it was checked, and a peer that breaks the rules loses its own link, no more.
#include "impl.h"

namespace tilewise::exchange {

void Exchange::Impl::broke_protocol(ChannelId id, const Error& why) {
  const WorkerId owner = channels.at(id).peer;
  ++counters.protocol_errors;
  Peer* peer = find(owner);
  if (peer == nullptr) return close_stranger(id);
  fail(*peer,
       error(why.code, text_of(owner) + " (" + peer->info.name + ") broke the protocol: " + why.message));
}

// What a channel says before anything else: a hello, and over TCP how much of ours it has had.
void Exchange::Impl::greeting(ChannelId id, msg::Message& message) {
  Channel& channel = channels.at(id);
  auto* hello = std::get_if<msg::PeerHello>(&message);
  auto* resume = std::get_if<msg::Resume>(&message);
  if (channel.hello ? resume == nullptr || channel.resume || !channel.tcp() : hello == nullptr) {
    return broke_protocol(id, error(Errc::kCorruptData, "an unexpected " + std::string(name_of(message))));
  }
  if (hello != nullptr)
    channel.hello = std::move(*hello);
  else
    channel.resume = *resume;
  // The scheduler tells both sides of each other, so a connector may be faster than our own announcement of it.
  if (!channel.peer) return match_strangers();
  Peer& peer = *find(channel.peer);
  if (hello != nullptr && (channel.hello->from != peer.info.id || channel.hello->to != self)) {
    return broke_protocol(id, error(Errc::kNotFound, "there is " + text_of(channel.hello->from) +
                                                         ", looking for " + text_of(channel.hello->to)));
  }
  if (channel.tcp() && !channel.resume) return;
  if (channel.resume && channel.resume->state != peer.attempt_no)
    return broke_protocol(id, error(Errc::kCorruptData, "it takes this link for another one"));
  greeted(peer);
}

void Exchange::Impl::on_frame(ChannelId id, net::Frame& frame) {
  if (channels.at(id).streams) return close_stranger(id);  // it was to wait for the answer
  if (frame.type == kStreamFrame && !channels.at(id).peer) return take_stream(id, frame);
  if (frame.type == kRelayFrame && !channels.at(id).peer) return take_relay(id, frame);
  auto decoded = codec::decode(frame.payload);
  if (!decoded) return broke_protocol(id, decoded.error());
  if (codec::frame_type(*decoded) != frame.type) {
    return broke_protocol(id, error(Errc::kCorruptData, "a frame of type " + std::to_string(frame.type) +
                                                            " holds a " + std::string(name_of(*decoded))));
  }
  const auto unexpected = [&] {
    broke_protocol(id, error(Errc::kCorruptData, "an unexpected " + std::string(name_of(*decoded))));
  };
  auto* map = std::get_if<msg::ArenaMap>(&*decoded);
  if (map == nullptr && !frame.fds.empty()) return unexpected();
  Channel& channel = channels.at(id);
  if (!channel.peer || find(channel.peer)->state == Peer::State::kGreeting) return greeting(id, *decoded);
  Peer& peer = *find(channel.peer);
  if (const auto* ack = std::get_if<msg::Ack>(&*decoded); ack != nullptr && peer.resumes) {
    if (const Status ok = acknowledged(peer, *ack); !ok) broke_protocol(id, ok.error());
    return;
  }
  if (map != nullptr) {
    const bool first = !peer.ready;
    if (const Status ok = take_map(peer, *map, frame.fds); !ok) return broke_protocol(id, ok.error());
    take_in(peer, frame.payload.size());
    if (!first) return;
    peer.ready = true;
    peer.cut_off = false;
    peer.broken.reset();
    stop(peer.timer);
    ++counters.links;
    counters.ring_links += has_ring(peer);
    for (Receive& held : std::exchange(peer.held, {})) begin_receive(peer.info.id, std::move(held));
    if (callbacks.on_ready) callbacks.on_ready(peer.info.id, peer.maps);
    return;
  }
  auto* batch = std::get_if<msg::PeerBatch>(&*decoded);
  if (batch == nullptr || !peer.ready) return unexpected();
  if (const Status ok = check(peer, *batch); !ok) return broke_protocol(id, ok.error());
  take_in(peer, frame.payload.size());
  ++counters.batches_in;
  if (callbacks.on_batch) callbacks.on_batch(peer.info.id, std::move(*batch));
}

Status Exchange::Impl::take_map(Peer& peer, const msg::ArenaMap& map, std::vector<net::UniqueFd>& fds) {
  const auto with_fd = static_cast<std::size_t>(
      std::ranges::count_if(map.slabs, [](const msg::SlabDesc& slab) { return slab.ipc_handle.empty(); }));
  if (fds.size() != with_fd || (!peer.maps && !map.slabs.empty())) {
    return error(Errc::kCorruptData, std::to_string(map.slabs.size()) + " slabs, " + std::to_string(with_fd) +
                                         " of them of host memory, with " + std::to_string(fds.size()) +
                                         " descriptors");
  }
  if (peer.slabs + map.slabs.size() > options.max_slabs) {
    return error(Errc::kLimitExceeded, "more than " + std::to_string(options.max_slabs) + " slabs");
  }
  auto fd = fds.begin();
  for (const msg::SlabDesc& slab : map.slabs) {
    if (!peer.owns(slab.device)) {
      return error(Errc::kPermissionDenied,
                   "a slab of device " + std::to_string(slab.device.value) + ", not its own");
    }
    const std::pair key(slab.device, slab.slab);
    if (mapped.contains(key) || lent.contains(key)) {
      return error(Errc::kAlreadyExists, "slab " + std::to_string(slab.slab) + " again");
    }
    ++peer.slabs;
    if (peer.is_host(slab.device) != slab.ipc_handle.empty()) {
      return error(Errc::kCorruptData,
                   "a slab of device " + std::to_string(slab.device.value) + ", which is of the other kind");
    }
    if (!slab.ipc_handle.empty()) {
      const std::int64_t least = slab.slab == msg::kProbeSlab ? msg::kMaxProbeBytes : 1;
      if (slab.bytes < least)
        return error(Errc::kOutOfRange, "a slab of " + std::to_string(slab.bytes) + " bytes");
      lent.emplace(key, slab.bytes);
      if (callbacks.on_lent) callbacks.on_lent(peer.info.id, slab);
      continue;
    }
    TW_ASSIGN(auto memory, transfer::MappedSlab::import((fd++)->get(), slab.bytes));
    mapped.emplace(key, std::make_shared<const transfer::MappedSlab>(std::move(memory)));
    counters.mapped_bytes += slab.bytes;
  }
  if (engine && !peer.data && !map.ucx_address.empty()) {
    TW_TRY(engine->add_peer(peer.cookie, map.ucx_address));
    peer.data = true;
    if (!peer.resumes || engine->prefers_stream(peer.cookie)) engine->use_stream(peer.cookie);
    want_stream(peer);
  }
  return {};
}

// Of what a peer lends us; -1: it has no such slab.
std::int64_t Exchange::Impl::slab_bytes(DeviceId device, std::uint32_t slab) const {
  if (const auto gpu = lent.find({device, slab}); gpu != lent.end()) return gpu->second;
  const auto host = mapped.find({device, slab});
  return host == mapped.end() ? -1 : static_cast<std::int64_t>(host->second->bytes().size());
}

// Whoever acts on an offer of mapped memory reads it without looking again.
Status Exchange::Impl::check(const Peer& peer, const msg::PeerBatch& batch) const {
  for (const msg::Offer& offer : batch.offers) {
    if (!peer.owns(offer.from)) {
      return error(Errc::kPermissionDenied,
                   "an offer of device " + std::to_string(offer.from.value) + ", not its own");
    }
    // Without a place: what may be on disk, and what clients have in ordinary memory.
    if (!offer.failed.ok() || !peer.maps) continue;
    if (offer.slab == msg::kNoSlab) continue;
    if (offer.slab == msg::kProbeSlab)
      return error(Errc::kOutOfRange, "an offer of memory that no block is in");
    const std::int64_t there = slab_bytes(offer.from, offer.slab);
    if (offer.offset < 0 || offer.bytes < 0 || offer.bytes > there || offer.offset > there - offer.bytes) {
      return error(Errc::kOutOfRange, "an offer of " + std::to_string(offer.bytes) + " bytes at " +
                                          std::to_string(offer.offset) + " of slab " +
                                          std::to_string(offer.slab) + ", which has " +
                                          std::to_string(there));
    }
  }
  return {};
}

}  // namespace tilewise::exchange
