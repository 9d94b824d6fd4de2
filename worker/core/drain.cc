// A worker that is to leave, seen from itself and from those who take over its blocks. The scheduler decides (its drain.cc); the
// end is a loss that costs nothing, since everything needed is elsewhere by then. See docs/design/drain.md.
#include "keeping.h"
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

constexpr TimeNs kPatienceNs =
    kSecond;  // with what has begun and cannot go on: others wait for what is not begun
constexpr TimeNs kReadersNs = 2 * kSecond;   // with kernels of other processes that read a GPU's blocks here
constexpr TimeNs kClientsNs = 10 * kSecond;  // with clients that do not take what is on its way to them

}  // namespace

void Core::Impl::apply_drain(const msg::Drain& drain) {
  const bool myself = drain.peer == options.self;
  if (!myself && !peers.contains(drain.peer.value)) return void(++counts.stale);
  const auto enter = [&](Stage next) { stage = next, stage_since = now; };
  switch (drain.order) {
    case msg::DrainOrder::kGoOn: {
      if (myself) {
        leaving.erase(drain.peer.value);
        return go_on();
      }
      Leaving& of = leaving[drain.peer.value];
      of.round = drain.round;
      of.ending = true;
      of.told = false;
      return end_keeping(drain.peer, false);
    }
    case msg::DrainOrder::kStop: {
      Leaving& mine = leaving[drain.peer.value];
      mine.round = drain.round;
      mine.told = !myself;
      mine.ending = false;
      if (myself && stage == Stage::kWorks) enter(Stage::kStops);
      return;
    }
    case msg::DrainOrder::kMove:
      leaving[drain.peer.value].round = drain.round;
      leaving[drain.peer.value].told = myself;
      for (const msg::Drain::Keep& k : drain.keeps) {
        const auto array = array_by_id.find(k.array.value);
        const int d = local(k.to);
        if (d < 0 || array == array_by_id.end() || !remote.contains(k.from.value)) continue;
        for (const msg::Range& range : k.blocks) {
          for (std::int64_t i = 0; i < range.count; ++i) {
            if (valid_block({k.array, range.first + i}, array->second))
              keep(array->second, range.first + i, static_cast<std::uint16_t>(d), k.from, drain.peer);
          }
        }
      }
      return;
    case msg::DrainOrder::kLeave:
      if (myself) enter(Stage::kGoes);
      return;
  }
}

// Takes a copy of its own, if there is none. What is read in place at the leaver is no copy: it is fetched like any other block,
// and kernels that read it there run to their end.
void Core::Impl::keep(Slot array, std::int64_t block, std::uint16_t d, DeviceId from, WorkerId leaver) {
  Slot slot = find_copy(array, block, d);
  if (slot == kNone) slot = make_copy(array, block, d, from);
  Copy& copy = copies[slot];
  if (copy.state == CopyState::kFailed) return maybe_release(slot);
  if (copy.kept || copy.kind == CopyKind::kProduced) {  // an owner has it, or will have it
    if (!copy.kept && whole(copy)) copy.kept = leaver;
    return;
  }
  copy.kept = leaver;
  copy.spare = false;
  copy.pulls &=
      copy.state == CopyState::kReceiving;  // it is sent: a loan may end with the claim that it was made for
  if (copy.kind == CopyKind::kBorrowed) orphan(slot);
  if (whole(copy)) return;
  copy.kept_open = true;
  ++leaving[leaver.value].left;
  ++counts.moved;
  if (copy.state != CopyState::kExpected) return;  // offered or on its way
  copy.source = from;
  copy.state = CopyState::kOffered;
  list_ungranted(slot);
  devices[d].memory_freed = true;  // try_grants()
}

// It has come, or will not come.
void Core::Impl::kept_here(Slot slot) {
  Copy& copy = copies[slot];
  copy.kept_open = false;
  Leaving& of = leaving[copy.kept.value];
  --of.left;
  of.told = false;
  if (of.ending) copy.kept = {};
}

// Copies that became the owner's stay as such; the others go, unless they are used. While the leaver lives, what is on its way
// from there is waited for: nobody else keeps it from going meanwhile.
void Core::Impl::end_keeping(WorkerId leaver, bool lost) {
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    for (Slot c = arrays[a].copies; c != kNone;) {
      Copy& copy = copies[c];
      const Slot next = copy.next;
      if (copy.kept == leaver && (lost || !copy.kept_open || copy.state != CopyState::kReceiving)) {
        if (copy.kept_open) kept_here(c);
        copy.kept = {};
        if (copy.state == CopyState::kOffered && copy.uses != kNone && !lost) {
          end_offer(c);
          stop_relaying(c);
          copy.state = CopyState::kExpected;
          copy.via = {};
          copy.source = owner_of(a, copy.block);  // what it was to be taken from may have had a second copy
          subscribe(c, uses[copy.uses].op);       // whoever waits for it hears from the owner as before
        }
        maybe_release(c);
      }
      c = next;
    }
  }
}

void Core::Impl::end_keeping_for_the_lost() {
  for (auto it = leaving.begin(); it != leaving.end();) {
    const WorkerId leaver{it->first};
    if (leaver == options.self || peers.contains(leaver.value)) {
      ++it;
      continue;
    }
    end_keeping(leaver, true);
    it = leaving.erase(it);
  }
}

// It stays after all: what was held back goes on, and what was kept back may go.
void Core::Impl::go_on() {
  if (stage == Stage::kWorks || stage == Stage::kGoes) return;
  stage = Stage::kWorks;
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    ArrayState& array = arrays[a];
    for (Slot c = array.copies; c != kNone; c = copies[c].next) {
      if (!std::exchange(copies[c].handed_on, false)) continue;
      refix(c);
      maybe_leave_place(c);
    }
    release_soon(a);
  }
  for (DeviceState& device : devices) device.memory_freed = true, device.last_change = now;
}

// Nothing runs, nothing is coming in, and nothing that has begun waits but for what may never come while this worker holds back.
bool Core::Impl::at_rest() {
  if (!transfers.empty()) return false;
  bool begun = false;
  TimeNs moved = stage_since;
  for (const DeviceState& device : devices) {
    if (!idle(device)) return false;
    moved = std::max(moved, device.last_change);
    for (const auto& [place, q] : device.queues) {
      for (const Slot t : queues[q].order) begun |= !tasks[t].finished && tasks[t].admitted;
      for (const Slot t : queues[q].eager) begun |= tasks[t].admitted;
    }
  }
  if (!begun) return true;
  if (now - moved < kPatienceNs) return false;
  ++counts.impatient;
  return true;
}

bool Core::Impl::owes_clients() const {
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    for (Slot c = arrays[a].copies; c != kNone; c = copies[c].next) {
      if (!whole(copies[c])) continue;
      for (Slot u = copies[c].uses; u != kNone; u = uses[u].next) {
        const auto reader = remote.find(uses[u].device.value);
        if (reader != remote.end() && reader->second.client && !reader->second.lost) return true;
      }
    }
  }
  return false;
}

// A GPU's memory goes with its process, also from under those who read it in place.
bool Core::Impl::lends_gpus() const {
  return std::ranges::any_of(devices, [&](const DeviceState& device) {
    return device.spec.kind != 0 &&
           std::ranges::any_of(device.resident, [&](Slot c) { return copies[c].lent > 0; });
  });
}

void Core::Impl::watch_leaving() {
  if (stage == Stage::kStops && at_rest()) {
    stage = Stage::kStill;
    stage_since = now;
  }
  if (stage == Stage::kGoes && !told_leave && (!owes_clients() || now - stage_since >= kClientsNs) &&
      (!lends_gpus() || now - stage_since >= kReadersNs)) {
    told_leave = true;
    out->leave = true;
  }
  for (auto it = leaving.begin(); it != leaving.end();) {
    const WorkerId leaver{it->first};
    Leaving& of = it->second;
    const bool busy = leaver == options.self && stage < Stage::kStill;
    const bool now_is_early = of.left > 0 && now - told_at < options.report_ns;
    if (!of.told && !busy && !now_is_early) {
      told_at = now;
      of.told = true;
      out->to_scheduler.push_back(msg::Drained{leaver, of.round, of.left});
    }
    it = of.ending && of.told && of.left == 0 ? leaving.erase(it) : std::next(it);
  }
}

TimeNs Core::Impl::leaving_deadline() const {
  TimeNs next = now + 3600 * kSecond;
  if (stage == Stage::kStops) next = std::min(next, now + kPatienceNs);
  if (stage == Stage::kGoes && !told_leave) {
    for (const TimeNs patience : {kReadersNs, kClientsNs})
      if (stage_since + patience > now) next = std::min(next, stage_since + patience);
  }
  for (const DeviceState& device : devices)
    if (idle(device) && cannot_keep(device, copies) && asks_slab_again(device))
      next = std::min(next, keep_again_at(device, options.stuck_ns));
  for (const auto& [leaver, of] : leaving)
    if (!of.told && of.left > 0) next = std::min(next, told_at + options.report_ns);
  return next;
}

}  // namespace tilewise::worker
