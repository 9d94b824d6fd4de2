// What people see: true, bounded, and without any effect.
#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

World watched() {
  Options options;
  options.history_graphs = 2;
  return World(options);
}

template <class V> V seen(const World& w, const ViewRequest& request) {
  const View view = w.core.view(request, w.now);
  REQUIRE(std::holds_alternative<V>(view));
  return std::get<V>(view);
}
Overview overview(const World& w) { return seen<Overview>(w, OverviewRequest{}); }

ir::Op named(ir::Op op, std::string label) {
  op.label = std::move(label);
  return op;
}

TEST_CASE("a graph is seen from its submission to beyond its end") {
  World w = watched();
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  const GraphId id =
      w.submit(10, 1, {named(random(1, kFourByFour), "noise"), named(map(2, kFourByFour, {1}), "minus")}, {2})
          .graph;
  w.now += kSecond;
  GraphView g = seen<GraphView>(w, GraphRequest{id});
  CHECK(g.summary.running);
  CHECK(g.summary.client == "client");
  CHECK(g.source_count == 2);
  REQUIRE(g.source.size() == 2);
  CHECK(g.source[0].label == "noise");
  CHECK(g.source[1].inputs == std::vector<std::uint32_t>{0});
  CHECK(!g.passes.empty());
  CHECK(g.passes.back().ops == g.summary.ops);
  REQUIRE(!g.ops.empty());
  CHECK(g.ops[0].began == kNotYet);
  CHECK(g.ops[0].tasks == 16);

  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  w.receive(1, msg::Progress{0, {{plan.ops[0].id, me.devices[0], 5, 0}}, {}, {}});
  const TimeNs reported = w.now;
  g = seen<GraphView>(w, GraphRequest{id});
  CHECK(g.ops[0].done == 5);
  CHECK(g.ops[0].began >= 0);
  CHECK(overview(w).graphs.at(0).groups.at(0).done >= 5);
  // Only what changed since.
  w.now += kSecond;
  CHECK(seen<GraphView>(w, GraphRequest{id, g.now}).ops.empty());
  w.receive(1, msg::Progress{0, {{plan.ops[0].id, me.devices[0], 6, 0}}, {}, {}});
  CHECK(seen<GraphView>(w, GraphRequest{id, g.now}).ops.size() == 1);
  CHECK(w.now > reported);

  w.complete(plan);
  g = seen<GraphView>(w, GraphRequest{id});
  CHECK(!g.summary.running);
  CHECK(g.summary.cause.ok());
  CHECK(g.summary.done == g.summary.tasks);
  CHECK(g.ops.size() == plan.ops.size());  // retired or not
  CHECK(g.forgotten == 0);
  w.receive(10, msg::ReleaseArrays{{2}});
  g = seen<GraphView>(w, GraphRequest{id});
  CHECK(g.ops.size() == plan.ops.size());
  CHECK(overview(w).graphs.at(0).id == id);
}

TEST_CASE("the placements that were rejected are told while a graph runs, and after its end") {
  World w = watched();
  const msg::Welcome worker = w.add_worker(1, 4);
  w.join(10, w.client());
  const ir::Grid big = grid({4096, 4096}, {512, 512});
  msg::Explain before;
  before.submit = {1, 0, {random(1, big), map(2, big, {1}), matmul(3, big, 2, big, 2)}, {3}};
  w.receive(10, before);
  const msg::Explanation planned = *w.last<msg::Explanation>(10);
  REQUIRE(w.submit(10, 1, before.submit.ops, {3}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  const auto check = [&](bool retired) {
    std::size_t told = 0;
    const GraphView view = seen<GraphView>(w, GraphRequest{plan.graph});
    const std::vector<OpView>& ops = view.ops;
    REQUIRE(ops.size() == planned.ops.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      REQUIRE(ops[i].rejected.size() + 1 == planned.ops[i].choices.size());
      for (std::size_t r = 0; r < ops[i].rejected.size(); ++r, ++told) {
        const msg::ChoiceAccount& same = planned.ops[i].choices[r + 1];
        CHECK(ops[i].rejected[r].why == same.policy);
        CHECK(ops[i].rejected[r].placement == same.placement);
        CHECK(ops[i].rejected[r].seconds == same.seconds);
        CHECK(ops[i].rejected[r].seconds >= ops[i].predicted_s);
      }
    }
    CHECK_MESSAGE(told > 0, "nothing was compared");
    CHECK(view.summary.running == !retired);
  };
  check(false);
  msg::Explain running;
  running.graph = plan.graph;
  w.receive(10, running);
  for (std::size_t i = 0; i < planned.ops.size(); ++i)
    CHECK(w.last<msg::Explanation>(10)->ops[i].choices == planned.ops[i].choices);
  for (const msg::PlannedOp& op : plan.ops) {
    for (const DeviceId device : worker.devices)
      w.receive(1, msg::Progress{0, {{op.id, device, op.placement.owned_count(device), 0}}, {}, {}, {}});
  }
  w.receive(10, msg::ReleaseArrays{{3}});
  check(true);
  w.core.check_invariants();
}

TEST_CASE("only the last graphs are remembered") {
  World w = watched();
  w.add_worker(1, 1);
  w.join(10, w.client());
  std::vector<GraphId> ids;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    ids.push_back(w.submit(10, i, {fill(i, kFourByFour)}, {i}).graph);
    w.complete(w.log<msg::Plan>(1).back());
    w.receive(10, msg::ReleaseArrays{{i}});
    w.apply_logs();
  }
  const Overview o = overview(w);
  REQUIRE(o.graphs.size() == 2);
  CHECK(o.graphs[0].id == ids[3]);
  CHECK(o.graphs[1].id == ids[2]);
  CHECK(std::holds_alternative<Error>(w.core.view(GraphRequest{ids[0]}, w.now)));
}

TEST_CASE("nothing is remembered where nobody asked for it") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  const GraphId id = w.submit(10, 1, {fill(1, kFourByFour)}, {1}).graph;
  CHECK(overview(w).graphs.size() == 1);  // running ones are always seen
  w.complete(w.log<msg::Plan>(1)[0]);
  CHECK(overview(w).graphs.empty());
  w.receive(10, msg::ReleaseArrays{{1}});
  CHECK(std::holds_alternative<Error>(w.core.view(GraphRequest{id}, w.now)));
}

TEST_CASE("what a failure has reached is told also of ops that were over before their graph was") {
  World w = watched();
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(
      10, 1,
      {named(random(1, kFourByFour), "noise"), named(matmul(2, kFourByFour, 1, kFourByFour, 1), "square"),
       named(random(3, kFourByFour, 8), "other")},
      {2, 3});
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  REQUIRE(plan.ops.size() == 3);
  // Those two have ended, and nobody reads them any more: they are forgotten while the third still runs.
  const auto end = [&](const msg::PlannedOp& op, bool failed) {
    const std::int64_t blocks = op.op.space.block_count();
    w.receive(1, msg::Progress{0, {{op.id, me.devices[0], blocks, failed ? blocks : 0}}});
  };
  const msg::PlannedOp other = plan.ops[2].op.label == "other" ? plan.ops[2] : plan.ops[0];
  for (const msg::PlannedOp& op : plan.ops)
    if (op.id != other.id) end(op, true);
  w.receive(10, msg::ReleaseArrays{{2}});
  w.apply_logs();
  end(other, false);
  const GraphSummary g = overview(w).graphs.at(0);
  CHECK(!g.running);
  CHECK(g.affected_count == 2);
}

TEST_CASE("a failure names its root cause and what depended on it") {
  World w = watched();
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {named(random(1, kFourByFour), "noise"), named(random(2, kFourByFour, 8), "other")},
           {1, 2});
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  w.receive(1, msg::TaskFailed{plan.ops[0].id, me.devices[0], 3, {Errc::kTaskFailed, "it broke"}});
  CHECK(w.core.graph_of(plan.ops[0].id) == plan.graph);
  CHECK(!w.core.graph_of(OpId{4711}));
  w.complete(plan, 1);
  const GraphSummary g = overview(w).graphs.at(0);
  CHECK(g.cause.message.find("it broke") != std::string::npos);
  CHECK(g.affected_count == 2);
  REQUIRE(g.affected.size() == 2);
  CHECK(g.affected[0].find("noise") != std::string::npos);
  const auto* ended =
      std::get_if<GraphEnded>(&*std::find_if(w.actions.begin(), w.actions.end(), [](const Action& a) {
        return std::holds_alternative<GraphEnded>(a);
      }));
  REQUIRE(ended != nullptr);
  CHECK(ended->graph == g.id);
  CHECK(ended->cause == g.cause);
  CHECK(ended->failed_op == plan.ops[0].id);
}

TEST_CASE("arrays are listed with where their blocks are") {
  World w = watched();
  const auto me = w.add_worker(1, 2);
  w.join(10, w.client());
  w.submit(10, 1, {named(fill(1, kFourByFour), "small"), named(fill(2, grid({64, 64}, {8, 8})), "large")},
           {1, 2});
  ArrayList list = seen<ArrayList>(w, ArraysRequest{});
  REQUIRE(list.arrays.size() == 2);
  CHECK(list.arrays[0].label == "large");
  CHECK(list.arrays[0].bytes == 64 * 64 * 8);
  CHECK(list.arrays[0].blocks == 64);
  CHECK(list.arrays[0].made == 0);
  REQUIRE(list.arrays[0].shares.size() == 2);
  CHECK(list.arrays[0].shares[0].owned + list.arrays[0].shares[1].owned == 64);
  w.complete(w.log<msg::Plan>(1)[0]);
  list = seen<ArrayList>(w, ArraysRequest{});
  CHECK(list.arrays[0].made == 64);
  const ArrayDetail detail = seen<ArrayDetail>(w, ArrayRequest{list.arrays[0].id});
  CHECK(detail.placement.verify(list.arrays[0].grid.counts()).has_value());
  CHECK(detail.program.find("large") != std::string::npos);
  CHECK(detail.producer.label == "large");
  CHECK(seen<ArrayList>(w, ArraysRequest{SessionId{77}}).arrays.empty());
  CHECK(std::holds_alternative<Error>(w.core.view(ArrayRequest{ArrayId{4711}}, w.now)));
  const SessionView session = overview(w).sessions.at(0);
  CHECK(session.held_arrays == 2);
  CHECK(session.held_bytes == 64 * 64 * 8 + 8 * 8 * 8);
  (void)me;
}

TEST_CASE("looking changes nothing") {
  World w = watched();
  w.add_worker(1, 1);
  w.join(10, w.client());
  const GraphId id = w.submit(10, 1, {fill(1, kFourByFour)}, {1}).graph;
  const std::uint64_t before = w.core.digest();
  for (const ViewRequest& request : {ViewRequest(OverviewRequest{}), ViewRequest(GraphRequest{id}),
                                     ViewRequest(ArraysRequest{}), ViewRequest(ArrayRequest{ArrayId{1}})})
    w.core.view(request, w.now + kSecond);
  CHECK(w.core.digest() == before);
  Core fresh(Options{});
  CHECK(std::get<Overview>(fresh.view(OverviewRequest{}, 5 * kSecond)).now == 0);  // it has not begun
}

TEST_CASE("a lost worker is remembered") {
  World w = watched();
  w.add_worker(1, 1, "first");
  w.wait(kSecond);
  w.drop(1);
  msg::Join tool;
  tool.role = msg::Role::kTool;
  tool.name = "status";
  tool.software_version = "1";
  w.join(2, tool);
  w.drop(2);  // nobody wants to know of these
  const Overview o = overview(w);
  REQUIRE(o.lost.size() == 1);
  CHECK(o.lost[0].name == "first");
  CHECK(o.lost[0].at == kSecond);
  CHECK(o.status.devices.empty());
}

TEST_CASE("an operator cancels a graph, once") {
  World w = watched();
  w.add_worker(1, 1);
  w.join(10, w.client());
  const GraphId id = w.submit(10, 1, {fill(1, kFourByFour)}, {1}).graph;
  w.step({OperatorCancel{GraphId{99}}});
  CHECK(w.count<msg::GraphDone>(10) == 0);
  w.step({OperatorCancel{id}});
  CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kCancelled);
  CHECK(w.log<msg::CancelGraph>(1).size() == 1);
  w.step({OperatorCancel{id}});
  CHECK(w.count<msg::GraphDone>(10) == 1);
  CHECK(overview(w).graphs.at(0).cancelled);
}

TEST_CASE("an operator releases an array: its session's hold ends") {
  World w = watched();
  w.add_worker(1, 1);
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  w.complete(w.log<msg::Plan>(1)[0]);
  const ArrayId id = seen<ArrayList>(w, ArraysRequest{}).arrays.at(0).id;
  w.step({OperatorRelease{ArrayId{99}}});
  CHECK(w.log<msg::Release>(1).empty());
  w.step({OperatorRelease{id}});
  REQUIRE(w.log<msg::Release>(1).size() == 1);
  CHECK(w.log<msg::Release>(1)[0].arrays == std::vector<ArrayId>{id});
  CHECK(seen<ArrayList>(w, ArraysRequest{}).arrays.empty());
  w.step({OperatorRelease{id}});
  w.receive(10, msg::ReleaseArrays{{1}});
  CHECK(w.log<msg::Release>(1).size() == 1);
  CHECK(!w.submit(10, 2, {map(3, kFourByFour, {1})}, {3}).outcome.ok());  // its client can name it no more
}

TEST_CASE("a worker that is to leave gets nothing new, and says what is left on it") {
  World w = watched();
  const auto a = w.add_worker(1, 1, "a"), b = w.add_worker(2, 1, "b");
  w.join(10, w.client());
  w.submit(10, 1, {random(1, kFourByFour)}, {1});
  const msg::Plan first = w.log<msg::Plan>(1)[0];
  CHECK(first.ops[0].placement.owned_count(a.devices[0]) == 8);
  w.step({OperatorDrain{a.you}});
  Overview o = overview(w);
  REQUIRE(o.draining.size() == 1);
  CHECK(o.draining[0].worker == a.you);
  CHECK(o.draining[0].state == msg::DrainState::kStopping);
  CHECK(o.draining[0].tasks_left == 8);
  w.complete(first);  // it had begun all of it
  CHECK(overview(w).draining[0].tasks_left == 0);
  // Also where readers would rather be with what they read, and where a plan made before could be taken.
  for (std::uint64_t n = 2; n < 9; ++n) {
    w.submit(10, n, {map(n, kFourByFour, {1})}, {n});
    const msg::Plan plan = w.log<msg::Plan>(2).back();
    CHECK(plan.ops.back().placement.owned_count(a.devices[0]) == 0);
    CHECK(plan.ops.back().placement.owned_count(b.devices[0]) == 16);
    w.complete(plan);
  }
  ir::Op there = random(20, kFourByFour);
  there.hint.devices = {a.devices[0]};
  CHECK(w.submit(10, 20, {there}, {20}).outcome.code == Errc::kUnavailable);
  w.step({OperatorDrain{b.you}});
  CHECK(w.submit(10, 21, {random(21, kFourByFour)}, {21}).outcome.code == Errc::kUnavailable);
  w.step({OperatorDrain{a.you, false}, OperatorDrain{b.you, false}, OperatorDrain{WorkerId{77}}});
  CHECK(overview(w).draining.size() == 1);  // until nothing is on its way from there
  const std::vector<msg::Drain> orders = w.log<msg::Drain>(2);
  REQUIRE(!orders.empty());
  CHECK(orders.back().order == msg::DrainOrder::kGoOn);
  w.receive(2, msg::Drained{a.you, orders.back().round, 0});
  CHECK(w.log<msg::Drain>(1).back().order == msg::DrainOrder::kGoOn);
  CHECK(overview(w).draining.empty());
  CHECK(w.submit(10, 22, {random(22, kFourByFour)}, {22}).outcome.ok());
  CHECK(w.log<msg::Plan>(1).back().ops[0].placement.owned_count(a.devices[0]) == 8);
}

TEST_CASE("what was measured of an op and of a graph stands beside what was predicted") {
  World w = watched();
  const auto me = w.add_worker(1, 1);
  w.join(10, w.client());
  const GraphId id = w.submit(10, 1, {random(1, kFourByFour)}, {1}).graph;
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  msg::Progress progress;
  progress.ops = {{plan.ops[0].id, me.devices[0], 5, 0}};
  progress.measured = {{plan.ops[0].id, me.devices[0], 3'000'000, 640}};
  progress.devices = {{.device = me.devices[0],
                       .bytes_used = 100,
                       .bytes_peak = 900,
                       .bytes_resident = 1000,
                       .steps_run = 5,
                       .bytes_high = 700}};
  w.receive(1, progress);
  progress.measured[0].busy_ns = 2'000'000;  // a late report takes nothing back
  progress.devices[0].bytes_high = 300;
  progress.devices[0].bytes_used = 50;
  w.receive(1, progress);
  GraphView g = seen<GraphView>(w, GraphRequest{id});
  CHECK(g.ops[0].busy_s == doctest::Approx(0.003));
  CHECK(g.ops[0].busiest_s == doctest::Approx(0.003));
  CHECK(g.ops[0].bytes_moved == 640);
  REQUIRE(g.peaks.size() == 1);
  CHECK(g.peaks[0].bytes == 700);  // not the 900 of before it ran
  CHECK(g.peaks[0].before == 0);
  CHECK(g.ops[0].bytes == 8 * 8 * 8);
  CHECK(g.alone);
  w.complete(plan);
  progress.ops.clear(), progress.measured.clear();
  progress.devices[0].bytes_used = progress.devices[0].bytes_peak = progress.devices[0].bytes_high = 5000;
  w.receive(1, progress);
  g = seen<GraphView>(w, GraphRequest{id});
  CHECK(g.peaks[0].bytes == 700);  // it has ended
  CHECK(g.ops[0].busy_s == doctest::Approx(0.003));
  // The next finds what is there, and does not run alone: so says that of both.
  const GraphId second = w.submit(10, 2, {random(2, kFourByFour)}, {2}).graph;
  progress.devices[0].bytes_used = progress.devices[0].bytes_high = 6000;
  w.receive(1, progress);
  g = seen<GraphView>(w, GraphRequest{second});
  REQUIRE(g.peaks.size() == 1);
  CHECK(g.peaks[0].bytes == 6000);
  CHECK(g.peaks[0].before == 5000);
  CHECK(g.alone);
  const GraphId third = w.submit(10, 3, {random(3, kFourByFour)}, {3}).graph;
  for (const GraphId each : {second, third}) CHECK(!seen<GraphView>(w, GraphRequest{each}).alone);
  CHECK(seen<GraphView>(w, GraphRequest{id}).alone);
  // What has been freed was not nothing.
  w.receive(10, msg::ReleaseArrays{{1}});
  CHECK(seen<GraphView>(w, GraphRequest{id}).ops[0].bytes == 8 * 8 * 8);
}

TEST_CASE("links are told by pair of devices and lane, beside what is reckoned with") {
  World w = watched();
  const auto a = w.add_worker(1, 1, "a"), b = w.add_worker(2, 2, "b");
  const auto report = [&](std::uint32_t conn, DeviceId from, DeviceId to, msg::Lane lane,
                          std::int64_t bytes) {
    msg::Progress progress;
    progress.pairs = {{from, to, lane, 1, bytes, 1000}};
    w.receive(conn, progress);
  };
  report(2, a.devices[0], b.devices[0], msg::Lane::kTcp, 1000);
  report(2, a.devices[0], b.devices[0], msg::Lane::kTcp, 900);  // late
  report(2, b.devices[0], b.devices[1], msg::Lane::kMapped, 5000);
  report(2, b.devices[0], a.devices[0], msg::Lane::kTcp, 7);  // not its own
  report(2, DeviceId{99}, b.devices[0], msg::Lane::kTcp, 7);  // nobody's
  LinkList links = seen<LinkList>(w, LinksRequest{});
  REQUIRE(links.links.size() == 2);
  CHECK(links.links[0].stats.bytes == 5000);
  CHECK(links.links[0].limit_bytes_per_s == 0);
  CHECK(links.links[1].stats.bytes == 1000);
  CHECK(links.links[1].limit_bytes_per_s > 0);
  w.drop(1);
  CHECK(seen<LinkList>(w, LinksRequest{}).count == 1);
}

}  // namespace
}  // namespace tilewise::scheduler::test
