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
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tilewise::worker {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstWait{100}, kLastWait{5'000};
constexpr milliseconds kSteady{60'000};  // who lived so long has not failed repeatedly
constexpr milliseconds kKilled{
    1'000};  // a process that is killed is gone sooner, unless a disk holds it in the kernel
// Until then somebody else has declared it lost; one that does come round ends by itself when it hears of that.
constexpr TimeNs kSilences = 3;
constexpr int kPassedOn[] = {SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2};

// Blocked to our end, so that none comes between two looks at them, or after the last: our exit code is the worker's. What was ignored
// when we were started stays so for the worker.
class Signals {
 public:
  Signals() {
    sigemptyset(&ours_);
    for (const int signal : kPassedOn) sigaddset(&ours_, signal);
    sigaddset(&ours_, SIGCHLD);
    sigaddset(&ours_, SIGHUP);
    sigprocmask(SIG_BLOCK, &ours_, &before_);
    std::signal(SIGCHLD, SIG_DFL);  // whoever ignores it has no children to wait for
  }
  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  // The next one, or none in time. A SIGHUP is nobody's.
  std::optional<int> wait(milliseconds time) const {
    const timespec until{time.count() / 1000, (time.count() % 1000) * 1'000'000};
    const int signal = sigtimedwait(&ours_, nullptr, &until);
    if (signal == SIGHUP) daemon::log_hangup();
    return signal < 0 || signal == SIGHUP ? std::nullopt : std::optional(signal);
  }

 private:
  sigset_t ours_{}, before_{};
};

struct End {
  int status = 0;           // as waitpid() has it
  std::set<int> passed_on;  // signals
  BlackBox::Overdue late;   // what we killed it for

  bool killed() const { return WIFSIGNALED(status); }
  int code() const { return killed() ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }
  bool asked_to_end() const { return passed_on.contains(SIGTERM) || passed_on.contains(SIGINT); }
  // It was asked to, and did.
  bool as_asked() const { return killed() ? passed_on.contains(WTERMSIG(status)) : asked_to_end(); }
};

pid_t start(std::vector<char*>& arguments, const Signals& signals) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(daemon::kExitFailure);
  signals.restore();
  execv("/proc/self/exe", arguments.data());
  _exit(daemon::fail("tilewise-worker",
                     error(Errc::kIo, "/proc/self/exe cannot be started: " + std::string(strerror(errno))),
                     daemon::kExitFailure));
}

std::string seconds(TimeNs ns) {
  std::string text = std::to_string(static_cast<double>(ns) * 1e-9);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

// By a signal or a debugger: somebody has decided that, and decides when it goes on.
bool is_stopped(pid_t child) {
  std::ifstream file("/proc/" + std::to_string(child) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');  // it may have any letters in it
  return name_ends != std::string::npos && name_ends + 2 < text.size() &&
         (text[name_ends + 2] == 'T' || text[name_ends + 2] == 't');
}

// Until it has ended. One whose step or loop does not end is killed; if not even that ends it, it counts as ended.
End watch(pid_t child, const Signals& signals, BlackBox& box, const BlackBox::Limits& limits) {
  End end;
  const TimeNs least = limits.step == 0 ? limits.loop : std::min(limits.step, limits.loop);
  const auto pause =
      std::clamp(milliseconds(least / kMillisecond / 10), milliseconds(10), milliseconds(1'000));
  std::optional<Clock::time_point> killed;
  bool stopped = false;
  Clock::time_point looked = Clock::now();
  while (waitpid(child, &end.status, WNOHANG) == 0) {
    const std::optional<int> signal = signals.wait(pause);
    if (signal && *signal != SIGCHLD) {
      end.passed_on.insert(*signal);
      kill(child, *signal);
    }
    if (killed) {
      if (Clock::now() - *killed < kKilled) continue;
      daemon::log_error("the worker does not end although it was killed: something holds it in the kernel",
                        {{"pid", static_cast<std::int64_t>(child)}});
      end.status = SIGKILL;
      break;
    }
    const Clock::time_point before = std::exchange(looked, Clock::now());
    const bool was_stopped = std::exchange(stopped, is_stopped(child));
    if (stopped && !was_stopped)
      daemon::log_warn("the worker is stopped, by a signal or a debugger: its time does not count",
                       {{"pid", static_cast<std::int64_t>(child)}});
    if (stopped || looked - before > 3 * pause + milliseconds(1'000)) box.begin_anew();
    end.late = box.overdue(monotonic_now(), limits);
    if (!end.late.any()) continue;
    kill(child, SIGKILL);
    killed = Clock::now();
  }
  return end;
}

std::string story_of(const End& end, const BlackBox::Limits& limits) {
  const BlackBox::Overdue& late = end.late;
  const std::string killed = "killed by its supervisor, because ";
  if (late.loop)
    return killed + "its main thread had not moved for " + seconds(limits.loop) +
           " (three times --silence-timeout)";
  if (late.any())
    return killed +
           (late.start           ? "it had not come to work after "
            : late.steps.empty() ? "its spill disk had not answered for "
                                 : "its step had not ended after ") +
           seconds(limits.step) + " (--step-timeout)";
  if (end.killed())
    return "killed by signal " + std::to_string(WTERMSIG(end.status)) + " (" +
           strsignal(WTERMSIG(end.status)) + ")";
  if (end.code() == daemon::kExitRefused) return "it was refused host memory or a thread";
  return "ended with exit code " + std::to_string(end.code());
}

// Processes that go on offering last words: a thread of ours, which forks, could not, and we watch over the next worker meanwhile.
class Messengers {
 public:
  explicit Messengers(const SupervisorOptions& options) : options_(options) {}
  // Whoever asks us to end does not wait for them.
  ~Messengers() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }
  Messengers(const Messengers&) = delete;
  Messengers& operator=(const Messengers&) = delete;

  void send(const msg::LastWords& words) {
    // Each is of a worker that had found a scheduler: more than a few have known several lives of it in a minute.
    if (any() && pids_.size() >= kMost)
      return daemon::log_warn("the scheduler is not told how its worker ended: too many wait to be told", {});
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0)
      return daemon::log_warn("the scheduler is not told how its worker ended: no process for it",
                              {{"why", strerror(errno)}});
    if (child > 0) return pids_.push_back(child);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(daemon::kExitFailure);
    const Status told = options_.offer(words);
    if (told)
      daemon::log_info("the scheduler is back and has been told how its worker ended",
                       {{"worker_id", words.worker.value}});
    else
      daemon::log_warn("cannot tell the scheduler how its worker ended",
                       {{"worker_id", words.worker.value}, {"why", daemon::to_string(told.error())}});
    daemon::flush_log();
    _exit(told ? daemon::kExitOk : daemon::kExitFailure);
  }
  // Some are still at it.
  bool any() {
    std::erase_if(pids_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
    return !pids_.empty();
  }

 private:
  static constexpr std::size_t kMost = 8;

  const SupervisorOptions& options_;
  std::vector<pid_t> pids_;
};

// "op 17 point 3 on device 2, ...": the scheduler, which knows their names, says more.
std::string list_of(const std::vector<msg::LastWords::Running>& steps) {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(steps.size(), kMost); ++i)
    out += (i == 0 ? "op " : ", op ") + std::to_string(steps[i].op.value) + " point " +
           std::to_string(steps[i].point) + " on device " + std::to_string(steps[i].device.value);
  if (steps.size() > kMost) out += " and " + std::to_string(steps.size() - kMost) + " more";
  return out.empty() ? "nothing" : out;
}

}  // namespace

int supervise(int argc, char** argv, const SupervisorOptions& options) {
  const auto box = BlackBox::create();
  if (!box) return daemon::fail("tilewise-worker", box.error(), daemon::kExitFailure);
  std::string black_box = "--black-box=" + std::to_string((*box)->fd());
  std::vector<char*> arguments(argv, argv + argc);
  arguments.push_back(black_box.data());
  arguments.push_back(nullptr);
  const Signals signals;
  const BlackBox::Limits limits{.step = options.step_timeout_ns, .loop = kSilences * options.silence_ns};
  milliseconds wait = kFirstWait;
  Messengers messengers(options);
  while (true) {
    const Clock::time_point began = Clock::now();
    const pid_t child = start(arguments, signals);
    if (child < 0) return daemon::fail("tilewise-worker", error(Errc::kIo, "cannot start a process"), 1);
    const End end = watch(child, signals, **box, limits);
    const int code = end.code();
    if (end.as_asked() || code == daemon::kExitOk || code == daemon::kExitUsage) return code;
    const std::string how = story_of(end, limits);
    msg::LastWords words = (*box)->words(how);
    // What ran beside a step that did not end has nothing to do with it, and nor has any step with a disk, or with the loop.
    if (end.late.any()) words.running = end.late.steps;
    if (options.respawn || end.killed())  // else it has said itself why it ended
      daemon::log_warn(options.respawn ? "the worker ended, starting it again" : "the worker ended",
                       {{"pid", static_cast<std::int64_t>(child)},
                        {"why", how},
                        {"executing", list_of(words.running)},
                        {"in_ms", options.respawn ? static_cast<std::int64_t>(wait.count()) : 0}});
    if (const Status told = words.worker ? options.tell(words) : Status(); !told) {
      const bool again = options.offer && (*box)->scheduler_returns() && !end.asked_to_end();
      daemon::log_warn(again ? "cannot tell the scheduler how its worker ended yet, going on to try"
                             : "cannot tell the scheduler how its worker ended",
                       {{"why", daemon::to_string(told.error())}});
      if (again) messengers.send(words);
    }
    // Somebody wants us to end, though it did not end for that: the system for one, when it has killed it for lack of memory.
    if (end.asked_to_end()) return code;
    if (!options.respawn) {
      while (messengers.any()) {
        const std::optional<int> signal = signals.wait(kLastWait);
        if (signal && *signal != SIGCHLD) break;
      }
      return code;
    }
    if (Status ok = (*box)->renew(); !ok)
      return daemon::fail("tilewise-worker", ok.error(), daemon::kExitFailure);
    if (Clock::now() - began >= kSteady) wait = kFirstWait;
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
