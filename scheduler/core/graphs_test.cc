// The life of graphs: failures, cancellation, loss, memory.
#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

TEST_CASE("progress is a maximum, never a difference") {
  World w;
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  const msg::PlannedOp op = w.log<msg::Plan>(1)[0].ops[0];
  const auto report = [&](std::int64_t completed) {
    w.receive(1, msg::Progress{0, {{op.id, me.devices[0], completed, 0}}, {}, {}});
  };
  w.wait(kSecond);
  report(10);
  report(4);
  report(10);
  w.wait(kSecond);
  CHECK(w.last<msg::GraphProgress>(10)->done == 10);
  CHECK(w.last<msg::GraphProgress>(10)->total == 16);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  report(17);  // more than it owns
  CHECK(w.count<msg::Refusal>(1) == 1);
  report(16);
  CHECK(w.count<msg::GraphDone>(10) == 1);
  report(16);
  w.receive(1, msg::TaskFailed{op.id, me.devices[0], 0, {Errc::kTaskFailed, "late"}});
  CHECK(w.count<msg::GraphDone>(10) == 1);
  w.receive(1, msg::Progress{99});
  CHECK(mentions(w.last<msg::Refusal>(1)->why.message, "99"));
}

TEST_CASE("clients hear of progress at most so often") {
  World w;
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  const msg::PlannedOp op = w.log<msg::Plan>(1)[0].ops[0];
  for (int i = 1; i < 16; ++i) {
    w.now += 10 * kMillisecond;
    w.receive(1, msg::Progress{0, {{op.id, me.devices[0], i, 0}}, {}, {}});
  }
  CHECK(w.count<msg::GraphProgress>(10) == 1);
  CHECK(w.core.next_deadline() <= w.now + 100 * kMillisecond);
  w.wait(100 * kMillisecond);
  CHECK(w.last<msg::GraphProgress>(10)->done == 15);
}

TEST_CASE("progress for another's device is refused") {
  World w;
  w.add_worker(1, 1);
  const auto other = w.add_worker(2, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  const msg::PlannedOp op = w.log<msg::Plan>(1)[0].ops[0];
  const auto before = w.core.digest();
  w.receive(1, msg::Progress{0, {{op.id, other.devices[0], 8, 0}}, {}, {}});
  w.receive(1, msg::Progress{0, {{OpId{12345}, other.devices[0], 8, 0}}, {}, {}});  // long retired, say
  w.receive(1, msg::TaskFailed{op.id, other.devices[0], 0, {Errc::kTaskFailed, "not mine"}});
  w.receive(1, msg::Stuck{GraphId{1}, op.id, other.devices[0], 1, 0});
  CHECK(w.core.digest() == before);
  CHECK(w.count<msg::Refusal>(1) == 1);
}

TEST_CASE("a failed task is the root cause of its graph's end") {
  World w;
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  ir::Op op = random(1, kFourByFour);
  op.label = "noise";
  w.submit(10, 1, {op}, {1});
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  w.receive(1, msg::TaskFailed{plan.ops[0].id, me.devices[0], 3, {Errc::kDeviceError, "first"}});
  w.receive(1, msg::TaskFailed{plan.ops[0].id, me.devices[0], 4, {Errc::kDeviceError, "second"}});
  CHECK(w.count<msg::GraphDone>(10) == 0);  // the rest still runs
  w.complete(plan, 2);
  const auto outcome = w.last<msg::GraphDone>(10)->outcome;
  CHECK(outcome.code == Errc::kDeviceError);
  CHECK(mentions(outcome.message, "first"));
  CHECK(mentions(outcome.message, "'noise'"));
  SUBCASE("failures without a cause have one all the same") {
    w.submit(10, 2, {fill(2, kFourByFour)}, {2});
    w.complete(w.log<msg::Plan>(1)[1], 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kTaskFailed);
  }
  SUBCASE("a worker that cannot take an op ends the graph") {
    w.submit(10, 2, {fill(2, kFourByFour)}, {2});
    w.receive(1, msg::TaskFailed{
                     w.log<msg::Plan>(1)[1].ops[0].id, me.devices[0], 0, {Errc::kInternal, "cannot take"}});
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kInternal);
    CHECK(w.log<msg::CancelGraph>(1).size() == 1);
  }
}

TEST_CASE("cancelling ends a graph, its readers, and nothing else") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  w.submit(10, 2, {map(2, kFourByFour, {1})}, {2});
  w.submit(10, 3, {fill(3, kFourByFour)}, {3});
  w.receive(10, msg::CancelRequest{1});
  CHECK(w.log<msg::CancelGraph>(1).size() == 2);
  CHECK(w.count<msg::GraphDone>(10) == 2);
  CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kCancelled);
  w.receive(10, msg::CancelRequest{1});
  w.receive(10, msg::CancelRequest{77});
  CHECK(w.count<msg::GraphDone>(10) == 2);
  CHECK(w.submit(10, 4, {map(4, kFourByFour, {1})}, {4}).outcome.code == Errc::kCancelled);
  // Nothing is forgotten before the worker knows of the cancellation.
  w.receive(10, msg::ReleaseArrays{{1, 2}});
  CHECK(w.log<msg::Retire>(1).empty());
  w.apply_logs();
  REQUIRE(w.log<msg::Retire>(1).size() == 1);
  CHECK(w.log<msg::Retire>(1)[0].ops.size() == 2);
  w.complete(w.log<msg::Plan>(1)[2]);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  w.receive(10, msg::CancelRequest{3});  // too late
  CHECK(w.log<msg::CancelGraph>(1).size() == 2);
}

TEST_CASE("a fetch ends with what it waits for, also across requests") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  const auto reply = w.submit(10, 2, {fetch(1, kFourByFour)});
  REQUIRE(reply.arrays.size() == 1);
  CHECK(reply.arrays[0].second == w.log<msg::Plan>(1)[0].holds[0]);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  SUBCASE("made") {
    w.complete(w.log<msg::Plan>(1)[0]);
    CHECK(w.count<msg::GraphDone>(10) == 2);
    w.submit(10, 3, {fetch(1, kFourByFour)});  // there already
    CHECK(w.count<msg::GraphDone>(10) == 3);
    CHECK(w.last<msg::GraphDone>(10)->tasks == 0);
  }
  SUBCASE("cancelled") {
    w.receive(10, msg::CancelRequest{1});
    CHECK(w.count<msg::GraphDone>(10) == 2);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kCancelled);
    w.apply_logs();
    w.receive(10, msg::ReleaseArrays{{1}});
  }
  SUBCASE("the fetch alone is cancelled") {
    w.receive(10, msg::CancelRequest{2});
    CHECK(w.count<msg::GraphDone>(10) == 1);
    w.apply_logs();
    w.complete(w.log<msg::Plan>(1)[0]);
    CHECK(w.last<msg::GraphDone>(10)->request == 1);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  }
}

TEST_CASE("a request that fetches ends when its client has everything") {
  World w;
  w.delivers = false;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour), fetch(1, kFourByFour)});
  w.submit(10, 2,
           {fill(2, kFourByFour), map(3, kFourByFour, {2}), fetch(2, kFourByFour), fetch(3, kFourByFour)},
           {2});
  const auto plans = w.log<msg::Plan>(1);
  w.complete(plans[0]);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  w.deliver(10, 77);  // no such request
  w.deliver(10, 2);   // before the scheduler knows that it is made
  CHECK(w.count<msg::GraphDone>(10) == 0);
  w.deliver(10, 1);
  w.deliver(10, 1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->request == 1);
  w.complete(plans[1]);
  REQUIRE(w.count<msg::GraphDone>(10) == 2);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  w.submit(10, 3, {fetch(2, kFourByFour)});  // there already, but not at the client
  CHECK(w.count<msg::GraphDone>(10) == 2);
  w.join(11, w.client());
  w.deliver(11, 3);  // of another session
  CHECK(w.count<msg::GraphDone>(10) == 2);
  SUBCASE("it may be told that it is there") { w.deliver(10, 3); }
  SUBCASE("or cancel") { w.receive(10, msg::CancelRequest{3}); }
  CHECK(w.count<msg::GraphDone>(10) == 3);
}

TEST_CASE("provided blocks are there at once") {
  World w;
  w.add_worker(1, 2);
  const auto me = w.join(10, w.client());
  const auto reply = w.submit(10, 1, {provide(1, kFourByFour), map(2, kFourByFour, {1})}, {1, 2});
  REQUIRE_MESSAGE(reply.outcome.ok(), reply.outcome.message);
  REQUIRE(reply.arrays.size() == 1);
  CHECK(reply.arrays[0].first == 1);
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  CHECK(plan.ops[0].placement.devices() == me.devices);
  CHECK(plan.ops[1].placement.devices().size() == 2);  // never on the client
  w.complete(plan);
  CHECK(w.last<msg::GraphDone>(10)->tasks == 16);
}

TEST_CASE("a lost client takes its work along") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.join(11, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  w.complete(w.log<msg::Plan>(1)[0]);
  w.submit(10, 2, {map(2, kFourByFour, {1}), fetch(2, kFourByFour)}, {2});
  w.submit(11, 1, {fill(1, kFourByFour)}, {1});
  w.drop(10);
  CHECK(w.log<msg::PeerLost>(1).size() == 1);
  CHECK(w.log<msg::PeerLost>(11).empty());
  CHECK(w.log<msg::CancelGraph>(1).size() == 1);
  REQUIRE(w.log<msg::Release>(1).size() == 1);
  CHECK(w.log<msg::Release>(1)[0].arrays.size() == 2);
  w.apply_logs();
  w.complete(w.log<msg::Plan>(1)[2]);
  CHECK(w.last<msg::GraphDone>(11)->outcome.ok());
  w.receive(11, msg::StatusRequest{});
  CHECK(w.last<msg::StatusReply>(11)->arrays_live == 1);
}

TEST_CASE("the stuck graph that comes first is ended, one at a time") {
  World w;
  const auto me = w.add_worker(1, 2);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  w.submit(10, 2, {fill(2, kFourByFour)}, {2}, 5);  // higher priority: before the first
  const auto plans = w.log<msg::Plan>(1);
  const auto stuck = [&](int i) {
    return Received{Conn{1}, msg::Stuck{plans[static_cast<std::size_t>(i)].graph,
                                        plans[static_cast<std::size_t>(i)].ops[0].id,
                                        me.devices[static_cast<std::size_t>(i)], 4096, 100}};
  };
  w.step({stuck(0), stuck(1), stuck(1)});
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  const msg::GraphDone done = *w.last<msg::GraphDone>(10);
  CHECK(done.request == 2);
  CHECK(done.outcome.code == Errc::kOutOfMemory);
  CHECK(mentions(done.outcome.message, "4096"));
  CHECK(mentions(done.outcome.message, "w1/host:1"));
  SUBCASE("the other gets its chance") {
    w.receive(1, msg::Progress{0, {{plans[0].ops[0].id, me.devices[0], 1, 0}}, {}, {}});
    w.wait(2 * kSecond);
    CHECK(w.count<msg::GraphDone>(10) == 1);
  }
  SUBCASE("and is ended if it does not help") {
    CHECK(w.core.next_deadline() <= w.now + kSecond);
    w.wait(2 * kSecond);
    CHECK(w.count<msg::GraphDone>(10) == 2);
  }
}

TEST_CASE("a graph that is stuck because the system refuses a device memory ends with the system's reason") {
  World w;
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  msg::Stuck stuck{plan.graph, plan.ops[0].id, me.devices[0], 4096, 0};
  Errc expected = Errc::kOutOfMemory;
  SUBCASE("no descriptor") {
    stuck.refused = {Errc::kLimitExceeded, "a reason"}, expected = Errc::kLimitExceeded;
  }
  SUBCASE("no memory") { stuck.refused = {Errc::kOutOfMemory, "a reason"}; }
  w.receive(1, stuck);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  const msg::GraphDone done = *w.last<msg::GraphDone>(10);
  CHECK(done.outcome.code == expected);
  CHECK(mentions(done.outcome.message, "the system refused more: a reason"));
}

TEST_CASE("nothing goes before the unfinished work that it reads, whatever its priority") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1}, -2);
  w.submit(10, 2, {map(2, kFourByFour, {1})}, {2}, 5);
  w.submit(10, 3, {fill(3, kFourByFour)}, {3}, 5);
  const auto plans = w.log<msg::Plan>(1);
  REQUIRE(plans.size() == 3);
  CHECK(plans[1].priority == -2);
  CHECK(plans[2].priority == 5);
  w.complete(plans[0]);
  w.submit(10, 4, {map(4, kFourByFour, {1})}, {4}, 5);
  CHECK(w.log<msg::Plan>(1).back().priority == 5);
}

TEST_CASE("a session's weight goes with its plans, and one that is none is refused") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.receive(10, msg::Submit{1, 0, {fill(1, kFourByFour)}, {1}, 250});
  const msg::Plan plan = w.log<msg::Plan>(1).at(0);
  CHECK(plan.weight == 250);
  CHECK(plan.session == w.last<msg::Welcome>(10)->session);
  for (const std::uint32_t weight : {0u, msg::kMaxWeight + 1}) {
    w.receive(10, msg::Submit{2 + weight, 0, {fill(2, kFourByFour)}, {2}, weight});
    const auto reply = *w.last<msg::SubmitReply>(10);
    CHECK(reply.outcome.code == Errc::kInvalidArgument);
    CHECK(mentions(reply.outcome.message, "weight"));
  }
}

TEST_CASE("log entries that nobody waits for wait for company") {
  World w({}, 1 * kMillisecond);
  w.add_worker(1, 1);
  w.add_worker(2, 1);
  w.join(10, w.client());
  const ir::Grid one = grid({4}, {4});
  const auto on = [](ir::Op op, std::uint32_t device) {
    op.hint.devices = {DeviceId{device}};
    return op;
  };
  REQUIRE(w.submit(10, 1, {on(fill(1, one), 1)}, {1}).outcome.ok());
  CHECK(w.log<msg::Plan>(1).size() == 1);  // runs it
  CHECK(w.log<msg::Plan>(2).empty());
  w.wait(1 * kMillisecond - 1);
  CHECK(w.log<msg::Plan>(2).empty());
  w.wait(1);
  CHECK(w.log<msg::Plan>(2).size() == 1);  // and knows it before somebody can ask
  w.complete(w.log<msg::Plan>(1)[0]);

  // Reading what the other one has wakes the other one, and takes along what is left, in order.
  w.receive(10, msg::ReleaseArrays{{7}});
  REQUIRE(w.submit(10, 2, {on(map(2, one, {1}), 2)}, {2}).outcome.ok());
  CHECK(w.log<msg::Plan>(1).size() == 2);
  CHECK(w.log<msg::Plan>(2).size() == 2);
  w.complete(w.log<msg::Plan>(2)[1]);
  w.receive(10, msg::ReleaseArrays{{1}});
  CHECK(w.log<msg::Release>(1).empty());
  CHECK(w.log<msg::Retire>(1).empty());
  REQUIRE(w.submit(10, 3, {on(map(3, one, {2}), 2)}, {3}).outcome.ok());
  CHECK(w.log<msg::Release>(1).empty());
  CHECK(w.log<msg::Release>(2).size() == 1);
  CHECK(w.log<msg::Retire>(2).size() == 1);
  CHECK(w.log<msg::Plan>(2).size() == 3);
  CHECK(w.core.next_deadline() <= w.now + 1 * kMillisecond);
  w.wait(1 * kMillisecond);
  CHECK(w.log<msg::Release>(1).size() == 1);
  CHECK(w.log<msg::Plan>(1).size() == 3);
}

}  // namespace
}  // namespace tilewise::scheduler::test
