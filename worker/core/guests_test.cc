// Blocks in the memory of a neighbour, as lists: who goes there, comes back, and leaves when the neighbour wants its memory.
#include <doctest/doctest.h>

#include "tier_lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr DeviceId kNear{4};  // the second device
constexpr std::int64_t kSmall = 6, kLarge = 32;

// A device of six blocks beside one of 32, which it may send blocks to, and what lies below both.
struct Pair : TierLists {
  explicit Pair(std::int64_t disk = 64, std::int64_t pinned = 0) : TierLists(options(disk, pinned)) {
    // An arena begins empty; the first block that a neighbour has no slab for would go below.
    log({plan_of({on(kNear, 1, source(1, 1, kBlock / 8))}), msg::Release{{ArrayId{1}}}});
    REQUIRE(stats(1).bytes_used == 0);
    first = counts().tasks_done;
  }
  static Options options(std::int64_t disk, std::int64_t pinned) {
    const bool pins = pinned > 0;
    Options o = Lists::options_of({kHere, 1, kSmall * kBlock, kSmall * kBlock, 1, true, pins, {1}});
    o.devices.push_back({kNear, 1, kLarge * kBlock, kLarge * kBlock, 1, true, pins});
    o.spill_bytes = disk * kBlock;
    o.pinned_bytes = pinned * kBlock;
    return o;
  }
  std::int64_t moved(Tier tier, bool write, std::uint16_t device = 0) const {
    return std::count_if(all.begin(), all.end(), [&](const TierIo& io) {
      return io.tier == tier && io.write == write && io.device == device;
    });
  }
  Counters counts() const { return lists.core->counters(); }
  std::int64_t tasks_done() const { return counts().tasks_done - first; }

  std::int64_t first = 0;  // tasks before the test's
};

}  // namespace

TEST_CASE("what does not fit goes to a neighbour while half of that is free, then below, and comes back") {
  Pair pair;
  const ir::Op a = blocks_of(10, 30);
  pair.log({plan_of({on(kHere, 2, a)}, {ArrayId{10}}, 2)});
  REQUIRE(pair.tasks_done() == 30);
  CHECK(pair.moved(Tier::kNeighbour, true) == kLarge / 2);
  CHECK(pair.moved(Tier::kDisk, true) >= 30 - kSmall - kLarge / 2);
  CHECK(pair.stats(1).guest_bytes == kLarge / 2 * kBlock);
  CHECK(pair.stats(1).bytes_used == kLarge / 2 * kBlock);
  CHECK(pair.stats(0).lodged_bytes == kLarge / 2 * kBlock);
  CHECK(pair.stats(0).lodged_written == kLarge / 2 * kBlock);
  for (const TierIo& io : pair.all) {
    CHECK((io.lodging.device == kNear) == (io.tier == Tier::kNeighbour));
    CHECK(io.memory.device == kHere);
  }
  pair.log({plan_of({on(kHere, 3, map_of(10, 11, a.space))}, {ArrayId{10}}, 3)});
  CHECK(pair.tasks_done() == 60);
  CHECK(pair.moved(Tier::kNeighbour, false) >= kLarge / 2 - kSmall);
  pair.log({msg::Release{{ArrayId{10}, ArrayId{11}}}});
  CHECK(pair.counts().below_bytes == 0);
  CHECK(pair.stats(1).guest_bytes == 0);
  CHECK(pair.stats(1).bytes_used == 0);
}

TEST_CASE("guests leave when their host wants its memory, for the place that they have been promised") {
  std::int64_t pinned = 0;
  SUBCASE("on disk") {}
  SUBCASE("or in pinned memory, where there is room") { pinned = 64; }
  Pair pair(64, pinned);
  const Tier below = pinned > 0 ? Tier::kPinned : Tier::kDisk;
  const ir::Op a = blocks_of(10, 16), b = blocks_of(20, kLarge);
  pair.log({plan_of({on(kHere, 2, a)}, {ArrayId{10}}, 2)});
  const std::int64_t lodged = pair.moved(Tier::kNeighbour, true);
  REQUIRE(lodged >= 16 - kSmall);
  REQUIRE(pair.moved(below, true) == 0);
  pair.log({plan_of({on(kNear, 3, b)}, {ArrayId{20}}, 3)});
  CHECK(pair.tasks_done() == 16 + kLarge);
  CHECK(pair.stats(1).guest_bytes == 0);
  CHECK(pair.counts().dismissed >= 16 - kSmall);
  CHECK(pair.moved(below, true, 1) >= 16 - kSmall);  // out of the host's memory
  CHECK(pair.stats(0).lodged_bytes == 0);
  pair.log({plan_of({on(kHere, 4, map_of(10, 11, a.space))}, {ArrayId{10}}, 4)});
  CHECK(pair.tasks_done() == 32 + kLarge);
  CHECK(pair.counts().tasks_failed == 0);
  pair.log({msg::Release{{ArrayId{10}, ArrayId{11}, ArrayId{20}}}});
  CHECK(pair.counts().below_bytes == 0);
}

TEST_CASE("a guest is sent to others from where it is, and stays there until they have it") {
  Pair pair;
  const ir::Op a = blocks_of(10, 16);
  pair.log({plan_of({on(kHere, 2, a)}, {ArrayId{10}}, 2),
            plan_of({on(kPeer, 3, map_of(10, 20, a.space))}, {ArrayId{20}}, 3)});
  const msg::BlocksReply known = pair.lists.core->blocks({1, ArrayId{10}, 0, 16});
  const auto away = std::find_if(known.copies.begin(), known.copies.end(),
                                 [](const auto& copy) { return copy.state == msg::BlockState::kSpilled; });
  REQUIRE(away != known.copies.end());
  REQUIRE(pair.moved(Tier::kDisk, true) == 0);  // so it is at the neighbour's
  const msg::BlockRef block{ArrayId{10}, away->block};
  msg::PeerBatch asks, takes, has;
  asks.subscribes = {{block, OpId{3}, kHere, kPeer}};
  takes.grants = {{block, kHere, kPeer, 5}};
  has.dones = {{block, OpId{3}, kHere, kPeer}};
  pair.lists.from_peer(asks);
  const Actions& sends = pair.lists.from_peer(takes);
  REQUIRE(sends.transmits.size() == 1);
  CHECK(sends.transmits[0].below < 0);
  CHECK(sends.transmits[0].from.device == kNear);
  pair.log({plan_of({on(kNear, 4, blocks_of(30, kLarge))}, {ArrayId{30}}, 4)});
  CHECK(pair.tasks_done() == 16 + kLarge);
  CHECK(pair.stats(1).guest_bytes == kBlock);
  pair.take(pair.lists.from_peer(has));
  pair.log({plan_of({on(kNear, 5, blocks_of(40, kLarge))}, {}, 5)});
  CHECK(pair.stats(1).guest_bytes == 0);
}

TEST_CASE("copies to a neighbour that fail: nothing is lost, and nothing more goes there") {
  Errc error = Errc::kDeviceError;
  SUBCASE("for good") {}
  SUBCASE("for want of memory") { error = Errc::kOutOfMemory; }
  Pair pair;
  pair.fails = [&](const TierIo& io) { return io.tier == Tier::kNeighbour ? error : Errc::kOk; };
  pair.log({plan_of({on(kHere, 2, blocks_of(10, 30))}, {ArrayId{10}}, 2)});
  CHECK(pair.tasks_done() == 30);
  CHECK(pair.stats(1).guest_bytes == 0);
  const std::int64_t tried = pair.moved(Tier::kNeighbour, true);
  CHECK(tried >= 1);
  CHECK(tried <= kSmall);
  CHECK(pair.moved(Tier::kDisk, true) >= 30 - kSmall);
}

TEST_CASE("a host that waits for guests on their way goes on when they have come") {
  Pair pair;
  pair.take(pair.lists.log({plan_of({on(kHere, 2, blocks_of(10, 10))}, {ArrayId{10}}, 2)}));
  while (pair.launched[0] > pair.done[0])  // its steps end, its copies do not
    pair.take(pair.lists.step({StreamCompleted{0, 0, ++pair.done[0]}}));
  REQUIRE(!pair.open.empty());
  for (const TierIo& io : pair.open) REQUIRE(io.tier == Tier::kNeighbour);
  const ir::Op large = source(20, 1, kLarge * kBlock / 8);
  pair.take(pair.lists.log({plan_of({on(kNear, 3, large)}, {ArrayId{20}}, 3)}));
  REQUIRE(pair.launched[1] == pair.done[1]);
  pair.lists.now += 60 * kSecond;
  for (const msg::Message& message : pair.lists.step({}).to_scheduler)
    CHECK_FALSE(std::holds_alternative<msg::Stuck>(message));
  pair.run();
  CHECK(pair.tasks_done() == 11);
}

TEST_CASE("who waits for a block that is leaving its host is not stuck") {
  Pair pair;
  const ir::Op a = blocks_of(10, kSmall);
  pair.log({plan_of({on(kHere, 2, a)}, {ArrayId{10}}, 2)});
  pair.log({plan_of({on(kHere, 3, source(12, 1, kSmall * kBlock / 8))}, {ArrayId{12}}, 3)});
  pair.log({msg::Release{{ArrayId{12}}}});
  REQUIRE(pair.stats(1).guest_bytes == kSmall * kBlock);
  pair.take(pair.lists.log({plan_of({on(kNear, 4, source(20, 1, kLarge * kBlock / 8))}, {ArrayId{20}}, 4)}));
  REQUIRE(pair.open.size() == kSmall);
  pair.take(pair.lists.log({plan_of({on(kHere, 5, map_of(10, 11, a.space))}, {}, 5)}));
  REQUIRE(pair.open.size() == kSmall);
  pair.lists.now += 60 * kSecond;
  for (const msg::Message& message : pair.lists.step({}).to_scheduler)
    CHECK_FALSE(std::holds_alternative<msg::Stuck>(message));
  pair.run();
  CHECK(pair.tasks_done() == 2 * kSmall + 2);
}

TEST_CASE("guests cannot leave for a disk that fails: they stay, and are read from where they are") {
  Pair pair;
  const ir::Op a = blocks_of(10, 16);
  pair.log({plan_of({on(kHere, 2, a)}, {ArrayId{10}}, 2)});
  pair.fails = [](const TierIo& io) { return io.tier == Tier::kDisk ? Errc::kIo : Errc::kOk; };
  pair.log({plan_of({on(kNear, 3, blocks_of(20, kLarge - 16))}, {}, 3)});
  CHECK(pair.tasks_done() == 16 + kLarge - 16);
  CHECK(pair.stats(1).guest_bytes >= (16 - kSmall) * kBlock);
  pair.log({plan_of({on(kHere, 4, map_of(10, 11, a.space))}, {}, 4)});
  CHECK(pair.counts().tasks_failed == 0);
  CHECK(pair.moved(Tier::kNeighbour, false) >= 1);
}

TEST_CASE("a neighbour whose memory is wanted takes no guests; nothing goes there that has no place below") {
  Pair pair(8);
  pair.log({plan_of({on(kNear, 2, blocks_of(10, kLarge / 2))}, {ArrayId{10}}, 2)});
  pair.log({plan_of({on(kHere, 3, blocks_of(20, 10))}, {ArrayId{20}}, 3)});
  CHECK(pair.tasks_done() == kLarge / 2 + 10);
  CHECK(pair.counts().lodged == 0);
  pair.log({msg::Release{{ArrayId{10}, ArrayId{20}}}});
  pair.log({plan_of({on(kHere, 4, blocks_of(30, 20))}, {ArrayId{30}}, 4)});
  CHECK(pair.moved(Tier::kNeighbour, true) <= 8);  // as many as the disk has places for
  CHECK(pair.tasks_done() == kLarge / 2 + 10 + kSmall + 8);
}
