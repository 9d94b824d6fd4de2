// Steps that fail on devices of several streams, of which a worker hears some time later, stream by stream (Runtime::collect_completions):
// meanwhile others read what they left, and fail of that.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::failing(std::uint64_t seed) {
  Knobs k = from_seed(seed);
  Prng p(seed * 0xFA11 + 37);
  k.streams = static_cast<int>(p.between(2, 4));
  k.devices_each = static_cast<int>(p.between(1, 2));
  k.clients = static_cast<int>(p.between(1, 3));
  k.requests = static_cast<int>(p.between(2, 6));
  k.fail_step = p.chance(0.5) ? 0.01 : 0.05;
  k.unheard_ns = p.chance(0.1) ? 0 : p.between(1, 1000) * kMicrosecond;
  k.kill_worker = 0;
  k.untried_steps = 2;
  k.pairs = p.chance(0.3) ? 0.3 : 0;
  if (p.chance(0.2)) k.spill_bytes = 16 << 20, k.disk_ns = 100'000;
  return k;
}

// What a failed step has left, in an operand or where this one goes on with a result. Empty blocks lie nowhere.
bool World::reads_rubbish(const worker::Launch& launch) {
  if (knobs_.unheard_ns == 0) return false;
  const auto is_rubbish = [&](const worker::MemoryRef& at) {
    const Cell* cell = cell_at(at);
    return cell != nullptr && cell->rubbish;
  };
  const auto reads = oracle_.reads(launch.run.id, launch.point, launch.step);
  for (std::size_t i = 0; i < reads.size() && i < launch.inputs.size(); ++i)
    if (oracle_.bytes(reads[i].first, reads[i].second) > 0 && is_rubbish(launch.inputs[i])) return true;
  for (std::size_t i = 0; i < launch.outputs.size() && launch.step > 0; ++i)
    if (oracle_.bytes(oracle_.made(launch.run.id, i), launch.point) > 0 && is_rubbish(launch.outputs[i]))
      return true;
  return false;
}

void World::leave_rubbish(const worker::Launch& launch) {
  for (std::size_t i = 0; i < launch.outputs.size(); ++i) {
    if (oracle_.bytes(oracle_.made(launch.run.id, i), launch.point) == 0) continue;
    Cell* cell = cell_at(launch.outputs[i]);
    if (cell == nullptr) continue;
    cell->rubbish = true;
    cell->left_by = launch.stream;
    cell->left_at = launch.sequence;
    if (cell->complete) ++cell->value;
  }
}

// Nothing is begun on it once the worker knows that the step which left it is through.
void World::check_no_rubbish(int index, const worker::Launch& launch) {
  if (knobs_.unheard_ns == 0) return;
  const auto& told = workers_[static_cast<std::size_t>(index)]->unheard[launch.device].told;
  const auto reads = oracle_.reads(launch.run.id, launch.point, launch.step);
  for (std::size_t i = 0; i < reads.size() && i < launch.inputs.size(); ++i) {
    const Cell* cell = cell_at(launch.inputs[i]);
    if (cell == nullptr || !cell->rubbish || cell->array != reads[i].first || cell->block != reads[i].second)
      continue;
    const auto through = told.find(cell->left_by);
    if (through != told.end() && through->second >= cell->left_at)
      return violate("a step is begun on what a failed one has left");
  }
}

// The step is through; the core hears of it now, or with others of its device.
void World::say(int index, const worker::StreamCompleted& completed,
                std::optional<worker::StepFailed> failure) {
  if (knobs_.unheard_ns == 0) {
    std::vector<worker::Event> events;
    if (failure) events.push_back(std::move(*failure));
    events.push_back(completed);
    return step_worker(index, std::move(events));
  }
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  Worker::Unheard& unheard = worker.unheard[completed.device];
  if (failure) unheard.failures.push_back(std::move(*failure));
  const bool first = unheard.completions.empty();
  unheard.completions[completed.stream] = completed.sequence;
  if (first) at(prng_.between(0, knobs_.unheard_ns), [this, index, d = completed.device] { look(index, d); });
}

// Completions are looked at before failures, of which there may be more by then.
void World::look(int index, std::uint16_t device) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive) return;
  worker.unheard[device].seen = worker.unheard[device].completions;
  at(prng_.between(0, knobs_.unheard_ns / 2), [this, index, device] { listen(index, device); });
}

void World::listen(int index, std::uint16_t device) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive) return;
  if (stands_still(worker.welcome.you.value, [this, index, device] { listen(index, device); })) return;
  Worker::Unheard& unheard = worker.unheard[device];
  std::vector<worker::Event> events;
  const bool up = prng_.chance(0.5);  // in which order streams are asked is not promised
  std::ranges::stable_sort(unheard.failures, [&](const worker::StepFailed& a, const worker::StepFailed& b) {
    return up ? a.stream < b.stream : b.stream < a.stream;
  });
  for (worker::StepFailed& failure : unheard.failures) events.push_back(std::move(failure));
  unheard.failures.clear();
  for (const auto& [stream, sequence] : unheard.seen) {
    events.push_back(worker::StreamCompleted{device, stream, sequence});
    unheard.told[stream] = sequence;
    const auto it = unheard.completions.find(stream);
    if (it->second == sequence) unheard.completions.erase(it);
  }
  if (!up) std::reverse(events.end() - static_cast<std::ptrdiff_t>(unheard.seen.size()), events.end());
  outcome_.covered["steps heard of together"] += unheard.seen.size() > 1;
  if (!unheard.completions.empty())
    at(prng_.between(0, knobs_.unheard_ns), [this, index, device] { look(index, device); });
  step_worker(index, std::move(events));
}

}  // namespace tilewise::sim
