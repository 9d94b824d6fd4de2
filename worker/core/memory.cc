// Memory is granted as offsets, in an order that cannot deadlock (D6): the lowest unfinished task of a device may
// always use the reserve, which is as large as the largest admitted step, its inputs included where they are copied, and is
// an extent, not a count of bytes.
#include "keeping.h"
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

constexpr std::int64_t kLittle = 4096;  // such a part of a device's memory
constexpr int kMostEarlier = 32;        // graphs, each time that one of their session asks for memory

bool all_given(const ir::Donors& donors, std::size_t outputs) {
  const auto end = donors.begin() + static_cast<std::ptrdiff_t>(outputs);
  return outputs > 0 && std::all_of(donors.begin(), end, [](int donor) { return donor >= 0; });
}

}  // namespace

// May what is free be given to the asker? What is owed to others is not: to earlier tasks of its own session, to sessions that have
// less (byte_shares.h), to the lowest task.
Obstacle Core::Impl::obstacle(std::uint16_t d, const Asker& asker) {
  const DeviceState& device = devices[d];
  if (asker.claim != Claim::kOrdinary) return Obstacle::kNone;
  if (crowds_out(d, asker.bytes, asker.use)) return Obstacle::kOwnOrder;
  if (device.shares.must_wait(asker.session, asker.bytes)) return Obstacle::kSessions;
  return owes_reserve(device, asker.bytes) ? Obstacle::kReserve : Obstacle::kNone;
}

// False: the asker is refused. What keeps it waiting is remembered, for it and for others.
bool Core::Impl::admits(std::uint16_t d, const Asker& asker, Obstacle there) {
  ByteShares& shares = devices[d].shares;
  if (there == Obstacle::kNone) return true;
  if (there == Obstacle::kOwnOrder) {  // other sessions owe it nothing for that
    crowded = true;
    return false;
  }
  if (there == Obstacle::kSessions) {
    ++counts.put_off;
    shares.put_off(asker.session, asker.bytes);
  }
  if (asker.waits) shares.refuse(asker.session, asker.bytes);
  return false;
}

// The task's outputs together. One that is the last to read as many bytes as it writes leaves more room than it found.
bool Core::Impl::admits_task(Slot t, const std::vector<Slot>& in, const ir::Donors& donors, Asker& asker) {
  const Task& task = tasks[t];
  const OpState& op = ops[task.op];
  std::int64_t taken = 0;  // what inputs give
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    (donors[i] < 0 ? asker.bytes : taken) += in_arena(bytes_of(arrays[op.outputs[i]], task.point));
  if (all_given(donors, op.outputs.size())) return true;
  if (is_lowest(t)) asker.claim = Claim::kLowest;
  const Obstacle there = obstacle(task.device, asker);
  if (there != Obstacle::kNone && task.steps == 1 && freed_by(task, in) - taken >= asker.bytes) {
    asker.claim = Claim::kReleasing;
    return true;
  }
  return admits(task.device, asker, there);
}

// All or none, where no input gives it. `wait_for`: what has to be over before it is written.
bool Core::Impl::give_results_memory(Slot t, const std::vector<Slot>& in, const ir::Donors& donors,
                                     const Asker& asker, alloc::Fence& wait_for) {
  const Task& task = tasks[t];
  const OpState& op = ops[task.op];
  std::vector<Dropped> dropped;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (donors[i] >= 0) continue;
    const Slot c = task.outputs[i];
    alloc::Fence fence;
    launching = true;
    const auto extent =
        find_memory(task.device, bytes_of(arrays[op.outputs[i]], task.point), false, asker, fence);
    launching = false;
    if (!extent) {  // nobody has touched the others
      alloc::Arena& arena = devices[task.device].arena;
      for (std::size_t j = 0; j < i; ++j)
        if (donors[j] < 0 && drops(dropped, j) == nullptr) arena.free(lose_memory(task.outputs[j]), wait_for);
      for (const Dropped& result : dropped) arena.free(result.extent, wait_for);
      return false;
    }
    if (c == kNone || whole(copies[c]))
      dropped.push_back({i, *extent});
    else
      give_memory(c, *extent);
    const bool merged = wait_for.merge(fence);
    TW_CHECK(merged, "kMaxStreams exceeds what a fence can name");
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (donors[i] < 0) continue;
    const Slot giver = in[static_cast<std::size_t>(donors[i])];
    stop_relaying(giver);
    give_memory(task.outputs[i], lose_memory(giver));
    ++counts.donated;
  }
  if (!all_given(donors, op.outputs.size()))
    served(devices[task.device], asker);  // not before: what does not get all of it waits as it did
  if (dropped.empty()) return true;
  ++counts.made_in_part;
  results_dropped.emplace(t, std::move(dropped));
  return true;
}

// Memory in the arena that goes with the task's last reads.
std::int64_t Core::Impl::freed_by(const Task& task, const std::vector<Slot>& in) const {
  std::int64_t freed = 0;
  for (auto it = in.begin(); it != in.end(); ++it) {
    const Copy& copy = copies[*it];
    const ArrayState& source = arrays[copy.array];
    if (!copy.has_memory || tied(copy) || source.held || source.pinned != 0 ||
        std::find(in.begin(), it, *it) != it)
      continue;
    const Use* use = copy.uses == kNone ? nullptr : &uses[copy.uses];
    const bool last = use != nullptr && use->next == kNone && use->op == task.op &&
                      use->device == devices[task.device].spec.id &&
                      use->left == std::count(it, in.end(), *it);
    if (last) freed += in_arena(copy.extent.bytes);
  }
  return freed;
}

std::optional<alloc::Extent> Core::Impl::take(std::uint16_t d, std::int64_t bytes, bool settled,
                                              const Asker& asker, alloc::Fence& wait_for) {
  if (!admits(d, asker, obstacle(d, asker))) return std::nullopt;
  auto extent = find_memory(d, bytes, settled, asker, wait_for);
  if (extent) served(devices[d], asker);
  return extent;
}

// Somebody has got what it waited for: what it kept from others by that may be had.
void Core::Impl::served(DeviceState& device, const Asker& asker) {
  if (!asker.waits) return;
  device.shares.serve(asker.session, asker.bytes);
  const auto is_it = [&](const Asker& other) {
    return other.session == asker.session && other.use == asker.use;
  };
  device.returns_due |=
      std::erase_if(device.short_now, is_it) + std::erase_if(device.short_before, is_it) > 0;
}

// A ready task of the session has not been asked in this round: the streams are full, or one has to run alone.
bool Core::Impl::still_asks(const DeviceState& device, SessionId session) const {
  const auto share = std::ranges::find(device.fair, session, &FairShare::session);
  return share != device.fair.end() && std::ranges::any_of(share->ready, [&](const QueueEntry& entry) {
           bool asks = false;
           queues[entry.queue].ready.for_each([&](Slot t) { asks |= !tasks[t].admitted; });
           return asks;
         });
}

// Nothing of the asker's own session that is used sooner is spilled for it, unless it is the lowest task's; of other sessions
// what byte_shares.h says.
std::optional<alloc::Extent> Core::Impl::find_memory(std::uint16_t d, std::int64_t bytes, bool settled,
                                                     const Asker& asker, alloc::Fence& wait_for) {
  DeviceState& device = devices[d];
  const Claim claim = asker.claim;
  const auto attempt = [&] {
    return settled ? device.arena.allocate_settled(bytes) : device.arena.allocate(bytes, wait_for);
  };
  auto extent = attempt();
  if (!extent) {
    if (awaits_slab(d, bytes)) return std::nullopt;
    if (evict(d, bytes)) extent = attempt();
    if (claim == Claim::kLowest) {  // at once, if that can be had
      if (!extent && open_cleared(device)) extent = attempt();
      while (!extent && drop_clean(d, asker, bytes)) extent = attempt();
      if (!extent) extent = take_reserved(device, bytes, settled, wait_for);
    }
    const bool comes = !extent && claim == Claim::kLowest && compact(d, bytes, Room::kOfLowest);
    if (!extent && !comes && device.spec.spills) {
      make_room(d, bytes, settled, asker);
      extent = attempt();
      if (!extent && asker.waits) device.short_now.push_back(asker);
    }
  }
  if (extent) {
    device.bytes_high = std::max(device.bytes_high, device.arena.bytes_in_use());
    device.bytes_peak = std::max(device.bytes_peak, device.bytes_high);
  } else if (asker.waits) {
    device.shares.refuse(asker.session, asker.bytes);
  }
  return extent;
}

// The arena can grow so that the bytes fit: it has been asked to.
bool Core::Impl::awaits_slab(std::uint16_t d, std::int64_t bytes) {
  DeviceState& device = devices[d];
  std::int64_t wanted = device.full ? 0 : device.arena.wants_slab(bytes);
  if (wanted <= 0) return false;
  if (std::exchange(device.slab_pending, true)) return true;
  // The last slab that the reserve fits into is one that it fits into.
  const std::int64_t left = device.arena.max_bytes() - device.arena.bytes_resident() - wanted;
  if (reserved(device) < device.reserve_bytes && left < device.reserve_bytes)
    wanted = std::max(wanted, device.arena.wants_slab(device.reserve_bytes));
  out->slabs.push_back({d, wanted});
  return true;
}

// From the reserve: of its smallest part that is large enough, or of all. The rest stays reserved: the same step may need
// room for its inputs, one after another, and its outputs.
std::optional<alloc::Extent> Core::Impl::take_reserved(DeviceState& device, std::int64_t bytes, bool settled,
                                                       alloc::Fence& wait_for) {
  std::vector<alloc::Extent>& reserve = device.reserve;
  if (reserve.empty()) return std::nullopt;
  auto part = reserve.end();
  for (auto it = reserve.begin(); it != reserve.end(); ++it) {
    if (it->bytes >= bytes && (part == reserve.end() || it->bytes < part->bytes)) part = it;
  }
  std::vector<std::int64_t> freed;
  for (auto it = reserve.begin(); it != reserve.end(); ++it) {
    if (part != reserve.end() && it != part) continue;
    freed.push_back(it->bytes);
    device.arena.free(*it, alloc::Fence{});
  }
  part == reserve.end() ? reserve.clear() : void(reserve.erase(part));
  const auto extent = settled ? device.arena.allocate_settled(bytes) : device.arena.allocate(bytes, wait_for);
  std::int64_t taken = extent ? in_arena(extent->bytes) : 0;
  for (const std::int64_t size : freed) {
    const std::int64_t rest =
        size - std::min(size, std::exchange(taken, std::max<std::int64_t>(0, taken - size)));
    if (rest <= 0) continue;
    if (const auto again = device.arena.allocate_settled(rest)) reserve.push_back(*again);
  }
  return extent;
}

std::int64_t Core::Impl::reserved(const DeviceState& device) {
  std::int64_t bytes = 0;
  for (const alloc::Extent& extent : device.reserve) bytes += extent.bytes;
  return bytes;
}

// It is carved, or a slab of its own can still be had: whatever takes memory now does not keep it out.
bool Core::Impl::has_reserve(const DeviceState& device) {
  return reserved(device) >= device.reserve_bytes || device.arena.bytes_resident() == 0 ||
         (!device.full && device.arena.wants_slab(device.reserve_bytes) > 0);
}

void Core::Impl::drop_reserve(DeviceState& device) {
  for (const alloc::Extent& extent : device.reserve) device.arena.free(extent, alloc::Fence{});
  device.reserve.clear();
}

// There is more than enough for what may come early, or stay a little longer. Guests go when they are asked to.
bool Core::Impl::roomy(const DeviceState& device, std::int64_t bytes) const {
  return device.arena.bytes_in_use() - device.guest_bytes + bytes <= device.arena.max_bytes() / 2;
}

// The reserve could not be carved, or is in use: what is free then belongs to the lowest task, or blocks on their way to later
// ones would fill it. Twice the reserve in pieces is enough not to keep the others waiting.
bool Core::Impl::owes_reserve(const DeviceState& device, std::int64_t bytes) const {
  if (has_reserve(device)) return false;
  const alloc::Arena& arena = device.arena;
  const std::int64_t limit = device.full ? arena.bytes_resident() : device.spec.memory_bytes;
  return limit - (arena.bytes_in_use() - device.guest_bytes) - bytes < 2 * device.reserve_bytes;
}

// By how much a task of the op makes the memory in use grow: not by results that take the place of what was made here
// (donors_of). That does not change: what others read too is held until they are known.
std::int64_t Core::Impl::grows_by(Slot slot) {
  OpState& op = ops[slot];
  if (op.grows >= 0) return op.grows;
  const OpEntry& entry = *op.entry;
  op.grows = entry.geometry->output_bytes_bound();
  const ir::Donors donors =
      ir::match_donors(op.outputs.size(), op.operands.size(), [&](std::size_t o, std::size_t i) {
        if (op.operands[i] == kNone) return false;
        const ArrayState& source = arrays[op.operands[i]];
        return !source.held && !source.users.empty() && source.users.back().op == slot &&
               source.makers.size() == 1 && ops[source.makers[0]].entry->placement == entry.placement &&
               ir::may_overwrite(entry.op, o, i, source.dtype, source.grid);
      });
  for (std::size_t o = 0; o < op.outputs.size(); ++o)
    if (donors[o] >= 0)
      op.grows -= ir::volume(entry.op.outputs[o].grid.max_block_shape()) *
                  static_cast<std::int64_t>(ir::size_of(entry.op.outputs[o].dtype));
  return op.grows;
}

// What tasks of the queue before `use` have yet to take on its device, if nothing came free meanwhile; counted until it is more than
// `enough`. None where the results of an op do not fit beside each other anyway: then they have to be used up as they are made, and
// what is made of them must not wait.
std::optional<std::int64_t> Core::Impl::wanted_by(const Queue& queue, const NextUse& use,
                                                  std::int64_t enough) {
  const std::uint16_t d = queue.device;
  std::int64_t wanted = 0;
  const auto fits = [&](Slot op) {
    const std::int64_t each = grows_by(op);
    return each == 0 || ops[op].shares[d].owned <= devices[d].spec.memory_bytes / each;
  };
  const auto comes_before = [&](Slot op, std::int64_t ordinal) {
    return NextUse{use.queue, ops[op].order.value, ordinal} < use;
  };
  Slot last = kNone;
  bool all_fit = true;
  // False: enough is known.
  const auto count = [&](Slot t) {
    const Task& task = tasks[t];
    if (task.finished || task.admitted || task.outcome != kNone || !comes_before(task.op, task.ordinal))
      return true;
    if (std::exchange(last, task.op) != task.op && !fits(task.op)) return all_fit = false;
    wanted += grows_by(task.op);
    return wanted <= enough;
  };
  const bool counted = std::all_of(queue.order.begin(), queue.order.end(), count) &&
                       std::all_of(queue.eager.begin(), queue.eager.end(), count);
  if (!all_fit) return std::nullopt;
  if (!counted) return wanted;
  for (const Slot slot : queue.ops) {
    const ShareState& share = ops[slot].shares[d];
    if (!comes_before(slot, share.next) || wanted > enough) break;
    if (!fits(slot)) return std::nullopt;
    wanted += (share.owned - share.next) * grows_by(slot);
  }
  return wanted;
}

// The same of all its session's graphs up to that one: a client that asks for one step after the other, and waits for none, holds each
// until the next is there as a whole, and a chain of blocks that runs ahead through many of them would take what the first one wants.
// Graphs that take next to nothing are not held up for that.
std::int64_t Core::Impl::wanted_before(std::uint16_t d, const NextUse& use, std::int64_t enough) {
  const DeviceState& device = devices[d];
  if (use.queue < 0 || use.queue >= static_cast<std::int64_t>(device.queues.size())) return 0;
  const Queue& own = queues[device.queues[static_cast<std::size_t>(use.queue)]];
  std::optional<std::int64_t> some = wanted_by(own, use, enough);
  if (!some) return 0;
  std::int64_t wanted = *some;
  if (use.queue == 0 || wanted > enough) return wanted;
  const NextUse end{use.queue, UINT64_MAX, INT64_MAX};
  const std::int64_t little = device.spec.memory_bytes / kLittle;
  if (some = wanted_by(own, end, little); some && *some <= little) return wanted;
  int looked_at = 0;  // the lowest ones, which is enough for them to go on
  for (std::int64_t q = 0; q < use.queue && wanted <= enough && looked_at < kMostEarlier; ++q) {
    const Queue& queue = queues[device.queues[static_cast<std::size_t>(q)]];
    if (queue.session != own.session || (queue.live == 0 && queue.ops.empty())) continue;
    ++looked_at;
    some = wanted_by(queue, {q, UINT64_MAX, INT64_MAX}, enough - wanted);
    if (!some) return 0;
    wanted += *some;
  }
  return wanted;
}

// Without a tier below nothing that has been made can leave before it is used. Who comes later in its session's order takes no
// memory that those before it want: else what is made too early keeps out what it waits for.
bool Core::Impl::crowds_out(std::uint16_t d, std::int64_t bytes, const NextUse& use) {
  const DeviceState& device = devices[d];
  const alloc::Arena& arena = device.arena;
  if (device.spec.spills || arena.bytes_in_use() + bytes <= arena.max_bytes() / 8) return false;
  const std::int64_t limit = device.full ? arena.bytes_resident() : device.spec.memory_bytes;
  const std::int64_t left = limit - (arena.bytes_in_use() - reserved(device)) - bytes - device.reserve_bytes;
  const std::int64_t enough = std::max<std::int64_t>(0, left);
  return wanted_before(d, use, enough) > enough;
}

// The first task of the device's that reads the block, as far as that is known without looking at each: where it has waiters, of
// these; else about where its op is.
NextUse Core::Impl::first_reader(const Copy& copy) const {
  const DeviceState& device = devices[copy.device];
  NextUse first = kNever;
  for (Slot t = copy.waiters; t != kNone; t = tasks[t].next_waiter) first = std::min(first, use_of(t));
  for (Slot u = copy.uses; u != kNone && copy.waiters == kNone; u = uses[u].next) {
    const OpState& op = ops[uses[u].op];
    if (uses[u].device == device.spec.id)
      first = std::min(first, NextUse{queue_position(device, op.run.graph), op.order.value,
                                      op.shares[copy.device].completed});
  }
  return first;
}

// Lets go of replicas that are kept for later readers only, oldest first, about as many bytes as are wanted.
bool Core::Impl::evict(std::uint16_t d, std::int64_t bytes) {
  DeviceState& device = devices[d];
  if (stage >= Stage::kStill) return false;  // the scheduler has been told what is here
  std::int64_t freed = 0;
  for (std::size_t left = device.spares.size(); freed < bytes && left > 0; --left) {
    const std::uint64_t key = device.spares.front();
    const auto found = device.index.find(key);
    device.spares.pop_front();
    if (found == device.index.end()) continue;
    Copy& copy = copies[found->second];
    // A recovery may be counting on it, or it is on its way to somebody, or elsewhere in memory.
    if (copy.spare && (arrays[copy.array].pinned != 0 || copy.relayed > 0 || copy.io != 0)) {
      device.spares.push_back(key);
      continue;
    }
    if (!std::exchange(copy.spare, false) || copy.uses != kNone) continue;
    freed += copy.bytes;
    ++counts.evicted;
    destroy_copy(found->second);
  }
  return freed > 0;
}

// What a step needs at once: room for its outputs and, where peers' blocks have to be copied here, for what it reads. Blocks
// at edges are not larger than those in the middle of a grid.
std::int64_t Core::Impl::step_bytes(std::uint16_t d, const OpEntry& entry) const {
  const ir::Geometry& geometry = *entry.geometry;
  std::int64_t bytes = geometry.output_bytes_bound();
  const bool copied = entry.op.kind == ir::OpKind::kKeep || is_copied_to(d);
  if (!copied || geometry.point_count() == 0) return bytes;
  std::vector<ir::Read> reads;
  geometry.reads(geometry.point(geometry.point_count() / 2), 0, reads);
  for (const ir::Read& read : reads) {
    const ir::SourceArray& source = entry.sources[read.operand];
    bytes += (source.grid.box(ir::unravel(read.block, source.grid.counts())).volume() *
                  static_cast<std::int64_t>(ir::size_of(source.dtype)) +
              255) /
             256 * 256;
  }
  return bytes;
}

// The same block by block, where blocks can be spilled: what has to be on the device at once for one step, largest first.
std::vector<std::int64_t> Core::Impl::step_pieces(const OpEntry& entry) const {
  const auto largest_block = [](const ir::Grid& grid, ir::DType dtype) {
    std::int64_t bytes = static_cast<std::int64_t>(ir::size_of(dtype));
    for (const std::int64_t extent : grid.max_block_shape()) bytes *= extent;
    return in_arena(bytes);
  };
  std::vector<std::int64_t> pieces;
  for (const ir::OutputSpec& output : entry.op.outputs)
    pieces.push_back(largest_block(output.grid, output.dtype));
  const ir::Geometry& geometry = *entry.geometry;
  if (geometry.point_count() > 0) {
    std::vector<ir::Read> reads;
    geometry.reads(geometry.point(geometry.point_count() / 2), 0, reads);
    std::vector<std::pair<std::uint64_t, std::int64_t>> seen;
    for (const ir::Read& read : reads) {
      const std::pair<std::uint64_t, std::int64_t> block{entry.op.operands[read.operand].array, read.block};
      if (std::find(seen.begin(), seen.end(), block) != seen.end()) continue;
      seen.push_back(block);
      pieces.push_back(largest_block(entry.sources[read.operand].grid, entry.sources[read.operand].dtype));
    }
  }
  std::erase(pieces, 0);
  std::sort(pieces.begin(), pieces.end(), std::greater<>());
  return pieces;
}

// Large enough for each step that is to come.
void Core::Impl::want_reserve(std::uint16_t d, const OpEntry& entry) {
  DeviceState& device = devices[d];
  std::vector<std::int64_t> pieces{step_bytes(d, entry)};
  if (device.spec.spills) pieces = step_pieces(entry);
  std::vector<std::int64_t>& want = device.reserve_want;
  if (want.size() < pieces.size()) want.resize(pieces.size(), 0);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (i < pieces.size()) want[i] = std::max(want[i], pieces[i]);
    sum += want[i];
  }
  if (sum <= device.reserve_bytes) return;
  device.reserve_bytes = sum;
  device.memory_freed = true;  // carve it before the op's tasks take what there is
}

// Once the arena can grow no further, the reserve is carved before anybody else is served. It grows when there is room, and
// is kept as it is while there is none.
void Core::Impl::restore_reserve(std::uint16_t d) {
  DeviceState& device = devices[d];
  if (has_reserve(device)) return;
  std::vector<std::int64_t> missing = device.reserve_want, given_up;
  std::erase_if(device.reserve, [&](const alloc::Extent& extent) {
    const auto found = std::find(missing.begin(), missing.end(), extent.bytes);
    if (found != missing.end()) {
      missing.erase(found);
      return false;
    }
    given_up.push_back(extent.bytes);
    device.arena.free(extent, alloc::Fence{});
    return true;
  });
  std::int64_t short_of = 0;
  for (const std::int64_t bytes : missing) {
    auto extent = device.arena.allocate_settled(bytes);
    // Guests that are at home, too, and spare replicas go before a task could take their place.
    while (!extent && (forget_clean_guest(device) || evict(d, 1)))
      extent = device.arena.allocate_settled(bytes);
    if (!extent) {
      short_of += bytes;
      dismiss_guests(d, short_of - device.writing_bytes);  // what is on its way out counts
    }
    // Where enough is free, but in pieces, the lowest task makes room when it needs it: what would go for it now would be
    // brought back into another piece at once, by tasks that may have that, and so on as fast as the disk can.
    if (!extent && device.spec.spills && owes_reserve(device, 0) && !compact(d, bytes, Room::kOfReserve)) {
      make_room(d, short_of, true, {{}, Claim::kLowest, kBeforeAll, false, 0});
      extent = device.arena.allocate_settled(bytes);
    }
    if (extent) device.reserve.push_back(*extent);
  }
  if (reserved(device) >= device.reserve_bytes) return;
  for (const std::int64_t bytes : given_up) {
    if (const auto extent = device.arena.allocate_settled(bytes)) device.reserve.push_back(*extent);
  }
}

// The lowest unfinished task, where memory alone keeps it from running: its outputs do not fit, or it waits for an offered
// block for which there is no room. Later tasks do not count: the lowest may wait for a slow peer, and they for it.
Slot Core::Impl::starved_task(const DeviceState& device) const {
  const Slot t = lowest_task(device);
  if (t == kNone) return kNone;
  const Slot awaited = tasks[t].state == TaskState::kWaiting ? tasks[t].waits_for : kNone;
  const bool spilled = awaited != kNone && copies[awaited].state == CopyState::kSpilled &&
                       !copies[awaited].demoting;  // when it is there it is brought back
  return spilled || tasks[t].state == TaskState::kBlocked || ungranted_input(device, t) != kNone ? t : kNone;
}

bool Core::Impl::idle(const DeviceState& device) const {
  for (const StreamState& stream : device.streams) {
    if (!stream.flight.empty()) return false;
  }
  return !device.slab_pending && device.ios == 0;
}

// The machine may have had no memory for a moment only. Asked again where nothing else can go on: a few times where a task starves, for
// then it is told that it is stuck. Where blocks wait to be kept nobody would ever hear of it: the leaver waits, and memory is asked for
// as long as it does.
bool Core::Impl::asks_slab_again(const DeviceState& device) const {
  if (!device.full || device.arena.bytes_resident() >= device.spec.memory_bytes) return false;
  return starved_task(device) == kNone ? cannot_keep(device, copies) : device.slab_tries < kSlabTries;
}

void Core::Impl::retry_slabs() {
  for (DeviceState& device : devices) {
    if (now - device.last_change < options.stuck_ns / 4 || !idle(device) || !asks_slab_again(device))
      continue;
    ++device.slab_tries;
    device.full = false;
    device.last_change = now;
    device.memory_freed = true;
  }
}

// A tier below is full, and another device that has blocks there is at work: some of them will go.
bool Core::Impl::others_may_free_a_place(const DeviceState& device) const {
  for (const Tier tier : {Tier::kPinned, Tier::kDisk}) {
    if (!device.wants_place[static_cast<std::size_t>(tier)] || !may_use(device, tier)) continue;
    const bool busy = std::any_of(devices.begin(), devices.end(), [&](const DeviceState& other) {
      return &other != &device && may_use(other, tier) && !idle(other);
    });
    if (busy) return true;
  }
  return false;
}

// Memory is wanted and nothing here has moved for a while: say so. Time only delays the word (a peer may still be
// reading what it borrowed from us); it decides nothing by itself.
// When something last happened that could have freed memory for the device: its own doing, or that of another one that has blocks
// in a tier where it wants a place. That one may rest for a moment only.
TimeNs Core::Impl::last_hope(const DeviceState& device) const {
  TimeNs last = device.last_change;
  for (const Tier tier : {Tier::kPinned, Tier::kDisk}) {
    if (!device.wants_place[static_cast<std::size_t>(tier)] || !may_use(device, tier)) continue;
    for (const DeviceState& other : devices)
      if (may_use(other, tier)) last = std::max(last, other.last_change);
  }
  return last;
}

// That keeps the device from going on, unless something else is to happen that may free memory.
Slot Core::Impl::stuck_task(const DeviceState& device) const {
  if (!idle(device)) return kNone;
  // Guests on their way, or being sent to others, can leave afterwards. What is being passed on can be evicted when it has been sent,
  // or when its deadline is over.
  if (std::any_of(device.guests.begin(), device.guests.end(),
                  [&](Slot guest) { return !rests(copies[guest]); }))
    return kNone;
  if (std::any_of(relaying.begin(), relaying.end(),
                  [&](const auto& relay) { return &devices[copies[relay.second.copy].device] == &device; }))
    return kNone;
  return others_may_free_a_place(device) ? kNone : starved_task(device);
}

// It is said again as long as it is so: progress that was told before may come after it, and look like a sign of life.
void Core::Impl::check_stuck() {
  if (now < stuck_again_at || !releasing.empty() || stage != Stage::kWorks) return;
  for (const DeviceState& device : devices) {
    if (now - last_hope(device) < options.stuck_ns) continue;
    const Slot t = stuck_task(device);
    if (t == kNone) continue;
    const Task& task = tasks[t];
    const OpState& op = ops[task.op];
    const Slot input = ungranted_input(device, t);
    const Slot awaited = input == kNone && task.state == TaskState::kWaiting ? task.waits_for : input;
    const std::int64_t needed =
        awaited != kNone ? copies[awaited].bytes : op.entry->geometry->output_bytes_bound();
    const alloc::Arena &on_disk = store(Tier::kDisk).places, &pinned = store(Tier::kPinned).places;
    if (!dirty.empty()) {  // what was done before must not look like a sign of life afterwards
      report_now = true;
      report();
    }
    out->to_scheduler.push_back(msg::Stuck{op.run.graph,
                                           op.run.id,
                                           device.spec.id,
                                           needed,
                                           device.arena.largest_settled(),
                                           on_disk.max_bytes(),
                                           on_disk.bytes_in_use(),
                                           device.disk_short,
                                           device.spec.pins ? pinned.max_bytes() : 0,
                                           device.spec.pins ? pinned.bytes_in_use() : 0,
                                           {device.refusal.code, device.refusal.message}});
    stuck_again_at = now + options.stuck_ns;
    for (DeviceState& other : devices) other.slab_tries = 0;
    return;
  }
}

// If this step is the only thing that still needs an input of the same size, an output takes its memory (D5). Only
// for maps that read it element by element, in place.
ir::Donors Core::Impl::donors_of(Slot t, const std::vector<Slot>& in, std::span<const BlockRead> read) {
  const Task& task = tasks[t];
  const OpEntry& entry = *ops[task.op].entry;
  const DeviceState& device = devices[task.device];
  const auto needed_here_alone = [&](const Copy& copy) {
    const ArrayState& source = arrays[copy.array];
    if (!copy.has_memory || copy.bytes == 0 || source.held || source.pinned != 0 || tied(copy)) return false;
    const Slot u = copy.uses;
    if (u == kNone || uses[u].next != kNone || uses[u].left != 1 || uses[u].op != task.op) return false;
    if (uses[u].device != device.spec.id) return false;
    for (std::size_t s = 0; s < copy.readers.size(); ++s) {
      if (s != task.stream && s < device.streams.size() && copy.readers[s] > device.streams[s].completed)
        return false;
    }
    return !(copy.relays && roomy(device, 0));  // else others are about to come for it
  };
  const std::size_t outputs =
      entry.op.kind == ir::OpKind::kMap && task.steps == 1 ? entry.op.outputs.size() : 0;
  return ir::match_donors(outputs, in.size(), [&](std::size_t o, std::size_t i) {
    const Slot c = task.outputs[o];
    const Copy& copy = copies[in[i]];
    const ArrayState& source = arrays[copy.array];
    return c != kNone && !whole(copies[c]) && copies[c].bytes == copy.bytes &&
           ir::may_overwrite(entry.op, o, read[i].operand, source.dtype, source.grid) &&
           needed_here_alone(copy);
  });
}

}  // namespace tilewise::worker
