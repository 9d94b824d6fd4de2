#include <tilewise/base/prng.h>

#include "place_case.h"
#include "shares.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tilewise::place {
namespace {

Case matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t block, int devices) {
  Case c;
  c.devices = hosts(devices);
  const ir::Grid a = grid({m, k}, {block, block}), b = grid({k, n}, {block, block});
  c.op.kind = ir::OpKind::kMatmul;
  c.op.space = grid({m, n}, {block, block});
  c.op.outputs = {{100, ir::DType::kFloat64, c.op.space}};
  c.op.operands = {{1, ir::View::identity(a.shape())}, {2, ir::View::identity(b.shape())}};
  c.op.attrs = ir::MatmulAttrs{};
  c.arrays = {{ir::DType::kFloat64, a}, {ir::DType::kFloat64, b}};
  c.placements = {even(a, c.devices), even(b, c.devices)};
  return c;
}

std::int64_t reads_from_elsewhere(Case& c, const ir::Placement& placement) {
  c.request();  // its geometry
  std::vector<ir::Read> reads;
  std::int64_t moved = 0;
  for (std::int64_t p = 0; p < c.geometry->point_count(); ++p) {
    const ir::Index point = c.geometry->point(p);
    for (std::int64_t step = 0; step < c.geometry->steps(point); ++step) {
      c.geometry->reads(point, step, reads);
      for (const ir::Read& r : reads) {
        const ir::Index block = ir::unravel(r.block, c.arrays[r.operand].grid.counts());
        moved += c.placements[r.operand].owner(block) != placement.owner(point);
      }
    }
  }
  return moved;
}

TEST_CASE("device grids are balanced and near square") {
  const ir::PerDim<double> even2(2, 1.0), even1(1, 1.0), even3(3, 1.0);
  CHECK(device_grid({8, 8}, 4, even2) == ir::PerDim<std::int32_t>{2, 2});
  CHECK(device_grid({64, 1}, 4, even2) == ir::PerDim<std::int32_t>{4, 1});
  CHECK(device_grid({1, 64}, 4, even2) == ir::PerDim<std::int32_t>{1, 4});
  CHECK(device_grid({3}, 8, even1) == ir::PerDim<std::int32_t>{3});
  CHECK(device_grid({2, 3}, 7, even2) == ir::PerDim<std::int32_t>{2, 3});
  CHECK(device_grid({4, 4, 4}, 8, even3) == ir::PerDim<std::int32_t>{2, 2, 2});
  CHECK(device_grid({0, 4}, 8, even2) == ir::PerDim<std::int32_t>{1, 1});
  CHECK(device_grid({5}, 4, even1) == ir::PerDim<std::int32_t>{3});  // 2, 2, 1 is as good as 2, 2, 1, 0
  CHECK(device_grid({}, 4, {}).empty());
  const ir::PerDim<double> rows{1.0, 100.0};
  CHECK(device_grid({8, 8}, 4, rows) == ir::PerDim<std::int32_t>{4, 1});
}

TEST_CASE("every point is owned once, whatever the counts and devices") {
  Prng prng(5);
  for (int round = 0; round < 400; ++round) {
    ir::Shape counts;
    for (std::int64_t d = prng.between(0, 4); d > 0; --d)
      counts.push_back(prng.between(round % 7 == 0 ? 0 : 1, 9));
    const auto devices = hosts(static_cast<int>(prng.between(1, 13)));
    const ir::PerDim<double> cost(counts.size(), 1.0);
    const ir::Placement placement = tiled(counts, ids(devices), cost, prng.chance(0.5));
    REQUIRE(placement.verify(counts).has_value());
    std::int64_t owned = 0, most = 0;
    for (const Device& d : devices)
      owned += placement.owned_count(d.id), most = std::max(most, placement.owned_count(d.id));
    CHECK(owned == ir::volume(counts));
    if (counts.size() == 1)
      CHECK(most == (counts[0] + static_cast<std::int64_t>(devices.size()) - 1) /
                        static_cast<std::int64_t>(devices.size()));
  }
}

TEST_CASE("alignment follows the index map") {
  const ir::Grid g = grid({16, 24}, {2, 3});
  Placer placer;
  SUBCASE("identity") {
    Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, 4);
    ir::Placement p;
    REQUIRE(align_with(c.request(), 0, p));
    CHECK(p == c.placements[0]);
    CHECK(reads_from_elsewhere(c, placer.place(c.request())->placement) == 0);
  }
  SUBCASE("transposed") {
    const ir::Grid t = grid({24, 16}, {3, 2});
    Case c = map_of(t, {{g, *ir::View::identity(g.shape()).transpose()}}, 6);
    ir::Placement p;
    REQUIRE(align_with(c.request(), 0, p));
    CHECK(reads_from_elsewhere(c, p) == 0);
    c.placements[0] = even(g, c.devices, true);  // dealt out
    REQUIRE(align_with(c.request(), 0, p));
    CHECK(reads_from_elsewhere(c, p) == 0);
  }
  SUBCASE("reversed") {
    Case c = map_of(g, {{g, *ir::View::identity(g.shape()).slice(0, std::nullopt, std::nullopt, -1)}}, 4);
    ir::Placement p;
    REQUIRE(align_with(c.request(), 0, p));
    CHECK(reads_from_elsewhere(c, p) == 0);
  }
  SUBCASE("broadcast row") {
    const ir::Grid row = grid({24}, {3});
    Case c = map_of(g, {{row, *ir::View::identity(row.shape()).broadcast_to(g.shape())}}, 4);
    ir::Placement p;
    REQUIRE(align_with(c.request(), 0, p));
    CHECK(reads_from_elsewhere(c, p) == 0);
  }
  SUBCASE("a slice stays on the devices that have it") {
    const ir::Grid half = grid({8, 24}, {2, 3});
    Case c = map_of(half, {{g, *ir::View::identity(g.shape()).slice(0, 8, 16, 1)}}, 4);
    ir::Placement p;
    REQUIRE(align_with(c.request(), 0, p));
    CHECK(reads_from_elsewhere(c, p) == 0);
    CHECK(p.devices().size() == 2);
  }
  SUBCASE("an integer index drops a dimension") {
    const ir::Grid column = grid({16}, {2});
    Case c = map_of(column, {{g, *ir::View::identity(g.shape()).at(1, 20)}}, 4);
    ir::Placement p;
    REQUIRE(align_with(c.request(), 0, p));
    CHECK(reads_from_elsewhere(c, p) == 0);
  }
  SUBCASE("one level of a tree follows its children") {
    for (const bool cyclic : {false, true}) {
      Case c;
      c.devices = hosts(4);
      const ir::Grid partials = grid({64}, {1});
      c.op.kind = ir::OpKind::kCombine;
      c.op.attrs = ir::CombineAttrs{ir::ReduceKind::kSum, 0, 4};
      c.op.operands = {{1, ir::View::identity(partials.shape())}};
      c.op.space = grid({16}, {1});
      c.op.outputs = {{2, ir::DType::kFloat64, c.op.space}};
      c.arrays = {{ir::DType::kFloat64, partials}};
      c.placements = {even(partials, c.devices, cyclic)};
      ir::Placement p;
      REQUIRE(align_with(c.request(), 0, p));
      if (!cyclic) CHECK(reads_from_elsewhere(c, p) == 0);
      if (cyclic) CHECK(reads_from_elsewhere(c, p) == 48);  // one child in four is at home
    }
  }
}

TEST_CASE("results live where most of their bytes live") {
  const ir::Grid g = grid({64, 64}, {8, 8});
  const ir::Grid row = grid({64}, {8});
  Placer placer;
  Case c = map_of(
      g,
      {{row, *ir::View::identity(row.shape()).broadcast_to(g.shape())}, {g, ir::View::identity(g.shape())}},
      4);
  c.placements[1] = even(g, c.devices, true);
  const auto decision = placer.place(c.request());
  CHECK(decision->placement == c.placements[1]);
  CHECK(decision->why == "aligned");
  SUBCASE("all on one device stays there") {
    c.placements[1] = ir::Placement::whole(g.counts(), ir::Rule::constant(2, DeviceId{3}));
    CHECK(placer.place(c.request())->placement.devices() == std::vector<DeviceId>{DeviceId{3}});
  }
}

TEST_CASE("matmul's device grid follows the bytes of its operands") {
  Placer placer;
  // Tall output: A is large, B small, so B is what every device gets: rows are cut.
  Case tall = matmul(512, 64, 64, 8, 4);
  const Request request = tall.request();
  const auto cost = cut_costs(request);
  CHECK(device_grid(tall.op.space.counts(), 4, cost) == ir::PerDim<std::int32_t>{4, 1});
  Case square = matmul(128, 128, 128, 8, 4);
  CHECK(device_grid(square.op.space.counts(), 4, cut_costs(square.request())) ==
        ir::PerDim<std::int32_t>{2, 2});
  const auto decision = placer.place(square.request());
  CHECK(decision->placement.devices().size() == 4);
  // An operand on one device does not pull all the work there.
  square.placements[0] =
      ir::Placement::whole(square.arrays[0].grid.counts(), ir::Rule::constant(2, DeviceId{1}));
  square.placements[1] = square.placements[0];
  CHECK(placer.place(matmul(2048, 2048, 2048, 256, 4).request())->placement.devices().size() == 4);
}

TEST_CASE("explicit devices decide") {
  const ir::Grid g = grid({16, 16}, {2, 2});
  Placer placer;
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, 8);
  c.op.hint.devices = {DeviceId{5}};
  CHECK(placer.place(c.request())->placement.devices() == std::vector<DeviceId>{DeviceId{5}});
  c.op.hint.devices = {DeviceId{7}, DeviceId{2}};
  const auto subset = placer.place(c.request());
  CHECK(subset->placement.devices() == std::vector<DeviceId>{DeviceId{2}, DeviceId{7}});
  CHECK(subset->placement.owner({0, 0}) == DeviceId{7});  // in the user's order
  CHECK(subset->placement.owned_count(DeviceId{2}) == 32);
}

TEST_CASE("kinds of devices are not mixed") {
  std::vector<Device> mixed = hosts(4), eligible;
  mixed[1].kind = mixed[3].kind = kCudaKind;
  ir::Op op;
  eligible_devices(op, mixed, eligible);
  CHECK(ids(eligible) == std::vector<DeviceId>{DeviceId{2}, DeviceId{4}});
  op.kind = ir::OpKind::kReadNpy;
  eligible_devices(op, mixed, eligible);
  CHECK(ids(eligible) == std::vector<DeviceId>{DeviceId{1}, DeviceId{3}});
  for (Device& d : mixed) d.kind = kCudaKind;
  eligible_devices(op, mixed, eligible);
  CHECK(eligible.size() == 4);
  // An operand on the host does not pull a CUDA op there.
  const ir::Grid g = grid({16}, {2});
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, 4);
  const std::vector<Device> cuda = {c.devices[3]};
  Request request = c.request();
  request.eligible = cuda;
  CHECK(Placer().place(request)->placement.devices() == std::vector<DeviceId>{DeviceId{4}});
  request.eligible = {};
  CHECK(Placer().place(request).error().code == Errc::kUnavailable);
}

TEST_CASE("edges: no points, one point, more devices than points") {
  Placer placer;
  const ir::Grid none = grid({0, 8}, {2, 2});
  Case c = map_of(none, {{none, ir::View::identity(none.shape())}}, 4);
  CHECK(placer.place(c.request())->placement.verify(none.counts()).has_value());
  const ir::Grid scalar;
  Case one = map_of(scalar, {}, 4);
  CHECK(placer.place(one.request())->placement.devices() == std::vector<DeviceId>{DeviceId{1}});
  const ir::Grid large = grid({1 << 20}, {1 << 20});
  Case spread = map_of(large, {}, 4);
  spread.devices[0].load_bytes = 100;
  CHECK(placer.place(spread.request())->placement.devices() == std::vector<DeviceId>{DeviceId{2}});
  const ir::Grid three = grid({6}, {2});
  Case few = map_of(three, {}, 16);
  CHECK(placer.place(few.request())->placement.devices().size() == 3);
}

// Bytes that the estimate moves, by those that really have to.
double estimated_by_exact(Case& c, const ir::Placement& placement) {
  // Distinct (block, device) pairs, 512 bytes each: what really has to move.
  const Request request = c.request();
  std::map<std::tuple<int, std::int64_t, DeviceId>, int> needed;
  std::vector<ir::Read> reads;
  for (std::int64_t p = 0; p < c.geometry->point_count(); ++p) {
    const ir::Index point = c.geometry->point(p);
    for (std::int64_t step = 0; step < c.geometry->steps(point); ++step) {
      c.geometry->reads(point, step, reads);
      for (const ir::Read& r : reads) {
        const ir::Index block = ir::unravel(r.block, c.arrays[r.operand].grid.counts());
        if (c.placements[r.operand].owner(block) != placement.owner(point)) {
          ++needed[{r.operand, r.block, placement.owner(point)}];
        }
      }
    }
  }
  const double exact = 512.0 * static_cast<double>(needed.size());
  return estimate(request, placement).moved_bytes / exact;
}

TEST_CASE("the estimate agrees with counting everything") {
  Case small = matmul(64, 64, 64, 8, 4);
  for (Device& d : small.devices) d.host = d.id.value;
  const double ratio = estimated_by_exact(small, even(small.op.space, small.devices));
  CHECK(ratio > 0.7);
  CHECK(ratio < 1.4);
  // 8,192 reads, of which few are looked at; blocks lie as an 8 x 8 grid has them, which no stride may hide.
  Case c = matmul(128, 128, 128, 8, 64);
  for (Device& d : c.devices) d.host = d.id.value;
  for (const std::int32_t rows : {4, 8, 16}) {
    CAPTURE(rows);
    ir::Rule rule;
    rule.parts = {rows, 64 / rows};
    rule.cyclic = {0, 0};
    rule.devices = ids(c.devices);
    const double large = estimated_by_exact(c, ir::Placement::whole({16, 16}, rule));
    CHECK(large > 0.94);
    CHECK(large < 1.06);
  }
}

TEST_CASE("a measured link draws work away from a slow one") {
  // All of it on device 1; 2 is beside it by a slow link, 3 by a fast one, equal by topology.
  const ir::Grid g = grid({64 << 16}, {1 << 16});
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, 3);
  for (Device& d : c.devices) d.host = d.id.value, d.worker = WorkerId{d.id.value};
  c.placements[0] = ir::Placement::whole(g.counts(), ir::Rule::constant(1, DeviceId{1}));
  Speeds speeds;
  speeds.learn_link(WorkerId{1}, WorkerId{2}, Speeds::Way::kOtherHost, 2, 100, 1'000'000'000,
                    10'000'000'000);  // 0.1 GB/s
  speeds.learn_link(WorkerId{1}, WorkerId{3}, Speeds::Way::kOtherHost, 2, 100, 10'000'000'000,
                    1'000'000'000);  // 10 GB/s
  const auto cost = [&](std::uint32_t to, const Speeds* known) {
    Request request = c.request();
    request.speeds = known;
    return estimate(request, ir::Placement::whole(g.counts(), ir::Rule::constant(1, DeviceId{to}))).seconds;
  };
  CHECK(cost(2, nullptr) == doctest::Approx(cost(3, nullptr)));
  CHECK(cost(2, &speeds) > 5 * cost(3, &speeds));
}

TEST_CASE("of a large block that several devices of another host read, one gets it from afar") {
  const auto cost = [](std::int64_t block, bool together) {
    Case c = matmul(4 * block, block, block, block, 8);  // 4 blocks of C read the one of B
    for (Device& d : c.devices) {
      const std::uint32_t id = d.id.value;
      d.worker = WorkerId{id};
      d.host = id <= 4 ? 0 : together ? 1 : id;
    }
    const std::span<const Device> away = std::span(c.devices).subspan(4);
    c.placements[0] = even(c.op.space, {away.begin(), away.end()});
    c.placements[1] = ir::Placement::whole({1, 1}, ir::Rule::constant(2, DeviceId{1}));
    Speeds slow;  // 0.01 GB/s
    for (const Device& to : away)
      slow.learn_link(WorkerId{1}, to.worker, Speeds::Way::kOtherHost, 2, 100, 10'000'000, 1'000'000'000);
    Request request = c.request();
    request.speeds = &slow;
    return estimate(request, c.placements[0]);
  };
  const Estimate shared = cost(128, true), apart = cost(128, false);
  CHECK(shared.seconds < 0.3 * apart.seconds);
  CHECK(shared.seconds > 0.2 * apart.seconds);
  CHECK(shared.moved_bytes == apart.moved_bytes);                             // each of them gets it once
  CHECK(cost(64, true).seconds == doctest::Approx(cost(64, false).seconds));  // small: from the owner
}

TEST_CASE("unequal devices get unequal shares, in one piece each where they can") {
  const ir::Grid g = grid({1 << 26}, {1 << 20});  // 64 blocks
  Case c = map_of(g, {}, 4);
  const Speeds speeds = speeds_of(c.devices, {1, 1, 1, 3}, "map");
  Request request = c.request();
  request.speeds = &speeds;
  const Decision decision = *Placer().place(request);
  CHECK(decision.why == "shares by speed");
  REQUIRE(decision.placement.verify(g.counts()).has_value());
  for (std::uint32_t d = 1; d <= 3; ++d)
    CHECK(std::abs(decision.placement.owned_count(DeviceId{d}) - 19) <= 1);
  CHECK(std::abs(decision.placement.owned_count(DeviceId{4}) - 6) <= 1);
  int borders = 0;
  for (std::int64_t b = 1; b < 64; ++b)
    borders += decision.placement.owner({b}) != decision.placement.owner({b - 1});
  CHECK(borders == 3);
  // Equal ones get equal tiles, by the regular rule.
  request.speeds = nullptr;
  CHECK(Placer().place(request)->why == "tiled");
}

TEST_CASE("speeds that are about equal count as equal, so that noise adds up to nothing over many ops") {
  const auto devices = hosts(3);
  const Speeds speeds = speeds_of(devices, {1.0, 1.2, 2.1}, "map");
  const std::vector<double> ratios = speeds.coarse_ratios(devices, "map");
  CHECK(ratios[0] == ratios[1]);
  CHECK(ratios[2] == doctest::Approx(1.953125));  // 1.25 cubed
  CHECK(speeds.coarse_ratios({}, "map").empty());
  const ir::Grid g = grid({1 << 26}, {1 << 20});
  Case c = map_of(g, {}, 2);
  const Speeds noisy = speeds_of(c.devices, {1.0, 1.2}, "map");
  Request request = c.request();
  request.speeds = &noisy;
  CHECK(Placer().place(request)->why == "tiled");
}

TEST_CASE("shares by speed: no device could do with less, for any speeds and what was given before") {
  Prng prng(11);
  for (int round = 0; round < 300; ++round) {
    Pace pace;
    const auto n = static_cast<std::size_t>(prng.between(1, 9));
    for (std::size_t d = 0; d < n; ++d) {
      pace.item_s.push_back(static_cast<double>(prng.between(1, 50)));
      pace.busy_s.push_back(prng.chance(0.5) ? 0 : static_cast<double>(prng.between(0, 500)));
    }
    const std::int64_t items = prng.between(0, 200);
    const bool bounded = prng.chance(0.5);
    std::int64_t room = 0;
    for (std::size_t d = 0; d < n && bounded; ++d) room += pace.most.emplace_back(prng.between(0, 80));
    const bool bounds_hold = bounded && room >= items;
    const std::vector<std::int64_t> shares = shares_by_speed(pace, items);
    double end = 0;
    std::int64_t all = 0;
    for (std::size_t d = 0; d < n; ++d) {
      REQUIRE(shares[d] >= 0);
      if (bounds_hold) REQUIRE(shares[d] <= pace.most[d]);
      all += shares[d];
      if (shares[d] > 0)
        end = std::max(end, pace.busy_s[d] + static_cast<double>(shares[d]) * pace.item_s[d]);
    }
    REQUIRE(all == items);
    // Within less time, all devices together could not have done as many.
    std::int64_t sooner = 0;
    for (std::size_t d = 0; d < n; ++d) {
      const auto can = static_cast<std::int64_t>(
          std::max(0.0, std::ceil((end - pace.busy_s[d]) / pace.item_s[d] - 1e-9) - 1));
      sooner += bounds_hold ? std::min(can, pace.most[d]) : can;
    }
    CHECK((items == 0 || sooner < items));
  }
}

TEST_CASE("memory bounds shares: what equal tiles would not fit goes where there is room") {
  const ir::Grid g = grid({32 << 20}, {1 << 20});  // 32 blocks of 8 MiB
  Case c = map_of(g, {}, 2);
  c.devices[0].memory_bytes = 64 << 20;  // 8 of them
  c.devices[1].memory_bytes = 256 << 20;
  const Decision decision = *Placer().place(c.request());
  CHECK(decision.why == "shares by speed");
  CHECK(decision.placement.owned_count(DeviceId{1}) == 8);
  CHECK(decision.placement.owned_count(DeviceId{2}) == 24);
  c.devices[1].memory_bytes = 128 << 20;  // not enough for all: bounds do not help
  std::vector<Candidate> out;
  balanced_policy()->propose(c.request(), out);
  for (const Candidate& candidate : out) CHECK(candidate.placement.verify(g.counts()).has_value());
}

TEST_CASE("counts that no regular grid divides evenly are shared out all the same") {
  const ir::Grid g =
      grid({8 * 1024, 8 * 1024}, {1024, 1024});  // 64 blocks, 7 devices: a grid gives one of them 16
  Case c = map_of(g, {}, 7);
  const Decision decision = *Placer().place(c.request());
  REQUIRE(decision.placement.verify(g.counts()).has_value());
  for (const Device& d : c.devices) CHECK(decision.placement.owned_count(d.id) <= 10);
}

TEST_CASE("very many blocks: the rule stays bounded") {
  const ir::Grid g = grid({1 << 20, 1 << 20}, {128, 128});  // 64 million blocks
  Case c = map_of(g, {}, 5);
  const Speeds speeds = speeds_of(c.devices, {1, 2, 3, 4, 5}, "map");
  Request request = c.request();
  request.speeds = &speeds;
  const Decision decision = *Placer().place(request);
  REQUIRE(decision.placement.pieces().size() == 1);
  CHECK(decision.placement.pieces()[0].rule.devices.size() <= 4096);
  const auto first = static_cast<double>(decision.placement.owned_count(DeviceId{1}));
  const auto last = static_cast<double>(decision.placement.owned_count(DeviceId{5}));
  CHECK(first / last == doctest::Approx(5).epsilon(0.05));
}

TEST_CASE("points follow what they read, within their devices' shares") {
  // Each point reads one block; the lists turn the order round.
  const ir::Grid g = grid({64 << 16}, {1 << 16});
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, 4);
  for (Device& d : c.devices) d.host = d.id.value;
  ir::CallAttrs call;
  call.kernel = "k";
  call.flops_per_point = 1e6;
  call.explicit_maps.resize(1);
  Prng prng(3);
  std::vector<std::int64_t> order(64);
  for (std::int64_t i = 0; i < 64; ++i) order[static_cast<std::size_t>(i)] = i;
  for (std::size_t i = 63; i > 0; --i) std::swap(order[i], order[prng.below(i + 1)]);
  call.explicit_maps[0].offsets = {0};
  for (const std::int64_t b : order) {
    call.explicit_maps[0].blocks.push_back(b);
    call.explicit_maps[0].offsets.push_back(static_cast<std::uint32_t>(call.explicit_maps[0].blocks.size()));
  }
  c.op.kind = ir::OpKind::kCall;
  c.op.attrs = call;
  const Decision decision = *Placer().place(c.request());
  CHECK(decision.why == "follows its inputs");
  CHECK(reads_from_elsewhere(c, decision.placement) == 0);
  for (const Device& d : c.devices) CHECK(decision.placement.owned_count(d.id) == 16);
  // All of it on one device: three quarters have to move, and no device gets more than its share.
  c.placements[0] = ir::Placement::whole(g.counts(), ir::Rule::constant(1, DeviceId{2}));
  std::vector<Candidate> out;
  following_policy()->propose(c.request(), out);
  REQUIRE(out.size() == 1);
  CHECK(reads_from_elsewhere(c, out[0].placement) == 48);
  CHECK(out[0].placement.owned_count(DeviceId{2}) == 16);
}

TEST_CASE("a search is asked only where much could be won") {
  struct Counted final : Policy {
    mutable int asked = 0;
    std::string_view name() const override { return "counted"; }
    bool searches() const override { return true; }
    void propose(const Request&, std::vector<Candidate>&) const override { ++asked; }
  };
  const auto ask = [](Case& c) {
    std::vector<std::unique_ptr<Policy>> policies;
    policies.push_back(aligned_policy());
    policies.push_back(tiled_policy());
    auto counted = std::make_unique<Counted>();
    const Counted& seen = *counted;
    policies.push_back(std::move(counted));
    const Placer placer(std::move(policies));
    REQUIRE(placer.place(c.request()).has_value());
    return seen.asked;
  };
  const ir::Grid g = grid({1 << 22}, {1 << 16});
  Case even = map_of(g, {{g, ir::View::identity(g.shape())}}, 4);
  CHECK(ask(even) == 0);
  Case lopsided = map_of(g, {{g, ir::View::identity(g.shape())}}, 4);
  lopsided.placements[0] = ir::Placement::whole(g.counts(), ir::Rule::constant(1, DeviceId{1}));
  for (Device& d : lopsided.devices) d.host = d.id.value;
  CHECK(ask(lopsided) == 1);
  const ir::Grid small = grid({64}, {1});
  Case tiny = map_of(small, {{small, ir::View::identity(small.shape())}}, 4);
  tiny.placements[0] = ir::Placement::whole(small.counts(), ir::Rule::constant(1, DeviceId{1}));
  CHECK(ask(tiny) == 0);
}

TEST_CASE("work given by earlier ops counts: a second op goes to those that are free") {
  const ir::Grid one = grid({1 << 22}, {1 << 22});
  Case c = map_of(one, {}, 3);
  Request request = c.request();
  const std::vector<double> busy{0.5, 0, 0.7};
  request.busy_s = busy;
  const ir::Grid two = grid({1 << 22}, {1 << 21});
  Case pair = map_of(two, {}, 3);
  Request both = pair.request();
  both.busy_s = busy;
  const Decision decision = *Placer().place(both);
  CHECK(decision.placement.devices() == std::vector<DeviceId>{DeviceId{2}});
}

// A kernel of so many flops a block, of each block of its only operand.
Case call_of(const ir::Grid& g, double flops, int devices) {
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, devices);
  c.op.kind = ir::OpKind::kCall;
  ir::OperandMap map;
  for (int d = 0; d < g.rank(); ++d)
    map.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d), 1, 1, 0, 0});
  c.op.attrs = ir::CallAttrs{.kernel = "work", .maps = {map}, .flops_per_point = flops};
  return c;
}

TEST_CASE("who was free before there was anything to read gets no more for that") {
  const ir::Grid g = grid({90 << 10}, {10 << 10});  // nine blocks of 80 KiB, 25 ms of work each
  Case c = call_of(g, 5e8, 2);
  const std::vector<double> busy{0.1, 0};
  std::vector<Candidate> out;
  Request request = c.request();
  request.busy_s = busy;
  balanced_policy()->propose(request, out);
  REQUIRE(out.size() == 1);
  CHECK(out[0].placement.owned_count(DeviceId{1}) + 3 <= out[0].placement.owned_count(DeviceId{2}));
  request.ready_s = 0.1;
  out.clear();
  balanced_policy()->propose(request, out);
  CHECK(out.empty());  // equal tiles are even
  request.ready_s = 0;
  // And it is no cheaper there.
  const ir::Placement first = ir::Placement::whole({9}, ir::Rule::constant(1, DeviceId{1})),
                      second = ir::Placement::whole({9}, ir::Rule::constant(1, DeviceId{2}));
  const double before = estimate(request, first).seconds - estimate(request, second).seconds;
  request.ready_s = 0.1;
  const double after = estimate(request, first).seconds - estimate(request, second).seconds;
  CHECK(before - after == doctest::Approx(0.1));
}

TEST_CASE("work that is less than the way of its results to another host is not dealt out to get even") {
  const ir::Grid g = grid({90 << 10}, {10 << 10});
  const std::vector<double> busy{0.1, 0};
  const auto proposes = [&](Case& c, const Speeds* speeds = nullptr) {
    Request request = c.request();
    request.busy_s = busy;
    request.speeds = speeds;
    std::vector<Candidate> out;
    balanced_policy()->propose(request, out);
    return !out.empty();
  };
  Case light = call_of(g, 1, 2), heavy = call_of(g, 5e8, 2);
  CHECK(!proposes(light));
  CHECK(proposes(heavy));
  SUBCASE("there is none") {
    light.devices = hosts(2, 2);
    CHECK(proposes(light));
  }
  SUBCASE("it was measured to be more work than it seems") {
    const Speeds slow = speeds_of(light.devices, {5000, 5000}, "call work");
    CHECK(proposes(light, &slow));
  }
  SUBCASE("one device is slower") {
    const Speeds unequal = speeds_of(light.devices, {1, 3}, "call work");
    CHECK(proposes(light, &unequal));
  }
  SUBCASE("one has no room for its part") {
    light.devices[0].memory_bytes = 4 * (80 << 10);
    CHECK(proposes(light));
  }
  SUBCASE("what it reads is a client's") {
    light.placements[0] = ir::Placement::whole(g.counts(), ir::Rule::constant(1, DeviceId{99}));
    CHECK(proposes(light));
  }
}

TEST_CASE("shares of devices that are alike begin where even ones would, give or take two items") {
  for (const std::int64_t devices : {3, 64, 1000, 10'000}) {
    for (const double each : {1.5, 4.53, 9.06, 16.01}) {
      const auto n = static_cast<std::size_t>(devices);
      const auto items = static_cast<std::int64_t>(each * static_cast<double>(devices));
      const std::vector<std::int64_t> shares =
          shares_by_speed({std::vector<double>(n, 1.0), std::vector<double>(n, 0.0), {}}, items);
      double furthest = 0, from = 0;
      for (std::size_t d = 0; d < n; ++d) {
        from += static_cast<double>(shares[d]);
        const double even =
            static_cast<double>(items) * static_cast<double>(d + 1) / static_cast<double>(devices);
        furthest = std::max(furthest, std::abs(from - even));
      }
      CAPTURE(devices);
      CAPTURE(each);
      CHECK(furthest <= 2);
    }
  }
}

TEST_CASE("of ten thousand devices, the work of the busiest decides, not all bytes on the way together") {
  const ir::Grid g = grid({300 * 128, 300 * 128}, {128, 128});  // nine blocks a device, 1 ms each
  Case c = call_of(g, 2e7, 10'000);
  c.devices = hosts(10'000, 8);
  std::vector<Device> few = c.devices;
  few.resize(5000);
  c.placements[0] = even(g, few);
  const Decision decision = *Placer().place(c.request());
  CHECK(decision.placement.devices().size() > 8000);
}

}  // namespace
}  // namespace tilewise::place
