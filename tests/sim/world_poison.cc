// A task that takes down every worker that runs it, and supervisors that tell what their workers were executing.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::poisoned(std::uint64_t seed) {
  Knobs k = storm(seed);
  Prng p(seed * 0xBAD + 11);
  k.memory_bytes = 4 << 20;
  k.recovery_wait_ns = 30 * kSecond;
  k.kills = p.chance(0.7) ? 0 : 1;
  k.respawn = 1;
  k.poison = p.chance(0.5) ? 0.2 : 0.01;
  k.mute = 0.1;
  if (p.chance(0.3)) {
    k.scheduler_crashes = static_cast<int>(p.between(1, 3));
    k.checkpoint = p.uniform() * 0.2;
  }
  return k;
}

bool World::poisonous(const worker::Launch& launch) {
  if (launch.op->op.outputs.empty()) return false;
  const std::pair made(oracle_.made(launch.run.id, 0), launch.point);
  if (!poison_ && prng_.chance(knobs_.poison)) poison_ = made;
  return poison_ == made;
}

void World::take_down(int index) {
  if (!workers_[static_cast<std::size_t>(index)]->alive) return;
  ++outcome_.covered["taken down by a task"];
  if (++poisoned_ > 3 + untold_) return violate("a task took down a fourth worker");
  kill(index);
  at(prng_.between(1, 40) * knobs_.max_delay_ns, [this] { start_worker(static_cast<int>(workers_.size())); });
}

// What a worker died with runs with nothing beside it.
void World::check_alone(const Worker& worker) {
  int running = 0, blamed = 0;
  for (const auto& device : worker.streams) {
    for (const Worker::Stream& stream : device) {
      if (!stream.busy) continue;
      const worker::Launch& launch = stream.queue.front();
      ++running;
      blamed +=
          !launch.op->op.outputs.empty() && blamed_.contains({oracle_.made(launch.run.id, 0), launch.point});
    }
  }
  if (blamed > 0) ++outcome_.covered["run alone"];
  if (blamed > 0 && running > 1) violate("a step that a worker had died with does not run alone");
}

// Or not: a supervisor may have died too.
void World::tell_last_words(int index) {
  const bool mute = prng_.chance(knobs_.mute);
  const Worker& worker = *workers_[static_cast<std::size_t>(index)];
  msg::LastWords words{worker.welcome.you, static_cast<std::uint64_t>(index) + 1, "killed", {}};
  for (std::size_t d = 0; d < worker.streams.size(); ++d) {
    for (const Worker::Stream& stream : worker.streams[d]) {
      if (!stream.busy) continue;
      const worker::Launch& launch = stream.queue.front();
      words.running.push_back({launch.run.id, worker.welcome.devices[d], launch.point});
      if (launch.op->op.outputs.empty()) continue;
      const std::pair made(oracle_.made(launch.run.id, 0), launch.point);
      if (!mute) blamed_.insert(made);
      untold_ += mute && poison_ == made;
    }
  }
  if (mute) return void(++outcome_.covered["supervisors that said nothing"]);
  const scheduler::Conn supervisor{kSupervisors + static_cast<std::uint32_t>(index)};
  msg::Join join;
  join.role = msg::Role::kTool;
  join.name = "supervisor";
  join.software_version = "sim";
  to_scheduler(supervisor, std::move(join), true);
  to_scheduler(supervisor, words, true);
  if (prng_.chance(knobs_.duplicate)) to_scheduler(supervisor, std::move(words), true);
  TimeNs& until = ordered_until_[supervisor.value];
  at(until + 1 - now_, [this, supervisor] {
    step_scheduler({scheduler::Closed{supervisor, {Errc::kUnavailable, "it has said all"}}});
  });
}

}  // namespace tilewise::sim
