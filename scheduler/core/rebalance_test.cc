// Who gives what to whom; when; and what is said to workers about it.
#include "rebalance.h"

#include <doctest/doctest.h>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

Runner runner(std::uint32_t device, std::int64_t left, double point_s) {
  return {DeviceId{device}, left, point_s, 0, 1'000'000, left > 0, true};
}
using Points = std::vector<std::pair<DeviceId, std::int64_t>>;

// Two workers of one device, and an array of 400 blocks of which each has 200.
struct Moving : World {
  explicit Moving(Options options) : World(std::move(options)) {
    workers = {{1, join(1, worker(1, "one"))}, {2, join(2, worker(1, "two"))}};
    join(10, client());
    submit(10, 1, {random(1, kGrid)}, {1});
    plan = log<msg::Plan>(1)[0];
    REQUIRE(share(0) == 200);
    REQUIRE(share(1) == 200);
  }
  static Options every(TimeNs ns) {
    Options options;
    options.rebalance.every_ns = ns;
    return options;
  }
  DeviceId device(std::size_t i) const { return workers[i].second.devices[0]; }
  std::int64_t share(std::size_t i) const { return plan.ops[0].placement.owned_count(device(i)); }
  OpId op() const { return plan.ops[0].id; }
  void progress(std::size_t i, std::int64_t done, OpId of = {}) {
    msg::Progress p;
    p.ops.push_back({of ? of : op(), device(i), done, 0});
    receive(workers[i].first, p);
  }
  // The first is three times slower: 0.1 s and 0.3 s for ten points.
  void run(int tenths) {
    for (int t = 0; t < tenths; ++t) {
      wait(100 * kMillisecond);
      progress(0, done[0] += 10);
      if (t % 3 == 2) progress(1, done[1] += 10);
    }
  }
  void answer(std::size_t i, std::int64_t next) {
    const msg::PeerLost asked = log<msg::PeerLost>(workers[i].first).back();
    msg::Held held;
    held.version = asked.version;
    held.shares = {{op(), device(i), next, {}}};
    receive(workers[i].first, held);
  }
  std::vector<msg::PeerLost> asked() const { return log<msg::PeerLost>(1); }

  // Blocks of the first array that is looked at, as a viewer is told.
  std::int64_t made() const { return std::get<ArrayList>(core.view(ArraysRequest{}, now)).arrays.at(0).made; }

  static inline const ir::Grid kGrid = grid({4000}, {10});
  msg::Plan plan;
  std::int64_t done[2] = {0, 0};
};

}  // namespace

TEST_CASE("what is left is dealt out so that all come to an end together") {
  Rebalance limits;
  const BalanceBySpeed balance(limits);
  SUBCASE("one of four is three times slower") {
    const std::vector<Runner> runners{runner(1, 100, 0.3), runner(2, 100, 0.1), runner(3, 100, 0.1),
                                      runner(4, 100, 0.1)};
    const auto shift = balance.propose(runners);
    REQUIRE(shift.has_value());
    CHECK(shift->from == Points{{DeviceId{1}, 60}});
    CHECK(shift->to == Points{{DeviceId{2}, 20}, {DeviceId{3}, 20}, {DeviceId{4}, 20}});
    CHECK(shift->before_s == doctest::Approx(30));
    CHECK(shift->after_s == doctest::Approx(12));
  }
  SUBCASE("a newcomer counts as fast as the others") {
    const std::vector<Runner> runners{runner(1, 90, 0.1), runner(2, 90, 0.1), runner(3, 0, 0)};
    const auto shift = balance.propose(runners);
    REQUIRE(shift.has_value());
    CHECK(shift->to == Points{{DeviceId{3}, 60}});
  }
  SUBCASE("but takes no more than it has memory for, and nothing if it is to leave") {
    std::vector<Runner> runners{runner(1, 90, 0.1), runner(2, 90, 0.1), runner(3, 0, 0)};
    runners[2].room = 40;
    REQUIRE(balance.propose(runners).has_value());
    CHECK(balance.propose(runners)->to == Points{{DeviceId{3}, 40}});
    runners[2].takes = false;
    CHECK(!balance.propose(runners).has_value());
  }
  SUBCASE("not where inputs take longer to bring than there is to be won") {
    std::vector<Runner> runners{runner(1, 90, 0.1), runner(2, 0, 0.1)};
    CHECK(balance.propose(runners).has_value());
    runners[1].bring_s = 10;
    CHECK(!balance.propose(runners).has_value());
  }
  SUBCASE("a taker with points left has the inputs of others' points to bring all the same") {
    std::vector<Runner> runners{runner(1, 100, 0.3), runner(2, 100, 0.1)};
    REQUIRE(balance.propose(runners).has_value());
    CHECK(balance.propose(runners)->from == Points{{DeviceId{1}, 50}});
    runners[1].bring_s = 0.1;  // twice as dear: 10 s for its own, and then 0.2 s each
    REQUIRE(balance.propose(runners).has_value());
    CHECK(balance.propose(runners)->from == Points{{DeviceId{1}, 40}});
    CHECK(balance.propose(runners)->after_s == doctest::Approx(18));
    runners[1].bring_s = 5;
    CHECK(!balance.propose(runners).has_value());
  }
  SUBCASE("whoever has finished nothing for long counts as slow as that") {
    std::vector<Runner> runners{runner(1, 100, 0), runner(2, 100, 0.1)};
    runners[0].at_least_s = 1;  // within what may be
    CHECK(!balance.propose(runners).has_value());
    runners[0].at_least_s = 3;
    REQUIRE(balance.propose(runners).has_value());
    CHECK(balance.propose(runners)->from[0].first == DeviceId{1});
    CHECK(balance.propose(runners)->from[0].second > 90);
  }
  SUBCASE("what can go at once has to win more than the move itself takes") {
    const std::vector<Runner> runners{runner(1, 1'000'000, 3e-6), runner(2, 1'000'000, 1e-6)};
    REQUIRE(balance.propose(runners).has_value());
    CHECK(balance.propose(runners, {400'000, 1e-6}).has_value());
    CHECK(!balance.propose(runners, {400'000, 2.9e-6}).has_value());
    CHECK(!balance.propose(runners, {16'000, 1e-6}).has_value());
    CHECK(!balance.propose(runners, {0, 0}).has_value());
  }
  SUBCASE("what few points have told is believed in part") {
    std::vector<Runner> runners{runner(1, 60, 0.016), runner(2, 60, 0.01), runner(3, 60, 0.01)};
    CHECK(balance.propose(runners).has_value());
    for (Runner& r : runners) r.sure = 2. / 6;
    CHECK(!balance.propose(runners).has_value());
    runners[0].point_s = 0.1;  // but what is ten times slower is seen at once
    REQUIRE(balance.propose(runners).has_value());
    CHECK(balance.propose(runners)->from[0].first == DeviceId{1});
  }
  SUBCASE("small differences are left alone") {
    CHECK(!balance.propose(std::vector<Runner>{runner(1, 100, 0.11), runner(2, 100, 0.1)}).has_value());
    CHECK(!balance.propose(std::vector<Runner>{runner(1, 100, 3e-4), runner(2, 100, 1e-4)}).has_value());
    CHECK(!balance.propose(std::vector<Runner>{runner(1, 100, 0), runner(2, 100, 0)}).has_value());
  }
}

TEST_CASE("the more often points go to and fro, the longer the next move is waited for") {
  ToAndFro moves;
  const auto move = [](std::uint32_t from, std::uint32_t to) {
    Shift shift;
    shift.from = {{DeviceId{from}, 5}}, shift.to = {{DeviceId{to}, 5}};
    return shift;
  };
  for (const std::uint32_t to : {2u, 3u, 2u}) {  // always the same one gives
    moves.note(move(1, to));
    CHECK(moves.wait_ns(kSecond) == kSecond);
  }
  moves.note(move(2, 1));
  CHECK(moves.wait_ns(kSecond) == 4 * kSecond);
  moves.note(move(3, 2));
  CHECK(moves.wait_ns(kSecond) == 4 * kSecond);
  moves.note(move(2, 3));
  CHECK(moves.wait_ns(kSecond) == 16 * kSecond);
  for (std::uint32_t i = 0; i < 100; ++i) moves.note(move(1 + i % 2, 2 - i % 2));
  CHECK(moves.wait_ns(kSecond) == kSecond << (2 * ToAndFro::kMaxTurns));
}

TEST_CASE("a slow device gives points that it has not begun, and is asked first") {
  Moving w(Moving::every(100 * kMillisecond));
  w.run(9);
  REQUIRE(w.asked().size() == 1);
  const msg::PeerLost asked = w.asked()[0];
  CHECK(!asked.peer);  // nobody was lost
  REQUIRE(asked.holds.size() == 1);
  CHECK(asked.holds[0].op == w.op());
  CHECK(asked.holds[0].device == w.device(1));
  const std::int64_t from = asked.holds[0].from;
  CHECK(from < 120);
  CHECK(from > 20);
  w.answer(0, 100);
  CHECK(w.log<msg::Recover>(1).empty());
  SUBCASE("what it has begun stays") {
    w.answer(1, 150);
    const msg::Recover recover = w.log<msg::Recover>(1).at(0);
    CHECK(recover.version == asked.version);
    REQUIRE(recover.moved.size() == 1);
    CHECK(recover.moved[0] == msg::Tail{w.op(), w.device(1), 150});
    REQUIRE(recover.plans.size() == 1);
    REQUIRE(recover.plans[0].ops.size() == 1);
    const msg::PlannedOp& layer = recover.plans[0].ops[0];
    CHECK(layer.of == w.op());
    CHECK(layer.placement.owned_count(w.device(0)) == 50);
    CHECK(layer.placement.owned_count(w.device(1)) == 0);
    // Counts come out: the graph ends when the shares as they are now are done.
    w.progress(0, 200);
    w.progress(1, 150);
    CHECK(w.last<msg::GraphDone>(10) == nullptr);
    CHECK(w.made() == 350);
    w.progress(0, 50, layer.id);
    CHECK(w.made() == 400);
    REQUIRE(w.last<msg::GraphDone>(10) != nullptr);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
    CHECK(w.last<msg::GraphDone>(10)->tasks == 400);
    // What reads the blocks later is placed where they are, but for one of a hundred.
    w.submit(10, 2, {map(2, Moving::kGrid, {1})}, {2});
    const ir::Placement later = w.log<msg::Plan>(1)[1].ops[0].placement;
    std::int64_t elsewhere = 0;
    for (std::int64_t block = 0; block < 400; ++block) {
      const DeviceId moved = layer.placement.owner({block});
      elsewhere += later.owner({block}) != (moved ? moved : w.plan.ops[0].placement.owner({block}));
    }
    CHECK(elsewhere <= 4);
    CHECK(later.pieces()[0].rule.devices.size() <= 64);
  }
  SUBCASE(
      "its tasks fail like any others: nothing was lost, and who reads what they made is told what failed") {
    Errc code = Errc::kTaskFailed;
    SUBCASE("by themselves") {}
    SUBCASE("for want of memory") { code = Errc::kOutOfMemory; }
    w.answer(1, 150);
    const msg::PlannedOp layer = w.log<msg::Recover>(1).at(0).plans.at(0).ops.at(0);
    w.receive(1, msg::TaskFailed{layer.id, w.device(0), 0, {code, "why"}});
    w.progress(0, 200);
    w.progress(1, 150);
    msg::Progress failed;
    failed.ops.push_back({layer.id, w.device(0), 50, 1});
    w.receive(1, failed);
    REQUIRE(w.last<msg::GraphDone>(10) != nullptr);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == code);
    w.submit(10, 2, {map(2, Moving::kGrid, {1})}, {2});
    CHECK(w.last<msg::SubmitReply>(10)->outcome.ok());
    CHECK(w.log<msg::Plan>(1).size() == 2);
    // As after any failure nothing of it is tried again when blocks are lost later: who reads it is told.
    w.drop(2);
    w.workers.pop_back();
    w.answer(0, 200);
    w.submit(10, 3, {map(3, Moving::kGrid, {1})}, {3});
    CHECK(w.last<msg::SubmitReply>(10)->outcome.code == Errc::kWorkerLost);
  }
  SUBCASE("all of it: nothing is moved, and nobody is left waiting") {
    w.answer(1, 200);
    const msg::Recover recover = w.log<msg::Recover>(1).at(0);
    CHECK(recover.moved.empty());
    CHECK(recover.plans.empty());
    w.run(3);  // not again at once
    CHECK(w.asked().size() == 1);
    w.run(3);  // but before a second is over: it takes little more than one
    CHECK(w.asked().size() == 2);
  }
  SUBCASE("a point of which a result is there already stays, with those before it") {
    msg::Held held;
    held.version = asked.version;
    held.shares = {{w.op(), w.device(1), 120, {}}};
    const std::int64_t there =
        ir::ravel(w.plan.ops[0].placement.nth(w.device(1), 170), Moving::kGrid.counts());
    held.blocks = {{ArrayId{w.plan.ops[0].op.outputs[0].array}, w.device(1), {{there, 1}}, {}}};
    w.receive(w.workers[1].first, held);
    const msg::Recover recover = w.log<msg::Recover>(1).at(0);
    REQUIRE(recover.moved.size() == 1);
    CHECK(recover.moved[0] == msg::Tail{w.op(), w.device(1), 171});
  }
  SUBCASE("the graph was cancelled meanwhile") {
    w.receive(10, msg::CancelRequest{1});
    w.answer(1, 60);
    CHECK(w.log<msg::Recover>(1).at(0).moved.empty());
  }
  SUBCASE("it died meanwhile: that is an ordinary loss") {
    w.drop(2);
    const msg::PeerLost lost = w.asked().back();
    CHECK(lost.peer == w.workers[1].second.you);
    CHECK(lost.holds.empty());
    w.workers.pop_back();
    w.answer(0, 100);
    const msg::Recover recover = w.log<msg::Recover>(1).at(0);
    CHECK(recover.moved.empty());
    REQUIRE(recover.plans.size() == 1);
    CHECK(recover.plans[0].ops[0].placement.owned_count(w.device(0)) == 200);
  }
}

TEST_CASE("a device that finishes nothing at all gives too") {
  Moving w(Moving::every(100 * kMillisecond));
  for (int t = 0; t < 15; ++t) {
    w.wait(100 * kMillisecond);
    w.progress(0, w.done[0] += 2);
  }
  REQUIRE(w.asked().size() == 1);
  REQUIRE(w.asked()[0].holds.size() == 1);
  CHECK(w.asked()[0].holds[0].device == w.device(1));
}

TEST_CASE("an op is moved so many times at most") {
  Options options = Moving::every(100 * kMillisecond);
  SUBCASE("once") { options.rebalance.max_moves = 1; }
  SUBCASE("twice") { options.rebalance.max_moves = 2; }
  Moving w(options);
  const auto most = static_cast<std::size_t>(options.rebalance.max_moves);
  std::size_t answered = 0;
  for (int t = 0; t < 30 && w.done[0] < 180; ++t) {
    w.wait(300 * kMillisecond);
    w.progress(0, w.done[0] += 3);
    if (t % 3 == 2) w.progress(1, w.done[1] += 1);
    if (w.asked().size() == answered) continue;
    ++answered;
    w.answer(0, 200), w.answer(1, 200);  // all is begun: the next may come after a while
  }
  CHECK(answered == most);
}

TEST_CASE("a worker that joins takes part in what runs") {
  Moving w(Moving::every(100 * kMillisecond));
  for (int t = 0; t < 4; ++t) {
    w.wait(100 * kMillisecond);
    w.progress(0, w.done[0] += 10);
    w.progress(1, w.done[1] += 10);
  }
  CHECK(w.asked().empty());
  w.workers.emplace_back(3, w.join(3, w.worker(1, "three")));
  REQUIRE(w.asked().size() == 1);
  CHECK(w.asked()[0].holds.size() == 2);
  w.answer(0, 60);
  w.answer(1, 60);
  w.answer(2, 0);
  const msg::Recover recover = w.log<msg::Recover>(3).back();
  REQUIRE(recover.plans.size() == 1);
  const std::int64_t taken = recover.plans[0].ops[0].placement.owned_count(w.device(2));
  CHECK(taken > 90);
  CHECK(taken < 130);
}

TEST_CASE(
    "what people have placed, and what has several copies, stays where it is; and nothing moves unless "
    "told") {
  SUBCASE("it is off") {
    Moving w(Options{});
    w.run(12);
    CHECK(w.asked().empty());
  }
  SUBCASE("placed") {
    World w(Moving::every(100 * kMillisecond));
    w.add_worker(1, 1, "one"), w.add_worker(2, 1, "two");
    w.join(10, w.client());
    ir::Op op = random(1, Moving::kGrid);
    op.hint.devices = {w.workers[0].second.devices[0], w.workers[1].second.devices[0]};
    w.submit(10, 1, {op}, {1});
    const msg::Plan plan = w.log<msg::Plan>(1)[0];
    for (int t = 1; t < 13; ++t) {
      w.wait(100 * kMillisecond);
      msg::Progress p;
      p.ops.push_back({plan.ops[0].id, op.hint.devices[0], 10 * t, 0});
      w.receive(1, p);
    }
    CHECK(w.log<msg::PeerLost>(1).empty());
  }
}

}  // namespace tilewise::scheduler::test
