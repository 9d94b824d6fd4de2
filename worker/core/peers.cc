// What peers say to each other about blocks. Every handler takes duplicated, late and reordered messages.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

namespace {
constexpr std::uint8_t kCuda = 1;                           // device::Kind
constexpr std::uint8_t kMaxAttempts = 3, kMaxBreaks = 100;  // to have one block
constexpr std::size_t kMaxWords = 1 << 20;                  // of peers, that wait for plans
}  // namespace

// Those that still cannot be taken are parked again.
void Core::Impl::unpark_batches() {
  for (PeerBatchReceived& early : std::exchange(parked_batches, {})) on_batch(early.from, early.batch);
}

void Core::Impl::on_batch(WorkerId from, msg::PeerBatch& batch) {
  const bool known = from == options.self || peers.contains(from.value);
  if (!known || batch.recovery > recovery) {
    // Its announcement, or the recovery that it speaks of, is still in the log; or it is lost, and nothing from it counts
    // any more.
    if (!known && from <= last_joined) return void(++counts.stale);
    if (parked_batches.size() >= limits::kMaxParked)
      return void(out->broken =
                      error(Errc::kLimitExceeded, std::to_string(limits::kMaxParked) +
                                                      " messages of peers wait for the scheduler's log"));
    parked_batches.push_back({from, std::move(batch)});
    return;
  }
  batch_recovery = batch.recovery;
  // Each speaks for its own devices only: a forged Done would free what a third party reads.
  const auto its_own = [&](DeviceId device) {
    const auto it = remote.find(device.value);
    if (it != remote.end() && it->second.worker == from) return true;
    ++counts.stale;
    return false;
  };
  // Who will not pass a block on may ask for it anew in the same batch: that comes after.
  const auto declines = [](const msg::Relay& m) { return m.word == msg::RelayWord::kDeclined; };
  for (const auto& m : batch.relays)
    if (declines(m) && its_own(m.from)) on_relay(m);
  for (const auto& m : batch.subscribes)
    if (its_own(m.to)) on_subscribe(m);
  for (auto& m : batch.offers) {
    if (!its_own(m.from)) continue;
    on_offer(m);
    if (m.relays) answer_relays(m);
  }
  for (const auto& m : batch.grants)
    if (its_own(m.to)) on_grant(m);
  for (const auto& m : batch.relays)
    if (!declines(m) && its_own(m.from)) on_relay(m);
  for (const auto& m : batch.dones)
    if (its_own(m.to)) on_done(m);
  for (const auto& m : batch.gones)
    if (its_own(m.from)) on_gone(m);
  for (const auto& m : batch.probes)
    if (its_own(m.bytes == 0 ? m.from : m.to)) on_probe(from, m);
}

void Core::Impl::subscribe(Slot slot, Slot op, DeviceId via) {
  const Copy& copy = copies[slot];
  if (!remote.contains(copy.source.value) || remote[copy.source.value].lost) return;
  batch_to(copy.source)
      .subscribes.push_back({{arrays[copy.array].id, copy.block},
                             ops[op].run.id,
                             copy.source,
                             devices[copy.device].spec.id,
                             via});
}

// About an op that is not known: its plan is still on its way, unless the log has passed its number (ids rise): then it
// is retired, and the message is an old one.
void Core::Impl::park(Word word, OpId op) {
  if (op <= last_op) return void(++counts.stale);
  if (words_parked >= kMaxWords)  // who said one that is dropped would wait for ever
    return void(out->broken = error(Errc::kLimitExceeded,
                                    std::to_string(kMaxWords) +
                                        " words of peers wait for plans, the first for that of op " +
                                        std::to_string(parked.begin()->first.value)));
  parked[op].push_back(std::move(word));
  ++words_parked;
}

// Those that wait for what is known by now; none of others is looked at, of which a long log has many before it.
void Core::Impl::unpark() {
  while (!parked.empty() && parked.begin()->first <= last_op) {
    const auto due = parked.extract(parked.begin());
    words_parked -= due.mapped().size();
    for (const Word& word : due.mapped()) {
      if (const auto* subscribe = std::get_if<msg::Subscribe>(&word))
        on_subscribe(*subscribe);
      else
        on_done(std::get<msg::Done>(word));
    }
  }
}

bool Core::Impl::valid_block(const msg::BlockRef& block, Slot array) const {
  return block.block >= 0 && block.block < arrays[array].grid.block_count();
}

// The block is `owner`'s (one of our devices) to make, and its task has not been expanded yet. Of an op that is over nothing comes, also where
// points of it were given to a layer that has been forgotten since.
bool Core::Impl::to_come(Slot array, std::int64_t block, DeviceId owner) const {
  const Slot made_by = maker(array, block);
  if (made_by == kNone) return false;
  const OpState& producer = ops[made_by];
  const ir::Index point = ir::unravel(block, arrays[array].counts);
  if (!producer.runs() || producer.retired || producer.entry->placement.owner(point) != owner) return false;
  return producer.entry->placement.ordinal(owner, point) >=
         producer.shares[static_cast<std::size_t>(local(owner))].next;
}

void Core::Impl::on_subscribe(const msg::Subscribe& m) {
  const int d = local(m.from);
  const auto op = op_by_id.find(m.op.value);
  const auto array = array_by_id.find(m.block.array.value);
  if (d < 0) return void(++counts.stale);
  if (op == op_by_id.end() || array == array_by_id.end()) return park(m, m.op);
  if (!remote.contains(m.to.value) || remote[m.to.value].lost || !valid_block(m.block, array->second)) {
    return void(++counts.stale);
  }
  const auto device = static_cast<std::uint16_t>(d);
  Slot slot = find_copy(array->second, m.block.block, device);
  if (slot == kNone) {
    const Slot made_by = maker(array->second, m.block.block);
    const bool cancelled = made_by != kNone && ops[made_by].cancelled != kNone;
    if (!to_come(array->second, m.block.block, m.from) && !cancelled) {
      return void(++counts.stale);  // discharged already: a late duplicate
    }
    slot = make_copy(array->second, m.block.block, device, m.from);
  }
  const bool ready = whole(copies[slot]) || copies[slot].state == CopyState::kFailed;
  for (Slot u = copies[slot].uses; u != kNone; u = uses[u].next) {
    if (uses[u].op != op->second || uses[u].device != m.to) continue;
    uses[u].subscribed = true;
    if (m.via && copies[slot].tree != kNone) {
      for (Leader& leader : trees[copies[slot].tree].leaders)
        if (leader.device == m.via && leader.state == Leader::State::kHas) dismiss(copies[slot], leader);
    }
    if (ready) offer(slot, uses[u], m.via == m.from ? another_holder(slot, uses[u]) : DeviceId{});
    return;
  }
  if (copies[slot].state == CopyState::kFailed) {  // a cancelled op has no claims, yet its peer must hear why
    msg::Offer failed;
    failed.block = m.block, failed.op = m.op, failed.from = m.from, failed.to = m.to;
    failed.failed = outcomes[copies[slot].outcome];
    batch_to(m.to).offers.push_back(std::move(failed));
    maybe_release(slot);
    return;
  }
  ++counts.stale;
}

bool Core::Impl::claims(Slot copy, Slot op) const {
  for (Slot u = copies[copy].uses; u != kNone; u = uses[u].next) {
    if (uses[u].op == op) return true;
  }
  return false;
}

// A Done to that owner waits until kernels in flight are complete, which read the block in place.
bool Core::Impl::owes(int device, const msg::BlockRef& block, OpId op, DeviceId owner) const {
  for (const PendingDone& pending : devices[static_cast<std::size_t>(device)].pending_dones) {
    if (pending.done.block == block && pending.done.op == op && pending.done.from == owner) return true;
  }
  return false;
}

void Core::Impl::on_offer(msg::Offer& m) {
  const int d = local(m.to);
  if (d < 0) return void(++counts.stale);
  const auto array = array_by_id.find(m.block.array.value);
  const Slot slot = array == array_by_id.end() || !valid_block(m.block, array->second)
                        ? kNone
                        : find_copy(array->second, m.block.block, static_cast<std::uint16_t>(d));
  if (slot == kNone || copies[slot].kind == CopyKind::kProduced || copies[slot].source != m.from) {
    // Nobody here wants it any more (cancelled, or an old duplicate): the lender may let go, unless kernels that read
    // it are still in flight; then its Done is on its way already.
    if (owes(d, m.block, m.op, m.from)) return void(++counts.stale);
    const auto lender = remote.find(m.from.value);
    if (lender != remote.end())
      tell_done({m.block, m.op, m.from, m.to, {}}, is_foreign(m.slab) && lender->second.client);
    ++counts.stale;
    return;
  }
  Copy& copy = copies[slot];
  const auto op = op_by_id.find(m.op.value);
  const bool claimed = op != op_by_id.end() && claims(slot, op->second);
  if (op != op_by_id.end() && !claimed && !owes(d, m.block, m.op, m.from)) {
    const bool foreign = is_foreign(m.slab) && remote.at(m.from.value).client;
    tell_done(done_of(copy, m.op), foreign);  // here for other ops' sake
  }
  if (copy.state != CopyState::kExpected) return void(++counts.stale);
  // From before the block was made again: what it says of addresses is no longer so.
  if (const Slot made_by = maker(copy.array, copy.block);
      made_by != kNone && ops[made_by].version > batch_recovery && !remote[m.from.value].client) {
    return void(++counts.stale);
  }
  if (!m.failed.ok()) {
    fail_copy(slot, outcome(std::move(m.failed)));
    return;
  }
  if (m.bytes != copy.bytes) {
    fail_copy(slot, outcome({Errc::kCorruptData, "offer of " + std::to_string(m.bytes) +
                                                     " bytes for a block of " + std::to_string(copy.bytes)}));
    return;
  }
  // What is kept for a leaver may be so for nobody's sake: then nothing is lent.
  const Reach way = copy.kept ? Reach::kNone : reach(m.from, m.slab, static_cast<std::uint16_t>(d));
  // Of an op that is through with the block: its loan has ended, or is about to, and the block may be elsewhere by now. Who claims it asks
  // for a loan of his own, again: the owner may take this offer for the answer to all. (What clients lend stays where it is.)
  if (way != Reach::kNone && !claimed && !remote[m.from.value].client) {
    if (copy.uses != kNone) subscribe(slot, uses[copy.uses].op);
    return void(++counts.stale);
  }
  if (way == Reach::kReads && !is_asked(copy)) {
    copy.kind = CopyKind::kBorrowed;
    copy.at = {m.from, m.slab, m.offset};
    copy.state = CopyState::kSealed;
    took_in(slot, msg::Lane::kMapped);
    wake(slot);
    usable(slot);
    return;
  }
  if (m.via && (!remote.contains(m.via.value) || remote[m.via.value].lost)) {
    if (copy.uses != kNone) subscribe(slot, uses[copy.uses].op, m.via);
    return;
  }
  copy.state = CopyState::kOffered;
  copy.via = m.via;
  copy.pulls = way != Reach::kNone && devices[copy.device].spec.kind == kCuda && !m.via;
  if (copy.pulls) copy.at = {m.from, m.slab, m.offset};
  if (m.inlined && static_cast<std::int64_t>(m.data.size()) == copy.bytes && stage < Stage::kStill) {
    alloc::Fence none;
    if (const auto extent = take(copy.device, copy.bytes, true, asker_of(copy, Claim::kOrdinary), none)) {
      copy.state = CopyState::kReceiving;
      copy.in_parts = copy.begun = false;
      give_memory(slot, *extent);
      copy.transfer = next_transfer++;
      copy.since = now;
      transfers[copy.transfer] = slot;
      out->stores.push_back({copy.transfer, copy.device, copy.at, std::move(m.data)});
      return;
    }
  }
  set_relays(slot, m.relays);  // until it is known whether there is memory for it: in this step
  if (remote[m.from.value].worker == options.self)
    try_offer(slot, false);
  else
    list_fresh(slot);
}

void Core::Impl::on_grant(const msg::Grant& m) {
  if (m.transfer >> msg::kTransferBits != 0) return void(++counts.stale);  // nobody numbers them so
  if (m.via) return on_relayed_grant(m);
  const int d = local(m.from);
  const auto array = array_by_id.find(m.block.array.value);
  if (d < 0 || array == array_by_id.end() || !valid_block(m.block, array->second))
    return void(++counts.stale);
  const Slot slot = find_copy(array->second, m.block.block, static_cast<std::uint16_t>(d));
  // Offered, and then it could not be read back: the reader is to ask again, and be told why. A client has been told.
  const auto reader = remote.find(m.to.value);
  if (slot != kNone && copies[slot].state == CopyState::kFailed && reader != remote.end() &&
      !reader->second.client)
    return say(m.from, m.to, m.block, msg::RelayWord::kMissing, m.transfer);
  if (slot == kNone || !whole(copies[slot])) return void(++counts.stale);
  const Copy& copy = copies[slot];
  const bool in_memory = copy.state == CopyState::kSealed;
  in_memory ? lend(slot, m.to) : send_from_below(slot, m.to);
  const bool guest = !in_memory && copy.tier == Tier::kNeighbour;
  out->transmits.push_back({remote[m.to.value].worker, m.transfer, guest ? lodging_of(copy) : copy.at,
                            copy.bytes, in_memory || guest ? -1 : copy.below.offset, copy.tier, false,
                            m.block, m.from, m.to, m.in_parts});
}

// Nothing has been sent, or not all of it: whoever waits for it is to try again, or elsewhere. What it has by now stays.
void Core::Impl::on_not_sent(const NotSent& event) {
  const auto to = remote.find(event.to.value);
  if (to == remote.end() || to->second.lost) return void(++counts.stale);
  ++counts.not_sent;
  say(event.from, event.to, event.block, msg::RelayWord::kMissing, event.transfer);
}

void Core::Impl::on_done(const msg::Done& m) {
  const int d = local(m.from);
  if (d < 0) return void(++counts.stale);
  const auto array = array_by_id.find(m.block.array.value);
  const auto op = op_by_id.find(m.op.value);
  if (op == op_by_id.end()) return park(m, m.op);
  if (m.also > last_op) return park(m, m.also);
  if (array == array_by_id.end() || m.to == m.from || !valid_block(m.block, array->second)) {
    return void(++counts.stale);
  }
  Slot slot = find_copy(array->second, m.block.block, static_cast<std::uint16_t>(d));
  if (slot == kNone) {
    // A user that failed does not wait for the block: its word may come before the block's task is expanded here.
    if (!to_come(array->second, m.block.block, m.from)) return void(++counts.stale);
    slot = make_copy(array->second, m.block.block, static_cast<std::uint16_t>(d), m.from);
  }
  drop_use(slot, op->second, m.to);
}

void Core::Impl::on_gone(const msg::Gone& m) {
  const int d = local(m.to);
  const auto array = array_by_id.find(m.block.array.value);
  if (d < 0 || array == array_by_id.end() || !valid_block(m.block, array->second))
    return void(++counts.stale);
  const Slot slot = find_copy(array->second, m.block.block, static_cast<std::uint16_t>(d));
  if (slot == kNone || copies[slot].kind == CopyKind::kProduced ||
      copies[slot].state != CopyState::kExpected) {
    return void(++counts.stale);
  }
  fail_copy(slot, outcome({Errc::kWorkerLost, "block " + std::to_string(m.block.block) + " of array " +
                                                  std::to_string(m.block.array.value) + " is gone"}));
}

void Core::Impl::on_transfer(const TransferDone& event) {
  if (event.transfer == probe_transfer && event.held) return;  // its memory is the shell's
  if (event.transfer == probe_transfer) return probe_arrived(event);
  if (const auto gone = abandoned.find(event.transfer); gone != abandoned.end()) {
    if (!event.held) abandoned_over(event.transfer);
    return;
  }
  const auto it = transfers.find(event.transfer);
  if (it == transfers.end()) return void(++counts.stale);
  const Slot slot = it->second;
  transfers.erase(it);
  Copy& copy = copies[slot];
  TW_CHECK(copy.state == CopyState::kReceiving && copy.transfer == event.transfer,
           "a transfer ended that was not on");
  transfer_ended(copy, event.failed.code == Errc::kOk);
  leave_window(copy);
  std::vector<Slot> claims;
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) claims.push_back(uses[u].op);
  if (event.failed.code == Errc::kOk) {
    took_in(slot, event.lane);
    copy.kind = CopyKind::kReplica;  // ours now: the lender owes us nothing more
    copy.state = CopyState::kSealed;
    copy.via = {};
    copy.pulls = false;
    const DeviceId here = devices[copy.device].spec.id;
    if (copy.relays && !copy.begun)
      say(here, copy.source, {arrays[copy.array].id, copy.block}, msg::RelayWord::kHas);
    refix(slot);
    for (Slot op : claims) owe_done(copy, op);  // kernels may still read what was lent before (keep)
    if (copy.kept_open) kept_here(slot);
    wake(slot);
    usable(slot);
  } else {
    transfer_failed(event.lane);
    // Never published. The memory is free if the transport has let go of it.
    if (event.held) {
      abandoned[event.transfer] = {copy.device, lose_memory(slot), {}, copy.bytes};
    } else {
      devices[copy.device].arena.free(lose_memory(slot), alloc::Fence{});
      devices[copy.device].memory_freed = true;
    }
    copy.state = CopyState::kExpected;
    copy.kind = CopyKind::kRemote;
    if (std::exchange(copy.pulls, false)) forget_slabs(copy.source);  // from now on it is sent
    stop_relaying(slot);
    const DeviceId via = std::exchange(copy.via, {});
    // A link that broke says nothing of the block: it is had again when there is another, or its peer is lost.
    const bool broke = event.failed.code == Errc::kUnavailable && ++copy.breaks < kMaxBreaks;
    const bool again = (via || broke || ++copy.attempts < kMaxAttempts) && !remote[copy.source.value].lost;
    if (again && copy.kept_open) {
      copy.state = CopyState::kOffered;
      list_ungranted(slot);
    } else if (again && !claims.empty()) {
      const bool owners_way = !via && event.failed.code != Errc::kUnavailable;
      owners_way ? go_round(slot, claims.front()) : subscribe(slot, claims.front(), via);
    } else {
      fail_copy(slot,
                outcome({event.failed.code, "transfer of block " + std::to_string(copy.block) + " of array " +
                                                std::to_string(arrays[copy.array].id.value) + ": " +
                                                event.failed.message}));
    }
  }
  std::vector<Slot> spent;  // claims that ended while the bytes were on their way
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (uses[u].left <= 0) spent.push_back(uses[u].op);
  }
  if (spent.empty()) return maybe_release(slot);
  end_claims(slot, spent, devices[copy.device].spec.id);
}

// Drops several claims of one device; the copy may go with the last of them.
void Core::Impl::end_claims(Slot slot, const std::vector<Slot>& claims, DeviceId device) {
  const Slot array = copies[slot].array;
  const std::int64_t block = copies[slot].block;
  const std::uint16_t d = copies[slot].device;
  for (Slot op : claims) {
    if (find_copy(array, block, d) != slot) return;
    drop_use(slot, op, device);
  }
}

}  // namespace tilewise::worker
