#include "byte_shares.h"

#include <tilewise/base/check.h>

#include <algorithm>
#include <utility>

namespace tilewise::worker {
namespace {

auto place_of(const std::vector<ByteShares::Share>& shares, SessionId session) {
  return std::lower_bound(shares.begin(), shares.end(), session,
                          [](const ByteShares::Share& share, SessionId id) { return share.session < id; });
}

}  // namespace

const ByteShares::Share* ByteShares::find(SessionId session) const {
  const auto it = place_of(shares_, session);
  return it != shares_.end() && it->session == session ? &*it : nullptr;
}

ByteShares::Share* ByteShares::find(SessionId session) {
  return const_cast<Share*>(std::as_const(*this).find(session));
}

ByteShares::Share& ByteShares::get(SessionId session, std::uint32_t weight) {
  const auto it = place_of(shares_, session);
  if (it != shares_.end() && it->session == session)
    return shares_[static_cast<std::size_t>(it - shares_.begin())];
  return *shares_.insert(it, Share{.session = session, .weight = std::max<std::uint32_t>(weight, 1)});
}

ByteShares::Share& ByteShares::known(SessionId session) {
  Share* share = find(session);
  TW_CHECK(share != nullptr, "a session without a share has memory or work here");
  return *share;
}

void ByteShares::drop_if_empty(const Share& share) {
  if (share.queues == 0 && share.bytes == 0) shares_.erase(place_of(shares_, share.session));
}

void ByteShares::add_queue(SessionId session, std::uint32_t weight) {
  Share& share = get(session, weight);
  share.weight = std::max<std::uint32_t>(weight, 1);
  ++share.queues;
}

void ByteShares::remove_queue(SessionId session) {
  Share& share = known(session);
  TW_CHECK(share.queues > 0, "a session has fewer queues than have ended");
  if (--share.queues == 0) share.claim = share.put_off = 0;
  drop_if_empty(share);
}

void ByteShares::add_bytes(SessionId session, std::uint32_t weight, std::int64_t bytes) {
  if (bytes > 0) get(session, weight).bytes += bytes;
}

void ByteShares::remove_bytes(SessionId session, std::int64_t bytes) {
  if (bytes == 0) return;
  Share& share = known(session);
  share.bytes -= bytes;
  TW_CHECK(share.bytes >= 0, "a session gives back more memory than it had");
  drop_if_empty(share);
}

void ByteShares::begin_leaving(SessionId session, std::int64_t bytes) { known(session).leaving += bytes; }
void ByteShares::end_leaving(SessionId session, std::int64_t bytes) { known(session).leaving -= bytes; }

double ByteShares::usage(SessionId session, std::int64_t more) const {
  const Share* share = find(session);
  return share != nullptr ? share->usage(more) : static_cast<double>(more) / msg::kDefaultWeight;
}

std::vector<SessionId> ByteShares::by_usage() const {
  std::vector<const Share*> order;
  order.reserve(shares_.size());
  for (const Share& share : shares_) order.push_back(&share);
  std::stable_sort(order.begin(), order.end(),
                   [](const Share* a, const Share* b) { return a->usage() > b->usage(); });
  std::vector<SessionId> sessions;
  sessions.reserve(order.size());
  for (const Share* share : order) sessions.push_back(share->session);
  return sessions;
}

bool ByteShares::gives_way(SessionId victim, std::int64_t block_bytes, SessionId claimant,
                           std::int64_t wanted) const {
  return victim != claimant && usage(victim, -block_bytes) >= usage(claimant, wanted);
}

bool ByteShares::must_wait(SessionId asker, std::int64_t wanted) const {
  const std::pair mine{usage(asker, wanted), asker};
  return std::any_of(shares_.begin(), shares_.end(), [&](const Share& other) {
    return other.claim > 0 && other.session != asker &&
           std::pair{other.usage(other.claim), other.session} < mine;
  });
}

void ByteShares::put_off(SessionId session, std::int64_t bytes) {
  if (Share* share = find(session))
    share->put_off = std::min(share->put_off > 0 ? share->put_off : bytes, bytes);
}

void ByteShares::refuse(SessionId session, std::int64_t bytes) {
  Share* share = alone() ? nullptr : find(session);
  if (share == nullptr) return;
  share->claim = share->refused == round_ && share->claim > 0 ? std::min(share->claim, bytes) : bytes;
  share->refused = round_;
}

void ByteShares::serve(SessionId session, std::int64_t bytes) {
  if (Share* share = find(session); share != nullptr && bytes >= share->claim) share->claim = 0;
}

void ByteShares::begin_round() {
  ++round_;
  for (Share& share : shares_) share.put_off = 0;
}

bool ByteShares::any_put_off() const {
  return std::any_of(shares_.begin(), shares_.end(), [](const Share& share) { return share.put_off > 0; });
}

bool ByteShares::may_go_on() const {
  return std::any_of(shares_.begin(), shares_.end(), [&](const Share& share) {
    return share.put_off > 0 && !must_wait(share.session, share.put_off);
  });
}

}  // namespace tilewise::worker
