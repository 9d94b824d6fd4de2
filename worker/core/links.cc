// How fast bytes come from each peer, by the size of the block. The time counted is that in which at least one transfer
// of that size is on its way from there, so that transfers beside each other do not look slow.
#include "state.h"

namespace tilewise::worker {

Core::Impl::LinkState* Core::Impl::link_of(const Copy& copy, bool make) {
  const auto peer = remote.find(copy.source.value);
  if (peer == remote.end() || peer->second.lost) return nullptr;
  const std::pair key(peer->second.worker, msg::size_class_of(copy.bytes));
  const auto it = links.find(key);
  if (it != links.end()) return &it->second;
  if (!make || links.size() >= kMaxLinks) return nullptr;
  LinkState& link = links[key];
  link.stats.from = key.first;
  link.stats.size_class = key.second;
  return &link;
}

void Core::Impl::transfer_began(Copy& copy) {
  LinkState* link = link_of(copy, true);
  copy.timed = link != nullptr;
  if (link != nullptr && link->under_way++ == 0) link->since = now;
}

void Core::Impl::transfer_ended(Copy& copy, bool arrived) {
  if (!std::exchange(copy.timed, false)) return;
  LinkState* link = link_of(copy, false);
  if (link == nullptr) return;  // its peer was lost meanwhile
  --link->under_way;
  if (arrived) {
    ++link->stats.transfers;
    link->stats.bytes += copy.bytes;
    link->stats.busy_ns += now - link->since;
    link->dirty = true;
  }
  link->since = now;
}

void Core::Impl::report_links(std::vector<msg::LinkStats>& out_links) {
  for (auto& [key, link] : links)
    if (std::exchange(link.dirty, false)) out_links.push_back(link.stats);
}

void Core::Impl::forget_links(WorkerId peer) {
  links.erase(links.lower_bound({peer, 0}), links.upper_bound({peer, 255}));
}

}  // namespace tilewise::worker
