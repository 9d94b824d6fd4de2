// Tiers as lists: what goes where, and that it comes back. How it stands faults is the simulator's.
#include <doctest/doctest.h>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr std::int64_t kBlock = 4096;  // bytes; so many a place below, too

struct Device {
  Device(std::int64_t blocks, std::int64_t pinned, std::int64_t disk, bool gpu = true)
      : lists(options(blocks, pinned, disk, gpu)) {}
  static Options options(std::int64_t blocks, std::int64_t pinned, std::int64_t disk, bool gpu) {
    Options o = Lists::options_of({kHere, 0, blocks * kBlock, blocks * kBlock, 1, gpu || disk > 0, gpu});
    o.pinned_bytes = pinned * kBlock;
    o.spill_bytes = disk * kBlock;
    return o;
  }
  // Ends everything that is begun, until nothing is.
  void log(std::vector<msg::LogEntry> entries) {
    take(lists.log(std::move(entries)));
    while (launched > done || !open.empty()) {
      std::vector<Event> ends;
      for (const TierIo& io : open) ends.push_back(IoDone{io.io, {failing, "injected"}});
      if (launched > done) ends.push_back(StreamCompleted{0, 0, ++done});
      open.clear();
      take(lists.step(std::move(ends)));
    }
  }
  void take(const Actions& actions) {
    launched += actions.launches.size();
    for (const TierIo& io : actions.ios) {
      open.push_back(io);
      all.push_back(io);
    }
  }
  std::int64_t moved(Tier tier, bool write) const {
    return std::count_if(all.begin(), all.end(),
                         [&](const TierIo& io) { return io.tier == tier && io.write == write; });
  }
  msg::DeviceStats stats() const { return lists.core->device_stats()[0]; }

  Lists lists;
  std::uint64_t launched = 0, done = 0;
  std::vector<TierIo> open, all;
  Errc failing = Errc::kOk;
};

ir::Op blocks_of(std::uint64_t array, std::int64_t blocks) { return source(array, blocks, kBlock / 8); }

}  // namespace

TEST_CASE("a GPU's blocks go to pinned memory, what that has no room for to disk, and both come back") {
  Device device(6, 5, 32);
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
  device.log({msg::Release{{ArrayId{10}}}, msg::Release{{ArrayId{11}}}});
  CHECK(device.lists.core->counters().below_bytes == 0);
}

TEST_CASE("devices that do not pin keep out of pinned memory, and pinned memory needs no disk") {
  Device host(6, 32, 32, false), gpu(6, 32, 0);
  for (Device* device : {&host, &gpu}) {
    device->log({plan_of({on(kHere, 1, blocks_of(10, 20))}, {ArrayId{10}})});
    CHECK(device->lists.core->counters().tasks_done == 20);
  }
  CHECK(host.moved(Tier::kPinned, true) == 0);
  CHECK(host.moved(Tier::kDisk, true) >= 14);
  CHECK(gpu.moved(Tier::kDisk, true) == 0);
  CHECK(gpu.moved(Tier::kPinned, true) >= 14);
}

TEST_CASE("pinned memory that is full is told with what is used of it") {
  Device device(6, 4, 0);
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
  Device device(6, 5, 0);
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
  Device device(6, 32, 32);
  device.failing = Errc::kDeviceError;
  device.take(device.lists.log({plan_of({on(kHere, 1, blocks_of(10, 20))}, {ArrayId{10}})}));
  while (device.all.empty()) device.take(device.lists.completed(++device.done));
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
