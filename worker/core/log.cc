// The scheduler's log: applied once, in order, whatever order it arrives in.
#include <tilewise/ir/saving.h>

#include "state.h"

#include <algorithm>

namespace tilewise::worker {

namespace {

// Of an array's blocks, if they are all alike; else 0.
std::int64_t bytes_of_each(const ir::Grid& grid, std::size_t element_bytes) {
  auto bytes = static_cast<std::int64_t>(element_bytes);
  for (const ir::DimGrid& dim : grid.dims()) {
    if (!dim.is_uniform() || dim.count() == 0 || dim.size(0) != dim.block() ||
        dim.size(dim.count() - 1) != dim.block())
      return 0;
    bytes *= dim.block();
  }
  return bytes;
}

}  // namespace

void Core::Impl::on_log(msg::Log& log) {
  if (log.term < options.term) {  // an older scheduler commands nobody
    ++counts.stale;
    return;
  }
  options.term = log.term;  // a later life of it goes on where the one before ended
  std::uint64_t number = log.first;
  for (std::size_t i = 0; i < log.entries.size(); ++i) {
    if (number < log_next) {
      ++counts.stale;
    } else if (number > log_next) {
      // Links keep order: what is missing will not come by itself, and nobody asks for it.
      if (log_early.size() >= limits::kMaxParked)
        return void(out->broken = error(Errc::kLimitExceeded,
                                        "entry " + std::to_string(log_next) +
                                            " of the scheduler's log has not come, but many after it"));
      log_early.emplace(number, log.entries.take(i));
    } else {
      msg::LogEntry entry = log.entries.take(i);
      apply(entry);
      ++log_next;
      log_moved = true;
      for (auto it = log_early.find(log_next); it != log_early.end(); it = log_early.find(log_next)) {
        msg::LogEntry next = std::move(it->second);
        log_early.erase(it);
        apply(next);
        ++log_next;
      }
    }
    ++number;
  }
}

void Core::Impl::apply(msg::LogEntry& entry) {
  const bool brings_work =
      std::holds_alternative<msg::Plan>(entry) || std::holds_alternative<msg::Replay>(entry) ||
      std::holds_alternative<msg::Recover>(entry) || std::holds_alternative<msg::Drain>(entry);
  if (probing && brings_work) end_probe(msg::ProbeEnd::kGivenUp, "work came");
  std::visit(
      [&](auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, msg::Plan>)
          apply_plan(e);
        else if constexpr (std::is_same_v<E, msg::Replay>)
          apply_replay(e);
        else if constexpr (std::is_same_v<E, msg::ForgetPlans>)
          for (const std::uint64_t plan : e.plans) forget_plan(plan);
        else if constexpr (std::is_same_v<E, msg::Release>)
          apply_release(e);
        else if constexpr (std::is_same_v<E, msg::CancelGraph>)
          apply_cancel(e);
        else if constexpr (std::is_same_v<E, msg::Retire>)
          apply_retire(e);
        else if constexpr (std::is_same_v<E, msg::PeerJoined>) {
          const msg::PeerInfo& peer = e.peer;
          if (peer.id == options.self) return;
          const std::uint32_t host = number_of_host(peer.host_id);
          for (std::size_t i = 0; i < peer.devices.size(); ++i) {
            const std::uint8_t kind = i < peer.descriptions.size() ? peer.descriptions[i].kind : 0;
            remote[peer.devices[i].value] = {peer.id, kind, peer.role == msg::Role::kClient, false, host};
          }
          out->joined.push_back(peer);
          last_joined = std::max(last_joined, peer.id);
          peers[peer.id.value] = {std::move(e.peer), false};
          unpark_batches();
        } else if constexpr (std::is_same_v<E, msg::PeerLost>)
          on_peer_lost(e);
        else if constexpr (std::is_same_v<E, msg::Recover>)
          apply_recover(e);
        else if constexpr (std::is_same_v<E, msg::Drain>)
          apply_drain(e);
      },
      entry);
  drain_loopback();
}

void Core::Impl::apply_plan(msg::Plan& plan) {
  std::vector<Slot> added;
  for (msg::PlannedOp& planned : plan.ops) {
    last_op = std::max(last_op, planned.id);
    if (op_by_id.contains(planned.id.value)) {
      ++counts.stale;
      continue;
    }
    if (const Slot op = add_op(Standing::of(plan), planned); op != kNone) added.push_back(op);
  }
  for (ArrayId id : plan.holds) {
    if (const auto it = array_by_id.find(id.value); it != array_by_id.end()) arrays[it->second].held = true;
  }
  if (plan.keep_as != 0 && added.size() == plan.ops.size() && kept_plans.size() < kMaxKeptPlans)
    keep_plan(plan);
  for (Slot op : added) enqueue_op(op, Standing::of(plan));
  unpark();
}

// Its ops have just been added: what they need is in their entries.
void Core::Impl::keep_plan(const msg::Plan& plan) {
  forget_plan(plan.keep_as);
  KeptPlan& kept = kept_plans[plan.keep_as];
  std::map<std::uint64_t, std::int32_t> inputs;  // -1: made by an op before
  bool named = false;
  for (const msg::PlannedOp& planned : plan.ops) {
    const OpState& op = ops[op_by_id.at(planned.id.value)];
    KeptPlan::KeptOp& keep = kept.ops.emplace_back(KeptPlan::KeptOp{op.shared, planned.id, op.level_ns, {}});
    ++entries[op.shared].users;
    kept.constants = std::max(kept.constants, ir::constant_dtypes({&op.entry->op, 1}).size());
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const auto [it, fresh] =
          inputs.emplace(op.entry->op.operands[i].array, static_cast<std::int32_t>(kept.inputs.size()));
      if (fresh) kept.inputs.push_back(op.entry->sources[i]);
      keep.inputs.push_back(it->second);
    }
    for (const ir::OutputSpec& output : op.entry->op.outputs) {
      if (!std::exchange(named, true)) kept.first_array = output.array;
      inputs.emplace(output.array, -1);
    }
  }
  for (const ArrayId id : plan.holds) kept.holds.push_back(id.value);
}

// Entries are those of ops under way too, so ops with other constants than the last time get new ones.
void Core::Impl::set_constants(KeptPlan& kept, const ir::Constants& constants) {
  for (KeptPlan::KeptOp& keep : kept.ops) {
    if (ir::has_constants(entries[keep.shared].op, constants)) continue;
    const Slot slot = entries.add();
    SharedEntry& entry = entries[slot];
    static_cast<OpEntry&>(entry) = entries[keep.shared];
    ir::put_constants({&entry.op, 1}, constants);
    if (options.task_tables) tables.give(entry, local_ids());
    entry.users = 1;
    let_go_of_entry(std::exchange(keep.shared, slot));
  }
}

void Core::Impl::forget_plan(std::uint64_t number) {
  const auto found = kept_plans.find(number);
  if (found == kept_plans.end()) return;
  for (const KeptPlan::KeptOp& kept : found->second.ops) let_go_of_entry(kept.shared);
  kept_plans.erase(found);
}

// As the Plan that it stands for would be (msg::expand), without making the entries of ops anew whose constants are the same.
void Core::Impl::apply_replay(const msg::Replay& replay) {
  const auto found = kept_plans.find(replay.plan);
  if (found == kept_plans.end())
    return refuse(replay.first_op, "plan " + std::to_string(replay.plan) + " is not kept here");
  KeptPlan& kept = found->second;
  if (replay.inputs.size() != kept.inputs.size())
    return refuse(replay.first_op, "a replay names " + std::to_string(replay.inputs.size()) + " inputs of " +
                                       std::to_string(kept.inputs.size()));
  replay_inputs.clear();
  for (std::size_t i = 0; i < kept.inputs.size(); ++i) {
    const auto it = array_by_id.find(replay.inputs[i].value);
    if (it == array_by_id.end() || arrays[it->second].dtype != kept.inputs[i].dtype ||
        !(arrays[it->second].grid == kept.inputs[i].grid))
      return refuse(replay.first_op, "a replay reads another array than its plan");
    replay_inputs.push_back(it->second);
  }
  if (replay.constants.size() < kept.constants)
    return refuse(replay.first_op, "a replay has " + std::to_string(replay.constants.size()) +
                                       " constants of " + std::to_string(kept.constants));
  if (kept.ops.empty()) return;
  if (kept.constants > 0) set_constants(kept, replay.constants);
  const std::uint64_t shift = replay.first_array.value - kept.first_array;
  const std::uint64_t ids = replay.first_op.value - kept.ops[0].id.value;
  std::vector<Slot> added;
  added.reserve(kept.ops.size());
  for (const KeptPlan::KeptOp& keep : kept.ops) {
    const OpId id{keep.id.value + ids};
    last_op = std::max(last_op, id);
    if (op_by_id.contains(id.value)) {
      ++counts.stale;
      continue;
    }
    const Slot op = place_op(keep.shared, id, keep.level_ns, Standing::of(replay), shift);
    for (std::size_t i = 0; i < keep.inputs.size(); ++i) {
      const std::int32_t input = keep.inputs[i];
      read_from(op, input < 0 ? array_by_id.at(ops[op].entry->op.operands[i].array + shift)
                              : replay_inputs[static_cast<std::size_t>(input)]);
    }
    added.push_back(op);
  }
  for (const std::uint64_t id : kept.holds) {
    if (const auto it = array_by_id.find(id + shift); it != array_by_id.end()) arrays[it->second].held = true;
  }
  for (const Slot op : added) enqueue_op(op, Standing::of(replay));
  unpark();
}

// Plug-ins bring few kernels, so the list is short for good.
std::uint32_t Core::Impl::family(const ir::Op& op) {
  std::string name = ir::family_of(op);
  const auto it = std::find(families.begin(), families.end(), name);
  if (it != families.end()) return static_cast<std::uint32_t>(it - families.begin());
  families.push_back(std::move(name));
  return static_cast<std::uint32_t>(families.size() - 1);
}

// The scheduler verifies plans, so this is a scheduler of another mind, not a user's mistake.
void Core::Impl::refuse(OpId op, const std::string& why) {
  out->to_scheduler.push_back(msg::TaskFailed{op,
                                              devices.empty() ? DeviceId{} : devices[0].spec.id,
                                              0,
                                              {Errc::kInternal, "worker cannot take " + why}});
}

// Everything about an op that does not depend on names. Takes op and placement.
Result<Slot> Core::Impl::entry_of(msg::PlannedOp& planned) {
  std::vector<ir::SourceArray> sources;
  for (const ir::Operand& operand : planned.op.operands) {
    const auto it = array_by_id.find(operand.array);
    if (it == array_by_id.end())
      return error(Errc::kInternal, "unknown operand array " + std::to_string(operand.array));
    sources.push_back({arrays[it->second].dtype, arrays[it->second].grid});
  }
  TW_ASSIGN(auto geometry, geometries.of(planned.op, sources));
  TW_TRY(planned.placement.verify(geometry->counts()));
  const Slot slot = entries.add();
  SharedEntry& entry = entries[slot];
  entry.op = std::move(planned.op);
  entry.placement = shared_placement(std::move(planned.placement));
  entry.sources = std::move(sources);
  entry.geometry = std::move(geometry);
  entry.family = family(entry.op);
  if (const ir::Geometry& g = *entry.geometry; g.point_count() > 0)
    entry.model_ns = static_cast<std::int64_t>(ir::model_step_ns(g, g.point(0)));
  if (options.task_tables && entry.op.kind != ir::OpKind::kProvide) tables.give(entry, local_ids());
  return slot;
}

// The same, if one of the last few is equal: then they share their memory.
ir::Placement Core::Impl::shared_placement(ir::Placement placement) {
  if (placement.listed() != nullptr) return placement;  // it may be long
  const auto same = std::find(placements.begin(), placements.end(), placement);
  if (same != placements.end()) return *same;
  if (placements.size() == kSharedPlacements) placements.erase(placements.begin());
  placements.push_back(placement);
  return placement;
}

void Core::Impl::let_go_of_entry(Slot shared) {
  if (--entries[shared].users > 0) return;
  tables.let_go(entries[shared]);
  entries[shared] = SharedEntry{};
  entries.drop(shared);
}

// Registers an op, its outputs and its claims. kNone (and TaskFailed to the scheduler) when it cannot be executed.
Slot Core::Impl::add_op(const Standing& standing, msg::PlannedOp& planned, std::uint64_t version) {
  const std::string_view kind = name_of(planned.op.kind);
  const Result<Slot> shared = entry_of(planned);
  if (!shared) {
    refuse(planned.id, "op " + std::string(kind) + ": " + shared.error().message);
    return kNone;
  }
  for (const DeviceId device : entries[*shared].placement.devices()) {
    // Of a worker that was lost before this one came: what it made is elsewhere, or is being made again.
    if (!remote.contains(device.value)) remote[device.value].lost = true;
  }
  const Slot slot = place_op(*shared, planned.id, planned.level_ns, standing, 0);
  OpState& op = ops[slot];
  op.done = planned.done;
  op.version = version;
  if (planned.of) op.order = planned.of;
  op.alone = planned.alone;
  if (!planned.doomed.ok()) op.doomed = outcome(planned.doomed);
  for (const ir::Operand& operand : op.entry->op.operands) read_from(slot, array_by_id.at(operand.array));
  return slot;
}

// A record of the op and of what it makes, its arrays called as in the entry, plus `shift`.
Slot Core::Impl::place_op(Slot shared, OpId id, std::int64_t level_ns, const Standing& standing,
                          std::uint64_t shift) {
  const Slot slot = ops.add();
  OpState& op = ops[slot];
  op.entry = &entries[shared];
  op.shared = shared;
  ++entries[shared].users;
  op.run = {id, standing.graph, nullptr};
  op.order = id;
  op.level_ns = level_ns;
  op.shares.resize(devices.size());
  op_by_id[id.value] = slot;
  for (std::size_t i = 0; i < op.entry->op.outputs.size(); ++i) {
    const ir::OutputSpec& spec = op.entry->op.outputs[i];
    const auto [it, fresh] = array_by_id.try_emplace(spec.array + shift, kNone);
    if (!fresh) {
      arrays[it->second].makers.push_back(slot);
      op.outputs.push_back(it->second);
      continue;
    }
    it->second = arrays.add();
    ArrayState& state = arrays[it->second];
    state.id = ArrayId{spec.array + shift};
    state.session = standing.session;
    state.weight = standing.weight;
    state.makers.push_back(slot);
    state.output = static_cast<int>(i);
    state.dtype = spec.dtype;
    state.element_bytes = ir::size_of(spec.dtype);
    state.grid = spec.grid;
    state.counts = spec.grid.counts();
    state.block_bytes = bytes_of_each(spec.grid, state.element_bytes);
    op.outputs.push_back(it->second);
  }
  return slot;
}

void Core::Impl::read_from(Slot op, Slot array) {
  arrays[array].users.push_back({op, static_cast<int>(ops[op].operands.size())});
  ops[op].operands.push_back(array);
  if (ops[op].keeps()) arrays[array].keeps.push_back(op);
}

// After the whole plan is known: claims on copies that already exist, and this worker's shares into the queues.
void Core::Impl::enqueue_op(Slot slot, const Standing& plan) {
  OpState& op = ops[slot];
  for (std::size_t i = 0; i < op.operands.size() && !op.done; ++i) {
    // Copies made by this very plan do not exist yet; those of earlier plans are walked once.
    for (Slot c = arrays[op.operands[i]].copies; c != kNone;) {
      const Slot next = copies[c].next;
      add_uses(c, {slot, static_cast<int>(i)});
      c = next;
    }
  }
  if (!op.runs()) return;
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    ShareState& share = op.shares[d];
    share.owned = op.entry->placement.owned_count(devices[d].spec.id);
    if (op.done) share.next = share.completed = share.owned;
    if (share.owned == 0 || op.done) continue;
    want_reserve(d, *op.entry);
    const Slot q = queue_for(d, plan);
    BlockDeque<Slot>& in_order = queues[q].ops;
    // What is made again comes where the plan had it: those behind may wait for it.
    const auto at = op.version == 0 ? in_order.end()
                                    : std::find_if(in_order.begin(), in_order.end(),
                                                   [&](Slot other) { return ops[other].order > op.order; });
    in_order.insert(at, slot);
    share.queued = true;
    look_at(q);
  }
}

void Core::Impl::apply_release(const msg::Release& release) {
  for (ArrayId id : release.arrays) {
    const auto it = array_by_id.find(id.value);
    if (it == array_by_id.end()) continue;
    ArrayState& array = arrays[it->second];
    array.held = false;
    release_soon(it->second);
  }
}

// Each of its copies is looked at again, and goes unless it is needed.
void Core::Impl::release_soon(Slot slot) {
  ArrayState& array = arrays[slot];
  if (array.copies == kNone) return;
  if (array.to_release == kNone) releasing.push_back(slot);
  array.to_release = array.copies;
}

// Some at a time: letting go of a million blocks takes as long as a thousand small requests.
void Core::Impl::release_some() {
  for (int left = options.releases_a_step; left > 0 && !releasing.empty();) {
    ArrayState& array = arrays[releasing.front()];
    for (; left > 0 && array.to_release != kNone; --left) {
      const Slot copy = std::exchange(array.to_release, copies[array.to_release].next);
      maybe_release(copy);
    }
    if (array.to_release == kNone) releasing.pop_front();
  }
}

void Core::Impl::apply_cancel(const msg::CancelGraph& cancel) {
  const Slot why = outcome(cancel.why);
  std::vector<Slot> mine;
  for (const DeviceState& device : devices) {
    if (const Slot q = queue_of(device, cancel.graph); q != kNone)
      mine.insert(mine.end(), queues[q].ops.begin(), queues[q].ops.end());
  }
  // Ops without a share here still have claims on copies here: find them through the arrays they read.
  for (const auto& [id, slot] : op_by_id) {  // in any order: sorted below
    if (ops[slot].run.graph == cancel.graph && !ops[slot].done) mine.push_back(slot);
  }
  std::sort(mine.begin(), mine.end());
  mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  // Only steps of saves are waited for: whoever removes what they have begun is to come after them. Another one may run on for ever.
  const auto saves = [](const ir::Op& op) {
    return op.kind == ir::OpKind::kWriteNpy ||
           (op.kind == ir::OpKind::kCall && ir::saving::is_kernel(op.get<ir::CallAttrs>().kernel));
  };
  Ending runs{log_next, {}};
  for (Slot op : mine) {
    cancel_op(op, why);
    if (ops[op].live_tasks > 0 && saves(ops[op].entry->op)) runs.ops.push_back(ops[op].run.id);
  }
  if (!runs.ops.empty()) ending.push_back(std::move(runs));
}

// Unexpanded points count as failed; live tasks run on without launching; claims that nobody acts on any more end.
// Claims of other devices that may already be reading end with their Done.
void Core::Impl::cancel_op(Slot slot, Slot why) {
  OpState& op = ops[slot];
  if (op.cancelled != kNone) return;
  op.cancelled = why;
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    ShareState& share = op.shares[d];
    const std::int64_t left = share.owned - share.next;
    share.held = INT64_MAX;
    if (left <= 0) continue;
    share.next = share.owned;
    share.completed += left;
    share.failed += left;
    mark_dirty(slot, d);
    report_now = true;
    devices[d].memory_freed = true;  // they want none (wanted_before)
  }
  for (const DeviceState& device : devices) {
    const Slot q = queue_of(device, op.run.graph);
    if (q == kNone) continue;
    look_at(q);
    if (op.live_tasks == 0) continue;
    for (const Slot t : queues[q].order) {
      if (!tasks[t].finished && tasks[t].op == slot) fail_task(t, why);
    }
    for (const Slot t : queues[q].eager) {
      if (tasks[t].op == slot) fail_task(t, why);
    }
  }
  // Claims on operands. Local ones of points never expanded; a local claim also covers live tasks, which discharge
  // what they can while they fail, so the rest is dropped here once they are gone (they launch nothing any more).
  for (Slot array : op.operands) {
    if (array == kNone) continue;
    for (Slot c = arrays[array].copies; c != kNone;) {
      const Slot next = copies[c].next;
      for (Slot u = copies[c].uses; u != kNone;) {
        const Slot at = u;
        const Use use = uses[u];
        u = use.next;
        if (use.op != slot) continue;
        if (local(use.device) == copies[c].device || !use.offered) {
          drop_use(c, slot, use.device);
        } else if (whole(copies[c]) || copies[c].state == CopyState::kFailed) {
          offer(c,
                uses[at]);  // it may have borrowed the block for another op only: then this brings its Done
        }
      }
      c = next;
    }
  }
  if (op.keeps()) end_keep(slot);
  // Outputs that will never be: whoever waits for them learns why.
  for (Slot array : op.outputs) {
    for (Slot c = arrays[array].copies; c != kNone;) {
      const Slot next = copies[c].next;
      if (copies[c].state == CopyState::kExpected && copies[c].kind == CopyKind::kProduced &&
          copies[c].producer_task == kNone) {
        fail_copy(c, why);
        maybe_release(c);
      } else if (copies[c].kind != CopyKind::kProduced && copies[c].state == CopyState::kExpected) {
        fail_copy(c, why);
      } else if (op.version != 0) {
        maybe_release(c);  // it stayed for a task that will not come
      }
      c = next;
    }
  }
}

void Core::Impl::apply_retire(const msg::Retire& retire) {
  for (OpId id : retire.ops) {
    const auto it = op_by_id.find(id.value);
    if (it == op_by_id.end() || ops[it->second].retired) continue;
    ops[it->second].retired = true;
    // The scheduler retires it when nobody has anything left to read of it. Whoever reads it after this entry of the log
    // is a layer: so everybody leaves the same ops out when a block of it is made again, whether or not it is forgotten.
    for (const Slot array : ops[it->second].outputs) {
      for (User& user : arrays[array].users) user.over = true;
      end_relays(array);
    }
    maybe_forget(it->second);
  }
}

void Core::Impl::maybe_forget(Slot op) {
  if (!ops[op].retired || std::exchange(ops[op].to_forget, true)) return;
  to_forget.push_back(op);
}

// Something of each listed op has ended, or of the last op that read its results: looked at once, and again only when
// the next thing of it ends.
void Core::Impl::forget_retired() {
  while (!to_forget.empty()) {
    const Slot op = to_forget.back();
    to_forget.pop_back();
    ops[op].to_forget = false;
    forget(op);
  }
  drop_ended_queues();
}

// A retired op goes when nothing here refers to it: no live task, no claim, no copy of its outputs, and nobody who has
// still to read them (a cancelled task may be running). Those that have read them stay, maybe for long: a chain of ops
// is forgotten from its beginning.
void Core::Impl::forget(Slot slot) {
  OpState& op = ops[slot];
  if (op.live_tasks != 0 || op.open_uses != 0) return;
  for (Slot a : op.outputs) {
    const auto& users = arrays[a].users;
    if (arrays[a].live_copies != 0 || !std::all_of(users.begin(), users.end(), [&](const User& user) {
          return user.over && ops[user.op].live_tasks == 0;
        }))
      return;
  }
  for (const ShareState& share : op.shares) {
    if (share.next < share.owned || share.dirty) return;
  }
  for (std::uint16_t d = 0; d < devices.size();
       ++d) {  // cancelled before its turn came, or nothing is expanded now
    if (!op.shares[d].queued && !op.shares[d].usable) continue;
    const Slot q = queue_of(devices[d], op.run.graph);
    if (q == kNone) continue;
    if (!queues[q].ops.empty() && queues[q].ops.front() == slot)
      next_op(d, queues[q]);
    else
      erase_if(queues[q].ops, [&](Slot other) { return other == slot; });
    std::erase(queues[q].usable, slot);
    look_at(q);
    may_have_ended(q);
  }
  if (op.keeps()) end_keep(slot);
  for (Slot a : op.operands) {
    if (a == kNone) continue;
    auto& users = arrays[a].users;
    users.erase(std::remove_if(users.begin(), users.end(), [&](const User& u) { return u.op == slot; }),
                users.end());
    auto& keeps = arrays[a].keeps;
    keeps.erase(std::remove(keeps.begin(), keeps.end(), slot), keeps.end());
    for (const Slot maker : arrays[a].makers) maybe_forget(maker);
  }
  for (Slot a : op.outputs) {
    auto& makers = arrays[a].makers;
    makers.erase(std::find(makers.begin(), makers.end(), slot));
    if (!makers.empty()) continue;
    for (const User& user : arrays[a].users)
      ops[user.op].operands[static_cast<std::size_t>(user.operand)] = kNone;
    array_by_id.erase(arrays[a].id.value);
    arrays[a] = ArrayState{};
    arrays.drop(a);
  }
  op_by_id.erase(op.run.id.value);
  let_go_of_entry(op.shared);
  ops[slot] = OpState{};
  ops.drop(slot);
}

// The death of an incarnation discharges all it owed. What it had not delivered comes from elsewhere, if the scheduler
// says so (recovery.cc), or fails.
void Core::Impl::on_peer_lost(const msg::PeerLost& lost) {
  pin(lost);  // before anything goes with the claims of the dead
  if (const auto it = peers.find(lost.peer.value); it != peers.end()) {
    const Slot why = outcome({Errc::kWorkerLost, "worker " + it->second.info.name + " was lost"});
    const std::vector<DeviceId> dead = it->second.info.devices;
    peers.erase(it);
    outgoing.erase(lost.peer.value);
    out->lost.push_back(lost.peer);
    for (DeviceId device : dead) {
      remote[device.value].lost = true;
      forget_slabs(device);
    }
    orphans = true;
    forget_links(lost.peer);
    forget_probes(lost.peer);
    const auto is_dead = [&](DeviceId d) { return std::find(dead.begin(), dead.end(), d) != dead.end(); };
    std::vector<Slot> in_order;  // arrays by id, so that the order does not depend on the hash
    for (const auto& [id, slot] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
      in_order.push_back(slot);
    }
    for (Slot array : in_order) {
      for (Slot c = arrays[array].copies; c != kNone;) {
        const Slot next = copies[c].next;
        for (Slot u = copies[c].uses; u != kNone;) {
          const Use use = uses[u];
          u = use.next;
          if (is_dead(use.device)) drop_use(c, use.op, use.device);
        }
        c = next;
      }
      for (Slot c = arrays[array].copies; c != kNone;) {
        const Slot next = copies[c].next;
        const Copy& copy = copies[c];
        leaders_lost(c, dead);
        if (copy.relays && is_dead(copy.source)) {
          set_relays(c, false);
          release_soon(copy.array);
        }
        if (copy.via && is_dead(copy.via)) turn_to_owner(c);
        if ((copy.kind == CopyKind::kRemote || copy.kind == CopyKind::kBorrowed) && is_dead(copy.source) &&
            copy.state != CopyState::kFailed) {  // what it lent is unmapped soon: nothing new may read it
          if (lost.version != 0)
            orphan(c);
          else if (copy.state != CopyState::kReceiving)
            fail_copy(c, why);
        }
        c = next;
      }
    }
  }
  if (lost.version == 0) return;
  hold(lost);
  answer(lost);
}

}  // namespace tilewise::worker
