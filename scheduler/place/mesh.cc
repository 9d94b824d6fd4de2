// Device grids: how a number of devices is laid over the dimensions of a block grid.
#include <tilewise/place/place.h>

#include <algorithm>

namespace tilewise::place {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Searches ordered factorisations over at most three dimensions: the number of divisors of a device count is small
// (fewer than 100 below 4096), so the search is bounded by its square.
struct Search {
  const ir::Shape& counts;
  std::span<const double> cut_cost;
  std::vector<int> dims;  // those searched
  ir::PerDim<std::int32_t> current, best;
  std::int64_t best_load = -1;
  double best_cost = 0;

  void consider() {
    std::int64_t load = 1;
    double cost = 0;
    for (std::size_t d = 0; d < counts.size(); ++d) {
      load *= ceil_div(counts[d], current[d]);
      cost += cut_cost[d] * (current[d] - 1);
    }
    if (best_load < 0 || load < best_load || (load == best_load && cost < best_cost)) {
      best = current, best_load = load, best_cost = cost;
    }
  }
  void spread(std::size_t at, std::int64_t devices) {
    const auto d = static_cast<std::size_t>(dims[at]);
    if (at + 1 == dims.size()) {
      current[d] = static_cast<std::int32_t>(std::min(devices, counts[d]));
      consider();
      return;
    }
    // Not only divisors: 7 devices over 2 x 3 blocks are best as 2 x 3 with one idle. Distinct quotients suffice.
    for (std::int64_t parts = 1; parts <= std::min(devices, counts[d]); ++parts) {
      const std::int64_t rest = devices / parts;
      // A larger `parts` with the same rest is at least as good, so only the largest of each class is tried.
      if (parts < std::min(devices, counts[d]) && devices / (parts + 1) == rest) continue;
      current[d] = static_cast<std::int32_t>(parts);
      spread(at + 1, rest);
    }
    current[d] = 1;
  }
};

}  // namespace

ir::PerDim<std::int32_t> device_grid(const ir::Shape& counts, std::int64_t devices,
                                     std::span<const double> cut_cost) {
  ir::PerDim<std::int32_t> one(counts.size(), 1);
  Search search{counts, cut_cost, {}, one, one};
  for (std::size_t d = 0; d < counts.size(); ++d) {
    if (counts[d] == 0) return one;  // no points: any rule covers them
    if (counts[d] > 1) search.dims.push_back(static_cast<int>(d));
  }
  if (search.dims.empty() || devices <= 1) return one;
  std::stable_sort(search.dims.begin(), search.dims.end(), [&](int a, int b) {
    return counts[static_cast<std::size_t>(a)] > counts[static_cast<std::size_t>(b)];
  });
  if (search.dims.size() > 3) search.dims.resize(3);
  search.spread(0, devices);
  // A contiguous tile may be larger than needed by rounding: 5 blocks over 4 devices give 2 each, which 3 devices do
  // as well. Fewer parts of the same size move fewer bytes.
  for (std::size_t d = 0; d < counts.size(); ++d) {
    const std::int64_t size = ceil_div(counts[d], search.best[d]);
    search.best[d] = static_cast<std::int32_t>(ceil_div(counts[d], size));
  }
  return search.best;
}

ir::PerDim<double> cut_costs(const Request& request) {
  const ir::Shape counts = request.op->space.counts();
  double points = 1;
  for (const std::int64_t n : counts) points *= static_cast<double>(std::max<std::int64_t>(n, 1));
  ir::PerDim<double> cost(counts.size(), 0.0);
  // Near-square by default: a cut costs the face it exposes, and a whisper more towards the last dimension, so that
  // ties go to whole rows.
  for (std::size_t d = 0; d < counts.size(); ++d) {
    cost[d] = points / static_cast<double>(std::max<std::int64_t>(counts[d], 1)) *
              (1 + 1e-6 * static_cast<double>(d));
  }
  if (request.op->kind == ir::OpKind::kMatmulPanels && counts[0] > 0)
    cost[0] += bytes_of({request.op->outputs[0].dtype, request.op->outputs[0].grid}) /
               static_cast<double>(counts[0]);
  // An operand whose blocks are read all along dimension d is wanted by every device along d.
  std::vector<ir::Geometry::Users> users;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    const ir::SourceArray& array = *request.inputs[i].array;
    if (array.grid.block_count() == 0) continue;
    request.geometry->users(static_cast<int>(i), 0, users);
    if (users.size() != 1) continue;
    double bytes = static_cast<double>(ir::size_of(array.dtype));
    for (const std::int64_t n : array.grid.shape()) bytes *= static_cast<double>(n);
    for (std::size_t d = 0; d < counts.size(); ++d) {
      if (counts[d] > 1 && users[0].points.extent(static_cast<int>(d)) == counts[d]) cost[d] += bytes;
    }
  }
  return cost;
}

ir::Placement hinted(const ir::DeviceHint& hint, const ir::Shape& counts, std::span<const double> cut_cost) {
  if (hint.devices.size() == 1)
    return ir::Placement::whole(counts, ir::Rule::constant(static_cast<int>(counts.size()), hint.devices[0]));
  const bool mesh = !hint.parts.empty() || hint.copies > 1;  // of a scalar: copies alone
  if (!mesh || hint.parts.size() != counts.size()) return tiled(counts, hint.devices, cut_cost, false);
  const ir::PerDim<std::uint8_t> contiguous(counts.size(), 0);
  return ir::Placement::whole(counts, {hint.parts, contiguous, hint.devices, hint.copies});
}

ir::Placement tiled(const ir::Shape& counts, std::span<const DeviceId> devices,
                    std::span<const double> cut_cost, bool cyclic) {
  ir::Rule rule;
  rule.parts = device_grid(counts, static_cast<std::int64_t>(devices.size()), cut_cost);
  rule.cyclic.assign(counts.size(), cyclic ? 1 : 0);
  std::size_t used = 1;
  for (const std::int32_t p : rule.parts) used *= static_cast<std::size_t>(p);
  rule.devices.assign(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(used));
  return ir::Placement::whole(counts, std::move(rule));
}

}  // namespace tilewise::place
