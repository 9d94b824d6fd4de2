// Who is still to read what was lost: clients that fetch it, and very many tasks.
#include <doctest/doctest.h>

#include "losing.h"

namespace tilewise::scheduler::test {
namespace {

TEST_CASE("what a client has not got yet is made again, also if all was made") {
  Losing w;
  w.delivers = false;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1), fetch(1, kFourBlocks)});
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  const ArrayId array{plan.ops.at(0).op.outputs.at(0).array};
  w.complete(plan);
  const auto ends = [&](std::int64_t again) {
    const msg::Recover recover = w.log<msg::Recover>(2).at(0);
    REQUIRE(recover.plans.size() == (again > 0 ? 1 : 0));
    if (again > 0) CHECK(points(recover.plans[0].ops.at(0)) == again);
    w.finish(recover);
    CHECK(w.count<msg::GraphDone>(10) == 0);
    w.deliver(10, 1);
  };
  SUBCASE("lost on its way") {
    w.lose_first();
    w.answer(2);
    CHECK(w.log<msg::Recover>(2).empty());  // the client has been asked too
    SUBCASE("nothing is there") {
      w.tell();
      ends(4);
    }
    SUBCASE("some of it is there") {
      w.tell({{1, array, {{0, 1}, {3, 1}}}});
      ends(2);
    }
    SUBCASE("all of it is there") {
      w.tell({{1, array, {}}});
      ends(0);
    }
    SUBCASE("the client speaks of something else") {
      w.tell({{2, array, {}}, {1, ArrayId{array.value + 1}, {}}});
      ends(4);
    }
    SUBCASE("the client does not answer") {
      CHECK(w.core.next_deadline() <= w.now + Options{}.client_answer_ns);
      w.wait(Options{}.client_answer_ns);
      CHECK(w.core.counters().clients_missed == 1);
      w.tell({{1, array, {}}});  // too late
      CHECK(w.core.counters().late_answers == 1);
      ends(4);
    }
    SUBCASE("the client says what only workers may") {
      msg::Held held{w.log<msg::PeerLost>(10).back().version, {}, {}, true};
      held.blocks = {{array, w.w2.devices[0], {{0, 4}}, {}}};
      w.receive(10, held);
      ends(4);
    }
  }
  SUBCASE("said to be there while others are asked what they have") {
    w.lose_first();
    w.deliver(10, 1);
    w.answer(2);
    w.tell({{1, array, {}}});
    CHECK(w.log<msg::Recover>(2).at(0).plans.empty());
  }
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE("a block that very many tasks read is made again only for those that have not been begun") {
  Losing w;
  constexpr std::int64_t kReaders = 10'000;
  const ir::Grid one = grid({1}, {1}), many = grid({kReaders}, {1});
  ir::Op reads = w.on(map(2, many, {1}), w.w2);
  reads.operands[0].view = *ir::View::identity({1}).broadcast_to({kReaders});
  w.submit(10, 1, {w.on(fill(1, one), w.w1), reads}, {2});
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  REQUIRE(plan.ops.size() == 2);
  w.lose_first();
  msg::Held held{w.log<msg::PeerLost>(2).back().version, {}, {}, false};
  std::int64_t next = kReaders;
  SUBCASE("all have been") {}
  SUBCASE("the last one has not") { --next; }
  held.shares = {{plan.ops[1].id, w.w2.devices[0], next, {}}};
  w.receive(2, held);
  CHECK(w.log<msg::Recover>(2).at(0).plans.size() == (next < kReaders ? 1 : 0));
}

TEST_CASE("a client that cannot be asked what it has got is not waited for") {
  Losing w;
  w.delivers = false;
  w.join(11, w.client());
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1)}, {1});
  w.submit(10, 2, {fetch(1, kFourBlocks)});
  w.complete(w.log<msg::Plan>(1)[0]);
  SUBCASE("lost meanwhile") {
    w.lose_first();
    w.answer(2);
    CHECK(w.log<msg::Recover>(2).empty());
    w.drop(10);
  }
  SUBCASE("away") {
    w.step({Broken{Conn{10}}});
    w.lose_first();
    w.answer(2);
  }
  CHECK(w.log<msg::Recover>(2).size() == 1);
  CHECK(w.log<msg::PeerLost>(11).size() == 1);  // it waits for nothing that was lost
}

TEST_CASE("a client that waits for an array some of whose blocks could not be made again gets the others") {
  Losing w;
  w.delivers = false;
  w.add_worker(3, 1, "three");
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), w.w1), fetch(1, kFourBlocks)});
  w.lose_first();
  w.answer(2);
  w.tell();
  w.answer(3);
  const msg::Recover first = w.log<msg::Recover>(3).at(0);
  for (const msg::Plan& plan : first.plans) w.complete(plan, 1);  // one failed on each
  w.workers.erase(w.workers.begin());
  w.drop(2);
  w.answer(3);
  w.tell();
  REQUIRE(w.log<msg::Recover>(3).size() == 2);
  const msg::Recover second = w.log<msg::Recover>(3)[1];
  REQUIRE(second.plans.size() == 1);
  w.finish(second);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  w.deliver(10, 1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kTaskFailed);
}

}  // namespace
}  // namespace tilewise::scheduler::test
