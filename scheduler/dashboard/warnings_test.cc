#include "warnings.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "test_cluster.h"
#include "views.h"

namespace tilewise::dashboard {
namespace {

using test::cluster;

bool has(const std::vector<Warning>& all, const std::string& code, const std::string& words = "") {
  return std::any_of(all.begin(), all.end(), [&](const Warning& w) {
    return w.code == code && w.what.find(words) != std::string::npos && !w.to_do.empty();
  });
}

TEST_CASE("a healthy cluster has nothing to be warned of") {
  const scheduler::Overview o = cluster();
  CHECK(warnings(o, nullptr).empty());
  CHECK(warnings(o, &o).empty());
}

TEST_CASE("each trouble is named") {
  scheduler::Overview o = cluster();
  SUBCASE("nobody there") { CHECK(has(warnings(cluster(0), nullptr), "no-workers")); }
  SUBCASE("a worker was lost, lately") {
    o.lost.push_back({WorkerId{7}, msg::Role::kWorker, "gone/7", o.now - 3 * kSecond});
    CHECK(has(warnings(o, nullptr), "worker-lost", "gone/7"));
    CHECK(has(warnings(o, nullptr), "worker-lost", "3 s ago"));
    o.lost[0].at = o.now - 1000 * kSecond;
    CHECK(warnings(o, nullptr).empty());
    o.lost[0] = {WorkerId{7}, msg::Role::kClient, "a client may go", o.now};
    CHECK(warnings(o, nullptr).empty());
  }
  SUBCASE("workers were lost, and some are back under their names") {
    o.lost.push_back({WorkerId{9}, msg::Role::kWorker, "gone/9", o.now - 2 * kSecond});
    o.lost.push_back({WorkerId{7}, msg::Role::kWorker, "gone/7", o.now - 5 * kSecond});
    REQUIRE(warnings(o, nullptr).size() == 1);
    CHECK(has(warnings(o, nullptr), "worker-lost",
              "2 workers were lost, w9 (gone/9), w7 (gone/7), the last 2 s ago"));
    o.status.peers[0].name = "gone/9";  // of an older number: another one
    CHECK(warnings(o, nullptr).size() == 1);
    o.status.peers[0].id = WorkerId{10};
    const std::vector<Warning> now = warnings(o, nullptr);
    REQUIRE(now.size() == 2);
    CHECK(now[0].serious);
    CHECK(now[0].what.find("w7 (gone/7) was lost 5 s ago") != std::string::npos);
    CHECK_FALSE(now[1].serious);
    CHECK(now[1].what.find("w9 (gone/9) was lost 2 s ago") != std::string::npos);
  }
  SUBCASE("a worker was stopped: no trouble, unless it had something") {
    o.lost.push_back({WorkerId{7}, msg::Role::kWorker, "gone/7", o.now - 3 * kSecond, false, true});
    CHECK(warnings(o, nullptr).empty());
    o.lost[0].bytes = 3 << 20;
    REQUIRE(warnings(o, nullptr).size() == 1);
    CHECK(has(warnings(o, nullptr), "worker-stopped", "w7 (gone/7) was stopped with 3.0 MiB of blocks"));
    CHECK_FALSE(warnings(o, nullptr)[0].serious);
  }
  SUBCASE("memory") {
    o.status.devices[1].bytes_used = 950;
    CHECK(has(warnings(o, nullptr), "memory-full", "w2/host:0"));
    o.status.devices[1].spilled_bytes = 3 << 20;  // full for good, then
    CHECK(has(warnings(o, nullptr), "spilling", "3.0 MiB"));
    CHECK(!has(warnings(o, nullptr), "memory-full", "w2"));
    o.status.devices[1].pinned_bytes = 2 << 20;
    o.status.devices[1].lodged_bytes = 1 << 20;
    CHECK(
        has(warnings(o, nullptr), "spilling",
            "3.0 MiB on disk, 2.0 MiB in pinned host memory, 1.0 MiB in the memory of neighbouring devices"));
    o.status.devices[1].spilled_bytes = o.status.devices[1].pinned_bytes = 0;
    CHECK(has(warnings(o, nullptr), "spilling", "1.0 MiB in the memory"));
    CHECK(!has(warnings(o, nullptr), "memory-full", "w2"));
    o.stuck.push_back({GraphId{1}, OpId{1}, DeviceId{1}, 4096, 10});
    CHECK(has(warnings(o, nullptr), "stuck", "4.0 KiB"));
    CHECK(warnings(o, nullptr)[0].serious);
  }
  SUBCASE("graphs") {
    scheduler::GraphSummary g;
    g.running = false;
    g.ended = o.now - kSecond;
    g.cause = {Errc::kTaskFailed, "it broke"};
    o.graphs = {g};
    CHECK(has(warnings(o, nullptr), "graph-failed", "it broke"));
    o.graphs[0].cause.code = Errc::kCancelled;  // somebody wanted that
    CHECK(warnings(o, nullptr).empty());
  }
  SUBCASE("lanes") {
    o.status.lanes.emplace_back(WorkerId{1}, msg::LaneStats{msg::Lane::kStaged, 1, 2048});
    CHECK(has(warnings(o, nullptr), "staged-lane", "2.0 KiB"));
    o.status.lanes.emplace_back(WorkerId{1}, msg::LaneStats{msg::Lane::kTcp, 1, 10});
    CHECK(has(warnings(o, nullptr), "tcp-on-one-host"));
    o.status.peers[1].host_id = "two";
    CHECK(!has(warnings(o, nullptr), "tcp-on-one-host"));
  }
}

TEST_CASE("imbalance is judged between two looks, while something runs") {
  scheduler::Overview before = cluster(), now = cluster();
  before.running = now.running = 1;
  now.now = before.now + 10 * kSecond;
  now.status.devices[0].busy_ns = 9 * kSecond;
  CHECK(has(warnings(now, &before), "imbalance", "w2/host:0 hardly worked while w1/host:0"));
  CHECK(warnings(now, nullptr).empty());
  now.status.devices[1].busy_ns = 8 * kSecond;
  CHECK(warnings(now, &before).empty());
  now.status.devices[0].busy_ns = now.status.devices[1].busy_ns = 0;
  CHECK(has(warnings(now, &before), "no-progress"));
  now.status.tasks_done = 5;
  CHECK(!has(warnings(now, &before), "no-progress"));
  now.running = 0;
  CHECK(warnings(now, &before).empty());
}

TEST_CASE("retries, and devices that may go, are told") {
  scheduler::Overview o = cluster();
  o.status.lanes.emplace_back(WorkerId{1}, msg::LaneStats{msg::Lane::kTcp, 5, 10, 2});
  CHECK(has(warnings(o, nullptr), "retries", "2 transfers"));
  CHECK(!has(warnings(o, &o), "retries"));  // long ago
  o.draining = {{{}, WorkerId{1}, "one", msg::DrainState::kMoving, "", 3, 5, 10}};
  CHECK(!has(warnings(o, nullptr), "drain-waits"));
  o.draining[0].state = msg::DrainState::kWaiting;
  o.draining[0].why = "no other worker takes work";
  CHECK(has(warnings(o, nullptr), "drain-waits", "w1 (one) is to leave but cannot: no other worker"));
  CHECK(!has(warnings(o, nullptr), "copies-lacking"));
  o.lacking = 2;
  CHECK(has(warnings(o, nullptr), "copies-lacking", "2 arrays are on fewer workers"));
  CHECK(!has(warnings(o, nullptr), "checkpoint-failed"));
  o.checkpoint_trouble = "w1: /folder: no space left";
  CHECK(has(warnings(o, nullptr), "checkpoint-failed", "w1: /folder: no space left"));
  o.lineage = 100'000, o.lineage_limit = 200'000;
  CHECK(!has(warnings(o, nullptr), "lineage-long"));
  o.lineage = 100'001;
  CHECK(has(warnings(o, nullptr), "lineage-long", "100001 ops that are over"));
}

TEST_CASE("every warning has a known code") {
  const auto codes = warning_codes();
  for (const char* code : {"no-workers", "worker-lost", "stuck", "memory-full", "spilling", "graph-failed",
                           "imbalance", "staged-lane", "tcp-on-one-host", "no-progress"})
    CHECK(std::find(codes.begin(), codes.end(), code) != codes.end());
}

TEST_CASE("hostile names stay text in JSON") {
  scheduler::Overview o = cluster(1, test::kHostile);
  const std::string text = boost::json::serialize(to_json(o, {{true, "x", test::kHostile, "y"}}));
  const json::value back = boost::json::parse(text);
  CHECK(back.at("peers").as_array()[0].at("name").as_string() == "<script>alert(1)</script>\"\n\xEF\xBF\xBD");
  CHECK(back.at("warnings").as_array()[0].at("what").as_string().starts_with("<script>"));
}

TEST_CASE("steps become columns") {
  msg::TraceReply a{1, WorkerId{1}, 2, 5, {"map", "matmul"}, {}}, b{1, WorkerId{2}, 2, 0, {"matmul"}, {}};
  a.steps = {{OpId{1}, GraphId{9}, 3, 1, DeviceId{1}, 0, 1000, 1500}};
  b.steps = {{OpId{1}, GraphId{9}, 4, 0, DeviceId{2}, 1, 900, 1000},
             {OpId{2}, GraphId{9}, 0, 77, DeviceId{2}, 1, 1100, 1200}};
  const json::object o = to_json(std::vector{a, b});
  CHECK(o.at("lost").to_number<int>() == 5);
  CHECK(o.at("families").as_array().size() == 2);
  for (const char* column : {"family", "device", "stream", "start", "took", "op", "point"})
    CHECK(o.at(column).as_array().size() == 3);
  CHECK(o.at("start").as_array()[0].to_number<int>() == 100);
  CHECK(o.at("start").as_array()[1].to_number<int>() == 0);
  CHECK(o.at("family").as_array()[1] ==
        o.at("family").as_array()[0]);                         // by name, not by each worker's number
  CHECK(o.at("family").as_array()[2].to_number<int>() == -1);  // a worker that names none
  CHECK(o.at("ops").as_array().size() == 2);
  CHECK(to_json(std::vector<msg::TraceReply>{}).at("start").as_array().empty());
}

TEST_CASE(
    "transfers and waits are records too; what was overwritten is told, and hosts' clocks fall together") {
  msg::TraceReply a{1, WorkerId{1}, 2, 0, {"map"}, {}}, b{1, WorkerId{2}, 2, 7, {}, {}};
  a.now_ns = 10'000, b.now_ns = 900'000, b.since_ns = 899'100, b.cut = 3;
  a.steps = {{OpId{1}, GraphId{9}, 3, 0, DeviceId{1}, 0, 9'000, 9'500}};
  b.steps = {{OpId{1}, GraphId{9}, 3, 0, DeviceId{2}, 0, 899'600, 899'700, msg::TraceKind::kTransfer,
              msg::Lane::kTcp, DeviceId{1}, 64, OpId{2}},
             {OpId{2}, GraphId{9}, 0, 0, DeviceId{2}, 0, 899'200, 899'700, msg::TraceKind::kNoInputs}};
  std::vector<msg::TraceReply> replies{a, b};
  msg::align_clocks(replies, {{WorkerId{1}, "one"}, {WorkerId{2}, "two"}});
  const json::object o = to_json(replies);
  const auto column = [&](const char* name, std::size_t i) {
    return o.at(name).as_array()[i].to_number<std::int64_t>();
  };
  CHECK(column("start", 0) == 0);    // a thousand before its host's now: the earliest
  CHECK(column("start", 1) == 600);  // four hundred before the other's
  CHECK(o.at("now").to_number<int>() == 1000);
  CHECK(o.at("cut").to_number<int>() == 3);
  CHECK(o.at("since").as_array()[0] == json::array({2, 100}));
  CHECK(column("kind", 1) == static_cast<int>(msg::TraceKind::kTransfer));
  CHECK(o.at("lanes").as_array()[static_cast<std::size_t>(column("lane", 1))].as_string() == "tcp");
  CHECK(column("peer", 1) == 1);
  CHECK(column("bytes", 1) == 64);
  CHECK(o.at("ops").as_array()[static_cast<std::size_t>(column("user", 1))].as_string() == "2");
  CHECK(column("family", 1) == -1);
  // One host, one clock: what was measured stays as it was measured.
  replies = {a, a};
  replies[1].worker = WorkerId{2}, replies[1].now_ns = 10'200;
  msg::align_clocks(replies, {{WorkerId{1}, "one"}, {WorkerId{2}, "one"}});
  CHECK(replies[0].steps[0].start_ns == replies[1].steps[0].start_ns);
}

}  // namespace
}  // namespace tilewise::dashboard
