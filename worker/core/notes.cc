// What a device did beyond its steps, for people: blocks that came, why nothing ran, where blocks are. Nothing here is
// looked at by any decision.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

constexpr TimeNs kShortestWait = kMicrosecond;  // shorter ones are not worth a record

}  // namespace

// A block is complete here, by its copy's bytes or by reading it in place.
void Core::Impl::took_in(Slot slot, msg::Lane lane) {
  const Copy& copy = copies[slot];
  const DeviceId here = devices[copy.device].spec.id;
  const bool mapped = copy.kind == CopyKind::kBorrowed;
  msg::LaneStats& stats = lanes[static_cast<std::size_t>(lane)];
  ++stats.transfers;
  stats.bytes += copy.bytes;
  lanes_dirty = true;
  const DeviceId from = sender_of(copy);
  const std::tuple key(from, here, lane);
  auto known = pairs.find(key);
  if (known == pairs.end() && pairs.size() < kMaxPairs)
    known = pairs.emplace(key, PairState{{.from = from, .to = here, .lane = lane}}).first;
  if (known != pairs.end()) {
    PairState& pair = known->second;
    ++pair.stats.transfers;
    pair.stats.bytes += copy.bytes;
    if (!mapped) pair.stats.busy_ns += now - copy.since;
    pair.dirty = true;
  }
  Slot user = kNone;  // the first of those here that want it
  for (Slot u = copy.uses; u != kNone && user == kNone; u = uses[u].next)
    if (uses[u].device == here) user = uses[u].op;
  if (!mapped && user != kNone) ops[user].shares[copy.device].moved += copy.bytes;
  const Slot made_by = maker(copy.array, copy.block);
  msg::TracedStep note;
  note.kind = msg::TraceKind::kTransfer;
  note.op = made_by != kNone ? ops[made_by].run.id : OpId{};
  if (user != kNone) note.user = ops[user].run.id, note.graph = ops[user].run.graph;
  note.point = copy.block;
  note.device = here;
  note.peer = from;
  note.bytes = copy.bytes;
  note.lane = lane;
  note.start_ns = mapped ? now : copy.since;
  note.end_ns = now;
  out->notes.push_back(note);
}

void Core::Impl::wrote_or_read(const Io& io) {
  const Copy& copy = copies[io.copy];
  const Slot made_by = maker(copy.array, copy.block);
  msg::TracedStep note;
  note.kind = io.way != Way::kBack ? msg::TraceKind::kSpill : msg::TraceKind::kUnspill;
  if (made_by != kNone) note.op = ops[made_by].run.id, note.graph = ops[made_by].run.graph;
  note.point = copy.block;
  note.device = note.peer = devices[io.device].spec.id;
  if (io.tier == Tier::kNeighbour) note.peer = devices[copy.lodging.device].spec.id;
  note.bytes = copy.bytes;
  note.start_ns = io.since;
  note.end_ns = now;
  out->notes.push_back(note);
}

void Core::Impl::transfer_failed(msg::Lane lane) {
  ++lanes[static_cast<std::size_t>(lane)].failed;
  lanes_dirty = true;
}

Wait Core::Impl::why_idle(const DeviceState& device) const {
  for (const StreamState& stream : device.streams)
    if (stream.issued > stream.completed) return {};
  Wait wait;
  wait.kind = msg::TraceKind::kNoWork;
  const auto of = [&](Slot task, msg::TraceKind kind) {
    wait.kind = kind;
    wait.op = ops[tasks[task].op].run.id;
    wait.graph = ops[tasks[task].op].run.graph;
    wait.point = tasks[task].point;
  };
  if (!device.blocked.empty()) {
    of(queues[device.blocked.front().queue].blocked.front(), msg::TraceKind::kNoMemory);
    return wait;
  }
  if (const Slot lowest = lowest_task(device); lowest != kNone) of(lowest, msg::TraceKind::kNoInputs);
  return wait;
}

// After everything that could be launched has been.
void Core::Impl::note_waits() {
  for (DeviceState& device : devices) {
    const Wait next = why_idle(device);
    Wait& wait = device.wait;
    if (next.kind == wait.kind && wait.since != 0) continue;
    if (wait.kind != msg::TraceKind::kStep && wait.since != 0 && now - wait.since >= kShortestWait)
      out->notes.push_back(note_of(device, now));
    wait = next;
    wait.since = now;
  }
}

msg::TracedStep Core::Impl::note_of(const DeviceState& device, TimeNs until) const {
  msg::TracedStep note;
  note.kind = device.wait.kind;
  note.op = device.wait.op;
  note.graph = device.wait.graph;
  note.point = device.wait.point;
  note.device = device.spec.id;
  note.start_ns = device.wait.since;
  note.end_ns = until;
  return note;
}

std::vector<msg::TracedStep> Core::waits(TimeNs until) const {
  std::vector<msg::TracedStep> out;
  for (const DeviceState& device : impl_->devices)
    if (device.wait.kind != msg::TraceKind::kStep && device.wait.since != 0)
      out.push_back(impl_->note_of(device, std::max(until, device.wait.since)));
  return out;
}

void Core::Impl::report_pairs(std::vector<msg::PairStats>& out_pairs) {
  for (auto& [key, pair] : pairs)
    if (std::exchange(pair.dirty, false)) out_pairs.push_back(pair.stats);
}

msg::BlocksReply Core::blocks(const msg::BlocksRequest& request) const {
  const Impl& i = *impl_;
  msg::BlocksReply reply;
  reply.nonce = request.nonce;
  const auto array = i.array_by_id.find(request.array.value);
  if (array == i.array_by_id.end()) return reply;
  const std::int64_t blocks = i.arrays[array->second].grid.block_count();
  const std::int64_t first = std::clamp<std::int64_t>(request.first, 0, blocks);
  const std::int64_t last =
      first + std::clamp<std::int64_t>(request.count, 0, std::min(msg::kMaxBlocksAsked, blocks - first));
  for (std::uint16_t d = 0; d < i.devices.size(); ++d) {
    for (std::int64_t block = first; block < last; ++block) {
      const Slot slot = i.find_copy(array->second, block, d);
      if (slot == kNone) continue;
      const Copy& copy = i.copies[slot];
      msg::BlockCopy said{
          block,      i.devices[d].spec.id, msg::BlockState::kExpected, copy.kind == CopyKind::kProduced,
          copy.bytes, copy.source};
      switch (copy.state) {
        case CopyState::kExpected:
        case CopyState::kEnqueued: break;
        case CopyState::kOffered: said.state = msg::BlockState::kWaiting; break;
        case CopyState::kReceiving: said.state = msg::BlockState::kReceiving; break;
        case CopyState::kFailed: said.state = msg::BlockState::kFailed; break;
        case CopyState::kSpilled:
        case CopyState::kReturning: said.state = msg::BlockState::kSpilled; break;
        case CopyState::kSealed:
          said.state = copy.kind == CopyKind::kBorrowed ? msg::BlockState::kBorrowed : msg::BlockState::kHere;
          break;
      }
      reply.copies.push_back(said);
    }
  }
  return reply;
}

}  // namespace tilewise::worker
