// Full sweeps for tests: every index against every other, and a digest of all state.
#include "state.h"

#include <algorithm>
#include <bit>
#include <set>
#include <sstream>

namespace tilewise::worker {

// A copy's tiers agree with its state, and its memory is listed and counted as what it is.
void Core::Impl::check_tiers(Slot c, Tiers& tiers) const {
  const Copy& copy = copies[c];
  const DeviceState& device = devices[copy.device];
  const bool spilled = copy.state == CopyState::kSpilled;
  std::int32_t lent = 0, sending = 0;
  Slot last = copy.uses;
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    lent += uses[u].lent, sending += uses[u].sending;
    TW_CHECK(ops[uses[last].op].run.id <= ops[uses[u].op].run.id, "claims are not in the order of ops");
    if (uses[u].op != uses[last].op) last = u;
    for (Slot v = copy.uses; v != u; v = uses[v].next) {
      TW_CHECK(uses[v].device != uses[u].device ||
                   (uses[v].op != uses[u].op && uses[v].offered == uses[u].offered &&
                    uses[v].lent == uses[u].lent && uses[v].sending == uses[u].sending),
               "a claim is there twice, or a device's are not alike");
    }
  }
  TW_CHECK(copy.last_uses == last, "the last op's claims are elsewhere");
  TW_CHECK(
      !copy.pulls ||
          (!copy.via && (copy.state == CopyState::kReceiving ||
                         (copy.state == CopyState::kOffered && !copy.kept && copy.at.device == copy.source))),
      "a copy that nobody lends is to be copied from its lender");
  TW_CHECK(copy.lent == lent && copy.sending == sending, "loans of a copy miscounted");
  TW_CHECK(!spilled || (!copy.has_memory && copy.stored), "a spilled copy is not below alone");
  TW_CHECK(copy.state != CopyState::kReturning || (copy.has_memory && copy.stored && copy.io != 0),
           "a returning copy comes from nowhere");
  TW_CHECK(!copy.stored || whole(copy), "an unfinished copy is below");
  TW_CHECK(!copy.left_below || (!copy.stored && !copy.writing && (copy.sending > 0 || copy.handed_on)),
           "a place below is kept for nobody, or twice");
  TW_CHECK(!(copy.stored || copy.writing || copy.left_below) || may_use(device, copy.tier),
           "a copy is in a tier that its device does not use");
  TW_CHECK(!(copy.writing && copy.stored) && (!copy.writing || (copy.has_memory && copy.io != 0)),
           "a copy is written twice, or from nowhere");
  const bool aside = copy.io != 0 && ios.at(copy.io).way == Way::kAside;
  TW_CHECK(!aside || (copy.has_memory && copy.state == CopyState::kSealed && device.clearing),
           "a copy moves that is not at rest, or for nothing");
  TW_CHECK((copy.io != 0) == (aside || copy.writing || copy.demoting || copy.state == CopyState::kReturning),
           "a copy's way to or from below is lost");
  TW_CHECK(!copy.demoting || (copy.tier != Tier::kDisk && spilled),
           "a copy is passed on from where it is not");
  TW_CHECK(
      copy.io == 0 || (ios.at(copy.io).copy == c && (ios.at(copy.io).way == Way::kOnward) == copy.demoting &&
                       (copy.demoting || aside || ios.at(copy.io).tier == copy.tier)),
      "a way to or from below is another copy's, or leads elsewhere");
  TW_CHECK(copy.fixed == (copy.has_memory && (copy.state != CopyState::kSealed || copy.lent > 0 ||
                                              copy.relayed > 0 || copy.handed_on)),
           "a copy is fixed without cause, or not though it must be");
  TW_CHECK(!copy.has_memory ||
               (copy.resident_at < device.resident.size() && device.resident[copy.resident_at] == c),
           "a copy with memory is not among the device's");
  tiers.resident += copy.has_memory;
  if (copy.has_memory && copy.bytes > 0)
    tiers.bytes[arrays[copy.array].session] += in_arena(copy.extent.bytes);
  if (copy.writing) tiers.leaving[arrays[copy.array].session] += in_arena(copy.extent.bytes);
  tiers.wanted += copy.wanted;
  const auto tier = static_cast<std::size_t>(copy.tier);
  if (spilled) tiers.spilled[tier] += copy.bytes;
  if (spilled && copy.tier == Tier::kPinned) {
    const std::vector<Slot>& listed = store(copy.tier).spilled;
    TW_CHECK(copy.resident_at < listed.size() && listed[copy.resident_at] == c,
             "a spilled copy is not among its tier's");
    ++tiers.pinned;
  }
  if (!copy.stored && !copy.writing && !copy.left_below) return;
  tiers.below[static_cast<std::size_t>(tier_of_place(copy))] += in_tier(copy.below.bytes);
  if (copy.tier != Tier::kNeighbour) return;
  const Lodging& lodging = copy.lodging;
  const std::vector<Slot>& guests = devices[lodging.device].guests;
  TW_CHECK(lodging.listed_at < guests.size() && guests[lodging.listed_at] == c,
           "a guest is on nobody's list");
  tiers.lodged.resize(devices.size());
  tiers.lodged[lodging.device] += in_arena(lodging.extent.bytes);
}

// Whoever waits, waits for somebody who will answer.
void Core::Impl::check_tree(const Copy& copy) const {
  const Tree& tree = trees[copy.tree];
  const auto pending = [](const Leader& leader) {
    return leader.state == Leader::State::kAsked || leader.state == Leader::State::kWaiting;
  };
  const auto waits_rightly = [&](std::size_t i) {
    const auto above = Tree::parent_of(i, fan_out_of(copy));
    return above && pending(tree.leaders[*above]);
  };
  std::set<std::uint32_t> met;
  for (std::size_t i = 0; i < tree.leaders.size(); ++i) {
    const Leader& leader = tree.leaders[i];
    TW_CHECK(met.insert(leader.host).second && leader.host != 0, "two leaders of a host, or one of this");
    TW_CHECK(leader.state != Leader::State::kWaiting || waits_rightly(i), "a leader waits for nobody");
    TW_CHECK(!pending(leader) || leader.state == Leader::State::kWaiting || is_far(leader.device),
             "a leader is asked who is lost");
  }
  if (!whole(copy)) return;
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (!uses[u].subscribed || uses[u].answered || !is_far(uses[u].device)) continue;
    const std::uint32_t host = remote.at(uses[u].device.value).host;
    const bool waits = std::any_of(tree.leaders.begin(), tree.leaders.end(), [&](const Leader& leader) {
      return leader.host == host && pending(leader);
    });
    TW_CHECK(waits, "a device waits for a block that nobody is to bring");
  }
}

// Each session's memory is its own, and who has neither work nor memory here has no share.
void Core::Impl::check_shares(const DeviceState& device, const Tiers& counted) const {
  std::map<SessionId, int> working;
  for (const auto& [place, q] : device.queues) ++working[queues[q].session];
  std::size_t sessions = working.size();
  for (const auto& [session, bytes] : counted.bytes) sessions += !working.contains(session);
  TW_CHECK(sessions == device.shares.all().size(), "a session has no share of a device, or one for nothing");
  for (const ByteShares::Share& share : device.shares.all()) {
    const auto of = [&](const std::map<SessionId, std::int64_t>& counts_of) {
      const auto it = counts_of.find(share.session);
      return it == counts_of.end() ? 0 : it->second;
    };
    TW_CHECK(share.bytes == of(counted.bytes) && share.leaving == of(counted.leaving),
             "a session's memory on a device is miscounted");
    TW_CHECK(share.queues == working[share.session], "a session's queues on a device are miscounted");
  }
}

// Who has something to do is in the list of that, in its place; who has not is in none.
void Core::Impl::check_queues(const DeviceState& device) const {
  const auto d = static_cast<std::uint16_t>(&device - devices.data());
  std::map<SessionId, int> of_session;
  std::size_t to_expand = 0, blocked = 0;
  const auto is_in = [](const QueueList& list, Slot q) {
    return std::ranges::count(list, q, &QueueEntry::queue) == 1;
  };
  for (const QueueEntry& entry : device.queues) {
    const Queue& queue = queues[entry.queue];
    TW_CHECK(queue.device == d && entry.place == queue.place, "a queue is not where it thinks");
    TW_CHECK(queue_of(device, queue.place.graph) == entry.queue, "a graph has two queues on a device");
    ++of_session[queue.session];
    const auto share = std::ranges::find(device.fair, queue.session, &FairShare::session);
    TW_CHECK(share != device.fair.end(), "a session with a queue has no share");
    TW_CHECK(queue.has_ready == !queue.ready.empty() && queue.has_ready == is_in(share->ready, entry.queue),
             "a queue's ready tasks are not listed");
    TW_CHECK(queue.has_blocked == !queue.blocked.empty() &&
                 queue.has_blocked == is_in(device.blocked, entry.queue),
             "a queue's blocked tasks are not listed");
    TW_CHECK(queue.to_expand == is_in(device.to_expand, entry.queue), "a queue to look at is not listed");
    to_expand += queue.to_expand, blocked += queue.has_blocked;
    if (queue.to_expand || stage != Stage::kWorks) continue;
    TW_CHECK(queue.usable.empty() && (!queue.ops.empty() || queue.live > 0), "nobody looks at a queue");
    if (queue.ops.empty()) continue;
    const ShareState& first = ops[queue.ops.front()].shares[d];
    TW_CHECK(first.next < first.owned && (!first.open() || !has_room(d, queue)),
             "nobody expands a task that could be");
  }
  TW_CHECK(to_expand == device.to_expand.size() && blocked == device.blocked.size() &&
               device.queue_by_graph.size() == device.queues.size(),
           "a queue is listed that there is not");
  const auto later = [](const QueueEntry& a, const QueueEntry& b) { return !(a.place < b.place); };
  TW_CHECK(std::ranges::adjacent_find(device.queues, later) == device.queues.end(),
           "queues are out of order");
  for (const FairShare& share : device.fair)
    TW_CHECK(share.queues == of_session[share.session], "a session's queues on a device are miscounted");
}

void Core::Impl::check_below(const std::vector<Tiers>& tiers) const {
  std::vector<Tiers> moving(devices.size());
  std::array<std::int64_t, kTiers> below{}, under_way{};
  std::int64_t demoting = 0;
  std::size_t pinned = 0;
  for (const auto& [number, io] : ios) {
    Tiers& of = moving[io.device];
    ++of.ios;
    if (io.way == Way::kAside) continue;
    ++under_way[static_cast<std::size_t>(io.tier)];
    if (io.from_host) {
      of.writing += io.bytes;
      below[static_cast<std::size_t>(io.tier)] += in_tier(io.below.bytes);
      if (io.copy == kNone) below[static_cast<std::size_t>(io.lodging.promised)] += in_tier(io.from.bytes);
      continue;
    }
    if (io.way == Way::kOnward) {
      ++demoting;
      below[static_cast<std::size_t>(Tier::kDisk)] += in_tier(io.below.bytes);
      if (io.copy == kNone) below[static_cast<std::size_t>(Tier::kPinned)] += in_tier(io.from.bytes);
      continue;
    }
    (io.way == Way::kOut ? of.writing : of.reading[static_cast<std::size_t>(io.tier)]) += io.bytes;
    const Tier place = io.tier == Tier::kNeighbour ? io.lodging.promised : io.tier;
    if (io.copy == kNone) below[static_cast<std::size_t>(place)] += in_tier(io.below.bytes);
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const DeviceState& device = devices[d];
    TW_CHECK(tiers[d].resident == device.resident.size(), "a device lists memory of no copy");
    TW_CHECK(tiers[d].wanted == device.returns.size(), "a device lists copies that nobody wants back");
    TW_CHECK(tiers[d].spilled == device.spilled_bytes, "spilled bytes miscounted");
    TW_CHECK(moving[d].writing == device.writing_bytes && moving[d].reading == device.reading_bytes &&
                 moving[d].ios == device.ios,
             "ways to and from below miscounted");
    for (std::size_t t = 0; t < kTiers; ++t) below[t] += tiers[d].below[t];
    pinned += tiers[d].pinned;
    check_shares(device, tiers[d]);
  }
  TW_CHECK(demoting == store(Tier::kPinned).demoting && pinned == store(Tier::kPinned).spilled.size(),
           "blocks that are in pinned memory alone, or leave it for the disk, are miscounted");
  for (std::size_t t = 0; t < kTiers; ++t) {
    stores[t].places.check_invariants();
    TW_CHECK(below[t] == stores[t].places.bytes_in_use(), "places in a tier leaked");
    TW_CHECK(below[t] <= stores[t].places.max_bytes(), "a tier holds more than its bound");
    TW_CHECK(under_way[t] == stores[t].ios, "what is under way to and from a tier is miscounted");
  }
}

void Core::Impl::check_window(const std::map<WorkerId, std::int64_t>& on_their_way,
                              std::int64_t waiting) const {
  std::int64_t bytes = 0;
  for (const auto& [peer, there] : on_their_way) {
    bytes += there;
    TW_CHECK(window.bytes_of(peer) == there, "bytes on their way from a peer are miscounted");
  }
  TW_CHECK(window.bytes() == bytes, "bytes on their way are miscounted");
  TW_CHECK(window.waiting() == waiting, "blocks that wait for their turn are miscounted");
  TW_CHECK(!window.stalls(), "a block waits for a turn that it could have");
}

void Core::Impl::check_invariants() const {
  std::map<Slot, std::int64_t> sharing;  // entry -> ops and kept plans that refer to it
  for (const auto& [id, op] : op_by_id) ++sharing[ops[op].shared];
  for (const auto& [number, plan] : kept_plans)
    for (const KeptPlan::KeptOp& kept : plan.ops) ++sharing[kept.shared];
  for (const auto& [entry, users] : sharing)
    TW_CHECK(entries[entry].users == users, "an op's entry counts its users wrongly");
  TW_CHECK(entries.live() == static_cast<std::int64_t>(sharing.size()), "an op's entry outlives its users");
  // Arrays' lists, the devices' indexes and the pool agree.
  std::int64_t listed = 0, listed_uses = 0, flying = 0;
  std::vector<std::int64_t> memory(devices.size(), 0);
  std::vector<Tiers> tiers(devices.size());
  std::int64_t relays = 0, relayed = 0, listed_trees = 0;
  std::int64_t for_memory = 0, for_turn = 0;
  std::map<WorkerId, std::int64_t> in_window;
  std::map<Slot, std::int64_t> open;
  std::map<Slot, Slot> waiting;                                         // task -> copy
  std::map<std::pair<WorkerId, std::uint8_t>, std::int32_t> under_way;  // transfers that count on a link
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    std::int64_t live = 0;
    for (Slot c = arrays[a].copies; c != kNone; c = copies[c].next) {
      const Copy& copy = copies[c];
      ++live;
      TW_CHECK(copy.array == a, "a copy hangs in another array's list");
      TW_CHECK(find_copy(a, copy.block, copy.device) == c, "a copy is not in its device's index");
      TW_CHECK(copy.has_memory || copy.state != CopyState::kEnqueued, "an enqueued copy has no memory");
      TW_CHECK(!(copy.has_memory && copy.kind == CopyKind::kBorrowed),
               "a borrowed copy has memory of its own");
      TW_CHECK(needed(copy) || copy.state == CopyState::kFailed || copy.producer_task != kNone ||
                   arrays[copy.array].to_release != kNone,
               "a copy that nobody needs is still here");
      TW_CHECK(orphans || copy.kind != CopyKind::kRemote || copy.state != CopyState::kExpected ||
                   !remote.at(copy.source.value).lost,
               "a copy waits for a device that was lost, and nobody will look at it again");
      TW_CHECK(copy.has_memory || copy.adopted || copy.kind == CopyKind::kBorrowed ||
                   copy.state != CopyState::kSealed,
               "a block that is here has no memory");
      TW_CHECK(!copy.adopted || (!copy.has_memory && copy.kind == CopyKind::kProduced && adopted.contains(c)),
               "an adopted block has memory of its own, or nobody is told when it goes");
      if (copy.has_memory) memory[copy.device] += in_arena(copy.extent.bytes);
      relays += copy.relays, relayed += copy.relayed;
      TW_CHECK(!copy.relays || (copy.kind != CopyKind::kProduced && copy.kind != CopyKind::kBorrowed &&
                                (copy.state == CopyState::kReceiving || whole(copy) ||
                                 (copy.state == CopyState::kOffered &&
                                  (copy.stands == Stands::kForTurn || devices[copy.device].slab_pending)))),
               "others are sent to a copy that may never come");
      TW_CHECK(!copy.via || copy.state == CopyState::kOffered || copy.state == CopyState::kReceiving,
               "a copy that is not on its way comes from somebody");
      if (copy.tree != kNone) {
        ++listed_trees;
        TW_CHECK(copy.kind == CopyKind::kProduced, "somebody who does not own a block has it passed on");
        check_tree(copy);
      }
      check_tiers(c, tiers[copy.device]);
      TW_CHECK(!copy.timed || copy.state == CopyState::kReceiving, "a transfer that is not on is timed");
      TW_CHECK((copy.stands != Stands::kNowhere && copy.stands != Stands::kFresh) ==
                   (copy.state == CopyState::kOffered),
               "an offered copy that nobody will grant, or one that is listed and not offered");
      TW_CHECK(!copy.in_window || copy.state == CopyState::kReceiving,
               "bytes that are not on their way count");
      for_memory += copy.stands == Stands::kForMemory, for_turn += copy.stands == Stands::kForTurn;
      if (copy.in_window) in_window[copy.in_window] += copy.bytes;
      if (copy.timed) ++under_way[{copy.timed, msg::size_class_of(copy.bytes)}];
      std::set<std::pair<Slot, std::uint32_t>> seen;
      for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
        ++listed_uses;
        ++open[uses[u].op];
        TW_CHECK(seen.insert({uses[u].op, uses[u].device.value}).second,
                 "two claims of one op and device on a copy");
        const bool is_local = uses[u].device == devices[copy.device].spec.id;
        TW_CHECK(is_local || copy.kind == CopyKind::kProduced,
                 "a remote claim on a copy that is not the owner's");
        TW_CHECK(uses[u].left > 0 || copy.state == CopyState::kReceiving, "a spent claim is still here");
      }
      for (Slot t = copy.waiters; t != kNone; t = tasks[t].next_waiter) {
        TW_CHECK(tasks[t].state == TaskState::kWaiting, "a task waits without knowing");
        TW_CHECK(waiting.emplace(t, c).second && tasks[t].waits_for == c, "a task waits for two copies");
        TW_CHECK(copy.state != CopyState::kSealed && copy.state != CopyState::kEnqueued &&
                     copy.state != CopyState::kFailed,
                 "a task waits for a copy that is there");
      }
    }
    TW_CHECK(live == arrays[a].live_copies, "live copies of an array miscounted");
    listed += live;
  }
  TW_CHECK(listed == copies.live(), "a copy belongs to no array");
  TW_CHECK(next_alone == kNone || tasks[next_alone].state == TaskState::kReady,
           "a task that is not ready waits for its turn to run alone");
  for (const auto& [key, link] : links) {
    const auto counted = under_way.find(key);
    TW_CHECK(link.under_way == (counted == under_way.end() ? 0 : counted->second),
             "transfers of a link miscounted");
  }
  for (const auto& [transfer, gone] : abandoned) {
    if (gone.in_window) in_window[gone.in_window] += gone.bytes;
  }
  check_window(in_window, for_turn);
  for (const DeviceState& device : devices) for_memory -= static_cast<std::int64_t>(device.ungranted.size());
  TW_CHECK(for_memory == 0, "copies that want memory are not those that are listed");
  TW_CHECK(listed_uses == uses.live(), "a claim belongs to no copy");
  TW_CHECK(relays == relays_live, "copies that others are sent to miscounted");
  TW_CHECK(relayed == static_cast<std::int64_t>(relaying.size()), "blocks being passed on miscounted");
  TW_CHECK(listed_trees == trees.live(), "a tree belongs to no copy");
  std::int64_t indexed = 0;
  for (const DeviceState& device : devices) indexed += static_cast<std::int64_t>(device.index.size());
  TW_CHECK(indexed == copies.live(), "the index holds a copy that is gone");

  for (const auto& [transfer, gone] : abandoned) memory[gone.device] += in_arena(gone.extent.bytes);
  for (const auto& [t, results] : results_dropped) {
    TW_CHECK(!tasks[t].finished && tasks[t].admitted, "a task that has ended makes something");
    for (const Dropped& result : results) memory[tasks[t].device] += in_arena(result.extent.bytes);
  }
  for (const auto& [number, io] : ios) {
    memory[io.device] += io.has_memory ? in_arena(io.memory.bytes) : 0;
    if (io.copy == kNone) memory[io.lodging.device] += in_arena(io.lodging.extent.bytes);
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::int64_t guests = 0;
    for (const Tiers& of : tiers) guests += of.lodged.empty() ? 0 : of.lodged[d];
    TW_CHECK(guests == devices[d].guest_bytes, "what guests have of a device's memory is miscounted");
    memory[d] += guests;
    int aside = 0;
    for (const auto& [number, io] : ios) aside += io.way == Way::kAside && io.device == d;
    TW_CHECK(aside == (devices[d].clearing ? devices[d].clearing->moving : 0),
             "blocks that move out of the way are miscounted");
    TW_CHECK(!devices[d].cleared, "room that was made is kept for nobody");
    memory[d] += kept_for_room(static_cast<std::uint16_t>(d));
  }
  check_below(tiers);
  std::int64_t live_tasks = 0;
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    const DeviceState& device = devices[d];
    device.arena.check_invariants();
    for (const auto& [number, failure] : device.unexplained) {
      const InFlight* step = device.streams[failure.stream].find(failure.sequence);
      TW_CHECK(step != nullptr && step->number == number, "what failed unexplained is in flight");
    }
    std::int64_t reserve = 0;
    for (const alloc::Extent& extent : device.reserve) reserve += in_arena(extent.bytes);
    TW_CHECK(device.arena.bytes_in_use() == memory[d] + reserve,
             "memory in use is not that of copies, transfers and the reserve");
    check_queues(device);
    for (const StreamState& stream : device.streams) {
      std::uint64_t last = stream.completed;
      for (const InFlight& flight : stream.flight) {
        TW_CHECK(flight.sequence == last + 1, "steps in flight are not consecutive");
        last = flight.sequence;
        TW_CHECK(!tasks[flight.task].finished, "a finished task has a step in flight");
      }
      TW_CHECK(last == stream.issued, "an issued step is neither complete nor in flight");
      flying += static_cast<std::int64_t>(stream.flight.size());
    }
    for (const auto& [place, q] : device.queues) {
      std::int64_t live = 0;
      std::map<Slot, int> listed_in;
      queues[q].ready.for_each([&](Slot t) { ++listed_in[t]; });
      for (Slot t : queues[q].blocked) ++listed_in[t];
      std::vector<Slot> expanded(queues[q].order.begin(), queues[q].order.end());
      expanded.insert(expanded.end(), queues[q].eager.begin(), queues[q].eager.end());
      for (std::size_t i = 0; i < queues[q].eager.size(); ++i) {
        const Task& task = tasks[queues[q].eager[i]];
        TW_CHECK(task.eager && !task.finished && task.eager_at == i, "an eager task is not where it thinks");
        TW_CHECK(!queues[q].ops.empty() && queues[q].ops.front() != task.op,
                 "an eager task whose turn has come");
      }
      for (Slot t : expanded) {
        const Task& task = tasks[t];
        if (task.finished) continue;
        ++live, ++live_tasks;
        for (std::size_t i = 0; i < ops[task.op].outputs.size(); ++i)
          TW_CHECK(task.outputs[i] == kNone || copies[task.outputs[i]].producer_task == t,
                   "a task makes a block that another one makes");
        TW_CHECK(task.device == d && task.queue == q, "a task is in another device's queue");
        const int expected = task.state == TaskState::kReady || task.state == TaskState::kBlocked ? 1 : 0;
        TW_CHECK(listed_in[t] == expected, "a task is listed as ready the wrong number of times");
        TW_CHECK((task.state == TaskState::kWaiting) == waiting.contains(t),
                 "a waiting task hangs on no copy");
        TW_CHECK(task.state != TaskState::kRunning || task.in_flight > 0,
                 "a running task has nothing in flight");
      }
      TW_CHECK(live == queues[q].live, "live tasks of a queue miscounted");
    }
  }
  std::int64_t op_tasks = 0;
  for (const auto& [id, slot] : std::map<std::uint64_t, Slot>(op_by_id.begin(), op_by_id.end())) {
    op_tasks += ops[slot].live_tasks;
    TW_CHECK(open[slot] == ops[slot].open_uses, "open claims of an op miscounted");
    for (const ShareState& share : ops[slot].shares) {
      TW_CHECK(share.completed <= share.next && share.next <= share.owned,
               "a share's cursor is out of order");
      TW_CHECK(share.held == INT64_MAX || (!holds.empty() && share.next <= share.held),
               "a share is held for nobody, or goes on all the same");
    }
  }
  TW_CHECK(op_tasks == live_tasks, "live tasks of ops and queues disagree");
  TW_CHECK(flying == flights, "steps in flight miscounted");
  if (probing) {
    TW_CHECK(probing->asked.nonce == last_probe, "a link is measured for a question that is not the last");
    TW_CHECK(!has_work() && stage == Stage::kWorks, "a link is measured beside work");
    TW_CHECK(!probing->begun || probe_transfer != 0, "a measurement waits for nothing");
  }
}

std::string Core::Impl::describe() const {
  static constexpr const char* kTaskStates[] = {"ready", "waiting", "out of memory", "running"};
  static constexpr const char* kCopyStates[] = {"expected", "offered", "receiving", "enqueued",
                                                "sealed",   "failed",  "spilled",   "returning"};
  static constexpr const char* kCopyKinds[] = {"produced", "remote", "borrowed", "replica"};
  std::ostringstream s;
  const auto counter = [](std::uint64_t id) { return id & ((std::uint64_t{1} << 40) - 1); };
  for (const DeviceState& device : devices) {
    s << "device " << device.spec.id.value << ": " << device.arena.bytes_in_use() << " of "
      << device.spec.memory_bytes << " bytes, largest free " << device.arena.largest_free() << ", reserve "
      << reserved(device) << "/" << device.reserve_bytes << ", spilled " << device.spilled_bytes[0] << "+"
      << device.spilled_bytes[1] << "+" << device.spilled_bytes[2] << ", guests " << device.guest_bytes
      << ", writing " << device.writing_bytes << ", reading " << device.reading_bytes[0] << " from disk, "
      << device.reading_bytes[1] << " from pinned memory, " << device.reading_bytes[2]
      << " from neighbours\n";
    for (const auto& [place, q] : device.queues) {
      std::vector<Slot> expanded(queues[q].order.begin(), queues[q].order.end());
      expanded.insert(expanded.end(), queues[q].eager.begin(), queues[q].eager.end());
      for (Slot t : expanded) {
        const Task& task = tasks[t];
        if (task.finished) continue;
        const OpEntry& entry = *ops[task.op].entry;
        s << "  task " << name_of(entry.op.kind) << " op " << counter(ops[task.op].run.id.value) << " point "
          << task.point << " step " << task.next << "/" << task.steps << " "
          << kTaskStates[static_cast<int>(task.state)] << (task.outcome != kNone ? " failed" : "")
          << (ops[task.op].cancelled != kNone ? " cancelled" : "") << "\n";
      }
    }
  }
  for (const auto& [id, o] : std::map<std::uint64_t, Slot>(op_by_id.begin(), op_by_id.end())) {
    const OpState& op = ops[o];
    s << "  op " << counter(id) << " " << name_of(op.entry->op.kind) << (op.retired ? " retired" : "")
      << (op.cancelled != kNone ? " cancelled" : "") << (op.done ? " done" : "") << ", live tasks "
      << op.live_tasks << ", open uses " << op.open_uses << "\n";
  }
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    for (Slot c = arrays[a].copies; c != kNone; c = copies[c].next) {
      const Copy& copy = copies[c];
      s << "  copy of array " << counter(id) << (arrays[a].held ? " (held)" : "") << " block " << copy.block
        << " on " << devices[copy.device].spec.id.value << ": " << kCopyKinds[static_cast<int>(copy.kind)]
        << " " << kCopyStates[static_cast<int>(copy.state)]
        << (copy.kind != CopyKind::kProduced ? " from " + std::to_string(copy.source.value) : "")
        << (copy.waiters != kNone ? ", waited for" : "")
        << (copy.stands == Stands::kForTurn ? ", until others are here" : "");
      for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
        s << "; op " << counter(ops[uses[u].op].run.id.value) << " on " << uses[u].device.value << " left "
          << uses[u].left << (uses[u].subscribed ? " subscribed" : "")
          << (uses[u].answered ? " answered" : "") << (uses[u].offered ? " offered" : "");
      }
      s << "\n";
    }
  }
  return s.str();
}

std::uint64_t Core::Impl::digest() const {
  Digest h;
  h.mix(log_next);
  for (const Ending& runs : ending) {
    h.mix(runs.entry);
    for (const OpId op : runs.ops) h.mix(op.value);
  }
  h.mix(next_transfer);
  h.mix(recovery);
  h.mix(losing);
  h.mix(orphans);
  h.mix(abandoned.size());
  h.mix(results_dropped.size());
  h.mix(static_cast<std::uint64_t>(stage)), h.mix(leaving.size()), h.mix(next_alone != kNone),
      h.mix(alone_runs);
  for (const auto& [number, plan] : kept_plans) h.mix(number), h.mix(plan.ops.size());
  h.mix(static_cast<std::uint64_t>(counts.launches));
  h.mix(static_cast<std::uint64_t>(counts.tasks_done));
  h.mix(static_cast<std::uint64_t>(counts.stale));
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    h.mix(id);
    h.mix(arrays[a].held);
    for (Slot c = arrays[a].copies; c != kNone; c = copies[c].next) {
      const Copy& copy = copies[c];
      h.mix(static_cast<std::uint64_t>(copy.block));
      h.mix(static_cast<std::uint64_t>(copy.state) * 8 + static_cast<std::uint64_t>(copy.kind));
      h.mix(copy.kept.value), h.mix(copy.kept_open), h.mix(copy.handed_on), h.mix(copy.left_below),
          h.mix(copy.demoting);
      h.mix(copy.stored), h.mix(copy.stored ? static_cast<std::uint64_t>(copy.tier) + 1 : 0);
      h.mix(copy.pulls), h.mix(copy.via.value), h.mix(copy.relays), h.mix(copy.begun),
          h.mix(static_cast<std::uint64_t>(copy.relayed));
      if (copy.tree != kNone) {
        for (const Leader& leader : trees[copy.tree].leaders)
          h.mix(leader.device.value), h.mix(static_cast<std::uint64_t>(leader.state));
      }
      h.mix(copy.at.offset >= 0 ? static_cast<std::uint64_t>(copy.at.offset) : 0);
      for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
        h.mix(ops[uses[u].op].run.id.value);
        h.mix(uses[u].device.value);
        h.mix(static_cast<std::uint64_t>(uses[u].left));
      }
    }
  }
  for (const auto& [id, slot] : std::map<std::uint64_t, Slot>(op_by_id.begin(), op_by_id.end())) {
    h.mix(id);
    for (const ShareState& share : ops[slot].shares) {
      h.mix(static_cast<std::uint64_t>(share.next));
      if (share.shrunk) h.mix(static_cast<std::uint64_t>(share.owned));
      h.mix(static_cast<std::uint64_t>(share.completed));
      h.mix(static_cast<std::uint64_t>(share.failed));
    }
  }
  for (const Store& below : stores) below.places.digest(h);
  h.mix(next_io);
  for (const DeviceState& device : devices) {
    for (const FairShare& share : device.fair) h.mix(std::bit_cast<std::uint64_t>(share.served));
    for (const ByteShares::Share& share : device.shares.all())
      h.mix(share.session.value), h.mix(static_cast<std::uint64_t>(share.bytes)),
          h.mix(static_cast<std::uint64_t>(share.claim));
    device.arena.digest(h);
    for (const StreamState& stream : device.streams) {
      h.mix(stream.issued);
      h.mix(stream.completed);
    }
  }
  h.mix(words_parked), h.mix(reached.size());
  h.mix(static_cast<std::uint64_t>(window.bytes())), h.mix(static_cast<std::uint64_t>(window.waiting()));
  h.mix(last_probe), h.mix(probe_transfer), h.mix(probing ? probing->size + 1 : 0);
  return h.value();
}

}  // namespace tilewise::worker
