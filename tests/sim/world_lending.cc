// GPUs that read those of other workers of their host: slabs are opened, blocks copied by who reads them, or read in place.
#include "world_parts.h"

namespace tilewise::sim {

// One worker's GPUs are others; the next one has some of them too.
std::string Knobs::gpu(int worker, int device) const {
  if (kind(device) == 0) return {};
  return "gpu-" + std::to_string(worker % hosts) + "-" + std::to_string((worker / hosts + device) % 2);
}

// As a worker would be told beside its link, before any message over it.
void World::open_slab(int reader, int lender, int device, std::uint32_t slab) {
  const Worker& from = *workers_[static_cast<std::size_t>(lender)];
  for (int d = 0; d < knobs_.devices_each; ++d) {
    if (knobs_.kind(d) == 0) continue;
    if (prng_.chance(0.05)) {
      ++outcome_.covered["slabs that could not be opened"];
      continue;
    }
    deliver_worker(
        reader, worker::SlabReached{from.welcome.you, from.welcome.devices[static_cast<std::size_t>(device)],
                                    slab, static_cast<std::uint16_t>(d)});
  }
}

// The link between the two is up.
void World::open_slabs(int reader, WorkerId peer) {
  workers_[static_cast<std::size_t>(reader)]->ready.insert(peer);
  for (int lender = 0; lender < static_cast<int>(workers_.size()); ++lender) {
    const Worker& from = *workers_[static_cast<std::size_t>(lender)];
    if (from.welcome.you != peer || from.core == nullptr) continue;
    for (int d = 0; d < knobs_.devices_each; ++d) {
      if (knobs_.kind(d) == 0) continue;
      open_slab(reader, lender, d, msg::kProbeSlab);
      for (std::uint32_t slab = 0; slab < from.slabs[static_cast<std::size_t>(d)]; ++slab)
        open_slab(reader, lender, d, slab);
    }
  }
}

void World::slab_added(int index, const worker::AddSlab& slab) {
  const bool ok = !prng_.chance(knobs_.slab_fails) && !no_room("no memory for slabs");
  if (!ok) ++outcome_.covered["failed allocations"];
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive) return;
  const bool lent = knobs_.kind(slab.device) != 0 && knobs_.map_peers;
  if (ok) {
    const std::uint32_t number = worker.slabs[slab.device]++;
    for (int reader = 0; lent && reader < static_cast<int>(workers_.size()); ++reader) {
      if (workers_[static_cast<std::size_t>(reader)]->ready.contains(worker.welcome.you))
        open_slab(reader, index, slab.device, number);
    }
  }
  deliver_worker(index, worker::SlabAdded{slab.device, slab.bytes, ok, lent});
}

void World::begin_pull(int index, const worker::Pull& pull) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  write_cell(pull.to, pull.bytes, 0, 0);
  at(delay({pull.peer.value, worker.welcome.you.value}), [this, index, pull] { end_pull(index, pull); });
}

// The bytes are read when they are: what was lent must still be there, unless its process has died.
void World::end_pull(int index, const worker::Pull& pull) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive) return;
  if (stands_still(worker.welcome.you.value, [this, index, pull] { end_pull(index, pull); })) return;
  const auto ends = [&](Error how) {
    deliver_worker(index, worker::TransferDone{pull.transfer, std::move(how), msg::Lane::kCudaIpc});
  };
  const bool alive =
      std::ranges::any_of(workers_, [&](const auto& w) { return w->welcome.you == pull.peer && w->alive; });
  if (prng_.chance(alive ? 0.02 : 0.5)) {
    ++outcome_.covered["failed copies from a peer's GPU"];
    return ends({Errc::kDeviceError, "made to fail by the simulator"});
  }
  const Cell* source = cell_at(pull.from);
  if (pull.bytes > 0 && (source == nullptr || !source->complete)) {
    if (alive && !worker.declared_lost)
      return violate("a copy from a peer's GPU reads memory that holds no sealed block");
    return ends({Errc::kDeviceError, "its memory is gone"});
  }
  ++outcome_.covered["copies from a peer's GPU"];
  if (pull.bytes > 0) {
    const Cell value = *source;
    Cell& cell = write_cell(pull.to, pull.bytes, value.array, value.block);
    cell.value = value.value;
    cell.complete = true;
  }
  ends({Errc::kOk, {}});
}

void World::note_lent(int index, const worker::Launch& launch) {
  const Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (knobs_.kind(launch.device) == 0) return;
  for (const worker::MemoryRef& input : launch.inputs) {
    if (std::ranges::find(worker.welcome.devices, input.device) == worker.welcome.devices.end())
      ++outcome_.covered["reads in a peer's GPU"];
  }
}

}  // namespace tilewise::sim
