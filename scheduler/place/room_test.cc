// Placement and memory: what fits goes before what is fast, as far as that is worth its time.
#include "place_case.h"

#include <algorithm>

namespace tilewise::place {
namespace {

TEST_CASE("results go where there is room beside what stays") {
  // Eight blocks of 1 MiB, all on the first of four devices of 10 MiB.
  const ir::Grid g = grid({1 << 20}, {1 << 17});
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, 4);
  for (Device& d : c.devices) d.memory_bytes = 10 << 20, d.host = 0;
  c.placements[0] = ir::Placement::whole(g.counts(), ir::Rule::constant(1, c.devices[0].id));
  Placer aligned_only([] {
    std::vector<std::unique_ptr<Policy>> out;
    out.push_back(aligned_policy());
    return out;
  }());
  REQUIRE(aligned_only.place(c.request())->placement.owned_count(c.devices[0].id) == 8);
  const auto most = [&](const ir::Placement& placement) {  // of a device's room, how much is missing
    std::int64_t missing = 0;
    for (const Device& d : c.devices)
      missing = std::max(missing, (placement.owned_count(d.id) << 20) - d.headroom_bytes());
    return missing;
  };
  c.devices[0].stays_bytes = 8 << 20;  // the input itself
  CHECK(most(Placer().place(c.request())->placement) <= 0);
  c.devices[1].stays_bytes = c.devices[2].stays_bytes = 9 << 20;  // and what others keep
  CHECK(most(Placer().place(c.request())->placement) <= 0);
  CHECK(Device{}.headroom_bytes() == INT64_MAX);
  CHECK(Device{.memory_bytes = 5, .stays_bytes = 7}.headroom_bytes() == 0);
}

TEST_CASE(
    "a fast device gets no more than leaves it room to work, or than its memory when others have gone") {
  // 32 blocks of 1 MiB on four devices of 20 MiB, one of them ten times as fast: by time alone it would make some 25 of them.
  const ir::Grid g = grid({32 << 17}, {1 << 17});
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, 4);
  for (Device& d : c.devices) d.host = 0;
  const Speeds speeds = speeds_of(c.devices, {100, 1000, 1000, 1000}, "map");
  const auto of_fast = [&] {
    Request request = c.request();
    request.speeds = &speeds;
    return Placer().place(request)->placement.owned_count(c.devices[0].id);
  };
  REQUIRE(of_fast() > 20);
  for (Device& d : c.devices) d.memory_bytes = 20 << 20;
  CHECK(of_fast() > 8);
  CHECK(of_fast() <= 15);  // three quarters
  for (Device& d : c.devices) d.stays_bytes = 12 << 20;
  CHECK(of_fast() == 8);                                 // there is no room for more on any
  for (Device& d : c.devices) d.stays_bytes = 17 << 20;  // nor for so much, as long as what is there stays
  for (Device& d : c.devices) d.earlier_bytes = 9 << 20;
  CHECK(of_fast() <= 12);
  CHECK(of_fast() > 8);
}

// Sums of each block of `g` over its middle dimension, in which it is not cut.
Case sums_of(const ir::Grid& g, const ir::Grid& sums, int devices) {
  Case c = map_of(g, {{g, ir::View::identity(g.shape())}}, devices);
  c.op.kind = ir::OpKind::kReduceBlocks;
  c.op.outputs[0].grid = sums;
  c.op.attrs = ir::ReduceAttrs{.tape = c.op.get<ir::MapAttrs>().tape, .axes = 2};
  return c;
}

TEST_CASE("what is little stays with what it reads, however full that device is") {
  // 96 blocks of 256 KiB on four devices, their sums are of 2 KiB each.
  const ir::Grid g = grid({96, 128, 256}, {1, 128, 256}), sums = grid({96, 1, 256}, {1, 1, 256});
  Case c = sums_of(g, sums, 4);
  for (Device& d : c.devices) d.host = d.id.value, d.memory_bytes = 100 << 20, d.stays_bytes = 80 << 20;
  c.devices[3].stays_bytes = 50 << 20;
  const auto decision = Placer().place(c.request());
  REQUIRE(decision.has_value());
  CHECK(decision->moved_bytes == 0);
  for (const Device& d : c.devices) CHECK(decision->placement.owned_count(d.id) == 24);
}

TEST_CASE("room for later steps is worth some time, not any") {
  // A sum of 1 MiB of what is on a device with 3 of 12 MiB left; the other one is empty, and near or far.
  const ir::Grid g = grid({1, 64, 1 << 17}, {1, 64, 1 << 17}), sum = grid({1, 1, 1 << 17}, {1, 1, 1 << 17});
  const auto device_of = [&](std::int64_t bytes_per_s) {
    Case c = sums_of(g, sum, 2);
    for (Device& d : c.devices)
      d.host = d.id.value, d.worker = WorkerId{d.id.value}, d.memory_bytes = 12 << 20;
    c.placements[0] = ir::Placement::whole(g.counts(), ir::Rule::constant(3, c.devices[0].id));
    c.devices[0].stays_bytes = 9 << 20;
    Speeds speeds;
    speeds.learn_link(WorkerId{1}, WorkerId{2}, Speeds::Way::kOtherHost, 2, 100, bytes_per_s, 1'000'000'000);
    Request request = c.request();
    request.speeds = &speeds;
    return Placer().place(request)->placement.owner({0, 0, 0}).value;
  };
  CHECK(device_of(100'000'000'000) == 2);
  CHECK(device_of(100'000'000) == 1);
}

TEST_CASE("no device gets more than leaves it room to work, where there is another way") {
  // 72 blocks of 1 MiB; by tiles each device would have 18 of them, the small one all but two of its memory.
  const ir::Grid g = grid({72 << 17}, {1 << 17});
  Case c = map_of(g, {}, 4);
  for (Device& d : c.devices) d.host = 0, d.memory_bytes = 100 << 20;
  c.devices[3].memory_bytes = 20 << 20;
  const ir::Placement placement = Placer().place(c.request())->placement;
  CHECK(placement.owned_count(c.devices[3].id) <= 15);
  CHECK(placement.owned_count(c.devices[3].id) > 10);
  // By chunks of several blocks too: 16,400 blocks of 8 KiB.
  const ir::Grid many = grid({16'400 << 10}, {1 << 10});
  Case chunks = map_of(many, {}, 4);
  for (Device& d : chunks.devices) d.host = 0, d.memory_bytes = 60 << 20;
  chunks.devices[3].memory_bytes = 16 << 20;
  CHECK(Placer().place(chunks.request())->placement.owned_count(chunks.devices[3].id) <= (12 << 20) / 8192);
}

TEST_CASE("a block goes to a device that can hold it") {
  const ir::Grid one = grid({1 << 18}, {1 << 18});  // 2 MiB
  Case c = map_of(one, {}, 3);
  for (Device& d : c.devices)
    d.memory_bytes = 40 << 20, d.load_bytes = d.stays_bytes = d.earlier_bytes = 1 << 20;
  c.devices[0] = {.id = c.devices[0].id, .memory_bytes = 1 << 20};
  for (const bool spills : {false, true}) {
    CAPTURE(spills);
    for (Device& d : c.devices) d.spills = spills;
    CHECK(Placer().place(c.request())->placement.devices()[0] == c.devices[1].id);
    const ir::Grid eight = grid({8 << 18}, {1 << 18});
    Case several = map_of(eight, {}, 3);
    several.devices = c.devices;
    CHECK(Placer().place(several.request())->placement.owned_count(c.devices[0].id) == 0);
  }
  // Small ones are together on the first device as long as it has room.
  Case small = map_of(grid({64}, {64}), {}, 3);
  for (Device& d : small.devices) d.memory_bytes = 1 << 20;
  CHECK(Placer().place(small.request())->placement.devices()[0] == small.devices[0].id);
  small.devices[0].load_bytes = small.devices[0].stays_bytes = 1 << 20;
  CHECK(Placer().place(small.request())->placement.devices()[0] == small.devices[1].id);
}

}  // namespace
}  // namespace tilewise::place
