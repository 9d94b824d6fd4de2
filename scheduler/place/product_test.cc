// Matrix products: bytes worked out by hand for A, B or C staying, for layers along k and for the sums that follow.
#include "place_case.h"

#include <algorithm>
#include <set>

namespace tilewise::place {
namespace {

constexpr double kElement = 8;  // bytes; blocks are of one element where only bytes matter

std::vector<Device> gpus(int n, int a_host) {
  std::vector<Device> out;
  for (int i = 0; i < n; ++i) {
    const auto id = static_cast<std::uint32_t>(i + 1);
    out.push_back({.id = DeviceId{id},
                   .kind = kCudaKind,
                   .host = static_cast<std::uint32_t>(i / a_host),
                   .worker = WorkerId{id}});
  }
  return out;
}
ir::Placement on_grid(const ir::Grid& g, const std::vector<Device>& devices, ir::PerDim<std::int32_t> parts) {
  ir::Rule rule;
  rule.cyclic.assign(parts.size(), 0);
  std::size_t used = 1;
  for (const std::int32_t p : parts) used *= static_cast<std::size_t>(p);
  rule.parts = std::move(parts);
  rule.devices = ids(devices);
  rule.devices.resize(used);
  return ir::Placement::whole(g.counts(), std::move(rule));
}

// In blocks. `parts` of k: a product in parts as lowered, panel by panel; 0: one sum.
Case product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t parts, std::vector<Device> devices,
             std::int64_t block = 1) {
  Case c;
  c.devices = std::move(devices);
  const ir::Grid a = *ir::Grid::uniform({m * block, k * block}, {block, block}),
                 b = *ir::Grid::uniform({k * block, n * block}, {block, block}),
                 out = *ir::Grid::uniform({m * block, n * block}, {block, block});
  c.op.kind = parts > 0 ? ir::OpKind::kMatmulPanels : ir::OpKind::kMatmul;
  c.op.attrs = ir::MatmulAttrs{};
  c.op.space = out;
  if (parts > 0)
    c.op.space = ir::Grid({*ir::DimGrid::uniform(k * block, k * block / parts), out.dim(0), out.dim(1)});
  std::vector<ir::DimGrid> results = c.op.space.dims();
  if (parts > 0) results[0] = *ir::DimGrid::uniform(parts, 1);
  c.op.outputs = {{100, ir::DType::kFloat64, ir::Grid(results)}};
  c.op.operands = {{1, ir::View::identity(a.shape())}, {2, ir::View::identity(b.shape())}};
  c.arrays = {{ir::DType::kFloat64, a}, {ir::DType::kFloat64, b}};
  return c;
}

// The sum over layers of what `of` has made where `from` says.
Case sum_of(const Case& of, const ir::Placement& from) {
  Case c;
  c.devices = of.devices;
  const ir::Grid partials = of.op.outputs[0].grid;
  std::vector<ir::DimGrid> dims = partials.dims();
  dims[0] = *ir::DimGrid::uniform(ir::ceil_div(dims[0].extent(), 2), 1);
  c.op.kind = ir::OpKind::kCombine;
  c.op.attrs = ir::CombineAttrs{ir::ReduceKind::kSum, 0, 2};
  c.op.space = ir::Grid(dims);
  c.op.outputs = {{200, ir::DType::kFloat64, c.op.space}};
  c.op.operands = {{100, ir::View::identity(partials.shape())}};
  c.arrays = {{ir::DType::kFloat64, partials}};
  c.placements = {from};
  return c;
}

const Candidate* named(const std::vector<Candidate>& all, std::string_view why) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const Candidate& c) { return c.why == why; });
  return it == all.end() ? nullptr : &*it;
}
Candidate of_product(const Request& request, std::string_view why) {
  std::vector<Candidate> all;
  product_policy()->propose(request, all);
  const Candidate* found = named(all, why);
  REQUIRE_MESSAGE(found != nullptr, "no candidate " << why);
  return *found;
}

// Counts every read of every step, once a device and block.
double counted_bytes(const Request& request, const ir::Placement& placement) {
  std::set<std::tuple<int, std::int64_t, DeviceId>> moved;
  std::vector<ir::Read> reads;
  double bytes = 0;
  for (std::int64_t p = 0; p < request.geometry->point_count(); ++p) {
    const ir::Index point = request.geometry->point(p);
    const DeviceId here = placement.owner(point);
    for (std::int64_t s = 0; s < request.geometry->steps(point); ++s) {
      request.geometry->reads(point, s, reads);
      for (const ir::Read& read : reads) {
        const Input& input = request.inputs[read.operand];
        const ir::Index block = ir::unravel(read.block, input.array->grid.counts());
        if (input.placement->owner(block) == here || !moved.emplace(read.operand, read.block, here).second)
          continue;
        bytes += static_cast<double>(input.array->grid.box(block).volume()) * kElement;
      }
    }
  }
  return bytes;
}

TEST_CASE("stationary C: each device receives the rest of its rows of A and of its columns of B") {
  Case c = product(4, 4, 4, 0, gpus(4, 4));
  c.placements = {on_grid(c.arrays[0].grid, c.devices, {2, 2}), on_grid(c.arrays[1].grid, c.devices, {2, 2})};
  const Request request = c.request();
  const Candidate stays = of_product(request, "stationary C");
  // 16 blocks of A to one more device each, and of B.
  CHECK(estimate(request, stays.placement).moved_bytes == doctest::Approx(32 * kElement));
  CHECK(counted_bytes(request, stays.placement) == 32 * kElement);
}

TEST_CASE("stationary A: partial products where A is, B comes to them, sums go where C is") {
  Case c = product(2, 1, 8, 8, gpus(4, 4));
  c.placements = {on_grid(c.arrays[0].grid, c.devices, {2, 2}), on_grid(c.arrays[1].grid, c.devices, {4, 1})};
  const Request request = c.request();
  const Candidate stays = of_product(request, "stationary A");
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t k = 0; k < 8; ++k)
      CHECK(stays.placement.owner({k, row, 0}) == c.placements[0].owner({row, k}));
  // B's 8 blocks are wanted by two devices each: of the 16, the first and the last device have two of theirs each. Each
  // of the two rows is summed across one border.
  CHECK(counted_bytes(request, stays.placement) == 12 * kElement);
  CHECK(estimate(request, stays.placement).moved_bytes == doctest::Approx(14 * kElement));
  const Decision decision = *Placer().place(request);
  CHECK(decision.moved_bytes <= 14 * kElement);
}

TEST_CASE("a large A that is spread along k stays, and so does a large B: only the small ones travel") {
  constexpr std::int64_t kBlock = 512;
  for (const bool left : {true, false}) {
    Case c = left ? product(8, 1, 8, 8, gpus(4, 1), kBlock) : product(1, 8, 8, 8, gpus(4, 1), kBlock);
    const std::size_t large = left ? 0 : 1, small = 1 - large;
    c.placements.resize(2);
    c.placements[large] = on_grid(c.arrays[large].grid, c.devices, {2, 2});
    c.placements[small] = on_grid(c.arrays[small].grid, c.devices,
                                  left ? ir::PerDim<std::int32_t>{4, 1} : ir::PerDim<std::int32_t>{1, 4});
    const Request request = c.request();
    const Decision decision = *Placer().place(request);
    CHECK(decision.why == (left ? "stationary A" : "stationary B"));
    REQUIRE(!decision.rejected.empty());
    CHECK(decision.seconds <= decision.rejected[0].seconds);
    CHECK(decision.moved_bytes < bytes_of(c.arrays[large]) / 2);
    CHECK(decision.moved_bytes < decision.rejected[0].moved_bytes);
  }
}

TEST_CASE("layers of k: fewer devices read each block, and what they make is summed") {
  // 8 devices, all three matrices of 16 blocks. In a plane the best grid, 4 x 2, moves |A| + 3 |B|; in two layers of 2 x 2
  // it is |A| + |B| + |C|, if A and B are where they are read.
  Case c = product(4, 4, 4, 2, gpus(8, 8));
  Case plane = product(4, 4, 4, 0, gpus(8, 8));
  for (Case* p : {&c, &plane}) {
    p->placements.resize(2);
    const Request before = p->request();
    for (const int operand : {0, 1}) {
      ir::Placement wish;
      REQUIRE(wanted_by_product(before, operand, wish));
      const ir::Grid& grid = p->arrays[static_cast<std::size_t>(operand)].grid;
      REQUIRE(wish.verify(grid.counts()).has_value());
      for (const Device& d : p->devices) CHECK(wish.owned_count(d.id) == 2);
      p->placements[static_cast<std::size_t>(operand)] = wish;
    }
  }
  const Request request = c.request();
  const Candidate layers = of_product(request, "layers of k");
  CHECK(layers.placement.pieces()[0].rule.parts == ir::PerDim<std::int32_t>{2, 2, 2});
  CHECK(counted_bytes(request, layers.placement) == 32 * kElement);
  CHECK(estimate(request, layers.placement).moved_bytes == doctest::Approx(48 * kElement));
  const Request flat = plane.request();
  CHECK(counted_bytes(flat, of_product(flat, "stationary C").placement) == 64 * kElement);
}

TEST_CASE("what lies in layers is summed by those who have it, a share each; what does not, where it is") {
  Case of = product(4, 4, 4, 2, gpus(8, 8));
  Case sum = sum_of(of, on_grid(of.op.outputs[0].grid, of.devices, {2, 2, 2}));
  const Request request = sum.request();
  std::vector<Candidate> all;
  scattered_policy()->propose(request, all);
  REQUIRE(all.size() == 1);
  REQUIRE(all[0].placement.verify(sum.op.space.counts()).has_value());
  for (const Device& d : sum.devices) CHECK(all[0].placement.owned_count(d.id) == 2);
  CHECK(counted_bytes(request, all[0].placement) == 16 * kElement);
  CHECK(estimate(request, all[0].placement).moved_bytes == doctest::Approx(16 * kElement));

  // Four layers, in pairs: each pair sums its halves, then the two halves' owners theirs: 2 |C| and |C|.
  Case four = product(4, 4, 4, 4, gpus(8, 8));
  Case first = sum_of(four, on_grid(four.op.outputs[0].grid, four.devices, {4, 2, 1}));
  const Request pairs = first.request();
  all.clear();
  scattered_policy()->propose(pairs, all);
  REQUIRE(all.size() == 1);
  CHECK(counted_bytes(pairs, all[0].placement) == 32 * kElement);
  Case second = sum_of(first, all[0].placement);
  const Request rest = second.request();
  all.clear();
  scattered_policy()->propose(rest, all);
  REQUIRE(all.size() == 1);
  CHECK(counted_bytes(rest, all[0].placement) == 16 * kElement);
  for (const Device& d : second.devices) CHECK(all[0].placement.owned_count(d.id) == 2);

  Case local = sum_of(of, on_grid(of.op.outputs[0].grid, of.devices, {1, 4, 2}));
  all.clear();
  scattered_policy()->propose(local.request(), all);
  CHECK(all.empty());
  CHECK(Placer().place(local.request())->moved_bytes == 0);
}

TEST_CASE("a grid takes the devices that have A, in whatever order they are") {
  Case c = product(4, 4, 4, 0, gpus(4, 1), 512);
  std::vector<Device> turned = c.devices;
  std::swap(turned[0], turned[3]);
  std::swap(turned[1], turned[2]);
  c.placements = {on_grid(c.arrays[0].grid, turned, {2, 2}), on_grid(c.arrays[1].grid, turned, {2, 2})};
  const Request request = c.request();
  std::vector<Candidate> all;
  product_policy()->propose(request, all);
  const double plain = counted_bytes(request, named(all, "stationary C")->placement);
  all.clear();
  product_grids_policy()->propose(request, all);
  const Candidate* near = named(all, "stationary C, near A");
  REQUIRE(near != nullptr);
  const double bytes = 512 * 512 * kElement;
  CHECK(plain == 64 * bytes);  // nothing is where it is read
  CHECK(counted_bytes(request, near->placement) == 32 * bytes);
  CHECK(Placer().place(request)->moved_bytes == doctest::Approx(32 * bytes));
}

TEST_CASE("unequal devices and little memory: shares, not equal tiles") {
  Case c = product(8, 8, 8, 4, gpus(4, 4), 256);
  c.placements = {on_grid(c.arrays[0].grid, c.devices, {2, 2}), on_grid(c.arrays[1].grid, c.devices, {2, 2})};
  Speeds speeds;
  for (std::size_t d = 0; d < 4; ++d)
    speeds.learn(c.devices[d], "matmul_panels", d == 3 ? 4'000'000'000 : 1'000'000'000, 1'000'000'000);
  Request request = c.request();
  request.speeds = &speeds;
  const Decision slow = *Placer().place(request);
  CHECK(slow.placement.owned_count(c.devices[3].id) < slow.placement.owned_count(c.devices[0].id) / 2);

  const std::int64_t result = 256 * 256 * 8;
  c.devices[0].memory_bytes = 10 * result;  // of 256 partial products
  for (std::size_t d = 1; d < 4; ++d) c.devices[d].memory_bytes = 200 * result;
  const Speeds fast;  // as GPUs are: what does not fit costs more than what they compute
  request = c.request();
  request.speeds = &fast;
  const Decision bounded = *Placer().place(request);
  CHECK(bounded.placement.owned_count(c.devices[0].id) <= 10);
}

TEST_CASE("what a product would like of an operand: views that it cannot answer for are left alone") {
  Case c = product(4, 4, 4, 2, gpus(8, 8));
  c.placements.resize(2);
  ir::Placement wish;
  // Transposed: the rule is, too.
  c.op.operands[0].view = *ir::View::identity({4, 4}).transpose();
  ir::Placement plain;
  REQUIRE(wanted_by_product(c.request(), 0, wish));
  c.op.operands[0].view = ir::View::identity({4, 4});
  REQUIRE(wanted_by_product(c.request(), 0, plain));
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 4; ++j) CHECK(wish.owner({i, j}) == plain.owner({j, i}));
  // Explicit devices decide alone.
  c.op.hint.devices = {DeviceId{1}};
  CHECK(!wanted_by_product(c.request(), 0, wish));
}

}  // namespace
}  // namespace tilewise::place
