// After a worker was lost: what its peers do with what it owed, and with what is made again.
#include <doctest/doctest.h>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

TEST_CASE("the death of a peer discharges what it owed and fails what it had not delivered") {
  Lists lists;
  const ir::Op a = source(10, 1), b = source(20, 1);
  lists.log({plan_of({on(kHere, 1, a), on(kPeer, 2, map_of(10, 11, a.space)), on(kPeer, 3, b),
                      on(kHere, 4, map_of(20, 21, b.space))})});
  lists.completed(1);
  CHECK(lists.core->counters().copies_live > 0);
  lists.log({msg::PeerLost{kOther}});
  CHECK(lists.core->counters().copies_live == 0);
  CHECK(lists.core->counters().tasks_failed == 1);
}

namespace {

// By the peer, to op 2 here: block 0 of array 20.
msg::PeerBatch first_pair_offered() {
  msg::PeerBatch batch;
  msg::Offer offer;
  offer.block = {ArrayId{20}, 0}, offer.op = OpId{2}, offer.from = kPeer, offer.to = kHere, offer.bytes = 64;
  batch.offers.push_back(offer);
  return batch;
}

}  // namespace

TEST_CASE("after a loss what is missing is waited for, told, and made again") {
  Lists lists;
  const ir::Op a = source(10, 2), b = source(20, 2);
  lists.log({plan_of({on(kPeer, 1, a), on(kHere, 2, map_of(10, 11, a.space)), on(kHere, 3, b)},
                     {ArrayId{10}, ArrayId{20}})});
  lists.completed(static_cast<std::uint64_t>(lists.core->counters().launches));
  lists.log({msg::PeerLost{kOther, 7, {OpId{1}, OpId{2}, OpId{3}}}});
  const msg::Held* held = told(lists.actions);
  REQUIRE(held != nullptr);
  CHECK(held->version == 7);
  REQUIRE(held->shares.size() == 2);
  CHECK(held->shares[0] == msg::Held::Share{OpId{2}, kHere, 2, {{0, 2}}});  // both tasks wait
  CHECK(held->shares[1] == msg::Held::Share{OpId{3}, kHere, 2, {}});
  REQUIRE(held->blocks.size() == 2);
  CHECK(held->blocks[0] == msg::Held::Blocks{ArrayId{10}, kHere, {}, {{0, 2}}});
  CHECK(held->blocks[1] == msg::Held::Blocks{ArrayId{20}, kHere, {{0, 2}}, {}});
  lists.log({msg::Release{{ArrayId{20}}}});
  CHECK(lists.core->holds({ArrayId{20}, 0}));  // pinned
  CHECK(lists.core->counters().tasks_failed == 0);
  SUBCASE("here") {
    const Actions& actions = lists.log({made_again(7, 9, 1, a, kHere)});
    REQUIRE(actions.launches.size() == 4);  // both blocks, and those who waited for them
    for (const Launch& launch : actions.launches) CHECK(launch.run.again == (launch.run.id == OpId{9}));
    lists.completed(static_cast<std::uint64_t>(lists.core->counters().launches));
    CHECK(lists.core->counters().tasks_failed == 0);
    CHECK(lists.core->holds({ArrayId{10}, 1}));
  }
  SUBCASE("not at all: then who waits fails") {
    lists.log({msg::Recover{7, {}}});
    CHECK(lists.core->counters().tasks_failed == 2);
  }
  SUBCASE("an answer to an older loss does not fail what a younger one may bring") {
    lists.log({msg::Recover{6, {}}});
    CHECK(lists.core->counters().tasks_failed == 0);
    CHECK(lists.core->holds({ArrayId{20}, 0}));
    lists.log({msg::Recover{7, {}}});
  }
  lists.step({});
  CHECK(!lists.core->holds({ArrayId{20}, 0}));
}

TEST_CASE("of a task of which one result is here both are made again, and what is here stays what is read") {
  Lists lists;
  lists.step({PeerReady{kOther, false}});
  const ir::Op pair = pair_of(20, 8);
  ir::Op both = map_of(20, 11, pair.space);
  both.operands.push_back({21, ir::View::identity(pair.space.shape())});
  bool held_by_client = false;  // else the reader is the last one, and could take their memory for its result
  enum class End { kWell, kCancelled, kFailed } end = End::kWell;
  SUBCASE("held") { held_by_client = true; }
  SUBCASE("read for the last time") {}
  SUBCASE("and the graph ends meanwhile") { end = End::kCancelled; }
  SUBCASE("and it fails") { end = End::kFailed; }
  SUBCASE("held, and the graph ends meanwhile") { held_by_client = true, end = End::kCancelled; }
  SUBCASE("held, and it fails") { held_by_client = true, end = End::kFailed; }
  std::vector<ArrayId> holds{ArrayId{11}};
  if (held_by_client) holds.insert(holds.end(), {ArrayId{20}, ArrayId{21}});
  lists.log({plan_of({on(kPeer, 1, pair), on(kHere, 2, both)}, holds)});
  const Actions& granted = lists.from_peer(first_pair_offered());
  REQUIRE(granted.receives.size() == 1);
  lists.step({TransferDone{granted.receives[0].transfer}});
  lists.log({msg::PeerLost{kOther, 7, {OpId{1}, OpId{2}}}});
  const msg::Held* held = told(lists.actions);
  REQUIRE(held != nullptr);
  REQUIRE(held->blocks.size() == 2);
  CHECK(held->blocks[0] == msg::Held::Blocks{ArrayId{20}, kHere, {{0, 1}}, {}});
  CHECK(held->blocks[1] == msg::Held::Blocks{ArrayId{21}, kHere, {}, {{0, 1}}});
  const std::vector<Launch> launches = lists.log({made_again(7, 9, 1, pair, kHere)}).launches;
  REQUIRE(launches.size() == 2);
  REQUIRE(launches[0].outputs.size() == 2);
  REQUIRE(launches[1].inputs.size() == 2);
  CHECK(launches[0].outputs[0] != launches[1].inputs[0]);
  CHECK(launches[0].outputs[1] == launches[1].inputs[1]);
  CHECK(launches[1].outputs[0] != launches[1].inputs[0]);
  CHECK(lists.core->counters().made_in_part == 1);
  const std::int64_t under_way = lists.core->device_stats()[0].bytes_used;
  if (end == End::kCancelled) {
    lists.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "told to"}}});
    lists.completed(2);
  } else if (end == End::kFailed) {
    lists.step({StepFailed{0, 0, 1, {Errc::kTaskFailed, "told to"}}, StreamCompleted{0, 0, 2}});
    CHECK(lists.core->holds({ArrayId{20}, 0}) == held_by_client);  // that one was here before
  }
  if (end != End::kWell) {
    lists.log({msg::Release{{ArrayId{11}}}, msg::Release{{ArrayId{20}}}, msg::Release{{ArrayId{21}}}});
    CHECK(lists.core->counters().copies_live == 0);
    CHECK(lists.core->device_stats()[0].bytes_used == 0);
    return;
  }
  lists.completed(2);
  CHECK(lists.core->device_stats()[0].bytes_used < under_way);  // what was made twice has gone
  CHECK(lists.core->counters().tasks_failed == 0);
  CHECK(lists.core->holds({ArrayId{11}, 0}));
  for (const std::uint64_t array : {20, 21}) CHECK(lists.core->holds({ArrayId{array}, 0}) == held_by_client);
}

TEST_CASE("what is here while it is made again waits for its task, though nobody reads it any more") {
  Options options = Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 1, false});
  options.window = 1;
  Lists lists(options);
  const ir::Op pair = pair_of(20, 8, 2);
  lists.log({plan_of({on(kHere, 1, pair), on(kPeer, 2, map_of(20, 11, pair.space))})});
  const auto read_elsewhere = [&](std::int64_t block) {
    msg::PeerBatch batch;
    batch.dones.push_back({{ArrayId{20}, block}, OpId{2}, kHere, kPeer});
    batch.recovery = 7;
    lists.from_peer(batch);
  };
  lists.completed(1);
  lists.log({msg::PeerLost{{}, 7, {OpId{1}}}});
  const msg::Held* held = told(lists.actions);
  REQUIRE(held != nullptr);
  // The second task is in flight, and of its results one is gone: nobody reads that.
  REQUIRE(held->blocks.size() == 1);
  CHECK(held->blocks[0] == msg::Held::Blocks{ArrayId{20}, kHere, {{0, 2}}, {}});
  bool in_flight = false, cancelled = false;
  SUBCASE("made before") {}
  SUBCASE("in flight") { in_flight = true; }
  SUBCASE("cancelled") { cancelled = true; }
  if (!in_flight) lists.completed(2);
  REQUIRE(lists.log({made_again(7, 9, 1, pair, kHere)}).launches.size() == 1);  // the window has room for one
  if (in_flight) lists.completed(2);
  read_elsewhere(1);
  CHECK(lists.core->holds({ArrayId{20}, 1}));
  if (cancelled) {
    lists.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "told to"}}});
    lists.completed(3);
  } else {
    lists.completed(3);
    lists.completed(4);
    CHECK(lists.core->counters().made_in_part == 2);
  }
  CHECK(!lists.core->holds({ArrayId{20}, 1}));
  read_elsewhere(0);
  CHECK(lists.core->counters().copies_live == 0);
}

TEST_CASE(
    "a kernel in flight keeps the block that it reads in place, also where its owner makes that again") {
  Lists lists;
  const ir::Op pair = pair_of(20, 8);
  lists.log({plan_of({on(kPeer, 1, pair), on(kHere, 2, map_of(20, 11, pair.space))})});
  REQUIRE(lists.from_peer(first_pair_offered()).launches.size() == 1);
  const auto dones = [&] {
    std::size_t told = 0;
    for (const auto& [peer, sent] : lists.actions.batches) told += sent.dones.size();
    return told;
  };
  CHECK(dones() == 0);
  lists.log({msg::PeerLost{{}, 7, {OpId{1}}}});
  lists.log({made_again(7, 9, 1, pair, kPeer)});
  CHECK(dones() == 0);
  lists.completed(1);
  CHECK(dones() == 1);
  CHECK(lists.core->counters().copies_live == 0);
}

TEST_CASE("a block that fails before a loss is answered fails who is given the work of the lost") {
  Lists lists;
  constexpr DeviceId kThird{5};
  constexpr WorkerId kThirdProcess{4};
  msg::PeerInfo third{kThirdProcess, msg::Role::kWorker, "third", "host", {}, {kThird}, {}};
  const ir::Op a = source(10, 1), b = map_of(10, 11, a.space);
  lists.log({msg::PeerJoined{third}, plan_of({on(kHere, 1, a), on(kPeer, 2, b)})});
  lists.step({PeerReady{kThirdProcess, true}});
  lists.log({msg::PeerLost{kOther, 7, {OpId{1}, OpId{2}}}});
  lists.step({StepFailed{0, 0, 1, {Errc::kTaskFailed, "told to"}}, StreamCompleted{0, 0, 1}});
  lists.log({made_again(7, 9, 2, b, kThird)});
  msg::PeerBatch wish;
  wish.subscribes.push_back({{ArrayId{10}, 0}, OpId{9}, kHere, kThird});
  wish.recovery = 7;
  const auto& batches = lists.from_peer(wish, kThirdProcess).batches;
  REQUIRE(batches.size() == 1);
  CHECK(batches[0].first == kThirdProcess);
  REQUIRE(batches[0].second.offers.size() == 1);
  CHECK(batches[0].second.offers[0].failed.code == Errc::kTaskFailed);
  msg::PeerBatch done;
  done.dones.push_back({{ArrayId{10}, 0}, OpId{9}, kHere, kThird});
  lists.from_peer(done, kThirdProcess);
  CHECK(lists.core->counters().copies_live == 0);
}

TEST_CASE(
    "a batch from ahead waits for the recovery it speaks of, and an offer from before it is not believed") {
  Lists lists;
  constexpr DeviceId kThird{5};
  constexpr WorkerId kThirdProcess{4};
  msg::PeerInfo third{kThirdProcess, msg::Role::kWorker, "third", "host", {}, {kThird}, {}};
  const ir::Op a = source(10, 1);
  lists.log({msg::PeerJoined{third}, plan_of({on(kPeer, 1, a), on(kHere, 2, map_of(10, 11, a.space))})});
  lists.step({PeerReady{kThirdProcess, true}});
  lists.log({msg::PeerLost{kOther, 1, {OpId{1}, OpId{2}}}});
  msg::PeerBatch offer;
  offer.offers.push_back({{ArrayId{10}, 0}, OpId{2}, kThird, kHere, 0, 0, 64, {}, false, {}});
  offer.recovery = 1;
  lists.from_peer(offer, kThirdProcess);
  CHECK(lists.actions.launches.empty());
  SUBCASE("ahead") {
    const Actions& actions = lists.log({made_again(1, 9, 1, a, kThird)});
    CHECK(actions.launches.size() == 1);
  }
  SUBCASE("behind") {
    lists.log({made_again(2, 9, 1, a, kThird)});
    CHECK(lists.actions.launches.empty());
    offer.recovery = 2;
    CHECK(lists.from_peer(offer, kThirdProcess).launches.size() == 1);
  }
}
