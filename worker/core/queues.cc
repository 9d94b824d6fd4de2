// A device's queues, one for each graph, and which of them have something to do. An event costs what has changed: queues that wait for
// others' results are in no list but that of all, which nothing walks at every event.
//
//   to_expand   something has changed that may let another task of it be expanded, or end it
//   ready       (of its session, FairShare) it has tasks that could run
//   blocked     it has tasks that wait for memory
//
// A queue is looked at again when an op has come, gone, or become usable; a task has ended or been taken back; a share is held no more.
#include "state.h"

namespace tilewise::worker {

// One for each graph. What is made again may come at a higher priority than its graph had: then all of the graph has that.
Slot Core::Impl::queue_for(std::uint16_t d, const Standing& plan) {
  DeviceState& device = devices[d];
  const auto [known, fresh] = device.queue_by_graph.try_emplace(plan.graph.value, kNone);
  if (fresh) known->second = queues.add();
  const Slot q = known->second;
  Queue& queue = queues[q];
  if (fresh) {
    store(Tier::kDisk).refuses = false;  // there may be room by now
    queue.device = d;
    queue.session = plan.session;
    join_share(device, plan.session, plan.weight);
    device.shares.add_queue(plan.session, plan.weight);
  } else if (queue.place.priority >= plan.priority) {
    return q;
  }
  QueueList& ready = share_of(device, queue.session).ready;
  if (!fresh) device.queues.remove(queue.place);
  if (queue.to_expand) device.to_expand.remove(queue.place);
  if (queue.has_ready) ready.remove(queue.place);
  if (queue.has_blocked) device.blocked.remove(queue.place);
  queue.place = {plan.graph, plan.priority};
  device.queues.add(queue.place, q);
  if (queue.to_expand) device.to_expand.add(queue.place, q);
  if (queue.has_ready) ready.add(queue.place, q);
  if (queue.has_blocked) device.blocked.add(queue.place, q);
  return q;
}

Slot Core::Impl::queue_of(const DeviceState& device, GraphId graph) const {
  const auto found = device.queue_by_graph.find(graph.value);
  return found == device.queue_by_graph.end() ? kNone : found->second;
}

// Behind all, where the graph has none.
std::int64_t Core::Impl::queue_position(const DeviceState& device, GraphId graph) const {
  const Slot q = queue_of(device, graph);
  return static_cast<std::int64_t>(q == kNone ? device.queues.size()
                                              : device.queues.position(queues[q].place));
}

// After its ready or its blocked tasks have changed.
void Core::Impl::relist(Slot q) {
  Queue& queue = queues[q];
  DeviceState& device = devices[queue.device];
  if (queue.has_ready == queue.ready.empty()) {
    QueueList& list = share_of(device, queue.session).ready;
    queue.has_ready = !queue.has_ready;
    queue.has_ready ? list.add(queue.place, q) : list.remove(queue.place);
  }
  if (queue.has_blocked == queue.blocked.empty()) {
    queue.has_blocked = !queue.has_blocked;
    queue.has_blocked ? device.blocked.add(queue.place, q) : device.blocked.remove(queue.place);
  }
}

// Another task of it may be expanded now, or none is left.
void Core::Impl::look_at(Slot q) {
  Queue& queue = queues[q];
  if (!std::exchange(queue.to_expand, true)) devices[queue.device].to_expand.add(queue.place, q);
}

// Fewer tasks of an op are live that has a window of its own, which is one for all devices (has_room).
void Core::Impl::look_at_all_of(Slot slot) {
  const OpState& op = ops[slot];
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    const Slot q = op.shares[d].queued ? queue_of(devices[d], op.run.graph) : kNone;
    if (q != kNone) look_at(q);
  }
}

void Core::Impl::may_have_ended(Slot q) {
  if (!std::exchange(queues[q].ending, true)) ended_queues.push_back(q);
}

void Core::Impl::drop_ended_queues() {
  if (ended_queues.empty()) return;
  for (const Slot q : std::exchange(ended_queues, {})) {
    ++queues_looked_at;
    Queue& queue = queues[q];
    queue.ending = false;
    if (!queue.ops.empty() || queue.live != 0) continue;
    DeviceState& device = devices[queue.device];
    if (queue.to_expand) device.to_expand.remove(queue.place);
    device.queues.remove(queue.place);
    device.queue_by_graph.erase(queue.place.graph.value);
    device.shares.remove_queue(queue.session);
    leave_share(device, queue.session);
    queues.drop(q);
    // Its tasks want no memory any more, though nothing came free.
    device.memory_freed |= !device.blocked.empty() || !device.ungranted.empty();
  }
  for (DeviceState& device : devices) {
    // The reserve is for the largest step of what is under way, not of what once was.
    if (!device.queues.empty()) continue;
    device.reserve_bytes = 0;
    device.reserve_want.clear();
    device.memory_freed |= !device.ungranted.empty();  // copies to be kept
    drop_reserve(device);
    if (device.clearing) device.clearing->in_vain = true;
    device.short_now.clear(), device.short_before.clear();
  }
}

void Core::Impl::retry_blocked(std::uint16_t d) {
  QueueList all;
  std::swap(all, devices[d].blocked);
  for (const QueueEntry& entry : all) {
    ++queues_looked_at;
    Queue& queue = queues[entry.queue];
    for (; !queue.blocked.empty(); queue.blocked.pop_back()) {
      const Slot t = queue.blocked.back();
      tasks[t].state = TaskState::kReady;
      queue.ready.push_first(t);
    }
    queue.has_blocked = false;
    relist(entry.queue);
  }
}

}  // namespace tilewise::worker
