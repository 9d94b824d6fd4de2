#include "last_words.h"

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <vector>

// There in a program that is built with AddressSanitizer or ThreadSanitizer.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace tilewise::sim {
namespace {

constexpr std::array kDeadly{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF};

std::array<struct sigaction, kDeadly.size()> actions() {
  std::array<struct sigaction, kDeadly.size()> now{};
  for (std::size_t i = 0; i < kDeadly.size(); ++i) sigaction(kDeadly[i], nullptr, &now[i]);
  return now;
}
// As the program began, before doctest's: the system's, or a sanitizer's, which report.
const std::array<struct sigaction, kDeadly.size()> first = actions();

// All that a process takes that is interrupted anywhere is made before: it may only write, become another one, and end.
struct Prepared {
  pid_t owner = 0;  // 0: there is no world
  bool shrinks = false;
  std::string line;
  std::vector<std::string> words, variables;
  std::vector<char*> argv, envp;
  std::array<struct sigaction, kDeadly.size()> before{};
  stack_t stack_before{};
} prepared;
alignas(16) std::array<char, 256 << 10> stack;  // a stack that has overflowed has no room for a handler

void limit_time(time_t seconds) {
  const itimerval limit{{}, {seconds, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}

void tell() {
  if (prepared.owner != getpid()) return;  // told already, or of a process that was made in a world
  prepared.owner = 0;
  limit_time(0);
  for (std::size_t done = 0; done < prepared.line.size();) {
    const ssize_t n = write(STDERR_FILENO, prepared.line.data() + done, prepared.line.size() - done);
    if (n < 0 && errno != EINTR) break;
    done += n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  if (!prepared.shrinks) return;
  const pid_t smaller = _Fork();
  if (smaller == 0) {
    execve("/proc/self/exe", prepared.argv.data(), prepared.envp.data());
    _exit(1);
  }
  while (smaller > 0 && waitpid(smaller, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void on_death(int signal, siginfo_t* info, void*) {
  tell();
  sigaction(signal, &first[static_cast<std::size_t>(std::ranges::find(kDeadly, signal) - kDeadly.begin())],
            nullptr);
  const bool fault = signal != SIGABRT && signal != SIGPROF && info->si_code > 0;
  if (!fault) raise(signal);  // else the instruction is run again
}

std::string program() {
  constexpr std::string_view kUsual = "/build/release/tests/sim/sim_test";
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  return path.ends_with(kUsual) ? "./dev sim" : path;
}

std::string filter(const Again& world) {
  std::string test_case = world.test_case;
  std::ranges::replace(test_case, ',', '?');  // a comma would end it
  return "--test-case=" + test_case;
}

int overflow(int depth) {
  volatile char room[1024];
  room[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : overflow(depth + 1) + room[0];
}

}  // namespace

// UndefinedBehaviorSanitizer beside AddressSanitizer calls nothing but this, as it begins its report.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" void __ubsan_on_report();
extern "C" void __ubsan_on_report() { tell(); }

std::string command(const Again& world) {
  return "TILEWISE_SIM_WITH='" + world.changes + "' " + world.variable + "=" + std::to_string(world.seed) +
         " " + program() + " '" + filter(world) + "'";
}

LastWords::LastWords(const Again& world, bool shrinks, time_t longest_s) {
  prepared.shrinks = shrinks;
  prepared.line = "replay with " + command(world) + "\n";
  prepared.words = {"sim_test", filter(world)};
  prepared.variables = {"TILEWISE_SIM_SHRINK=1", "TILEWISE_SIM_WITH=" + world.changes,
                        world.variable + "=" + std::to_string(world.seed)};  // before those of the same name
  for (char** v = environ; *v != nullptr; ++v) prepared.variables.emplace_back(*v);
  prepared.argv.clear(), prepared.envp.clear();
  for (std::string& word : prepared.words) prepared.argv.push_back(word.data());
  for (std::string& variable : prepared.variables) prepared.envp.push_back(variable.data());
  prepared.argv.push_back(nullptr), prepared.envp.push_back(nullptr);

  std::cout.flush();  // what was said of earlier worlds outlives this one
  const stack_t ours{stack.data(), 0, stack.size()};
  sigaltstack(&ours, &prepared.stack_before);
  struct sigaction action {};
  action.sa_sigaction = on_death;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | static_cast<int>(SA_RESETHAND);
  for (std::size_t i = 0; i < kDeadly.size(); ++i) sigaction(kDeadly[i], &action, &prepared.before[i]);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(tell);
  prepared.owner = getpid();
  limit_time(longest_s);
}

LastWords::~LastWords() {
  limit_time(0);
  prepared.owner = 0;
  for (std::size_t i = 0; i < kDeadly.size(); ++i) sigaction(kDeadly[i], &prepared.before[i], nullptr);
  sigaltstack(&prepared.stack_before, nullptr);
}

void forget_last_words() {
  prepared.owner = 0;
  for (const int signal : kDeadly) std::signal(signal, SIG_DFL);
}

void die_of(int signal_or_death) {
  if (signal_or_death == kStackOverflow) {
    std::cout << overflow(0);
  } else if (signal_or_death == kOutOfBounds) {
    const std::vector<char> bytes(8);
    const volatile std::size_t after = bytes.size();
    std::cout << bytes.data()[after];
  } else if (signal_or_death == kUndefined) {
    const volatile int most = INT_MAX;
    std::cout << most + signal_or_death;
  } else {
    raise(signal_or_death);
  }
}

}  // namespace tilewise::sim
