// What a placement costs, in bytes that must move (or work that could have moved them).
#include <tilewise/place/place.h>

#include <algorithm>

namespace tilewise::place {
namespace {

constexpr double kSameHostWeight = 0.25;  // mapped or copied within a host
// Memory is faster than links: work piled up on one device costs less than moving its inputs away, byte for byte. So
// results live where inputs live, until arithmetic outweighs the bytes.
constexpr double kImbalanceWeight = 0.25;
constexpr double kFlopsPerByte = 50;  // work a device does while a byte crosses a link

std::uint32_t host_of(std::span<const Device> devices, DeviceId id) {
  const auto it = std::lower_bound(devices.begin(), devices.end(), id,
                                   [](const Device& d, DeviceId wanted) { return d.id < wanted; });
  return it != devices.end() && it->id == id ? it->host : ~0u;
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

double moved_bytes(const Request& request, const ir::Placement& placement) {
  const ir::Op& op = *request.op;
  const ir::Geometry& geometry = *request.geometry;
  const std::int64_t points = geometry.point_count();
  if (points == 0 || op.operands.empty()) return 0;
  const auto operands = static_cast<std::int64_t>(op.operands.size());
  // Few steps of many points rather than the reverse; all of it within the budget of reads.
  const std::int64_t samples = std::min(points, std::max<std::int64_t>(1, kSampledReads / (operands * 2)));
  std::vector<ir::Read> reads;
  std::vector<ir::Geometry::Users> users;
  double total = 0;
  std::int64_t budget = kSampledReads;
  std::int64_t sampled = 0;
  for (std::int64_t i = 0; i < samples && budget > 0; ++i) {
    const ir::Index point = geometry.point(
        static_cast<std::int64_t>((static_cast<__int128>(2 * i + 1) * points) / (2 * samples)));
    const DeviceId here = placement.owner(point);
    const std::int64_t steps = geometry.steps(point);
    const std::int64_t tried = std::clamp<std::int64_t>(budget / ((samples - i) * operands), 1, steps);
    double of_point = 0;
    for (std::int64_t t = 0; t < tried; ++t) {
      geometry.reads(
          point, static_cast<std::int64_t>((static_cast<__int128>(2 * t + 1) * steps) / (2 * tried)), reads);
      budget -= static_cast<std::int64_t>(reads.size());
      for (const ir::Read& read : reads) {
        const Input& input = request.inputs[read.operand];
        const ir::Index block = ir::unravel(read.block, input.array->grid.counts());
        if (input.placement->holds(block, here)) continue;
        const DeviceId there = input.placement->owner(block);
        const ir::View& view = op.operands[read.operand].view;
        const std::int64_t elements = std::min(read.region.volume(), view.source_box(read.region).volume());
        double bytes = static_cast<double>(elements) * static_cast<double>(ir::size_of(input.array->dtype));
        geometry.users(read.operand, read.block, users);
        if (users.size() == 1 && users[0].points.volume() > 1) {
          bytes /= static_cast<double>(sharers(placement, point, users[0].points));
        }
        const std::uint32_t host = host_of(request.devices, here);
        if (host != ~0u && host == host_of(request.devices, there)) bytes *= kSameHostWeight;
        of_point += bytes;
      }
    }
    total += of_point * static_cast<double>(steps) / static_cast<double>(tried);
    ++sampled;
  }
  return total * static_cast<double>(points) / static_cast<double>(std::max<std::int64_t>(sampled, 1));
}

double wanted_bytes(const Request& request, const ir::Placement& placement) {
  const std::int64_t points = request.geometry->point_count();
  const std::int64_t samples = std::min(points, kSampledReads / 4);
  std::int64_t away = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const ir::Index point = request.geometry->point(
        static_cast<std::int64_t>((static_cast<__int128>(2 * i + 1) * points) / (2 * samples)));
    for (const ir::Placement& user : request.wanted) away += user.owner(point) != placement.owner(point);
  }
  if (away == 0) return 0;
  return static_cast<double>(away) / static_cast<double>(samples) * static_cast<double>(points) *
         static_cast<double>(request.geometry->output_bytes_bound());
}

double imbalance_bytes(const Request& request, const ir::Placement& placement) {
  const ir::Geometry& geometry = *request.geometry;
  const auto devices = static_cast<std::int64_t>(request.eligible.size());
  const std::int64_t points = geometry.point_count();
  if (points == 0 || devices <= 0) return 0;
  std::int64_t most = 0;
  for (const DeviceId device : placement.devices()) most = std::max(most, placement.owned_count(device));
  const std::int64_t fair = (points + devices - 1) / devices;
  const ir::Index middle = geometry.point(points / 2);
  const double work = static_cast<double>(geometry.output_bytes_bound() + geometry.bytes_read(middle)) +
                      geometry.flops(middle) / kFlopsPerByte;
  return kImbalanceWeight * static_cast<double>(std::max<std::int64_t>(0, most - fair)) * work;
}

}  // namespace tilewise::place
