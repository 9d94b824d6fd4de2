#include <doctest/doctest.h>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// Workers with supervisors, a client, and a graph of which they all own something.
struct Poisoned : World {
  explicit Poisoned(TimeNs lease_ns = 0) {
    for (std::uint32_t i = 1; i <= 5; ++i) {
      msg::Join join = worker(1, "host/" + std::to_string(i));
      join.black_box = 100 + i;
      join.lease_ns = lease_ns;
      workers.emplace_back(i, this->join(i, std::move(join)));
    }
    join(10, client());
    receive(20, tool());
  }
  msg::Join tool() {
    msg::Join join;
    join.role = msg::Role::kTool;
    join.software_version = "1";
    return join;
  }
  ir::Op on(ir::Op op, std::uint32_t worker) const {
    op.hint.devices = {workers_devices(worker)};
    return op;
  }
  DeviceId workers_devices(std::uint32_t conn) const { return DeviceId{conn}; }
  void die(std::uint32_t conn) {
    drop(conn);
    answer_without(conn);
  }
  // The others say that they have nothing.
  void answer_without(std::uint32_t conn) {
    std::erase_if(workers, [&](const auto& w) { return w.first == conn; });
    for (const auto& [other, welcome] : workers)
      receive(other, msg::Held{log<msg::PeerLost>(other).back().version, {}, {}, false});
  }
  // The scheduler is killed and started again; a supervisor comes by another link.
  void begin_life(std::uint32_t supervisor) {
    Options next{.term = core.term() + 1, .lazy_ns = 0};
    next.check_replays = true;
    core.begin_life(next, now, actions);
    receive(supervisor, tool());
  }
  msg::LastWords words(std::uint32_t conn, std::vector<msg::LastWords::Running> running) {
    return {WorkerId{conn}, 100 + conn, "killed by signal 6 (Aborted)", std::move(running)};
  }
  // The op of the last Recover that makes this point again.
  msg::PlannedOp remade(std::int64_t point) const {
    const msg::Recover recover = log<msg::Recover>(5).back();
    for (const msg::Plan& plan : recover.plans) {
      for (const msg::PlannedOp& op : plan.ops) {
        if (op.placement.owner({point})) return op;
      }
    }
    FAIL("not made again");
    return {};
  }
  std::uint32_t owner(const msg::PlannedOp& op, std::int64_t point) const {
    return op.placement.owner({point}).value;
  }
};

TEST_CASE(
    "what was running when a worker died is run alone, and fails after the third death, with its story") {
  Poisoned w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), 1)}, {1});
  OpId running = w.log<msg::Plan>(5)[0].ops[0].id;
  std::uint32_t conn = 1;
  for (int death = 1; death <= 3; ++death) {
    CAPTURE(death);
    w.die(conn);
    // The recovery waits for the supervisor's word.
    CHECK(w.log<msg::Recover>(5).size() == static_cast<std::size_t>(death - 1));
    std::vector<msg::LastWords::Running> at{{running, DeviceId{conn}, 2}};
    if (death == 1) at.push_back({running, DeviceId{conn}, 0});  // beside it, and innocent
    w.receive(20, w.words(conn, at));
    w.receive(20, w.words(conn, at));  // repeated
    REQUIRE(w.log<msg::Recover>(5).size() == static_cast<std::size_t>(death));
    const msg::PlannedOp op = w.remade(2);
    CHECK(op.alone == (death < 3));
    CHECK(op.doomed.ok() == (death < 3));
    if (death == 1) {
      CHECK(w.remade(0).id == op.id);  // that one too
      CHECK_FALSE(w.remade(1).alone);
    }
    running = op.id;
    conn = w.owner(op, 2);
  }
  const msg::PlannedOp doomed = w.remade(2);
  CHECK(doomed.doomed.code == Errc::kTaskFailed);
  for (const char* part : {"), for array 1 ", ", point 2 is not run again",
                           "w1 ('host/1'), killed by signal 6 (Aborted)", "3 workers died"})
    CHECK_MESSAGE(doomed.doomed.message.find(part) != std::string::npos, doomed.doomed.message);
  CHECK(doomed.op.operands.empty());
  // The worker that was given it says what it was told; all else is done.
  w.receive(conn, msg::TaskFailed{doomed.id, DeviceId{conn}, 2, doomed.doomed});
  for (const msg::Recover& recover : w.log<msg::Recover>(5)) {
    for (const msg::Plan& plan : recover.plans) w.complete(plan);
  }
  w.receive(conn, msg::Progress{0, {{doomed.id, DeviceId{conn}, 1, 1}}});
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  const msg::Outcome end = w.last<msg::GraphDone>(10)->outcome;
  CHECK(end.code == Errc::kTaskFailed);
  for (const char* part : {"request 1, planned op 0 (map", "point 2", "w1 ('host/1')", "3 workers died"})
    CHECK_MESSAGE(end.message.find(part) != std::string::npos, end.message);
  w.receive(10, msg::ReleaseArrays{{1}});
  w.apply_logs();
  w.receive(10, msg::StatusRequest{});
  CHECK(w.last<msg::StatusReply>(10)->arrays_live == 0);
}

TEST_CASE("nobody is blamed for what a worker merely had to do, nor by somebody else's word") {
  Poisoned w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), 1)}, {1});
  OpId id = w.log<msg::Plan>(5)[0].ops[0].id;
  // Of another number, of a worker that never was, of a device of another worker, of a point that is not there.
  std::uint32_t conn = 1;
  for (int death = 0; death < 4; ++death) {
    msg::LastWords wrong = w.words(conn, {{id, DeviceId{conn}, 2}});
    wrong.black_box = 7;
    w.receive(20, wrong);
    w.receive(20, w.words(99, {{id, DeviceId{conn}, 2}}));
    w.receive(10, w.words(conn, {{id, DeviceId{conn}, 2}}));  // not a tool
    CHECK(w.count<msg::Refusal>(10) == death + 1);
    w.receive(20, w.words(conn, {{id, DeviceId{conn % 5 + 1}, 2},
                                 {id, DeviceId{conn}, 4},
                                 {id, DeviceId{conn}, -1},
                                 {OpId{12345}, DeviceId{conn}, 0}}));
    w.die(conn);  // no need to wait: the words came first
    const msg::PlannedOp op = w.remade(2);
    CHECK_FALSE(op.alone);
    CHECK(op.doomed.ok());
    id = op.id;
    conn = w.owner(op, 2);
    if (conn == 5) break;
  }
}

TEST_CASE("a supervisor that says nothing is not waited for long; what it says then still counts") {
  Poisoned w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), 1)}, {1});
  const OpId id = w.log<msg::Plan>(5)[0].ops[0].id;
  w.die(1);
  CHECK(w.log<msg::Recover>(5).empty());
  CHECK(w.core.next_deadline() <= w.now + kSecond);
  w.wait(kSecond);
  REQUIRE(w.log<msg::Recover>(5).size() == 1);
  CHECK_FALSE(w.remade(2).alone);
  const std::uint32_t next = w.owner(w.remade(2), 2);
  w.receive(20, w.words(1, {{id, DeviceId{1}, 2}}));
  const OpId again = w.remade(2).id;
  w.receive(20, w.words(next, {{again, DeviceId{next}, 3}}));
  if (next != 5) {
    w.die(next);
    CHECK(w.remade(2).alone);
  }
}

TEST_CASE("a worker whose supervisor says that it is dead is not waited for, lease or not") {
  Poisoned w(10 * kSecond);
  w.step({Broken{Conn{1}}});
  CHECK(w.log<msg::PeerLost>(2).empty());
  w.receive(20, w.words(1, {}));
  CHECK(w.log<msg::PeerLost>(2).size() == 1);
}

TEST_CASE(
    "a scheduler that was away when a worker died is told of it later: it is lost at once, and once, however "
    "often it is told") {
  Poisoned w;
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), 1)}, {1});
  const OpId id = w.log<msg::Plan>(5)[0].ops[0].id;
  const auto buried = [&] { return w.log<msg::PeerLost>(5).size(); };
  w.begin_life(21);
  // Of a process that had its number in another scheduler's state.
  msg::LastWords other = w.words(1, {{id, DeviceId{1}, 2}});
  other.black_box = 7;
  w.receive(21, other);
  CHECK(buried() == 0);
  const msg::LastWords words = w.words(1, {{id, DeviceId{1}, 2}});
  w.receive(21, words);  // its link was never closed here, and no time has passed
  REQUIRE(buried() == 1);
  w.answer_without(1);
  REQUIRE(w.log<msg::Recover>(5).size() == 1);  // no need to wait for the words either
  const msg::PlannedOp again = w.remade(2);
  CHECK(again.alone);
  CHECK_FALSE(w.remade(0).alone);
  // Whoever did not hear that they were taken says them again: to the same scheduler, and to the next one.
  for (std::uint32_t supervisor = 21; supervisor <= 24; ++supervisor) {
    w.receive(supervisor, words);
    w.receive(supervisor, words);
    CHECK(buried() == 1);
    CHECK(w.log<msg::Recover>(5).size() == 1);
    w.begin_life(supervisor + 1);
  }
  // One that was missed before its supervisor found a way is not lost again; what it was executing counts, and its one death is no third.
  const std::uint32_t next = w.owner(again, 2);
  w.die(next);
  w.wait(kSecond);
  REQUIRE(w.log<msg::Recover>(5).size() == 2);
  const msg::PlannedOp third = w.remade(2);
  for (int time = 0; time < 3; ++time) w.receive(25, w.words(next, {{again.id, DeviceId{next}, 2}}));
  CHECK(buried() == 2);
  CHECK(w.log<msg::Recover>(5).size() == 2);
  const std::uint32_t last = w.owner(third, 2);
  if (last == 5) return;
  w.receive(25, w.words(last, {}));
  w.answer_without(last);
  CHECK(w.remade(2).alone);
  CHECK(w.remade(2).doomed.ok());
}

}  // namespace
}  // namespace tilewise::scheduler::test
