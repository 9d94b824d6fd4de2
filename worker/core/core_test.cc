// The worker core as lists: events in, actions compared.
#include <tilewise/ir/saving.h>

#include <tilewise/base/limits.h>

#include <doctest/doctest.h>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

TEST_CASE("dependent steps are launched without waiting, and memory returns when the last use is enqueued") {
  Lists lists;
  const ir::Op a = source(10, 2);
  const Actions& actions = lists.log({plan_of({on(kHere, 1, a), on(kHere, 2, map_of(10, 11, a.space))})});
  REQUIRE(actions.launches.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(actions.launches[i].sequence == i + 1);
  CHECK(lists.core->counters().donated == 2);  // the maps took their inputs' memory
  lists.completed(4);
  CHECK(lists.core->counters().tasks_done == 4);
  CHECK(lists.core->counters().copies_live == 0);  // nobody held or fetched the results
}

TEST_CASE("a log entry is applied once, in order, however it arrives") {
  Lists lists;
  const ir::Op a = source(10, 1);
  const msg::Log second{1, lists.next + 1, {plan_of({on(kHere, 2, map_of(10, 11, a.space))}, {}, 2)}};
  const msg::Log first{1, lists.next, {plan_of({on(kHere, 1, a)}, {ArrayId{10}})}};
  CHECK(lists.step({second}).launches.empty());
  CHECK(lists.step({first}).launches.size() == 2);
  CHECK(lists.step({first, second}).launches.empty());
  const msg::Log other_term{0, lists.next + 2, {plan_of({on(kHere, 3, source(12, 1))})}};
  CHECK(lists.step({other_term}).launches.empty());  // an older scheduler commands nobody
}

TEST_CASE(
    "a kept plan is run again under other names and on other inputs, and forgotten when the log says so") {
  Lists lists;
  const ir::Op input = source(10, 2);
  lists.log({plan_of({on(kHere, 1, input), on(kHere, 2, source(11, 2))}, {ArrayId{10}, ArrayId{11}}, 1)});
  lists.completed(4);
  msg::Plan plan =
      plan_of({on(kHere, 5, map_of(10, 20, input.space)), on(kHere, 6, map_of(20, 21, input.space))},
              {ArrayId{21}}, 2);
  plan.keep_as = 7;
  lists.log({plan});
  lists.completed(8);
  const msg::Replay again{7, GraphId{3}, 0, OpId{15}, ArrayId{30}, {ArrayId{11}}, {}, 100};
  const Actions& actions = lists.log({again});
  REQUIRE(actions.launches.size() == 4);
  std::vector<OpId> ran;
  for (const Launch& launch : actions.launches) {
    CHECK(launch.run.graph == GraphId{3});
    ran.push_back(launch.run.id);
  }
  CHECK(std::count(ran.begin(), ran.end(), OpId{15}) == 2);
  CHECK(std::count(ran.begin(), ran.end(), OpId{16}) == 2);
  lists.completed(12);
  CHECK(lists.core->holds({ArrayId{31}, 1}));  // the second op's; what it read is gone
  CHECK_FALSE(lists.core->holds({ArrayId{30}, 1}));
  CHECK(lists.core->holds({ArrayId{21}, 1}));  // of the plan itself
  // On what the first replay made.
  CHECK(lists.log({msg::Replay{7, GraphId{4}, 0, OpId{25}, ArrayId{40}, {ArrayId{31}}, {}, 100}})
            .launches.size() == 4);
  lists.completed(16);
  CHECK(lists.core->holds({ArrayId{41}, 0}));

  const auto refused = [&](const msg::Replay& replay) {
    const Actions& none = lists.log({replay});
    CHECK(none.launches.empty());
    return std::any_of(none.to_scheduler.begin(), none.to_scheduler.end(), [&](const msg::Message& m) {
      const auto* failed = std::get_if<msg::TaskFailed>(&m);
      return failed != nullptr && failed->op == replay.first_op && failed->why.code == Errc::kInternal;
    });
  };
  CHECK(refused({8, GraphId{5}, 0, OpId{35}, ArrayId{50}, {ArrayId{11}}, {}, 100}));  // never kept
  CHECK(refused({7, GraphId{5}, 0, OpId{35}, ArrayId{50}, {}, {}, 100}));
  CHECK(refused({7, GraphId{5}, 0, OpId{35}, ArrayId{50}, {ArrayId{999}}, {}, 100}));
  lists.log({plan_of({on(kHere, 40, source(12, 3))}, {ArrayId{12}}, 6)});
  lists.completed(19);
  CHECK(refused({7, GraphId{7}, 0, OpId{45}, ArrayId{50}, {ArrayId{12}}, {}, 100}));  // of another grid
  lists.log({msg::ForgetPlans{{7}}});
  CHECK(refused({7, GraphId{8}, 0, OpId{55}, ArrayId{60}, {ArrayId{11}}, {}, 100}));
}

TEST_CASE("a replay has constants of its own, and those before it keep theirs") {
  Lists lists;
  const auto scaled = [](double value, std::uint16_t number) {
    ir::Op op = map_of(10, 20, source(10, 2).space);
    ir::Tape& tape = *ir::tape_of(op);
    tape.code.push_back({ir::TapeOp::kConst, ir::DType::kFloat64, number, 0, 0, value});
    tape.code.push_back({ir::TapeOp::kMul, ir::DType::kFloat64, 0, 1});
    return op;
  };
  lists.log({plan_of({on(kHere, 1, source(10, 2))}, {ArrayId{10}}, 1)});
  lists.completed(2);
  const ir::Op plain = map_of(10, 21, source(10, 2).space);
  msg::Plan plan = plan_of({on(kHere, 5, scaled(0.5, 2)), on(kHere, 6, plain)}, {}, 2);
  plan.keep_as = 7;
  std::vector<Launch> launches = lists.log({plan}).launches;
  const auto replay = [&](std::uint64_t graph, ir::Constants constants) {
    return lists
        .log({msg::Replay{7,
                          GraphId{graph},
                          0,
                          OpId{10 * graph},
                          ArrayId{100 * graph},
                          {ArrayId{10}},
                          {},
                          100,
                          std::move(constants)}})
        .launches;
  };
  const auto value = [](const Launch& launch) { return ir::tape_of(launch.op->op)->code[1].imm_f; };
  const std::vector<Launch> second = replay(3, {{9}, {0.25}}), third = replay(4, {{8}, {0.25}}),
                            fourth = replay(5, {{9}, {0.125}});
  REQUIRE(fourth.size() == 4);
  CHECK(value(launches[0]) == 0.5);  // all under way
  CHECK(value(second[0]) == 0.25);
  CHECK(value(third[0]) == 0.25);
  CHECK(value(fourth[0]) == 0.125);
  CHECK(third[0].op == second[0].op);     // nothing changed but what the plan does not use
  CHECK(fourth[2].op == launches[2].op);  // no constants
  CHECK(fourth[0].op->geometry == launches[0].op->geometry);
  const Actions& actions = lists.log({msg::Replay{7, GraphId{6}, 0, OpId{60}, ArrayId{600}, {ArrayId{10}}}});
  CHECK(actions.launches.empty());  // refused: too few
  CHECK(std::any_of(actions.to_scheduler.begin(), actions.to_scheduler.end(),
                    [](const msg::Message& m) { return std::holds_alternative<msg::TaskFailed>(m); }));
}

TEST_CASE("a held array stays until its release") {
  Lists lists;
  lists.log({plan_of({on(kHere, 1, source(10, 3))}, {ArrayId{10}})});
  lists.completed(3);
  CHECK(lists.core->counters().copies_live == 3);
  CHECK(lists.core->holds({ArrayId{10}, 2}));
  lists.log({msg::Release{{ArrayId{10}}}});
  CHECK(lists.core->counters().copies_live == 0);
  CHECK(lists.core->device_stats()[0].bytes_used == 0);
  lists.log({msg::Release{{ArrayId{10}}}});  // again: nothing
}

TEST_CASE("a chain of ops is forgotten from its beginning, while its end is held") {
  Lists lists;
  const ir::Grid space = source(10, 2).space;
  lists.log({plan_of({on(kHere, 1, source(10, 2))}, {ArrayId{10}}, 1)});
  lists.completed(2);
  std::uint64_t steps = 2;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    lists.log({plan_of({on(kHere, i + 1, map_of(9 + i, 10 + i, space))}, {ArrayId{10 + i}}, 1 + i)});
    steps += 2;
    lists.completed(steps);
    lists.log({msg::Release{{ArrayId{9 + i}}}, msg::Retire{{OpId{i}}}});
    CHECK(lists.core->counters().ops_known <= 2);
  }
  CHECK(lists.core->holds({ArrayId{110}, 1}));
  CHECK(lists.core->counters().copies_live == 2);
}

TEST_CASE("a fetched block is offered when sealed and freed by its Done, once") {
  Lists lists;
  const ir::Op a = source(10, 1);
  CHECK(lists.log({plan_of({on(kHere, 1, a), on(kClient, 2, fetch_of(10, a.space))})}).batches.empty());
  const Actions& sealed = lists.completed(1);
  REQUIRE(sealed.batches.size() == 1);
  CHECK(sealed.batches[0].first == kClientProcess);
  REQUIRE(sealed.batches[0].second.offers.size() == 1);
  const msg::Offer offer = sealed.batches[0].second.offers[0];
  CHECK(offer.op == OpId{2});
  CHECK(offer.bytes == 64);
  msg::PeerBatch done;
  done.dones.push_back({offer.block, OpId{9}, kHere, kClient});
  lists.from_peer(done, kClientProcess);  // of an op that nobody planned: parked, harmless
  CHECK(lists.core->counters().copies_live == 1);
  done.dones[0].op = OpId{2};
  lists.from_peer(done, kClientProcess);
  CHECK(lists.core->counters().copies_live == 0);
  lists.from_peer(done, kClientProcess);
}

TEST_CASE("a peer's block is borrowed in place, and its Done waits for the kernels that read it") {
  Lists lists;
  const ir::Op a = source(10, 1);
  const Actions& planned = lists.log({plan_of({on(kPeer, 1, a), on(kHere, 2, map_of(10, 11, a.space))})});
  REQUIRE(planned.batches.size() == 1);
  REQUIRE(planned.batches[0].second.subscribes.size() == 1);
  CHECK(planned.batches[0].second.subscribes[0].op == OpId{2});
  msg::PeerBatch batch;
  msg::Offer offer;
  offer.block = {ArrayId{10}, 0}, offer.op = OpId{2}, offer.from = kPeer, offer.to = kHere,
  offer.offset = 512, offer.bytes = 64;
  batch.offers.push_back(offer);
  const Actions& launched = lists.from_peer(batch);
  REQUIRE(launched.launches.size() == 1);
  CHECK(launched.launches[0].inputs[0] == MemoryRef{kPeer, 0, 512});
  CHECK(launched.batches.empty());
  CHECK(lists.from_peer(batch).batches.empty());  // repeated while the kernel reads: no Done yet
  const Actions& ended = lists.completed(1);
  REQUIRE(ended.batches.size() == 1);
  CHECK(ended.batches[0].second.dones.size() == 1);
  CHECK(lists.from_peer(batch).batches[0].second.dones.size() ==
        1);  // repeated when all is over: let go again
}

TEST_CASE(
    "a block is asked for again when its transfer fails: as often as its link breaks, else three times in "
    "all") {
  for (const auto& [code, times] : {std::pair(Errc::kIo, 3), std::pair(Errc::kUnavailable, 102)}) {
    Lists lists;
    lists.step({PeerReady{kOther, false}});
    const ir::Op a = source(10, 1);
    lists.log({plan_of({on(kPeer, 1, a), on(kHere, 2, map_of(10, 11, a.space))})});
    msg::PeerBatch batch;
    msg::Offer offer;
    offer.block = {ArrayId{10}, 0}, offer.op = OpId{2}, offer.from = kPeer, offer.to = kHere,
    offer.bytes = 64;
    batch.offers.push_back(offer);
    int begun = 0;
    while (lists.core->counters().tasks_failed == 0 && begun < 300) {
      const Actions& granted = lists.from_peer(batch);
      REQUIRE(granted.receives.size() == 1);
      ++begun;
      const std::uint64_t transfer = granted.receives[0].transfer;
      lists.step({TransferDone{transfer, {code, "torn"}, msg::Lane::kTcp}});
    }
    CHECK(begun == times);
  }
}

TEST_CASE("a receive whose memory the transport does not let go of is asked for again, into other memory") {
  Lists lists;
  lists.step({PeerReady{kOther, false}});
  const ir::Op a = source(10, 1);
  lists.log({plan_of({on(kPeer, 1, a), on(kHere, 2, map_of(10, 11, a.space))})});
  msg::PeerBatch batch;
  msg::Offer offer;
  offer.block = {ArrayId{10}, 0}, offer.op = OpId{2}, offer.from = kPeer, offer.to = kHere, offer.bytes = 64;
  batch.offers.push_back(offer);
  const auto grant = [&] {
    const Actions& granted = lists.from_peer(batch);
    REQUIRE(granted.receives.size() == 1);
    return granted.receives[0];
  };
  const Receive first = grant();
  const TransferDone held{first.transfer, {Errc::kTimeout, "hung"}, msg::Lane::kTcp, true};
  CHECK(lists.step({held}).batches.size() == 1);  // it asks again
  const Receive second = grant();
  CHECK(second.transfer != first.transfer);
  CHECK(second.to.offset != first.to.offset);
  CHECK(lists.step({TransferDone{second.transfer}}).launches.size() == 1);
  CHECK(lists.core->counters().tasks_failed == 0);
  lists.step({held});  // once more says nothing new
  const auto used = [&] { return lists.core->device_stats()[0].bytes_used; };
  const std::int64_t before = used();
  SUBCASE("and is free when it does") {
    lists.step({TransferDone{first.transfer, {Errc::kTimeout, "hung"}, msg::Lane::kTcp}});
    CHECK(used() < before);
  }
  SUBCASE("which is told, also when all is over") {
    std::optional<std::int64_t> told;
    const auto hear = [&](const Actions& actions) {
      for (const msg::Message& m : actions.to_scheduler)
        if (const auto* progress = std::get_if<msg::Progress>(&m)) told = progress->devices.at(0).bytes_used;
      lists.now += 100 * kMillisecond;
    };
    const auto pass = [&](std::vector<Event> events) { hear(lists.step(std::move(events))); };
    hear(lists.completed(1));
    hear(lists.log({msg::Release{{ArrayId{10}, ArrayId{11}}}, msg::Retire{{OpId{1}, OpId{2}}}}));
    for (int i = 0; i < 3; ++i) pass({});
    CHECK(told == used());
    CHECK(used() > 0);
    CHECK(lists.core->next_deadline() > lists.now + kSecond);  // there is nothing to tell
    pass({TransferDone{first.transfer, {Errc::kTimeout, "hung"}, msg::Lane::kTcp}});
    CHECK(told == 0);
  }
}

TEST_CASE("a log with a gap waits for what is missing, up to so many entries, and then ends its worker") {
  Lists lists;
  const auto come = [&](std::uint64_t first, std::size_t entries) {
    return lists.step({msg::Log{1, first, std::vector<msg::LogEntry>(entries, msg::ForgetPlans{})}}).broken;
  };
  CHECK_FALSE(come(lists.next + 1, limits::kMaxParked));
  CHECK_FALSE(come(lists.next, 1));  // and all that follow
  lists.next += limits::kMaxParked + 1;
  CHECK_FALSE(come(lists.next + 1, limits::kMaxParked));
  const std::optional<Error> broken = come(lists.next + 1 + limits::kMaxParked, 1);
  REQUIRE(broken);
  CHECK(broken->code == Errc::kLimitExceeded);
  CHECK_MESSAGE(broken->message.find("entry " + std::to_string(lists.next) + " ") != std::string::npos,
                broken->message);
}

TEST_CASE("an offer of the wrong size fails the dependents, not the process") {
  Lists lists;
  const ir::Op a = source(10, 1);
  lists.log({plan_of({on(kPeer, 1, a), on(kHere, 2, map_of(10, 11, a.space))})});
  msg::PeerBatch batch;
  msg::Offer offer;
  offer.block = {ArrayId{10}, 0}, offer.op = OpId{2}, offer.from = kPeer, offer.to = kHere, offer.bytes = 63;
  batch.offers.push_back(offer);
  CHECK(lists.from_peer(batch).launches.empty());
  CHECK(lists.core->counters().tasks_failed == 1);
  msg::PeerBatch nonsense;
  nonsense.subscribes.push_back({{ArrayId{10}, -5}, OpId{2}, kHere, kPeer});
  nonsense.subscribes.push_back({{ArrayId{11}, 99}, OpId{2}, kHere, kPeer});
  nonsense.grants.push_back({{ArrayId{11}, 0}, kHere, DeviceId{77}, 1});
  nonsense.dones.push_back({{ArrayId{10}, 1 << 20}, OpId{2}, kHere, kPeer});
  nonsense.gones.push_back({{ArrayId{10}, 0}, kPeer, DeviceId{77}});
  lists.from_peer(nonsense);
  lists.from_peer(nonsense, WorkerId{44});  // a stranger
}

TEST_CASE("what never fits is reported stuck, and a cancellation frees everything") {
  Lists lists(2048);
  const ir::Op a = source(10, 4, 128);  // 1 KiB a block: two fit beside nothing else
  lists.log({plan_of({on(kHere, 1, a)}, {ArrayId{10}})});
  lists.completed(1);
  lists.now += 20 * kSecond;
  lists.step({});
  bool stuck = false;
  for (int i = 0; i < 4 && !stuck; ++i) {
    for (const msg::Message& m : lists.actions.to_scheduler) stuck |= std::holds_alternative<msg::Stuck>(m);
    lists.completed(static_cast<std::uint64_t>(lists.core->counters().launches));
    for (const msg::Message& m : lists.actions.to_scheduler) stuck |= std::holds_alternative<msg::Stuck>(m);
    lists.now += 20 * kSecond;
    lists.step({});
    for (const msg::Message& m : lists.actions.to_scheduler) stuck |= std::holds_alternative<msg::Stuck>(m);
  }
  CHECK(stuck);
  lists.log(
      {msg::CancelGraph{GraphId{1}, {Errc::kOutOfMemory, "does not fit"}}, msg::Release{{ArrayId{10}}}});
  CHECK(lists.core->counters().tasks_live == 0);
  CHECK(lists.core->counters().copies_live == 0);
}

// 2048 bytes, 256 a block: six held, a reserve wanted for four, so what is free belongs to the lowest task.
TEST_CASE("blocks for later tasks do not fill what the lowest task needs, where the reserve finds no place") {
  Lists lists(2048);
  lists.step({PeerReady{kOther, false}});  // peers' blocks are copied
  const ir::Op held = source(10, 6, 32), x = source(11, 2, 32), y = source(12, 1, 32);
  lists.log({plan_of({on(kHere, 1, held)}, {ArrayId{10}})});
  for (std::uint64_t i = 1; i <= 6; ++i) lists.completed(i);
  REQUIRE(lists.core->counters().tasks_live == 0);

  ir::Op wide = map_of(12, 14, y.space);  // one block, three times: counted as three
  wide.operands.resize(3, wide.operands[0]);
  ir::TapeInstr load;
  load.op = ir::TapeOp::kLoad;
  wide.attrs = ir::MapAttrs{{{load}}};
  lists.log(
      {plan_of({on(kPeer, 2, x), on(kPeer, 3, y), on(kHere, 4, map_of(11, 13, x.space)), on(kHere, 5, wide),
                on(kClient, 6, fetch_of(13, x.space)), on(kClient, 7, fetch_of(14, y.space))},
               {}, 2)});
  const auto offer = [&](std::uint64_t array, std::int64_t block, std::uint64_t op) {
    msg::PeerBatch batch;
    msg::Offer offer;
    offer.block = {ArrayId{array}, block}, offer.op = OpId{op}, offer.from = kPeer, offer.to = kHere,
    offer.bytes = 256;
    batch.offers.push_back(offer);
    return lists.from_peer(batch).receives;
  };
  CHECK(offer(12, 0, 5).empty());
  CHECK(offer(11, 1, 4).empty());
  lists.now += 20 * kSecond;
  for (const msg::Message& m : lists.step({}).to_scheduler)  // the lowest waits for its block, not for memory
    CHECK_FALSE(std::holds_alternative<msg::Stuck>(m));
  const std::vector<Receive> granted = offer(11, 0, 4);
  REQUIRE(granted.size() == 1);
  const Actions& launched = lists.step({TransferDone{granted[0].transfer}});
  REQUIRE(launched.launches.size() == 1);
  CHECK(launched.launches[0].run.id == OpId{4});
  CHECK(launched.launches[0].point == 0);
}

// 4096 bytes above a disk: 1536 kept for the pair, 1536 of blocks in the making, room for one of the two results.
TEST_CASE("a step gives back the first result's memory when the second finds none, and waits for news") {
  Lists lists(4096, 256, 1 << 20);
  const Actions& planned =
      lists.log({plan_of({on(kHere, 1, source(10, 3, 64)), on(kHere, 2, pair_of(20, 96))},
                         {ArrayId{10}, ArrayId{20}, ArrayId{21}})});
  REQUIRE(planned.launches.size() == 3);
  for (const Launch& launch : planned.launches) CHECK(launch.run.id == OpId{1});
  CHECK(lists.step({}).launches.empty());
  const Actions& after = lists.completed(3);  // its turn: what is kept is for it
  REQUIRE(after.launches.size() == 1);
  CHECK(after.launches[0].run.id == OpId{2});
  lists.completed(4);
  CHECK(lists.core->holds({ArrayId{20}, 0}));
  CHECK(lists.core->holds({ArrayId{21}, 0}));
  CHECK(lists.core->counters().tasks_failed == 0);
}

// 4096 bytes above a disk: seven blocks of 512, of which peers read some in place, and then a step that needs 1536.
TEST_CASE("no block is lent where the reserve has not found its place yet") {
  Lists lists(4096, 256, 1 << 20);
  const ir::Op a = source(10, 7, 64);
  lists.log({plan_of({on(kHere, 1, a), on(kPeer, 2, map_of(10, 11, a.space))}, {ArrayId{10}})});
  lists.completed(7);
  const auto lent = [&](std::int64_t block) {
    msg::PeerBatch batch;
    batch.subscribes.push_back({{ArrayId{10}, block}, OpId{2}, kHere, kPeer});
    const Actions& actions = lists.from_peer(batch);
    REQUIRE(actions.batches.size() == 1);
    REQUIRE(actions.batches[0].second.offers.size() == 1);
    return actions.batches[0].second.offers[0].slab != msg::kNoSlab;
  };
  CHECK(lent(0));
  CHECK(lent(3));
  std::vector<TierIo> ios = lists.log({plan_of({on(kHere, 3, source(30, 1, 192))}, {}, 2)}).ios;
  REQUIRE(!ios.empty());
  CHECK_FALSE(lent(5));  // there would be bytes enough, but not in a row
  std::size_t launched = 0;
  for (int rounds = 0; launched == 0 && rounds < 10; ++rounds) {
    for (const TierIo& io : std::exchange(ios, {})) {
      const Actions& actions = lists.step({IoDone{io.io}});
      launched += actions.launches.size();
      ios.insert(ios.end(), actions.ios.begin(), actions.ios.end());
    }
  }
  CHECK(launched == 1);
  lists.completed(8);
  CHECK(lent(1));  // there it is
}

TEST_CASE(
    "transfers are timed a peer: those beside each other share the time, failed ones and other lanes do not "
    "count") {
  Lists lists;
  lists.step({PeerReady{kOther, false}});  // peers' blocks are copied
  const ir::Op x = source(11, 4, 32);
  lists.log({plan_of({on(kPeer, 2, x), on(kHere, 4, map_of(11, 13, x.space))}, {ArrayId{13}})});
  const auto offer = [&](std::int64_t block) {
    msg::PeerBatch batch;
    msg::Offer offer;
    offer.block = {ArrayId{11}, block}, offer.op = OpId{4}, offer.from = kPeer, offer.to = kHere,
    offer.bytes = 256;
    batch.offers.push_back(offer);
    return lists.from_peer(batch).receives.at(0).transfer;
  };
  std::vector<msg::LinkStats> told;
  const auto step = [&](std::vector<Event> events, TimeNs later) {
    lists.now += later;
    for (const msg::Message& m : lists.step(std::move(events)).to_scheduler) {
      if (const auto* progress = std::get_if<msg::Progress>(&m))
        told.insert(told.end(), progress->links.begin(), progress->links.end());
    }
  };
  const std::uint64_t first = offer(0), second = offer(1);  // each step takes 1 us
  step({TransferDone{first, {Errc::kOk, {}}, msg::Lane::kTcp}}, 0);
  step({TransferDone{second, {Errc::kOk, {}}, msg::Lane::kTcp}}, 0);
  step({}, 100 * kMillisecond);
  const std::uint64_t third = offer(2);
  step({TransferDone{third, {Errc::kIo, "torn"}, msg::Lane::kTcp}}, 5 * kMillisecond);
  step({}, 100 * kMillisecond);
  REQUIRE(!told.empty());
  CHECK(told.back().from == kOther);
  CHECK(told.back().size_class == 0);
  CHECK(told.back().transfers == 2);
  CHECK(told.back().bytes == 512);
  CHECK(told.back().busy_ns == 3 * kMicrosecond);  // from the first grant to the second arrival
  // A peer that dies while bytes are on their way is forgotten, and what ends then harms nothing.
  const std::uint64_t last = offer(3);
  lists.log({msg::PeerLost{kOther}});
  step({TransferDone{last, {Errc::kUnavailable, "gone"}, msg::Lane::kTcp}}, kMillisecond);
}

namespace {

// Two sessions with 400 blocks each to make; how many of the first's are among the first 200 steps. `slow`: the first one's
// steps take so many times what was predicted.
int steps_of_first(std::uint32_t weight, std::uint32_t other_weight, std::int64_t slow) {
  Lists lists(1 << 20, 2);
  msg::Plan one = plan_of({on(kHere, 1, source(10, 400))}, {}, 1);
  msg::Plan two = plan_of({on(kHere, 2, source(11, 400))}, {}, 2);
  one.session = SessionId{1}, one.weight = weight;
  two.session = SessionId{2}, two.weight = other_weight;
  std::deque<Launch> flying;
  const auto take = [&](const Actions& actions) {
    flying.insert(flying.end(), actions.launches.begin(), actions.launches.end());
  };
  take(lists.log({one, two}));
  int mine = 0;
  for (int i = 0; i < 400 + 200; ++i) {
    REQUIRE(!flying.empty());
    const Launch launch = flying.front();
    flying.pop_front();
    const bool first = launch.run.id == OpId{1};
    if (i >= 300) mine += first && i < 500;  // what was queued before is not what was shared
    take(lists.step({StreamCompleted{0, 0, launch.sequence, launch.op->model_ns * (first ? slow : 1)}}));
  }
  return mine;
}

}  // namespace

TEST_CASE("sessions share a device's time by weight, as it was taken, not as it was predicted") {
  CHECK(steps_of_first(100, 100, 1) == doctest::Approx(100).epsilon(0.1));
  CHECK(steps_of_first(300, 100, 1) == doctest::Approx(150).epsilon(0.1));
  CHECK(steps_of_first(100, 100, 3) == doctest::Approx(50).epsilon(0.1));
}

TEST_CASE("of one session's graphs the one of higher priority goes first") {
  Lists lists;
  msg::Plan later = plan_of({on(kHere, 2, source(11, 4))}, {}, 2);
  later.priority = 1;
  // Both at once: nothing has been launched yet.
  const Actions& actions = lists.log({plan_of({on(kHere, 1, source(10, 4))}), later});
  REQUIRE(actions.launches.size() == 8);
  for (int i = 0; i < 8; ++i)
    CHECK(actions.launches[static_cast<std::size_t>(i)].run.id == OpId{i < 4 ? 2u : 1u});
}

namespace {
std::vector<msg::TracedStep> of_kind(const std::vector<msg::TracedStep>& all, msg::TraceKind kind) {
  std::vector<msg::TracedStep> out;
  for (const msg::TracedStep& note : all)
    if (note.kind == kind) out.push_back(note);
  return out;
}
}  // namespace

TEST_CASE("why a device idled, what came and from where are told when it is over") {
  Lists lists;
  lists.now += kMillisecond;
  const ir::Op theirs = source(10, 1);
  const Actions& actions =
      lists.log({plan_of({on(kPeer, 1, theirs), on(kHere, 2, map_of(10, 11, theirs.space))}, {ArrayId{11}})});
  // Until now there was nothing to do.
  auto waits = of_kind(actions.notes, msg::TraceKind::kNoWork);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].device == kHere);
  CHECK(waits[0].end_ns == lists.now);
  CHECK(waits[0].end_ns - waits[0].start_ns >= kMillisecond);
  // Now it waits for the peer's block, and says so before it has come.
  auto open = lists.core->waits(lists.now + 5);
  REQUIRE(open.size() == 1);
  CHECK(open[0].kind == msg::TraceKind::kNoInputs);
  CHECK(open[0].op == OpId{2});
  CHECK(open[0].end_ns - open[0].start_ns == 5);
  lists.now += kMillisecond;
  msg::PeerBatch batch;
  msg::Offer offer;
  offer.block = {ArrayId{10}, 0}, offer.op = OpId{2}, offer.from = kPeer, offer.to = kHere, offer.bytes = 64;
  batch.offers.push_back(offer);
  const Actions& came = lists.from_peer(batch);
  REQUIRE(came.launches.size() == 1);
  waits = of_kind(came.notes, msg::TraceKind::kNoInputs);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].op == OpId{2});
  CHECK(waits[0].graph == GraphId{1});
  const auto moved = of_kind(came.notes, msg::TraceKind::kTransfer);
  REQUIRE(moved.size() == 1);  // read in place
  CHECK(moved[0].op == OpId{1});
  CHECK(moved[0].point == 0);
  CHECK(moved[0].user == OpId{2});
  CHECK(moved[0].device == kHere);
  CHECK(moved[0].peer == kPeer);
  CHECK(moved[0].lane == msg::Lane::kMapped);
  CHECK(moved[0].bytes == 64);
  CHECK(lists.core->waits(lists.now).empty());
  // What it read in place it has let go already: the step is enqueued.
  CHECK(lists.core->blocks({1, ArrayId{10}, 0, 10}).copies.empty());
  lists.completed(1);
  const msg::BlocksReply made = lists.core->blocks({1, ArrayId{11}, 0, 10});
  REQUIRE(made.copies.size() == 1);
  CHECK(made.copies[0].state == msg::BlockState::kHere);
  CHECK(made.copies[0].owned);
  CHECK(lists.core->blocks({1, ArrayId{77}, 0, 10}).copies.empty());
}

TEST_CASE("a device whose tasks do not fit waits for memory") {
  Lists lists(1024);  // bytes: two blocks of 512
  const ir::Op big = source(10, 4, 64);
  lists.log({plan_of({on(kHere, 1, big)}, {ArrayId{10}})});
  lists.completed(1), lists.completed(2);
  lists.step({});
  const auto open = lists.core->waits(lists.now);
  REQUIRE(open.size() == 1);
  CHECK(open[0].kind == msg::TraceKind::kNoMemory);
  CHECK(open[0].op == OpId{1});
}

TEST_CASE(
    "steps of an op that runs alone wait until all else has come to rest, and all else waits for them") {
  Lists lists;
  const ir::Op a = source(10, 2);
  CHECK(lists.log({plan_of({on(kHere, 1, a)}, {ArrayId{10}})}).launches.size() == 2);
  ir::Op b = source(11, 2);
  lists.log({plan_of({on(kPeer, 2, b)}, {ArrayId{11}}, 2)});
  // Two of its blocks are to be made again here, after a worker died with them.
  msg::PlannedOp again{OpId{3}, b, ir::Placement::of_runs(b.space.counts(), {{0, 2, kHere}}), false, OpId{2}};
  again.alone = true;
  const Actions& actions = lists.log({msg::Recover{1, {plan_of({again}, {}, 2)}}});
  CHECK(actions.launches.empty());
  CHECK(lists.log({plan_of({on(kHere, 4, source(12, 1))}, {}, 3)}).launches.empty());
  CHECK(lists.completed(1).launches.empty());
  lists.completed(2);
  REQUIRE(actions.launches.size() == 1);
  CHECK(actions.launches[0].run.id == OpId{3});
  lists.completed(3);
  REQUIRE(actions.launches.size() == 1);
  const OpId second = actions.launches[0].run.id;
  lists.completed(4);
  if (second != OpId{3}) {  // something else had its turn; then it comes alone again
    REQUIRE(actions.launches.size() == 1);
    CHECK(actions.launches[0].run.id == OpId{3});
  }
  lists.completed(5);
  CHECK(lists.core->counters().tasks_done == 5);
  CHECK(lists.core->counters().tasks_failed == 0);
}

TEST_CASE("a doomed task fails without running, and so do its dependents, with its story") {
  Lists lists;
  const ir::Op b = source(11, 2);
  lists.log({plan_of({on(kPeer, 2, b), on(kHere, 3, map_of(11, 12, b.space))}, {ArrayId{12}}, 2)});
  msg::PlannedOp doomed{OpId{4}, b, ir::Placement::of_runs(b.space.counts(), {{1, 1, kHere}}), false,
                        OpId{2}};
  doomed.op.kind = ir::OpKind::kCall;
  doomed.op.attrs = ir::CallAttrs{.kernel = "doomed"};
  doomed.doomed = {Errc::kTaskFailed, "three workers"};
  const Actions& actions = lists.log({msg::Recover{1, {plan_of({doomed}, {}, 2)}}});
  CHECK(actions.launches.empty());
  std::vector<msg::TaskFailed> failures;
  for (const msg::Message& message : actions.to_scheduler) {
    if (const auto* failed = std::get_if<msg::TaskFailed>(&message)) failures.push_back(*failed);
  }
  REQUIRE(failures.size() == 2);
  for (const msg::TaskFailed& failed : failures) {
    CHECK(failed.point == 1);
    CHECK(failed.why == msg::Outcome{Errc::kTaskFailed, "three workers"});
  }
  CHECK(lists.core->counters().tasks_failed == 2);
}

// Whoever hears that all have applied it may take away what its tasks have written. Other steps may run on for ever.
TEST_CASE("a cancellation is not told before the steps of a save that ran then are over") {
  bool saves = false;
  SUBCASE("a save") { saves = true; }
  SUBCASE("something else") {}
  Lists lists;
  std::uint64_t told = 0;
  const auto hear = [&](const Actions& actions) {
    for (const msg::Message& message : actions.to_scheduler) {
      if (const auto* progress = std::get_if<msg::Progress>(&message)) told = progress->log_applied;
    }
    return told;
  };
  ir::Op op = source(10, 2);
  if (saves) {
    op.kind = ir::OpKind::kCall;
    op.attrs = ir::CallAttrs{.kernel = std::string(ir::saving::kCommitNpy)};
  }
  const Actions& launched = lists.log({plan_of({on(kHere, 1, op)}, {ArrayId{10}})});
  REQUIRE(launched.launches.size() == 2);
  hear(launched);
  const std::uint64_t cancelled = lists.next;
  hear(lists.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "told to"}}}));
  hear(lists.log(
      {plan_of({on(kHere, 2, source(20, 1))}, {ArrayId{20}}, 2)}));  // what comes later is no sooner told
  for (int i = 0; i < 3; ++i) {
    lists.now += kSecond;
    CHECK((hear(lists.step({})) < cancelled) == saves);
  }
  if (!saves) return;
  CHECK(hear(lists.completed(1)) < cancelled);
  lists.now += kSecond;
  CHECK(hear(lists.step({})) < cancelled);
  hear(lists.completed(2));
  lists.now += kSecond;
  hear(lists.step({}));
  CHECK(told == lists.next - 1);
}
