// The scheduler killed with -9 and started again with its state: nothing that was under way is lost, nothing is done twice.
#include <doctest/doctest.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <tilewise/base/prng.h>

#include "harness.h"
#include "programs.h"
#include "proxy.h"
#include "temp_folder.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

std::int64_t number_in(const std::string& json, const std::string& key) {
  const auto at = json.find("\"" + key + "\":");
  return at == std::string::npos ? -1 : std::stoll(json.substr(at + key.size() + 3));
}

void kill_scheduler(Cluster& cluster) {
  cluster.scheduler().signal(SIGKILL);
  REQUIRE(cluster.scheduler().wait());
}

}  // namespace

TEST_CASE("killed in the middle of a graph, again and again: the same bits, and no task is done twice") {
  Cluster cluster({.workers = 2, .devices = 1, .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));
  const std::int64_t tasks = number_in(cluster.status(), "tasks_done");
  REQUIRE(tasks > 1'000);
  Prng prng(17);
  std::int64_t runs = 1;
  for (const int kills : {1, 3}) {
    const Future future = session.compute({products(session)});
    ++runs;
    for (int i = 0; i < kills; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(prng.between(1, 250)));
      kill_scheduler(cluster);
      std::this_thread::sleep_for(std::chrono::milliseconds(prng.between(0, 100)));
      cluster.restart_scheduler();
    }
    CHECK(same_bits(values(future), expected));
  }
  CHECK(nothing_left(cluster));
  CHECK(number_in(cluster.status(), "tasks_done") == runs * tasks);
  CHECK(number_in(cluster.status(), "term") == 5);
}

TEST_CASE("arrays, futures and what is asked while it is away survive") {
  Cluster cluster({.workers = 2, .devices = 2, .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(4, kPatience));
  Array x = session.random.normal({500, 400}, {.seed = 5, .block = {60, 70}});
  const std::vector<double> numbers(64 * 64, 1.5);
  Array upload = session.from_memory(numbers, {64, 64}, {.block = {8, 64}});
  session.persist({x, upload}).wait({.timeout = kPatience});
  const auto whole = x.get<double>();
  const auto product = matmul(x, x.T()).get<double>();
  {
    Array let_go = x + 1.0;
    let_go.persist().wait({.timeout = kPatience});
    kill_scheduler(cluster);
  }  // released while nobody is there
  const Future asked = session.compute({matmul(x, x.T()), sum(upload)});
  cluster.restart_scheduler();
  CHECK(same_bits(values(asked), product));
  CHECK(asked.get<double>(1, {.timeout = kPatience})[0] == 1.5 * 64 * 64);
  CHECK(same_bits(x.get<double>({.timeout = kPatience}), whole));
  x = {}, upload = {};
  CHECK(nothing_left(cluster));
  // A session that comes now is one more.
  const Session other = cluster.session("other");
  CHECK(sum(other.ones({100})).item<double>() == 100);
}

// In 36 blocks, on three devices, which are waited for.
Array held_by_three(const Session& session) {
  REQUIRE(session.wait_for_devices(3, kPatience));
  Array x = session.random.uniform({768, 768}, {.seed = 3, .block = {128, 128}});
  x.persist().wait({.timeout = kPatience});
  return x;
}

TEST_CASE("a worker that dies while the scheduler is away is noticed afterwards") {
  Cluster cluster({.workers = 3, .devices = 1, .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  Array x = held_by_three(session);
  const auto whole = x.get<double>();
  kill_scheduler(cluster);
  cluster.worker(2).signal(SIGKILL);
  cluster.restart_scheduler();
  REQUIRE(eventually([&] { return session.devices().size() == 2; }));
  CHECK(same_bits(x.get<double>({.timeout = kPatience}), whole));
  CHECK(cluster.worker(0).running());
  CHECK(cluster.worker(1).running());
}

// It is missed for its silence after 20 s only; its parent has more to say.
TEST_CASE(
    "a worker that dies while the scheduler is away is lost as soon as that is back: its parent says so") {
  std::vector<std::string> arguments;
  SUBCASE("and another one is started meanwhile") { arguments = {"--respawn"}; }
  SUBCASE("and stays for that") {}
  Cluster cluster({.workers = 3,
                   .devices = 1,
                   .scheduler_args = {"--silence-timeout", "20"},
                   .worker_args = arguments,
                   .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  Array x = held_by_three(session);
  const auto whole = x.get<double>();
  Process& parent = cluster.worker(2);
  const int victim = working(parent.pid());
  REQUIRE(victim != parent.pid());
  kill_scheduler(cluster);
  kill(victim, SIGKILL);
  REQUIRE(eventually([&] { return parent.errors().find("going on to try") != std::string::npos; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
  CHECK(parent.running());
  cluster.restart_scheduler();
  const Clock::time_point ready = Clock::now();
  CHECK(same_bits(x.get<double>({.timeout = kPatience}), whole));
  CHECK(Clock::now() - ready < seconds(3));
  CHECK(cluster.scheduler().errors().find("killed by signal 9") != std::string::npos);
  if (arguments.empty())
    CHECK(parent.wait().value_or(-99) == 128 + SIGKILL);
  else
    CHECK(session.wait_for_devices(3, kPatience));
  CHECK(session.devices().size() == (arguments.empty() ? 2 : 3));
}

TEST_CASE(
    "a parent that keeps its last words for a scheduler ends when it is told to, and when that is over") {
  Cluster cluster({.workers = 2, .devices = 1, .keep_state = true, .reconnect = seconds(2)});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const int victims[] = {working(cluster.worker(0).pid()), working(cluster.worker(1).pid())};
  kill_scheduler(cluster);
  for (const int victim : victims) kill(victim, SIGKILL);
  REQUIRE(
      eventually([&] { return cluster.worker(0).errors().find("going on to try") != std::string::npos; }));
  cluster.worker(0).signal(SIGTERM);
  for (int i = 0; i < 2; ++i) CHECK(cluster.worker(i).wait().value_or(-99) == 128 + SIGKILL);
  CHECK(cluster.worker(0).errors().find("cannot tell the scheduler how its worker ended why") ==
        std::string::npos);
  CHECK(cluster.worker(1).errors().find("cannot tell the scheduler how its worker ended") !=
        std::string::npos);
}

TEST_CASE("a cancel that somebody has seen stays one") {
  bool at_once = false;
  SUBCASE("killed at once") { at_once = true; }
  SUBCASE("killed when nobody else knows of it any more") {}
  Cluster cluster({.workers = 2, .devices = 1, .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const auto runs = [&] { return cluster.status().find("\"graphs\":[]") == std::string::npos; };
  Future unwanted = session.compute({long_work(session)});
  REQUIRE(eventually(runs));
  unwanted.cancel();
  REQUIRE(eventually([&] { return !runs(); }));
  if (!at_once) {
    // The client has been told that so many messages have come: it says none of them again. Workers have let their tasks go.
    for (int i = 0; i < 100; ++i) REQUIRE(sum(session.ones({4})).item<double>() == 4);
    REQUIRE(nothing_left(cluster));
  }
  const std::int64_t tasks = number_in(cluster.status(), "tasks_done");
  kill_scheduler(cluster);
  cluster.restart_scheduler();
  CHECK(!runs());
  CHECK(sum(session.ones({4})).item<double>() == 4);
  CHECK(nothing_left(cluster));
  CHECK(!runs());
  if (!at_once) CHECK(number_in(cluster.status(), "tasks_done") <= tasks + 2);
}

// The first is stopped (its host is suspended, say), a second one goes on from the state, and then the first goes on too.
TEST_CASE("an older scheduler that wakes up commands nobody, and leaves the newer one's state alone") {
  bool same_folder = false;
  SUBCASE("with a copy of the state: it lives on, and workers find their way to it again") {}
  SUBCASE("with the same state, whose lock was lost: it ends") { same_folder = true; }
  Cluster cluster({.workers = 0, .devices = 1, .keep_state = true});
  INFO(cluster.words());
  Proxy proxy(cluster.address());
  for (int i = 0; i < 2; ++i) cluster.add_worker({"--lease", "10"}, proxy.address());
  const Session session = cluster.session("test", true, proxy.address());
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));
  const Future under_way = session.compute({products(session)});

  cluster.scheduler().signal(SIGSTOP);
  const TempFolder folder;
  const std::string state = same_folder ? cluster.state_dir() : folder / "state";
  if (same_folder)
    std::filesystem::remove(state + "/lock");
  else
    std::filesystem::copy(cluster.state_dir(), state, std::filesystem::copy_options::recursive);
  const auto start = [&](const std::string& listen, const std::string& address_file) {
    return std::make_unique<Process>(
        "scheduler", std::vector<std::string>{scheduler_program(), "--listen", listen, "--address-file",
                                              address_file, "--token-file", cluster.token_file(),
                                              "--dashboard-listen", "off", "--state-dir", state});
  };
  auto second = start("127.0.0.1:0", folder / "second");
  REQUIRE(eventually([&] { return std::filesystem::exists(folder / "second"); }));
  const std::string address = read_file(folder / "second");
  const auto back = [](const Process& scheduler) {
    const std::string words = scheduler.errors() + scheduler.output();
    int count = 0;
    for (auto at = words.find("peer back"); at != std::string::npos; at = words.find("peer back", at + 1))
      ++count;
    return count;
  };
  proxy.lead_to(address);
  REQUIRE(eventually([&] { return back(*second) == 3; }));  // both workers and the client
  // Who has not heard so yet may take the older one for the only one, and lose its place with the newer.
  for (int i = 0; i < 2; ++i) {
    REQUIRE(eventually(
        [&] { return cluster.worker(i).errors().find("scheduler back term=2") != std::string::npos; }));
  }
  CHECK(sum(session.ones({4})).item<double>() == 4);

  const int links = proxy.links();
  cluster.scheduler().signal(SIGCONT);
  if (same_folder) {
    CHECK(cluster.scheduler().wait() == 1);
    CHECK(cluster.words().find("another scheduler has gone on from the state in") != std::string::npos);
  } else {
    proxy.lead_to(cluster.address());
    // Each of the three has tried it more than once, and taken it for what it is.
    REQUIRE(eventually([&] { return proxy.links() >= links + 9; }));
    CHECK(cluster.scheduler().running());
    proxy.lead_to(address);
    REQUIRE(eventually([&] { return back(*second) == 6; }));
  }
  CHECK(same_bits(values(under_way), expected));
  CHECK(same_bits(values(session.compute({products(session)})), expected));
  CHECK(session.devices().size() == 2);
  for (int i = 0; i < 2; ++i) CHECK(cluster.worker(i).running());
  // The state is whole: a third one goes on from it.
  second->signal(SIGKILL);
  REQUIRE(second->wait());
  const auto third = start(address.substr(address.find("//") + 2), folder / "third");
  CHECK(same_bits(values(session.compute({products(session)})), expected));
}

TEST_CASE("one that never comes back, and one that knows nothing, are typed errors in bounded time") {
  for (const bool comes : {false, true}) {
    CAPTURE(comes);
    Cluster cluster({.workers = 1, .devices = 1, .keep_state = true, .reconnect = seconds(2)});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(1, kPatience));
    const Future future = session.compute({long_work(session)});
    kill_scheduler(cluster);
    if (comes) cluster.restart_scheduler(false);
    std::string text;
    try {
      (void)values(future);
    } catch (const ArrayError& e) {
      CHECK(e.code() == Errc::kUnavailable);
      text = e.what();
    }
    CHECK(text.find(comes ? "does not go on from that one's state" : "did not come back within 2 s") !=
          std::string::npos);
    CHECK(cluster.worker(0).wait() == 1);
  }
}

TEST_CASE("a worker under a supervisor comes back, and ends with it") {
  Cluster cluster({.workers = 2, .devices = 1, .worker_args = {"--respawn"}});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const auto child = [&](int worker) {
    const std::string pid = std::to_string(cluster.worker(worker).pid());
    return std::atoi(read_file("/proc/" + pid + "/task/" + pid + "/children").c_str());
  };
  const Array x = session.random.uniform({768, 768}, {.seed = 3, .block = {128, 128}});
  const auto expected = matmul(x, x).get<double>();
  for (int i = 0; i < 2; ++i) {
    const int victim = child(1);
    REQUIRE(victim > 0);
    kill(victim, SIGKILL);
    REQUIRE(eventually([&] { return child(1) > 0 && child(1) != victim; }));
    REQUIRE(eventually([&] { return session.devices().size() == 2; }));
    CHECK(same_bits(matmul(x, x).get<double>({.timeout = kPatience}), expected));
  }
  const int last = child(1);
  cluster.worker(1).signal(SIGTERM);
  CHECK(cluster.worker(1).wait() == 0);
  const auto gone = [](int pid) { return read_file("/proc/" + std::to_string(pid) + "/cmdline").empty(); };
  CHECK(gone(last));
  const int orphan = child(0);
  cluster.worker(0).signal(SIGKILL);
  CHECK(eventually([&] { return gone(orphan); }));
}

#ifdef TILEWISE_SILENT_DISK
TEST_CASE(
    "a disk that does not answer is told of at once and ends the scheduler at its limit; nothing is lost") {
  const TempFolder folder;
  const std::string silent = folder / "silent";
  Cluster cluster({.workers = 2,
                   .devices = 1,
                   .scheduler_args = {"--state-timeout", "3"},
                   .scheduler_environment = {{"LD_PRELOAD", TILEWISE_SILENT_DISK}, {"SILENT_DISK", silent}},
                   .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));
  // It answers again in time: a warning, no more.
  std::ofstream(silent).put('x');
  const Future late = session.compute({products(session)});
  CHECK(eventually([&] {
    return cluster.scheduler().errors().find("everybody waits for the disk") != std::string::npos;
  }));
  std::filesystem::remove(silent);
  CHECK(same_bits(values(late), expected));
  REQUIRE(cluster.scheduler().running());

  std::ofstream(silent).put('x');
  const Future asked = session.compute({products(session)});
  CHECK(cluster.scheduler().wait() == 1);
  CHECK(cluster.scheduler().errors().find("the disk of --state-dir " + cluster.state_dir() +
                                          " has not answered for 3 s (writing the journal)") !=
        std::string::npos);
  std::filesystem::remove(silent);
  cluster.restart_scheduler();
  CHECK(same_bits(values(asked), expected));
  CHECK(nothing_left(cluster));
}
#endif

TEST_CASE("one state directory, one scheduler; an ended cluster is over") {
  Cluster cluster({.workers = 1, .devices = 1, .keep_state = true});
  INFO(cluster.words());
  const Ran second =
      run({scheduler_program(), "--listen", "127.0.0.1:0", "--token-file", cluster.token_file(),
           "--dashboard-listen", "off", "--state-dir", cluster.state_dir()});
  CHECK(second.code == 1);
  CHECK(second.errors.find("is in use by process " + std::to_string(cluster.scheduler().pid())) !=
        std::string::npos);
  CHECK(cluster.tool({"shutdown"}).code == 0);
  CHECK(cluster.worker(0).wait() == 0);
  REQUIRE(cluster.scheduler().wait() == 0);
  cluster.restart_scheduler();
  CHECK(number_in(cluster.status(), "term") == 2);
  CHECK(cluster.status().find("worker-0") == std::string::npos);
}
