#include <doctest/doctest.h>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// Two workers of one device, and one held array of which the first has two blocks, the second the others.
struct Draining : World {
  explicit Draining(Options options = {}, std::int64_t memory = std::int64_t{1} << 30)
      : World(std::move(options)) {
    w1 = join(1, worker(1, "one", memory));
    w2 = join(2, worker(1, "two", memory));
    workers = {{1, w1}, {2, w2}};
    join(10, client());
    submit(10, 1, {random(1, kFourBlocks)}, {1});
    plan = log<msg::Plan>(1)[0];
    complete(plan);
    array = ArrayId{plan.ops[0].op.outputs[0].array};
    mine = {{0, 2}};
    if (plan.ops[0].placement.owner({0}) != w1.devices[0]) mine = {{2, 2}};
    theirs = mine[0].first == 0 ? msg::Range{2, 2} : msg::Range{0, 2};
  }
  msg::Drain drain(std::uint32_t conn) const { return log<msg::Drain>(conn).back(); }
  void still() { receive(1, msg::Drained{w1.you, drain(1).round, 0}); }
  // Both say what they have; the second may have copies of the first's.
  void survey(std::vector<msg::Range> copies = {}) {
    for (const std::uint32_t conn : {1u, 2u}) {
      if (log<msg::PeerLost>(conn).empty()) continue;
      msg::Held held;
      held.version = log<msg::PeerLost>(conn).back().version;
      const DeviceId device = (conn == 1 ? w1 : w2).devices[0];
      std::vector<msg::Range> sealed = mine;
      if (conn == 2) {
        sealed = copies;
        sealed.push_back(theirs);
        std::sort(sealed.begin(), sealed.end(), [](auto& a, auto& b) { return a.first < b.first; });
      }
      held.shares = {{plan.ops[0].id, device, 2, {}}};
      held.blocks = {{array, device, sealed, {}}};
      receive(conn, held);
    }
  }
  msg::DrainReply ask(const std::string& worker, msg::DrainWish wish = msg::DrainWish::kAsk) {
    receive(10, msg::DrainRequest{worker, wish});
    return *last<msg::DrainReply>(10);
  }
  msg::Welcome w1, w2;
  msg::Plan plan;
  ArrayId array;
  std::vector<msg::Range> mine;
  msg::Range theirs;
};

TEST_CASE("a worker leaves when what is needed of it is elsewhere, and nothing is made again") {
  Draining w;
  CHECK(w.ask("one").state == msg::DrainState::kStays);
  CHECK(w.ask("one", msg::DrainWish::kLeave).state == msg::DrainState::kWaiting);
  CHECK(w.ask("w1").state == msg::DrainState::kStopping);
  CHECK(w.drain(1).order == msg::DrainOrder::kStop);
  CHECK(w.drain(2).order == msg::DrainOrder::kStop);
  CHECK(w.log<msg::PeerLost>(2).empty());
  w.still();
  REQUIRE(w.log<msg::PeerLost>(2).size() == 1);
  CHECK(!w.log<msg::PeerLost>(2)[0].peer);  // nobody was lost
  CHECK(w.log<msg::PeerLost>(1).size() == 1);
  w.survey();
  const msg::Drain move = w.drain(2);
  REQUIRE(move.order == msg::DrainOrder::kMove);
  REQUIRE(move.keeps.size() == 1);
  CHECK(move.keeps[0].array == w.array);
  CHECK(move.keeps[0].from == w.w1.devices[0]);
  CHECK(move.keeps[0].to == w.w2.devices[0]);
  CHECK(move.keeps[0].blocks == w.mine);
  CHECK(w.ask("1").blocks_left == 2);
  CHECK(w.log<msg::Recover>(2).size() == 1);  // the pins end
  w.receive(2, msg::Drained{w.w1.you, move.round, 1});
  CHECK(w.ask("1").blocks_left == 1);
  w.receive(2, msg::Drained{w.w1.you, move.round, 0});
  REQUIRE(w.log<msg::PeerLost>(2).size() == 2);
  w.survey(w.mine);
  CHECK(w.drain(1).order == msg::DrainOrder::kLeave);
  CHECK(w.ask("1").state == msg::DrainState::kGone);
  const msg::PeerLost gone = w.log<msg::PeerLost>(2).back();
  CHECK(gone.peer == w.w1.you);
  const msg::Recover recover = w.log<msg::Recover>(2).back();
  CHECK(recover.version == gone.version);
  REQUIRE(recover.plans.size() == 1);
  REQUIRE(recover.plans[0].ops.size() == 1);
  CHECK(recover.plans[0].ops[0].done);  // said where they are, not made again
  CHECK(w.log<msg::Drain>(10).empty());
  w.workers.erase(w.workers.begin());
  w.receive(1, msg::Progress{});
  CHECK(w.quiet());
  SUBCASE("clients hear of it when it says that it goes, and that nothing is missing") {
    w.receive(1, msg::Leave{});
    w.drop(1);
    CHECK(w.log<msg::PeerLost>(10).empty());
    REQUIRE(w.log<msg::Drain>(10).size() == 1);
    CHECK(w.log<msg::Drain>(10)[0].peer == w.w1.you);
  }
  SUBCASE("where it dies before that, clients lose what it was sending them") {
    w.drop(1);
    CHECK(w.log<msg::Drain>(10).empty());
    REQUIRE(w.log<msg::PeerLost>(10).size() == 1);
    CHECK(w.log<msg::PeerLost>(10)[0].peer == w.w1.you);
  }
  REQUIRE(w.submit(10, 2, {map(2, kFourBlocks, {1})}, {2}).outcome.ok());
  CHECK(w.log<msg::Plan>(2).back().ops[0].placement.owned_count(w.w2.devices[0]) == 4);
}

TEST_CASE("a worker that cannot leave says why, works on, and is tried again") {
  SUBCASE("the last one") {
    Draining w;
    w.drop(2);
    w.workers.pop_back();
    w.survey();
    w.step({OperatorDrain{w.w1.you}});
    CHECK(w.ask("one").why.find("no other worker") != std::string::npos);
    CHECK(w.log<msg::Drain>(1).empty());  // never stopped
    w.add_worker(3, 1, "three");
    w.wait(3 * kSecond);
    CHECK(w.drain(1).order == msg::DrainOrder::kStop);
  }
  SUBCASE("no room") {
    Draining w({}, 300);
    msg::Progress full;
    full.devices = {{w.w2.devices[0], 160}};
    w.receive(2, full);
    w.step({OperatorDrain{w.w1.you}});
    w.still();
    w.survey();
    CHECK(w.drain(2).order == msg::DrainOrder::kGoOn);
    CHECK(w.drain(1).order == msg::DrainOrder::kStop);  // nobody may be taking anything when it goes on
    w.receive(2, msg::Drained{w.w1.you, w.drain(2).round, 0});
    CHECK(w.drain(1).order == msg::DrainOrder::kGoOn);
    const msg::DrainReply reply = w.ask("one");
    CHECK(reply.state == msg::DrainState::kWaiting);
    CHECK(reply.why.find("160 bytes") != std::string::npos);
    w.receive(10, msg::ReleaseArrays{{1}});
    w.apply_logs();
    w.wait(3 * kSecond);
    w.still();
    w.survey();
    CHECK(w.ask("one").state == msg::DrainState::kGone);
  }
  SUBCASE("copies that do not come") {
    Draining w;
    w.step({OperatorDrain{w.w1.you}});
    w.still();
    w.survey();
    for (int i = 0; i < 6; ++i) {
      w.wait(2 * kSecond);
      for (const std::uint32_t conn : {1u, 2u, 10u}) w.receive(conn, msg::Pong{});
    }
    CHECK(w.drain(2).order == msg::DrainOrder::kGoOn);
    CHECK(w.ask("one").why.find("2 blocks") != std::string::npos);
  }
}

TEST_CASE("a drain can be taken back at any time") {
  Draining w;
  w.step({OperatorDrain{w.w1.you}});
  const auto back = [&] {
    w.receive(2, msg::Drained{w.w1.you, w.drain(2).round, 0});
    CHECK(w.drain(1).order == msg::DrainOrder::kGoOn);
    CHECK(w.ask("one").state == msg::DrainState::kStays);
    CHECK(w.submit(10, 9, {random(9, kFourBlocks)}, {9}).outcome.ok());
    CHECK(w.log<msg::Plan>(1).back().ops[0].placement.owned_count(w.w1.devices[0]) == 2);
  };
  SUBCASE("at once") { w.step({OperatorDrain{w.w1.you, false}}), back(); }
  SUBCASE("while everybody is asked") {
    w.still();
    w.step({OperatorDrain{w.w1.you, false}});
    w.survey();
    back();
  }
  SUBCASE("while blocks move") {
    w.still();
    w.survey();
    w.step({OperatorDrain{w.w1.you, false}});
    back();
  }
  SUBCASE("not when it has gone") {
    w.still();
    w.survey();
    w.receive(2, msg::Drained{w.w1.you, w.drain(2).round, 0});
    w.survey(w.mine);
    w.step({OperatorDrain{w.w1.you, false}});
    CHECK(w.ask("one", msg::DrainWish::kStay).state == msg::DrainState::kGone);
  }
}

TEST_CASE("deaths in the middle of a drain") {
  Draining w;
  w.step({OperatorDrain{w.w1.you}});
  SUBCASE("of the one that is to leave: what was copied is found, the rest made again") {
    w.still();
    w.survey();
    w.workers.erase(w.workers.begin());
    w.drop(1);
    CHECK(w.ask("one").state == msg::DrainState::kLost);
    w.survey({{w.mine[0].first, 1}});
    const msg::Recover recover = w.log<msg::Recover>(2).back();
    std::int64_t again = 0;
    for (const msg::Plan& plan : recover.plans)
      for (const msg::PlannedOp& op : plan.ops)
        if (!op.done) again += op.placement.owned_count(w.w2.devices[0]);
    CHECK(again == 1);
  }
  SUBCASE("of the only other one: it must stay, and go on") {
    w.still();
    w.survey();
    w.workers.pop_back();
    w.drop(2);
    CHECK(w.drain(1).order == msg::DrainOrder::kGoOn);
    CHECK(w.ask("one").state == msg::DrainState::kWaiting);
  }
  SUBCASE("of another one during the survey: it is repeated") {
    w.add_worker(3, 1, "three");
    w.still();
    const std::size_t asked = w.log<msg::PeerLost>(1).size();
    w.drop(3);
    w.workers.pop_back();
    w.survey();
    CHECK(w.log<msg::PeerLost>(1).size() >= asked + 1);
    CHECK(w.ask("one").state == msg::DrainState::kMoving);
  }
}

TEST_CASE("who is meant") {
  Draining w;
  CHECK(w.ask("nobody").outcome.code == Errc::kNotFound);
  CHECK(w.ask("").outcome.code == Errc::kNotFound);
  CHECK(w.ask("w99999999999").outcome.code == Errc::kNotFound);
  CHECK(w.ask("w3").outcome.code == Errc::kNotFound);  // a client
  CHECK(w.ask("2").worker == w.w2.you);
  w.add_worker(3, 1, "two");
  CHECK(w.ask("two").outcome.code == Errc::kInvalidArgument);
  w.add_worker(4, 1, "w2");  // as another one is numbered
  CHECK(w.ask("w2").outcome.code == Errc::kInvalidArgument);
  CHECK(w.ask("2").worker == w.w2.you);
  w.drop(2);
  CHECK(w.ask("w2").worker != w.w2.you);  // the living one
  CHECK(w.ask("w2").outcome.ok());
  CHECK(w.ask("2").worker == w.w2.you);
  w.receive(1, msg::DrainRequest{"two", msg::DrainWish::kLeave});
  CHECK(w.last<msg::Refusal>(1) != nullptr);  // workers do not decide that
}

}  // namespace
}  // namespace tilewise::scheduler::test
