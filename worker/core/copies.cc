// Copies and the uses that keep them alive (D4). Discharge is a set: dropping a use twice does nothing.
#include "state.h"

namespace tilewise::worker {

Slot Core::Impl::find_copy(Slot array, std::int64_t block, std::uint16_t device) const {
  const auto it = devices[device].index.find(copy_key(array, block));
  return it == devices[device].index.end() ? kNone : it->second;
}

std::int64_t Core::Impl::bytes_of(const ArrayState& array, std::int64_t block) {
  if (array.block_bytes != 0) return array.block_bytes;
  return array.grid.box(ir::unravel(block, array.counts)).volume() *
         static_cast<std::int64_t>(array.element_bytes);
}

// A new record, with every claim that the known ops have on it. The owner's record lists all users, anybody else's
// only its own device's.
// `of_task`: of the task that is to make the block, just now.
Slot Core::Impl::make_copy(Slot array, std::int64_t block, std::uint16_t device, DeviceId owner,
                           bool of_task) {
  const Slot slot = copies.add();
  Copy& copy = copies[slot];
  ArrayState& state = arrays[array];
  copy.array = array;
  copy.block = block;
  copy.device = device;
  copy.bytes = bytes_of(state, block);
  copy.kind = owner == devices[device].spec.id ? CopyKind::kProduced : CopyKind::kRemote;
  copy.source = owner;
  copy.next = state.copies;
  if (state.copies != kNone) copies[state.copies].prev = slot;
  state.copies = slot;
  ++state.live_copies;
  devices[device].index[copy_key(array, block)] = slot;
  count_uses(slot);
  if (of_task && state.makers.size() == 1 && ops[state.makers[0]].cancelled == kNone) return slot;

  const Slot made_by = maker(array, block);
  if (made_by == kNone || owner == DeviceId{}) {
    fail_copy(slot, outcome({Errc::kWorkerLost, "nobody has block " + std::to_string(block) + " of array " +
                                                    std::to_string(state.id.value)}));
    return slot;
  }
  const OpState& producer = ops[made_by];
  if (producer.cancelled != kNone) {
    fail_copy(slot, producer.cancelled);
  } else if (copy.kind == CopyKind::kProduced) {
    const ir::Index point = ir::unravel(block, state.counts);
    const ir::Placement& placement = producer.entry->placement;
    if (producer.done || placement.owner(point) != owner ||
        placement.ordinal(owner, point) < producer.shares[device].next) {
      fail_copy(slot, outcome({Errc::kWorkerLost, "block " + std::to_string(block) + " of array " +
                                                      std::to_string(state.id.value) + " is gone from " +
                                                      std::to_string(devices[device].spec.id.value)}));
    }
  } else if (remote[owner.value].lost && losing == 0) {
    fail_copy(slot,
              outcome({Errc::kWorkerLost, "the worker that owned block " + std::to_string(block) +
                                              " of array " + std::to_string(state.id.value) + " was lost"}));
  } else if (remote[owner.value].lost) {
    orphans = true;  // the Recover names another owner, or the copy fails
  }
  return slot;
}

void Core::Impl::count_uses(Slot slot) {
  const Copy& copy = copies[slot];
  // Others may have read an earlier copy of a block that is made again. They say so when they apply the Recover, so
  // here every claim counts; but of ops that are over everywhere nobody speaks any more.
  const Slot made_by = maker(copy.array, copy.block);
  const bool again = copy.kind == CopyKind::kProduced && made_by != kNone && ops[made_by].version != 0;
  for (const User& user : arrays[copy.array].users) {
    const OpState& op = ops[user.op];
    if (op.done || op.cancelled != kNone || (again && (user.over || op.retired))) continue;
    const bool here =
        (copy.kind == CopyKind::kProduced && !again) || reads_ahead(user, copy.block, copy.device);
    if (here || again) add_uses(slot, user, here);
  }
}

void Core::Impl::add_uses(Slot slot, User user, bool here, bool elsewhere) {
  const OpState& op = ops[user.op];
  Copy& copy = copies[slot];
  const DeviceId self = devices[copy.device].spec.id;
  // One that was made here may have been let go of by all, so that it is made again elsewhere, while a client still reads it:
  // whoever reads it from now on turns to the new owner, and would never tell us Done.
  const auto& makers = arrays[copy.array].makers;
  const bool again = makers.size() > 1 || (!makers.empty() && ops[makers[0]].version != 0);
  elsewhere =
      elsewhere && copy.kind == CopyKind::kProduced && (!again || owner_of(copy.array, copy.block) == self);
  bool mine = false;
  const bool shrunk = op.shares[copy.device].shrunk;  // what others make now is not read here for it
  const auto claim = [&](DeviceId device, std::int64_t reads) {
    if (device == self) {
      if (!here) return;
      mine = true;
      add_use(slot, user.op, self, reads);
    } else if (elsewhere) {
      add_use(slot, user.op, device, 1);
    }
  };
  if (op.entry->table && !shrunk) {
    for (const TaskTable::Use& use : op.entry->table->uses(user.operand, copy.block))
      claim(use.device, use.reads);
  } else {
    op.entry->geometry->users(user.operand, copy.block, users_out);
    for (std::size_t i = 0; i < users_out.size(); ++i) {
      op.entry->placement.shares(users_out[i].points, shares_out);
      for (const ir::Placement::Share& share : shares_out) {
        const bool less = shrunk && share.device == self;
        const std::int64_t points = less ? points_left(op, copy.device, users_out[i].points) : share.points;
        if (points > 0) claim(share.device, points * users_out[i].steps_each);
      }
    }
  }
  if (mine && copy.kind == CopyKind::kReplica) send_done(copy, user.op);
}

void Core::Impl::add_use(Slot slot, Slot op, DeviceId device, std::int64_t reads) {
  Copy& copy = copies[slot];
  const bool is_local = device == devices[copy.device].spec.id;
  if (!is_local && remote[device.value].lost) return;
  const std::uint64_t id = ops[op].run.id.value;
  const auto id_of = [&](Slot u) { return ops[uses[u].op].run.id.value; };
  // Behind all with a smaller or equal id; those of this op are there, if any.
  const bool newest = copy.last_uses != kNone && id_of(copy.last_uses) <= id;
  Slot before = kNone;
  for (Slot u = newest ? copy.last_uses : copy.uses; u != kNone && id_of(u) <= id;
       before = u, u = uses[u].next) {
    if (uses[u].op != op || uses[u].device != device) continue;
    if (is_local) uses[u].left += reads;
    return;
  }
  Slot alike = copy.uses;  // what holds for one claim of a device holds for all
  while (alike != kNone && uses[alike].device != device) alike = uses[alike].next;
  const bool offered = alike != kNone && uses[alike].offered, lent = alike != kNone && uses[alike].lent,
             sending = alike != kNone && uses[alike].sending;
  const Slot u = uses.add();
  const Slot next = before == kNone ? copy.uses : uses[before].next;
  uses[u] = {op, device, reads, false, false, offered, lent, sending, next};
  (before == kNone ? copy.uses : uses[before].next) = u;
  if (next == kNone && (before == kNone || id_of(before) < id)) copy.last_uses = u;
  copy.lent += lent, copy.sending += sending;
  ++ops[op].open_uses;
  // The client's wish is a subscription from the start.
  if (ops[op].entry->op.kind == ir::OpKind::kFetch) {
    uses[u].subscribed = true;
    if (whole(copy) || copy.state == CopyState::kFailed) offer(slot, uses[u]);
  }
}

// Of a copy without the claim between the two that was the first of the last op's.
Slot Core::Impl::last_uses_without(const Copy& copy, Slot before, Slot next) const {
  if (next != kNone) return next;
  if (before == kNone) return kNone;
  Slot first = copy.uses;
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (uses[u].op != uses[first].op) first = u;
  }
  return first;
}

void Core::Impl::drop_use(Slot slot, Slot op, DeviceId device) {
  Copy& copy = copies[slot];
  Slot before = kNone;
  for (Slot u = copy.uses; u != kNone; before = u, u = uses[u].next) {
    if (uses[u].op != op || uses[u].device != device) continue;
    const bool is_local = device == devices[copy.device].spec.id;
    if (is_local &&
        copy.state == CopyState::kReceiving) {  // the lender must not let go while bytes are on their way
      uses[u].left = 0;
      return;
    }
    (before == kNone ? copy.uses : uses[before].next) = uses[u].next;
    if (copy.last_uses == u) copy.last_uses = last_uses_without(copy, before, uses[u].next);
    copy.lent -= uses[u].lent;
    copy.sending -= uses[u].sending;
    if (uses[u].sending && copy.sending == 0) maybe_leave_place(slot);
    refix(slot);
    uses.drop(u);
    --ops[op].open_uses;
    maybe_forget(op);
    if (!is_local) claim_dropped(slot, device);
    if (is_local && copy.kind != CopyKind::kProduced && copy.kind != CopyKind::kReplica) {
      owe_done(copy, op);
      // That Done ends the subscription made in this op's name, and others may still wait for the block.
      if (copy.state == CopyState::kExpected && copy.uses != kNone) subscribe(slot, uses[copy.uses].op);
    }
    maybe_release(slot);
    return;
  }
}

void Core::Impl::discharge_read(Slot slot, Slot op) {
  const DeviceId self = devices[copies[slot].device].spec.id;
  for (Slot u = copies[slot].uses; u != kNone; u = uses[u].next) {
    if (uses[u].op != op || uses[u].device != self) continue;
    if (--uses[u].left <= 0) drop_use(slot, op, self);
    return;
  }
}

// The owner may hear of the end of one op's claim before it hears of a later op that reads what it lent for the first: it names that
// one, so that the loan goes on.
msg::Done Core::Impl::done_of(const Copy& copy, OpId op) const {
  const DeviceId self = devices[copy.device].spec.id;
  msg::Done done{{arrays[copy.array].id, copy.block}, op, copy.source, self, {}};
  if (copy.kind == CopyKind::kProduced || copy.kind == CopyKind::kReplica) return done;
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    const OpId other = ops[uses[u].op].run.id;
    if (uses[u].device == self && other > op) done.also = std::max(done.also, other);
  }
  return done;
}

void Core::Impl::send_done(const Copy& copy, Slot op) {
  tell_done(done_of(copy, ops[op].run.id), lent_by_client(copy));
}

// A borrowed block may be read by kernels still in flight: the lender hears of it when they are complete.
void Core::Impl::owe_done(const Copy& copy, Slot op) {
  if (handing_over != kNone && &copy == &copies[handing_over]) return;  // it goes with what adopts it
  const DeviceState& device = devices[copy.device];
  bool busy = false;
  for (std::size_t s = 0; s < device.streams.size(); ++s)
    busy |= copy.readers[s] > device.streams[s].completed;
  if (!busy) return send_done(copy, op);
  devices[copy.device].pending_dones.push_back(
      {copy.readers, done_of(copy, ops[op].run.id), lent_by_client(copy)});
}

void Core::Impl::flush_pending_dones(std::uint16_t d) {
  DeviceState& device = devices[d];
  // Mostly in order; one that waits for a slower stream holds up those behind it for a moment, never for ever.
  while (!device.pending_dones.empty()) {
    PendingDone& pending = device.pending_dones.front();
    for (std::size_t s = 0; s < device.streams.size(); ++s) {
      if (pending.readers[s] > device.streams[s].completed) return;
    }
    tell_done(pending.done, pending.foreign);
    device.pending_dones.pop_front();
  }
}

// Complete, be it in memory or below.
bool Core::Impl::whole(const Copy& copy) {
  return copy.state == CopyState::kSealed || copy.state == CopyState::kSpilled ||
         copy.state == CopyState::kReturning;
}

// Here or on its way, and a task that is to make it again, because other results of that are gone or because the scheduler did not
// know of it, is still to come or not over. Those who read it meanwhile say so once: another copy would wait for them for ever.
bool Core::Impl::stays_for_its_task(const Copy& copy) const {
  if (!whole(copy) && copy.state != CopyState::kEnqueued) return false;
  if (whole(copy) && copy.producer_task != kNone) return true;  // made_before()
  const ArrayState& array = arrays[copy.array];
  if (copy.kind != CopyKind::kProduced || array.makers.empty() || ops[array.makers.back()].version == 0)
    return false;
  const Slot made_by = maker(copy.array, copy.block);
  if (made_by == kNone || ops[made_by].version == 0 || ops[made_by].cancelled != kNone) return false;
  const ShareState& share = ops[made_by].shares[copy.device];
  if (share.next >= share.owned) return false;
  const ir::Placement& placement = ops[made_by].entry->placement;
  const DeviceId self = devices[copy.device].spec.id;
  const ir::Index point = ir::unravel(copy.block, array.counts);
  return placement.owner(point) == self && placement.ordinal(self, point) >= share.next;
}

// More hangs on its memory than what tasks here read.
bool Core::Impl::tied(const Copy& copy) const {
  return copy.io != 0 || copy.kept || copy.relayed > 0 || stays_for_its_task(copy);
}

bool Core::Impl::needed(const Copy& copy) const {
  if (copy.uses != kNone || copy.state == CopyState::kReceiving || copy.relayed > 0 || copy.left_below)
    return true;
  // A failure too: whoever is given the work of the lost has yet to ask for the block, and nothing else would tell it.
  if (arrays[copy.array].pinned != 0 && (copy.has_memory || copy.stored || copy.state == CopyState::kFailed))
    return true;
  if (stays_for_its_task(copy)) return true;
  if (copy.kept && copy.state != CopyState::kFailed) return true;
  if (stage >= Stage::kStill && whole(copy) && copy.kind != CopyKind::kBorrowed) return true;
  if (copy.kind == CopyKind::kReplica)
    return (copy.state == CopyState::kSealed && (copy.relays || keeps(copy))) ||
           (whole(copy) && is_asked(copy));
  if (copy.kind != CopyKind::kProduced) return false;
  if (copy.state == CopyState::kExpected) return true;  // its task will come; it then finds nobody waiting
  return arrays[copy.array].held && copy.state != CopyState::kFailed;
}

// A held array that is replicated here: what was read once stays, while there is room (take()).
bool Core::Impl::keeps(const Copy& copy) const {
  const ArrayState& array = arrays[copy.array];
  if (!array.held) return false;
  const Slot made_by = maker(copy.array, copy.block);
  if (made_by == kNone) return false;
  const OpEntry& producer = *ops[made_by].entry;
  return producer.placement.replicated() &&
         producer.placement.holds(ir::unravel(copy.block, array.counts), devices[copy.device].spec.id);
}

// Keys of replicas that went or are used again stay in the list until they are most of it.
void Core::Impl::forget_spares(std::uint16_t d) {
  DeviceState& device = devices[d];
  if (device.spares.size() < device.spares_checked * 2 + 1024) return;
  std::erase_if(device.spares, [&](std::uint64_t key) {
    const auto found = device.index.find(key);
    return found == device.index.end() || !copies[found->second].spare;
  });
  device.spares_checked = device.spares.size();
}

void Core::Impl::maybe_release(Slot slot) {
  if (Copy& copy = copies[slot]; needed(copy)) {
    if (copy.kind == CopyKind::kReplica && copy.uses == kNone && !copy.kept && !is_asked(copy) &&
        !std::exchange(copy.spare, true)) {
      ++counts.kept;
      devices[copy.device].spares.push_back(copy_key(copy.array, copy.block));
      forget_spares(copy.device);
    }
    return;
  }
  // A held failure stays, so that a later user learns why.
  if (copies[slot].state == CopyState::kFailed && arrays[copies[slot].array].held) return;
  destroy_copy(slot);
}

alloc::Fence Core::Impl::readers_of(const Copy& copy) const {
  const DeviceState& device = devices[copy.device];
  alloc::Fence fence;
  for (std::size_t s = 0; s < device.streams.size(); ++s) {
    std::uint64_t last = copy.readers[s];
    if (copy.state != CopyState::kSealed && s == copy.stream) last = std::max(last, copy.sequence);
    if (last > device.streams[s].completed) {
      const bool added = fence.add(static_cast<std::uint8_t>(s), last);
      TW_CHECK(added, "kMaxStreams exceeds what a fence can name");
    }
  }
  return fence;
}

void Core::Impl::free_memory(Slot slot) {
  Copy& copy = copies[slot];
  if (!copy.has_memory) return;
  DeviceState& device = devices[copy.device];
  const alloc::Fence fence = readers_of(copy);
  device.arena.free(lose_memory(slot), fence);
  device.last_change = now;
  device.memory_freed = true;
}

void Core::Impl::destroy_copy(Slot slot) {
  Copy& copy = copies[slot];
  TW_CHECK(copy.waiters == kNone, "a copy goes while a task waits for it");
  TW_CHECK(copy.relayed == 0, "a copy goes while it is being passed on");
  end_tree(copy);
  stop_relaying(slot);
  if (copy.producer_task != kNone) {
    for (Slot& output : tasks[copy.producer_task].outputs) {
      if (output == slot) output = kNone;
    }
  }
  if (copy.state == CopyState::kOffered) end_offer(slot);
  if (copy.kept_open) kept_here(slot);
  copy.kept = {};
  copy.handed_on = false;
  let_go(slot);
  maybe_leave_place(slot);
  ArrayState& array = arrays[copy.array];
  if (array.to_release == slot) array.to_release = copy.next;
  (copy.prev == kNone ? array.copies : copies[copy.prev].next) = copy.next;
  if (copy.next != kNone) copies[copy.next].prev = copy.prev;
  if (--array.live_copies == 0) {
    for (const Slot made_by : array.makers) maybe_forget(made_by);
  }
  devices[copy.device].index.erase(copy_key(copy.array, copy.block));
  copies.drop(slot);
}

void Core::Impl::seal(Slot slot) {
  copies[slot].state = CopyState::kSealed;
  refix(slot);
  wake(slot);
  offer_wanted(slot);
  maybe_release(slot);
}

void Core::Impl::fail_copy(Slot slot, Slot why) {
  Copy& copy = copies[slot];
  if (copy.state == CopyState::kFailed) return;
  if (copy.state == CopyState::kOffered) end_offer(slot);
  stop_relaying(slot);
  let_go(slot);
  copy.state = CopyState::kFailed;
  if (copy.kept_open) kept_here(slot);
  copy.kept = {};
  copy.outcome = why;
  wake(slot);
  if (copy.kind == CopyKind::kProduced) offer_wanted(slot);
}

void Core::Impl::wake(Slot slot) {
  Slot t = std::exchange(copies[slot].waiters, kNone);
  while (t != kNone) {
    Task& task = tasks[t];
    const Slot next = std::exchange(task.next_waiter, kNone);
    task.state = TaskState::kReady;
    make_ready(t, copies[slot].bytes);
    t = next;
  }
}

// `via`: not the way that it would go; none: that one.
void Core::Impl::offer(Slot slot, Use& use, DeviceId via) {
  const Copy& copy = copies[slot];
  Route way;
  if (via)
    way.via = via;
  else if (copy.state != CopyState::kFailed)
    way = route(slot, use);
  if (way.wait) return;
  msg::Offer offer;
  offer.block = {arrays[copy.array].id, copy.block};
  offer.op = ops[use.op].run.id;
  offer.from = devices[copy.device].spec.id;
  offer.to = use.device;
  offer.bytes = copy.bytes;
  offer.via = way.via;
  offer.relays = way.relays;
  if (copy.state == CopyState::kFailed) {
    offer.failed = outcomes[copy.outcome];
  } else if (!way.via && lends(copy.device, use.device) && may_lend(copy)) {
    offer.slab = copy.at.slab;
    offer.offset = copy.at.offset;
    lend(slot, use.device);
  } else {
    offer.slab = msg::kNoSlab;  // lent while it is being sent, from the Grant on
  }
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (uses[u].device != use.device) continue;
    uses[u].offered = true;
    uses[u].answered |= uses[u].subscribed;
  }
  batch_to(use.device).offers.push_back(std::move(offer));
}

void Core::Impl::offer_wanted(Slot slot) {
  for (Slot u = copies[slot].uses; u != kNone; u = uses[u].next) {
    if (uses[u].subscribed && (!uses[u].answered || ops[uses[u].op].entry->op.kind == ir::OpKind::kFetch)) {
      offer(slot, uses[u]);
    }
  }
}

}  // namespace tilewise::worker
