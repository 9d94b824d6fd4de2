#include "shrink.h"

#include "last_words.h"

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <sstream>
#include <vector>

namespace tilewise::sim {
namespace {

struct Knob {
  const char* name;
  double least;
  double (*get)(const Knobs&);
  void (*set)(Knobs&, double);
};

template <auto Member> constexpr Knob knob(const char* name, double least) {
  return {name, least, [](const Knobs& k) { return static_cast<double>(k.*Member); },
          [](Knobs& k, double value) {
            k.*Member = static_cast<std::remove_reference_t<decltype(k.*Member)>>(value);
          }};
}

constexpr Knob kAll[] = {knob<&Knobs::clients>("clients", 1),
                         knob<&Knobs::requests>("requests", 1),
                         knob<&Knobs::kills>("kills", 0),
                         knob<&Knobs::drains>("drains", 0),
                         knob<&Knobs::breaks>("breaks", 0),
                         knob<&Knobs::vanish>("vanish", 0),
                         knob<&Knobs::poison>("poison", 0),
                         knob<&Knobs::mute>("mute", 0),
                         knob<&Knobs::copies>("copies", 0),
                         knob<&Knobs::recompute_ops>("recompute_ops", 0),
                         knob<&Knobs::scheduler_crashes>("scheduler_crashes", 0),
                         knob<&Knobs::kill_worker>("kill_worker", 0),
                         knob<&Knobs::fail_step>("fail_step", 0),
                         knob<&Knobs::unheard_ns>("unheard_ns", 0),
                         knob<&Knobs::cancel>("cancel", 0),
                         knob<&Knobs::undo>("undo", 0),
                         knob<&Knobs::respawn>("respawn", 0),
                         knob<&Knobs::checkpoint>("checkpoint", 0),
                         knob<&Knobs::clogs>("clogs", 0),
                         knob<&Knobs::relinks>("relinks", 0),
                         knob<&Knobs::loss>("loss", 0),
                         knob<&Knobs::slow_links>("slow_links", 0),
                         knob<&Knobs::slow_devices>("slow_devices", 0),
                         knob<&Knobs::slab_fails>("slab_fails", 0),
                         knob<&Knobs::partitions>("partitions", 0),
                         knob<&Knobs::dies>("dies", 0),
                         knob<&Knobs::zombies>("zombies", 0),
                         knob<&Knobs::pauses>("pauses", 0),
                         knob<&Knobs::one_ways>("one_ways", 0),
                         knob<&Knobs::closes>("closes", 0),
                         knob<&Knobs::acts>("acts", 0),
                         knob<&Knobs::hush_ns>("hush_ns", 0),
                         knob<&Knobs::held_ranges>("held_ranges", 1),
                         knob<&Knobs::alloc_fails_at>("alloc_fails_at", 0),
                         knob<&Knobs::alloc_lasts>("alloc_lasts", 0),
                         knob<&Knobs::moves>("moves", 0),
                         knob<&Knobs::late>("late", 0),
                         knob<&Knobs::announces>("announces", 0),
                         knob<&Knobs::wrong>("wrong", 0),
                         knob<&Knobs::lends>("lends", 0),
                         knob<&Knobs::gpu_every>("gpu_every", 0),
                         knob<&Knobs::classes>("classes", 1),
                         knob<&Knobs::pairs>("pairs", 0),
                         knob<&Knobs::lists>("lists", 0),
                         knob<&Knobs::file_fails>("file_fails", 0),
                         knob<&Knobs::file_losses>("file_losses", 0),
                         knob<&Knobs::new_folder>("new_folder", 0),
                         knob<&Knobs::own_folders>("own_folders", 0),
                         knob<&Knobs::empty>("empty", 0),
                         knob<&Knobs::uploads>("uploads", 0),
                         knob<&Knobs::disk_full>("disk_full", 0),
                         knob<&Knobs::disk_fails>("disk_fails", 0),
                         knob<&Knobs::duplicate>("duplicate", 0),
                         knob<&Knobs::link_probes>("link_probes", 0),
                         knob<&Knobs::in_flight>("in_flight", 0),
                         knob<&Knobs::in_flight_peer>("in_flight_peer", 0),
                         knob<&Knobs::send_fails>("send_fails", 0),
                         knob<&Knobs::turn_ns>("turn_ns", 0),
                         knob<&Knobs::hosts>("hosts", 1),
                         knob<&Knobs::workers>("workers", 1),
                         knob<&Knobs::devices_each>("devices_each", 1),
                         knob<&Knobs::streams>("streams", 1),
                         knob<&Knobs::window>("window", 2),
                         knob<&Knobs::lazy_ns>("lazy_ns", 0),
                         knob<&Knobs::max_delay_ns>("max_delay_ns", 1'000)};

constexpr char kViolation = '\1';  // before a violation, in what a world says
constexpr std::string_view kBug = "tilewise: bug at ";

// How a world ends that is run in a process of its own; empty: well.
std::string failure(const Knobs& knobs, const Shrinking& how) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    forget_last_words();  // its death is this failure
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    const itimerval limit{{}, {how.each_ns / kSecond, how.each_ns % kSecond / 1000}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    const std::string violation = how.run(knobs);
    const std::string said = violation.empty() ? "" : kViolation + violation;
    _exit(write(STDERR_FILENO, said.data(), said.size()) < 0 || !violation.empty() ? 1 : 0);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n = 0; child > 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return {};
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF) return "no end";
  if (const std::size_t bug = said.find(kBug); bug != std::string::npos)
    return said.substr(bug, said.find('\n', bug) - bug);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (const std::size_t at = said.rfind(kViolation); at != std::string::npos)
    return kind_of(said.substr(at + 1));
  return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
}

std::string text_of(double value) {
  std::ostringstream s;
  s.precision(15);
  s << value;
  return s.str();
}

}  // namespace

Knobs with(Knobs knobs, const std::string& changes, std::string& wrong) {
  std::istringstream in(changes);
  for (std::string change; in >> change;) {
    const std::size_t at = change.find('=');
    const auto found = std::find_if(std::begin(kAll), std::end(kAll),
                                    [&](const Knob& k) { return change.substr(0, at) == k.name; });
    if (at == std::string::npos || found == std::end(kAll))
      wrong = change;
    else
      found->set(knobs, std::strtod(change.c_str() + at + 1, nullptr));
  }
  return knobs;
}

std::string kind_of(const std::string& violation) {
  constexpr std::string_view kTime = " ns: ";
  const std::size_t time = violation.find(kTime);
  std::string kind;
  for (const char c : violation.substr(time == std::string::npos ? 0 : time + kTime.size())) {
    if (c == ':' || c == '(' || c == '\n') break;
    if (c < '0' || c > '9') kind += c;
  }
  return kind;
}

std::string shrink(const Knobs& knobs, const Shrinking& how) {
  Knobs smallest = knobs;
  const std::string kind = failure(knobs, how);
  int worlds = how.worlds;
  for (bool again = !kind.empty(); again && worlds > 0;) {
    again = false;
    for (const Knob& k : kAll) {
      const double now = k.get(smallest);
      for (const double value : {k.least, std::floor((k.least + now) / 2)}) {
        if (value >= now || value < k.least || worlds-- <= 0) continue;
        Knobs smaller = smallest;
        k.set(smaller, value);
        if (failure(smaller, how) != kind) continue;
        smallest = smaller;
        again = true;
        break;
      }
    }
  }
  std::string changes;
  for (const Knob& k : kAll) {
    if (k.get(smallest) != k.get(knobs))
      changes += (changes.empty() ? "" : " ") + std::string(k.name) + "=" + text_of(k.get(smallest));
  }
  return changes;
}

}  // namespace tilewise::sim
