// Blocks on their way to and from what lies below memory, to neighbours, and within memory. Disks refuse, copies fail.
#include <algorithm>
#include <functional>
#include <utility>

#include "world.h"

namespace tilewise::sim {

// Ways to and from tiers take their time, and a disk may refuse. A block is where it was until they are over.
void World::begin_io(int index, const worker::TierIo& io) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  trace(index, io);
  if (io.tier == worker::Tier::kNeighbour) return begin_neighbour_io(index, io);
  const bool disk = io.tier == worker::Tier::kDisk;
  if (io.at < 0 || io.at + io.bytes > (disk ? knobs_.spill_bytes : knobs_.pinned_bytes))
    return violate("a block beyond the end of its tier");
  if (!disk && !knobs_.pins(io.device)) return violate("a device spills to memory that is not for it");
  if (!io.write) {
    write_cell(io.memory, io.bytes, 0, 0);
  } else {
    const Cell* source = io.from < 0 ? cell_at(io.memory) : pinned_cell(worker, io.from);
    if (source == nullptr || !source->complete || source->bytes != io.bytes)
      return violate("memory without a sealed block is spilled");
    auto& below = worker.in(io.tier);
    auto it = below.lower_bound(io.at);
    if (it != below.begin() && std::prev(it)->first + std::prev(it)->second.bytes > io.at) --it;
    while (it != below.end() && it->first < io.at + io.bytes) it = below.erase(it);
    below[io.at] = *source;
    below[io.at].complete = false;
    if (disk && io.from < 0 && knobs_.pins(io.device)) ++outcome_.covered["pinned memory is full"];
  }
  at(prng_.between(100, std::max<TimeNs>(disk ? knobs_.disk_ns : knobs_.disk_ns / 16, 1'000)),
     [this, index, io] { end_io(index, io); });
}

void World::end_io(int index, const worker::TierIo& io) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive) return;
  const bool disk = io.tier == worker::Tier::kDisk;
  worker::IoDone done{io.io, {Errc::kOk, {}}};
  if (prng_.chance(knobs_.disk_fails)) {
    ++outcome_
          .covered[disk ? (io.write ? Counted("failed writes to disk") : Counted("failed reads from disk"))
                        : (io.write ? Counted("failed writes to pinned memory")
                                    : Counted("failed reads from pinned memory"))];
    done.failed = {disk ? Errc::kIo : Errc::kDeviceError, "injected"};
  } else if (disk && io.write && prng_.chance(knobs_.disk_full)) {
    ++outcome_.covered["disk full"];
    done.failed = {Errc::kDiskFull, "injected"};
  }
  if (done.failed.code == Errc::kOk && disk && io.write && no_room("no memory for places on disk"))
    done.failed = {Errc::kDiskFull, "injected"};
  if (done.failed.code == Errc::kOk &&
      no_room(disk ? Counted("no memory for buffers for disk")
                   : Counted("no memory for copies to and from pinned memory")))
    done.failed = {Errc::kOutOfMemory, "injected"};
  auto& below = worker.in(io.tier);
  const auto stored = below.find(io.at);
  if (stored == below.end() || stored->second.bytes != io.bytes || stored->second.complete == io.write)
    return violate("a place in a tier was given to another block under way");
  Cell* memory = io.from < 0 ? cell_at(io.memory) : pinned_cell(worker, io.from);
  if (memory == nullptr || memory->bytes != io.bytes || memory->complete != io.write)
    return violate("memory was given to another block while it was spilled or brought back");
  if (done.failed.code != Errc::kOk && !io.write)
    inject(not_read_back(stored->second.array, stored->second.block), stored->second.array,
           stored->second.block);
  if (done.failed.code == Errc::kOk) {
    if (io.from >= 0) ++outcome_.covered["blocks from pinned memory to disk"];
    ++outcome_.covered[disk ? (io.write ? Counted("blocks spilled") : Counted("blocks brought back"))
                            : (io.write ? Counted("blocks to pinned memory")
                                        : Counted("blocks from pinned memory"))];
    if (io.write) {
      if (stored->second.value != memory->value) return violate("a block changed while it was spilled");
      stored->second.complete = true;
    } else {
      *memory = stored->second;
    }
  } else if (io.write) {
    below.erase(stored);
  }
  deliver_worker(index, done);
}

// Between memories of two devices of a worker.
void World::begin_neighbour_io(int index, const worker::TierIo& io) {
  const worker::MemoryRef &from = io.write ? io.memory : io.lodging, &to = io.write ? io.lodging : io.memory;
  copy_block(index, io.io, from, to, io.bytes, [this, out = io.write](const Cell& block) {
    Error failed{Errc::kOk, {}};
    if (prng_.chance(knobs_.disk_fails)) {
      ++outcome_.covered["failed copies between neighbours"];
      failed = {prng_.chance(0.5) ? Errc::kDeviceError : Errc::kOutOfMemory, "injected"};
    }
    if (failed.code == Errc::kOk && no_room("no memory for copies between neighbours"))
      failed = {Errc::kOutOfMemory, "injected"};
    if (failed.code != Errc::kOk && !out)
      inject(not_read_back(block.array, block.block), block.array, block.block);
    if (failed.code == Errc::kOk)
      ++outcome_.covered[out ? Counted("blocks that reached neighbours")
                             : Counted("blocks back from neighbours")];
    return failed;
  });
}

// Within a device's memory.
void World::begin_relocation(int index, const worker::Relocate& move) {
  trace(index, move);
  copy_block(index, move.io, move.from, move.to, move.bytes, [this](const Cell&) {
    const bool fails = prng_.chance(knobs_.disk_fails);
    ++outcome_.covered[fails ? Counted("failed copies within memory")
                             : Counted("blocks that moved within memory")];
    return fails ? Error{Errc::kDeviceError, "injected"} : Error{Errc::kOk, {}};
  });
}

// A sealed block to memory that nobody else has meanwhile; `ends` says how.
void World::copy_block(int index, std::uint64_t io, const worker::MemoryRef& from,
                       const worker::MemoryRef& to, std::int64_t bytes,
                       std::function<Error(const Cell&)> ends) {
  const Cell* source = cell_at(from);
  if (source == nullptr || !source->complete || source->bytes != bytes)
    return violate("memory without a sealed block is copied");
  const Cell block = *source;
  write_cell(to, bytes, block.array, block.block);
  const auto end = [this, index, io, from, to, bytes, block, ends = std::move(ends)] {
    if (!workers_[static_cast<std::size_t>(index)]->alive) return;
    const worker::IoDone done{io, ends(block)};
    const Cell* source = cell_at(from);
    Cell* memory = cell_at(to);
    if (source == nullptr || source->value != block.value || source->block != block.block ||
        memory == nullptr || memory->complete || memory->bytes != bytes)
      return violate("memory was given to another block while one was copied");
    if (done.failed.code == Errc::kOk) *memory = block;
    deliver_worker(index, done);
  };
  at(prng_.between(100, std::max<TimeNs>(knobs_.disk_ns / 64, 1'000)), end);
}

World::Cell* World::pinned_cell(Worker& worker, std::int64_t at) {
  auto& pinned = worker.in(worker::Tier::kPinned);
  const auto cell = pinned.find(at);
  return cell == pinned.end() ? nullptr : &cell->second;
}

}  // namespace tilewise::sim
