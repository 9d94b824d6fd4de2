// Tiers as lists: what goes where, and that it comes back. How it stands faults is the simulator's.
#include <doctest/doctest.h>

#include <map>

#include "tier_lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

struct Tiered : TierLists {
  Tiered(std::int64_t blocks, std::int64_t pinned, std::int64_t disk, bool gpu = true)
      : TierLists(options(blocks, pinned, disk, gpu)) {}
  explicit Tiered(Options o) : TierLists(std::move(o)) {}
  static Options options(std::int64_t blocks, std::int64_t pinned, std::int64_t disk, bool gpu) {
    Options o = Lists::options_of({kHere, 0, blocks * kBlock, blocks * kBlock, 1, gpu || disk > 0, gpu});
    o.pinned_bytes = pinned * kBlock;
    o.spill_bytes = disk * kBlock;
    return o;
  }
  void saw(const Launch& launch) override {
    for (const MemoryRef& output : launch.outputs) made[output.offset] = {launch.run.id.value, launch.point};
  }
  void saw(const TierIo& io) override {
    if (!io.write) return;
    const Block block = io.from < 0 ? made[io.memory.offset] : pinned[io.from];
    where[block] = io.tier;
    if (io.tier == Tier::kPinned) pinned[io.at] = block;
  }
  std::int64_t moved(Tier tier, bool write) const {
    return std::count_if(all.begin(), all.end(),
                         [&](const TierIo& io) { return io.tier == tier && io.write == write; });
  }
  using Block = std::pair<std::uint64_t, std::int64_t>;  // of the op that made it, by point
  std::map<std::int64_t, Block> made;    // the last in each place of the first device's memory
  std::map<Block, Tier> where;           // each was written to last
  std::map<std::int64_t, Block> pinned;  // likewise in each place of pinned memory
};

}  // namespace

TEST_CASE("a GPU's blocks go to pinned memory, what that has no room for to disk, and both come back") {
  Tiered device(6, 5, 32);
  const ir::Op a = blocks_of(10, 20);
  device.log({plan_of({on(kHere, 1, a)}, {ArrayId{10}})});
  CHECK(device.lists.core->counters().tasks_done == 20);
  CHECK(device.moved(Tier::kPinned, true) == 5);
  CHECK(device.moved(Tier::kDisk, true) >= 9);
  CHECK(device.stats().pinned_bytes == 5 * kBlock);
  CHECK(device.stats().spilled_bytes >= 9 * kBlock);
  CHECK(device.stats().pinned_written == 5 * kBlock);
  for (const TierIo& io : device.all) CHECK(io.at + io.bytes <= (io.tier == Tier::kPinned ? 5 : 32) * kBlock);
  device.log({plan_of({on(kHere, 2, map_of(10, 11, a.space))}, {ArrayId{10}}, 2)});
  CHECK(device.lists.core->counters().tasks_done == 40);
  CHECK(device.moved(Tier::kPinned, false) >= 5);
  CHECK(device.moved(Tier::kDisk, false) >= 9);
  CHECK(!device.on_disk.empty());
  device.log({msg::Release{{ArrayId{10}}}, msg::Release{{ArrayId{11}}}});
  CHECK(device.lists.core->counters().below_bytes == 0);
  CHECK(device.on_disk.empty());
  device.lists.step({DiskTaken{12 * kBlock}});
  CHECK(device.stats().disk_taken == 12 * kBlock);
}

TEST_CASE("pinned memory passes on to disk what is read later than what it has no room for") {
  Tiered device(6, 5, 64);
  const ir::Op late = blocks_of(10, 8), soon = blocks_of(20, 8), missing = blocks_of(30, 8);
  ir::Op first = map_of(20, 21, soon.space), last = map_of(10, 11, late.space);
  first.operands.push_back({30, ir::View::identity(missing.space.shape())});
  last.operands.push_back({21, ir::View::identity(soon.space.shape())});
  const auto make = [&] {
    device.log({plan_of({on(kPeer, 1, missing), on(kHere, 2, late), on(kHere, 3, soon), on(kHere, 4, first),
                         on(kHere, 5, last)})});
  };
  const auto in_pinned = [&](std::uint64_t op) {
    return std::count_if(device.where.begin(), device.where.end(), [&](const auto& block) {
      return block.first.first == op && block.second == Tier::kPinned;
    });
  };
  SUBCASE("as it should") {
    make();
    CHECK(device.lists.core->counters().demoted == 5);
    CHECK(in_pinned(2) == 0);
    CHECK(in_pinned(3) == 5);
    for (const TierIo& io : device.all) CHECK((io.from < 0 || (io.write && io.tier == Tier::kDisk)));
  }
  SUBCASE("the disk fails: what is there stays, and nothing is lost") {
    device.fails = [](const TierIo& io) { return io.from >= 0 ? Errc::kIo : Errc::kOk; };
    make();
    CHECK(device.lists.core->counters().demoted == 0);
    CHECK(device.stats().pinned_bytes == 5 * kBlock);
  }
  SUBCASE("the graph ends meanwhile") {
    device.fails = [&](const TierIo& io) {
      if (io.from >= 0)
        device.take(device.lists.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "told to"}}}));
      return Errc::kOk;
    };
    make();
    CHECK(device.lists.core->counters().demoted == 0);
  }
  device.fails = nullptr;
  device.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "told to"}}});
  CHECK(device.lists.core->counters().below_bytes == 0);
}

TEST_CASE("devices that do not pin keep out of pinned memory, and pinned memory needs no disk") {
  Tiered host(6, 32, 32, false), gpu(6, 32, 0);
  for (Tiered* device : {&host, &gpu}) {
    device->log({plan_of({on(kHere, 1, blocks_of(10, 20))}, {ArrayId{10}})});
    CHECK(device->lists.core->counters().tasks_done == 20);
  }
  CHECK(host.moved(Tier::kPinned, true) == 0);
  CHECK(host.moved(Tier::kDisk, true) >= 14);
  CHECK(gpu.moved(Tier::kDisk, true) == 0);
  CHECK(gpu.moved(Tier::kPinned, true) >= 14);
}

TEST_CASE("pinned memory that is full is told with what is used of it") {
  Tiered device(6, 4, 0);
  device.log({plan_of({on(kHere, 1, blocks_of(10, 20))}, {ArrayId{10}})});
  CHECK(device.lists.core->counters().tasks_done < 20);
  device.lists.now += 60 * kSecond;
  const Actions& late = device.lists.step({});
  const msg::Stuck* stuck = nullptr;
  for (const msg::Message& message : late.to_scheduler)
    if (const auto* said = std::get_if<msg::Stuck>(&message)) stuck = said;
  REQUIRE(stuck != nullptr);
  CHECK(stuck->pinned_limit == 4 * kBlock);
  CHECK(stuck->pinned_used == 4 * kBlock);
  CHECK(stuck->disk_limit == 0);
  CHECK_FALSE(stuck->disk_full);
}

TEST_CASE("who found pinned memory full goes on when a block that was only there is released") {
  Tiered device(6, 5, 0);
  const auto make = [&](std::uint64_t op, std::uint64_t array, std::int64_t blocks) {
    device.log({plan_of({on(kHere, op, blocks_of(array, blocks))}, {ArrayId{array}}, op)});
    return device.lists.core->counters().tasks_done;
  };
  REQUIRE(make(1, 10, 5) == 5);
  REQUIRE(make(2, 20, 5) == 10);
  REQUIRE(make(3, 30, 1) == 11);
  for (const msg::BlockCopy& copy : device.lists.core->blocks({1, ArrayId{20}, 0, 5}).copies)
    CHECK(copy.state == msg::BlockState::kSpilled);
  CHECK(make(4, 40, 1) == 11);
  device.log({msg::Release{{ArrayId{20}}}});
  CHECK(device.lists.core->counters().tasks_done == 12);
}

TEST_CASE("where copies to pinned memory fail, blocks go to disk") {
  Tiered device(6, 32, 32);
  device.failing = Errc::kDeviceError;
  device.take(device.lists.log({plan_of({on(kHere, 1, blocks_of(10, 20))}, {ArrayId{10}})}));
  while (device.all.empty()) device.take(device.lists.completed(++device.done[0]));
  CHECK(device.all.front().tier == Tier::kPinned);
  std::vector<Event> ends;
  for (const TierIo& io : std::exchange(device.open, {}))
    ends.push_back(IoDone{io.io, {Errc::kDeviceError, "injected"}});
  device.take(device.lists.step(std::move(ends)));
  device.failing = Errc::kOk;
  device.log({});
  CHECK(device.lists.core->counters().tasks_done == 20);
  CHECK(device.moved(Tier::kDisk, true) >= 14);
}

TEST_CASE("a block that cannot be brought back keeps its place while a peer is sent what is there") {
  Tiered device(6, 0, 16, false);
  const ir::Grid grid = blocks_of(10, 20).space;
  device.log({plan_of({on(kHere, 1, blocks_of(10, 20))}, {ArrayId{10}}),
              plan_of({on(kPeer, 2, map_of(10, 20, grid))}, {ArrayId{20}}, 2)});
  const auto copies = device.lists.core->blocks({1, ArrayId{10}, 0, 20}).copies;
  const auto spilled = std::find_if(copies.begin(), copies.end(), [](const msg::BlockCopy& copy) {
    return copy.state == msg::BlockState::kSpilled;
  });
  REQUIRE(spilled != copies.end());
  const msg::BlockRef block{ArrayId{10}, spilled->block};
  msg::PeerBatch asks, takes, has;
  asks.subscribes = {{block, OpId{2}, kHere, kPeer}};
  takes.grants = {{block, kHere, kPeer, 5}};
  has.dones = {{block, OpId{2}, kHere, kPeer}};
  device.take(device.lists.from_peer(asks));
  const Actions& sends = device.lists.from_peer(takes);
  device.take(sends);
  REQUIRE(sends.transmits.size() == 1);
  const std::int64_t place = sends.transmits[0].below;
  REQUIRE(place >= 0);
  const auto written = [&](std::size_t since) {
    return std::count_if(device.all.begin() + static_cast<std::ptrdiff_t>(since), device.all.end(),
                         [&](const TierIo& io) { return io.write && io.at == place; });
  };
  // Here it is read too, and in vain; other blocks want its place.
  device.fails = [&](const TierIo& io) { return !io.write && io.at == place ? Errc::kIo : Errc::kOk; };
  const std::size_t before = device.all.size();
  device.log({plan_of({on(kHere, 3, map_of(10, 30, grid))}, {}, 3)});
  CHECK(device.lists.core->counters().tasks_failed == 1);
  device.log({plan_of({on(kHere, 4, blocks_of(40, 8))}, {ArrayId{40}}, 4)});
  CHECK(device.lists.core->counters().tasks_done < 20 + 20 + 8);
  CHECK(written(before) == 0);
  device.take(device.lists.from_peer(has));
  device.run();
  CHECK(written(before) == 1);
  device.log({msg::CancelGraph{GraphId{2}, {Errc::kCancelled, "x"}},
              msg::CancelGraph{GraphId{4}, {Errc::kCancelled, "x"}},
              msg::Release{{ArrayId{10}, ArrayId{20}, ArrayId{40}}}});
  CHECK(device.lists.core->counters().below_bytes == 0);
}

TEST_CASE(
    "a GPU's block that a peer has been offered may leave until it is granted; a host's is read in place") {
  for (const bool gpu : {true, false}) {
    CAPTURE(gpu);
    Options options = Tiered::options(6, gpu ? 32 : 0, gpu ? 0 : 32, gpu);
    options.devices[0].kind = gpu;
    Tiered device(std::move(options));
    const ir::Grid grid = blocks_of(10, 2).space;
    device.log({plan_of({on(kHere, 1, blocks_of(10, 2))}, {ArrayId{10}}),
                plan_of({on(kPeer, 2, map_of(10, 20, grid))}, {ArrayId{20}}, 2)});
    const msg::BlockRef block{ArrayId{10}, 0};
    msg::PeerBatch asks, takes;
    asks.subscribes = {{block, OpId{2}, kHere, kPeer}};
    takes.grants = {{block, kHere, kPeer, 5}};
    const Actions& offers = device.lists.from_peer(asks);
    REQUIRE(offers.batches.size() == 1);
    REQUIRE(offers.batches[0].second.offers.size() == 1);
    CHECK((offers.batches[0].second.offers[0].slab == msg::kNoSlab) == gpu);
    // One that all the memory but one block's is wanted for.
    device.log({plan_of({on(kHere, 3, source(30, 1, 5 * kBlock / 8))}, {ArrayId{30}}, 3)});
    CHECK(device.lists.core->counters().tasks_done == 2 + gpu);
    const bool left =
        device.lists.core->blocks({1, ArrayId{10}, 0, 1}).copies[0].state == msg::BlockState::kSpilled;
    CHECK(left == gpu);
    const Actions& sends = device.lists.from_peer(takes);
    REQUIRE(sends.transmits.size() == 1);
    CHECK((sends.transmits[0].below >= 0) == gpu);
  }
}

TEST_CASE("what comes back from pinned memory does not wait for what is to come from disk") {
  Options options = Tiered::options(16, 8, 64, true);
  options.window = 64;
  Tiered device(std::move(options));
  for (const std::uint64_t op : {1, 2, 3})
    device.log({plan_of({on(kHere, op, blocks_of(10 * op, 16))}, {ArrayId{10 * op}}, op)});
  const auto in = [&](std::uint64_t op, Tier tier) {
    return std::count_if(device.where.begin(), device.where.end(),
                         [&](const auto& entry) { return entry.first.first == op && entry.second == tier; });
  };
  REQUIRE(in(1, Tier::kPinned) == 8);
  REQUIRE(in(2, Tier::kDisk) == 16);
  // Memory is free, and of what is wanted what is on disk comes first.
  device.log({msg::Release{{ArrayId{30}}}});
  const ir::Grid grid = blocks_of(10, 16).space;
  const Actions& begun = device.lists.log(
      {plan_of({on(kHere, 4, map_of(20, 40, grid)), on(kHere, 5, map_of(10, 50, grid))}, {}, 4)});
  const auto reads = [&](Tier tier) {
    return std::count_if(begun.ios.begin(), begun.ios.end(),
                         [&](const TierIo& io) { return io.tier == tier && !io.write; });
  };
  CHECK(reads(Tier::kDisk) == 2);  // an eighth of the memory from each
  CHECK(reads(Tier::kPinned) == 2);
  device.take(begun);
  device.run();
  CHECK(device.lists.core->counters().tasks_done == 48 + 32);
}

TEST_CASE("copies of one device that fail on the way to disk do not keep another from it") {
  constexpr DeviceId kSecond{4};
  Options options = Tiered::options(6, 0, 64, true);
  options.devices[0].kind = 1, options.devices[0].pins = false;
  options.devices.push_back({kSecond, 0, 6 * kBlock, 6 * kBlock, 1, true, false});
  Tiered device(std::move(options));
  device.fails = [](const TierIo& io) { return io.device == 0 ? Errc::kDeviceError : Errc::kOk; };
  device.log({plan_of({on(kHere, 1, blocks_of(10, 20))}, {ArrayId{10}})});
  const std::int64_t before = device.lists.core->counters().tasks_done;
  CHECK(before < 20);
  device.log({plan_of({on(kSecond, 2, blocks_of(20, 20))}, {ArrayId{20}}, 2)});
  CHECK(device.lists.core->counters().tasks_done == before + 20);
}

TEST_CASE(
    "who found no place for a large block goes on, though another device has found one for a small one") {
  constexpr DeviceId kSecond{4};
  Options options = Tiered::options(6, 0, 16, false);
  options.devices.push_back({kSecond, 0, 6 * kBlock, 6 * kBlock, 1, true, false});
  Tiered device(std::move(options));
  const auto done = [&] { return device.lists.core->counters().tasks_done; };
  device.log({plan_of({on(kSecond, 1, blocks_of(10, 18))}, {ArrayId{10}})});
  REQUIRE(done() == 18);
  // Two blocks of four places each: the first would have to leave for the second, and there are no four places in a row.
  device.log({plan_of({on(kHere, 2, source(20, 2, 4 * kBlock / 8))}, {ArrayId{20}}, 2)});
  REQUIRE(done() == 19);
  const std::size_t before = device.all.size();
  device.take(device.lists.log({plan_of({on(kSecond, 3, blocks_of(30, 1))}, {ArrayId{30}}, 3)}));
  // While one is at work the other is not stuck, and does not ask to be looked at before something has happened.
  device.lists.now += 60 * tilewise::kSecond;
  device.take(device.lists.step({}));
  for (const msg::Message& message : device.lists.actions.to_scheduler)
    CHECK_FALSE(std::holds_alternative<msg::Stuck>(message));
  CHECK(device.lists.core->next_deadline() > device.lists.now);
  device.run();
  REQUIRE(done() == 20);
  REQUIRE(device.all.size() == before + 1);
  REQUIRE(device.all.back().device == 1);
  device.log({msg::Release{{ArrayId{10}}}});
  CHECK(done() == 21);
}
