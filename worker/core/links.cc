// How fast bytes come from each peer, by the size of the block. The time counted is that in which at least one transfer
// of that size is on its way from there, so that transfers beside each other do not look slow.
#include "state.h"

namespace tilewise::worker {

void Core::Impl::transfer_began(Copy& copy) {
  const auto peer = remote.find(sender_of(copy).value);
  if (peer == remote.end() || peer->second.lost) return;
  const std::pair key(peer->second.worker, msg::size_class_of(copy.bytes));
  if (links.size() >= kMaxLinks && !links.contains(key)) return;
  LinkState& link = links[key];
  link.stats.from = copy.timed = key.first;
  link.stats.size_class = key.second;
  if (link.under_way++ == 0) link.since = now;
}

void Core::Impl::transfer_ended(Copy& copy, bool arrived) {
  const WorkerId from = std::exchange(copy.timed, WorkerId{});  // the copy's source may be another by now
  const auto it = links.find({from, msg::size_class_of(copy.bytes)});
  if (!from || it == links.end()) return;  // or its peer was lost
  LinkState& link = it->second;
  // The time of one that failed counts where others were on their way meanwhile.
  --link.under_way;
  if (arrived || link.under_way > 0) link.stats.busy_ns += now - link.since;
  if (arrived) {
    ++link.stats.transfers;
    link.stats.bytes += copy.bytes;
    link.dirty = true;
  }
  link.since = now;
}

void Core::Impl::report_links(std::vector<msg::LinkStats>& out_links) {
  for (auto& [key, link] : links)
    if (std::exchange(link.dirty, false)) out_links.push_back(link.stats);
}

void Core::Impl::forget_links(WorkerId peer) {
  links.erase(links.lower_bound({peer, 0}), links.upper_bound({peer, 255}));
}

}  // namespace tilewise::worker
