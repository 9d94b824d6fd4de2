#include <cstdio>
#include <cstdlib>

#include "ucx_impl.h"

namespace tilewise::transfer {

namespace {

// Inside UCX: only noted. Arrives once per endpoint, which then must be closed.
void on_endpoint_error(void* arg, ucp_ep_h ep, ucs_status_t status) {
  static_cast<UcxEngine::Impl*>(arg)->broken.emplace_back(
      ep, ucx_error("the connection to a peer broke", status));
}

std::string describe(ucp_ep_h ep) {
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucp_ep_print_info(ep, stream);
  std::fclose(stream);
  std::string result(text, bytes);
  std::free(text);
  return result;
}

}  // namespace

Status UcxEngine::Impl::connect(Peer& peer) {
  if (peer.ep != nullptr) return {};
  if (peer.other_ucx) return error(Errc::kUnsupported, "the peer has another version of UCX");
  if (peer.address.empty()) return error(Errc::kUnavailable, "the peer gave no UCX address");
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // without it a dead peer is never reported
  params.err_handler.cb = on_endpoint_error;
  params.err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(worker, &params, &peer.ep);
  if (status != UCS_OK) {
    peer.ep = nullptr;
    return ucx_error("connecting to a peer", status);
  }
  peer_by_ep[peer.ep] = peer.cookie;
  peer.lanes_read = 0;
  return {};
}

// Force: the peer is dead, stuck, or not to be waited for. UCX completes what it still held, now or a little
// later.
void UcxEngine::Impl::close(Peer& peer, const Error& why) {
  if (peer.ep == nullptr) return;
  const ucp_ep_h ep = std::exchange(peer.ep, nullptr);
  peer_by_ep.erase(ep);
  std::erase_if(broken, [ep](const auto& entry) { return entry.first == ep; });
  for (auto& [key, op] : ops) {  // so that `done` hears the cause, not that a request was cancelled
    if (op->ep != ep) continue;  // whatever cookie the pair had when it began
    op->ep = nullptr;
    if (op->failure.code != Errc::kOk) continue;
    op->failure = why;
    ++counters.quarantined;
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(ep, &params);
  if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
}

void UcxEngine::Impl::reap_closes() {
  std::erase_if(closing, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
}

void UcxEngine::Impl::fail_waiting(const Cookie& cookie, const Error& why, bool streamed) {
  const auto peer = peers.find(cookie);
  const bool streams = peer != peers.end() && peer->second->streams;
  std::vector<Op*> waiting;
  for (auto& [key, op] : ops) {
    if (key.cookie != cookie || op->active || op->sending) continue;
    if (streamed || !streams || op->kind != device::Kind::kHost) waiting.push_back(op.get());
  }
  for (Op* op : waiting) finish(*op, why);
}

void UcxEngine::Impl::handle_broken() {
  while (!broken.empty()) {
    const auto [ep, why] = broken.back();
    broken.pop_back();
    const auto found = peer_by_ep.find(ep);
    if (found == peer_by_ep.end()) continue;  // closed by us meanwhile
    ++counters.endpoints_failed;
    Peer& peer = *peers.at(found->second);
    fail_waiting(peer.cookie, why, false);
    close(peer, why);
  }
}

void UcxEngine::remove_peer(const Cookie& cookie, const Error& why) {
  const auto found = impl_->peers.find(cookie);
  if (found == impl_->peers.end()) return;
  impl_->fail_waiting(cookie, why, true);
  std::vector<Op*> active;
  // A cancel may complete its op at once, never another.
  impl_->close_stream(*found->second, why);  // also what was begun under another cookie
  for (auto& [key, op] : impl_->ops) {
    if (key.cookie == cookie) active.push_back(op.get());
  }
  for (Op* op : active) impl_->give_up(*op, why);
  impl_->close(*found->second, why);
  impl_->pulling.erase(found->second.get());
  impl_->peers.erase(found);
}

void UcxEngine::abandon_receives(const Cookie& cookie, const Error& why) {
  const auto found = impl_->peers.find(cookie);
  if (found == impl_->peers.end()) return;
  impl_->fail_waiting(cookie, why, true);
  impl_->withdraw_sends(*found->second, why);
  std::vector<Op*> receives;
  for (auto& [key, op] : impl_->ops) {
    if (key.cookie == cookie && !op->sending) receives.push_back(op.get());
  }
  for (Op* op : receives) impl_->give_up(*op, why);
}

// Closing a connection in order to make another one at once is what UCX 1.13 does not always survive.
void UcxEngine::rename_peer(const Cookie& from, const Cookie& to) {
  auto node = impl_->peers.extract(from);
  if (node.empty()) return;
  Peer& peer = *node.mapped();
  node.key() = peer.cookie = to;
  if (peer.ep != nullptr) impl_->peer_by_ep[peer.ep] = to;
  for (auto& [cookie, why] : impl_->broken_streams) {
    if (cookie == from) cookie = to;
  }
  impl_->peers.insert(std::move(node));
}

// Lanes settle while a connection is made, so the first few transfers look anew; later ones remember.
constexpr int kReadings = 4;

bool UcxEngine::knows_lanes(const Cookie& cookie) const {
  const auto peer = impl_->peers.find(cookie);
  return peer != impl_->peers.end() && (peer->second->streams || peer->second->lanes_read >= kReadings);
}

Via UcxEngine::Impl::via_of(Peer& peer, bool bulk, device::Kind kind) {
  if (peer.ep != nullptr && peer.lanes_read < kReadings) {
    ++peer.lanes_read;
    peer.lanes = read_lanes(describe(peer.ep));
  }
  if (!bulk) return peer.lanes.eager;
  return kind == device::Kind::kCuda ? peer.lanes.bulk_cuda : peer.lanes.bulk;
}

}  // namespace tilewise::transfer
