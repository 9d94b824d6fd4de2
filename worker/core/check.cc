// Full sweeps for tests: every index against every other, and a digest of all state.
#include "state.h"

#include <algorithm>
#include <bit>
#include <set>
#include <sstream>

namespace tilewise::worker {

void Core::Impl::check_invariants() const {
  // Arrays' lists, the devices' indexes and the pool agree.
  std::int64_t listed = 0, listed_uses = 0;
  std::vector<std::int64_t> memory(devices.size(), 0);
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
      if (copy.has_memory) memory[copy.device] += copy.extent.bytes;
      TW_CHECK(!copy.timed || copy.state == CopyState::kReceiving, "a transfer that is not on is timed");
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
  for (const auto& [key, link] : links) {
    const auto counted = under_way.find(key);
    TW_CHECK(link.under_way == (counted == under_way.end() ? 0 : counted->second),
             "transfers of a link miscounted");
  }
  TW_CHECK(listed_uses == uses.live(), "a claim belongs to no copy");
  std::int64_t indexed = 0;
  for (const DeviceState& device : devices) indexed += static_cast<std::int64_t>(device.index.size());
  TW_CHECK(indexed == copies.live(), "the index holds a copy that is gone");

  for (const auto& [transfer, gone] : abandoned) memory[gone.device] += gone.extent.bytes;
  std::int64_t live_tasks = 0;
  for (std::uint16_t d = 0; d < devices.size(); ++d) {
    const DeviceState& device = devices[d];
    device.arena.check_invariants();
    const std::int64_t reserve = device.reserve ? device.reserve->bytes : 0;
    // The arena rounds up to 256 bytes an extent.
    TW_CHECK(device.arena.bytes_in_use() >= memory[d] + reserve,
             "memory in use that no copy owns is missing");
    TW_CHECK(
        device.arena.bytes_in_use() <=
            memory[d] + reserve + 256 * (copies.live() + 1 + static_cast<std::int64_t>(abandoned.size())),
        "memory leaked");
    std::set<SessionId> sharing, queued;
    for (const FairShare& share : device.fair) sharing.insert(share.session);
    for (const Slot q : device.queues) queued.insert(queues[q].session);
    TW_CHECK(sharing.size() == device.fair.size() &&
                 std::includes(sharing.begin(), sharing.end(), queued.begin(), queued.end()),
             "a session with a queue has not one share");
    for (const StreamState& stream : device.streams) {
      std::uint64_t last = stream.completed;
      for (const InFlight& flight : stream.flight) {
        TW_CHECK(flight.sequence == last + 1, "steps in flight are not consecutive");
        last = flight.sequence;
        TW_CHECK(!tasks[flight.task].finished, "a finished task has a step in flight");
      }
      TW_CHECK(last == stream.issued, "an issued step is neither complete nor in flight");
    }
    for (Slot q : device.queues) {
      std::int64_t live = 0;
      std::map<Slot, int> listed_in;
      for (Slot t : queues[q].ready) ++listed_in[t];
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
    }
  }
  TW_CHECK(op_tasks == live_tasks, "live tasks of ops and queues disagree");
}

std::string Core::Impl::describe() const {
  static constexpr const char* kTaskStates[] = {"ready", "waiting", "out of memory", "running"};
  static constexpr const char* kCopyStates[] = {"expected", "offered", "receiving",
                                                "enqueued", "sealed",  "failed"};
  static constexpr const char* kCopyKinds[] = {"produced", "remote", "borrowed", "replica"};
  std::ostringstream s;
  const auto counter = [](std::uint64_t id) { return id & ((std::uint64_t{1} << 40) - 1); };
  for (const DeviceState& device : devices) {
    s << "device " << device.spec.id.value << ": " << device.arena.bytes_in_use() << " of "
      << device.spec.memory_bytes << " bytes, largest free " << device.arena.largest_free() << ", reserve "
      << (device.reserve ? device.reserve->bytes : 0) << "/" << device.reserve_bytes << "\n";
    for (Slot q : device.queues) {
      std::vector<Slot> expanded(queues[q].order.begin(), queues[q].order.end());
      expanded.insert(expanded.end(), queues[q].eager.begin(), queues[q].eager.end());
      for (Slot t : expanded) {
        const Task& task = tasks[t];
        if (task.finished) continue;
        const OpEntry& entry = *ops[task.op].entry;
        s << "  task " << name_of(entry.op.kind) << " op " << counter(entry.id.value) << " point "
          << task.point << " step " << task.next << "/" << task.steps << " "
          << kTaskStates[static_cast<int>(task.state)] << (task.outcome != kNone ? " failed" : "")
          << (ops[task.op].cancelled != kNone ? " cancelled" : "") << "\n";
      }
    }
  }
  for (const auto& [id, a] : std::map<std::uint64_t, Slot>(array_by_id.begin(), array_by_id.end())) {
    for (Slot c = arrays[a].copies; c != kNone; c = copies[c].next) {
      const Copy& copy = copies[c];
      s << "  copy of array " << counter(id) << (arrays[a].held ? " (held)" : "") << " block " << copy.block
        << " on " << devices[copy.device].spec.id.value << ": " << kCopyKinds[static_cast<int>(copy.kind)]
        << " " << kCopyStates[static_cast<int>(copy.state)]
        << (copy.kind != CopyKind::kProduced ? " from " + std::to_string(copy.source.value) : "")
        << (copy.waiters != kNone ? ", waited for" : "");
      for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
        s << "; op " << counter(ops[uses[u].op].entry->id.value) << " on " << uses[u].device.value << " left "
          << uses[u].left << (uses[u].subscribed ? " subscribed" : "") << (uses[u].offered ? " offered" : "");
      }
      s << "\n";
    }
  }
  return s.str();
}

std::uint64_t Core::Impl::digest() const {
  Digest h;
  h.mix(log_next);
  h.mix(next_transfer);
  h.mix(recovery);
  h.mix(losing);
  h.mix(abandoned.size());
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
      h.mix(copy.at.offset >= 0 ? static_cast<std::uint64_t>(copy.at.offset) : 0);
      for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
        h.mix(ops[uses[u].op].entry->id.value);
        h.mix(uses[u].device.value);
        h.mix(static_cast<std::uint64_t>(uses[u].left));
      }
    }
  }
  for (const auto& [id, slot] : std::map<std::uint64_t, Slot>(op_by_id.begin(), op_by_id.end())) {
    h.mix(id);
    for (const ShareState& share : ops[slot].shares) {
      h.mix(static_cast<std::uint64_t>(share.next));
      h.mix(static_cast<std::uint64_t>(share.completed));
      h.mix(static_cast<std::uint64_t>(share.failed));
    }
  }
  for (const DeviceState& device : devices) {
    for (const FairShare& share : device.fair) h.mix(std::bit_cast<std::uint64_t>(share.served));
    device.arena.digest(h);
    for (const StreamState& stream : device.streams) {
      h.mix(stream.issued);
      h.mix(stream.completed);
    }
  }
  h.mix(parked.size());
  return h.value();
}

}  // namespace tilewise::worker
