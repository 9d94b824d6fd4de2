// Links are measured while the cluster has nothing to do: workers move bytes of no array when they are asked to, and tell
// how long that took. Of links that are alike one is measured (docs/design/link-probes.md). No decision waits for it.
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kNeighbours = 8;           // other hosts that a newcomer's is measured with
constexpr std::size_t kMostAtOnce = 32;          // of the cluster; and one a host
constexpr TimeNs kQuietNs = 250 * kMillisecond;  // without a running graph before any is begun
constexpr TimeNs kAnswerNs = 5 * kSecond;        // workers give up before
constexpr TimeNs kAgainNs = 1 * kSecond;         // after the first try, and then twice as long each time
constexpr std::uint32_t kMostTries = 4;          // that failed
constexpr std::uint32_t kMostDoublings = 6;
constexpr std::size_t kMostSizes = 8;  // in an answer

using place::LinkClass;
using place::LinkEnd;

LinkEnd end_of(const Device& device) { return {device.host, device.kind}; }

void add_class(State& s, const LinkClass& links) {
  if (s.probing.classes.try_emplace(links).second) s.probing.due.push_back(links);
}

template <class Fn> void for_each_device(const State& s, WorkerId worker, Fn fn) {
  for (const DeviceId id : s.peer(worker).info.devices) fn(*s.device(id));
}

bool is_there(const State& s, const LinkEnd& end) {
  return std::any_of(s.live.begin(), s.live.end(), [&](WorkerId id) {
    bool found = false;
    if (s.is_worker(id)) for_each_device(s, id, [&](const Device& d) { found |= end_of(d) == end; });
    return found;
  });
}

// The workers that have such a device, from the `turn`th on and round; all there are, or those that do not leave and whose links are
// there.
std::vector<WorkerId> workers_with(const State& s, const LinkEnd& end, std::size_t turn, bool now) {
  std::vector<WorkerId> out;
  for (const WorkerId id : s.live) {
    if (!s.is_worker(id)) continue;
    const auto link = s.links.find(s.peer(id).conn);
    if (now && (s.leaving.contains(id) || link == s.links.end() || link->second.away_until != 0)) continue;
    bool found = false;
    for_each_device(s, id, [&](const Device& d) { found |= end_of(d) == end; });
    if (found) out.push_back(id);
  }
  if (!out.empty())
    std::rotate(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(turn % out.size()), out.end());
  return out;
}

const Device* device_of(const State& s, WorkerId worker, const LinkEnd& end, DeviceId but) {
  const Device* found = nullptr;
  for_each_device(s, worker, [&](const Device& d) {
    if (found == nullptr && d.id != but && end_of(d) == end) found = &d;
  });
  return found;
}

// Two devices that stand for the class, others after a try that failed; none: there are no such two, or not `now`.
std::pair<const Device*, const Device*> representatives(const State& s, const LinkClass& links, bool now) {
  const std::size_t turn = s.probing.classes.at(links).failures;
  const std::vector<WorkerId> senders = workers_with(s, links.from, turn, now);
  const std::vector<WorkerId> receivers = links.inside ? senders : workers_with(s, links.to, turn, now);
  if (links.inside) {
    for (const WorkerId id : receivers) {
      const Device* to = device_of(s, id, links.to, {});
      const Device* from = to == nullptr ? nullptr : device_of(s, id, links.from, to->id);
      if (from != nullptr) return {from, to};
    }
    return {nullptr, nullptr};
  }
  // One sender is in the receiver's own process at most: two of each are enough to find a pair, if there is one.
  for (std::size_t r = 0; r < std::min<std::size_t>(2, receivers.size()); ++r) {
    for (std::size_t f = 0; f < std::min<std::size_t>(2, senders.size()); ++f) {
      if (senders[f] != receivers[r])
        return {device_of(s, senders[f], links.from, {}), device_of(s, receivers[r], links.to, {})};
    }
  }
  return {nullptr, nullptr};
}

void again_later(State& s, const LinkClass& links) {
  LinkProbing::Known& known = s.probing.classes.at(links);
  known.step = LinkProbing::Step::kDue;
  known.again_at = s.now + (kAgainNs << std::min(known.tries++, kMostDoublings));
  s.probing.due.push_back(links);
}

void failed(State& s, const LinkClass& links) {
  LinkProbing::Known& known = s.probing.classes.at(links);
  if (++known.failures < kMostTries) return again_later(s, links);
  known.step = LinkProbing::Step::kGivenUp;
}

// The smallest size tells the latency, the largest the throughput.
void learn(State& s, const LinkClass& links, const msg::LinkProbed& told) {
  const msg::ProbedSize &first = told.sizes.front(), &last = told.sizes.back();
  place::ProbedLink found;
  found.latency_ns = first.took_ns;
  found.mapped = told.mapped;
  if (told.sizes.size() > 1)
    found.ns_per_mib =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(last.took_ns) * (1 << 20) /
                                                            static_cast<double>(last.bytes)));
  s.speeds.learn_probe(links, found);
}

bool is_sound(const msg::LinkProbed& told) {
  std::int64_t before = 0;
  for (const msg::ProbedSize& size : told.sizes) {
    if (size.bytes <= before || size.bytes > msg::kMaxProbeBytes || size.transfers == 0 ||
        size.took_ns <= 0 || size.took_ns > kAnswerNs)
      return false;
    before = size.bytes;
  }
  return told.sizes.size() <= kMostSizes && told.why.size() <= limits::kMaxPathBytes;
}

}  // namespace

// What links its devices have that are like none before: with its neighbours, inside its host, inside itself.
void want_probes(State& s, const Peer& newcomer) {
  if (!s.options.link_probes) return;
  std::map<LinkEnd, int> own;
  for_each_device(s, newcomer.info.id, [&](const Device& d) { ++own[end_of(d)]; });
  for (const auto& [from, count] : own) {
    for (const auto& [to, others] : own) {
      const bool in_place = from.kind == place::kHostKind && to.kind == place::kHostKind;
      if (!in_place && (from != to || count > 1)) add_class(s, {from, to, true});
    }
  }
  // Neighbours are the hosts that came last: so a cluster of n hosts has at most 2 * kNeighbours * n classes between them.
  std::set<LinkEnd> ends;
  std::set<std::uint32_t> hosts;
  for (auto id = s.live.rbegin(); id != s.live.rend(); ++id) {
    if (*id == newcomer.info.id || !s.is_worker(*id)) continue;
    for_each_device(s, *id, [&](const Device& d) {
      const bool own_host = !own.empty() && d.host == own.begin()->first.host;
      if (!own_host && !hosts.contains(d.host) && hosts.size() >= kNeighbours) return;
      if (!own_host) hosts.insert(d.host);
      ends.insert(end_of(d));
    });
  }
  for (const LinkEnd& other : ends) {
    for (const auto& [mine, count] : own)
      add_class(s, {other, mine, false}), add_class(s, {mine, other, false});
  }
}

// A worker is gone: what it was measuring is to be measured by others, and of hosts without workers nothing is known.
void forget_probes(State& s, const Peer& gone) {
  LinkProbing& p = s.probing;
  std::erase_if(p.under_way, [&](const auto& entry) {
    if (entry.second.sender != gone.info.id && entry.second.receiver != gone.info.id) return false;
    again_later(s, entry.second.links);
    return true;
  });
  std::set<LinkEnd> lost;
  for_each_device(s, gone.info.id, [&](const Device& d) {
    if (!is_there(s, end_of(d))) lost.insert(end_of(d));
  });
  if (lost.empty()) return;
  const auto is_lost = [&](const LinkClass& links) {
    return lost.contains(links.from) || lost.contains(links.to);
  };
  std::erase_if(p.classes, [&](const auto& entry) {
    if (!is_lost(entry.first)) return false;
    s.speeds.forget_probe(entry.first);
    return true;
  });
  std::erase_if(p.due, is_lost);
}

// After a restart: whoever was asked before may have answered nobody. What they answer now is late.
void forget_probes_under_way(State& s) {
  for (const auto& [nonce, probe] : s.probing.under_way) again_later(s, probe.links);
  s.probing.under_way.clear();
  s.probing.quiet_at = s.now + kQuietNs;
  for (auto& [links, known] : s.probing.classes) known.again_at = std::min(known.again_at, s.now + kAgainNs);
}

void on_link_probed(State& s, const Peer& worker, msg::LinkProbed& told) {
  const auto it = s.probing.under_way.find(told.nonce);
  if (it == s.probing.under_way.end() || it->second.receiver != worker.info.id) return;  // late, or repeated
  const LinkProbing::UnderWay probe = it->second;
  s.probing.under_way.erase(it);
  LinkProbing::Known& known = s.probing.classes.at(probe.links);
  if (!is_sound(told)) return failed(s, probe.links);
  const msg::ProbeEnd end = told.end;
  if (!told.sizes.empty()) {
    learn(s, probe.links, told);
    known.from = probe.from, known.to = probe.to, known.at = s.now - s.start;
    known.last = std::move(told);
  } else {
    known.last.why = std::move(told.why), known.last.mapped = told.mapped;
  }
  if (end == msg::ProbeEnd::kGivenUp) return again_later(s, probe.links);
  if (end == msg::ProbeEnd::kFailed || known.last.sizes.empty()) return failed(s, probe.links);
  known.step = LinkProbing::Step::kMeasured;
}

void check_probes(State& s) {
  if (!s.options.link_probes) return;
  LinkProbing& p = s.probing;
  if (s.running > 0 || s.recovery.pending) p.quiet_at = s.now + kQuietNs;
  std::erase_if(p.under_way, [&](const auto& entry) {
    if (s.now < entry.second.until) return false;
    failed(s, entry.second.links);
    return true;
  });
  if (s.now < p.quiet_at || p.due.empty()) return;
  std::set<std::uint32_t> busy;  // hosts
  for (const auto& [nonce, probe] : p.under_way)
    busy.insert(probe.links.from.host), busy.insert(probe.links.to.host);
  std::erase_if(p.due, [&](const LinkClass& links) {
    if (p.under_way.size() >= kMostAtOnce || busy.contains(links.from.host) || busy.contains(links.to.host))
      return false;
    LinkProbing::Known& known = p.classes.at(links);
    if (s.now < known.again_at) return false;
    const auto [from, to] = representatives(s, links, true);
    if (from == nullptr && representatives(s, links, false).first == nullptr) {
      // Both ends are one process's: wanted again when somebody joins who has one of them.
      p.classes.erase(links);
      s.speeds.forget_probe(links);
      return true;
    }
    if (from == nullptr) {  // who could is about to leave, or away for a moment
      known.again_at = s.now + (kAgainNs << std::min(known.tries++, kMostDoublings));
      return false;
    }
    known.step = LinkProbing::Step::kUnderWay;
    const std::uint64_t nonce = s.next_nonce++;
    p.under_way.emplace(
        nonce, LinkProbing::UnderWay{links, from->peer, to->peer, from->id, to->id, s.now + kAnswerNs});
    busy.insert(links.from.host), busy.insert(links.to.host);
    send(s, s.peer(to->peer).conn, msg::LinkProbe{nonce, from->id, to->id});
    return true;
  });
}

TimeNs probes_deadline(const State& s) {
  const LinkProbing& p = s.probing;
  TimeNs next = kNever;
  if (!s.options.link_probes) return next;
  for (const auto& [nonce, probe] : p.under_way) next = std::min(next, probe.until);
  if (p.due.empty() || s.running > 0 || s.recovery.pending) return next;
  if (s.now < p.quiet_at) return std::min(next, p.quiet_at);
  for (const LinkClass& links : p.due) {  // those that wait for no answer
    const TimeNs again_at = p.classes.at(links).again_at;
    if (again_at > s.now) next = std::min(next, again_at);
  }
  return next;
}

}  // namespace tilewise::scheduler
