// Points of running ops that go to other workers before they are begun: one that is slow gives, one that comes late takes, and
// either may be killed in the middle. What comes out is what there would be without.
#include <doctest/doctest.h>
#include <csignal>

#include "slow_rows.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

void check_values(const Future& future, const Values& want) {
  future.wait({.timeout = kPatience});
  CHECK(same_bits(future.get<double>(0), want.rows));
  CHECK(same_bits(future.get<double>(1), want.total));
}

}  // namespace

TEST_CASE("a slow worker gives what it has not begun, and nothing is made twice") {
  for (const bool moves : {true, false}) {
    CAPTURE(moves);
    Counted w(moves ? std::vector<std::string>{} : std::vector<std::string>{"--no-rebalance"});
    w.add(5), w.add(1);
    INFO(w.cluster.words());
    const Session session = w.cluster.session();
    REQUIRE(session.wait_for_devices(2, kPatience));
    const Values want = expected(session, 1);
    const SlowRows program = slow_rows(session, 1);
    check_values(session.compute({program.rows, program.total}), want);
    MESSAGE("the slow one made " << w.points(0) << " of " << kBlocks);
    CHECK(w.all_points() == kBlocks);
    if (moves)
      CHECK(w.points(0) < kBlocks * 2 / 5);
    else
      CHECK(w.points(0) == kBlocks / 2);
    CHECK(nothing_left(w.cluster));
  }
}

TEST_CASE("a worker that joins while a graph runs takes part in it") {
  Counted w;
  w.add(1);
  INFO(w.cluster.words());
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  const Values want = expected(session, 2);
  const SlowRows program = slow_rows(session, 2);
  const Future future = session.compute({program.rows, program.total});
  REQUIRE(eventually([&] { return w.points(0) >= 20; }));
  w.add(1);
  check_values(future, want);
  MESSAGE("the newcomer made " << w.points(1) << " of " << 2 * kBlocks);
  CHECK(w.points(1) > kBlocks / 4);
  CHECK(w.all_points() == 2 * kBlocks);
  CHECK(nothing_left(w.cluster));
}

TEST_CASE("who gives or takes is killed in the middle: the same bits") {
  struct Case {
    int victim;       // 0: the slow one, which gives
    std::int64_t at;  // points that the slow one has made by then
  };
  for (const Case& c : {Case{0, 3}, Case{1, 4}, Case{0, 6}, Case{1, 9}}) {
    CAPTURE(c.victim);
    CAPTURE(c.at);
    Counted w;
    w.add(5), w.add(1), w.add(1);
    INFO(w.cluster.words());
    const Session session = w.cluster.session();
    REQUIRE(session.wait_for_devices(3, kPatience));
    const Values want = expected(session, 2);
    const SlowRows program = slow_rows(session, 2);
    const Future future = session.compute({program.rows, program.total});
    REQUIRE(eventually([&] { return w.points(0) >= c.at; }));
    w.cluster.worker(c.victim).signal(SIGKILL);
    check_values(future, want);
    CHECK(w.all_points() >= 2 * kBlocks);
    CHECK(nothing_left(w.cluster));
  }
}
