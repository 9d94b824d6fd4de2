// What a loss asks for and looks at: what those had who were lost since the last answer, and no more.
#include <doctest/doctest.h>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// Two workers of one device and a client.
struct Losses : World {
  Losses() {
    w1 = add_worker(1, 1, "one");
    w2 = add_worker(2, 1, "two");
    join(10, client());
  }
  // Makes it there, and the client holds it.
  void make(std::uint64_t array, ir::Op op, const msg::Welcome& where) {
    op.hint.devices = {where.devices[0]};
    REQUIRE(submit(10, array, {std::move(op)}, {array}).outcome.ok());
    complete(log<msg::Plan>(2).back());
  }
  void lose(std::uint32_t conn) {
    std::erase_if(workers, [&](const auto& w) { return w.first == conn; });
    drop(conn);
  }
  void answer(std::uint32_t conn) {
    receive(conn, msg::Held{log<msg::PeerLost>(conn).back().version, {}, {}, false});
  }
  std::size_t asked(std::uint32_t conn) const { return log<msg::PeerLost>(conn).back().ops.size(); }
  msg::Recover recover(std::uint32_t conn) const { return log<msg::Recover>(conn).back(); }
  // By the last Recover.
  std::int64_t made_again(std::uint32_t conn, const msg::Welcome& where) const {
    std::int64_t points = 0;
    const msg::Recover last = recover(conn);
    for (const msg::Plan& plan : last.plans) {
      for (const msg::PlannedOp& op : plan.ops) points += op.placement.owned_count(where.devices[0]);
    }
    return points;
  }
  std::int64_t looked_at() const { return core.counters().lost_points; }
  msg::Welcome w1, w2;
};

TEST_CASE("a loss is no more work for those that came before it") {
  Losses w;
  for (std::uint64_t i = 1; i <= 20; ++i) w.make(i, fill(i, kFourBlocks), w.w1);
  w.lose(1);
  CHECK(w.asked(2) == 20);
  w.answer(2);
  CHECK(w.looked_at() == 80);
  CHECK(w.made_again(2, w.w2) == 80);
  const msg::Recover first = w.recover(2);
  for (const msg::Plan& plan : first.plans) w.complete(plan);
  const msg::Welcome w3 = w.add_worker(3, 1, "three");
  SUBCASE("of one that has nothing") {
    w.lose(3);
    CHECK(w.asked(2) == 0);
    CHECK(w.log<msg::Recover>(2).size() == 2);  // at once
    CHECK(w.looked_at() == 80);
  }
  SUBCASE("of one that has something") {
    w.make(21, map(21, kFourBlocks, {1}), w3);
    w.lose(3);
    CHECK(w.asked(2) ==
          3);  // it, and what it was made from: who made that first has gone, and one makes it now
    w.answer(2);
    CHECK(w.looked_at() == 84);
  }
  SUBCASE("of who has it now: all of it is made again") {
    w.lose(2);
    CHECK(w.asked(3) == 40);
    w.answer(3);
    CHECK(w.looked_at() == 160);
    CHECK(w.made_again(3, w3) == 80);
  }
}

TEST_CASE("losses before the first was answered are looked at together") {
  Losses w;
  const msg::Welcome w3 = w.add_worker(3, 1, "three");
  w.make(1, fill(1, kFourBlocks), w.w1);
  w.make(2, fill(2, kFourBlocks), w3);
  w.lose(1);
  w.lose(3);
  CHECK(w.asked(2) == 2);
  w.answer(2);
  CHECK(w.looked_at() == 8);
  CHECK(w.made_again(2, w.w2) == 8);
}

}  // namespace
}  // namespace tilewise::scheduler::test
