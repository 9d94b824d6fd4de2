// Tasks that could run: in which order, and as many as the streams take.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

// Whether somebody elsewhere reads what it makes. `level`: the highest of the ops that do, here or there.
bool Core::Impl::look_ahead(const Task& task, std::int64_t& level) const {
  bool elsewhere = false;
  for (std::size_t i = 0; i < ops[task.op].outputs.size(); ++i) {
    if (task.outputs[i] == kNone) continue;
    for (Slot u = copies[task.outputs[i]].uses; u != kNone; u = uses[u].next) {
      elsewhere |= uses[u].device != devices[task.device].spec.id;
      level = std::max(level, ops[uses[u].op].level_ns);
    }
  }
  return elsewhere;
}

bool Core::Impl::awaited_elsewhere(const Task& task) const {
  std::int64_t level = 0;
  return look_ahead(task, level);
}

// What its results take beyond what goes with its first step, as far as that is known now. Small ones do not count.
std::int64_t Core::Impl::growth_of(const Task& task) {
  const OpState& op = ops[task.op];
  if (task.admitted) return 0;
  if (grows_by(task.op) <= ir::kLargeBytes) return 0;
  first_inputs.clear();
  for (const BlockRead& read : reads_of(op, task, task.next)) {
    const Slot c = find_copy(op.operands[read.operand], read.block, task.device);
    if (c != kNone) first_inputs.push_back(c);
  }
  return op.entry->geometry->output_bytes_bound() - freed_by(task, first_inputs);
}

// A task that could run. `came_bytes`: of the largest block that it has waited for, or kNothingCame.
void Core::Impl::make_ready(Slot t, std::int64_t came_bytes) {
  const Task& task = tasks[t];
  const OpState& op = ops[task.op];
  ir::Runnable r{.task = t, .op = op.order.value};
  r.awaited = look_ahead(task, r.level);
  r.came = came_bytes != kNothingCame;
  r.reads_large = came_bytes >= ir::kLargeBytes;
  if (r.awaited || r.reads_large) r.grows_bytes = growth_of(task);
  queues[task.queue].ready.push(r);
  relist(task.queue);
}

// As for what peers offer (grant): while half of the arena is free, nobody has to hurry.
bool Core::Impl::short_of_memory(std::uint16_t d) const { return !roomy(devices[d], 0); }

// A step is not taken back from a stream, and others' come after it: of work that takes long there may be little.
bool Core::Impl::has_enough(const StreamState& stream) const {
  return static_cast<std::int32_t>(stream.flight.size()) >= options.queue_steps ||
         (stream.flight.size() >= 2 && stream.queued_ns >= options.queue_ns);
}

// What the steps that are through now have taken beside the model, less one. Of several that are told of together, the family that was
// expected to take longest is taken for as late as all of them.
double Core::Impl::note_time(DeviceState& device, const StreamState& stream, const StreamCompleted& event) {
  const auto through =
      std::ranges::subrange(stream.flight.begin(),
                            std::ranges::upper_bound(stream.flight, event.sequence, {}, &InFlight::sequence));
  double model = 0, expected = 0, longest_ns = 0;
  std::uint32_t longest = 0;
  for (const InFlight& step : through) {
    const auto ns = static_cast<double>(step.expected_ns());
    model += static_cast<double>(step.model_ns);
    expected += ns;
    if (ns > longest_ns) longest_ns = ns, longest = step.family;
  }
  if (event.took_ns == 0 || longest_ns == 0) {
    for (const InFlight& step : through) device.learn(step.family, device.slower_than_model(step.family));
    return 0;
  }
  double of_longest = 0;
  for (const InFlight& step : through)
    if (step.family == longest) of_longest += static_cast<double>(step.expected_ns());
  const auto took = static_cast<double>(event.took_ns);
  // What fills the bound by itself is as slow as need be known: a moment's standstill is forgotten soon.
  const double most = std::max(of_longest, static_cast<double>(options.queue_ns));
  const double late = std::clamp(took - (expected - of_longest), 0.0, most) / of_longest;
  for (const InFlight& step : through)
    device.learn(step.family,
                 step.family == longest ? late * step.slower_then : device.slower_than_model(step.family));
  return took / model - 1;
}

// The compute stream with the least predicted work that has room, or -1.
int Core::Impl::pick_stream(std::uint16_t d) const {
  const DeviceState& device = devices[d];
  int best = -1;
  for (std::size_t s = 0; s < device.streams.size(); ++s) {
    const StreamState& stream = device.streams[s];
    if (has_enough(stream)) continue;
    if (best < 0 || stream.queued_ns < device.streams[static_cast<std::size_t>(best)].queued_ns) {
      best = static_cast<int>(s);
    }
  }
  return best;
}

// A task whose step has to run alone: everything else has come to rest, now it may.
void Core::Impl::launch_alone() {
  if (flights > 0) return;
  alone_runs = false;
  if (next_alone == kNone) return;
  const Slot t = std::exchange(next_alone, kNone);
  const Slot q = tasks[t].queue;
  Queue& queue = queues[q];
  queue.ready.erase(t);
  switch (held_back(tasks[t]) ? Launched::kBlocked : launch_steps(t)) {
    case Launched::kYes: queue.ready.push_first(t); break;
    case Launched::kBlocked:
      tasks[t].state = TaskState::kBlocked;
      queue.blocked.push_back(t);
      break;
    case Launched::kWaiting:
    case Launched::kFinished: break;
  }
  relist(q);
}

// This worker is to leave: it begins nothing, and then goes on with nothing.
bool Core::Impl::held_back(const Task& task) const {
  return task.outcome == kNone && (stage >= Stage::kStill || (stage == Stage::kStops && !task.admitted));
}

// Launches what is ready until the streams have enough.
void Core::Impl::advance(std::uint16_t d) {
  DeviceState& device = devices[d];
  boost::container::small_vector<SessionId, 4> stalled;  // out of memory: only the lowest task may still try
  const auto is_stalled = [&](SessionId session) {
    return std::find(stalled.begin(), stalled.end(), session) != stalled.end();
  };
  while (next_alone == kNone && !alone_runs) {
    const Slot q = next_queue(device);
    if (q == kNone) return;
    const bool is_short = short_of_memory(d);
    const Slot t = queues[q].ready.next(is_short);
    Task& task = tasks[t];
    if (task.outcome == kNone && !task.admitted && pick_stream(d) < 0) return;
    queues[q].ready.take(is_short);
    relist(q);
    const bool cannot =
        is_stalled(queues[q].session) && !task.admitted && !is_lowest(t) && task.outcome == kNone;
    if (held_back(task) || cannot) {
      task.state = TaskState::kBlocked;
      queues[q].blocked.push_back(t);
      relist(q);
      continue;
    }
    crowded = false;
    switch (launch_steps(t)) {
      case Launched::kYes:  // its stream is full: first in line next time
        queues[q].ready.push_first(t);
        relist(q);
        return;
      case Launched::kBlocked:
        task.state = TaskState::kBlocked;
        queues[q].blocked.push_back(t);
        relist(q);
        if (!crowded) stalled.push_back(queues[q].session);  // else others of its graph come first
        break;
      case Launched::kWaiting:
      case Launched::kFinished: break;
    }
  }
}

}  // namespace tilewise::worker
