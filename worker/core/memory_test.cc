// Who gets memory when it is short and there is no tier below, as lists.
#include <doctest/doctest.h>
#include <tilewise/ir/donation.h>

#include <map>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr std::int64_t kPiece = 64 << 10;  // bytes

ir::Op pieces_of(std::uint64_t array, std::int64_t blocks) { return source(array, blocks, kPiece / 8); }

struct Device {
  explicit Device(std::int64_t blocks) : lists(blocks * kPiece) {}
  // Ends every step that is launched, until none is.
  void run() {
    take(lists.actions);
    while (done < launched) take(lists.completed(++done));
  }
  void take(const Actions& actions) {
    launched += actions.launches.size();
    for (const Launch& launch : actions.launches) ++of[launch.run.id.value];
  }
  Lists lists;
  std::uint64_t launched = 0, done = 0;
  std::map<std::uint64_t, int> of;  // steps launched, by op
};

}  // namespace

TEST_CASE("a task of several results gets memory for all of them, or waits without any") {
  Device device(4);
  const ir::Op pair = pair_of(20, kPiece / 8), first = pieces_of(10, 1), second = pieces_of(11, 1);
  device.lists.log({plan_of({on(kHere, 1, first), on(kHere, 2, second)}, {ArrayId{10}, ArrayId{11}})});
  device.run();
  device.lists.log({plan_of({on(kHere, 3, pieces_of(12, 1))}, {ArrayId{12}}, 2)});
  device.run();
  const auto used = [&] { return device.lists.core->device_stats()[0].bytes_used; };
  REQUIRE(used() == 3 * kPiece);
  device.lists.log({plan_of({on(kHere, 4, pair)}, {ArrayId{20}, ArrayId{21}}, 3)});
  device.run();
  CHECK(device.of[4] == 0);
  CHECK(used() == 3 * kPiece);
  device.lists.log({msg::Release{{ArrayId{11}}}});
  device.run();
  CHECK(device.of[4] == 1);
  CHECK(used() == 4 * kPiece);
  for (const std::uint64_t array : {20, 21}) CHECK(device.lists.core->holds({ArrayId{array}, 0}));
}

TEST_CASE("each output of a tape takes the memory of an input that nobody else needs, or its own") {
  const auto run = [](std::vector<std::uint64_t> from, std::vector<ArrayId> holds) {
    Device device(8);
    const ir::Grid grid = pieces_of(10, 2).space;
    holds.insert(holds.end(), {ArrayId{20}, ArrayId{21}});
    device.lists.log({plan_of({on(kHere, 1, pieces_of(10, 2)), on(kHere, 2, pieces_of(11, 2)),
                               on(kHere, 3, maps_of(std::move(from), 20, grid))},
                              std::move(holds))});
    device.run();
    CHECK(device.of[3] == 2);
    for (const std::uint64_t array : {20, 21}) CHECK(device.lists.core->holds({ArrayId{array}, 1}));
    const std::int64_t blocks = device.lists.core->device_stats()[0].bytes_used / kPiece;
    return std::pair(device.lists.core->counters().donated, blocks);
  };
  CHECK(run({10, 11}, {}) == std::pair<std::int64_t, std::int64_t>{4, 4});
  CHECK(run({10, 11}, {ArrayId{11}}) == std::pair<std::int64_t, std::int64_t>{2, 6});
  CHECK(run({10, 11}, {ArrayId{10}}) == std::pair<std::int64_t, std::int64_t>{2, 6});
  CHECK(run({10}, {ArrayId{11}}) == std::pair<std::int64_t, std::int64_t>{2, 6});
  // The same array through another view is read elsewhere than where it would be written.
  ir::Op across = maps_of({10, 11}, 20, pieces_of(10, 2).space);
  across.operands[0].view.source[0] = {0, across.space.shape()[0] - 1, -1};
  CHECK_FALSE(ir::may_overwrite(across, 0, 0, ir::DType::kFloat64, across.space));
  CHECK(ir::may_overwrite(across, 1, 1, ir::DType::kFloat64, across.space));
  CHECK_FALSE(ir::may_overwrite(across, 1, 1, ir::DType::kInt64, across.space));
}

TEST_CASE("a task waits with what its input would give, until there is memory for its other output") {
  Device device(4);
  device.lists.log({plan_of(
      {on(kHere, 1, pieces_of(11, 1)), on(kHere, 2, pieces_of(12, 1)), on(kHere, 3, pieces_of(13, 1))},
      {ArrayId{11}, ArrayId{12}, ArrayId{13}})});
  device.run();
  device.lists.log(
      {plan_of({on(kHere, 4, pieces_of(10, 1)), on(kHere, 5, maps_of({10}, 20, pieces_of(10, 1).space))},
               {ArrayId{20}, ArrayId{21}}, 2)});
  device.run();
  CHECK(device.of[5] == 0);
  CHECK(device.lists.core->counters().donated == 0);
  CHECK(device.lists.core->holds({ArrayId{10}, 0}));
  device.lists.log({msg::Release{{ArrayId{11}}}});
  device.run();
  CHECK(device.of[5] == 1);
  CHECK(device.lists.core->counters().donated == 1);
  CHECK(device.lists.core->device_stats()[0].bytes_used == 4 * kPiece);
}

TEST_CASE("what could be made early leaves the memory that is wanted before it") {
  Device device(8);
  const ir::Op few = pieces_of(10, 2), many = pieces_of(20, 4);
  // The second op waits for the peer; those behind it have all they read, and their results stay.
  device.lists.log(
      {plan_of({on(kHere, 1, few), on(kPeer, 2, many), on(kHere, 3, map_of(20, 30, many.space)),
                on(kPeer, 4, map_of(30, 40, many.space)), on(kHere, 5, map_of(10, 50, few.space)),
                on(kHere, 6, map_of(10, 60, few.space))},
               {ArrayId{10}, ArrayId{50}, ArrayId{60}})});
  device.run();
  CHECK(device.of[1] == 2);
  CHECK(device.of[5] + device.of[6] == 1);  // there is room for one block more
  msg::PeerBatch offers, dones;
  for (std::int64_t b = 0; b < 4; ++b) {
    msg::Offer offer;
    offer.block = {ArrayId{20}, b}, offer.op = OpId{3}, offer.from = kPeer, offer.to = kHere;
    offer.offset = b * kPiece, offer.bytes = kPiece;
    offers.offers.push_back(offer);
    dones.dones.push_back({{ArrayId{30}, b}, OpId{4}, kHere, kPeer});
  }
  device.lists.from_peer(offers);
  device.run();
  CHECK(device.of[3] == 4);  // the peer reads them when all are there
  device.lists.from_peer(dones);
  device.run();
  CHECK(device.of[5] + device.of[6] == 4);
  CHECK(device.lists.core->counters().tasks_done == 10);
}

// Each step of a loop that waits for none is a graph of its own.
TEST_CASE("a step that could be made early leaves the memory that earlier steps of its session want") {
  const auto steps = [](Device& device, SessionId second) {
    const ir::Op few = pieces_of(10, 2), many = pieces_of(20, 4);
    device.lists.log(
        {plan_of({on(kHere, 1, few), on(kPeer, 2, many), on(kHere, 3, map_of(20, 30, many.space)),
                  on(kPeer, 4, map_of(30, 40, many.space))},
                 {ArrayId{10}, ArrayId{30}}, 1)});
    device.run();
    for (const std::uint64_t graph : {2, 3}) {
      msg::Plan plan = plan_of({on(kHere, 3 + graph, map_of(10, 30 + 10 * graph, few.space))},
                               {ArrayId{30 + 10 * graph}}, graph);
      plan.session = second;
      device.lists.log({plan});
      device.run();
    }
    return device.of[5] + device.of[6];
  };
  Device device(8);
  CHECK(steps(device, {}) == 1);  // there is room for one block more
  msg::PeerBatch offers;
  for (std::int64_t b = 0; b < 4; ++b) {
    msg::Offer offer;
    offer.block = {ArrayId{20}, b}, offer.op = OpId{3}, offer.from = kPeer, offer.to = kHere;
    offer.offset = b * kPiece, offer.bytes = kPiece;
    offers.offers.push_back(offer);
  }
  device.lists.from_peer(offers);
  device.run();
  CHECK(device.of[3] == 4);
  device.lists.log({msg::Release{{ArrayId{10}, ArrayId{30}}}});
  device.run();
  msg::PeerBatch dones;
  for (std::int64_t b = 0; b < 4; ++b) dones.dones.push_back({{ArrayId{30}, b}, OpId{4}, kHere, kPeer});
  device.lists.from_peer(dones);
  device.run();
  CHECK(device.of[5] + device.of[6] == 4);
  Device shared(8);
  CHECK(steps(shared, SessionId{7}) > 1);  // other sessions owe it nothing
}

TEST_CASE(
    "what an earlier step wanted is free for later ones when it is cancelled, though nothing of it was "
    "there") {
  Device device(8);
  const ir::Op few = pieces_of(10, 2), many = pieces_of(20, 4);
  device.lists.log({plan_of({on(kPeer, 2, many), on(kHere, 3, map_of(20, 30, many.space)),
                             on(kPeer, 4, map_of(30, 40, many.space))},
                            {ArrayId{30}}, 1)});
  device.run();
  device.lists.log({plan_of({on(kHere, 1, few)}, {ArrayId{10}}, 2)});
  device.run();
  for (const std::uint64_t graph : {3, 4}) {
    device.lists.log({plan_of({on(kHere, 2 + graph, map_of(10, 30 + 10 * graph, few.space))},
                              {ArrayId{30 + 10 * graph}}, graph)});
    device.run();
  }
  CHECK(device.of[5] + device.of[6] == 1);
  device.lists.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "nobody wants it"}}});
  device.run();
  CHECK(device.of[5] + device.of[6] == 4);
}
