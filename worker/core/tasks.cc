// Tasks: expansion along the cursors, launching step by step, completion and failure.
#include "state.h"

#include <algorithm>
#include <set>

namespace tilewise::worker {
namespace {
constexpr std::int64_t kMaxWeight =
    65'536;                   // block reads of expanded, unfinished tasks, per device and graph
constexpr int kMaxHops = 64;  // from a waiting task to the one it waits for, here

// Block reads of a point, if each of its steps reads as many as the first.
std::int64_t reads_of_point(const SharedEntry& entry, DeviceId self, std::int64_t ordinal) {
  const ir::Index point = entry.placement.nth(self, ordinal);
  std::vector<ir::Read> first;
  entry.geometry->reads(point, 0, first);
  return entry.geometry->steps(point) * static_cast<std::int64_t>(first.size());
}
}  // namespace

void Core::Impl::expand_all() {
  if (stage != Stage::kWorks) return;
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    QueueList& list = devices[d].to_expand;
    while (!list.empty()) {
      const Slot q = list.front().queue;
      list.remove(queues[q].place);
      queues[q].to_expand = false;
      ++queues_looked_at;
      while (expand_eager(d, q)) {
      }
      while (expand_one(d, q)) {
      }
    }
  }
}

// The front op is expanded to its end: its successor's eager tasks are the lowest now.
void Core::Impl::next_op(std::uint16_t d, Queue& queue) {
  ops[queue.ops.front()].shares[d].queued = false;
  queue.ops.pop_front();
  if (queue.ops.empty() || queue.eager.empty()) return;
  std::vector<Slot> mine;
  for (std::size_t i = 0; i < queue.eager.size();) {
    const Slot t = queue.eager[i];
    if (tasks[t].op != queue.ops.front()) {
      ++i;
      continue;
    }
    leave_eager(t);
    mine.push_back(t);
  }
  std::sort(mine.begin(), mine.end(), [&](Slot a, Slot b) { return tasks[a].ordinal < tasks[b].ordinal; });
  queue.order.insert(queue.order.end(), mine.begin(), mine.end());
}

void Core::Impl::leave_eager(Slot t) {
  std::vector<Slot>& eager = queues[tasks[t].queue].eager;
  const std::uint32_t at = tasks[t].eager_at;
  tasks[eager.back()].eager_at = at;
  eager[at] = eager.back();
  eager.pop_back();
  tasks[t].eager = false;
  queues[tasks[t].queue].eager_weight -= tasks[t].weight;
}

// A task of a recovery, before all that come later in the plan. Thousands of them may come at once.
void Core::Impl::put_in_order(Queue& queue, Slot t) {
  BlockDeque<Slot>& order = queue.order;
  std::size_t at = queue.made_again;
  const auto alike = [&](std::size_t i) { return i < order.size() && tasks[order[i]].op == tasks[t].op; };
  if (alike(at) && !tasks[order[at]].finished && !alike(at + 1)) {
    ++at;
  } else {
    const auto behind = std::find_if(order.begin(), order.end(), [&](Slot other) {
      return !tasks[other].finished && ops[tasks[other].op].order > ops[tasks[t].op].order;
    });
    at = static_cast<std::size_t>(behind - order.begin());
    if (behind == order.end()) ops[tasks[t].op].shares[tasks[t].device].rewound = false;  // as if never so
  }
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), t);
  queue.made_again = at;
}

// For the next task of its first op.
bool Core::Impl::has_room(std::uint16_t d, const Queue& queue) const {
  const OpState& first = ops[queue.ops.front()];
  if (first.version != 0 || first.shares[d].rewound) {
    // Tasks behind it may fill the window and wait for what this one makes again: it has a window of its own.
    if (first.live_tasks >= options.window) return false;
    const std::int64_t next = first.shares[d].next;
    return first.live_tasks == 0 ||
           first.live_tasks * reads_of_point(*first.entry, devices[d].spec.id, next) < kMaxWeight;
  }
  // Eager tasks do not count: they may all wait for memory that only the lowest task, which is not one of them, can get.
  const std::int64_t in_order = queue.live - static_cast<std::int64_t>(queue.eager.size());
  return in_order < options.window && (in_order == 0 || queue.weight - queue.eager_weight < kMaxWeight) &&
         queue.order.size() < static_cast<std::size_t>(options.window) * 16;
}

bool Core::Impl::expand_one(std::uint16_t d, Slot q) {
  Queue& queue = queues[q];
  while (!queue.ops.empty()) {
    const ShareState& share = ops[queue.ops.front()].shares[d];
    if (share.open()) break;
    if (share.next < share.owned) return false;  // held
    next_op(d, queue);
  }
  if (queue.ops.empty()) {
    if (queue.live == 0) may_have_ended(q);
    return false;
  }
  if (!has_room(d, queue)) return false;
  Slot missing = kNone;
  const Slot t = expand_task(d, q, queue.ops.front(), missing);
  if (ops[tasks[t].op].version == 0 && !ops[tasks[t].op].shares[d].rewound)
    queue.order.push_back(t);
  else
    put_in_order(queue, t);
  if (missing == kNone)
    make_ready(t, kNothingCame);
  else
    wait_for(t, missing);
  if (const Slot why = ops[tasks[t].op].doomed; why != kNone) fail_task(t, why);
  return true;
}

void Core::Impl::wait_for(Slot t, Slot c) {
  Task& task = tasks[t];
  Copy& copy = copies[c];
  task.state = TaskState::kWaiting;
  task.waits_for = c;
  task.next_waiter = copy.waiters;
  copy.waiters = t;
  if (copy.stands == Stands::kForMemory && grant(c, is_lowest(t), false))
    std::erase_if(devices[task.device].ungranted, [c](const Ungranted& entry) { return entry.copy == c; });
  if (copy.state == CopyState::kSpilled || copy.state == CopyState::kReturning) want_back(t);
}

// A copy on this device can be read now: tasks of later ops of the same graph may have all they need.
void Core::Impl::usable(Slot c) {
  const Copy& copy = copies[c];
  for (const User& user : arrays[copy.array].users) {
    OpState& op = ops[user.op];
    ShareState& share = op.shares[copy.device];
    if (!share.queued || share.usable || share.next >= share.owned || op.cancelled != kNone) continue;
    const Slot q = queue_of(devices[copy.device], op.run.graph);
    if (q == kNone) continue;
    share.usable = true;
    queues[q].usable.push_back(user.op);
    look_at(q);
  }
}

// What the op's next task reads. `bytes`: of the largest block of that.
bool Core::Impl::all_here(Slot slot, std::uint16_t d, std::int64_t& bytes) {
  const OpState& op = ops[slot];
  const auto here = [&](const auto& read) {
    const Slot c = find_copy(op.operands[read.operand], read.block, d);
    if (c == kNone || (copies[c].state != CopyState::kEnqueued && copies[c].state != CopyState::kSealed))
      return false;
    bytes = std::max(bytes, copies[c].bytes);
    return true;
  };
  const std::int64_t next = op.shares[d].next;
  if (const TaskTable* table = op.entry->table) {
    const auto listed = table->reads(d, next);
    return std::all_of(listed.begin(), listed.end(), here);
  }
  const ir::Geometry& geometry = *op.entry->geometry;
  const ir::Index point = op.entry->placement.nth(devices[d].spec.id, next);
  for (std::int64_t s = geometry.steps(point); s-- > 0;) {  // the last is made last, as a rule
    geometry.reads(point, s, reads);
    if (!std::all_of(reads.begin(), reads.end(), here)) return false;
  }
  return true;
}

bool Core::Impl::expand_eager(std::uint16_t d, Slot q) {
  Queue& queue = queues[q];
  while (!queue.usable.empty()) {
    const Slot slot = queue.usable.back();
    std::int64_t bytes = 0;
    ShareState& share = ops[slot].shares[d];
    // The front op's own tasks come in order anyway: but while its predecessors fill the window, they may pass it.
    const bool front = !queue.ops.empty() && queue.ops.front() == slot;
    const bool open = ops[slot].cancelled == kNone && share.open() && !queue.ops.empty() &&
                      (front ? queue.live < 3 * options.window &&
                                   queue.order.size() < static_cast<std::size_t>(options.window) * 16
                             : queue.eager.size() < static_cast<std::size_t>(options.window)) &&
                      queue.weight < kMaxWeight;
    if (!open || !all_here(slot, d, bytes)) {
      share.usable = false;
      queue.usable.pop_back();
      continue;
    }
    Slot missing = kNone;
    const Slot t = expand_task(d, q, slot, missing);
    make_ready(t, bytes);
    ++counts.eager;
    if (front) {
      queue.order.push_back(t);
      return true;
    }
    Task& task = tasks[t];
    task.eager = true;
    task.eager_at = static_cast<std::uint32_t>(queue.eager.size());
    queue.eager.push_back(t);
    queue.eager_weight += task.weight;
    return true;
  }
  return false;
}

// What a step of the task reads, until the next call.
std::span<const BlockRead> Core::Impl::reads_of(const OpState& op, const Task& task, std::int64_t step) {
  if (op.entry->table) return op.entry->table->reads(task.device, task.ordinal);
  const ir::Geometry& geometry = *op.entry->geometry;
  geometry.reads(geometry.point(task.point), step, reads);
  block_reads.clear();
  for (const ir::Read& read : reads) block_reads.push_back({read.operand, read.block});
  return block_reads;
}

// The next task of the op's share here, with its records. `missing`: an input of its first step that is not here yet.
Slot Core::Impl::expand_task(std::uint16_t d, Slot q, Slot op_slot, Slot& missing) {
  Queue& queue = queues[q];
  OpState& op = ops[op_slot];
  const SharedEntry& entry = *op.entry;
  const DeviceId self = devices[d].spec.id;
  const Slot t = tasks.add();
  Task& task = tasks[t];
  task.op = op_slot;
  task.queue = q;
  task.device = d;
  task.ordinal = op.shares[d].next;
  if (entry.table) {
    task.point = entry.table->point(d, task.ordinal);
  } else {
    const ir::Index point = entry.placement.nth(self, task.ordinal);
    task.point = ir::ravel(point, entry.geometry->counts());
    task.steps = entry.geometry->steps(point);
  }
  task.outputs.fill(kNone);
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    Slot c = find_copy(op.outputs[i], task.point, d);
    if (c == kNone) c = make_copy(op.outputs[i], task.point, d, self, !op.done);
    // Others of its results were gone at a loss, this one is on its way: it is made here a second time, and that is dropped.
    const bool on_its_way = copies[c].has_memory && !whole(copies[c]);
    if (op.version != 0 && (on_its_way || copies[c].producer_task != kNone)) continue;
    copies[c].producer_task = t;
    task.outputs[i] = c;
  }
  // Records for every input of every step, so that peers hear early; memory is granted later.
  for (std::int64_t s = 0; s < task.steps; ++s) {
    const auto read_here = reads_of(op, task, s);
    task.weight += static_cast<std::int64_t>(read_here.size());
    for (const BlockRead& read : read_here) {
      const Slot array = op.operands[read.operand];
      Slot c = find_copy(array, read.block, d);
      if (c == kNone) {
        c = make_copy(array, read.block, d, owner_of(array, read.block));
        if (copies[c].kind != CopyKind::kProduced && copies[c].state == CopyState::kExpected)
          subscribe(c, op_slot);
      }
      const CopyState state = copies[c].state;
      if (s == 0 && missing == kNone && state != CopyState::kEnqueued && state != CopyState::kSealed &&
          state != CopyState::kFailed)
        missing = c;
    }
  }
  ++op.shares[d].next;
  if (op.version != 0) {  // what is here or on its way stayed for this task
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      const Slot c = task.outputs[i] == kNone ? find_copy(op.outputs[i], task.point, d) : kNone;
      if (c != kNone) maybe_release(c);
    }
  }
  ++op.live_tasks;
  ++queue.live;
  queue.weight += task.weight;
  return t;
}

// What is made again after a loss may stand behind what waits for it: then its task is the lowest, whatever its place.
Slot Core::Impl::lowest_task(const DeviceState& device) const {
  for (const auto& [place, q] : device.queues) {
    ++queues_looked_at;
    for (Slot t : queues[q].order) {
      if (tasks[t].finished) continue;
      for (int hops = 0; hops < kMaxHops && tasks[t].state == TaskState::kWaiting; ++hops) {
        const Slot maker = copies[tasks[t].waits_for].producer_task;
        if (maker == kNone) break;
        t = maker;
      }
      return t;
    }
  }
  return kNone;
}

bool Core::Impl::is_lowest(Slot t) const { return lowest_task(devices[tasks[t].device]) == t; }

// Enqueues steps until an input is missing, the stream is full, or all are out.
Core::Impl::Launched Core::Impl::launch_steps(Slot t) {
  Task& task = tasks[t];
  if (task.outcome != kNone || made_before(t)) {
    run_failed(t);
    return Launched::kFinished;
  }
  OpState& op = ops[task.op];
  while (task.next < task.steps) {
    const std::span<const BlockRead> read_here = reads_of(op, task, task.next);
    inputs.clear();
    for (const BlockRead& read : read_here) {
      const Slot c = find_copy(op.operands[read.operand], read.block, task.device);
      TW_CHECK(c != kNone, "an input of a live task has no record");
      Copy& copy = copies[c];
      if (copy.state == CopyState::kFailed) {
        fail_task(t, copy.outcome);
        run_failed(t);
        return Launched::kFinished;
      }
      if (copy.state != CopyState::kEnqueued && copy.state != CopyState::kSealed) {
        wait_for(t, c);
        return Launched::kWaiting;
      }
      inputs.push_back(c);
    }
    if (op.keeps()) {
      if (!take_copy(t, inputs[0])) return Launched::kWaiting;
      run_failed(t);
      return Launched::kFinished;
    }
    if (adopt(t, inputs, read_here)) return Launched::kFinished;
    const int room = task.admitted ? task.stream : pick_stream(task.device);
    if (room < 0) return Launched::kYes;
    if (op.alone && flights > 0) {
      next_alone = t;
      return Launched::kYes;
    }
    const StreamState& stream = devices[task.device].streams[static_cast<std::size_t>(room)];
    if (task.admitted && has_enough(stream)) return Launched::kYes;
    // Of a kernel of users' that has never run nobody knows how long it takes.
    if (static_cast<std::int32_t>(stream.flight.size()) >= options.untried_steps &&
        op.entry->op.kind == ir::OpKind::kCall && !devices[task.device].has_run(op.entry->family))
      return Launched::kYes;
    Launch launch;
    if (!task.admitted) {
      task.stream = static_cast<std::uint8_t>(room);
      alloc::Fence wait_for;
      const ir::Donors donors = donors_of(t, inputs, read_here);
      Asker asker{queues[task.queue].session, Claim::kOrdinary, use_of(t), true, 0};
      if (!admits_task(t, inputs, donors, asker)) return Launched::kBlocked;
      if (!give_results_memory(t, inputs, donors, asker, wait_for)) return Launched::kBlocked;
      for (int i = 0; i < wait_for.size(); ++i) {
        const auto [s, sequence] = wait_for[i];
        if (s != task.stream && sequence > devices[task.device].streams[s].completed) {
          launch.waits.push_back({s, sequence});
        }
      }
      task.admitted = true;
    }
    enqueue_step(t, inputs, launch);
  }
  return Launched::kFinished;
}

void Core::Impl::enqueue_step(Slot t, const std::vector<Slot>& in, Launch& launch) {
  Task& task = tasks[t];
  OpState& op = ops[task.op];
  DeviceState& device = devices[task.device];
  StreamState& stream = device.streams[task.stream];
  launch.device = task.device;
  launch.stream = task.stream;
  launch.sequence = ++stream.issued;
  launch.op = op.entry;
  launch.run = {op.run.id, op.run.graph, &op.shares[task.device].busy_ns, op.version != 0};
  launch.point = task.point;
  launch.step = task.next;
  launch.steps = task.steps;
  launch.awaited = task.next + 1 == task.steps && awaited_elsewhere(task);

  InFlight flight;
  flight.sequence = launch.sequence;
  flight.number = ++device.launches;
  flight.task = t;
  flight.family = op.entry->family;
  flight.model_ns = op.entry->model_ns;
  flight.slower_then = device.slower_than_model(flight.family);
  for (Slot c : in) {
    Copy& copy = copies[c];
    launch.inputs.push_back(copy.at);
    copy.readers[task.stream] = launch.sequence;
    if (copy.state == CopyState::kEnqueued && copy.sequence > device.streams[copy.stream].completed) {
      flight.unproven.push_back({copy.stream, copy.sequence});
      if (copy.stream != task.stream) {
        auto it = std::find_if(launch.waits.begin(), launch.waits.end(),
                               [&](const auto& w) { return w.first == copy.stream; });
        if (it == launch.waits.end())
          launch.waits.push_back({copy.stream, copy.sequence});
        else
          it->second = std::max(it->second, copy.sequence);
      }
    }
  }
  if (launch.step > 0 && task.last_sequence > stream.completed)  // it goes on with what that one left
    flight.unproven.push_back({task.stream, task.last_sequence});
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (const Dropped* result = drops(t, i)) {
      launch.outputs.push_back({device.spec.id, result->extent.slab, result->extent.offset});
      continue;
    }
    Copy& output = copies[task.outputs[i]];
    launch.outputs.push_back(output.at);
    output.stream = task.stream;  // from now on its memory has a writer in flight
    output.sequence = launch.sequence;
  }
  stream.queued_ns += flight.expected_ns();
  charge(device, task.queue, static_cast<double>(op.entry->model_ns));
  stream.flight.push_back(std::move(flight));
  ++task.in_flight;
  ++flights;
  alone_runs |= op.alone;
  ++task.next;
  task.last_sequence = launch.sequence;
  out->launches.push_back(std::move(launch));
  ++counts.launches;

  for (Slot c : in)
    discharge_read(c, task.op);  // a record goes with its last read, so each is still there at its turn
  if (task.next < task.steps) return;
  task.state = TaskState::kRunning;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const Slot c = task.outputs[i];
    if (c == kNone || drops(t, i) != nullptr) continue;
    copies[c].state = CopyState::kEnqueued;
    wake(c);
    usable(c);
    maybe_release(c);
  }
}

// A failed or cancelled task, or one whose results are here (or that has none), launches nothing more, but what it would have read is discharged all the same (D4).
void Core::Impl::run_failed(Slot t) {
  Task& task = tasks[t];
  OpState& op = ops[task.op];
  for (; task.next < task.steps; ++task.next) {
    if (op.cancelled != kNone) continue;  // cancel_op has dropped the claims
    const auto read_here = reads_of(op, task, task.next);
    for (const BlockRead& read : std::vector<BlockRead>(read_here.begin(), read_here.end())) {
      const Slot c = find_copy(op.operands[read.operand], read.block, task.device);
      if (c != kNone) discharge_read(c, task.op);
    }
  }
  task.state = TaskState::kRunning;
  if (task.in_flight == 0) finish_task(t);
}

void Core::Impl::fail_task(Slot t, Slot why) {
  Task& task = tasks[t];
  if (task.outcome != kNone || task.finished) return;
  task.outcome = why;
  OpState& op = ops[task.op];
  ShareState& share = op.shares[task.device];
  if (share.failed == 0 && op.cancelled == kNone) {  // one message per op and device names the root cause
    out->to_scheduler.push_back(
        msg::TaskFailed{op.run.id, devices[task.device].spec.id, task.point, outcomes[why]});
  }
  ++share.failed;
  Queue& queue = queues[task.queue];
  if (task.state == TaskState::kBlocked) {
    std::erase(queue.blocked, t);
    queue.ready.push_last(t);
    task.state = TaskState::kReady;
  } else if (task.state == TaskState::kWaiting) {
    const ir::Geometry& geometry = *op.entry->geometry;
    std::vector<ir::Read> waited;
    geometry.reads(geometry.point(task.point), task.next, waited);
    for (const ir::Read& read : waited) {
      const Slot c = find_copy(op.operands[read.operand], read.block, task.device);
      if (c == kNone) continue;
      for (Slot* at = &copies[c].waiters; *at != kNone; at = &tasks[*at].next_waiter) {
        if (*at != t) continue;
        *at = std::exchange(task.next_waiter, kNone);
        break;
      }
    }
    queue.ready.push_last(t);
    task.state = TaskState::kReady;
  }
  relist(task.queue);
  for (Slot c : task.outputs) {
    if (c != kNone && !whole(copies[c])) fail_copy(c, why);  // what was here before is right
  }
}

void Core::Impl::finish_task(Slot t) {
  Task& task = tasks[t];
  OpState& op = ops[task.op];
  Queue& queue = queues[task.queue];
  task.finished = true;
  if (next_alone == t) next_alone = kNone;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const Slot c = task.outputs[i];
    if (c == kNone) continue;
    copies[c].producer_task = kNone;
    if (whole(copies[c]) || drops(t, i) != nullptr) {  // it was here before
      maybe_release(c);
    } else if (task.outcome != kNone) {
      fail_copy(c, task.outcome);
      maybe_release(c);
    } else {
      seal(c);
    }
  }
  free_dropped(t);
  devices[task.device].memory_freed = true;  // another task may be the lowest now, and use the reserve
  ShareState& share = op.shares[task.device];
  ++share.completed;
  ++counts.tasks_done;
  if (task.outcome != kNone) ++counts.tasks_failed;
  mark_dirty(task.op, task.device);
  --op.live_tasks;
  --queue.live;
  maybe_forget(task.op);
  if (op.live_tasks == 0 && op.cancelled != kNone) {  // what it reads may have waited for that only
    report_now |= !ending.empty();
    for (const Slot array : op.operands) {
      if (array == kNone) continue;
      for (const Slot made_by : arrays[array].makers) maybe_forget(made_by);
    }
  }
  if (queue.live ==
      0) {  // unless more is expanded, this was the last of the graph here, and somebody may wait
    may_have_ended(task.queue);
    report_now |= queue.ops.empty();
  }
  if (!queue.ops.empty()) look_at(task.queue);
  if (op.version != 0 || op.rewound) look_at_all_of(task.op);
  queue.weight -= task.weight;
  if (task.eager) {
    leave_eager(t);
    tasks.drop(t);
    return;
  }
  while (!queue.order.empty() && tasks[queue.order.front()].finished) {
    tasks.drop(queue.order.front());
    queue.order.pop_front();
  }
}

void Core::Impl::on_completed(const StreamCompleted& event) {
  DeviceState& device = devices[event.device];
  StreamState& stream = device.streams[event.stream];
  if (event.sequence <= stream.completed) return;
  TW_CHECK(event.sequence <= stream.issued, "a stream completed a step that was never launched");
  explain_failures(device, event);
  stream.completed = event.sequence;
  device.last_change = now;
  device.arena.completed(event.stream, event.sequence);
  device.memory_freed = true;
  maybe_end_clearing(event.device);
  const double correction = note_time(device, stream, event);
  while (!stream.flight.empty() && stream.flight.front().sequence <= event.sequence) {
    const InFlight flight = std::move(stream.flight.front());
    stream.flight.pop_front();
    --flights;
    stream.queued_ns -= flight.expected_ns();
    ++device.steps_run;
    Task& task = tasks[flight.task];
    charge(device, task.queue, correction * static_cast<double>(flight.model_ns));
    --task.in_flight;
    if (task.in_flight == 0 && task.next == task.steps && task.state == TaskState::kRunning)
      finish_task(flight.task);
  }
  flush_pending_dones(event.device);
}

// A step that reads what a failed one has left may well fail of that, and be heard of first. So what fails before all that it reads is
// complete waits, unexplained, until it is through itself, or somebody who has read it is: by then its causes have been told of, too
// (Runtime::collect_completions).
void Core::Impl::on_step_failed(const StepFailed& event) {
  DeviceState& device = devices[event.device];
  const InFlight* step = device.streams[event.stream].find(event.sequence);
  if (step == nullptr || device.unexplained.contains(step->number)) {
    ++counts.stale;
    return;
  }
  const bool proven = std::ranges::all_of(step->unproven, [&](const auto& proof) {
    return proof.second <= device.streams[proof.first].completed;
  });
  if (proven) return fail_step(event);
  device.unexplained.emplace(step->number, event);
}

// Before these steps are through, and what they made is taken for right: failures of theirs, and of what they have read. What was
// launched first is the cause.
void Core::Impl::explain_failures(DeviceState& device, const StreamCompleted& event) {
  if (device.unexplained.empty()) return;
  std::vector<const InFlight*> steps;
  for (const InFlight& step : device.streams[event.stream].flight)
    if (step.sequence <= event.sequence) steps.push_back(&step);
  std::set<std::uint64_t> seen, told;
  while (!steps.empty()) {
    const InFlight& step = *steps.back();
    steps.pop_back();
    if (!seen.insert(step.number).second) continue;
    if (device.unexplained.contains(step.number)) told.insert(step.number);
    for (const auto& [stream, sequence] : step.unproven)
      if (const InFlight* read = device.streams[stream].find(sequence)) steps.push_back(read);
  }
  for (const std::uint64_t number : told) fail_step(device.unexplained.extract(number).mapped());
}

// The failed step's task, and every task whose enqueued steps read its results before they were proven.
void Core::Impl::fail_step(const StepFailed& event) {
  const DeviceState& device = devices[event.device];
  const InFlight* step = device.streams[event.stream].find(event.sequence);
  TW_CHECK(step != nullptr, "a step fails before it is through");
  const Task& first = tasks[step->task];
  const OpEntry& entry = *ops[first.op].entry;
  const std::string name = ir::title_of(entry.op);
  // Kernels of linear algebra say for which function they were called.
  const bool told = event.why.message.starts_with(name + ": ");
  const Slot why =
      outcome({event.why.code, name + ", block " + std::to_string(first.point) + ": " +
                                   (told ? event.why.message.substr(name.size() + 2) : event.why.message)});
  std::vector<Slot> failed{step->task};
  for (std::size_t i = 0; i < failed.size(); ++i) {
    const std::pair<std::uint8_t, std::uint64_t> proof{tasks[failed[i]].stream,
                                                       tasks[failed[i]].last_sequence};
    const bool all_out = tasks[failed[i]].next == tasks[failed[i]].steps;
    fail_task(failed[i], why);
    if (!all_out) continue;
    for (const StreamState& other : device.streams) {
      for (const InFlight& flight : other.flight) {
        if (std::find(flight.unproven.begin(), flight.unproven.end(), proof) == flight.unproven.end())
          continue;
        if (std::find(failed.begin(), failed.end(), flight.task) == failed.end())
          failed.push_back(flight.task);
      }
    }
  }
}

}  // namespace tilewise::worker
