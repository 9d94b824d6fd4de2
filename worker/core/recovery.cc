// After a worker was lost: what it had not delivered waits (orphans), what the scheduler may need is pinned and told, and a
// Recover says what is made again and where. See docs/design/recovery.md.
#include "state.h"

#include <algorithm>
#include <set>

namespace tilewise::worker {
namespace {

// Appends sorted blocks as ranges. Counts what it adds.
void append_ranges(std::vector<std::int64_t>& blocks, std::vector<msg::Range>& out, std::size_t& told) {
  std::sort(blocks.begin(), blocks.end());
  for (const std::int64_t block : blocks) {
    if (!out.empty() && out.back().first + out.back().count == block) {
      ++out.back().count;
    } else {
      out.push_back({block, 1});
      ++told;
    }
  }
}

}  // namespace

// The op that makes the block: the last one that knows an owner of it. (kNone: a recovery named other blocks only of an
// array that this worker had forgotten.)
Slot Core::Impl::maker(Slot array, std::int64_t block) const {
  const ArrayState& state = arrays[array];
  if (state.makers.size() == 1 && ops[state.makers[0]].version == 0) return state.makers[0];
  const ir::Index point = ir::unravel(block, state.counts);
  for (std::size_t i = state.makers.size(); i-- > 0;) {
    if (ops[state.makers[i]].entry->placement.owner(point)) return state.makers[i];
  }
  return kNone;
}

DeviceId Core::Impl::owner_of(Slot array, std::int64_t block) const {
  const Slot made_by = maker(array, block);
  if (made_by == kNone) return {};
  return ops[made_by].entry->placement.owner(ir::unravel(block, arrays[array].counts));
}

// Whether a device without a record of the block will still read it for this op. It may have used the block, all of it,
// and let it go; its points are expanded in order and a copy lives until its last local read, so one look at the lowest
// reader decides.
bool Core::Impl::reads_ahead(User user, std::int64_t block, std::uint16_t d) {
  const OpState& op = ops[user.op];
  const DeviceId self = devices[d].spec.id;
  const ShareState& share = op.shares[d];
  if (op.entry->table && !share.shrunk) {
    for (const TaskTable::Use& use : op.entry->table->uses(user.operand, block))
      if (use.device == self) return use.ahead >= share.next;
    return false;
  }
  op.entry->geometry->users(user.operand, block, users_out);
  for (const auto& users : users_out) {
    const auto first = op.entry->placement.first_owned(self, users.points);
    const std::int64_t at = first ? op.entry->placement.ordinal(self, *first) : -1;
    if (at >= share.next && at < share.owned) return true;
  }
  return false;
}

void Core::Impl::pin(const msg::PeerLost& lost) {
  if (lost.version == 0) return;
  losing = lost.version;
  for (const OpId id : lost.ops) {
    const auto op = op_by_id.find(id.value);
    if (op == op_by_id.end()) continue;
    for (const Slot array : ops[op->second].outputs) arrays[array].pinned = lost.version;
  }
}

// A copy whose source has died waits for another one. Kernels that read what was lent run to their end (the mapping
// stays until then), but nothing new reads it. Memory for bytes on their way stays out of use until the transport has
// let go of it.
void Core::Impl::orphan(Slot slot) {
  Copy& copy = copies[slot];
  if (copy.state == CopyState::kOffered) end_offer(slot);
  for (Slot u = copy.uses; u != kNone && lent_by_client(copy); u = uses[u].next) owe_done(copy, uses[u].op);
  if (copy.state == CopyState::kReceiving) {
    transfers.erase(copy.transfer);
    transfer_ended(copy, false);
    if (!peers.contains(copy.in_window.value))
      leave_window(copy);  // else it comes all the same: it is passed on
    abandoned[copy.transfer] = {copy.device, lose_memory(slot), std::exchange(copy.in_window, {}),
                                copy.bytes};
  }
  stop_relaying(slot);
  copy.state = CopyState::kExpected;
  copy.kind = CopyKind::kRemote;
  copy.at = {};
  copy.via = {};
  copy.pulls = false;
  copy.attempts = copy.breaks = 0;
  std::vector<Slot> spent;  // claims that ended while the bytes were on their way
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (uses[u].left <= 0) spent.push_back(uses[u].op);
  }
  if (!spent.empty()) end_claims(slot, spent, devices[copy.device].spec.id);
}

// Whether the task's result is here, or will be when what has been begun is over.
bool Core::Impl::is_coming(Slot t, std::size_t output) const {
  const Task& task = tasks[t];
  Slot c = task.outputs[output];
  if (c != kNone && drops(t, output) == nullptr) return true;
  if (c == kNone) c = find_copy(ops[task.op].outputs[output], task.point, task.device);
  return c != kNone &&
         (whole(copies[c]) || (copies[c].producer_task != kNone && copies[c].producer_task != t));
}

// What this worker has of the ops in question, as it is now; what comes later stays, because it is pinned.
void Core::Impl::answer(const msg::PeerLost& lost) {
  msg::Held held;
  held.version = lost.version;
  std::size_t told = 0;
  std::map<std::pair<Slot, std::uint16_t>, std::vector<std::int64_t>> begun;
  std::set<Slot> coming;  // results of tasks of which others have been read and are gone
  // Who is asked because it is about to leave makes none of its tasks: others are to know all that it will not make.
  const bool leaves = stage >= Stage::kStill && !lost.peer;
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    for (const auto& [place, q] : devices[d].queues) {
      const auto look = [&](Slot t) {
        const Task& task = tasks[t];
        if (task.finished || task.outcome != kNone) return;
        // Of a task in flight whose results have been read by what is enqueued behind it nothing will be left.
        const std::size_t outputs = ops[task.op].outputs.size();
        boost::container::small_vector<Slot, 2> come;
        for (std::size_t i = 0; i < outputs; ++i)
          if (is_coming(t, i)) come.push_back(task.outputs[i]);
        if (come.size() == outputs || leaves) return begun[{task.op, d}].push_back(task.point);
        for (const Slot c : come)
          if (c != kNone && copies[c].kind == CopyKind::kProduced) coming.insert(c);
      };
      for (const Slot t : queues[q].order) look(t);
      for (const Slot t : queues[q].eager) look(t);
    }
  }
  std::vector<std::uint64_t> seen;
  for (const OpId id : lost.ops) {
    const auto found = op_by_id.find(id.value);
    if (found == op_by_id.end()) continue;
    const OpState& op = ops[found->second];
    for (std::uint16_t d = 0; d < devices.size(); ++d) {
      if (op.shares[d].owned == 0) continue;
      msg::Held::Share share{id, devices[d].spec.id, op.shares[d].next, {}};
      append_ranges(begun[{found->second, d}], share.begun, told);
      held.shares.push_back(std::move(share));
    }
    for (const Slot array : op.outputs) {
      if (std::find(seen.begin(), seen.end(), arrays[array].id.value) != seen.end()) continue;
      seen.push_back(arrays[array].id.value);
      std::vector<std::vector<std::int64_t>> sealed(devices.size()), wanted(devices.size());
      for (Slot c = arrays[array].copies; c != kNone; c = copies[c].next) {
        const Copy& copy = copies[c];
        const bool comes = coming.contains(c) && owner_of(array, copy.block) == devices[copy.device].spec.id;
        if ((whole(copy) && (copy.has_memory || copy.stored || copy.adopted)) ||
            comes)  // then it is as good as here
          sealed[copy.device].push_back(copy.block);
        // Its own once, let go, and taken again for a worker that leaves: others learn only from a layer that it is here.
        if (copy.kept && copy.kind == CopyKind::kReplica &&
            owner_of(array, copy.block) == devices[copy.device].spec.id)
          wanted[copy.device].push_back(copy.block);
        const auto source = remote.find(copy.source.value);
        if (source == remote.end() || copy.uses == kNone) continue;
        const bool orphan =
            copy.kind == CopyKind::kRemote && copy.state == CopyState::kExpected && source->second.lost;
        const bool from_leaving = (copy.kind == CopyKind::kRemote || copy.kind == CopyKind::kBorrowed) &&
                                  copy.state != CopyState::kFailed && source->second.worker != options.self &&
                                  leaving.contains(source->second.worker.value);
        if (orphan || from_leaving) wanted[copy.device].push_back(copy.block);
      }
      for (std::uint16_t d = 0; d < devices.size(); ++d) {
        if (sealed[d].empty() && wanted[d].empty()) continue;
        msg::Held::Blocks blocks{arrays[array].id, devices[d].spec.id, {}, {}};
        append_ranges(sealed[d], blocks.sealed, told);
        append_ranges(wanted[d], blocks.wanted, told);
        held.blocks.push_back(std::move(blocks));
      }
    }
  }
  if (told > options.max_held_ranges) {
    held = {};
    held.version = lost.version;
    held.cut = true;
  }
  out->to_scheduler.push_back(std::move(held));
}

void Core::Impl::apply_recover(msg::Recover& recover) {
  std::vector<std::pair<Slot, const msg::Plan*>> added;
  for (msg::Plan& plan : recover.plans) {
    for (msg::PlannedOp& planned : plan.ops) {
      last_op = std::max(last_op, planned.id);
      if (op_by_id.contains(planned.id.value))
        ++counts.stale;
      else if (const Slot op = add_op(Standing::of(plan), planned, recover.version); op != kNone)
        added.emplace_back(op, &plan);
    }
  }
  recovery = std::max(recovery, recover.version);
  if (recover.version >= losing) losing = 0;
  end_holds(recover.version);
  give_away(recover.moved);
  for (const auto& [op, plan] : added) enqueue_op(op, Standing::of(*plan));
  for (const auto& [op, plan] : added) {
    const ir::RunMap* listed = ops[op].entry->placement.listed();
    if (listed == nullptr) continue;
    for (const Slot array : boost::container::small_vector<Slot, 2>(ops[op].outputs)) {
      for (const ir::Run& run : listed->runs()) {
        for (std::int64_t i = 0; i < run.count; ++i) settle_block(op, array, run.first + i, run.device);
      }
    }
  }
  end_keeping_for_the_lost();
  end_pins(recover.version);
  unpark();
  unpark_batches();
}

// The block is `owner`'s now. Each device that has or had a claim on it turns to the owner: it subscribes again, or says
// that it needs nothing (what it has read it never reads again for the same op).
void Core::Impl::settle_block(Slot by, Slot array, std::int64_t block, DeviceId owner) {
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    const DeviceId self = devices[d].spec.id;
    Slot c = find_copy(array, block, d);
    if (self == owner) {
      if (c != kNone) adopt(by, c);
      continue;
    }
    if (c != kNone && copies[c].kind == CopyKind::kProduced) {
      maybe_release(c);  // it may have stayed for a task that is elsewhere now
      c = find_copy(array, block, d);
    }
    const bool unread = c != kNone && copies[c].kind == CopyKind::kRemote;
    // Made again because another result of its task is: who reads this one in place goes on doing so.
    const bool lent = c != kNone && copies[c].kind == CopyKind::kBorrowed && copies[c].source == owner;
    if (c != kNone && (unread || copies[c].kind == CopyKind::kReplica)) {
      if (copies[c].source != owner && copies[c].relays) {  // the new one sends nobody here
        stop_relaying(c);
        release_soon(array);
      }
      // What was lent from elsewhere, and waits for memory here, is sent by the new one.
      copies[c].pulls &= copies[c].source == owner || copies[c].state == CopyState::kReceiving;
      if (copies[c].source != owner && copies[c].stands == Stands::kForTurn) {
        window.leave(c);  // what is on its way from the new one counts
        list_fresh(c);
      }
      copies[c].source = owner;
    }
    for (const User& user : arrays[array].users) {
      const OpState& op = ops[user.op];
      if (op.done || op.cancelled != kNone || user.over || op.retired) continue;
      op.entry->geometry->users(user.operand, block, users_out);
      const bool mine = std::any_of(users_out.begin(), users_out.end(), [&](const auto& users) {
        return op.entry->placement.first_owned(self, users.points).has_value();
      });
      if (!mine || ((unread || lent) && claims(c, user.op)) || (c == kNone && reads_ahead(user, block, d)))
        continue;
      const msg::BlockRef ref{arrays[array].id, block};
      // Kernels in flight read it where the owner has it still, which hears of it when they are complete.
      if (owes(d, ref, op.run.id, owner)) continue;
      msg::Done done{ref, op.run.id, owner, self, {}};
      if (c != kNone) done.also = done_of(copies[c], op.run.id).also;
      batch_to(owner).dones.push_back(done);
    }
    if (unread && copies[c].uses != kNone) {
      orphans |= remote[owner.value].lost;
      if (remote[owner.value].lost && losing == 0)
        fail_copy(c, outcome({Errc::kWorkerLost, "the worker that was to make a block again was lost"}));
      else if (copies[c].state == CopyState::kExpected)
        subscribe(c, uses[copies[c].uses].op);
    }
  }
}

// A copy on the device that owns the block from now on: claims of others hang on it.
void Core::Impl::adopt(Slot by, Slot slot) {
  Copy& copy = copies[slot];
  if (copy.kind != CopyKind::kProduced) {
    stop_relaying(slot);
    copy.kind = CopyKind::kProduced;
    copy.source = devices[copy.device].spec.id;
    copy.spare = false;
    for (const User& user : arrays[copy.array].users) {
      const OpState& op = ops[user.op];
      if (!op.done && op.cancelled == kNone && !user.over && !op.retired) add_uses(slot, user, false);
    }
  }
  if (!ops[by].done && copy.state == CopyState::kFailed) copy.state = CopyState::kExpected;
}

// All that is to be made again is here already, kept for somebody whom the scheduler had no reason to ask about, or is being made by
// an earlier task. Such a task reads nothing and launches nothing. Where only some of its results are here, they stay as they
// are, since they may be in use: what the task makes of them is dropped.
bool Core::Impl::made_before(Slot t) const {
  const Task& task = tasks[t];
  const OpState& op = ops[task.op];
  if (op.version == 0 || task.admitted || op.outputs.empty()) return false;
  return std::all_of(task.outputs.begin(),
                     task.outputs.begin() + static_cast<std::ptrdiff_t>(op.outputs.size()),
                     [&](Slot c) { return c == kNone || whole(copies[c]); });
}

const Core::Impl::Dropped* Core::Impl::drops(const std::vector<Dropped>& results, std::size_t output) {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [&](const Dropped& result) { return result.output == output; });
  return found == results.end() ? nullptr : &*found;
}

// Memory for what the task makes of that output, if it is dropped.
const Core::Impl::Dropped* Core::Impl::drops(Slot t, std::size_t output) const {
  const auto found = results_dropped.find(t);
  return found == results_dropped.end() ? nullptr : drops(found->second, output);
}

void Core::Impl::free_dropped(Slot t) {
  const auto found = results_dropped.find(t);
  if (found == results_dropped.end()) return;
  for (const Dropped& result : found->second) devices[tasks[t].device].arena.free(result.extent, {});
  results_dropped.erase(found);
}

// What the Recover answered waits for nothing any more. All copies are looked at after a loss only: a Recover that moves points may
// come ten times a second, beside millions of copies.
void Core::Impl::end_pins(std::uint64_t version) {
  const bool settled = losing == 0 && std::exchange(orphans, false);
  const Slot why = outcome({Errc::kWorkerLost, "a block was lost with its worker and is not made again"});
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    ArrayState& array = arrays[a];
    for (Slot c = settled ? array.copies : kNone; c != kNone;) {
      const Copy& copy = copies[c];
      const Slot next = copy.next;
      if (copy.kind == CopyKind::kRemote && copy.state == CopyState::kExpected &&
          remote[copy.source.value].lost)
        fail_copy(c, why);
      c = next;
    }
    if (array.pinned == 0 || array.pinned > version) continue;
    array.pinned = 0;
    release_soon(a);
  }
}

}  // namespace tilewise::worker
