// Room in one piece where what is free lies about in smaller ones: which extents are in the way, and where they could go.
#include <tilewise/alloc/alloc.h>
#include <tilewise/base/check.h>

#include <algorithm>

namespace tilewise::alloc {

namespace {
// So many ranges are tried, those first of which least is to be moved. What is in one may fit nowhere else.
constexpr std::size_t kRangesTried = 16;
}  // namespace

// All is walked, by address, with a window over the extents: as long as need be, so the first one goes as soon as the others do.
Arena::Runs Arena::runs_around(std::span<const Extent> extents, std::int64_t rounded) const {
  Runs all;
  all.used.reserve(extents.size());
  all.order.reserve(extents.size());
  std::vector<std::uint32_t> positions(nodes_.size());  // from 1
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (extents[i].bytes > 0) positions[node_of(extents[i])] = static_cast<std::uint32_t>(i + 1);
  for (const Slab& slab : slabs_) {
    for (NodeId id = slab.first; id != 0; id = nodes_[id].right) {
      if (positions[id] == 0) continue;
      all.used.push_back(id);
      all.order.push_back(positions[id] - 1);
    }
  }
  const std::vector<NodeId>& used = all.used;
  const auto neighbours = [&](NodeId left, NodeId right) {
    const NodeId next = nodes_[left].right;
    return next == right || (is_settled(next) && nodes_[next].right == right);
  };
  std::int64_t taken = 0;
  for (std::size_t first = 0, last = 0; last < used.size(); ++last) {
    if (last > first && !neighbours(used[last - 1], used[last])) first = last, taken = 0;
    taken += nodes_[used[last]].bytes;
    if (span_of(used[first], used[last]) < rounded) continue;
    while (first < last && span_of(used[first + 1], used[last]) >= rounded)
      taken -= nodes_[used[first++]].bytes;
    all.runs.push_back({first, last, taken});
  }
  return all;
}

std::vector<std::size_t> Arena::room_by_freeing(std::span<const Extent> candidates,
                                                std::int64_t bytes) const {
  const Runs all = runs_around(candidates, round_up(bytes));
  const auto best = std::min_element(all.runs.begin(), all.runs.end(),
                                     [](const Run& a, const Run& b) { return a.bytes < b.bytes; });
  if (best == all.runs.end()) return {};
  return {all.order.begin() + static_cast<std::ptrdiff_t>(best->first),
          all.order.begin() + static_cast<std::ptrdiff_t>(best->last) + 1};
}

std::optional<Compaction> Arena::compact(std::span<const Extent> movable, std::int64_t bytes) {
  settle_all();
  const std::int64_t rounded = round_up(bytes), settled = bytes_free() - pending_bytes_;
  if (bytes <= 0 || settled < rounded) return std::nullopt;
  Runs all = runs_around(movable, rounded);
  // What is in the way has to fit into what is free elsewhere.
  std::erase_if(all.runs, [&](const Run& run) { return run.bytes > settled - (rounded - run.bytes); });
  const std::size_t tried = std::min(all.runs.size(), kRangesTried);
  std::partial_sort(
      all.runs.begin(), all.runs.begin() + static_cast<std::ptrdiff_t>(tried), all.runs.end(),
      [](const Run& a, const Run& b) { return std::pair(a.bytes, a.first) < std::pair(b.bytes, b.first); });
  for (std::size_t i = 0; i < tried; ++i) {
    Compaction compaction;
    if (clear(movable, all, all.runs[i], rounded, compaction)) return compaction;
  }
  return std::nullopt;
}

// Takes what is free in the run, but for what is too much at its ends, and then a place elsewhere for each of its extents, the largest
// first. Gives all back if one finds none: the settled extents, which are as large as they can be, are then what they were.
bool Arena::clear(std::span<const Extent> movable, const Runs& all, const Run& run, std::int64_t rounded,
                  Compaction& into) {
  const NodeId first = all.used[run.first], last = all.used[run.last];
  std::int64_t surplus = span_of(first, last) - rounded;
  const auto take_gap = [&](NodeId id) { into.gaps.push_back(take(id, nodes_[id].bytes, nodes_[id].bytes)); };
  const auto spared = [&](NodeId id) {  // of a gap at an end
    const std::int64_t bytes = std::min(surplus, nodes_[id].bytes);
    surplus -= bytes;
    return bytes;
  };
  if (const NodeId left = nodes_[first].left; is_settled(left)) {
    const std::int64_t spare = spared(left), kept = nodes_[left].bytes - spare;
    if (kept > 0 && spare > 0) {  // the part next to the run
      make_used(left);
      const NodeId tail = cut(left, spare);
      nodes_[left].state = State::kSettled;
      link(left);
      take_gap(tail);
    } else if (kept > 0) {
      take_gap(left);
    }
  }
  for (NodeId id = first; id != last; id = nodes_[id].right)
    if (is_settled(id)) take_gap(id);
  if (const NodeId right = nodes_[last].right; is_settled(right)) {
    const std::int64_t kept = nodes_[right].bytes - spared(right);
    if (kept > 0) into.gaps.push_back(take(right, kept, kept));
  }
  std::vector<std::size_t> inside;
  for (std::size_t i = run.first; i <= run.last; ++i) inside.push_back(i);
  std::sort(inside.begin(), inside.end(), [&](std::size_t a, std::size_t b) {
    const std::int64_t one = nodes_[all.used[a]].bytes, other = nodes_[all.used[b]].bytes;
    return one != other ? one > other : a < b;
  });
  for (const std::size_t i : inside) {
    const std::size_t from = all.order[i];
    const std::int64_t size = round_up(movable[from].bytes);
    NodeId id = find(settled_, size, kScan);
    if (id == 0) id = find(settled_, size, kScanAll);
    if (id == 0) {
      for (const Compaction::Move& move : into.moves) free(move.to, Fence());
      for (const Extent& gap : into.gaps) free(gap, Fence());
      into = {};
      return false;
    }
    into.moves.push_back({from, take(id, size, movable[from].bytes)});
  }
  return true;
}

}  // namespace tilewise::alloc
