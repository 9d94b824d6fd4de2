// What happens to the programs when whoever reads their logs stops, or is gone, and what signals of terminals do.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <optional>
#include <sstream>
#include <utility>

#include "harness.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

// Somebody who reads what a program says, or does not.
class Reader {
 public:
  Reader() {
    REQUIRE(mkfifo(path().c_str(), 0600) == 0);
    fd_ = open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(fd_ >= 0);
    fcntl(fd_, F_SETPIPE_SZ, 4096);
  }
  ~Reader() { go(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  std::string path() const { return folder_ / "log"; }
  bool is_full() const {
    const int writer = open(path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    const bool full = write(writer, "\n", 1) < 0;
    close(writer);
    return full;
  }
  std::string read_on() const {
    std::string text(4096, 0), all;
    for (ssize_t n = 0; (n = read(fd_, text.data(), text.size())) > 0;)
      all.append(text, 0, static_cast<std::size_t>(n));
    return all;
  }
  void go() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  TempFolder folder_;
  int fd_ = -1;
};

// A scheduler and a worker whose logs one reader has.
struct Read {
  TempFolder folder;
  Reader reader;
  std::optional<Process> scheduler, worker;

  std::vector<std::string> into_pipe(std::vector<std::string> command) const {
    command.insert(command.begin(), {"/bin/sh", "-c", "exec \"$@\" 2>" + reader.path(), "sh"});
    return command;
  }
  explicit Read(const std::string& worker_option = "--respawn") {
    const std::string file = folder / "address", token = folder / "token", ready = folder / "worker";
    scheduler.emplace(
        "scheduler", into_pipe({scheduler_program(), "--listen", "127.0.0.1:0", "--address-file", file,
                                "--token-file", token, "--dashboard-listen", "off", "--log-level", "debug"}));
    REQUIRE(eventually([&] { return std::filesystem::exists(file); }));
    environment = {{"TILEWISE_SCHEDULER", read_file(file)}, {"TILEWISE_TOKEN_FILE", token}};
    worker.emplace("worker",
                   into_pipe({worker_program(), "--address-file", ready, "--memory", "64MiB", "--log-level",
                              "debug", worker_option}),
                   environment);
    REQUIRE(eventually([&] { return std::filesystem::exists(ready); }));
  }
  Ran status() const { return testing::run({tool_program(), "--timeout", "10", "status"}, environment); }
  Environment environment;
};

}  // namespace

TEST_CASE("a reader of the logs that stands still keeps nobody from working, nor from ending") {
  Read all;
  REQUIRE(eventually([&] { return all.status().code == 0 && all.reader.is_full(); }));
  for (int i = 0; i < 20; ++i) CHECK(all.status().code == 0);
  SUBCASE("it goes on") {
    std::string said;
    CHECK(eventually([&] {
      said += all.reader.read_on();
      return has(said, "ready");
    }));
    CHECK(all.status().code == 0);
  }
  SUBCASE("it does not") {}
  all.worker->signal(SIGTERM);
  CHECK(all.worker->wait(seconds(5 * kTimesSlower)).value_or(-99) == 0);
  all.scheduler->signal(SIGTERM);
  CHECK(all.scheduler->wait(seconds(5 * kTimesSlower)).value_or(-99) == 0);
}

TEST_CASE("a reader of the logs that ends takes nobody along") {
  Read all;
  all.reader.go();
  for (int i = 0; i < 3; ++i) CHECK(all.status().code == 0);
  const int first = working(all.worker->pid());
  kill(first, SIGKILL);  // its parent says so, and goes on
  CHECK(eventually([&] { return working(all.worker->pid()) != first && child_of(all.worker->pid()) != 0; }));
  CHECK(eventually([&] { return has(all.status().output, "workers 1"); }));
  all.worker->signal(SIGTERM);
  CHECK(all.worker->wait().value_or(-99) == 0);
  all.scheduler->signal(SIGTERM);
  CHECK(all.scheduler->wait().value_or(-99) == 0);
}

TEST_CASE("a SIGHUP ends nobody, and each who gets one says so") {
  Cluster cluster({.workers = 1});
  const auto hangups = [](const Process& process) {
    const std::string said = process.errors();
    int n = 0;
    for (std::size_t at = said.find("SIGHUP"); at != std::string::npos; at = said.find("SIGHUP", at + 1)) ++n;
    return n;
  };
  Process& parent = cluster.worker(0);
  const int worker = working(parent.pid());
  cluster.scheduler().signal(SIGHUP);
  CHECK(eventually([&] { return hangups(cluster.scheduler()) == 1; }));
  kill(worker, SIGHUP);
  CHECK(eventually([&] { return hangups(parent) == 1; }));
  parent.signal(SIGHUP);
  CHECK(eventually([&] { return hangups(parent) == 2; }));
  CHECK(working(parent.pid()) == worker);
  CHECK(has(cluster.status(), "\"role\":\"worker\""));
}

TEST_CASE("with --log-format json the last line is JSON too") {
  const TempFolder folder;
  Cluster cluster({.workers = 0});
  const std::string at = cluster.address().substr(cluster.address().find("//") + 2);
  const Ran second = testing::run({scheduler_program(), "--listen", at, "--token-file", cluster.token_file(),
                                   "--dashboard-listen", "off", "--log-format", "json"});
  CHECK(second.code == 1);
  const Ran lost =
      testing::run({worker_program(), "--scheduler", "127.0.0.1:1", "--token-file", cluster.token_file(),
                    "--connect-timeout", "0", "--log-format", "json", "--memory", "64MiB"});
  CHECK(lost.code == 1);
  for (const std::string& said : {second.errors, lost.errors}) {
    INFO(said);
    CHECK(has(said, R"("level":"error","event":"ending","cause":")"));
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);)
      CHECK((line.starts_with("{\"time\":") && line.ends_with("}")));
  }
}

TEST_CASE("a token that is made is told of, a wrong one is named by what asks the dashboard") {
  const TempFolder folder;
  const std::string token = std::string(folder / "new") + "/token", page = folder / "page",
                    address = folder / "address";
  Process scheduler("scheduler",
                    {scheduler_program(), "--listen", "127.0.0.1:0", "--token-file", token, "--address-file",
                     address, "--dashboard-listen", "127.0.0.1:0", "--dashboard-address-file", page});
  REQUIRE(eventually([&] { return std::filesystem::exists(address); }));
  CHECK_MESSAGE(has(scheduler.errors(), "warning: there was no token, a new one was made file=" + token),
                scheduler.errors());
  const Environment wrong{{"TILEWISE_TOKEN", std::string(64, 'a')},
                          {"TILEWISE_DASHBOARD", read_file(page)},
                          {"TILEWISE_SCHEDULER", read_file(address)}};
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"top", "--once"}, {"arrays"}, {"graph"}}) {
    std::vector<std::string> line{tool_program()};
    line.insert(line.end(), command.begin(), command.end());
    const Ran asked = testing::run(line, wrong);
    CHECK(asked.code == 1);
    CHECK_MESSAGE(has(asked.errors, "the token (TILEWISE_TOKEN) is not this cluster's"), asked.errors);
  }
}

TEST_CASE("names that a terminal cannot show are refused") {
  Cluster cluster({.workers = 0});
  const Ran worker = testing::run({worker_program(), "--scheduler", cluster.address(), "--token-file",
                                   cluster.token_file(), "--name", "a\x1B[2J"});
  CHECK(worker.code == 2);
  CHECK_MESSAGE(has(worker.errors, "--name"), worker.errors);
  try {
    (void)cluster.session("b\xFF");
    FAIL("it joined");
  } catch (const ArrayError& e) {
    CHECK(e.code() == Errc::kInvalidArgument);
  }
}
