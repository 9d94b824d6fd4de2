// Little that may be on its way, and blocks that were granted and are not sent.
#include "world_parts.h"

namespace tilewise::sim {

namespace {
// Of a block on its way to a device: the third is the last (worker/core/peers.cc), and a copy from a peer's GPU may have failed too.
constexpr int kMostFailures = 2, kMostBesideGpus = 1;
}  // namespace

void Knobs::add_windows(std::uint64_t seed) {
  Prng p(seed * 0xF117 + 31);
  if (p.chance(0.4)) {
    in_flight = p.chance(0.3) ? 1 : p.between(64, 8192);  // 1: one block at a time
    in_flight_peer = p.chance(0.4) ? in_flight : p.between(1, in_flight);
  }
  if (p.chance(0.35)) send_fails = p.uniform() * 0.4;
}

// The sender notices, and says so; or the bytes are never seen again, and the receiver's patience ends.
bool World::fails_to_send(int index, const worker::Transmit& transmit) {
  if (knobs_.send_fails == 0 || !prng_.chance(knobs_.send_fails) || !awaited(transmit)) return false;
  int receiver = -1;
  for (std::size_t w = 0; w < workers_.size(); ++w)
    if (workers_[w]->welcome.you == transmit.to) receiver = static_cast<int>(w);
  if (receiver < 0) return false;
  int& failures = not_sent_[{transmit.reader.value, transmit.block.array.value, transmit.block.block}];
  if (failures >= (knobs_.gpus || knobs_.gpu_every > 0 ? kMostBesideGpus : kMostFailures)) return false;
  ++failures;
  if (prng_.chance(0.5)) {
    ++outcome_.covered["sends that failed at their sender"];
    at(jitter(), [this, index, transmit] {
      deliver_worker(index,
                     worker::NotSent{transmit.block, transmit.sender, transmit.reader, transmit.transfer});
      if (transmit.tell) sent(index, transmit);
    });
    return true;
  }
  ++outcome_.covered["sends that vanished"];
  if (transmit.tell) at(jitter(), [this, index, transmit] { sent(index, transmit); });
  const TimeNs patience = 2 * knobs_.longest_delay_ns();
  at(patience, [this, receiver, t = transmit.transfer] {
    Worker& to = *workers_[static_cast<std::size_t>(receiver)];
    if (!to.alive || to.armed.erase(t) == 0) return;
    receive_failed(receiver, {t, {Errc::kTimeout, "nothing came"}, msg::Lane::kTcp});
  });
  return true;
}

// What is armed was granted: no more than may be on its way, or one block.
void World::check_in_flight(const Worker& worker) {
  if (knobs_.in_flight == 0) return;
  std::map<WorkerId, std::pair<std::int64_t, int>> of;
  std::int64_t bytes = 0;
  int blocks = 0;
  for (const auto& [transfer, receive] : worker.armed) {
    if (receive.from == worker.welcome.you || receive.bytes == 0) continue;
    bytes += receive.bytes, ++blocks;
    of[receive.from].first += receive.bytes, ++of[receive.from].second;
  }
  if (blocks > 1 && bytes > knobs_.in_flight)
    violate(std::to_string(bytes) + " bytes are on their way to a worker");
  for (const auto& [peer, there] : of) {
    if (there.second > 1 && there.first > knobs_.in_flight_peer)
      violate(std::to_string(there.first) + " bytes are on their way to a worker from one peer");
  }
}

}  // namespace tilewise::sim
