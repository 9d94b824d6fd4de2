// Peers, and what is sent to them.
#include "impl.h"

namespace tilewise::exchange {

namespace {

// In memory while it waits; on the wire it is about the same.
std::size_t bytes_of(const msg::PeerBatch& batch) {
  std::size_t bytes = sizeof batch + batch.subscribes.size() * sizeof(msg::Subscribe) +
                      batch.offers.size() * sizeof(msg::Offer) + batch.grants.size() * sizeof(msg::Grant) +
                      batch.relays.size() * sizeof(msg::Relay) + batch.dones.size() * sizeof(msg::Done) +
                      batch.gones.size() * sizeof(msg::Gone) + batch.probes.size() * sizeof(msg::Probe);
  for (const msg::Offer& offer : batch.offers) bytes += offer.data.size() + offer.failed.message.size();
  return bytes;
}

std::size_t entries_of(const msg::PeerBatch& batch) {
  return batch.subscribes.size() + batch.offers.size() + batch.grants.size() + batch.relays.size() +
         batch.dones.size() + batch.gones.size() + batch.probes.size();
}

// Moves the first `count` entries, in the order in which they are processed, out of a batch.
msg::PeerBatch split_front(msg::PeerBatch& batch, std::size_t count) {
  msg::PeerBatch front;
  front.recovery = batch.recovery;
  const auto take = [&count](auto& from, auto& to) {
    const auto n = static_cast<std::ptrdiff_t>(std::min(count, from.size()));
    to.assign(std::make_move_iterator(from.begin()), std::make_move_iterator(from.begin() + n));
    from.erase(from.begin(), from.begin() + n);
    count -= static_cast<std::size_t>(n);
  };
  take(batch.subscribes, front.subscribes);
  take(batch.offers, front.offers);
  take(batch.grants, front.grants);
  take(batch.relays, front.relays);
  take(batch.dones, front.dones);
  take(batch.gones, front.gones);
  take(batch.probes, front.probes);
  return front;
}

// What comes later behind what comes first.
void append(msg::PeerBatch& first, msg::PeerBatch& later) {
  const auto move = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move(first.subscribes, later.subscribes);
  move(first.offers, later.offers);
  move(first.grants, later.grants);
  move(first.relays, later.relays);
  move(first.dones, later.dones);
  move(first.gones, later.gones);
  move(first.probes, later.probes);
}

bool is_full(const Status& status) { return !status && status.error().code == Errc::kLimitExceeded; }

}  // namespace

Peer* Exchange::Impl::find(WorkerId id) {
  const auto found = peers.find(id);
  return found == peers.end() ? nullptr : found->second.get();
}

void Exchange::Impl::say_hello(Peer& peer) {
  msg::PeerHello hello;
  hello.from = self;
  hello.to = peer.info.id;
  if (options.map_peers) hello.host_id = options.host_id;  // who does not map is on a host of its own
  hello.slab_fds = static_cast<std::int32_t>(slabs.size());
  Status ok = write(peer, hello);
  if (ok && channels.at(peer.channel).tcp()) {
    if (peer.dials) ++peer.attempt_no;
    ok = write(peer, msg::Resume{peer.attempt_no, self, peer.received.total()});
  }
  if (!ok && ok.error().code != Errc::kUnavailable)
    fail(peer, ok.error());  // else it is about to say that it is closed
}

// Its hello, and over TCP its Resume, have come, and ours have left.
void Exchange::Impl::greeted(Peer& peer) {
  const Channel& channel = channels.at(peer.channel);
  peer.state = Peer::State::kUp;
  peer.unauthenticated.reset();  // whoever it was, this one is who it should be
  if (channel.tcp()) {
    peer.resumes = true;
    if (!resume(peer)) return;
  } else {
    // Without a fence, readers that are taken for lost could not be told from those that live.
    const std::shared_ptr<net::Fence> fence = channel.link->fence();
    peer.would_map =
        options.map_peers && !options.host_id.empty() && channel.hello->host_id == options.host_id;
    peer.maps = peer.would_map && fence != nullptr;
    if (peer.maps) fences[peer.info.id] = fence;
    peer.cookie = channel.link->cookie();
  }
  flush(peer);
}

// ---- sending ----------------------------------------------------------------------------------------------

Status Exchange::Impl::write(Peer& peer, const msg::Message& message, std::vector<net::UniqueFd> fds) {
  if (const Status ok = codec::encode(message, buffer); !ok) {
    return error(Errc::kInternal,
                 "cannot encode: " + ok.error().message);  // whatever it says: not a full link
  }
  return channels.at(peer.channel).link->send(codec::frame_type(message), buffer.bytes(), std::move(fds));
}

// The slabs that the peer does not know yet, and once the address of the copying lane.
Status Exchange::Impl::announce(Peer& peer) {
  while (!peer.address_sent || (peer.maps && peer.announced < slabs.size())) {
    msg::ArenaMap map;
    std::vector<net::UniqueFd> fds;
    std::size_t next = peer.announced;
    for (; peer.maps && next < slabs.size() && map.slabs.size() < net::kMaxFdsPerFrame; ++next) {
      const OwnSlab& slab = slabs[next];
      map.slabs.push_back(slab.desc);
      if (slab.memfd < 0) continue;
      TW_ASSIGN(auto fd, net::duplicate(slab.memfd));
      fds.push_back(std::move(fd));
    }
    if (!peer.address_sent && engine) map.ucx_address = engine->address();
    if (const Status ok = codec::encode(msg::Message(map), buffer); !ok)
      return error(Errc::kInternal, "slabs cannot be announced: " + ok.error().message);
    TW_TRY(put(peer, codec::frame_type(msg::Message(map)), buffer.bytes(), std::move(fds)));
    peer.announced = next;
    peer.address_sent = true;
  }
  return {};
}

// Sends the batch, in parts where one message cannot hold it. After kLimitExceeded the batch holds what is
// left.
Status Exchange::Impl::write_batch(Peer& peer, msg::PeerBatch& batch) {
  while (!batch.empty()) {
    msg::Message message = std::exchange(batch, {});
    msg::PeerBatch& part = std::get<msg::PeerBatch>(message);
    Status encoded = codec::encode(message, buffer);
    for (std::size_t n = entries_of(part); is_full(encoded) && n > 1;
         encoded = codec::encode(message, buffer)) {
      msg::PeerBatch front = split_front(part, n /= 2);
      append(part, batch);
      batch = std::exchange(part, std::move(front));
    }
    if (!encoded)
      return error(Errc::kInternal, "a message for a peer cannot be encoded: " + encoded.error().message);
    if (Status sent = put(peer, codec::frame_type(message), buffer.bytes()); !sent) {
      append(part, batch);
      batch = std::move(part);
      return sent;
    }
    ++counters.batches_out;
  }
  return {};
}

// Everything that waits, until the link is full, which calls again when it has drained; or until so much is not known to
// have arrived: then the next Ack does.
void Exchange::Impl::flush(Peer& peer) {
  if (peer.state != Peer::State::kUp) return;
  Status status = announce(peer);
  while (status && !peer.queue.empty()) {
    status = write_batch(peer, peer.queue.front().first);
    if (!status) break;
    peer.queued_bytes -= peer.queue.front().second;
    peer.queue.pop_front();
  }
  if (status || is_full(status)) return;
  if (peer.resumes && status.error().code == Errc::kUnavailable) return;  // on_closed() follows
  fail(peer, status.error());
}

Status Exchange::send(WorkerId id, msg::PeerBatch batch) {
  Peer* peer = impl_->find(id);
  if (peer == nullptr) return error(Errc::kNotFound, text_of(id) + " is no peer");
  if (peer->state == Peer::State::kFailed)
    return error(Errc::kUnavailable, text_of(id) + " cannot be reached");
  if (batch.empty()) return {};
  const std::size_t bytes = bytes_of(batch);
  if (bytes >
      impl_->options.max_queued_bytes - std::min(peer->queued_bytes, impl_->options.max_queued_bytes)) {
    const Error why =
        error(Errc::kLimitExceeded, std::to_string(peer->queued_bytes) + " bytes of messages wait for " +
                                        text_of(id) + ", who does not take them");
    impl_->fail(*peer, why);
    return why;
  }
  peer->queue.emplace_back(std::move(batch), bytes);
  peer->queued_bytes += bytes;
  impl_->flush(*peer);
  return {};
}

// ---- ending -----------------------------------------------------------------------------------------------

void Exchange::Impl::shut(Peer& peer, const Error& why) {
  stop(peer.timer);
  stop(peer.retry);
  stop_stream(peer);
  stop(peer.direct_timer);
  peer.direct.reset();
  peer.attempt.reset();
  peer.passage.reset();
  peer.queue.clear();
  peer.queued_bytes = 0;
  drop_link(peer);
  close_lane(peer, why);
  for (Receive& held : std::exchange(peer.held, {})) end(held, why);
}

void Exchange::Impl::fail(Peer& peer, const Error& why) {
  if (peer.state == Peer::State::kFailed) return;
  // Whatever the reason: the bytes may be had when the scheduler has spoken.
  shut(peer, error(Errc::kUnavailable, why.message));
  peer.state = Peer::State::kFailed;
  later([this, id = peer.info.id, why] {
    if (find(id) != nullptr && callbacks.on_unreachable)
      callbacks.on_unreachable(id, why);  // not lost meanwhile
  });
}

void Exchange::Impl::unmap(WorkerId id) {
  const auto found = unmapping.find(id);
  if (found == unmapping.end()) return;
  for (DeviceId device : found->second.first) {
    auto slab = mapped.lower_bound({device, 0});
    while (slab != mapped.end() && slab->first.first == device) {
      counters.mapped_bytes -= static_cast<std::int64_t>(slab->second->bytes().size());
      slab = mapped.erase(slab);
    }
  }
  stop(found->second.second);
  unmapping.erase(found);
  fences.erase(id);
}

}  // namespace tilewise::exchange
