// Whose turn it is on a device. Sessions share its time by weight: each is charged what its steps are predicted to take when
// they are launched, corrected by what they took, and the one that has had least for its weight goes next. Within a
// session, graphs of higher priority go first, those of equal priority in turn. (Weighted fair queueing with a virtual time
// per session: Demers, Keshav and Shenker, 1989; who comes, or comes back, starts where the least served stands, as in
// start-time fair queueing: Goyal, Vin and Cheng, 1996.)
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

FairShare& Core::Impl::share_of(DeviceState& device, SessionId session) {
  const auto it = std::lower_bound(device.fair.begin(), device.fair.end(), session,
                                   [](const FairShare& share, SessionId id) { return share.session < id; });
  TW_CHECK(it != device.fair.end() && it->session == session, "a queue of a session without a share");
  return *it;
}

// A queue of the session has come.
void Core::Impl::join_share(DeviceState& device, SessionId session, std::uint32_t weight) {
  auto it = std::lower_bound(device.fair.begin(), device.fair.end(), session,
                             [](const FairShare& share, SessionId id) { return share.session < id; });
  if (it == device.fair.end() || it->session != session) {
    FairShare share{.session = session};
    for (std::size_t i = 0; i < device.fair.size(); ++i)
      share.served = i == 0 ? device.fair[i].served : std::min(share.served, device.fair[i].served);
    it = device.fair.insert(it, share);
  }
  it->weight = std::max<std::uint32_t>(weight, 1);
  ++it->queues;
}

// One has gone.
void Core::Impl::leave_share(DeviceState& device, SessionId session) {
  if (--share_of(device, session).queues > 0) return;
  std::erase_if(device.fair, [&](const FairShare& share) { return share.session == session; });
}

// Nothing to compare where one session has the device for itself: whoever joins starts from what is written down.
void Core::Impl::charge(DeviceState& device, Slot queue, double ns) {
  if (device.fair.size() < 2) return;
  FairShare& share = share_of(device, queues[queue].session);
  share.served += ns / share.weight;
}

// The session that has had least; of several the one whose queue would be next if all took turns. Of its queues those of the highest
// priority in turn.
Slot Core::Impl::next_queue(DeviceState& device) {
  const FairShare* least = nullptr;
  const auto turn_of = [&](const FairShare& share) {
    const QueuePlace& next = share.ready.after(device.turn).place;
    return std::pair(!(device.turn < next), next);
  };
  for (const FairShare& share : device.fair) {
    if (share.ready.empty()) continue;
    ++queues_looked_at;
    const bool sooner = least == nullptr || share.served < least->served ||
                        (share.served == least->served && turn_of(share) < turn_of(*least));
    if (sooner) least = &share;
  }
  if (least == nullptr) return kNone;
  const QueueEntry& next = least->ready.highest_after(device.turn);
  device.turn = next.place;
  return next.queue;
}

}  // namespace tilewise::worker
