// Every message that can reach the scheduler's core: twice, late, from somebody who is dead, and not at all. One entry a tag
// of msg::Message; a new message does not compile until it has one (-Werror=switch).
#include <doctest/doctest.h>

#include "core_world.h"
#include "message_tags.h"

namespace tilewise::scheduler::test {
namespace {

using testing::Tag;

constexpr std::uint32_t kWorker = 1, kOther = 2, kDead = 3, kClient = 10, kTool = 20, kNew = 30;
const ir::Grid kEightOfTen = grid({80}, {10});

// What a repeat may do beside being ignored.
enum class Repeat { kNothing, kAnswers, kAsksAnew };
struct Case {
  std::uint32_t from = 0;
  msg::Message message;
  Repeat repeat = Repeat::kNothing;
  bool refused = false;  // it is not the scheduler's to get
};

// Two workers, a third one just lost and its recovery pending, one held array, one request under way, one drain begun, one
// link being measured.
struct Busy : World {
  Busy() : World({.seed = 3, .link_probes = true}) {
    w1 = add_worker(kWorker, 1, "one");
    w2 = add_worker(kOther, 1, "two");
    w3 = add_worker(kDead, 1, "three");
    join(kClient, client());
    msg::Join tool;
    tool.role = msg::Role::kTool, tool.name = "tool", tool.software_version = "1";
    join(kTool, tool);
    submit(kClient, 1, {random(1, kEightOfTen)}, {1});
    complete(log<msg::Plan>(kWorker)[0]);
    submit(kClient, 2, {map(2, kEightOfTen, {1})}, {2});
    plan = log<msg::Plan>(kWorker).back();
    step({OperatorDrain{w2.you}});
    workers.pop_back();
    drop(kDead);
    receive(kTool, msg::TraceRequest{7, {}});
    receive(kTool, msg::BlocksRequest{8, ArrayId{plan.ops[0].op.outputs[0].array}, 0, 8});
  }

  Case sample(Tag tag) {
    const msg::PlannedOp& op = plan.ops[0];
    const auto not_for_it = [](msg::Message m, std::uint32_t from = kWorker) {
      return Case{from, std::move(m), Repeat::kAnswers, true};
    };
    switch (tag) {
      case Tag::kJoin: return {kNew, worker(1, "new"), Repeat::kAnswers};
      case Tag::kProgress: return {kWorker, msg::Progress{0, {{op.id, w1.devices[0], 1, 0}}}};
      case Tag::kTaskFailed:
        return {kWorker, msg::TaskFailed{op.id, w1.devices[0], 0, {Errc::kTaskFailed, "x"}}};
      case Tag::kStuck: return {kWorker, msg::Stuck{plan.graph, op.id, w1.devices[0], 8, 0}};
      case Tag::kSubmit: return {kClient, msg::Submit{3, 0, {random(3, kEightOfTen)}, {3}}, Repeat::kAnswers};
      case Tag::kReleaseArrays: return {kClient, msg::ReleaseArrays{{1}}};
      case Tag::kCancelRequest: return {kClient, msg::CancelRequest{2}};
      case Tag::kStatusRequest: return {kTool, msg::StatusRequest{}, Repeat::kAnswers};
      case Tag::kShutdown: return {kTool, msg::Shutdown{}, Repeat::kAnswers};
      case Tag::kPing: return {kClient, msg::Ping{5}, Repeat::kAnswers};
      case Tag::kPong: return {kWorker, msg::Pong{1}};
      case Tag::kRefusal: return {kWorker, msg::Refusal{{Errc::kInternal, "x"}}};
      case Tag::kExplain:
        return {kClient, msg::Explain{msg::Submit{9, 0, {random(9, kEightOfTen)}, {}}, {}, {}},
                Repeat::kAsksAnew};
      case Tag::kTraceRequest: return {kTool, msg::TraceRequest{9, {}}, Repeat::kAsksAnew};
      case Tag::kTraceReply: return {kWorker, msg::TraceReply{last<msg::TraceRequest>(kWorker)->nonce}};
      case Tag::kHeld: return {kWorker, msg::Held{log<msg::PeerLost>(kWorker).back().version, {}, {}, false}};
      case Tag::kBlocksRequest: return {kTool, msg::BlocksRequest{9, ArrayId{1}, 0, 1}, Repeat::kAsksAnew};
      case Tag::kBlocksReply: return {kWorker, msg::BlocksReply{last<msg::BlocksRequest>(kWorker)->nonce}};
      case Tag::kDrained: return {kOther, msg::Drained{w2.you, log<msg::Drain>(kOther).back().round, 0}};
      case Tag::kDrainRequest:
        return {kTool, msg::DrainRequest{"one", msg::DrainWish::kLeave}, Repeat::kAnswers};
      case Tag::kWelcome: return not_for_it(msg::Welcome{});
      case Tag::kLog: return not_for_it(msg::Log{});
      case Tag::kSubmitReply: return not_for_it(msg::SubmitReply{});
      case Tag::kGraphProgress: return not_for_it(msg::GraphProgress{});
      case Tag::kGraphDone: return not_for_it(msg::GraphDone{});
      case Tag::kStatusReply: return not_for_it(msg::StatusReply{});
      case Tag::kPeerHello: return not_for_it(msg::PeerHello{});
      case Tag::kArenaMap: return not_for_it(msg::ArenaMap{});
      case Tag::kPeerBatch: return not_for_it(msg::PeerBatch{});
      case Tag::kExplanation: return not_for_it(msg::Explanation{}, kClient);
      case Tag::kResume: return not_for_it(msg::Resume{});
      case Tag::kResumed: return not_for_it(msg::Resumed{});
      case Tag::kAck: return not_for_it(msg::Ack{});
      case Tag::kDrainReply: return not_for_it(msg::DrainReply{});
      case Tag::kLastWords: return {kTool, msg::LastWords{w3.you, 7, "killed by signal 9 (Killed)", {}}};
      case Tag::kLeave: return {kClient, msg::Leave{}};
      case Tag::kLinkProbe: return not_for_it(msg::LinkProbe{});
      case Tag::kLinkProbed: {
        const msg::LinkProbe* asked = last<msg::LinkProbe>(kOther);
        const std::uint32_t from = asked != nullptr ? kOther : kWorker;
        msg::LinkProbed told{last<msg::LinkProbe>(from)->nonce};
        told.sizes = {{4096, 1, 50'000, msg::Lane::kTcp}};
        return {from, told};
      }
      case Tag::kAnnounce:
        return {kClient,
                msg::Announce{3, "whole", ir::DType::kFloat64, {80}, 1, 0, 3, 100, {{{0}, {80}}}, {}},
                Repeat::kAnswers};
    }
    return {};
  }

  // Whoever lives does all it was given and answers all it is asked, until nothing is left to do.
  void to_the_end() {
    const bool listed =
        std::any_of(workers.begin(), workers.end(), [](const auto& w) { return w.first == kNew; });
    if (const auto* joined = last<msg::Welcome>(kNew); joined != nullptr && !listed && !forgotten)
      workers.emplace_back(kNew, *joined);
    for (int round = 0; round < 12; ++round) {
      const std::vector<std::pair<std::uint32_t, msg::Welcome>> living = workers;
      for (const auto& [conn, welcome] : living) {
        const auto lost = log<msg::PeerLost>(conn);
        if (!lost.empty() && lost.back().version > 0) {
          msg::Held held;
          held.version = lost.back().version;
          receive(conn, held);
        }
        for (const msg::Drain& drain : log<msg::Drain>(conn))
          receive(conn, msg::Drained{drain.peer, drain.round, 0});
        for (const msg::Plan& p : log<msg::Plan>(conn)) complete(p);
        for (const msg::Recover& recover : log<msg::Recover>(conn)) {
          for (const msg::Plan& p : recover.plans) complete(p);
        }
      }
      apply_logs();
      wait(3 * kSecond);
      for (const std::uint32_t conn : {kWorker, kOther, kClient, kTool, kNew}) receive(conn, msg::Pong{});
    }
  }
  void forget(std::uint32_t conn) {
    forgotten = forgotten || conn == kNew;
    std::erase_if(workers, [&](const auto& w) { return w.first == conn; });
    drop(conn);
  }
  std::size_t running() {
    receive(kLast, msg::Join{msg::Role::kTool, "last", "1"});
    receive(kLast, msg::StatusRequest{});
    return last<msg::StatusReply>(kLast)->graphs.size();
  }

  static constexpr std::uint32_t kLast = 77;
  bool forgotten = false;  // the newcomer
  msg::Welcome w1, w2, w3;
  msg::Plan plan;
};

template <class Fn> void for_each_tag(Fn&& fn) {
  testing::each_tag([&](Tag tag) {
    Busy w;
    const Case c = w.sample(tag);
    REQUIRE(testing::tag_of(c.message) == tag);
    fn(w, c);
  });
}

TEST_CASE("every message twice: the second time nothing changes") {
  for_each_tag([](Busy& w, const Case& c) {
    w.receive(c.from, c.message);
    const std::uint64_t once = w.core.digest();
    w.receive(c.from, c.message);
    if (c.repeat != Repeat::kAsksAnew) CHECK(w.core.digest() == once);
    if (c.repeat == Repeat::kNothing) CHECK(w.quiet());
    if (c.refused) CHECK(w.last<msg::Refusal>(c.from) != nullptr);
    w.to_the_end();
    CHECK(w.running() == 0);
  });
}

TEST_CASE("every message late: what it is about is over") {
  for_each_tag([](Busy& w, const Case& c) {
    if (c.message.index() == static_cast<std::size_t>(Tag::kJoin)) w.receive(c.from, c.message);
    w.to_the_end();
    w.receive(kClient, msg::ReleaseArrays{{1, 2, 3}});
    w.apply_logs();
    w.step({});
    const std::uint64_t before = w.core.digest();
    w.receive(c.from, c.message);
    // New work is new work, whenever it comes, and who leaves leaves; everything else is about what is gone.
    const bool asks =
        std::holds_alternative<msg::Submit>(c.message) || std::holds_alternative<msg::Announce>(c.message) ||
        std::holds_alternative<msg::DrainRequest>(c.message) || std::holds_alternative<msg::Leave>(c.message);
    if (c.repeat != Repeat::kAsksAnew && !asks) CHECK(w.core.digest() == before);
    w.to_the_end();
    CHECK(w.running() == 0);
  });
}

TEST_CASE("every message from a dead incarnation: nobody listens") {
  for_each_tag([](Busy& w, const Case& c) {
    if (c.from == kNew) w.receive(c.from, c.message);
    w.forget(c.from);
    const std::uint64_t before = w.core.digest();
    w.receive(c.from, c.message);
    CHECK(w.core.digest() == before);
    CHECK(w.quiet());
    w.to_the_end();
    CHECK(w.running() == 0);
  });
}

// Links lose nothing while they are up, so what is lost is lost with its sender: the message itself, or what is said to it and would
// have followed it.
TEST_CASE("every message lost: its sender's end is noticed, and all else ends") {
  for (const bool arrived : {false, true}) {
    CAPTURE(arrived);
    for_each_tag([&](Busy& w, const Case& c) {
      if (arrived) w.receive(c.from, c.message);
      if (arrived || c.from != kNew) w.forget(c.from);
      w.core.check_invariants();
      w.to_the_end();
      CHECK(w.running() == 0);
    });
  }
}

}  // namespace
}  // namespace tilewise::scheduler::test
