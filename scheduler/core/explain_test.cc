#include "core_world.h"

#include <doctest/doctest.h>

namespace tilewise::scheduler::test {
namespace {

TEST_CASE("explaining changes nothing, and says what a submit then does") {
  World w;
  w.add_worker(1, 4);
  w.join(10, w.client());
  const std::uint64_t before = w.core.digest();
  msg::Explain explain;
  explain.submit = {7, 0, {random(1, kEightByEight), map(2, kEightByEight, {1})}, {2}};
  explain.arrays = {2, 99};
  w.receive(10, explain);
  CHECK(w.core.digest() == before);
  const msg::Explanation told = *w.last<msg::Explanation>(10);
  CHECK(told.request == 7);
  REQUIRE_MESSAGE(told.outcome.ok(), told.outcome.message);
  CHECK(told.simulated);
  CHECK(told.passes.size() == 9);
  CHECK(!told.passes.back().dump.empty());
  REQUIRE(told.arrays.size() == 1);  // 99 is nobody's
  CHECK(told.arrays[0].planned);
  CHECK(w.log<msg::Plan>(1).empty());

  CHECK(w.submit(10, 1, {random(1, kEightByEight), map(2, kEightByEight, {1})}, {2}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  REQUIRE(plan.ops.size() == told.ops.size());
  CHECK(plan.ops.back().placement == told.arrays[0].placement);
  // The running graph, told to anyone who may ask.
  msg::Explain running;
  running.graph = plan.graph;
  w.receive(10, running);
  CHECK(w.last<msg::Explanation>(10)->ops.size() == told.ops.size());
  // Its first op ends: what is left can be explained.
  w.receive(1, msg::Progress{0, {{plan.ops[0].id, DeviceId{1}, 16, 0}}, {}, {}, {}});
  for (int d = 2; d <= 4; ++d)
    w.receive(
        1, msg::Progress{0, {{plan.ops[0].id, DeviceId{static_cast<std::uint32_t>(d)}, 16, 0}}, {}, {}, {}});
  w.receive(10, running);
  CHECK(w.last<msg::Explanation>(10)->outcome.ok());
  CHECK(w.last<msg::Explanation>(10)->ops.size() == told.ops.size() - 1);
  running.graph = GraphId{12345};
  w.receive(10, running);
  CHECK(w.last<msg::Explanation>(10)->outcome.code == Errc::kNotFound);
  w.core.check_invariants();
}

TEST_CASE("of a product, what stays, on which grid, and the bytes of that and of what was rejected") {
  World w;
  w.join(10, w.client());
  for (std::uint32_t i = 1; i <= 4; ++i) w.add_worker(i, 1, "host" + std::to_string(i));
  const ir::Grid g = grid({4096, 4096}, {512, 512});
  msg::Explain explain;
  explain.submit.request = 1;
  explain.submit.ops = {random(1, g), random(2, g, 8), matmul(3, g, 1, g, 2)};
  explain.submit.ops.back().attrs = ir::MatmulAttrs{2};
  explain.submit.holds = {3};
  w.receive(10, explain);
  const msg::Explanation told = *w.last<msg::Explanation>(10);
  REQUIRE_MESSAGE(told.outcome.ok(), told.outcome.message);
  const auto product = std::find_if(told.ops.begin(), told.ops.end(), [](const msg::OpAccount& op) {
    return op.op.find("matmul_panels") != std::string::npos;
  });
  REQUIRE(product != told.ops.end());
  REQUIRE(product->choices.size() >= 2);
  CHECK(product->choices[0].placement.find("KiB moved") != std::string::npos);
  CHECK(product->choices[0].seconds <= product->choices[1].seconds);
}

TEST_CASE("a running graph's peaks are of what will be there at once, not of all that it is still to make") {
  World w;
  const msg::Welcome me = w.add_worker(1, 1);
  w.join(10, w.client());
  std::vector<ir::Op> chain{random(1, kEightByEight)};
  for (std::uint64_t n = 2; n <= 40; ++n) {
    chain.push_back(n % 2 == 0 ? matmul(n, kEightByEight, n - 1, kEightByEight, n - 1)
                               : map(n, kEightByEight, {n - 1}));
  }
  msg::Explain before;
  before.submit = {1, 0, chain, {40}};
  w.receive(10, before);
  const std::int64_t planned = w.last<msg::Explanation>(10)->devices[0].bytes_peak;
  const msg::Plan plan = (w.submit(10, 1, chain, {40}), w.log<msg::Plan>(1).back());
  msg::Explain running;
  running.graph = plan.graph;
  const auto told = [&] {
    w.receive(10, running);
    const msg::Explanation* out = w.last<msg::Explanation>(10);
    REQUIRE(out->simulated);
    return out->devices[0];
  };
  CHECK(told().bytes_peak == planned);
  CHECK(told().bytes_before == 0);
  w.receive(1, msg::Progress{0, {{plan.ops[0].id, me.devices[0], 64, 0}}, {}, {}, {}});
  CHECK(told().bytes_before == 64 * 64 * 8);  // what its first op made
  CHECK(told().bytes_peak <= planned);
  CHECK(told().bytes_peak >= 2 * 57 * 64 * 8);  // a product and its operand, whose last row goes meanwhile
}

TEST_CASE("where graphs run at once, each one's account has the others in it") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.join(11, w.client());
  const auto explain = [&](GraphId graph) {
    msg::Explain question;
    question.graph = graph;
    w.receive(10, question);
    const msg::Explanation* out = w.last<msg::Explanation>(10);
    REQUIRE(out->simulated);
    return *out;
  };
  // Both hold their results: 64 blocks of 512 bytes each. A task of either goes in turn.
  const auto submit = [&](int client) {
    REQUIRE(w.submit(client, 1, {random(1, kEightByEight)}, {1}).outcome.ok());
    return w.log<msg::Plan>(1).back().graph;
  };
  const GraphId first = submit(10);
  const msg::Explanation alone = explain(first);
  CHECK(alone.devices[0].bytes_peak == 64 * 512);
  const GraphId second = submit(11);
  const msg::Explanation shared = explain(first);
  CHECK(shared.ops.size() == 1);
  CHECK(shared.tasks == 64);
  CHECK(shared.devices[0].tasks == 64);
  CHECK(shared.devices[0].busy_s == doctest::Approx(alone.devices[0].busy_s));
  CHECK(shared.bound_s == doctest::Approx(alone.bound_s));
  CHECK(shared.devices[0].bytes_peak == 2 * 64 * 512);
  CHECK(shared.seconds > 1.9 * alone.seconds);
  CHECK(explain(second).seconds > 1.9 * alone.seconds);
  // What it waits for is told as the others' time, not as an op of its own.
  double critical = 0;
  bool waits = false;
  for (const msg::CriticalAccount& c : shared.critical) {
    CHECK(c.op == 0);
    critical += c.seconds;
    waits |= c.what == "waits";
  }
  CHECK(waits);
  CHECK(critical == doctest::Approx(shared.seconds));
  w.core.check_invariants();
}

TEST_CASE("a graph that reads what another is still making waits for it on paper, too") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  REQUIRE(w.submit(10, 1, {random(1, kEightByEight)}, {1}).outcome.ok());
  REQUIRE(w.submit(10, 2, {map(2, kEightByEight, {1})}, {2}).outcome.ok());
  msg::Explain question;
  question.graph = w.log<msg::Plan>(1).back().graph;
  w.receive(10, question);
  const msg::Explanation told = *w.last<msg::Explanation>(10);
  REQUIRE(told.simulated);
  REQUIRE(told.ops.size() == 1);
  CHECK(told.ops[0].begin_s > 0);
  CHECK(told.seconds > told.bound_s);
}

TEST_CASE("what would be refused is explained with its reason") {
  World w;
  w.join(10, w.client());  // no worker
  msg::Explain explain;
  explain.submit = {1, 0, {random(1, kEightByEight)}, {1}};
  w.receive(10, explain);
  CHECK(w.last<msg::Explanation>(10)->outcome.code == Errc::kUnavailable);
  explain.submit.ops = {map(2, kEightByEight, {77})};
  w.receive(10, explain);
  CHECK(!w.last<msg::Explanation>(10)->outcome.ok());
  // A worker has no business asking for what is not submitted.
  w.add_worker(1, 1);
  w.receive(1, explain);
  CHECK(w.last<msg::Explanation>(1) == nullptr);
  CHECK(w.last<msg::Refusal>(1) != nullptr);
}

TEST_CASE("times are predicted by measured speeds; nonsense is ignored") {
  World w;
  const msg::Welcome worker = w.add_worker(1, 2);
  w.join(10, w.client());
  msg::Progress slow;
  slow.families.push_back({worker.devices[0], "map", 100, 50'000'000, 1'000'000});
  slow.families.push_back({worker.devices[1], "map", 100, 1'000'000, 1'000'000});
  slow.families.push_back({DeviceId{999}, "map", 100, 1, 1});      // nobody's
  slow.families.push_back({worker.devices[1], "map", 5, -4, -4});  // nonsense
  w.receive(1, slow);
  msg::Explain explain;
  explain.submit = {1, 0, {random(1, kEightByEight)}, {1}};
  w.receive(10, explain);
  const msg::Explanation told = *w.last<msg::Explanation>(10);
  REQUIRE(told.devices.size() == 2);
  REQUIRE(told.devices[0].tasks == 32);
  REQUIRE(told.devices[1].tasks == 32);
  CHECK(told.devices[0].busy_s > 40 * told.devices[1].busy_s);
  w.core.check_invariants();
}

TEST_CASE("links are reckoned as they were measured, and forgotten with their process") {
  World w;
  const msg::Welcome a = w.join(1, w.worker(1, "a", std::int64_t{1} << 30, 1));
  const msg::Welcome b = w.join(2, w.worker(1, "b", std::int64_t{1} << 30, 1));
  w.join(10, w.client());
  msg::Explain explain;
  ir::Op here = random(1, kEightByEight), there = map(2, kEightByEight, {1});
  here.hint.devices = {a.devices[0]};
  there.hint.devices = {b.devices[0]};
  explain.submit = {1, 0, {here, there}, {2}};
  const auto link = [&] {
    w.receive(10, explain);
    const msg::Explanation* told = w.last<msg::Explanation>(10);
    REQUIRE_MESSAGE(told->outcome.ok(), told->outcome.message);
    REQUIRE(told->links.size() == 1);
    return told->links[0];
  };
  CHECK(!link().measured);
  msg::Progress progress;
  progress.links.push_back({a.you, 2, 100, 1'000'000'000, 10'000'000'000});
  progress.links.push_back({WorkerId{999}, 2, 100, 1, 1});  // nobody's
  w.receive(2, progress);
  CHECK(link().measured);
  CHECK(link().bytes_per_s == doctest::Approx(1e8));
  CHECK(link().busy_s == doctest::Approx(64 * 64 * 8 / 1e8).epsilon(0.01));
  w.core.check_invariants();
}

TEST_CASE("traces are collected from every worker, and late or strange ones dropped") {
  World w;
  w.join(10, w.client());
  w.receive(10, msg::TraceRequest{5, {}});
  CHECK(w.last<msg::TraceReply>(10)->of == 0);  // nobody to ask
  w.add_worker(1, 1);
  w.add_worker(2, 1);
  w.receive(10, msg::TraceRequest{6, GraphId{3}});
  const msg::TraceRequest asked = *w.last<msg::TraceRequest>(1);
  CHECK(asked.graph == GraphId{3});
  CHECK(w.last<msg::TraceRequest>(2)->nonce == asked.nonce);
  w.receive(1, msg::TraceReply{asked.nonce, {}, 0, 4, {"map"}, {}});
  const msg::TraceReply first = *w.last<msg::TraceReply>(10);
  CHECK(first.nonce == 6);
  CHECK(first.of == 2);
  CHECK(first.lost == 4);
  w.receive(2, msg::TraceReply{asked.nonce, {}, 0, 0, {}, {}});
  CHECK(w.count<msg::TraceReply>(10) == 3);
  w.receive(2, msg::TraceReply{asked.nonce, {}, 0, 0, {}, {}});  // again
  w.receive(2, msg::TraceReply{asked.nonce + 5, {}, 0, 0, {}, {}});
  CHECK(w.count<msg::TraceReply>(10) == 3);
  // A worker that is lost has said all it will.
  w.receive(10, msg::TraceRequest{8, {}});
  w.receive(1, msg::TraceReply{w.last<msg::TraceRequest>(1)->nonce, {}, 0, 0, {}, {}});
  w.drop(2);
  CHECK(w.last<msg::TraceReply>(10)->nonce == 8);
  CHECK(w.count<msg::TraceReply>(10) == 5);
  // Who asks for too many at once is refused.
  for (std::uint64_t n = 20; n < 24; ++n) w.receive(10, msg::TraceRequest{n, {}});
  const int before = w.count<msg::TraceReply>(10);
  w.receive(10, msg::TraceRequest{24, {}});
  REQUIRE(w.count<msg::TraceReply>(10) == before + 1);  // it says of which
  CHECK(w.last<msg::TraceReply>(10)->nonce == 24);
  CHECK(w.last<msg::TraceReply>(10)->refused.code == Errc::kUnavailable);
  for (std::uint64_t n = 4; n > 0; --n)
    w.receive(1, msg::TraceReply{w.last<msg::TraceRequest>(1)->nonce - n + 1, {}, 0, 0, {}, {}});
  // Who asked has gone.
  w.receive(10, msg::TraceRequest{7, {}});
  const std::uint64_t nonce = w.last<msg::TraceRequest>(1)->nonce;
  w.drop(10);
  w.receive(1, msg::TraceReply{nonce, {}, 0, 0, {}, {}});
  w.core.check_invariants();
}

TEST_CASE("where blocks are is asked of every worker, a bounded number at once") {
  World w;
  w.join(10, w.client());
  w.add_worker(1, 1), w.add_worker(2, 1);
  w.receive(10, msg::BlocksRequest{6, ArrayId{3}, 16, msg::kMaxBlocksAsked});
  const msg::BlocksRequest asked = *w.last<msg::BlocksRequest>(1);
  CHECK(asked.array == ArrayId{3});
  CHECK(asked.first == 16);
  msg::BlocksReply reply;
  reply.nonce = asked.nonce;
  reply.copies = {{17, DeviceId{1}, msg::BlockState::kReceiving, false, 64, DeviceId{2}}};
  w.receive(1, reply);
  CHECK(w.last<msg::BlocksReply>(10)->nonce == 6);
  CHECK(w.last<msg::BlocksReply>(10)->of == 2);
  CHECK(w.last<msg::BlocksReply>(10)->copies == reply.copies);
  w.receive(2, msg::TraceReply{asked.nonce, {}, 0, 0, {}, {}});  // an answer to something else
  CHECK(w.count<msg::TraceReply>(10) == 0);
  w.drop(2);
  CHECK(w.count<msg::BlocksReply>(10) == 2);
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{-1, 1}, {0, -1}, {0, msg::kMaxBlocksAsked + 1}}) {
    w.receive(10, msg::BlocksRequest{7, ArrayId{3}, first, count});
    CHECK(w.last<msg::BlocksReply>(10)->refused.code == Errc::kInvalidArgument);
    CHECK(w.last<msg::BlocksReply>(10)->of == 0);
  }
  w.receive(1, msg::BlocksRequest{8, ArrayId{3}, 0, 1});  // workers have no business asking
  CHECK(w.last<msg::Refusal>(1) != nullptr);
}

}  // namespace
}  // namespace tilewise::scheduler::test
