#include "supervisor.h"

#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>
#include <tilewise/worker/black_box.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

namespace tilewise::worker {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstWait{100}, kLastWait{5'000};
constexpr milliseconds kSteady{60'000};  // who lived so long has not failed repeatedly

struct Signals {
  sigset_t ours{}, before{};
  Signals() {
    sigemptyset(&ours);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&ours, signal);
    sigprocmask(SIG_BLOCK, &ours, &before);
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before, nullptr); }
  // The next one, or none in time.
  std::optional<int> wait(milliseconds time) const {
    const timespec until{time.count() / 1000, (time.count() % 1000) * 1'000'000};
    siginfo_t info{};
    const int signal = sigtimedwait(&ours, &info, &until);
    return signal < 0 ? std::nullopt : std::optional(signal);
  }
};

pid_t start(std::vector<char*>& arguments, const Signals& signals) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(daemon::kExitFailure);
  sigprocmask(SIG_SETMASK, &signals.before, nullptr);
  execv("/proc/self/exe", arguments.data());
  _exit(daemon::kExitFailure);
}

}  // namespace

int supervise(int argc, char** argv, const std::string& without,
              const std::function<void(const msg::LastWords&)>& tell) {
  const auto box = BlackBox::create();
  if (!box) return daemon::fail("tilewise-worker", box.error(), daemon::kExitFailure);
  std::string black_box = "--black-box=" + std::to_string((*box)->fd());
  std::vector<char*> arguments;
  std::copy_if(argv, argv + argc, std::back_inserter(arguments), [&](char* a) { return a != without; });
  arguments.push_back(black_box.data());
  arguments.push_back(nullptr);
  const Signals signals;
  milliseconds wait = kFirstWait;
  while (true) {
    const Clock::time_point began = Clock::now();
    const pid_t child = start(arguments, signals);
    if (child < 0) return daemon::fail("tilewise-worker", error(Errc::kIo, "cannot start a process"), 1);
    bool told = false;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      const std::optional<int> signal = signals.wait(kLastWait);
      if (signal && *signal != SIGCHLD) told = true, kill(child, *signal);
    }
    const bool killed = WIFSIGNALED(status);
    const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (told || code == daemon::kExitOk || code == daemon::kExitUsage) return code;
    const std::string how = killed ? "killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
                                         strsignal(WTERMSIG(status)) + ")"
                                   : "ended with exit code " + std::to_string(code);
    const msg::LastWords words = (*box)->words(how);
    if (words.worker) tell(words);
    if (Status ok = (*box)->renew(); !ok)
      return daemon::fail("tilewise-worker", ok.error(), daemon::kExitFailure);
    if (Clock::now() - began >= kSteady) wait = kFirstWait;
    daemon::log_warn("the worker ended, starting it again",
                     {{"pid", static_cast<std::int64_t>(child)},
                      {"why", how},
                      {"executing", words.running.size()},
                      {"in_ms", static_cast<std::int64_t>(wait.count())}});
    const Clock::time_point until = Clock::now() + wait;
    for (milliseconds left = wait; left.count() > 0;
         left = std::chrono::duration_cast<milliseconds>(until - Clock::now())) {
      const std::optional<int> signal = signals.wait(left);
      if (signal && *signal != SIGCHLD) return code;  // told to end while nobody was there
    }
    wait = std::min(2 * wait, kLastWait);
  }
}

}  // namespace tilewise::worker
