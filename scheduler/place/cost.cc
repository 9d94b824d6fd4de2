// What a placement costs: how long the busiest device computes and waits for bytes, from sampled points.
#include <tilewise/ir/cost.h>
#include <tilewise/place/place.h>

#include <algorithm>
#include <map>

namespace tilewise::place {
namespace {

constexpr double kTrafficWeight = 0.05;  // of all bytes on the way, beside the busiest device: breaks ties

const Device* find(std::span<const Device> devices, DeviceId id) {
  const auto it = std::lower_bound(devices.begin(), devices.end(), id,
                                   [](const Device& d, DeviceId wanted) { return d.id < wanted; });
  return it != devices.end() && it->id == id ? &*it : nullptr;
}

// Transfers overlap, but each takes attention at both ends: a tenth of its latency is not hidden.
constexpr double kShownLatency = 0.1;

double seconds(const LinkSpeed& speed, double bytes, double blocks) {
  return speed.bytes_per_s == 0 ? 0 : bytes / speed.bytes_per_s + kShownLatency * speed.latency_s * blocks;
}

// A client's endpoint and devices that left are elsewhere.
LinkSpeed link(const Request& request, DeviceId from, DeviceId to) {
  const Device *a = find(request.devices, from), *b = find(request.devices, to);
  static const Device elsewhere{.host = ~0u};
  if (a == nullptr && b == nullptr) return {};
  return link_between(a == nullptr ? elsewhere : *a, b == nullptr ? elsewhere : *b);
}

// How many of one device's points along a dimension lie in [lo, hi): n points over `parts`, `c` owns them.
std::int64_t owned_between(std::int64_t lo, std::int64_t hi, std::int64_t n, std::int64_t parts,
                           std::int64_t c, bool cyclic) {
  if (hi <= lo || n <= 0) return 0;
  if (cyclic) {
    auto below = [&](std::int64_t x) { return x <= c ? 0 : (x - c + parts - 1) / parts; };
    return below(hi) - below(lo);
  }
  auto ceil_of = [&](std::int64_t x) {
    return static_cast<std::int64_t>((static_cast<__int128>(x) * n + parts - 1) / parts);
  };
  return std::max<std::int64_t>(0, std::min(hi, ceil_of(c + 1)) - std::max(lo, ceil_of(c)));
}

// Points of `box` that the owner of `point` owns too: they share one transfer of what they all read.
std::int64_t sharers(const ir::Placement& placement, const ir::Index& point, const ir::Box& box) {
  for (const ir::Piece& piece : placement.pieces()) {
    if (!piece.box.contains(point)) continue;
    std::int64_t count = 1;
    for (std::size_t d = 0; d < point.size(); ++d) {
      const std::int64_t lo = piece.box.lo[d], n = piece.box.hi[d] - lo, parts = piece.rule.parts[d];
      const bool cyclic = piece.rule.cyclic[d] != 0;
      const std::int64_t at = point[d] - lo;
      const std::int64_t c =
          cyclic ? at % parts : static_cast<std::int64_t>(static_cast<__int128>(at) * parts / n);
      count *= std::max<std::int64_t>(1, owned_between(std::max(box.lo[d] - lo, std::int64_t{0}),
                                                       std::min(box.hi[d] - lo, n), n, parts, c, cyclic));
    }
    return count;
  }
  return 1;
}

}  // namespace

Estimate estimate(const Request& request, const ir::Placement& placement) {
  const ir::Op& op = *request.op;
  const ir::Geometry& geometry = *request.geometry;
  const std::int64_t points = geometry.point_count();
  Estimate out;
  if (points == 0) return out;
  const auto operands = static_cast<std::int64_t>(std::max<std::size_t>(op.operands.size(), 1));
  const std::string family = ir::family_of(op);
  struct Sampled {
    std::int64_t points = 0;
    double seconds = 0;
  };
  std::map<DeviceId, Sampled> sampled_on;
  std::vector<ir::Read> reads;
  std::vector<ir::Geometry::Users> users;
  double in_s = 0;
  std::int64_t budget = kSampledReads;
  std::int64_t sampled = 0;
  // Few steps of many points rather than the reverse; all of it within the budget of reads.
  const std::int64_t samples = std::min(points, std::max<std::int64_t>(1, kSampledReads / (operands * 2)));
  for (std::int64_t i = 0; i < samples && budget > 0; ++i) {
    const ir::Index point = geometry.point(
        static_cast<std::int64_t>((static_cast<__int128>(2 * i + 1) * points) / (2 * samples)));
    const DeviceId here = placement.owner(point);
    const std::int64_t steps = geometry.steps(point);
    const std::int64_t tried = std::clamp<std::int64_t>(budget / ((samples - i) * operands), 1, steps);
    double bytes_of_point = 0, in_of_point = 0;
    for (std::int64_t t = 0; t < tried; ++t) {
      geometry.reads(
          point, static_cast<std::int64_t>((static_cast<__int128>(2 * t + 1) * steps) / (2 * tried)), reads);
      budget -= static_cast<std::int64_t>(std::max<std::size_t>(reads.size(), 1));
      for (const ir::Read& read : reads) {
        const Input& input = request.inputs[read.operand];
        const ir::Index block = ir::unravel(read.block, input.array->grid.counts());
        if (input.placement->holds(block, here)) continue;
        const LinkSpeed speed = link(request, input.placement->owner(block), here);
        double bytes = static_cast<double>(input.array->grid.box(block).volume()) *
                       static_cast<double>(ir::size_of(input.array->dtype));
        // A block that several points of one device read comes there once.
        double blocks = 1;
        geometry.users(read.operand, read.block, users);
        if (users.size() == 1 && users[0].points.volume() > 1)
          blocks /= static_cast<double>(sharers(placement, point, users[0].points));
        bytes *= blocks;
        bytes_of_point += bytes;
        in_of_point += seconds(speed, bytes, blocks);
      }
    }
    const double all_steps = static_cast<double>(steps) / static_cast<double>(tried);
    const Device* device = find(request.devices, here);
    double busy_s = ir::model_step_ns(geometry, point) * static_cast<double>(steps) * 1e-9;
    if (device != nullptr) {
      if (request.speeds != nullptr) busy_s *= request.speeds->ratio(*device, family);
      busy_s /= static_cast<double>(std::max(1, device->streams));
    }
    // Where results go next, if a later user says where it wants them.
    for (const ir::Placement& user : request.wanted) {
      if (user.holds(point, here)) continue;
      const auto bytes = static_cast<double>(geometry.output_bytes_bound());
      bytes_of_point += bytes / all_steps;
      in_of_point += seconds(link(request, here, user.owner(point)), bytes, 1) / all_steps;
    }
    out.moved_bytes += bytes_of_point * all_steps;
    in_s += in_of_point * all_steps;
    Sampled& on = sampled_on[here];
    ++on.points;
    on.seconds += busy_s + in_of_point * all_steps;
    ++sampled;
  }
  const double each = static_cast<double>(points) / static_cast<double>(std::max<std::int64_t>(sampled, 1));
  out.moved_bytes *= each;
  for (const auto& [device, on] : sampled_on) {
    out.seconds = std::max(out.seconds, on.seconds / static_cast<double>(on.points) *
                                            static_cast<double>(placement.owned_count(device)));
  }
  out.seconds += kTrafficWeight * in_s * each;
  return out;
}

}  // namespace tilewise::place
