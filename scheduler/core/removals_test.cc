// What a save that failed has left is removed: by whom, when, and what its client hears.
#include <tilewise/ir/saving.h>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

namespace saving = ir::saving;

struct Failing : World {
  explicit Failing(int count = 2, bool supervisors = false) : supervised(supervisors) {
    for (int i = 1; i <= count; ++i) add(static_cast<std::uint32_t>(i));
    join(10, client());
    ir::Op commit;
    commit.kind = ir::OpKind::kCall;
    commit.space = grid({1}, {1});
    commit.outputs = {{1, ir::DType::kInt64, commit.space}};
    commit.attrs =
        ir::CallAttrs{.kernel = std::string(saving::kCommitNpy), .version = "1", .params = "which"};
    commit.hint.devices = {workers.back().second.devices[0]};
    REQUIRE(submit(10, 1, {commit}).outcome.ok());
    plan = log<msg::Plan>(1)[0];
  }
  void add(std::uint32_t conn) {
    msg::Join with = worker(1, "w" + std::to_string(conn));
    with.plugins = {{std::string(saving::kCommitNpy), "1", 1}, {std::string(saving::kDiscardNpy), "1", 2}};
    if (supervised) with.black_box = 100 + conn;
    workers.emplace_back(conn, join(conn, with));
  }
  void lose(std::uint32_t conn) {
    std::erase_if(workers, [&](const auto& w) { return w.first == conn; });
    drop(conn);
    for (const auto& [other, welcome] : workers)
      receive(other, msg::Held{log<msg::PeerLost>(other).back().version, {}, {}, false});
  }
  DeviceId device(std::uint32_t conn) const { return DeviceId{conn}; }
  // It tells of the failure of the only task, and then of its end.
  void fail() {
    const DeviceId device = plan.ops[0].placement.devices()[0];
    receive(workers.back().first, msg::TaskFailed{plan.ops[0].id, device, 0, {Errc::kDiskFull, "no space"}});
    complete(plan, 1);
  }
  std::vector<msg::Plan> removals(std::uint32_t conn) const {
    std::vector<msg::Plan> out;
    for (const msg::Plan& told : log<msg::Plan>(conn)) {
      const auto* call = std::get_if<ir::CallAttrs>(&told.ops.at(0).op.attrs);
      if (call != nullptr && call->kernel == saving::kDiscardNpy) out.push_back(told);
    }
    return out;
  }
  DeviceId who(const msg::Plan& removal) const { return removal.ops.at(0).placement.devices().at(0); }
  const msg::GraphDone* end() const { return last<msg::GraphDone>(10); }
  bool supervised;
  msg::Plan plan;
};

TEST_CASE("the end of a save that failed is told when what it left is gone, once") {
  Failing w;
  w.fail();
  const std::vector<msg::Plan> removals = w.removals(1);
  REQUIRE(removals.size() == 1);
  CHECK(removals[0].ops[0].op.get<ir::CallAttrs>().params == "which");
  CHECK(w.who(removals[0]) == w.plan.ops[0].placement.devices()[0]);  // it sees the place
  CHECK(w.end() == nullptr);
  w.receive(10, msg::Submit{1, 0, {}, {}});  // asked again: still no end
  CHECK(w.end() == nullptr);
  w.complete(removals[0]);
  w.step({});
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.end()->request == 1);
  CHECK(w.end()->outcome.code == Errc::kDiskFull);
  CHECK(w.end()->outcome.message.find("no space") != std::string::npos);
  w.receive(10, msg::Submit{1, 0, {}, {}});
  CHECK(w.count<msg::GraphDone>(10) == 2);  // what was told is told again
  CHECK(w.end()->outcome.code == Errc::kDiskFull);
  w.wait(kSecond);
  CHECK(w.removals(1).size() == 1);
}

TEST_CASE("one that ended well, or was refused, leaves nothing") {
  Failing w;
  w.complete(w.plan);
  w.apply_logs();
  REQUIRE(w.end() != nullptr);
  CHECK(w.end()->outcome.ok());
  CHECK(w.removals(1).empty());
  ir::Op bad = w.plan.ops[0].op;
  bad.attrs = ir::CallAttrs{.kernel = std::string(saving::kCommitNpy), .version = "2"};
  bad.outputs[0].array = 9;
  CHECK(!w.submit(10, 2, {bad}).outcome.ok());
  CHECK(w.removals(1).empty());
}

// A writer that is in the kernel for good (a disk that answers no more) says nothing: neither of its cancellation, nor of a removal.
TEST_CASE("whoever waits for a removal is told of the end within a silence time-out; the removal goes on") {
  Failing w;
  std::string why = "no space";
  SUBCASE("a worker does not say that it has let the save go") {
    w.receive(10, msg::CancelRequest{1});
    why = "cancelled by its client";
    CHECK(w.removals(1).empty());
  }
  SUBCASE("the removal does not end") {
    w.fail();
    CHECK(w.removals(1).size() == 1);
  }
  for (int i = 0; i < 9; ++i) {
    w.wait(kSecond);
    for (const auto& [conn, welcome] : w.workers) w.receive(conn, msg::Pong{});
    w.receive(10, msg::Pong{});
  }
  CHECK(w.end() == nullptr);
  CHECK(w.core.next_deadline() <= w.now + kSecond);
  w.wait(kSecond);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.end()->request == 1);
  CHECK(w.end()->outcome.message.find(why) != std::string::npos);
  w.apply_logs();
  REQUIRE(w.removals(1).size() == 1);
  w.complete(w.removals(1)[0]);
  w.step({});
  w.wait(kSecond);
  CHECK(w.count<msg::GraphDone>(10) == 1);  // once
  CHECK(w.removals(1).size() == 1);
}

// Else a task that is still running would make anew what was removed.
TEST_CASE("it is removed when all workers are done with a save that was given up") {
  for (const bool client_dies : {false, true}) {
    for (const bool last_dies : {false, true}) {
      CAPTURE(client_dies);
      CAPTURE(last_dies);
      Failing w;
      if (client_dies)
        w.drop(10);
      else
        w.receive(10, msg::CancelRequest{1});
      w.wait(kSecond);
      CHECK(w.removals(1).empty());
      const auto told = [&](std::uint32_t conn) {
        std::uint64_t applied = 0;
        for (const Send& sent : w.inbox) {
          const auto* log = std::get_if<msg::Log>(&sent.message);
          if (log != nullptr && sent.to == Conn{conn}) applied = log->first + log->entries.size() - 1;
        }
        return msg::Progress{.log_applied = applied};
      };
      w.receive(1, told(1));
      CHECK(w.removals(1).empty());
      if (last_dies)
        w.lose(2);
      else
        w.receive(2, told(2));
      REQUIRE(w.removals(1).size() == 1);
      w.complete(w.removals(1)[0]);
      w.step({});
      CHECK(w.removals(1).size() == 1);
    }
  }
}

TEST_CASE("who was to remove it dies: another one does after a while, however often that happens") {
  Failing w(6);
  w.fail();
  for (const std::uint32_t conn : {6, 1, 2, 3, 4}) {
    CAPTURE(conn);
    const std::vector<msg::Plan> before = w.removals(5);
    REQUIRE(w.who(before.back()) == w.device(conn));
    w.lose(conn);
    w.wait(kSecond - 1);
    CHECK(w.removals(5).size() == before.size());
    CHECK(w.core.next_deadline() == w.now + 1);
    w.wait(1);
    CHECK(w.end() == nullptr);
  }
  REQUIRE(w.removals(5).size() == 6);
  w.complete(w.removals(5)[5]);
  w.step({});
  REQUIRE(w.end() != nullptr);
  CHECK(w.end()->outcome.code == Errc::kDiskFull);
}

TEST_CASE("it takes three workers down: it is not done") {
  Failing w(5, true);
  w.fail();
  msg::Join tool = w.client();
  tool.role = msg::Role::kTool;
  tool.devices.clear();
  w.receive(20, tool);
  for (const std::uint32_t conn : {5, 1, 2}) {
    CAPTURE(conn);
    CHECK(w.end() == nullptr);
    const OpId running = w.removals(4).back().ops[0].id;
    w.receive(20, msg::LastWords{WorkerId{conn}, 100 + conn, "killed", {{running, w.device(conn), 0}}});
    w.lose(conn);
    w.wait(4 * kSecond);
  }
  CHECK(w.removals(4).size() == 3);
  REQUIRE(w.end() != nullptr);
  CHECK(w.end()->outcome.code == Errc::kDiskFull);
}

TEST_CASE("nobody who is to leave is asked to remove it, while there is somebody else") {
  Failing w;
  w.step({OperatorDrain{WorkerId{2}}});
  w.fail();
  REQUIRE(w.removals(1).size() == 1);
  CHECK(w.who(w.removals(1)[0]) == w.device(1));
}

TEST_CASE(
    "what cannot be removed is tried three times, further and further apart, and the save's own failure is "
    "told") {
  Failing w;
  w.fail();
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(w.removals(1).size() == i + 1);
    CHECK(w.end() == nullptr);
    const msg::Plan removal = w.removals(1)[i];
    w.receive(2,
              msg::TaskFailed{removal.ops[0].id, w.who(removal), 0, {Errc::kPermissionDenied, "not mine"}});
    w.complete(removal, 1);
    w.step({});
    if (i == 2) break;
    w.wait((kSecond << i) - 1);
    CHECK(w.removals(1).size() == i + 1);
    CHECK(w.core.next_deadline() == w.now + 1);
    w.wait(1);
  }
  CHECK(w.removals(1).size() == 3);
  REQUIRE(w.end() != nullptr);
  CHECK(w.end()->outcome.code == Errc::kDiskFull);
}

TEST_CASE("no worker is left: the end is told, and it is removed when there is one again") {
  Failing w(1);
  w.receive(10, msg::CancelRequest{1});
  w.lose(1);
  w.step({});
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.end()->outcome.code == Errc::kCancelled);
  w.add(3);
  REQUIRE(w.removals(3).size() == 1);
  w.complete(w.removals(3)[0]);
  w.step({});
  CHECK(w.count<msg::GraphDone>(10) == 1);
}

TEST_CASE("the next life of the scheduler knows what is to be removed") {
  Failing w;
  w.fail();
  std::vector<msg::Message> kept;
  const SnapshotCodec codec{
      [&](const msg::Message& m) -> Result<std::string> {
        kept.push_back(m);
        return std::to_string(kept.size() - 1);
      },
      [&](std::string_view bytes) -> Result<msg::Message> { return kept[std::stoul(std::string(bytes))]; }};
  std::vector<Action> actions;
  w.core.settle(w.now, actions);
  const auto bytes = w.core.snapshot(codec);
  REQUIRE(bytes.has_value());
  Core next{Options{}};
  REQUIRE(next.restore(*bytes, codec).has_value());
  next.check_invariants();
  CHECK(next.digest() == w.core.digest());
  // Who was at it says that it is over: then the client hears.
  const msg::Plan removal = w.removals(1)[0];
  std::vector<Event> events{
      Received{Conn{2}, msg::Progress{.ops = {{removal.ops[0].id, w.who(removal), 1, 0}}}}};
  actions.clear();
  next.step(events, w.now, actions);
  next.check_invariants();
  events.clear();
  next.step(events, w.now, actions);
  CHECK(std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    const auto* sent = std::get_if<Send>(&action);
    return sent != nullptr && sent->to == Conn{10} && std::holds_alternative<msg::GraphDone>(sent->message);
  }));
}

}  // namespace
}  // namespace tilewise::scheduler::test
