// When points of running ops are moved. Only large ops that others report on are looked at, a few of them, now and then: nothing is
// done for each task. docs/design/rebalance.md
#include "rebalance.h"

#include "draft.h"
#include "graphs.h"
#include "handlers.h"
#include "layers.h"

#include <tilewise/base/prng.h>

#include <algorithm>
#include <cmath>

namespace tilewise::scheduler {
namespace {

constexpr std::int64_t kFewPoints = 4;  // left of an op: it is not worth the while
constexpr int kHalvings = 60;           // of the time in which an end is looked for
constexpr double kUnsure = 4;           // so many points at the others' speed count beside what was seen
constexpr TimeNs kSilentNs =
    500 * kMillisecond;  // and no news at all: several points may be under way at once
constexpr TimeNs kSurelyNs = 100 * kMillisecond;  // without news: it is slow, not unlucky

// Calls visit(record, share) for what devices have of the op, its layers included.
template <class F> void for_each_share(const State& s, const OpRecord& head, F&& visit) {
  for (std::size_t i = 0; i <= head.layers.size(); ++i) {
    const OpRecord& op = i == 0 ? head : s.ops.at(head.layers[i - 1]);
    if (op.finished || op.doomed) continue;
    for (const OpShare& share : op.shares) visit(op, share);
  }
}

// What a point takes the device, in seconds; 0: there is nothing to tell it from. One of which nothing has been heard may have
// something else to do first.
double point_s(const State& s, const Watched& watched, DeviceId device, std::int64_t left) {
  const auto found = watched.seen.find(device);
  if (found == watched.seen.end() || found->second.done == 0) return 0;
  const Seen& seen = found->second;
  const auto points = static_cast<double>(seen.done);
  const double each = 1e-9 * static_cast<double>(seen.last_at - seen.first_at) / points;
  const double silent = 1e-9 * static_cast<double>(s.now - seen.last_at);
  if (left == 0 || silent < 3 * each + 1e-9 * kSurelyNs) return std::max(each, 1e-9);
  return 1e-9 * static_cast<double>(s.now - seen.first_at) / points;
}

// What a point reads; the middle one stands for all.
struct Inputs {
  std::int64_t blocks = 0;
  double bytes = 0;
};
Inputs inputs_of(const State& s, const OpRecord& head) {
  std::vector<ir::SourceArray> sources;
  for (const ir::Operand& operand : head.op.operands)
    sources.push_back(s.arrays.at(ArrayId{operand.array}).source);
  Inputs inputs;
  if (sources.empty()) return inputs;
  const auto geometry = s.geometries.of(head.op, sources);
  if (!geometry || (*geometry)->point_count() == 0) return inputs;
  const ir::Index at = (*geometry)->point((*geometry)->point_count() / 2);
  std::vector<ir::Read> reads;
  for (std::int64_t step = 0; step < (*geometry)->steps(at); ++step) {
    (*geometry)->reads(at, step, reads);
    inputs.blocks += static_cast<std::int64_t>(reads.size());
    for (const ir::Read& read : reads) {
      const ir::SourceArray& source = sources[read.operand];
      const std::int64_t elements = source.grid.box(ir::unravel(read.block, source.grid.counts())).volume();
      inputs.bytes += static_cast<double>(elements) * static_cast<double>(ir::size_of(source.dtype));
    }
  }
  return inputs;
}

// What it takes to bring them there, from the slowest device that gives.
double bring_s(const State& s, const Inputs& inputs, DeviceId from, DeviceId to) {
  if (inputs.bytes == 0) return 0;
  const place::LinkSpeed link = s.speeds.link(place_device(*s.device(from)), place_device(*s.device(to)));
  return link.mapped || link.bytes_per_s <= 0 ? 0 : inputs.bytes / link.bytes_per_s;
}

Effort effort_of(const Rebalance& limits, const Inputs& inputs) {
  const std::int64_t looked_at = 1 + inputs.blocks;
  return {std::min(limits.max_points, limits.max_reads / looked_at),
          1e-9 * static_cast<double>(limits.look_ns) * static_cast<double>(looked_at)};
}

double sure(const Watched& watched, DeviceId device) {
  const auto found = watched.seen.find(device);
  const double points = found == watched.seen.end() ? 0 : static_cast<double>(found->second.done);
  return points / (points + kUnsure);
}

// So long one that has points left has finished none, since the op runs or since it was first heard of.
double silent_s(const State& s, const Watched& watched, DeviceId device, std::int64_t left) {
  const auto found = watched.seen.find(device);
  if (left == 0 || (found != watched.seen.end() && found->second.done > 0)) return 0;
  return 1e-9 *
         static_cast<double>(s.now - (found == watched.seen.end() ? watched.since : found->second.first_at));
}

std::vector<Runner> runners_of(const State& s, const OpRecord& head, const Watched& watched) {
  std::map<DeviceId, std::int64_t> left;
  for_each_share(s, head, [&](const OpRecord&, const OpShare& share) {
    if (s.device(share.device)->alive) left[share.device] += share.owned - share.completed;
  });
  DeviceId latest;
  double last_s = -1;
  for (const auto& [device, points] : left) {
    const double each_s = std::max(point_s(s, watched, device, points), silent_s(s, watched, device, points));
    const double ends_s = static_cast<double>(points) * each_s;
    if (ends_s > last_s) latest = device, last_s = ends_s;
  }
  std::vector<Runner> runners;
  if (!latest) return runners;
  const std::int64_t bytes = std::max<std::int64_t>(
      1, output_bytes(head.op) / std::max<std::int64_t>(1, head.op.space.block_count()));
  for (const DeviceId id : devices_like(s, head, latest)) {
    const Device& device = *s.device(id);
    Runner r{.device = id};
    const auto has = left.find(id);
    r.left = has == left.end() ? 0 : has->second;
    r.point_s = point_s(s, watched, id, r.left);
    r.sure = sure(watched, id);
    r.at_least_s = silent_s(s, watched, id, r.left);
    r.room = device.memory_bytes == 0 ? INT64_MAX / 2 : room_of(device) / bytes;
    r.takes = !device.draining;
    r.gives = r.left > 1;
    runners.push_back(r);
  }
  return runners;
}

// From the end of each share, layers first: they come last.
Move move_of(const State& s, const OpRecord& head, const Shift& shift) {
  Move move{head.id, {}, shift.to};
  for (const auto& [device, points] : shift.from) {
    std::vector<msg::Tail> tails;
    std::int64_t wanted = points;
    std::vector<std::pair<const OpRecord*, const OpShare*>> shares;
    for_each_share(s, head, [&, id = device](const OpRecord& op, const OpShare& share) {
      if (share.device == id) shares.emplace_back(&op, &share);
    });
    for (std::size_t i = shares.size(); i-- > 0 && wanted > 0;) {
      const auto& [op, share] = shares[i];
      const std::int64_t count = std::min(wanted, share->owned - share->completed);
      if (count <= 0) continue;
      wanted -= count;
      move.from.push_back({op->id, device, share->owned - count});
    }
  }
  return move;
}

// By lot, for tests.
std::optional<Move> drawn(const State& s) {
  Prng prng(s.options.rebalance.by_lot + s.recovery.version * 977 + static_cast<std::uint64_t>(s.now));
  std::vector<const OpRecord*> open;
  s.ops.for_each([&](const OpRecord& op) {
    if (!op.of && may_move(s, op)) open.push_back(&op);
  });
  if (open.empty()) return {};
  std::sort(open.begin(), open.end(), [](const OpRecord* a, const OpRecord* b) { return a->id < b->id; });
  const OpRecord& head = *open[prng.below(open.size())];
  Shift shift;
  std::map<DeviceId, std::int64_t> left;
  for_each_share(s, head, [&](const OpRecord&, const OpShare& share) {
    if (s.device(share.device)->alive) left[share.device] += share.owned - share.completed;
  });
  std::vector<DeviceId> all;
  for (const auto& [device, points] : left) {
    if (points == 0 || prng.chance(0.3)) continue;
    if (all.empty()) all = devices_like(s, head, device);
    if (std::binary_search(all.begin(), all.end(), device))
      shift.from.emplace_back(device, prng.between(1, points));
  }
  for (const DeviceId device : all) {
    if (!s.device(device)->draining && prng.chance(0.5)) shift.to.emplace_back(device, prng.between(1, 8));
  }
  if (shift.to.empty()) return {};
  return move_of(s, head, shift);
}

// So long an op that takes `left_s` more is left alone after a move: a quarter of that, so that it is looked at again before it is over.
TimeNs again_ns(const Rebalance& limits, double left_s) {
  const auto quarter = static_cast<TimeNs>(std::min(left_s, 1e6) / 4 * 1e9);
  return std::min(limits.again_ns, std::max(limits.every_ns, quarter));
}

void look_again(State& s, TimeNs at) { s.rebalance_at = std::min(s.rebalance_at, at); }

}  // namespace

void ToAndFro::note(const Shift& shift) {
  turns += std::any_of(shift.from.begin(), shift.from.end(),
                       [&](const auto& from) { return takers.contains(from.first); });
  takers.clear();
  for (const auto& [device, points] : shift.to) takers.insert(device);
}

TimeNs ToAndFro::wait_ns(TimeNs again_ns) const { return again_ns << (2 * std::min(turns, kMaxTurns)); }

std::optional<Shift> BalanceBySpeed::propose(std::span<const Runner> runners, const Effort& effort) const {
  double known_s = 0;
  std::int64_t known = 0, all = 0;
  for (const Runner& r : runners) {
    all += r.left;
    if (r.point_s > 0) known_s += r.point_s, ++known;
  }
  if (known == 0 || runners.size() < 2 || all < kFewPoints) return {};
  known_s /= static_cast<double>(known);
  Shift shift;
  std::vector<double> own_s;
  for (const Runner& r : runners) {
    const bool slow = r.at_least_s > 10 * known_s + 1e-9 * kSilentNs;
    own_s.push_back(r.point_s > 0 ? r.sure * r.point_s + (1 - r.sure) * known_s
                    : slow        ? std::max(known_s, r.at_least_s)
                                  : known_s);
    shift.before_s = std::max(shift.before_s, own_s.back() * static_cast<double>(r.left));
  }
  // Points that each has made by then: of its own, and then others', whose inputs have to be brought.
  const auto made_by = [&](double end_s, std::size_t d) -> std::int64_t {
    const Runner& r = runners[d];
    const double spare_s = end_s - own_s[d] * static_cast<double>(r.left);
    if (spare_s < 0 && r.gives) return static_cast<std::int64_t>(end_s / own_s[d]);
    if (spare_s <= 0 || !r.takes) return r.left;
    const double more = spare_s / (own_s[d] + r.bring_s);
    return r.left + static_cast<std::int64_t>(std::min(more, static_cast<double>(std::min(r.room, all))));
  };
  const auto enough = [&](double end_s) {
    std::int64_t made = 0;
    for (std::size_t d = 0; d < runners.size(); ++d) made += made_by(end_s, d);
    return made >= all;
  };
  double low_s = 0, end_s = shift.before_s;  // at its end everybody has made their own
  for (int i = 0; i < kHalvings && low_s < end_s; ++i) {
    const double middle_s = (low_s + end_s) / 2;
    (enough(middle_s) ? end_s : low_s) = middle_s;
  }
  std::vector<std::int64_t> fair;
  std::int64_t over = -all;
  for (std::size_t d = 0; d < runners.size(); ++d) over += fair.emplace_back(made_by(end_s, d));
  std::int64_t given = 0, taken = 0;
  double given_s = 0;
  for (std::size_t d = runners.size(); d-- > 0 && over > 0;) {
    const std::int64_t less = std::clamp<std::int64_t>(fair[d] - runners[d].left, 0, over);
    fair[d] -= less, over -= less;
  }
  for (std::size_t d = 0; d < runners.size(); ++d) {
    const Runner& r = runners[d];
    const std::int64_t more = fair[d] - r.left;
    const double brought_s = r.bring_s * static_cast<double>(std::max<std::int64_t>(0, more));
    shift.after_s = std::max(shift.after_s, own_s[d] * static_cast<double>(fair[d]) + brought_s);
    if (more < 0) {
      shift.from.emplace_back(r.device, -more);
      given -= more;
      given_s = std::max(given_s, own_s[d]);
    }
    if (more > 0) shift.to.emplace_back(r.device, more), taken += more;
  }
  if (given == 0 || taken == 0) return {};
  const double gain_s = shift.before_s - shift.after_s;
  const auto at_once = static_cast<double>(std::min(given, effort.most));
  const double won_s = std::min(gain_s, at_once * given_s) - at_once * effort.point_s;
  if (won_s * 1e9 < static_cast<double>(limits_.min_gain_ns) || gain_s < limits_.min_gain * shift.before_s)
    return {};
  return shift;
}

void note_progress(State& s, const OpRecord& op, DeviceId device, std::int64_t points) {
  if (s.options.rebalance.every_ns == 0 || points == 0) return;
  const OpId head = op.of ? op.of : op.id;
  auto found = s.watched.find(head);
  if (found == s.watched.end()) {
    if (op.points - op.completed < kFewPoints || s.watched.size() >= kMaxWatched) return;
    const OpRecord* planned = s.ops.find(head);
    if (planned == nullptr || !may_move(s, *planned)) return;
    found = s.watched.try_emplace(head).first;
    found->second.since = s.now;
    found->second.look_at = s.now + s.options.rebalance.every_ns;
    look_again(s, found->second.look_at);
  }
  // What the first news tells of began at some time before.
  const auto [seen, fresh] = found->second.seen.try_emplace(device, Seen{s.now, s.now, 0});
  if (fresh) return;
  seen->second.done += points;
  seen->second.last_at = s.now;
}

void note_newcomer(State& s) {
  for (auto& [id, watched] : s.watched) watched.look_at = std::min(watched.look_at, s.now);
  if (!s.watched.empty()) look_again(s, s.now);
}

void check_rebalance(State& s) {
  const Rebalance& limits = s.options.rebalance;
  if (s.now < s.rebalance_at) return;
  s.rebalance_at = kNever;
  std::erase_if(s.watched, [&](const auto& entry) {
    const OpRecord* head = s.ops.find(entry.first);
    return head == nullptr ||
           !may_move(s, *head);  // one that was moved often enough stays, to be known as such
  });
  if (limits.every_ns == 0 || s.watched.empty()) return;
  look_again(s, s.now + limits.every_ns);
  if (s.recovery.pending || !s.leaving.empty()) return;
  if (limits.by_lot != 0) {
    if (std::optional<Move> move = drawn(s)) begin_move(s, std::move(*move));
    return;
  }
  const BalanceBySpeed balance(limits);
  for (auto& [id, watched] : s.watched) {
    if (s.now < watched.look_at || watched.moves >= limits.max_moves) continue;
    const OpRecord& head = s.ops.at(id);
    std::vector<Runner> runners = runners_of(s, head, watched);
    std::optional<Shift> shift = balance.propose(runners);
    if (!shift) continue;
    const double left_s = shift->after_s;
    // Looked at closely only where there is something to be won: what has to be brought may cost more.
    const Inputs inputs = inputs_of(s, head);
    for (Runner& r : runners) r.bring_s = bring_s(s, inputs, shift->from.front().first, r.device);
    shift = balance.propose(runners, effort_of(limits, inputs));
    if (shift) watched.to_and_fro.note(*shift);
    watched.look_at = s.now + watched.to_and_fro.wait_ns(again_ns(limits, left_s));
    if (!shift) continue;
    ++watched.moves;
    for (auto& [device, seen] : watched.seen) {  // what comes now counts more than what was
      seen.first_at = seen.last_at - (seen.last_at - seen.first_at) / 2;
      seen.done /= 2;
    }
    return begin_move(s, move_of(s, head, *shift));
  }
}

// While everybody is asked about something else that ends first.
TimeNs rebalance_deadline(const State& s) {
  return s.watched.empty() || s.recovery.pending || !s.leaving.empty() ? kNever : s.rebalance_at;
}

}  // namespace tilewise::scheduler
