#include "ucx_impl.h"

namespace tilewise::transfer {

namespace {

constexpr std::int64_t kMaxTransferBytes = std::int64_t{1} << 46;

void on_sent(void* request, ucs_status_t status, void* user_data) {
  Op& op = *static_cast<Op*>(user_data);
  ucp_request_free(request);
  op.engine->complete(op, status);
}

void on_received(void* request, ucs_status_t status, std::size_t, void* user_data) {
  on_sent(request, status, user_data);
}

ucs_memory_type_t memory_type(device::Kind kind) {
  return kind == device::Kind::kHost ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
}

std::string text_of(const Op& op) {
  return (op.sending ? "sending" : "receiving") + std::string(" transfer ") +
         std::to_string(op.header.transfer) + " of " + std::to_string(op.header.bytes) + " bytes";
}

}  // namespace

// ---- beginning --------------------------------------------------------------------------------------------

Result<Op*> UcxEngine::Impl::add_op(const OpKey& key, std::byte* data, std::int64_t bytes, device::Kind kind,
                                    Done& done) {
  if (bytes < 0 || bytes > kMaxTransferBytes) {
    return error(Errc::kInvalidArgument, "a transfer of " + std::to_string(bytes) + " bytes");
  }
  const auto peer = peers.find(key.cookie);
  const bool streamed = peer != peers.end() && peer->second->streams_kind(kind);
  if (!streamed && (memory_types >> memory_type(kind) & 1) == 0) {
    return error(Errc::kUnsupported, "this UCX moves no memory of kind " + std::string(name_of(kind)));
  }
  if (ops.size() >= options.max_pending) {
    return error(Errc::kLimitExceeded, std::to_string(ops.size()) + " transfers are under way");
  }
  auto [at, fresh] = ops.try_emplace(key);
  if (!fresh)
    return error(Errc::kAlreadyExists, "transfer " + std::to_string(key.transfer) + " is under way");
  auto op = std::make_unique<Op>();
  op->engine = this;
  op->header = {key.cookie, key.transfer, static_cast<std::uint64_t>(bytes)};
  op->sending = key.sending;
  op->kind = kind;
  op->data = data;
  op->began = monotonic_now();
  op->deadline = op->began + options.deadline_ns + (key.sending ? kSenderMargin : 0);
  op->wake = op->deadline;
  op->done = std::move(done);
  alarms.emplace(op->wake, op.get());
  at->second = std::move(op);
  return at->second.get();
}

Status UcxEngine::transmit(const Cookie& cookie, std::uint64_t transfer, const std::byte* from,
                           std::int64_t bytes, device::Kind kind, Done done) {
  const auto peer = impl_->peers.find(cookie);
  if (peer == impl_->peers.end()) return error(Errc::kNotFound, "no such data peer");
  const bool streamed = peer->second->streams_kind(kind);
  if (!streamed) TW_TRY(impl_->connect(*peer->second));
  TW_ASSIGN(Op * op,
            impl_->add_op({cookie, transfer, true}, const_cast<std::byte*>(from), bytes, kind, done));
  if (streamed)
    impl_->stream_send(*op, *peer->second);
  else
    impl_->post_send(*op, *peer->second);
  return {};
}

Result<Peer*> UcxEngine::Impl::streaming(const Cookie& cookie) {
  const auto peer = peers.find(cookie);
  if (peer == peers.end()) return error(Errc::kNotFound, "no such data peer");
  if (!peer->second->streams)
    return error(Errc::kUnsupported, "bytes come in chunks over a data connection only");
  return peer->second.get();
}

Status UcxEngine::transmit(const Cookie& cookie, std::uint64_t transfer, Source& from, std::int64_t bytes,
                           Done done) {
  TW_ASSIGN(Peer* const peer, impl_->streaming(cookie));
  TW_ASSIGN(Op* const op, impl_->add_op({cookie, transfer, true}, nullptr, bytes, device::Kind::kHost, done));
  op->source = &from;
  impl_->stream_send(*op, *peer);
  return {};
}

Status UcxEngine::expect(const Cookie& cookie, std::uint64_t transfer, Sink& to, std::int64_t bytes,
                         Done done) {
  TW_TRY(impl_->streaming(cookie));
  TW_ASSIGN(Op* const op,
            impl_->add_op({cookie, transfer, false}, nullptr, bytes, device::Kind::kHost, done));
  op->sink = &to;
  return {};
}

Status UcxEngine::expect(const Cookie& cookie, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                         device::Kind kind, Done done, OnHeld held) {
  const auto peer = impl_->peers.find(cookie);
  if (peer == impl_->peers.end()) return error(Errc::kNotFound, "no such data peer");
  TW_ASSIGN(Op * op, impl_->add_op({cookie, transfer, false}, to, bytes, kind, done));
  op->held = std::move(held);
  // While the grant travels the connection is made; and an endpoint of our own can be closed if the peer
  // hangs.
  if (peer->second->streams_kind(kind)) return {};
  if (peer->second->address.empty() && !peer->second->other_ucx) return {};
  if (Status ok = impl_->connect(*peer->second); !ok) impl_->finish(*op, ok);
  return {};
}

void UcxEngine::disarm(const Cookie& cookie, std::uint64_t transfer) {
  const auto found = impl_->ops.find({cookie, transfer, false});
  if (found == impl_->ops.end() || found->second->active) return;
  Op& op = *found->second;
  impl_->finish(op, error(Errc::kNotFound, text_of(op) + ": the peer says that it does not send it"));
}

void UcxEngine::Impl::post_send(Op& op, Peer& peer) {
  // Eager data lands in host memory at the receiver.
  op.bulk = op.kind != device::Kind::kHost || op.header.bytes > options.eager_bytes;
  op.active = true;
  op.ep = peer.ep;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.flags = op.bulk ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = on_sent;
  params.user_data = &op;
  params.memory_type = memory_type(op.kind);
  take_result(
      op, ucp_am_send_nbx(peer.ep, kAmId, &op.header, sizeof op.header, op.data, op.header.bytes, &params));
}

// Of what a message announces: the receive that waits for it. Counts one that nobody waits for.
Op* UcxEngine::Impl::wanted(const AmHeader& header, bool streamed) {
  const auto found = ops.find({header.cookie, header.transfer, false});
  if (found != ops.end() && !found->second->active &&
      (streamed || (found->second->sink == nullptr && monotonic_now() <= found->second->deadline)))
    return found->second.get();
  ++counters.refused_unknown;
  return nullptr;
}

// Called by UCX for every data message. Nothing of the op's memory is touched before all of the header fits.
ucs_status_t UcxEngine::Impl::on_message(const void* header, std::size_t header_bytes, void* data,
                                         std::size_t bytes, bool bulk) {
  const ucs_status_t refused =
      bulk ? UCS_ERR_REJECTED : UCS_OK;  // an eager message is dropped by taking nothing
  AmHeader announced;
  if (header_bytes != sizeof announced) {
    ++counters.refused_malformed;
    return refused;
  }
  std::memcpy(&announced, header, sizeof announced);
  Op* found = wanted(announced, false);
  if (found == nullptr) return refused;
  Op& op = *found;
  const bool eager_to_device = !bulk && op.kind != device::Kind::kHost;
  if (announced.bytes != op.header.bytes || bytes != op.header.bytes || eager_to_device) {
    ++counters.refused_length;
    finish(op, error(Errc::kCorruptData, text_of(op) + ": the peer sent " + std::to_string(bytes) +
                                             ", announced as " + std::to_string(announced.bytes)));
    return refused;
  }
  op.active = true;
  if (const auto peer = peers.find(op.header.cookie); peer != peers.end()) op.ep = peer->second->ep;
  op.bulk = bulk;
  if (!bulk) {
    if (bytes > 0) std::memcpy(op.data, data, bytes);
    complete(op, UCS_OK);
    return UCS_OK;
  }
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.cb.recv_am = on_received;
  params.user_data = &op;
  params.memory_type = memory_type(op.kind);
  take_result(op, ucp_am_recv_data_nbx(worker, data, op.data, bytes, &params));
  return UCS_OK;
}

// ---- ending -----------------------------------------------------------------------------------------------

void UcxEngine::Impl::take_result(Op& op, ucs_status_ptr_t result) {
  if (UCS_PTR_IS_PTR(result)) {
    op.request = result;
  } else {
    complete(op, UCS_PTR_STATUS(result));  // done already, or refused: the callback will not come
  }
}

void UcxEngine::Impl::complete(Op& op, ucs_status_t status) {
  if (op.failure.code != Errc::kOk) {
    --counters.quarantined;
    return finish(op, op.failure);
  }
  if (status != UCS_OK) return finish(op, ucx_error(text_of(op), status));
  // The sender's margin is the time that a late one may have been given to reuse its memory. What a stream brings was copied there.
  if (!op.sending && op.stream == nullptr && monotonic_now() > op.deadline) {
    ++counters.timed_out;
    return finish(op, error(Errc::kTimeout, text_of(op) + ": it came after the deadline"));
  }
  if (op.sending) {
    ++counters.sent;
    counters.sent_bytes += static_cast<std::int64_t>(op.header.bytes);
  } else {
    ++counters.received;
    counters.received_bytes += static_cast<std::int64_t>(op.header.bytes);
  }
  finish(op, {});
}

void UcxEngine::Impl::finish(Op& op, Status status) {
  if (!status) ++counters.failed;
  finished.push_back({std::move(op.done), std::move(status), op.header.cookie, op.bulk, op.kind, op.via});
  if (op.stream != nullptr && !progressing && hooks.on_work) hooks.on_work();
  alarms.erase({op.wake, &op});
  ops.erase(OpKey{op.header.cookie, op.header.transfer, op.sending});  // the op is gone
}

void UcxEngine::Impl::give_up(Op& op, const Error& why) {
  if (op.stream != nullptr) return stream_let_go(op, why);
  if (!op.active) return finish(op, why);  // UCX never knew its memory
  if (op.failure.code == Errc::kOk) {
    op.failure = why;
    ++counters.quarantined;
  }
  if (op.request != nullptr) ucp_request_cancel(worker, op.request);
}

std::string UcxEngine::Impl::why_no_stream(const Op& op) const {
  const auto peer = peers.find(op.header.cookie);
  if (peer == peers.end() || !peer->second->streams_kind(op.kind) || peer->second->lane) return {};
  const Error& why = peer->second->why_none;
  return ": there is no data connection" + (why.code == Errc::kOk ? std::string() : " (" + why.message + ")");
}

void UcxEngine::Impl::expire(TimeNs now) {
  while (!alarms.empty() && alarms.begin()->first <= now) {
    Op& op = *alarms.begin()->second;
    alarms.erase(alarms.begin());
    // First ask; one grace later take the connection away, which makes UCX let go of everything on it; another one later tell who
    // waits that it may be long; then wait.
    const bool first = op.wake == op.deadline;
    if (const TimeNs later = first ? later_deadline(op, now) : 0; later > now) {
      op.wake = op.deadline = later;
      alarms.emplace(op.wake, &op);
      continue;
    }
    const bool again = !first && op.stream != nullptr && makes_headway(op, now);
    const bool ucx_cut_off = op.stream == nullptr && std::exchange(op.cut_off, !first);
    op.wake = first || again || (op.stream == nullptr && !ucx_cut_off) ? now + options.grace_ns : kNever;
    alarms.emplace(op.wake, &op);
    if (first) {
      ++counters.timed_out;
      give_up(op, error(Errc::kTimeout, text_of(op) + ": not done in time" + why_no_stream(op)));
      continue;
    }
    if (op.stream != nullptr) continue;
    if (ucx_cut_off) {
      if (op.held)
        finished.push_back({[held = std::move(op.held)](const Status& why, Via) { held(why.error()); },
                            op.failure, op.header.cookie, op.bulk, op.kind, Via::kNone});
      continue;
    }
    const auto peer = peer_by_ep.find(op.ep);  // the pair may have another cookie by now
    if (peer == peer_by_ep.end()) continue;
    close(*peers.at(peer->second),
          error(Errc::kUnavailable, "the connection was closed because " + text_of(op) + " hung"));
  }
}

bool UcxEngine::Impl::deliver() {
  if (finished.empty()) return false;
  delivering.swap(finished);
  for (Finished& end : delivering) {
    Via via = end.status ? end.via : Via::kNone;
    const auto peer = peers.find(end.cookie);
    if (end.status && via == Via::kNone && peer != peers.end())
      via = via_of(*peer->second, end.bulk, end.kind);
    if (end.done) end.done(std::move(end.status), via);
  }
  delivering.clear();
  return true;
}

}  // namespace tilewise::transfer
