// Whose turn it is on a device. Sessions share its time by weight: each is charged what its steps are predicted to take when
// they are launched, corrected by what they took, and the one that has had least for its weight goes next. Within a
// session, graphs of higher priority go first, those of equal priority in turn. (Weighted fair queueing with a virtual time
// per session: Demers, Keshav and Shenker, 1989; who comes, or comes back, starts where the least served stands, as in
// start-time fair queueing: Goyal, Vin and Cheng, 1996.)
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

FairShare& share_of(DeviceState& device, SessionId session) {
  const auto it = std::lower_bound(device.fair.begin(), device.fair.end(), session,
                                   [](const FairShare& share, SessionId id) { return share.session < id; });
  TW_CHECK(it != device.fair.end() && it->session == session, "a queue of a session without a share");
  return *it;
}

}  // namespace

void Core::Impl::join_share(DeviceState& device, SessionId session, std::uint32_t weight) {
  auto it = std::lower_bound(device.fair.begin(), device.fair.end(), session,
                             [](const FairShare& share, SessionId id) { return share.session < id; });
  if (it == device.fair.end() || it->session != session) {
    FairShare share{session, weight, 0};
    for (std::size_t i = 0; i < device.fair.size(); ++i)
      share.served = i == 0 ? device.fair[i].served : std::min(share.served, device.fair[i].served);
    it = device.fair.insert(it, share);
  }
  it->weight = std::max<std::uint32_t>(weight, 1);
}

void Core::Impl::leave_shares(DeviceState& device) {
  std::erase_if(device.fair, [&](const FairShare& share) {
    return std::none_of(device.queues.begin(), device.queues.end(),
                        [&](Slot q) { return queues[q].session == share.session; });
  });
}

// Nothing to compare where one session has the device for itself: whoever joins starts from what is written down.
void Core::Impl::charge(DeviceState& device, Slot queue, double ns) {
  if (device.fair.size() < 2) return;
  FairShare& share = share_of(device, queues[queue].session);
  share.served += ns / share.weight;
}

Slot Core::Impl::next_queue(DeviceState& device) {
  Slot best = kNone;
  std::size_t best_at = 0;
  double served = 0;
  const bool alone = device.fair.size() < 2;
  for (std::size_t i = 0; i < device.queues.size(); ++i) {
    const std::size_t at = (device.turn + i) % device.queues.size();
    const Queue& queue = queues[device.queues[at]];
    if (queue.ready.empty()) continue;
    const double has_had = alone ? 0 : share_of(device, queue.session).served;
    const bool better = best == kNone || has_had < served ||
                        (queue.session == queues[best].session && queue.priority > queues[best].priority);
    if (!better) continue;
    best = device.queues[at], best_at = at, served = has_had;
  }
  if (best != kNone) device.turn = best_at + 1;
  return best;
}

}  // namespace tilewise::worker
