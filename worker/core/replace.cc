// Points of a running op that others are to make (docs/design/rebalance.md). The scheduler asks with a PeerLost in which nobody was
// lost: from then on the end of a share is *held*, and tasks there that have begun nothing are taken back, as if they had never
// been expanded. It stays this device's until a Recover says which of it layers make now; of that the device is as done as if it had
// read all inputs and made nothing.
#include "state.h"

#include <algorithm>
#include <set>

namespace tilewise::worker {

void Core::Impl::hold(const msg::PeerLost& lost) {
  for (const msg::Tail& tail : lost.holds) {
    const int local_d = local(tail.device);
    const auto found = op_by_id.find(tail.op.value);
    if (local_d < 0 || found == op_by_id.end()) continue;
    const auto d = static_cast<std::uint16_t>(local_d);
    OpState& op = ops[found->second];
    ShareState& share = op.shares[d];
    if (!op.runs() || op.done || op.cancelled != kNone || tail.from < 0 || tail.from >= share.owned) continue;
    take_back(found->second, d, tail.from);
    if (share.next >= share.owned) continue;
    share.held = std::max(tail.from, share.next);
    holds.emplace_back(tail.op, d);
    holds_until = lost.version;
  }
}

// It has memory, runs, has failed, or some of what it is to make is known already.
bool Core::Impl::has_begun(Slot t) const {
  const Task& task = tasks[t];
  if (task.admitted || task.next > 0 || task.in_flight > 0 || task.outcome != kNone || next_alone == t ||
      task.state == TaskState::kRunning)
    return true;
  for (std::size_t i = 0; i < ops[task.op].outputs.size(); ++i) {
    if (task.outputs[i] == kNone || copies[task.outputs[i]].state != CopyState::kExpected) return true;
  }
  return false;
}

// The last tasks of the op's share, down to ordinal `from`, as far as they have begun nothing. Records of what they make and read
// stay, with all claims: those count points, whether they are expanded or not.
void Core::Impl::take_back(Slot slot, std::uint16_t d, std::int64_t from) {
  OpState& op = ops[slot];
  ShareState& share = op.shares[d];
  if (op.live_tasks == 0 || share.next <= from) return;
  const Slot q = queue_of(devices[d], op.run.graph);
  if (q == kNone) return;
  Queue& queue = queues[q];
  std::map<std::int64_t, Slot> expanded;  // by ordinal
  for (const Slot t : queue.order)
    if (!tasks[t].finished && tasks[t].op == slot) expanded.emplace(tasks[t].ordinal, t);
  for (const Slot t : queue.eager)
    if (tasks[t].op == slot) expanded.emplace(tasks[t].ordinal, t);
  std::set<Slot> taken;
  while (share.next > from) {
    const auto last = expanded.find(share.next - 1);
    if (last == expanded.end() || has_begun(last->second)) break;
    taken.insert(last->second);
    --share.next;
  }
  if (taken.empty()) return;
  const auto is_taken = [&](Slot t) { return taken.contains(t); };
  queue.ready.erase_if(is_taken);
  std::erase_if(queue.blocked, is_taken);
  relist(q);
  for (const Slot t : taken) {
    Task& task = tasks[t];
    if (task.state == TaskState::kWaiting) {
      for (Slot* at = &copies[task.waits_for].waiters; *at != kNone; at = &tasks[*at].next_waiter) {
        if (*at != t) continue;
        *at = std::exchange(task.next_waiter, kNone);
        break;
      }
    }
    for (std::size_t i = 0; i < op.outputs.size(); ++i) copies[task.outputs[i]].producer_task = kNone;
    --op.live_tasks;
    --queue.live;
    queue.weight -= task.weight;
    if (task.eager) leave_eager(t);
  }
  erase_if(queue.order, is_taken);
  for (const Slot t : taken) tasks.drop(t);
  while (!queue.order.empty() && tasks[queue.order.front()].finished) {
    tasks.drop(queue.order.front());
    queue.order.pop_front();
  }
  queue.made_again = 0;
  look_at(q);
  counts.taken_back += static_cast<std::int64_t>(taken.size());
  share.rewound = op.rewound = true;
  look_at_all_of(slot);
  requeue(slot, d);
  devices[d].memory_freed = true;  // another task may be the lowest now
}

// Among the ops of its queue that are still to be expanded, where the plan has it.
void Core::Impl::requeue(Slot slot, std::uint16_t d) {
  OpState& op = ops[slot];
  if (std::exchange(op.shares[d].queued, true)) return;
  const Slot q = queue_of(devices[d], op.run.graph);
  if (q == kNone) return;
  BlockDeque<Slot>& in_order = queues[q].ops;
  in_order.insert(
      std::find_if(in_order.begin(), in_order.end(), [&](Slot other) { return ops[other].order > op.order; }),
      slot);
  look_at(q);
}

void Core::Impl::end_holds(std::uint64_t version) {
  if (version < holds_until) return;
  for (const auto& [id, d] : std::exchange(holds, {})) {
    const auto found = op_by_id.find(id.value);
    if (found == op_by_id.end()) continue;
    ops[found->second].shares[d].held = INT64_MAX;
    if (const Slot q = queue_of(devices[d], ops[found->second].run.graph); q != kNone) look_at(q);
  }
}

// Before the layers of the Recover are known here: so claims that arise with them count what is left only, and those that there
// are lose what was given away.
void Core::Impl::give_away(const std::vector<msg::Tail>& moved) {
  for (const msg::Tail& tail : moved) {
    const int local_d = local(tail.device);
    const auto found = op_by_id.find(tail.op.value);
    if (local_d < 0 || found == op_by_id.end()) continue;
    const auto d = static_cast<std::uint16_t>(local_d);
    OpState& op = ops[found->second];
    ShareState& share = op.shares[d];
    if (op.done || op.cancelled != kNone || tail.from < share.next || tail.from >= share.owned) {
      ++counts.stale;
      continue;
    }
    const std::int64_t end = std::exchange(share.owned, tail.from);
    share.shrunk = true;
    devices[d].memory_freed = true;  // what was given away wants none here (wanted_before)
    if (const Slot q = queue_of(devices[d], op.run.graph); q != kNone) look_at(q);
    counts.given_away += end - tail.from;
    discharge_moved(found->second, d, tail.from, end);
    const ir::Shape grid = op.entry->geometry->counts();
    for (std::int64_t ordinal = tail.from; ordinal < end; ++ordinal) {
      const std::int64_t point = ir::ravel(op.entry->placement.nth(tail.device, ordinal), grid);
      for (const Slot array : op.outputs) {
        if (const Slot c = find_copy(array, point, d); c != kNone) disown(c);
      }
    }
    if (share.owned > 0) mark_dirty(found->second, d);  // it may be complete now
    report_now = true;
  }
}

// What the points would have read. Where there is no record, and nothing is left here that reads the block, its owner is told.
void Core::Impl::discharge_moved(Slot slot, std::uint16_t d, std::int64_t from, std::int64_t to) {
  const OpState& op = ops[slot];
  const DeviceId self = devices[d].spec.id;
  std::set<std::pair<Slot, std::int64_t>> recorded, missing;
  std::vector<ir::Read> read_there;
  for (std::int64_t ordinal = from; ordinal < to; ++ordinal) {
    const ir::Index point = op.entry->placement.nth(self, ordinal);
    for (std::int64_t step = 0; step < op.entry->geometry->steps(point); ++step) {
      op.entry->geometry->reads(point, step, read_there);
      for (const ir::Read& read : read_there) {
        const Slot array = op.operands[read.operand];
        const std::pair block(array, read.block);
        if (const Slot c = find_copy(array, read.block, d); c != kNone) {
          recorded.insert(block);
          discharge_read(c, slot);
        } else if (!recorded.contains(block)) {
          missing.insert(block);
        }
      }
    }
  }
  for (const auto& [array, block] : missing) {
    const DeviceId owner = owner_of(array, block);
    if (!owner || owner == self || !remote.contains(owner.value) || remote[owner.value].lost) continue;
    const auto& users = arrays[array].users;
    const bool reads_on = std::any_of(users.begin(), users.end(), [&](const User& user) {
      return user.op == slot && reads_ahead(user, block, d);
    });
    const msg::BlockRef ref{arrays[array].id, block};
    if (reads_on || owes(d, ref, op.run.id, owner)) continue;
    msg::Done done{ref, op.run.id, owner, self, {}};
    if (const Slot c = find_copy(array, block, d); c != kNone) done.also = done_of(copies[c], op.run.id).also;
    batch_to(owner).dones.push_back(done);
  }
}

// A block that was to be made here. Other devices turn to whoever makes it now by themselves; what is read here comes from there.
void Core::Impl::disown(Slot slot) {
  const DeviceId self = devices[copies[slot].device].spec.id;
  if (copies[slot].kind != CopyKind::kProduced || copies[slot].state != CopyState::kExpected) return;
  std::vector<std::pair<Slot, DeviceId>> others;
  for (Slot u = copies[slot].uses; u != kNone; u = uses[u].next)
    if (uses[u].device != self) others.emplace_back(uses[u].op, uses[u].device);
  for (const auto& [op, device] : others) drop_use(slot, op, device);
  end_tree(copies[slot]);
  copies[slot].kind = CopyKind::kRemote;  // settle_block() names its source
  maybe_release(slot);
}

// Points of the op inside the box that this device still has, or had.
std::int64_t Core::Impl::points_left(const OpState& op, std::uint16_t d, const ir::Box& box) const {
  const ir::Placement& placement = op.entry->placement;
  const DeviceId self = devices[d].spec.id;
  const std::int64_t owned = op.shares[d].owned, all = placement.owned_count(self);
  if (box.volume() == 0) return 0;
  std::int64_t points = 0;
  if (box.volume() <= all - owned) {
    ir::Index at(box.lo.begin(), box.lo.end());
    while (true) {
      points += placement.owner(at) == self && placement.ordinal(self, at) < owned;
      int k = box.rank() - 1;
      for (; k >= 0 && ++at[k] == box.hi[k]; --k) at[k] = box.lo[k];
      if (k < 0) return points;
    }
  }
  points = placement.owned_count(self, box);
  for (std::int64_t ordinal = owned; ordinal < all; ++ordinal) {
    const ir::Index at = placement.nth(self, ordinal);
    bool inside = true;
    for (int k = 0; k < box.rank(); ++k) inside = inside && at[k] >= box.lo[k] && at[k] < box.hi[k];
    points -= inside;
  }
  return points;
}

}  // namespace tilewise::worker
