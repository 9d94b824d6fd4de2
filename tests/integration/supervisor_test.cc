// A worker's parent: what it passes on, what it tells the scheduler, what it ends, and what is without it.
#include <doctest/doctest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <sstream>
#include <thread>

#include "harness.h"
#include "programs.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

bool gone(int pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  return stat.empty() || has(stat, ") Z ");
}

// Each point takes `ns`.
Array slow(const Array& x, std::int64_t ns) {
  const Kernel kernel{
      .name = "slow.third", .version = "1.0", .params = {reinterpret_cast<const char*>(&ns), sizeof ns}};
  return map_blocks(kernel, std::vector{x}, {}, {{DType::kFloat64, x.grid()}})[0];
}

std::string error_of(const Future& future, Errc code) {
  try {
    (void)values(future);
  } catch (const ArrayError& e) {
    CHECK_MESSAGE(e.code() == code, e.what());
    return e.what();
  }
  FAIL("it went well");
  return {};
}

}  // namespace

TEST_CASE("a worker has a parent: signals reach it, its end is the parent's, and the scheduler is told") {
  Cluster cluster({.workers = 1, .devices = 1});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  Process& parent = cluster.worker(0);
  const int worker = working(parent.pid());
  REQUIRE(worker != parent.pid());
  CHECK(working(worker) == worker);  // which is all
  SUBCASE("SIGTERM is an orderly end") {
    parent.signal(SIGTERM);
    CHECK(parent.wait().value_or(-99) == 0);
    CHECK_MESSAGE(has(parent.errors(), "ended"), parent.errors());
    CHECK(!has(cluster.scheduler().errors(), "worker ended"));
  }
  SUBCASE("and so is SIGINT that both get, as from a terminal") {
    kill(worker, SIGINT);
    parent.signal(SIGINT);
    CHECK(parent.wait().value_or(-99) == 0);
  }
  SUBCASE("a signal that is fatal to it is so by way of the parent") {
    parent.signal(SIGUSR1);
    CHECK(parent.wait().value_or(-99) == 128 + SIGUSR1);
    CHECK(!has(cluster.scheduler().errors(), "worker ended"));
  }
  SUBCASE("kill -9") {
    kill(worker, SIGKILL);
    CHECK(parent.wait().value_or(-99) == 128 + SIGKILL);
    CHECK_MESSAGE(has(parent.errors(), "killed by signal 9"), parent.errors());
    const std::string said = cluster.scheduler().errors();
    CHECK_MESSAGE((has(said, "worker ended") && has(said, "killed by signal 9")), said);
  }
  SUBCASE(
      "the system kills it for lack of memory and asks the rest of the service to end: it is told first") {
    const auto in_state = [](int pid, const std::string& state) {
      return has(read_file("/proc/" + std::to_string(pid) + "/stat"), ") " + state);
    };
    parent.signal(SIGSTOP);
    REQUIRE(eventually([&] { return in_state(parent.pid(), "T"); }));
    kill(worker, SIGKILL);
    REQUIRE(eventually([&] { return in_state(worker, "Z"); }));
    parent.signal(SIGTERM);
    parent.signal(SIGCONT);
    CHECK(parent.wait().value_or(-99) == 128 + SIGKILL);
    CHECK(has(cluster.scheduler().errors(), "worker ended"));
  }
  SUBCASE("kill -9 of the parent takes it along") {
    parent.signal(SIGKILL);
    CHECK(parent.wait().value_or(-99) == 128 + SIGKILL);
  }
  SUBCASE("an exit code of its own is passed on") {
    cluster.scheduler().signal(SIGKILL);
    CHECK(parent.wait().value_or(-99) == 1);
    CHECK_MESSAGE(has(parent.errors(), "scheduler"), parent.errors());
    CHECK(eventually([&] { return gone(worker); }));
    return;
  }
  CHECK(eventually([&] { return gone(worker) && session.devices().empty(); }));
}

TEST_CASE("a step may take an hour where nothing else is said") {
  const Ran help = run({worker_program(), "--help"});
  const std::size_t at = help.output.find("--step-timeout");
  REQUIRE(at != std::string::npos);
  const std::string line = help.output.substr(at, help.output.find("\n  --", at) - at);
  CHECK_MESSAGE(has(line, "=3600"), line);
  CHECK_MESSAGE(has(line, "0: none"), line);
}

TEST_CASE("options: none, or one that starts the worker again, from wherever the option comes") {
  Cluster cluster({.workers = 0, .devices = 1});
  INFO(cluster.words());
  cluster.add_worker({"--no-supervisor"});
  cluster.add_worker({}, {}, {{"TILEWISE_RESPAWN", "1"}});
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  CHECK(child_of(cluster.worker(0).pid()) == 0);
  const int worker = child_of(cluster.worker(1).pid());
  REQUIRE(worker != 0);
  CHECK(child_of(worker) == 0);
  kill(worker, SIGKILL);
  CHECK(eventually([&] {
    const int next = child_of(cluster.worker(1).pid());
    return next != 0 && next != worker && session.devices().size() == 2;
  }));
  cluster.worker(0).signal(SIGKILL);
  CHECK(cluster.worker(0).wait() == 128 + SIGKILL);
  CHECK(eventually([&] { return session.devices().size() == 1; }));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--respawn"}, {"--step-timeout", "5"}}) {
    std::vector<std::string> command{worker_program(), "--scheduler",        cluster.address(),
                                     "--token-file",   cluster.token_file(), "--no-supervisor"};
    command.insert(command.end(), more.begin(), more.end());
    const Ran ran = run(command);
    CHECK(ran.code == 2);
    CHECK_MESSAGE(has(ran.errors, "--no-supervisor with " + more[0]), ran.errors);
  }
}

TEST_CASE(
    "a step that does not end takes its worker down, three times, and then fails alone, with its story") {
  Cluster cluster({.workers = 2,
                   .devices = 1,
                   .worker_args = {"--respawn", "--step-timeout", "1.5", "--plugin", TILEWISE_SLOW_PLUGIN}});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const Array x = session.arange(0.0, 8.0, 1.0, {.block = {8}}).astype(DType::kFloat64);
  std::vector<double> want;
  for (int i = 0; i < 8; ++i) want.push_back(i / 3.0 + 1);
  // Many that take their time are none that takes too long.
  const Array many = session.arange(0.0, 64.0, 1.0, {.block = {4}}).astype(DType::kFloat64);
  CHECK(slow(many, 150'000'000).get<double>({.timeout = kPatience})[9] == 4.0);
  CHECK(!has(cluster.scheduler().errors(), "worker ended"));

  const std::vector<double> expected = values(session.compute({products(session)}));
  const Future other = session.compute({products(session)});
  const std::string text = error_of(session.compute({slow(x, 3'600'000'000'000) + 1.0}), Errc::kTaskFailed);
  MESSAGE(text);
  for (const char* part :
       {"slow.third", "for array ", ", point 0 is not run again",
        "3 workers died while they were executing it", "its step had not ended after 1.5 s (--step-timeout)"})
    CHECK(has(text, part));
  CHECK(same_bits(values(other), expected));
  const std::string said = cluster.scheduler().errors();
  CHECK_MESSAGE((has(said, "worker ended") && has(said, "--step-timeout") && has(said, " point 0")), said);
  REQUIRE(session.wait_for_devices(2, kPatience));
  CHECK(slow(x, 1'000'000).get<double>({.timeout = kPatience}) == want);
  CHECK(nothing_left(cluster));
}

TEST_CASE("a death that no scheduler was there to hear of is one of the three, and in the story") {
  Cluster cluster({.workers = 1,
                   .devices = 1,
                   .worker_args = {"--respawn", "--step-timeout", "1.5", "--plugin", TILEWISE_SLOW_PLUGIN},
                   .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  const Array x = session.arange(0.0, 8.0, 1.0, {.block = {8}}).astype(DType::kFloat64);
  const Future request = session.compute({slow(slow(x, 1'000'000), 3'600'000'000'000)});
  // The worker has been told of the next step together with those that are done.
  REQUIRE(eventually([&] { return !has(cluster.status(), "\"tasks_done\":0"); }));
  cluster.scheduler().signal(SIGKILL);
  REQUIRE(cluster.scheduler().wait());
  REQUIRE(eventually([&] { return has(cluster.worker(0).errors(), "going on to try"); }));
  CHECK_MESSAGE(has(cluster.worker(0).errors(), "executing=\"op "), cluster.worker(0).errors());
  cluster.restart_scheduler();
  const std::string text = error_of(request, Errc::kTaskFailed);
  MESSAGE(text);
  for (const char* part : {"slow.third", "3 workers died while they were executing it: w1 ("})
    CHECK(has(text, part));
  // Who was not heard would be followed by a fourth.
  const std::string said = cluster.worker(0).errors();
  std::size_t deaths = 0;
  for (std::size_t at = 0; (at = said.find("the worker ended, starting it again", at)) != std::string::npos;
       ++at)
    ++deaths;
  CHECK(deaths == 3);
  CHECK(nothing_left(cluster));
}

TEST_CASE("a worker whose main thread is stuck is killed, blamed on no task, and replaced") {
  Cluster cluster({.workers = 2,
                   .devices = 1,
                   .scheduler_args = {"--silence-timeout", "2"},
                   .worker_args = {"--silence-timeout", "2", "--respawn", "--step-timeout", "0", "--plugin",
                                   TILEWISE_STUCK_PLUGIN}});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  Process& parent = cluster.worker(0);
  const int worker = working(parent.pid());
  const auto in_state = [&](const char* states) {
    const std::string stat = read_file("/proc/" + std::to_string(worker) + "/stat");
    const std::size_t at = stat.rfind(')') + 2;
    return at < stat.size() && std::string(states).find(stat[at]) != std::string::npos;
  };
  const auto replaced = [&] {
    const std::string number = std::to_string(parent.pid());
    std::istringstream children(read_file("/proc/" + number + "/task/" + number + "/children"));
    for (int child = 0; children >> child;) {
      if (child != worker) return true;
    }
    return false;
  };
  const auto stick = [&] { REQUIRE(syscall(SYS_tgkill, worker, worker, SIGUSR2) == 0); };
  const auto is_missed = [&] { return session.devices().size() == 1; };
  const std::vector<double> expected = values(session.compute({products(session)}));

  SUBCASE("at once where it is stuck") {
    stick();  // before there is a step that it could be in
    const Future request = session.compute({products(session)});
    REQUIRE(eventually(is_missed));
    CHECK(eventually(replaced));
    CHECK(gone(worker));
    CHECK(same_bits(values(request), expected));
    const std::string said = parent.errors();
    for (const char* part :
         {"its main thread had not moved for 6 s (three times --silence-timeout)", "executing=nothing"})
      CHECK_MESSAGE(has(said, part), said);
  }
  SUBCASE("though the kernel does not let it go: another one comes beside it") {
    stick();
    REQUIRE(eventually(is_missed));
    // A traced thread waits in its own end for who traces it, killed or not: the nearest to a disk that is dead for good.
    if (ptrace(PTRACE_SEIZE, worker, nullptr, PTRACE_O_TRACEEXIT) != 0) {
      MESSAGE("not tried: this process may not trace others");
      return;
    }
    REQUIRE(eventually(replaced));
    CHECK(!gone(worker));
    const std::string said = parent.errors();
    CHECK_MESSAGE(has(said, "does not end although it was killed"), said);
    CHECK(session.wait_for_devices(2, kPatience));
    int status = 0;
    CHECK(waitpid(worker, &status, __WALL) == worker);
    CHECK(ptrace(PTRACE_DETACH, worker, nullptr, nullptr) == 0);
    CHECK(eventually([&] { return gone(worker); }));
  }
  SUBCASE("not while it is stopped: that is somebody's decision, and so is when it goes on") {
    REQUIRE(kill(worker, SIGSTOP) == 0);
    CHECK(eventually([&] { return has(parent.errors(), "the worker is stopped"); }));
    CHECK(eventually([&] { return session.devices().size() == 1; }));
    CHECK(in_state("T"));
    kill(worker, SIGCONT);  // it hears that it was lost, and ends by itself
    CHECK(eventually(replaced));
    CHECK_MESSAGE(has(parent.errors(), "ended with exit code 1"), parent.errors());
  }
  CHECK(session.wait_for_devices(2, kPatience));
}
