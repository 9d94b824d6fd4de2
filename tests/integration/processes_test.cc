// Programs as an operator meets them: options, exit codes, files, signals.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <thread>

#include "harness.h"
#include "proxy.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) +
         (text.empty() || text.back() == '\n' ? 0 : 1);
}

// One line on stderr and this exit code.
void refused(const Ran& ran, int code, const std::string& part) {
  CAPTURE(ran.errors);
  CAPTURE(part);
  CHECK(ran.code == code);
  CHECK(lines(ran.errors) == 1);
  CHECK(has(ran.errors, part));
}

}  // namespace

TEST_CASE("help and version") {
  for (const std::string& program : {scheduler_program(), worker_program(), tool_program()}) {
    CAPTURE(program);
    const Ran help = run({program, "--help"});
    CHECK(help.code == 0);
    for (const char* option : {"--version", "--config", "--token-file", "--log-level", "--log-format"}) {
      CHECK(has(help.output, option));
    }
    const Ran version = run({program, "--version"});
    CHECK(version.code == 0);
    CHECK(has(version.output, "0.1.0"));
  }
  for (const char* option : {"--listen", "--advertise", "--cores", "--address-file"}) {
    CHECK(has(run({scheduler_program(), "--help"}).output, option));
    CHECK(has(run({worker_program(), "--help"}).output, option));
  }
}

TEST_CASE("bad options are one line and exit code 2") {
  TempFolder folder;
  const std::string token = folder / "token";
  refused(run({scheduler_program(), "--nonsense"}), 2, "nonsense");
  refused(run({scheduler_program(), "--listen", "127.0.0.1:99999"}), 2, "99999");
  refused(run({scheduler_program(), "--log-level", "loud"}), 2, "loud");
  refused(run({scheduler_program(), "--token-file", token, "--passes-off", "fusoin"}), 2, "fusoin");
  refused(run({tool_program(), "status", "--timeout", "0"}), 2, "0 not in range");
  refused(run({worker_program(), "--token-file", token}), 2, "scheduler");
  REQUIRE(net::Token::create(token).has_value());
  const std::vector<std::string> worker{worker_program(), "--scheduler", "127.0.0.1:1", "--token-file",
                                        token};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), worker.begin(), worker.end());
    return run(more);
  };
  refused(with({"--devices", "tpu:0"}), 2, "tpu:0");
  refused(with({"--devices", "host:3-1"}), 2, "3-1");
  refused(with({"--devices", "cuda:999"}), 2, "cuda:999");
  refused(with({"--memory", "much"}), 2, "much");
  refused(with({"--memory", "1KiB"}), 2, "1MiB of each device at least");
  refused(with({"--plugin", folder / "no.so"}), 2, "no.so");
  refused(with({"--listen", "0.0.0.0:0"}), 2, "advertise");
  refused(run({tool_program(), "frobnicate"}), 2, "frobnicate");
  refused(run({tool_program(), "status"}), 2, "scheduler");
}

#ifdef TILEWISE_SILENT_RESOLVER
// All at once: what listens, and a session, have 10 s.
TEST_CASE("nobody waits for a name that is never looked up for longer than was said") {
  const TempFolder folder;
  const std::string token = folder / "token", name = "somewhere.invalid:7420";
  REQUIRE(net::Token::create(token).has_value());
  const Environment silent{{"LD_PRELOAD", TILEWISE_SILENT_RESOLVER}, {"TILEWISE_TOKEN_FILE", token}};
  std::vector<std::unique_ptr<Process>> all;
  const auto start = [&](std::vector<std::string> command) {
    const Environment where{{"TILEWISE_SCHEDULER", name}};
    Environment environment = silent;
    if (command[0] == client_program()) environment.insert(where.begin(), where.end());
    return all.emplace_back(std::make_unique<Process>(command.back(), command, environment)).get();
  };
  const auto ends = [](Process* process, const std::string& why) {
    CAPTURE(why);
    CHECK(process->wait() == 1);
    const std::string words = process->output() + process->errors();
    CHECK_MESSAGE(has(words, why), words);
    CHECK_MESSAGE(has(words, "in time"), words);
  };
  Process* dashboard = start({scheduler_program(), "--listen", "127.0.0.1:0", "--dashboard-listen", name});
  Process* scheduler = start({scheduler_program(), "--dashboard-listen", "off", "--listen", name});
  Process* peers = start({worker_program(), "--scheduler", "127.0.0.1:1", "--memory", "64MiB", "--advertise",
                          "127.0.0.1:0", "--listen", name});
  Process* worker =
      start({worker_program(), "--memory", "64MiB", "--connect-timeout", "1", "--scheduler", name});
  Process* session = start({client_program(), "compute"});
  std::vector<Process*> tool;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"status"},
                                                                                     {"devices"},
                                                                                     {"explain", "1"},
                                                                                     {"trace", "-"},
                                                                                     {"drain", "w0"},
                                                                                     {"shutdown"},
                                                                                     {"account", "1"},
                                                                                     {"top", "--once"},
                                                                                     {"arrays"},
                                                                                     {"links"},
                                                                                     {"graph"},
                                                                                     {"dashboard"}}) {
    std::vector<std::string> command{tool_program(), "--scheduler", name, "--timeout", "1"};
    command.insert(command.end(), words.begin(), words.end());
    tool.push_back(start(command));
  }
  for (Process* each : tool) ends(each, "somewhere.invalid");
  ends(worker, "scheduler tcp://" + name);
  ends(session, "scheduler tcp://" + name);
  ends(scheduler, "look up somewhere.invalid");
  ends(peers, "look up somewhere.invalid");
  ends(dashboard, "dashboard: listen on");
}
#endif

TEST_CASE("what is wrong at run time is exit code 1") {
  TempFolder folder;
  const std::string token = folder / "token";
  REQUIRE(net::Token::create(token).has_value());
  refused(run({worker_program(), "--scheduler", "127.0.0.1:1", "--token-file", token, "--connect-timeout",
               "0", "--log-level", "off"}),
          1, "127.0.0.1:1");
  refused(run({tool_program(), "status", "--scheduler", "127.0.0.1:1", "--token-file", token}), 1,
          "127.0.0.1:1");
}

TEST_CASE("a public address needs a token that somebody chose") {
  TempFolder folder;
  const std::string token = folder / "token", address = folder / "address";
  refused(run({scheduler_program(), "--listen", "0.0.0.0:0", "--token-file", folder / "none"}), 2, "token");
  CHECK(!std::filesystem::exists(folder / "none"));
  REQUIRE(net::Token::create(token).has_value());
  Process scheduler("public", {scheduler_program(), "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:0",
                               "--token-file", token, "--address-file", address});
  CHECK(eventually([&] { return std::filesystem::exists(address); }));
  CHECK(has(read_file(address), "127.0.0.1:"));
}

TEST_CASE("a cluster whose control plane is a Unix socket") {
  TempFolder folder;
  const std::string token = folder / "token", socket = "unix:" + (folder / "socket"),
                    ready = folder / "worker";
  REQUIRE(net::Token::create(token).has_value());
  Process scheduler("scheduler", {scheduler_program(), "--listen", socket, "--token-file", token});
  Process worker("worker", {worker_program(), "--scheduler", socket, "--token-file", token, "--devices",
                            "host:0-1", "--memory", "64MiB", "--address-file", ready});
  REQUIRE_MESSAGE(eventually([&] { return std::filesystem::exists(ready); }),
                  (scheduler.errors() + worker.errors()));
  const Environment environment{{"TILEWISE_SCHEDULER", socket}, {"TILEWISE_TOKEN_FILE", token}};
  const Ran client = run({client_program(), "compute"}, environment);
  CHECK_MESSAGE(client.output == "right", (client.output + client.errors));
  const Ran devices = run({tool_program(), "devices"}, environment);
  CHECK(devices.code == 0);
  CHECK(has(devices.output, "host:1"));
  scheduler.signal(SIGTERM);
  CHECK(scheduler.wait() == 0);
  CHECK(worker.wait().has_value());
  // The socket of one that was killed does not keep the next one from starting.
  Process second("second", {scheduler_program(), "--listen", socket, "--token-file", token});
  Process tool("tool", {tool_program(), "status"}, environment);
  second.signal(SIGKILL);
  second.wait();
  Process third("third", {scheduler_program(), "--listen", socket, "--token-file", token});
  CHECK(eventually([&] { return run({tool_program(), "status"}, environment).code == 0; }));
}

TEST_CASE("the first scheduler makes the token, for its owner alone") {
  TempFolder folder;
  Process scheduler("first",
                    {scheduler_program(), "--listen", "127.0.0.1:0", "--address-file", folder / "address"},
                    {{"XDG_CONFIG_HOME", folder / "config"}});
  REQUIRE(eventually([&] { return std::filesystem::exists(folder / "address"); }));
  struct stat info {};
  REQUIRE(stat((folder / "config/tilewise/token").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("options from the environment and a config file; logs as json") {
  TempFolder folder;
  const std::string token = folder / "token";
  REQUIRE(net::Token::create(token).has_value());
  std::ofstream(folder / "tilewise.toml")
      << "log-format = \"json\"\ntoken-file = \"" << token << "\"\nterm = 7\n";
  Process scheduler("configured", {scheduler_program(), "--config", folder / "tilewise.toml"},
                    {{"TILEWISE_LISTEN", "127.0.0.1:0"}, {"TILEWISE_ADDRESS_FILE", folder / "address"}});
  REQUIRE(eventually([&] { return std::filesystem::exists(folder / "address"); }));
  const Ran status =
      run({tool_program(), "status", "--scheduler", read_file(folder / "address"), "--token-file", token});
  CHECK(status.code == 0);
  CHECK(has(status.output, "term 7"));
  CHECK(has(scheduler.errors(), "\"event\":\"ready\""));
  std::ofstream(folder / "wrong.toml") << "bogus = 1\n";
  refused(run({scheduler_program(), "--config", folder / "wrong.toml"}), 2, "no such option: bogus");
}

TEST_CASE("signals end programs cleanly and soon") {
  for (const int number : {SIGTERM, SIGINT}) {
    Cluster cluster({.workers = 2});
    const auto begin = Clock::now();
    cluster.worker(0).signal(number);
    CHECK(cluster.worker(0).wait() == 0);
    CHECK(eventually([&] { return !has(cluster.status(), "worker-0"); }));
    // The scheduler goes: it ends well, and the worker that is left says what happened to it.
    cluster.scheduler().signal(number);
    CHECK(cluster.scheduler().wait() == 0);
    CHECK(cluster.worker(1).wait() == 1);
    CHECK(has(cluster.worker(1).errors(), "scheduler"));
    CHECK(Clock::now() - begin < seconds(10));  // 2 s each where the machine is not busy
  }
}

// Signals all the time, so that one falls into the moment between the last who handles them and the end.
TEST_CASE("signals that come again and again until a program is gone do not change how it ends") {
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    Cluster cluster({.workers = 1, .worker_args = {"--no-supervisor"}});
    for (Process* program : {&cluster.worker(0), &cluster.scheduler()}) {
      const auto begin = Clock::now();
      while (program->running() && Clock::now() - begin < kPatience)
        program->signal(round % 2 == 0 ? SIGTERM : SIGINT);
      CHECK_MESSAGE(program->wait(Clock::duration(0)).value_or(-99) == 0, program->errors());
    }
  }
}

TEST_CASE("status, devices, doctor, shutdown") {
  Cluster cluster;
  const Ran status = cluster.tool({"status"});
  CHECK(status.code == 0);
  CHECK(has(status.output, "workers 2  devices 4"));
  CHECK(has(status.output, "worker-1"));
  CHECK(has(cluster.status(), "\"arrays_live\":0"));
  const Ran devices = cluster.tool({"devices"});
  CHECK(devices.code == 0);
  CHECK(lines(devices.output) == 5);
  CHECK(has(devices.output, "/host:1"));
  CHECK(has(devices.output, "512.0 MiB"));
  // What ran, and what is expected of what runs.
  {
    const Session session = cluster.session();
    CHECK(sum(session.ones({1000}, {.block = {100}}) * 2.0).item<double>() == 2000);
    const Ran trace = cluster.tool({"trace", "-"});
    CAPTURE(trace.errors);
    CHECK(trace.code == 0);
    CHECK(has(trace.output, "\"traceEvents\""));
    CHECK(has(trace.output, "/host:0\""));
    CHECK(has(trace.output, "\"name\":\"reduce_blocks\""));
    CHECK(cluster.tool({"trace", "/nowhere/at/all"}).code == 1);
    CHECK(cluster.tool({"trace", "-", "--graph", "12345"}).code == 1);
    const Ran unknown = cluster.tool({"explain", "12345"});
    CHECK(unknown.code == 1);
    CHECK(has(unknown.errors, "is known any more"));
    Array work = long_work(session);
    Future running = work.persist();
    std::string number;
    REQUIRE(eventually([&] {
      const std::string status = cluster.status();
      const auto at = status.find("\"graphs\":[{\"id\":");
      if (at == std::string::npos) return false;
      number = std::to_string(std::stoull(status.substr(at + 16)));
      return true;
    }));
    const Ran explained = cluster.tool({"explain", number});
    CAPTURE(explained.errors);
    CHECK(explained.code == 0);
    CHECK(has(explained.output, "tasks"));
    CHECK(has(cluster.tool({"--json", "explain", number}).output, "\"choices\""));
    running.cancel();
  }
  const Ran doctor = cluster.tool({"doctor"});
  CAPTURE(doctor.output);
  CHECK(doctor.code == 0);
  for (const char* what : {"ucx", "memfd", "huge pages", "nofile", "memlock", "cuda", "ptrace", "pid", "ipc",
                           "gpudirect", "ucx build", "scheduler"}) {
    CHECK(has(doctor.output, what));
  }
  CHECK(has(doctor.output, "answers: 4 devices"));
  CHECK(has(doctor.output, "w1/host:0 -> w2/host:0: mapped, "));
  CHECK(has(doctor.output, "w2/host:0 -> w1/host:0: mapped, "));
  CHECK(has(doctor.output, "us a hop"));
  const Ran shutdown = cluster.tool({"shutdown"});
  CHECK(shutdown.code == 0);
  CHECK(cluster.scheduler().wait() == 0);
  CHECK(cluster.worker(0).wait() == 0);
  CHECK(cluster.worker(1).wait() == 0);
  CHECK(cluster.tool({"status", "--timeout", "2"}).code == 1);
}

TEST_CASE("doctor says which links are slower than they could be") {
  Cluster cluster({.devices = 1, .worker_args = {"--no-map"}});
  const Ran doctor = cluster.tool({"doctor"});
  CAPTURE(doctor.output);
  CHECK(doctor.code == 0);
  CHECK(has(doctor.output, "one host, yet copied"));
  CHECK_FALSE(has(doctor.output, ": mapped, "));
}

TEST_CASE("another token, or another version, does not get in") {
  Cluster cluster({.workers = 0});
  TempFolder folder;
  const std::string other = folder / "token";
  REQUIRE(net::Token::create(other).has_value());
  refused(run({tool_program(), "status", "--scheduler", cluster.address(), "--token-file", other}), 1,
          "unauthenticated");
  refused(
      run({worker_program(), "--scheduler", cluster.address(), "--token-file", other, "--log-level", "off"}),
      1, "unauthenticated");
  CHECK(cluster.tool({"status"}).code == 0);
}

// As one that is killed while a worker proves itself.
TEST_CASE("a scheduler that closes once in the middle of the handshake is asked once more") {
  Cluster cluster({.workers = 0});
  Proxy proxy(cluster.address());
  proxy.hold(true, false);  // the scheduler's greeting comes, the worker's word does not get there
  std::thread breaks([&] {
    while (proxy.links() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    proxy.hold(false, false);
    proxy.reset();
  });
  cluster.add_worker({}, proxy.address());
  breaks.join();
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  CHECK(proxy.links() == 2);
  CHECK(sum(session.ones({10})).item<double>() == 10);
}
