// Shares by speed: as many blocks a device as it can compute in the time of the others, in pieces that stay together.
//
// A rule of this kind names the owner of each chunk (a block, or several where there are very many) in its device list:
// bounded, evaluated like any other. Used where a regular grid of equal tiles cannot be even: unequal devices, or block
// counts that the number of devices does not divide.
#include <tilewise/ir/cost.h>
#include <tilewise/place/place.h>

#include "shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <tuple>

namespace tilewise::place {
namespace {

constexpr std::int64_t kMinChunks = 4096;   // of one rule, where there are as many blocks
constexpr std::int64_t kChunksADevice = 4;  // at least, for more devices

// Coordinates of chunks in an order in which neighbours are near each other: strips along the longest dimension's
// partner, walked to and fro.
std::vector<std::int64_t> near_order(const ir::Shape& parts, double chunks_each) {
  const std::int64_t total = ir::volume(parts);
  std::vector<std::int64_t> out(static_cast<std::size_t>(total));
  std::iota(out.begin(), out.end(), std::int64_t{0});
  std::vector<std::size_t> wide;
  for (std::size_t d = 0; d < parts.size(); ++d)
    if (parts[d] > 1) wide.push_back(d);
  if (wide.size() < 2) return out;
  const std::size_t a = wide[0], b = wide[1];  // strips cut a; within a strip the walk goes along b
  const auto strips = std::clamp<std::int64_t>(
      std::llround(static_cast<double>(parts[a]) / std::max(1.0, std::sqrt(chunks_each))), 1, parts[a]);
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;  // the chunk last
  std::vector<Key> keys;
  keys.reserve(out.size());
  for (const std::int64_t chunk : out) {
    const ir::Index at = ir::unravel(chunk, parts);
    const std::int64_t strip = at[a] * strips / parts[a];
    const std::int64_t along = strip % 2 == 0 ? at[b] : parts[b] - 1 - at[b];
    keys.emplace_back(strip, along, along % 2 == 0 ? at[a] : -at[a], chunk);
  }
  std::sort(keys.begin(), keys.end());
  std::transform(keys.begin(), keys.end(), out.begin(), [](const Key& key) { return std::get<3>(key); });
  return out;
}

// When even the slowest device alone would be done.
double alone_s(const Pace& pace, std::int64_t items) {
  double last = 0;
  for (std::size_t d = 0; d < pace.item_s.size(); ++d)
    last = std::max(last, pace.busy_s[d] + pace.item_s[d] * static_cast<double>(items));
  return last;
}

class Balanced final : public Policy {
 public:
  std::string_view name() const override { return "shares by speed"; }
  bool searches() const override { return true; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    const ir::Shape counts = request.op->space.counts();
    const auto devices = static_cast<std::int64_t>(request.eligible.size());
    const std::int64_t points = ir::volume(counts);
    if (devices < 2 || points < 2) return;
    const Pace each = pace_of(request, points);
    if (even_tiles(request, counts, each) || follows(request, each, points)) return;
    const ir::Shape parts = chunks_of(counts, std::max(kMinChunks, kChunksADevice * devices));
    const std::int64_t chunks = ir::volume(parts);
    const std::vector<std::int64_t> quotas = shares_by_speed(pace_of(request, chunks), chunks);
    const std::vector<std::int64_t> order =
        near_order(parts, static_cast<double>(chunks) / static_cast<double>(devices));
    ir::Rule rule;
    rule.parts.assign(parts.begin(), parts.end());
    rule.cyclic.assign(parts.size(), 0);
    rule.devices.resize(static_cast<std::size_t>(chunks));
    std::size_t at = 0;
    for (std::size_t d = 0; d < quotas.size(); ++d) {
      for (std::int64_t i = 0; i < quotas[d]; ++i)
        rule.devices[static_cast<std::size_t>(order[at++])] = request.eligible[d].id;
    }
    out.push_back({ir::Placement::whole(counts, std::move(rule)), name()});
  }

 private:
  // Devices that differ only in what they have to do before: work that takes less time than its results take to another host stays
  // with what it reads. Whoever reads those is there, as a rule, and they would have to come back.
  static bool follows(const Request& request, const Pace& pace, std::int64_t points) {
    const auto devices = static_cast<std::int64_t>(pace.item_s.size());
    for (const double item_s : pace.item_s)
      if (item_s != pace.item_s[0]) return false;
    if (*std::min_element(pace.most.begin(), pace.most.end()) < ir::ceil_div(points, devices)) return false;
    if (std::none_of(request.inputs.begin(), request.inputs.end(),
                     [&](const Input& input) { return is_here(request, input); }))
      return false;
    const Device& first = request.eligible.front();
    const auto other = std::find_if(request.eligible.begin(), request.eligible.end(),
                                    [&](const Device& d) { return d.host != first.host; });
    if (other == request.eligible.end()) return false;
    const LinkSpeed link = link_of(request, first, *other);
    const auto bytes = static_cast<double>(request.geometry->output_bytes_bound());
    return !link.mapped && link.bytes_per_s > 0 && pace.item_s[0] < bytes / link.bytes_per_s;
  }
  static bool is_here(const Request& request, const Input& input) {
    if (input.placement == nullptr || input.array->grid.block_count() == 0) return false;
    const DeviceId owner = input.placement->owner(ir::Index(input.array->grid.counts().size(), 0));
    return find_device(request.eligible, owner) != nullptr;
  }
  // Equal devices, equally busy, and a regular grid gives none of them more than it has to.
  static bool even_tiles(const Request& request, const ir::Shape& counts, const Pace& pace) {
    for (std::size_t d = 1; d < pace.item_s.size(); ++d) {
      if (pace.item_s[d] != pace.item_s[0]) return false;
      if (std::abs(pace.busy_s[d] - pace.busy_s[0]) > pace.item_s[0]) return false;
    }
    const auto devices = static_cast<std::int64_t>(pace.item_s.size());
    const ir::PerDim<std::int32_t> grid = device_grid(counts, devices, cut_costs(request));
    std::int64_t load = 1;
    for (std::size_t d = 0; d < counts.size(); ++d) load *= ir::ceil_div(counts[d], grid[d]);
    const std::int64_t least = *std::min_element(pace.most.begin(), pace.most.end());
    return load == ir::ceil_div(ir::volume(counts), devices) && load <= least;
  }
};

}  // namespace

ir::Shape chunks_of(const ir::Shape& counts, std::int64_t most) {
  ir::Shape parts = counts;
  most = std::min<std::int64_t>(most, ir::kMaxRuleDevices);
  while (ir::volume(parts) > most) {
    auto largest = std::max_element(parts.begin(), parts.end());
    *largest = ir::ceil_div(*largest, 2);
  }
  return parts;
}

Pace pace_of(const Request& request, std::int64_t items) {
  const std::string family = ir::family_of(*request.op);
  const ir::Geometry& geometry = *request.geometry;
  const double each =
      static_cast<double>(geometry.point_count()) / static_cast<double>(std::max<std::int64_t>(1, items));
  Pace out;
  double model_s = 0;
  if (geometry.point_count() > 0) {
    const ir::Index middle = geometry.point(geometry.point_count() / 2);
    model_s = ir::model_step_ns(geometry, middle) * 1e-9 * static_cast<double>(geometry.steps(middle));
  }
  std::vector<double> ratios(request.eligible.size(), 1.0);
  if (request.speeds != nullptr) ratios = request.speeds->coarse_ratios(request.eligible, family);
  for (std::size_t d = 0; d < ratios.size(); ++d) {
    const Device& device = request.eligible[d];
    out.item_s.push_back(each * model_s * ratios[d] / static_cast<double>(std::max(1, device.streams)));
    out.busy_s.push_back(busy_so_far(request, device));
  }
  const std::int64_t block = geometry.output_bytes_bound();
  const double bytes = each * static_cast<double>(std::max<std::int64_t>(1, block));
  for (const Room room : {Room::kAmple, Room::kTight, Room::kLater, Room::kNone}) {
    out.most.clear();
    std::int64_t all = 0;
    for (const Device& device : request.eligible) {
      const std::int64_t headroom = device.can_hold(block) ? device.headroom_bytes(room) : 0;
      out.most.push_back(headroom == INT64_MAX
                             ? headroom
                             : static_cast<std::int64_t>(static_cast<double>(headroom) / bytes));
      all = ir::saturating_add(all, out.most.back());
    }
    if (all >= items) break;
  }
  return out;
}

std::vector<std::int64_t> shares_by_speed(const Pace& pace, std::int64_t items) {
  const std::size_t n = pace.item_s.size();
  // When all would be done if points could be divided: between the least busy device now and the slowest doing everything.
  double from = *std::min_element(pace.busy_s.begin(), pace.busy_s.end());
  double to = alone_s(pace, items);
  std::vector<std::int64_t> most = pace.most;
  std::int64_t room = 0;
  for (const std::int64_t m : most) room = ir::saturating_add(room, m);
  if (most.empty() || room < items) most.assign(n, INT64_MAX);
  const auto share = [&](std::size_t d, double until) {
    return std::clamp((until - pace.busy_s[d]) / pace.item_s[d], 0.0, static_cast<double>(most[d]));
  };
  for (int i = 0; i < 60; ++i) {
    const double middle = (from + to) / 2;
    double done = 0;
    for (std::size_t d = 0; d < n; ++d) done += share(d, middle);
    (done < static_cast<double>(items) ? from : to) = middle;
  }
  std::vector<std::int64_t> out;
  std::int64_t given = 0;
  for (std::size_t d = 0; d < n; ++d) {
    out.push_back(std::min(static_cast<std::int64_t>(share(d, from)), items - given));
    given += out.back();
  }
  const auto end_s = [&](std::size_t d) {
    if (out[d] >= most[d]) return HUGE_VAL;
    return pace.busy_s[d] + static_cast<double>(out[d] + 1) * pace.item_s[d];
  };
  // When a device would end with one more. Of those that would at once, the first ones where not all get some; else no neighbours one
  // after the other: shares that are laid out in turn, of one op and the next, then differ by little in where they begin (multiples
  // of the golden ratio, modulo 1).
  const std::uint32_t apart = items < static_cast<std::int64_t>(n) ? 1 : 2'654'435'769U;
  using Next = std::tuple<double, std::uint32_t, std::size_t>;
  const auto next_of = [&](std::size_t d) {
    return Next{end_s(d), static_cast<std::uint32_t>(d) * apart, d};
  };
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  for (std::size_t d = 0; d < n; ++d) next.push(next_of(d));
  for (; given < items; ++given) {
    const std::size_t d = std::get<2>(next.top());
    next.pop();
    ++out[d];
    next.push(next_of(d));
  }
  return out;
}

std::unique_ptr<Policy> balanced_policy() { return std::make_unique<Balanced>(); }

}  // namespace tilewise::place
