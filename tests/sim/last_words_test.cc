// Worlds that take their process down: each is run by a program of its own, this one.
#include "last_words.h"
#include "families.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

using namespace tilewise;

// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {
const bool sanitized = __sanitizer_set_death_callback != nullptr;
#ifdef __SANITIZE_THREAD__
constexpr bool kUnderThreadSanitizer = true;
#else
constexpr bool kUnderThreadSanitizer = false;
#endif

struct End {
  int status = 0;
  std::string said;
  bool by(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
};

// `command` as LastWords gives it, in an environment that says nothing else of worlds, nor where a sanitizer's reports go.
End ended(std::string command) {
  constexpr std::string_view kUsual = " ./dev sim ";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (const std::size_t at = command.find(kUsual); at != std::string::npos)
    command.replace(at, kUsual.size(), " " + program + " ");
  std::string shell = "ulimit -c 0; ulimit -s 8192; exec env";
  for (const sim::Family& family : sim::kFamilies) shell += std::string(" -u ") + family.variable;
  for (const char* name : {"WITH", "FROM", "SEEDS", "EVENTS", "SHRINK", "TRACE", "VERBOSE"})
    shell += std::string(" -u TILEWISE_SIM_") + name;
  for (const char* name : {"ASAN", "UBSAN", "TSAN"})
    shell += " " + std::string(name) + "_OPTIONS=\"$" + name + "_OPTIONS:log_path=stderr\"";
  End end;
  FILE* pipe = popen((shell + " " + command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) end.said.append(buffer, n);
  end.status = pclose(pipe);
  return end;
}

// The commands that were printed, in order.
std::vector<std::string> replays(const End& end) {
  constexpr std::string_view kBefore = "replay with ";
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = end.said.find(kBefore, at)) != std::string::npos;) {
    at += kBefore.size();
    out.push_back(end.said.substr(at, end.said.find('\n', at) - at));
  }
  return out;
}

sim::Again dying(int how) {
  return {"random worlds keep every invariant, and repeat themselves", "TILEWISE_SIM_SEED", 5,
          "dies=" + std::to_string(how)};
}

// A sanitizer has a say in what else than abort() and raise() does.
bool dies_well(const End& end, int signal) {
  const bool reported = sanitized && signal != SIGABRT && signal != SIGPROF;
  return end.by(signal) || (reported && WIFEXITED(end.status) && WEXITSTATUS(end.status) != 0);
}
}  // namespace

TEST_CASE("a world that takes its process down says how it is run again, and does so again in the same way") {
  struct Way {
    int how, signal;
  };
  std::vector<Way> ways{{sim::kStackOverflow, SIGSEGV}};
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF})
    ways.push_back({signal, signal});
#ifdef __SANITIZE_ADDRESS__
  ways.push_back({sim::kOutOfBounds, SIGSEGV});
  ways.push_back({sim::kUndefined, SIGSEGV});
#endif
  for (const auto& [how, signal] : ways) {
    CAPTURE(how);
    const std::string told = sim::command(dying(how));
    std::string command = told;
    for (int times = 0; times < 2; ++times) {
      const End end = ended(command);
      CAPTURE(end.said);
      CHECK(dies_well(end, signal));
      const std::vector<std::string> again = replays(end);
      REQUIRE(again.size() == 1);  // changes are given: nobody makes it smaller
      CHECK(again[0] == told);
      CHECK(end.said.find("CRASHED") == std::string::npos);  // doctest's word for what it catches
      command = again[0];
    }
  }
}

// ThreadSanitizer's handler of signals now and then fails itself in children of a fork ("nested bug in the same thread"): they end
// in another way then, and nothing is smaller.
TEST_CASE("a world that takes its process down is made smaller as long as it does" *
          doctest::skip(kUnderThreadSanitizer)) {
  for (const int how : {SIGSEGV, static_cast<int>(sim::kStackOverflow)}) {
    CAPTURE(how);
    // As one of many seeds.
    const End end =
        ended("TILEWISE_SIM_SHRINK=1 TILEWISE_SIM_FROM=5 TILEWISE_SIM_SEEDS=1 TILEWISE_SIM_WITH=dies=" +
              std::to_string(how) + " ./dev sim '--test-case=random worlds*'");
    CAPTURE(end.said);
    CHECK(dies_well(end, SIGSEGV));
    const std::vector<std::string> again = replays(end);
    REQUIRE(again.size() == 2);
    CHECK(again[0] == sim::command(dying(how)));
    CHECK(end.said.find("CRASHED") == std::string::npos);  // nor in the worlds that are tried
    CHECK(again[1].find("TILEWISE_SIM_WITH='dies=" + std::to_string(how) + " requests=1 ") == 0);
    const End smaller = ended(again[1]);
    CHECK(dies_well(smaller, SIGSEGV));
    CHECK(replays(smaller) == std::vector{again[1]});
  }
}
