// Who may send its block now: offered blocks in the order in which tasks need them, as far as there is memory (memory.cc) and as
// many bytes may be on their way (window.h).
//
// An offered block that has not been granted stands in one place: among those of this step, whose turn comes when all that the step
// brings is known; in the window, which is full; or with its device, which has no memory for it.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

// Where in the total order of tasks the block is read first on its device. What is kept for others only comes last.
Turn Core::Impl::turn_of(const Copy& copy) {
  const DeviceState& device = devices[copy.device];
  Turn first;
  const auto consider = [&](const OpState& op, std::int64_t ordinal) {
    const Slot q = queue_of(device, op.run.graph);
    if (q == kNone) return;
    const QueuePlace& place = queues[q].place;
    first = std::min(first, Turn{-std::int64_t{place.priority}, place.graph, op.order.value, ordinal});
  };
  for (Slot t = copy.waiters; t != kNone; t = tasks[t].next_waiter)
    consider(ops[tasks[t].op], tasks[t].ordinal);
  if (copy.waiters != kNone) return first;
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    const OpState& op = ops[uses[u].op];
    if (uses[u].device == device.spec.id && op.shares[copy.device].owned > 0)
      consider(op, next_point(copy, op));
  }
  return first;
}

void Core::Impl::list_ungranted(Slot slot) {
  std::deque<Ungranted>& list = devices[copies[slot].device].ungranted;
  const Turn turn = turn_of(copies[slot]);
  const auto at = std::ranges::upper_bound(list, turn, {}, &Ungranted::turn);
  list.insert(at, {turn, slot});
  copies[slot].stands = Stands::kForMemory;
}

// Of a peer's offer: what else this step brings may be needed sooner.
void Core::Impl::list_fresh(Slot slot) {
  fresh_offers.push_back(slot);
  copies[slot].stands = Stands::kFresh;
}

void Core::Impl::grant_fresh() {
  if (fresh_offers.empty()) return;
  std::vector<std::pair<Turn, Slot>> in_order;
  const bool alone = fresh_offers.size() == 1;
  for (const Slot slot : std::exchange(fresh_offers, {}))
    if (copies[slot].stands == Stands::kFresh)
      in_order.emplace_back(alone ? Turn{} : turn_of(copies[slot]), slot);
  std::ranges::sort(in_order);
  for (const auto& [turn, slot] : in_order)
    if (copies[slot].stands == Stands::kFresh) try_offer(slot, false);
}

// Somebody's bytes have come, or will not, or who stood first has left.
void Core::Impl::open_window() {
  while (window.take_news())
    for (Slot slot = window.next(); slot != kNone; slot = window.next()) try_offer(slot, true);
}

// Surplus memory is granted at once; when it is short, only to what a task is waiting for. Who is to pass the block on waits for its
// turn, not for memory, but for a slab that the arena has just asked for.
void Core::Impl::try_offer(Slot slot, bool has_turn) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  copy.stands = Stands::kNowhere;
  const bool may = roomy(device, copy.bytes) || copy.waiters != kNone;
  if (may && grant(slot, lowest_waits(slot), has_turn)) return;
  if (!may || !device.slab_pending) stop_relaying(slot);
  list_ungranted(slot);
}

bool Core::Impl::lowest_waits(Slot copy) const {
  for (Slot t = copies[copy].waiters; t != kNone; t = tasks[t].next_waiter) {
    if (is_lowest(t)) return true;
  }
  return false;
}

// What tasks wait for comes first; a large block that does not fit does not keep smaller ones out.
void Core::Impl::try_grants(std::uint16_t d) {
  DeviceState& device = devices[d];
  for (const bool waited : {true, false}) {
    std::erase_if(device.ungranted, [&](const Ungranted& entry) {
      const bool waits = copies[entry.copy].waiters != kNone;
      return waits == waited && grant(entry.copy, waited && lowest_waits(entry.copy), false);
    });
  }
}

// Memory for an offered block, then the word to the sender; or a place in the window. False: there is no memory for it. Settled memory
// only: the transport is not a stream. Who holds still to leave takes nothing in: the sender could let go of it before it is asked
// what it has. What comes without a grant, or inside this process, takes nothing from others on their way.
bool Core::Impl::grant(Slot slot, bool lowest, bool has_turn) {
  if (stage >= Stage::kStill) return false;
  Copy& copy = copies[slot];
  const DeviceId sender = sender_of(copy);
  const WorkerId peer = remote[sender.value].worker;
  const bool counts_there = !copy.pulls && peer != options.self && copy.bytes > 0;
  if (counts_there && !has_turn) {
    const Turn turn = window.anyone_waits() ? turn_of(copy) : Turn{};
    if (!window.admits(peer, copy.bytes, turn)) {
      window.wait(slot, peer, copy.bytes, window.anyone_waits() ? turn : turn_of(copy));
      copy.stands = Stands::kForTurn;
      ++counts.held_up;
      return true;
    }
  }
  alloc::Fence none;
  const auto extent =
      take(copy.device, copy.bytes, true, asker_of(copy, lowest ? Claim::kLowest : Claim::kOrdinary), none);
  if (!extent) return false;
  devices[copy.device].last_change = now;
  const MemoryRef from = copy.at;  // where it is lent, if it is
  give_memory(slot, *extent);
  copy.state = CopyState::kReceiving;
  copy.stands = Stands::kNowhere;
  copy.kind = CopyKind::kRemote;
  copy.transfer = next_transfer++;
  copy.since = now;
  copy.in_parts = !copy.pulls && (copy.relays || copy.via) &&
                  copy.bytes >= std::max<std::int64_t>(options.parts_bytes, 1);
  copy.begun = false;
  transfers[copy.transfer] = slot;
  transfer_began(copy);
  if (copy.pulls) {
    ++counts.pulled;
    TW_CHECK(from.device == copy.source && !copy.via, "a block is copied from who did not lend it");
    out->pulls.push_back({peer, copy.transfer, copy.device, from, copy.at, copy.bytes});
    return true;
  }
  if (counts_there) {
    window.begin(peer, copy.bytes);
    copy.in_window = peer;
    counts.in_flight_high = std::max(counts.in_flight_high, window.bytes());
  }
  out->receives.push_back({peer, copy.transfer, copy.device, copy.at, copy.bytes, copy.in_parts});
  batch_to(sender).grants.push_back({{arrays[copy.array].id, copy.block},
                                     copy.source,
                                     devices[copy.device].spec.id,
                                     copy.transfer,
                                     copy.via,
                                     copy.in_parts});
  return true;
}

// The bytes have come or will not.
void Core::Impl::leave_window(Copy& copy) {
  if (const WorkerId peer = std::exchange(copy.in_window, {})) window.end(peer, copy.bytes);
}

// An offered block does not wait any more, though it has no memory: whoever was put off for its sake may go on.
void Core::Impl::end_offer(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  const Stands stood = std::exchange(copy.stands, Stands::kNowhere);
  if (stood == Stands::kForMemory)
    std::erase_if(device.ungranted, [&](const Ungranted& u) { return u.copy == slot; });
  if (stood == Stands::kForTurn) window.leave(slot);
  copy.pulls = false;
  device.memory_freed |= device.shares.any_put_off();
}

// The offered block without memory that a task waits for, or none. What waits for its turn does so for others' bytes, which come.
Slot Core::Impl::ungranted_input(const DeviceState& device, Slot t) const {
  for (const Ungranted& entry : device.ungranted) {
    for (Slot waiter = copies[entry.copy].waiters; waiter != kNone; waiter = tasks[waiter].next_waiter) {
      if (waiter == t) return entry.copy;
    }
  }
  return kNone;
}

}  // namespace tilewise::worker
