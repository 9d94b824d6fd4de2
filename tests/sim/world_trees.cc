// Workers on several hosts, where blocks that more than one of their devices reads go as trees.
#include "world_parts.h"

namespace tilewise::sim {

void Knobs::add_hosts(std::uint64_t seed) {
  Prng p(seed * 0x7EE5 + 23);
  if (p.chance(0.5)) return;
  hosts = static_cast<int>(p.between(2, 4));
  tree_bytes = p.chance(0.8) ? p.between(0, 64) : 1024;
  parts = p.chance(0.5);
  chains = p.chance(0.5);
}

Knobs Knobs::trees(std::uint64_t seed) {
  const bool calm = seed % 2 == 0;
  Knobs k = calm            ? from_seed(seed)
            : seed % 4 == 1 ? storm(seed)
            : seed % 8 == 3 ? partitioned(seed)
                            : spilling(seed);
  Prng p(seed * 0x7EE6 + 29);
  k.hosts = static_cast<int>(p.between(2, 6));
  k.workers = static_cast<int>(p.between(k.hosts, 8));
  k.devices_each = static_cast<int>(p.between(1, 3));
  k.tree_bytes = p.between(0, 32);
  k.parts = seed % 3 != 0;
  k.chains = seed % 5 < 2;
  if (calm) {  // nothing that makes anybody fetch a block twice
    k.duplicate = k.fail_step = k.cancel = k.kill_worker = k.slab_fails = k.send_fails = 0;
    k.memory_bytes = 4 << 20;
    k.slab_bytes = 1 << 20;
  } else {
    if (p.chance(0.3)) k.memory_bytes = p.between(12, 40) * 1024;
    k.slab_bytes = std::min(k.slab_bytes, k.memory_bytes);
    if (p.chance(0.3)) k.cancel = 0.3;
    if (p.chance(0.2)) k.fail_step = 0.02;
    if (p.chance(0.5)) k.send_fails = 0.2 + p.uniform() * 0.4;
  }
  return k;
}

// Of a block in parts the first comes before the rest, which is still to come where this says true.
bool World::first_part(int index, const worker::Transmit& transmit) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& to = *workers_[w];
    const auto armed = to.armed.find(transmit.transfer);
    if (to.welcome.you != transmit.to || !to.alive || armed == to.armed.end() || !armed->second.in_parts)
      continue;
    armed->second.in_parts = false;  // it has been told of
    ++outcome_.covered["blocks in parts"];
    const Way way{workers_[static_cast<std::size_t>(index)]->welcome.you.value, transmit.to.value};
    at(2 * delay(way), [this, index, transmit] {
      if (!fails_to_send(index, transmit)) send_bytes(index, transmit);
    });
    deliver_worker(static_cast<int>(w), worker::PartArrived{transmit.transfer});
    return true;
  }
  return false;
}

// What is passed on while it comes is whole no sooner than it is here.
bool World::still_comes(int index, const worker::Transmit& transmit) {
  if (transmit.follows == 0) return false;
  const Worker& worker = *workers_[static_cast<std::size_t>(index)];
  const bool told = std::any_of(worker.telling.begin(), worker.telling.end(), [&](const auto& t) {
    return t.to == transmit.to && t.transfer == transmit.transfer;
  });
  if (!worker.alive || !told) return true;                  // it has ended
  if (worker.failed_receives.contains(transmit.follows)) {  // before the core asked for this
    not_passed_on(index, transmit);
    return true;
  }
  const Cell* source = cell_at(transmit.from);
  if (source != nullptr && source->complete) {
    ++outcome_.covered["parts passed on"];
    return false;
  }
  at(jitter(), [this, index, transmit] { send_bytes(index, transmit); });
  return true;
}

void World::not_passed_on(int index, const worker::Transmit& transmit) {
  ++outcome_.covered["parts that did not come to be passed on"];
  deliver_worker(index, worker::NotSent{transmit.block, transmit.sender, transmit.reader, transmit.transfer});
  sent(index, transmit);
}

// What follows it has ended before.
void World::receive_failed(int index, worker::TransferDone done) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  worker.failed_receives.insert(done.transfer);
  for (const worker::Transmit& t : std::vector<worker::Transmit>(worker.telling))
    if (t.follows == done.transfer) not_passed_on(index, t);
  deliver_worker(index, std::move(done));
}

void World::note_crossing(int from, int to, const Cell& cell) {
  if (host_of(from) == host_of(to)) {
    ++outcome_.covered["transfers inside a host"];
    return;
  }
  ++outcome_.covered["transfers between hosts"];
  crossings_[{cell.array, cell.block, host_of(to)}] += cell.bytes;
}

// Where nothing fails a block comes to each host once for all the ops there that were known together. Another graph may fetch it
// again.
void World::check_crossings() {
  const bool calm = knobs_.duplicate == 0 && knobs_.fail_step == 0 && knobs_.cancel == 0 &&
                    knobs_.kill_worker == 0 && knobs_.kills == 0 && knobs_.drains == 0 &&
                    knobs_.partitions == 0 && knobs_.zombies == 0 && knobs_.poison == 0 &&
                    knobs_.breaks == 0 && knobs_.copies == 0 && knobs_.moves == 0 && knobs_.slab_fails == 0 &&
                    knobs_.scheduler_crashes == 0 && knobs_.relinks == 0 && knobs_.pauses == 0 &&
                    knobs_.send_fails == 0 && !knobs_.may_be_lost() && knobs_.alloc_fails_at == 0 &&
                    knobs_.memory_bytes >= 4 << 20;
  if (!calm || knobs_.hosts < 2) return;
  for (const auto& [what, bytes] : crossings_) {
    const auto& [array, block, host] = what;
    const std::int64_t size = oracle_.bytes(array, block);
    if (size <= knobs_.tree_bytes || !oracle_.computed(array)) continue;
    ++outcome_.covered["crossings checked"];
    if (bytes > size * oracle_.graphs_reading(array))
      return violate("block " + std::to_string(block) + " of array " + std::to_string(array & 0xFFFFFF) +
                     ", " + std::to_string(size) + " bytes, came to host " + std::to_string(host) + " in " +
                     std::to_string(bytes) + " bytes for " + std::to_string(oracle_.graphs_reading(array)) +
                     " graphs");
  }
}

}  // namespace tilewise::sim
