// The scheduler dies and comes back with what it had written down: a snapshot, and the steps since. The new one must be in
// the very state of the old one. What is sent to it meanwhile waits, as it does in the senders of real links.
#include "world_parts.h"

#include <tilewise/codec/codec.h>

namespace tilewise::sim {
namespace {

const scheduler::SnapshotCodec& snapshot_codec() {
  static const scheduler::SnapshotCodec codec{
      [](const msg::Message& message) -> Result<std::string> {
        codec::Buffer buffer;
        TW_TRY(codec::encode(message, buffer));
        return std::string(reinterpret_cast<const char*>(buffer.bytes().data()), buffer.bytes().size());
      },
      [](std::string_view bytes) { return codec::decode(std::as_bytes(std::span(bytes))); }};
  return codec;
}

}  // namespace

Knobs Knobs::restarts(std::uint64_t seed) {
  Knobs k = seed % 2 == 0 ? from_seed(seed) : storm(seed);
  Prng p(seed * 0xDEAD + 5);
  k.scheduler_crashes = static_cast<int>(p.between(1, 4));
  k.checkpoint = p.chance(0.5) ? 0 : p.uniform() * 0.2;
  if (k.kill_span_ns == 0) k.kill_span_ns = p.between(2, 60) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  return k;
}

void World::write_down(const std::vector<scheduler::Event>& events) {
  if (knobs_.journals()) disk_.steps.push_back({now_, events});
}

// What compaction does: the steps so far become a snapshot.
void World::maybe_checkpoint() {
  if (!knobs_.journals() || !prng_.chance(knobs_.checkpoint)) return;
  std::vector<scheduler::Action> actions;
  scheduler_->settle(now_, actions);
  Result<std::string> snapshot = scheduler_->snapshot(snapshot_codec());
  if (!snapshot) return violate("no snapshot: " + snapshot.error().message);
  disk_ = {std::move(*snapshot), {}};
  ++outcome_.covered["checkpoints"];
  perform_scheduler(actions);
}

// Branches that only the core sees. Those of one that died are counted before it is replaced.
void World::note_counts() {
  const scheduler::Counters now = scheduler_->counters(), before = std::exchange(counted_, now);
  // All of them by position, so that a new one does not compile until it is looked at here.
  const auto& [silent, overdue, deaf, losses_on_losses, surveys_overtaken, newcomers_asked, late_answers,
               lost_points, cut_answers, passes_given_up, given_up, postponed, words_missed, clients_missed,
               past_walked] = now;
  (void)lost_points, (void)past_walked;  // what recoveries and lineage cost, no branches
  Counts& covered = outcome_.covered;
  covered["declared lost for silence"] += silent - before.silent;
  covered["declared lost after a lease"] += overdue - before.overdue;
  covered["silence while the scheduler did not listen"] += deaf - before.deaf;
  covered["losses on losses"] += losses_on_losses - before.losses_on_losses;
  covered["surveys overtaken by losses"] += surveys_overtaken - before.surveys_overtaken;
  covered["newcomers asked after a loss"] += newcomers_asked - before.newcomers_asked;
  covered["answers to earlier losses"] += late_answers - before.late_answers;
  covered["answers that were cut"] += cut_answers - before.cut_answers;
  covered["recoveries worked out again"] += passes_given_up - before.passes_given_up;
  covered["messages that waited for a worker"] += postponed - before.postponed;
  covered["recoveries given up"] += given_up - before.given_up;
  covered["recoveries without last words"] += words_missed - before.words_missed;
  covered["recoveries without a client's answer"] += clients_missed - before.clients_missed;
}

// `down`: so long at least.
void World::crash_scheduler(TimeNs down) {
  if (down_) return;
  down_ = true;
  ++outcome_.covered["scheduler crashes"];
  if (links_are_measured()) ++outcome_.covered["scheduler crashes while a link was measured"];
  auto next = std::make_unique<scheduler::Core>(scheduler_options_);
  if (!disk_.snapshot.empty()) {
    if (Status ok = next->restore(disk_.snapshot, snapshot_codec()); !ok)
      return violate("the snapshot cannot be read: " + ok.error().message);
    next->check_invariants();
  }
  std::vector<scheduler::Action> said;  // and sent before
  for (auto& [time, events] : disk_.steps) {
    std::vector<scheduler::Event> again = events;
    next->step(again, time, said);
    said.clear();
  }
  if (next->digest() != scheduler_->digest()) return violate("the scheduler came back as another one");
  note_counts();
  scheduler_ = std::move(next);
  counted_ = scheduler_->counters();
  // Everything that the old one said arrives before the new one speaks: links keep their order.
  const int resent = knobs_.loss > 0 ? Knobs::kMostLosses : 0;
  at(down + (2 + 2 * resent + prng_.between(1, 20)) * knobs_.max_delay_ns, [this] { restart_scheduler(); });
}

void World::restart_scheduler() {
  down_ = false;
  std::vector<scheduler::Action> actions;
  ++scheduler_options_.term;
  choose_folder();
  scheduler_->begin_life(scheduler_options_, now_, actions);
  Result<std::string> snapshot = scheduler_->snapshot(snapshot_codec());
  if (!snapshot) return violate("no snapshot: " + snapshot.error().message);
  disk_ = {std::move(*snapshot), {}};
  scheduler_->check_invariants();
  perform_scheduler(actions);
  for (auto& events : std::exchange(postponed_, {})) step_scheduler(std::move(events));
  step_scheduler({});
}

}  // namespace tilewise::sim
