// Blocks that travel to other hosts, as workers pass them on (worker/core/trees.cc).
#include <algorithm>

#include "paper_state.h"

namespace tilewise::place {

namespace {

constexpr double kLeastPart = 512 << 10, kMostParts = 256;  // exchange/parts.cc

}  // namespace

// It comes to this copy's host once.
bool PaperState::is_far(Index home, Index copy) {
  const Place &from = owner(home), &to = owner(copy);
  return at_(copy).bytes > options_.tree_bytes && !from.client && !to.client &&
         from.device.host != to.device.host;
}

// Who sends it there. The first copy of a host is its leader, and stays until all whom it is to send to have theirs.
Index PaperState::place_in_tree(Index home, Index copy) {
  Tree& tree = trees_[home];
  const std::uint32_t host = owner(copy).device.host;
  for (const Tree::Leader& leader : tree.leaders)
    if (leader.host == host) return leader.copy;
  const std::size_t fan_out = at_(copy).bytes >= options_.chain_bytes ? 1 : 2;
  const std::size_t number = tree.leaders.size();
  tree.leaders.push_back({host, copy});
  std::vector<std::uint32_t> hosts;
  for (Index c = at_(home).next; c != kNone; c = at_(c).next) {
    if (at_(c).uses == 0 || !is_far(home, c)) continue;
    const std::uint32_t other = owner(c).device.host;
    if (number == 0) hosts.push_back(other);
    if (c != copy && other == host) ++at_(copy).uses;
  }
  if (number == 0) {
    std::sort(hosts.begin(), hosts.end());
    tree.hosts = static_cast<std::size_t>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
  }
  for (std::size_t child = fan_out * (number + 1); child < fan_out * (number + 2); ++child)
    at_(copy).uses += child < tree.hosts ? 1 : 0;
  return number < fan_out ? home : tree.leaders[number / fan_out - 1].copy;
}

// Of the time that the block takes, what its first part takes: as soon is it passed on. 1: not before it is whole.
double PaperState::first_part(Index copy) {
  const auto bytes = static_cast<double>(at_(copy).bytes);
  if (at_(copy).bytes < options_.parts_bytes || !is_far(at_(copy).home, copy)) return 1;
  return std::min(1.0, std::max(kLeastPart / bytes, 1 / kMostParts));
}

}  // namespace tilewise::place
