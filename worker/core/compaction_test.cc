// Blocks move out of the way of what the lowest task wants in one piece.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr std::int64_t kUnit = 64 << 10;  // bytes
constexpr std::int64_t kUnits = 6;
constexpr std::int64_t kSlack = 256;  // for a small result

ir::Op units(std::uint64_t array, std::int64_t count) { return source(array, 1, count * kUnit / 8); }
ir::Op read_of(std::uint64_t from, std::uint64_t array) { return map_of(from, array, units(from, 1).space); }

// A device whose memory is full of blocks of one unit that a client holds. Steps and moves end when they are told to.
struct Full {
  explicit Full(std::int64_t disk = 0) : lists(kUnits * kUnit + kSlack, 256, disk) {
    for (std::int64_t i = 0; i < kUnits; ++i) {
      const std::uint64_t array = 10 + static_cast<std::uint64_t>(i);
      log({plan_of({on(kHere, array, units(array, 1))}, {ArrayId{array}}, array)});
      run_steps();
    }
    for (const auto& [array, at] : places) by_place[at / kUnit] = array;
    REQUIRE(by_place.size() == kUnits);
  }
  void log(std::vector<msg::LogEntry> entries) { take(lists.log(std::move(entries))); }
  // By where they lie.
  void release(std::vector<std::int64_t> where) {
    std::vector<ArrayId> gone;
    for (const std::int64_t place : where) gone.push_back(ArrayId{by_place.at(place)});
    log({msg::Release{gone}});
  }
  void ask(std::int64_t count, std::uint64_t array = 100) {
    log({plan_of({on(kHere, array, units(array, count))}, {ArrayId{array}}, array)});
  }
  // A peer's op reads the array's block in place.
  void lend(std::uint64_t array, std::uint64_t op) {
    log({plan_of({on(kPeer, op, map_of(array, 1000 + array, units(array, 1).space))}, {}, op)});
    msg::PeerBatch wants;
    wants.subscribes.push_back({{ArrayId{array}, 0}, OpId{op}, kHere, kPeer});
    take(lists.from_peer(wants));
  }
  void run_steps() {
    while (done < launched || !ios.empty()) {
      for (const TierIo& io : std::exchange(ios, {})) take(lists.step({IoDone{io.io}}));
      if (done < launched) take(lists.completed(++done));
    }
  }
  void end_moves(Errc how = Errc::kOk) {
    for (const Relocate& move : std::exchange(moves, {}))
      take(lists.step({IoDone{move.io, {how, "injected"}}}));
  }
  void take(const Actions& actions) {
    launched += actions.launches.size();
    for (const Launch& launch : actions.launches) {
      places[launch.run.id.value] = launch.outputs[0].offset;
      written_before[launch.run.id.value] = written;
      if (!launch.inputs.empty()) read_at[launch.run.id.value] = launch.inputs[0].offset;
    }
    moves.insert(moves.end(), actions.relocations.begin(), actions.relocations.end());
    all_moves.insert(all_moves.end(), actions.relocations.begin(), actions.relocations.end());
    for (const TierIo& io : actions.ios) {
      written += io.write;
      ios.push_back(io);
    }
    for (const msg::Message& m : actions.to_scheduler) stuck += std::holds_alternative<msg::Stuck>(m);
  }
  bool has(std::uint64_t array) const { return lists.core->holds({ArrayId{array}, 0}); }
  bool ran(std::uint64_t op) const { return places.contains(op); }
  // The one block that is moving.
  const Relocate& move() const {
    REQUIRE(moves.size() == 1);
    return moves[0];
  }
  std::uint64_t mover() const { return by_place.at(move().from.offset / kUnit); }
  Counters counts() const { return lists.core->counters(); }

  Lists lists;
  std::map<std::uint64_t, std::int64_t> places, read_at, written_before;  // by op
  std::map<std::int64_t, std::uint64_t> by_place;                         // the blocks there at first
  std::vector<Relocate> moves, all_moves;
  std::vector<TierIo> ios;
  std::uint64_t launched = 0, done = 0;
  std::int64_t written = 0, stuck = 0;
};

}  // namespace

TEST_CASE("what is free in pieces becomes one piece, and what moved is read where it is now") {
  Full full;
  full.release({0, 2, 5});
  full.ask(2);
  CHECK_FALSE(full.ran(100));
  const std::uint64_t mover = full.mover();
  const Relocate move = full.move();
  CHECK(move.bytes == kUnit);
  CHECK(move.from.device == kHere);
  CHECK(move.from.offset == kUnit);
  CHECK(full.by_place.count(move.to.offset / kUnit) == 1);
  CHECK((move.to.offset == 0 || move.to.offset == 5 * kUnit));
  full.end_moves();
  REQUIRE(full.ran(100));
  CHECK(full.places[100] <= kUnit);
  full.run_steps();
  CHECK(full.has(mover));
  CHECK(full.counts().relocated == 1);
  full.release({3});
  full.log({plan_of({on(kHere, 200, read_of(mover, 200))}, {ArrayId{200}}, 200)});
  CHECK(full.read_at.at(200) == move.to.offset);
  full.run_steps();
  CHECK(full.stuck == 0);
}

TEST_CASE("nothing moves for who need not have it, or where no move would help") {
  Full full;
  full.ask(1);  // nothing is free
  CHECK(full.moves.empty());
  full.release({0, 2});
  full.run_steps();
  CHECK(full.ran(100));  // fits as it is
  CHECK(full.all_moves.empty());
  full.ask(3, 101);  // one unit is free
  CHECK(full.moves.empty());
}

TEST_CASE(
    "who begins to read a block while it moves ends where it was, and that is nobody else's meanwhile") {
  Full full;
  full.release({0, 2, 5});
  full.ask(2);
  const std::uint64_t mover = full.mover();
  const Relocate move = full.move();
  // A task that needs no memory of its own: its result takes that of what it alone reads.
  const std::uint64_t given = full.by_place[3];
  ir::Op sum = maps_of({mover, given}, 300, units(mover, 1).space);
  sum.outputs.resize(1);
  std::get<ir::MapAttrs>(sum.attrs).tape.outputs.clear();
  full.log({plan_of({on(kHere, 300, sum)}, {ArrayId{300}}, 300), msg::Release{{ArrayId{given}}}});
  REQUIRE(full.ran(300));
  CHECK(full.read_at[300] == move.from.offset);
  full.end_moves();
  CHECK(full.counts().relocated == 1);
  CHECK_FALSE(full.ran(100));  // the range is free when that step is through
  full.run_steps();
  CHECK(full.ran(100));
  CHECK(full.all_moves.size() == 1);
  CHECK(full.has(mover));
  CHECK(full.has(100));
}

TEST_CASE("a block that is lent while it moves stays where it was, and another one moves") {
  Full full;
  full.release({0, 2, 5});
  full.ask(2);
  const std::uint64_t mover = full.mover();
  full.lend(mover, 300);
  full.end_moves();
  CHECK(full.counts().relocated == 0);
  CHECK_FALSE(full.ran(100));
  // Without it: 3 or 4, whichever is beside what is free.
  REQUIRE(full.moves.size() == 1);
  CHECK(full.mover() != mover);
  full.end_moves();
  full.run_steps();
  CHECK(full.ran(100));
  CHECK(full.counts().relocated == 1);
}

TEST_CASE("who waits because all that could move is lent goes on when one is given back") {
  Full full;
  const std::uint64_t back = full.by_place[1];
  for (const std::int64_t place : {1, 3, 4})
    full.lend(full.by_place[place], 300 + static_cast<std::uint64_t>(place));
  full.release({0, 2, 5});
  full.ask(2, 400);
  CHECK(full.moves.empty());
  msg::PeerBatch dones;
  dones.dones.push_back({{ArrayId{back}, 0}, OpId{301}, kHere, kPeer});
  full.take(full.lists.from_peer(dones));
  CHECK(full.mover() == back);
  full.end_moves();
  CHECK(full.ran(400));
}

TEST_CASE("room that nobody wants any more is everybody's") {
  Full full;
  full.release({0, 2, 5});
  full.ask(2);
  const std::uint64_t mover = full.mover();
  full.log({msg::CancelGraph{GraphId{100}}});
  full.end_moves();
  CHECK(full.has(mover));
  full.ask(1, 101);
  full.run_steps();
  full.ask(2, 102);
  full.end_moves();
  full.run_steps();
  CHECK(full.ran(102));
  CHECK(full.lists.core->device_stats()[0].bytes_used == 6 * kUnit);
}

TEST_CASE("a block that goes while it moves leaves nothing behind") {
  Full full;
  full.release({0, 2, 5});
  full.ask(2);
  const std::uint64_t mover = full.mover();
  full.log({msg::Release{{ArrayId{mover}}}});
  full.run_steps();
  full.end_moves();
  full.run_steps();
  CHECK(full.ran(100));
  CHECK(full.lists.core->device_stats()[0].bytes_used == 4 * kUnit);
}

TEST_CASE("copies within memory that fail: nothing is lost, and the task is told of as stuck") {
  Full full;
  full.release({0, 2, 5});
  full.ask(2);
  const std::uint64_t mover = full.mover();
  full.end_moves(Errc::kDeviceError);
  CHECK(full.moves.empty());
  CHECK(full.has(mover));
  CHECK(full.lists.core->device_stats()[0].bytes_used == 3 * kUnit);
  full.lists.now += 30 * kSecond;
  full.take(full.lists.step({}));
  CHECK(full.stuck == 1);
  full.release({1});
  full.run_steps();
  CHECK(full.ran(100));
}

TEST_CASE("where blocks could be spilled they move, if that makes the room") {
  Full full(1 << 20);
  full.release({0, 2, 5});
  full.run_steps();
  const std::int64_t before = full.written;
  full.ask(2);
  full.end_moves();
  CHECK(full.ran(100));
  CHECK(full.written_before[100] == before);
  full.run_steps();
  CHECK(full.counts().relocated == 1);
}

TEST_CASE("an offer that comes late, for an op that is through, is not read: the block may be elsewhere") {
  Lists lists;
  const ir::Grid grid = units(20, 1).space;
  const auto offer = [&](std::uint64_t op, std::int64_t offset) {
    msg::PeerBatch batch;
    msg::Offer& o = batch.offers.emplace_back();
    o.block = {ArrayId{20}, 0}, o.op = OpId{op}, o.from = kPeer, o.to = kHere;
    o.offset = offset, o.bytes = kUnit;
    return batch;
  };
  lists.log({plan_of({on(kPeer, 1, units(20, 1))}, {ArrayId{20}}, 1)});
  lists.log({plan_of({on(kHere, 2, map_of(20, 30, grid))}, {ArrayId{30}}, 2)});
  REQUIRE(lists.from_peer(offer(2, 0)).launches.size() == 1);
  const Actions& ended = lists.completed(1);
  REQUIRE(ended.batches.size() == 1);
  CHECK(ended.batches[0].second.dones.size() == 1);
  lists.log({plan_of({on(kHere, 3, map_of(20, 31, grid))}, {ArrayId{31}}, 3)});
  const Actions& late = lists.from_peer(offer(2, 0));
  CHECK(late.launches.empty());
  REQUIRE(late.batches.size() == 1);  // the owner may think that this was the answer for op 3
  REQUIRE(late.batches[0].second.subscribes.size() == 1);
  CHECK(late.batches[0].second.subscribes[0].op == OpId{3});
  const Actions& read = lists.from_peer(offer(3, kUnit));
  REQUIRE(read.launches.size() == 1);
  CHECK(read.launches[0].inputs[0].offset == kUnit);
}
