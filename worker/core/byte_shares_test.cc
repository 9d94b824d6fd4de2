// Shares of a device's memory: the arithmetic, and what it does to two sessions on one device.
#include "byte_shares.h"

#include <doctest/doctest.h>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr SessionId kOne{1}, kTwo{2}, kThree{3};
constexpr std::int64_t kEach = 4096;                         // bytes of a block
constexpr auto has_asked = [](SessionId) { return false; };  // all of it

// Two sessions on a device of so many blocks, with a disk below it if `disk` > 0. Everything that is begun ends at once.
struct Rivals {
  Rivals(std::int64_t blocks, std::int64_t disk) : lists(blocks * kEach, 2, disk * kEach) {}
  void log(std::vector<msg::LogEntry> entries) {
    take(lists.log(std::move(entries)));
    while (launched > done || !open.empty()) end_what_runs();
  }
  void end_what_runs() {
    std::vector<Event> ends;
    for (const TierIo& io : open) ends.push_back(IoDone{io.io, {Errc::kOk, {}}});
    if (launched > done) ends.push_back(StreamCompleted{0, 0, ++done});
    open.clear();
    take(lists.step(std::move(ends)));
  }
  void take(const Actions& actions) {
    for (const Launch& launch : actions.launches) order.push_back(launch.run.id);
    launched += actions.launches.size();
    open.insert(open.end(), actions.ios.begin(), actions.ios.end());
  }
  // `session` makes an array of so many blocks and holds it.
  static msg::Plan makes(SessionId session, std::uint64_t id, std::int64_t blocks,
                         std::uint32_t weight = 100) {
    msg::Plan plan = plan_of({on(kHere, id, source(id * 10, blocks, kEach / 8))}, {ArrayId{id * 10}}, id);
    plan.session = session, plan.weight = weight;
    return plan;
  }
  // It reads it all, block by block, and keeps nothing.
  static msg::Plan reads(SessionId session, std::uint64_t id, std::uint64_t array, std::int64_t blocks) {
    const ir::Op a = source(array, blocks, kEach / 8);
    msg::Plan plan = plan_of({on(kHere, id, map_of(array, id * 10, a.space))}, {}, id);
    plan.session = session;
    return plan;
  }
  std::int64_t in_memory(std::uint64_t array, std::int64_t blocks) {
    std::int64_t n = 0;
    for (const msg::BlockCopy& copy : lists.core->blocks({1, ArrayId{array}, 0, blocks}).copies)
      n += copy.state == msg::BlockState::kHere;
    return n;
  }

  Lists lists;
  std::uint64_t launched = 0, done = 0;
  std::vector<TierIo> open;
  std::vector<OpId> order;
};

}  // namespace

TEST_CASE("memory goes to who has less for its weight, and comes from who has more") {
  ByteShares shares;
  shares.add_queue(kOne, 100);
  CHECK(shares.alone());
  CHECK_FALSE(shares.must_wait(kOne, 1 << 20));
  shares.add_bytes(kOne, 100, 600);
  shares.add_queue(kTwo, 200);
  shares.add_bytes(kTwo, 200, 600);  // half as much for its weight
  CHECK(shares.by_usage() == std::vector{kOne, kTwo});
  CHECK(shares.gives_way(kOne, 100, kTwo, 100));
  CHECK_FALSE(shares.gives_way(kOne, 300, kTwo, 100));  // it would have less then
  CHECK_FALSE(shares.gives_way(kTwo, 100, kOne, 100));
  CHECK_FALSE(shares.gives_way(kOne, 100, kOne, 100));
  shares.begin_leaving(kOne, 400);
  CHECK_FALSE(shares.gives_way(kOne, 100, kTwo, 100));  // enough of it is on its way
  shares.end_leaving(kOne, 400);
}

TEST_CASE("who was refused goes before those with more, until it asks no more") {
  ByteShares shares;
  shares.add_queue(kOne, 100), shares.add_bytes(kOne, 100, 500);
  shares.add_queue(kTwo, 100), shares.add_bytes(kTwo, 100, 100);
  shares.add_queue(kThree, 100);
  shares.begin_round();
  shares.refuse(kTwo, 200);
  CHECK(shares.must_wait(kOne, 1));
  CHECK_FALSE(shares.must_wait(kTwo, 200));
  CHECK_FALSE(shares.must_wait(kThree, 200));  // has less still
  CHECK(shares.must_wait(kThree, 400));
  shares.end_round(has_asked);
  shares.begin_round();
  CHECK(shares.must_wait(kOne, 1));
  shares.refuse(kTwo, 200);
  shares.end_round(has_asked);
  CHECK(shares.must_wait(kOne, 1));
  shares.begin_round();
  shares.end_round([](SessionId session) { return session == kTwo; });
  CHECK(shares.must_wait(kOne, 1));  // not all of it could ask
  shares.begin_round();
  shares.end_round(has_asked);  // it did not ask again
  CHECK_FALSE(shares.must_wait(kOne, 1));
}

TEST_CASE("a claim ends when as much has been given to somebody who waited, not with less") {
  ByteShares shares;
  shares.add_queue(kOne, 100), shares.add_bytes(kOne, 100, 500);
  shares.add_queue(kTwo, 100);
  shares.refuse(kTwo, 200), shares.refuse(kTwo, 100), shares.refuse(kTwo, 300);
  shares.serve(kTwo, 99);
  CHECK(shares.must_wait(kOne, 1));
  shares.serve(kTwo, 100);
  CHECK_FALSE(shares.must_wait(kOne, 1));
}

TEST_CASE("who was put off may go on when the claim has ended, or when it is not first any more") {
  ByteShares shares;
  shares.add_queue(kOne, 100), shares.add_bytes(kOne, 100, 500);
  shares.add_queue(kTwo, 100);
  const auto put_off = [&] {
    shares.begin_round();
    CHECK_FALSE(shares.may_go_on());
    shares.refuse(kTwo, 200);
    REQUIRE(shares.must_wait(kOne, 100));
    shares.put_off(kOne, 100), shares.put_off(kOne, 400);
    shares.end_round(has_asked);
    CHECK_FALSE(shares.may_go_on());
  };
  put_off();
  shares.serve(kTwo, 200);
  CHECK(shares.may_go_on());
  put_off();
  shares.add_bytes(kTwo, 100, 500);
  CHECK(shares.may_go_on());
  shares.remove_bytes(kTwo, 500);
  put_off();
  shares.remove_queue(kTwo);
  CHECK(shares.may_go_on());
}

TEST_CASE("of two that wait for as much, one goes first") {
  ByteShares shares;
  shares.add_queue(kOne, 100), shares.add_queue(kTwo, 100);
  shares.refuse(kOne, 100), shares.refuse(kTwo, 100);
  CHECK_FALSE(shares.must_wait(kOne, 100));
  CHECK(shares.must_wait(kTwo, 100));
}

TEST_CASE("a session without work or blocks has no share, and blocks of no bytes count for none") {
  ByteShares shares;
  shares.add_queue(kOne, 100), shares.add_bytes(kOne, 100, 10), shares.add_bytes(kTwo, 100, 0);
  CHECK(shares.all().size() == 1);
  shares.remove_queue(kOne);
  CHECK(shares.all().size() == 1);
  shares.remove_bytes(kOne, 10), shares.remove_bytes(kTwo, 0);
  CHECK(shares.all().empty());
}

TEST_CASE("where there is a disk, memory is shared by weight whoever came first") {
  for (const std::uint32_t weight : {100u, 300u}) {
    Rivals device(32, 512);
    device.log({Rivals::makes(kOne, 1, 60), Rivals::makes(kTwo, 2, 60, weight)});
    CHECK(device.lists.core->counters().tasks_done == 120);
    // Both read what they have made, over and over: so none of it is idle.
    std::vector<msg::LogEntry> loops;
    for (std::uint64_t i = 0; i < 4; ++i) {
      loops.push_back(Rivals::reads(kOne, 10 + i, 10, 60));
      msg::Plan other = Rivals::reads(kTwo, 20 + i, 20, 60);
      other.weight = weight;
      loops.push_back(std::move(other));
    }
    device.take(device.lists.log(std::move(loops)));
    std::int64_t one = 0, two = 0;
    for (int i = 0; i < 400 && (device.launched > device.done || !device.open.empty()); ++i) {
      device.end_what_runs();
      if (i < 60 || i >= 160) continue;
      one += device.in_memory(10, 60), two += device.in_memory(20, 60);
    }
    const double ratio = static_cast<double>(two) / static_cast<double>(one);
    const double fair = weight / 100.0;
    CHECK(ratio > 0.8 * fair);
    CHECK(ratio < 1.25 * fair);
    device.log({});
    CHECK(device.lists.core->counters().tasks_done == 120 + 480);
  }
}

TEST_CASE("what nobody reads leaves before anything that is read, whosever it is") {
  Rivals device(32, 512);
  device.log({Rivals::makes(kOne, 1, 8)});
  device.log({Rivals::makes(kTwo, 2, 30), Rivals::reads(kTwo, 3, 20, 30), Rivals::reads(kTwo, 4, 20, 30)});
  CHECK(device.in_memory(10, 8) <= 4);  // though the other had more
  CHECK(device.lists.core->counters().tasks_done == 8 + 30 + 60);
}

TEST_CASE("who frees as much as it takes is not put off for who waits for memory") {
  Rivals device(17, 0);
  const auto of = [](SessionId session, msg::Plan plan) {
    plan.session = session;
    return plan;
  };
  const ir::Op from_peer = source(30, 1, kEach / 8), many = source(20, 12, kEach / 8);
  // As large, but not in the place of what it reads: that is read from its end.
  ir::Op turned = map_of(20, 21, many.space);
  turned.operands[0].view = *turned.operands[0].view.slice(0, {}, {}, -1);
  // The lowest task waits for a peer. The second session has most of the memory; the first wants two blocks more, three times.
  device.log(
      {of(kTwo, plan_of({on(kPeer, 1, from_peer), on(kHere, 2, map_of(30, 31, from_peer.space))}, {}, 1)),
       of(kTwo, plan_of({on(kHere, 3, many)}, {ArrayId{20}}, 2))});
  device.log({of(kOne, plan_of({on(kHere, 4, source(40, 3, 2 * kEach / 8))}, {ArrayId{40}}, 3))});
  REQUIRE(device.lists.core->counters().tasks_done < 12 + 3);
  device.log({of(kTwo, plan_of({on(kHere, 5, turned)}, {ArrayId{21}}, 4)), msg::Release{{ArrayId{20}}}});
  // A block more than it takes to begin with one of the first session's: room for nothing but what gives as much back.
  CHECK(device.lists.core->counters().tasks_done == 12 + 12 + 1);
}
