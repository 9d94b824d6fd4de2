// The dashboard and the commands that ask it, as an operator meets them.
#include <doctest/doctest.h>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include <tilewise/json/json.h>

#include "harness.h"
#include "watched.h"

using namespace tilewise;
using namespace tilewise::testing;

TEST_CASE("top, arrays and graph tell what there is") {
  const Watched w({});
  const Session session = w.cluster.session("watcher");
  Array x = session.ones({64, 64}, {.block = {16, 16}}).named("sixteen blocks");
  x.persist().wait();
  const Ran top = w.tool({"top", "--once"});
  CAPTURE(top.errors);
  CHECK(top.code == 0);
  CHECK(has(top.output, "w2/host:1"));
  CHECK(has(top.output, "16/16 tasks"));
  CHECK(has(w.tool({"top", "--json"}).output, "\"tasks_done\":16"));
  const Ran arrays = w.tool({"arrays"});
  CHECK(has(arrays.output, "(64, 64)"));
  CHECK(has(arrays.output, "sixteen blocks"));
  CHECK(has(w.tool({"arrays", "--json"}).output, "\"blocks\":16,\"made\":16"));
  const Ran graphs = w.tool({"graph"});
  CHECK(has(graphs.output, "done"));
  const Ran graph = w.tool({"graph", graphs.output.substr(0, graphs.output.find(' '))});
  CHECK(has(graph.output, "as written 1 ops"));
  CHECK(has(graph.output, "sixteen blocks"));
  const Ran none = w.tool({"graph", "4711"});
  CHECK(none.code == 1);
  CHECK(has(none.errors, "no such graph"));
  CHECK(w.tool({"graph", "../x"}).code == 1);
}

TEST_CASE("a graph is waited for, and how it ended is the exit code") {
  const Watched w({});
  const Session session = w.cluster.session("waited");
  Array x = session.random.uniform({512, 512}, {.seed = 1, .block = {128, 128}});
  for (int i = 0; i < 60; ++i) x = matmul(x, x) * (1.0 / 256);
  Future future = session.compute({x});
  REQUIRE(eventually([&] { return has(w.tool({"graph"}).output, "running"); }));
  const Ran done = w.tool({"graph", "1", "--wait"});
  CAPTURE(done.errors);
  CHECK(done.code == 0);
  CHECK(has(done.output, "done"));
  CHECK(future.wait_for(std::chrono::seconds(20)));
  CHECK(done.errors.empty());  // bars are for terminals
  CHECK_THROWS_AS(session.ones({32, 32}, {.block = {8, 8}}).save_npy("/nowhere/at/all/x.npy").wait(),
                  ArrayError);
  const Ran failed = w.tool({"graph", "2", "--wait", "--json"});
  CAPTURE(failed.output);
  CAPTURE(failed.errors);
  CHECK(failed.code == 1);
  CHECK(has(failed.errors, "graph 2 failed"));
  CHECK(has(failed.errors, "/nowhere/at/all"));
  CHECK(has(failed.output, "\"state\":\"failed\""));
  CHECK(w.tool({"graph", "--wait"}).code == 2);  // which?
}

TEST_CASE("a graph that outlives its scheduler is found by the number that it had") {
  Watched w({.keep_state = true});
  const Session session = w.cluster.session("patient");
  Array x = session.random.uniform({512, 512}, {.seed = 1, .block = {128, 128}});
  for (int i = 0; i < 1000; ++i) x = matmul(x, x) * (1.0 / 256);
  Future future = session.compute({x});
  REQUIRE(eventually([&] { return has(w.tool({"graph"}).output, "running"); }));
  w.cluster.scheduler().signal(SIGKILL);
  REQUIRE(w.cluster.scheduler().wait());
  w.cluster.restart_scheduler();
  REQUIRE(eventually([&] { return has(w.tool({"graph"}).output, "running"); }));
  for (const char* command : {"graph", "explain"}) {
    const Ran ran = w.tool({command, "1"});
    CAPTURE(ran.errors);
    CHECK(ran.code == 0);
    CHECK(has(ran.output, "matmul"));
  }
  future.cancel();
}

TEST_CASE("a trace has arrows from what was made to what needed it") {
  const Watched w({});
  const Session session = w.cluster.session("tracer");
  Array a = session.ones({64, 64}, {.block = {16, 16}}), b = matmul(a, a);
  CHECK(sum(b).item<double>() == 64.0 * 64 * 64);
  const std::string file = w.folder / "trace.json";
  const Ran ran = w.tool({"trace", file});
  CHECK(ran.code == 0);
  CHECK(!has(ran.errors, " 0 arrows"));
  const std::string text = read_file(file);
  CHECK(has(text, "{\"ph\":\"s\",\"cat\":\"feeds\""));
  CHECK(has(text, "{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"feeds\""));
  // Beside the steps: why devices idled, and what came from others (here: is read in place, or copied).
  CHECK(has(text, "\"cat\":\"wait\",\"name\":\"no work\""));
  CHECK(has(text, "\"cat\":\"transfer\",\"name\":\"lane "));
  CHECK(has(text, "\"name\":\"came in\""));
  const Ran without = w.cluster.tool({"trace", file, "--dashboard", "127.0.0.1:1"});
  CHECK(without.code == 0);
  CHECK(has(without.errors, "no arrows"));
}

TEST_CASE("a trace of a range, of one graph, and of more records than one answer holds") {
  const Cluster cluster({.workers = 1, .worker_args = {"--trace-records", "400000"}});
  const Session session = cluster.session("long");
  CHECK(sum(session.ones({64, 64}, {.block = {16, 16}})).item<double>() == 64.0 * 64);
  CHECK(sum(session.ones({150'000}, {.block = {1}})).item<double>() == 150'000);
  TempFolder folder;
  const std::string file = folder / "trace.json";
  const auto steps = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"trace", file, "--json", "--dashboard", "127.0.0.1:1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = cluster.tool(arguments);
    CAPTURE(ran.errors);
    CHECK(ran.code == 0);
    CHECK(has(ran.output, "\"lost\":0,\"cut\":0"));
    std::size_t found = 0;
    const std::string text = read_file(file), step = "\"cat\":\"step\"";
    for (std::size_t at = text.find(step); at != std::string::npos; at = text.find(step, at + 1)) ++found;
    return found;
  };
  const std::size_t all = steps({});
  CHECK(all > 150'000);
  const std::size_t first = steps({"--graph", "1"});
  CHECK(first >= 16);
  CHECK(first + steps({"--graph", "2"}) == all);  // none twice, none missed, whatever the number of answers
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(steps({"--last", "0.2"}) == 0);
  CHECK(steps({"--before", "0.2"}) == all);
  CHECK(steps({"--last", "1000", "--before", "900"}) == 0);
  CHECK(cluster.tool({"trace", file, "--last", "-1"}).code == 2);
  CHECK(cluster.tool({"trace", file, "--graph", "x"}).code == 1);
}

TEST_CASE("what was estimated of a graph and what was measured is told when it has ended") {
  const Watched w({});
  const Session session = w.cluster.session("explained");
  Array a = session.ones({64, 64}, {.block = {16, 16}});
  CHECK(sum(matmul(a, a)).item<double>() == 64.0 * 64 * 64);
  const Ran ran = w.tool({"explain", "1"});
  CAPTURE(ran.errors);
  CHECK(ran.code == 0);
  CHECK(has(ran.output, "busiest"));
  CHECK(has(ran.output, "matmul"));
  CHECK(has(ran.output, "w2/host:1"));
  CHECK(has(ran.output, "rather than"));  // where else it might have been
  const std::string told = w.tool({"explain", "1", "--json"}).output;
  CHECK(has(told, "\"busiest_s\":"));
  CHECK(has(told, "\"rejected\":[{\"policy\":"));
  CHECK(w.tool({"explain", "4711"}).code == 1);
  CHECK(w.tool({"explain", "1; x"}).code == 1);
  CHECK(w.cluster.tool({"explain", "1", "--dashboard", "127.0.0.1:1"}).code == 1);
}

TEST_CASE("the log names graph, op, worker and cause by number, a line of JSON an event") {
  const Cluster cluster({.scheduler_args = {"--log-format", "json"}});
  const Session session = cluster.session("unlucky");
  CHECK_THROWS_AS(session.ones({32, 32}, {.block = {8, 8}}).save_npy("/nowhere/at/all/x.npy").wait(),
                  ArrayError);
  std::map<std::string, std::string> ended,
      failed;  // fields of the line; of several tasks that failed, those of the cause
  REQUIRE(eventually([&] {
    std::istringstream words(cluster.words());
    for (std::string line; std::getline(words, line);) {
      const std::size_t at = line.find('{');  // after the process's label
      boost::system::error_code ec;
      const json::value parsed = boost::json::parse(line.substr(std::min(at, line.size())), ec);
      if (ec || !parsed.is_object() || parsed.get_object().if_contains("event") == nullptr) continue;
      std::map<std::string, std::string> fields;
      for (const auto& [key, value] : parsed.get_object())
        fields[key] = value.is_string() ? std::string(value.get_string()) : boost::json::serialize(value);
      if (fields["event"] == "graph ended early") ended = fields;
      if (fields["event"] == "task failed" && fields["why"].find("/nowhere/at/all") != std::string::npos &&
          (failed.empty() || fields["op"] == ended["op"]))
        failed = fields;
    }
    return !ended.empty() && failed["op"] == ended["op"];
  }));
  for (const char* field :
       {"time", "program", "pid", "level", "graph", "op", "session", "request", "cause", "why"}) {
    CAPTURE(field);
    CHECK(!ended[field].empty());
  }
  CHECK(ended["graph"] == failed["graph"]);
  CHECK(ended["op"] == failed["op"]);
  CHECK(ended["cause"] == "not found");
  CHECK(failed["worker"].starts_with("worker "));
  CHECK((failed["worker_id"] == "1" || failed["worker_id"] == "2"));
}

TEST_CASE("login links and tokens") {
  const Watched w({});
  CHECK(has(w.tool({"dashboard"}).output, "/login?code="));
  CHECK(has(w.tool({"dashboard", "--role", "reader", "--json"}).output, "{\"link\":\"http://127.0.0.1:"));
  CHECK(w.tool({"dashboard", "--role", "root"}).code == 2);
  const Ran reader = w.tool({"dashboard", "--print-token", "reader"}),
            op = w.tool({"dashboard", "--print-token", "operator"});
  CHECK(reader.output.size() == 64);
  CHECK(reader.output != op.output);
  CHECK(!has(w.cluster.words(), reader.output.substr(0, 64)));  // no log has it
  CHECK(!has(w.cluster.words(), "code="));
}

TEST_CASE("whoever looks its address up finds the dashboard, though the usual port is taken") {
  TempFolder folder;
  std::vector<std::unique_ptr<Process>> both;
  for (const char* page : {"one", "two"}) {  // at most one of them has the usual port
    both.push_back(std::make_unique<Process>(
        page, std::vector<std::string>{scheduler_program(), "--listen", "127.0.0.1:0", "--token-file",
                                       folder / "token", "--dashboard-address-file", folder / page}));
    REQUIRE(eventually([&] { return std::filesystem::exists(folder / page); }));
  }
  CHECK(read_file(folder / "one") != read_file(folder / "two"));
}

TEST_CASE("every command has JSON") {
  const Watched w({});
  const Session session = w.cluster.session("json");
  session.ones({64, 64}, {.block = {16, 16}}).persist().wait();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"status"},
                                                  {"devices"},
                                                  {"doctor"},
                                                  {"version"},
                                                  {"top"},
                                                  {"arrays"},
                                                  {"graph"},
                                                  {"graph", "1"},
                                                  {"explain", "1"},
                                                  {"links"},
                                                  {"dashboard"},
                                                  {"dashboard", "--print-token", "reader"},
                                                  {"trace", w.folder / "t.json"},
                                                  {"shutdown"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--json");
    const Ran ran = w.tool(arguments);
    CAPTURE(command[0]);
    CAPTURE(ran.errors);
    CHECK(ran.code == 0);
    const bool looks = !ran.output.empty() && (ran.output[0] == '{' || ran.output[0] == '[');
    CHECK(looks);
    CHECK(ran.output.find('\n') == std::string::npos);  // one line: its end is not kept
  }
}

TEST_CASE("no dashboard, or another's token, is one line and exit code 1") {
  const Cluster without;
  const Ran ran = without.tool({"top", "--dashboard", "127.0.0.1:1"});
  CHECK(ran.code == 1);
  CHECK(has(ran.errors, "127.0.0.1:1"));
  const Watched w({});
  CHECK(without.tool({"arrays", "--dashboard", read_file(w.folder / "page")}).code == 1);
}

TEST_CASE("a public dashboard needs a token that somebody chose; an address that was asked for must be had") {
  TempFolder folder;
  const std::string token = folder / "token";
  const Ran made_up = run({scheduler_program(), "--listen", "127.0.0.1:0", "--dashboard-listen", "0.0.0.0:0",
                           "--token-file", token});
  CHECK(made_up.code == 2);
  CHECK(has(made_up.errors, "token"));
  const Watched w({});
  REQUIRE(std::filesystem::exists(token) == true);
  const Ran taken = run({scheduler_program(), "--listen", "127.0.0.1:0", "--dashboard-listen",
                         read_file(w.folder / "page"), "--token-file", token, "--log-level", "off"});
  CHECK(taken.code == 1);
  CHECK(has(taken.errors, "dashboard"));
  CHECK(run({scheduler_program(), "--listen", "127.0.0.1:0", "--dashboard-listen", "nonsense:x:y",
             "--token-file", token, "--log-level", "off"})
            .code == 2);
}
