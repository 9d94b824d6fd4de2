#include <tilewise/base/text.h>
#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <new>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "temp_folder.h"

using namespace tilewise;

namespace {

struct Parsed {
  std::optional<int> code;
  daemon::CommonOptions options;
};

Parsed parse(std::vector<std::string> arguments) {
  Parsed out;
  CLI::App app("test", "program");
  daemon::add_common_options(app, out.options);
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  out.code = daemon::parse(app, static_cast<int>(argv.size()), argv.data());
  return out;
}

struct Ended {
  int status = 0;  // as waitpid() has it
  std::string errors;
};

// A process that does this.
Ended end_of(const std::function<void()>& body) {
  const testing::TempFolder folder;
  const std::string file = folder / "errors";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open(file.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);  // doctest has its own
    daemon::name_refusals("the program");
    body();
    _exit(0);
  }
  Ended ended;
  REQUIRE(waitpid(child, &ended.status, 0) == child);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  ended.errors = text.str();
  return ended;
}

// As Boost throws them.
struct Derived : std::bad_alloc {};

void must_not_throw(const std::function<void()>& body) noexcept { body(); }

}  // namespace

TEST_CASE("the command line wins over the environment, and that over the file") {
  const testing::TempFolder folder;
  const std::string file = folder / "tilewise.toml";
  std::ofstream(file) << "log-level = \"error\"\ncores = 3\nlog-format = \"json\"\n";
  setenv("TILEWISE_LOG_LEVEL", "warn", 1);
  setenv("TILEWISE_CORES", "5", 1);
  const Parsed p = parse({"--config", file, "--cores", "7"});
  unsetenv("TILEWISE_LOG_LEVEL");
  unsetenv("TILEWISE_CORES");
  REQUIRE(!p.code);
  CHECK(p.options.cores == 7);
  CHECK(p.options.log_level == "warn");
  CHECK(p.options.log_format == "json");
}

TEST_CASE("mistakes are exit code 2") {
  CHECK(parse({"--no-such-option"}).code == daemon::kExitUsage);
  CHECK(parse({"--cores", "many"}).code == daemon::kExitUsage);
  CHECK(parse({"--config", "/no/such/file"}).code == daemon::kExitUsage);
  const testing::TempFolder folder;
  const std::string file = folder / "typo.toml";
  std::ofstream(file) << "loglevel = \"error\"\n";
  CHECK(parse({"--config", file}).code == daemon::kExitUsage);
  CHECK(parse({"--version"}).code == daemon::kExitOk);
  CHECK(!daemon::start_log("x", "loud", "text"));
  CHECK(!daemon::start_log("x", "info", "xml"));
}

TEST_CASE("sizes are parsed, or refused with the text") {
  CHECK(*daemon::parse_bytes("4GiB") == std::int64_t{4} << 30);
  CHECK(*daemon::parse_bytes("512MB") == 512'000'000);
  CHECK(*daemon::parse_bytes("64k") == 65'536);
  CHECK(*daemon::parse_bytes("1.5 KiB") == 1536);
  CHECK(*daemon::parse_bytes("77") == 77);
  for (const char* bad : {"", "-1GiB", "GiB", "4XB", "nan", "1e99", "4GiBs", "0"}) {
    CAPTURE(bad);
    CHECK(!daemon::parse_bytes(bad));
  }
}

TEST_CASE("what is advertised can be connected to") {
  const net::Address all{net::Address::Kind::kTcp, "0.0.0.0", 4000, {}};
  CHECK(daemon::advertised("", all).error().code == Errc::kInvalidArgument);
  CHECK(daemon::advertised("10.0.0.7:0", all)->to_string() == "tcp://10.0.0.7:4000");
  CHECK(daemon::advertised("", {net::Address::Kind::kTcp, "127.0.0.1", 5, {}})->port == 5);
}

TEST_CASE("json strings are quoted") { CHECK(json_quote("a\"b\\c\n\x01") == "\"a\\\"b\\\\c\\n\\u0001\""); }

TEST_CASE("of what comes again and again one in a while is told, with how many there were") {
  daemon::Seldom seldom(10 * kSecond);
  CHECK(seldom.count(5) == 1);
  CHECK(seldom.count(6) == 0);
  CHECK(seldom.count(10 * kSecond) == 0);
  CHECK(seldom.count(10 * kSecond + 5) == 3);
  CHECK(seldom.count(40 * kSecond) == 1);
}

TEST_CASE("a program has as many files open as the hard limit allows") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 100;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  daemon::raise_file_limit();
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == std::min<rlim_t>(before.rlim_max, 1 << 20));
  CHECK(after.rlim_max == before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("a process that is refused memory or a thread says so and ends with 3; any other end is as ever") {
  const auto ends_with_3 = [](const std::string& what, const std::string& limit,
                              const std::function<void()>& body) {
    const Ended ended = end_of(body);
    CHECK(WIFEXITED(ended.status));
    CHECK(WEXITSTATUS(ended.status) == daemon::kExitRefused);
    CHECK_MESSAGE(ended.errors.starts_with("the program: out of " + what + ": "), ended.errors);
    CHECK(std::count(ended.errors.begin(), ended.errors.end(), '\n') == 1);
    CHECK(ended.errors.find(limit) != std::string::npos);
  };
  ends_with_3("memory", "ulimit -v", [] { must_not_throw([] { throw std::bad_alloc(); }); });
  ends_with_3("memory", "ulimit -v", [] { must_not_throw([] { throw Derived(); }); });
  ends_with_3("memory", "ulimit -v", [] { std::thread([] { throw std::bad_alloc(); }).join(); });
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto limit_address_space = [](rlim_t bytes) {
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
  };
  ends_with_3("memory", "ulimit -v", [&] {
    limit_address_space(256 << 20);
    must_not_throw([] {
      while (::operator new(64) != nullptr) {
      }
    });
  });
  ends_with_3("threads", "ulimit -u", [&] {
    limit_address_space(1 << 20);  // less than there is already: there is no room for a stack
    must_not_throw([] { std::thread([] {}).join(); });
  });
#endif
  for (const std::function<void()>& body : std::vector<std::function<void()>>{
           [] { must_not_throw([] { throw std::runtime_error("something else"); }); },
           [] { must_not_throw([] { throw 7; }); }, [] { std::terminate(); }}) {
    const Ended ended = end_of(body);
    CHECK(WIFSIGNALED(ended.status));
    CHECK(WTERMSIG(ended.status) == SIGABRT);
    CHECK(ended.errors.find("out of memory") == std::string::npos);
  }
  const Ended other = end_of([] { must_not_throw([] { throw std::runtime_error("something else"); }); });
  CHECK(other.errors.find("something else") != std::string::npos);
}
