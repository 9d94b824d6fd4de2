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

#include "print_result.h"
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

TEST_CASE("numbers are finite, wherever they come from") {
  for (const char* bad : {"nan", "NaN", "-nan", "inf", "1e999"}) {
    CAPTURE(bad);
    CHECK(parse({"--silence-timeout", bad}).code == daemon::kExitUsage);
    setenv("TILEWISE_SILENCE_TIMEOUT", bad, 1);
    CHECK(parse({}).code == daemon::kExitUsage);
    unsetenv("TILEWISE_SILENCE_TIMEOUT");
  }
  CHECK(!parse({"--silence-timeout", "2.5"}).code);
  double ours = 0;
  std::optional<double> given;
  CLI::App app("test", "program");
  app.add_option("--given", given)->check(CLI::IsMember({0.0}) | CLI::Range(0.1, 1e6));
  app.add_subcommand("look")->add_option("--last", ours)->check(CLI::Range(1e-6, 1e7));
  for (std::vector<const char*> line :
       {std::vector{"program", "--given", "nan"}, {"program", "look", "--last", "nan"}}) {
    app.clear();
    CHECK(daemon::parse(app, static_cast<int>(line.size()), const_cast<char**>(line.data())) ==
          daemon::kExitUsage);
  }
}

TEST_CASE("a name is what a terminal and JSON can show") {
  CHECK(daemon::check_name("--name", ""));
  CHECK(daemon::check_name("--name",
                           "gr\xC3\xBC\xC3\x9F"
                           "e/1"));
  CHECK(daemon::check_name("--name", std::string(256, 'a')));
  for (const std::string& bad :
       {std::string(257, 'a'), std::string("\x1B[2J"), std::string("a\nb"), std::string("\xFF")}) {
    const Status refused = daemon::check_name("--name", bad);
    REQUIRE(!refused);
    CHECK(refused.error().code == Errc::kInvalidArgument);
    CHECK(refused.error().message.starts_with("--name"));
  }
}

TEST_CASE("no line of text has bytes that are not UTF-8, nor has one of JSON") {
  const auto said = [](const char* format) {
    return end_of([format] {
             REQUIRE(daemon::start_log("program", "info", format));
             daemon::log_info("joined", {{"name", "a\xFF\x1B\"b"}});
             daemon::flush_log();
           })
        .errors;
  };
  CHECK_MESSAGE(said("text").ends_with("joined name=\"a\\xFF\\u001b\\\"b\"\n"), said("text"));
  CHECK_MESSAGE(said("json").ends_with("\"name\":\"a\xEF\xBF\xBD\\u001b\\\"b\"}\n"), said("json"));
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

TEST_CASE("the last line is one of the log's, after all that was logged") {
  const Error why{Errc::kAlreadyExists, "listen on \"x\"\nsays the system"};
  const Ended text = end_of([&] {
    REQUIRE(daemon::start_log("program", "info", "text"));
    daemon::log_info("before");
    _exit(daemon::fail("program", why, daemon::kExitFailure));
  });
  CHECK(WEXITSTATUS(text.status) == daemon::kExitFailure);
  CHECK_MESSAGE(
      text.errors.ends_with("info: before\nprogram: already exists: listen on \"x\" says the system\n"),
      text.errors);
  const Ended json = end_of([&] {
    REQUIRE(daemon::start_log("program", "off", "json"));
    _exit(daemon::fail("program", why, daemon::kExitFailure));
  });
  CHECK_MESSAGE(
      json.errors.ends_with(
          R"("level":"error","event":"ending","cause":"already exists","why":"listen on \"x\"\nsays the system"})"
          "\n"),
      json.errors);
  CHECK(json.errors.starts_with(R"({"time":")"));
  const Ended refused = end_of([] {
    REQUIRE(daemon::start_log("program", "info", "json"));
    must_not_throw([] { throw std::bad_alloc(); });
  });
  CHECK_MESSAGE(
      refused.errors.find(R"("level":"error","event":"ending","why":"out of memory: )") != std::string::npos,
      refused.errors);
  CHECK(std::count(refused.errors.begin(), refused.errors.end(), '\n') == 1);
}

TEST_CASE("what was logged is there after a bug, and a child's lines are there once") {
  const Ended bug = end_of([] {
    REQUIRE(daemon::start_log("program", "info", "text"));
    for (int i = 0; i < 1000; ++i) daemon::log_info("line", {{"i", i}});
    std::abort();
  });
  CHECK(WTERMSIG(bug.status) == SIGABRT);
  CHECK(bug.errors.ends_with("line i=999\n"));
  const Ended forked = end_of([] {
    REQUIRE(daemon::start_log("program", "info", "text"));
    for (int i = 0; i < 100; ++i) daemon::log_info("of the parent");
    const pid_t child = fork();
    if (child == 0) {
      daemon::log_info("of the child");
      daemon::flush_log();
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    daemon::flush_log();
  });
  CHECK(std::count(forked.errors.begin(), forked.errors.end(), '\n') == 101);
  CHECK(forked.errors.find("of the child") != std::string::npos);
}
