// What worlds count: each kind of fault and each rare branch, in the words in which it is printed and demanded. A word that is not in this
// list does not compile where it is written out, and stops the world where it is put together (`Counted::named`); one that no case
// demands fails sim_test.
#pragma once
#include <tilewise/base/check.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilewise::sim {

inline constexpr auto kCounted = std::to_array<std::string_view>({
    "anchors at rest",
    "announcements",
    "answers that were cut",
    "answers to earlier losses",
    "arrays gathered",
    "arrays listed by two operands",
    "arrays on several workers",
    "arrays on several workers lost",
    "before a client knew the worker",
    "blocks asked for elsewhere",
    "blocks back from neighbours",
    "blocks brought back",
    "blocks from pinned memory",
    "blocks from pinned memory to disk",
    "blocks held up",
    "blocks made again that must be",
    "blocks made again that their living makers had let go",
    "blocks moved",
    "blocks on loan",
    "blocks passed on",
    "blocks read from checkpoints",
    "blocks read from the folder of a life before",
    "blocks spilled",
    "blocks that failed on their way",
    "blocks that reached neighbours",
    "blocks to neighbours",
    "blocks to pinned memory",
    "broken links between workers",
    "broken links of clients",
    "broken links of workers",
    "calls on listed blocks",
    "cancelled by an operator",
    "cancels",
    "checkpoint files cut",
    "checkpoint files removed",
    "checkpoint files written over",
    "checkpoints",
    "checkpoints made durable",
    "checkpoints that could not be made",
    "checkpoints that did not become durable",
    "checkpoints that were not there",
    "clean blocks dropped",
    "clients that came after one that vanished",
    "clients that did not heal",
    "clients that fell silent",
    "clients that found themselves fenced",
    "clients that hear late of a loss",
    "clients that left",
    "clients that lost their session",
    "clients whose link was closed",
    "clogged ways",
    "closed by the scheduler",
    "copies from a peer's GPU",
    "copies made again",
    "crossings checked",
    "cut off workers that crawl",
    "declared lost after a lease",
    "declared lost for silence",
    "departures compared with the minimum",
    "disk full",
    "donations",
    "drained workers",
    "drains",
    "drains taken back",
    "duplicate probes",
    "duplicates between peers",
    "duplicates to the scheduler",
    "eager tasks",
    "errors that name the op",
    "errors that name the op, the point and what failed",
    "everything broke",
    "failed allocations",
    "failed as a task that takes workers down",
    "failed blocks delivered",
    "failed copies between neighbours",
    "failed copies from a peer's GPU",
    "failed looks at the folder",
    "failed reads from checkpoints",
    "failed reads from disk",
    "failed reads from pinned memory",
    "failed steps",
    "failed writes to checkpoints",
    "failed writes to disk",
    "failed writes to pinned memory",
    "failed: cancelled",
    "failed: device error",
    "failed: disk full",
    "failed: i/o error",
    "failed: not found",
    "failed: out of memory",
    "failed: task failed",
    "failed: worker lost",
    "files of nobody removed",
    "folders left clean",
    "folders taken away",
    "folders tended",
    "folders that nobody tends any more",
    "gathered arrays failed",
    "gatherings given up for the lost",
    "gatherings refused",
    "guests dismissed",
    "killed while it looked at the folder",
    "killed while it read a checkpoint",
    "killed while it wrote a checkpoint",
    "killed while its link was measured",
    "killed while measuring a link",
    "killed workers",
    "late workers",
    "left for another session",
    "left for want of a link",
    "links made again when all was healed",
    "links measured",
    "links to living workers that were declared lost",
    "lives with another folder",
    "living clients declared lost",
    "living workers declared lost",
    "loans given back",
    "loans that outlived their worker",
    "log entries out of order",
    "losses on losses",
    "lost between workers",
    "lost: nobody left",
    "lost: not read from its checkpoint",
    "lost: past cut",
    "lost: too many pieces",
    "lost: uploaded",
    "maps of several outputs",
    "measurements failed",
    "measurements given up",
    "meshes",
    "messages lost and sent again",
    "messages out of order between peers",
    "messages out of order to the scheduler",
    "messages that waited for a worker",
    "newcomers asked after a loss",
    "no memory for buffers for disk",
    "no memory for copies between neighbours",
    "no memory for copies to and from pinned memory",
    "no memory for places on disk",
    "no memory for scratch of steps",
    "no memory for slabs",
    "no memory for staging of transfers",
    "no room for a checkpoint",
    "offers before their reply",
    "offers of what is on loan",
    "one-way loss from a client to a worker",
    "one-way loss from a client to the scheduler",
    "one-way loss from a worker to a client",
    "one-way loss from a worker to a worker",
    "one-way loss from a worker to the scheduler",
    "one-way loss from the scheduler to a client",
    "one-way loss from the scheduler to a worker",
    "one-way partitions",
    "paused workers",
    "peer links made again",
    "pieces asked for",
    "pinned memory is full",
    "plans replayed",
    "points given away",
    "programs again",
    "programs by name",
    "put off for another session",
    "reads in a peer's GPU",
    "recoveries compared beside copies",
    "recoveries compared with the minimum",
    "recoveries given up",
    "recoveries given up for uploads that are lost",
    "recoveries that are the minimum to the block",
    "recoveries that make nothing again",
    "recoveries that were not compared",
    "recoveries without last words",
    "recoveries worked out again",
    "refused: a device that was asked for is gone",
    "refused: already exists",
    "refused: cancelled",
    "refused: disk full",
    "refused: i/o error",
    "refused: invalid argument",
    "refused: nobody had joined yet",
    "refused: not found",
    "refused: out of memory",
    "refused: task failed",
    "refused: timeout",
    "refused: unavailable",
    "refused: worker lost",
    "relays declined",
    "relays missing",
    "released by an operator",
    "repeated announcements",
    "replicas evicted",
    "replicas kept",
    "replicated",
    "requests done",
    "requests failed",
    "requests for memory that failed",
    "requests refused",
    "requests that had to end in time",
    "respawned workers",
    "results made again beside others of their task",
    "results of one op read from their checkpoints",
    "run alone",
    "scheduler crashes",
    "scheduler crashes while a link was measured",
    "sends that failed at their sender",
    "sends that vanished",
    "sent from disk",
    "sent from pinned memory",
    "silence while the scheduler did not listen",
    "slabs that could not be opened",
    "slow devices",
    "slow links",
    "stale messages",
    "steps that found a spoilt checkpoint",
    "stopped clients",
    "stopped schedulers",
    "stopped workers",
    "submits",
    "supervisors that said nothing",
    "surveys compared with the minimum",
    "surveys overtaken by losses",
    "taken down by a task",
    "tasks made again as their results lie apart",
    "tasks of several results made again",
    "tasks taken back",
    "tasks that list a block twice",
    "tasks that list nothing",
    "tasks that who left had not begun",
    "tasks whose wanted results one other device has",
    "the last worker killed",
    "transfers",
    "transfers begun anew",
    "transfers between hosts",
    "transfers cut off",
    "transfers inside a host",
    "transfers to clients begun anew",
    "two-way partitions",
    "uploads",
    "uploads asked for again that must be",
    "vanished clients",
    "wanted blocks of the lost that others have",
    "words of what is not sent",
    "workers cut off",
    "workers that did not heal",
    "workers that found themselves fenced",
    "workers that were told to start afresh",
    "wrong announcements",
    "wrong reads of who was declared lost",
});
static_assert(std::is_sorted(kCounted.begin(), kCounted.end()) &&
                  std::adjacent_find(kCounted.begin(), kCounted.end()) == kCounted.end(),
              "sorted, each once");

class Counted {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval Counted(const char* name) : place_(place_of(name)) {
    if (place_ == kCounted.size()) throw "not in kCounted";  // does not compile
  }
  // Of a family whose members are told apart by what a core says, such as "failed: " and the kind of an error. An error that may end a
  // request and has never done so is not listed: the first one is to be thought about, then listed and demanded.
  static Counted named(const std::string& name) {
    const std::size_t place = place_of(name);
    TW_CHECK(place < kCounted.size(), "not in kCounted (tests/sim/counted.h): " + name);
    return Counted(place);
  }
  static constexpr Counted at(std::size_t place) { return Counted(place); }
  constexpr std::size_t place() const { return place_; }
  constexpr std::string_view name() const { return kCounted[place_]; }

 private:
  constexpr explicit Counted(std::size_t place) : place_(place) {}
  static constexpr std::size_t place_of(std::string_view name) {
    const auto found = std::lower_bound(kCounted.begin(), kCounted.end(), name);
    return found != kCounted.end() && *found == name ? static_cast<std::size_t>(found - kCounted.begin())
                                                     : kCounted.size();
  }
  std::size_t place_;
};

// How often each happened.
class Counts {
 public:
  std::int64_t& operator[](Counted what) { return times_[what.place()]; }
  std::int64_t of(Counted what) const { return times_[what.place()]; }
  Counts& operator+=(const Counts& others) {
    for (std::size_t i = 0; i < times_.size(); ++i) times_[i] += others.times_[i];
    return *this;
  }

 private:
  std::array<std::int64_t, kCounted.size()> times_{};
};

}  // namespace tilewise::sim
