// Where the ops of a plan go that make, together, more than a device has memory for.
#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// Two devices with memory for so many blocks. One array is made on the first of them; of it another is made, held, and a third of both.
struct Pair {
  explicit Pair(std::int64_t blocks, std::int64_t spill_bytes = 0) : w(apart()) {
    msg::Join join = w.worker(2, "w1", blocks * 64);
    for (msg::DeviceDesc& device : join.devices) device.spill_bytes = spill_bytes;
    devices = w.join(1, join).devices;
    w.join(10, w.client());
  }
  static Options apart() {  // else the three would be one op
    Options options;
    options.passes_off = {"shared-tapes"};
    return options;
  }
  // Of each planned op but fetches, how many points the first device has.
  std::vector<std::int64_t> submit(std::uint64_t request, std::vector<ir::Op> ops,
                                   std::vector<std::uint64_t> holds) {
    ops[0].hint.devices = {devices[0]};
    const auto reply = w.submit(10, request, std::move(ops), std::move(holds));
    REQUIRE_MESSAGE(reply.outcome.ok(), reply.outcome.message);
    const msg::Plan plan = w.log<msg::Plan>(1).back();
    std::vector<std::int64_t> on_first;
    for (const msg::PlannedOp& op : plan.ops) on_first.push_back(op.placement.owned_count(devices[0]));
    return on_first;
  }
  World w;
  std::vector<DeviceId> devices;
};

TEST_CASE("what later ops of the plan read leaves less room for what is made meanwhile") {
  const std::vector<ir::Op> ops = {random(1, kEightBlocks), map(2, kEightBlocks, {1}),
                                   map(3, kEightBlocks, {1, 2})};
  CHECK(Pair(100).submit(1, ops, {2, 3}) == std::vector<std::int64_t>{8, 8, 8});
  // Eight blocks of the first array are there until the third has been made, which may take their place.
  const auto tight = Pair(12).submit(1, ops, {2, 3});
  REQUIRE(tight.size() == 3);
  CHECK(tight[0] == 8);
  CHECK(tight[1] <= 4);
  // What can be spilled costs time only, and here little.
  CHECK(Pair(12, 1 << 20).submit(1, ops, {2, 3}) == std::vector<std::int64_t>{8, 8, 8});
}

TEST_CASE("what an op's result takes the place of is not counted beside it") {
  const auto placed = Pair(12).submit(1, {random(1, kEightBlocks), map(2, kEightBlocks, {1})}, {2});
  CHECK(placed.back() == 8);
}

TEST_CASE(
    "a plan says of each op how long the rest takes from there, to those who join later too, and so does its "
    "replay") {
  World w(Pair::apart());
  w.add_worker(1, 2);
  w.join(10, w.client());
  const auto levels = [](const msg::Plan& plan) {
    std::vector<std::int64_t> out;
    for (const msg::PlannedOp& op : plan.ops) out.push_back(op.level_ns);
    return out;
  };
  std::vector<std::int64_t> planned;
  for (std::uint64_t i = 0; i < 4; ++i) {  // the third is the first to be a replay
    const std::uint64_t at = 10 * i;
    REQUIRE(w.submit(10, i + 1,
                     {random(at + 1, kEightBlocks), map(at + 2, kEightBlocks, {at + 1}),
                      map(at + 3, kEightBlocks, {at + 2})},
                     {at + 1, at + 2, at + 3})
                .outcome.ok());
    const std::vector<std::int64_t> now = levels(w.log<msg::Plan>(1).back());
    REQUIRE(now.size() == 3);
    CHECK(now[0] > now[1]);
    CHECK(now[1] > now[2]);
    CHECK(now[2] > 0);
    if (i > 0) CHECK(now == planned);
    planned = now;
  }
  w.add_worker(2, 1, "w2");
  const auto heard = w.log<msg::Plan>(2);
  REQUIRE(heard.size() == 4);
  for (const msg::Plan& plan : heard) CHECK(levels(plan) == planned);
}

}  // namespace
}  // namespace tilewise::scheduler::test
