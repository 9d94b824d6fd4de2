// Clients that want their arrays on several workers. What the scheduler promises is compared with what workers say they have: when
// the request is done, and when all is at rest; and an array is lost only with as many workers as had it.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::copying(std::uint64_t seed) {
  Knobs k = seed % 4 == 0 ? draining(seed) : seed % 4 == 1 ? restarts(seed) : storm(seed);
  Prng p(seed * 0xC0B1 + 17);
  k.copies = p.chance(0.5) ? 1 : 0.5;
  k.workers = static_cast<int>(p.between(2, 5));
  if (p.chance(0.6)) k.recompute_ops = static_cast<int>(p.between(1, 4));
  k.kills = static_cast<int>(p.between(k.drains > 0 ? 0 : 1, 3));
  // Copies may be left out for want of memory, and what is left of a request that failed for it may be lost: not looked at here.
  k.slab_fails = 0;
  k.memory_bytes *= 8;
  if (p.chance(0.6)) k.send_fails = 0.3 + p.uniform() * 0.5;  // there is somebody else to ask
  return k;
}

int World::living() const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [](const auto& worker) {
    return worker->takes_part() && worker->core != nullptr;
  }));
}

void World::ask_for_copies(Client& client, msg::Submit& submit) {
  if (!prng_.chance(knobs_.copies)) return;
  for (const std::uint64_t number : submit.holds) {
    if (prng_.chance(0.7)) submit.keeps.push_back({number, static_cast<std::uint32_t>(prng_.between(1, 3))});
  }
  if (!client.held.empty() && prng_.chance(0.2)) {  // of one that was held before, too
    const std::uint64_t number = client.held[prng_.below(client.held.size())].number;
    submit.keeps.push_back({number, 2});
  }
  for (const msg::Keep& keep : submit.keeps) {
    int& most = client.copies_asked[keep.array];
    most = std::max(most, static_cast<int>(keep.copies));
  }
}

// Those that have a whole copy of their own.
int World::workers_with(std::uint64_t array, std::int64_t block) const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [&](const auto& worker) {
    if (!worker->alive || worker->core == nullptr) return false;
    const msg::BlocksReply reply = worker->core->blocks({1, ArrayId{array}, block, 1});
    return std::any_of(reply.copies.begin(), reply.copies.end(), [](const msg::BlockCopy& copy) {
      return copy.state == msg::BlockState::kHere || copy.state == msg::BlockState::kSpilled;
    });
  }));
}

void World::check_copies(Client& client, std::uint64_t number) {
  const Client::Request& request = client.requests[number];
  if (request.keeps.empty() || down_) return;
  const scheduler::View view = scheduler_->view(scheduler::ArraysRequest{client.welcome.session}, now_);
  for (const scheduler::ArrayView& array : std::get<scheduler::ArrayList>(view).arrays) {
    const auto keep = std::find_if(request.keeps.begin(), request.keeps.end(),
                                   [&](const msg::Keep& k) { return k.array == array.number; });
    // It may be lost by now, with a worker that was dead already when this was sent.
    if (!array.held || !array.failed.ok() || keep == request.keeps.end() || keep->copies < 2) continue;
    int copies = INT32_MAX;
    for (std::int64_t b = 0; b < array.blocks; ++b) {
      if (oracle_.bytes(array.id.value, b) > 0) copies = std::min(copies, workers_with(array.id.value, b));
    }
    const int dead = gone_ - request.gone;
    // A worker that is to leave is given nothing; what came later may not have been asked.
    const int least = std::min(static_cast<int>(keep->copies), request.living - knobs_.drains) - dead;
    if (copies < least)
      return violate("a request ended with " + std::to_string(copies) + " copies of array " +
                     std::to_string(array.id.value & 0xFFFFFF) + " instead of " + std::to_string(least));
    if (copies == INT32_MAX || copies < 2) continue;
    ++outcome_.covered["arrays on several workers"];
    Client::Kept& kept = client.kept[array.number];
    kept = {array.id.value, std::max(kept.wanted, static_cast<int>(keep->copies)), copies, gone_};
  }
}

// Until all that was lost has been made up for: who dies meanwhile is waited for as long again.
void World::rest(int index, int gone) {
  at(90 * kSecond, [this, index, gone] {
    if (gone_ > gone) return rest(index, gone_);
    Client& client = *clients_[static_cast<std::size_t>(index)];
    client.rested = true;
    if (!client.dead) check_held(client);
    client_next(index);
  });
}

void World::check_held(Client& client) {
  if (down_ || living() == 0) return;
  const scheduler::View all = scheduler_->view(scheduler::OverviewRequest{}, now_);
  outcome_.covered["anchors at rest"] += std::get<scheduler::Overview>(all).anchors;
  const scheduler::View view = scheduler_->view(scheduler::ArraysRequest{client.welcome.session}, now_);
  for (const scheduler::ArrayView& array : std::get<scheduler::ArrayList>(view).arrays) {
    const auto kept = client.kept.find(array.number);
    if (!array.held || kept == client.kept.end()) continue;
    const std::string name = "array " + std::to_string(array.id.value & 0xFFFFFF);
    if (!array.failed.ok()) {
      ++outcome_.covered["arrays on several workers lost"];
      if (gone_ - kept->second.gone < kept->second.copies)
        return violate(name + " was lost with fewer workers than had it: " + array.failed.message);
      continue;
    }
    const int wanted = kept->second.wanted - array.lacking;
    for (std::int64_t b = 0; b < array.blocks; ++b) {
      if (oracle_.bytes(array.id.value, b) == 0) continue;
      const int copies = workers_with(array.id.value, b);
      if (copies < wanted)
        return violate(name + ", block " + std::to_string(b) + " has " + std::to_string(copies) +
                       " copies at rest instead of " + std::to_string(wanted));
    }
    const bool roomy = knobs_.memory_bytes >= 4 << 20 && knobs_.disk_fails == 0 && knobs_.drains == 0;
    if (roomy && array.lacking > std::max(0, client.copies_asked[array.number] - living()))
      return violate(name + " lacks " + std::to_string(array.lacking) + " copies at rest beside " +
                     std::to_string(living()) + " workers");
    if (gone_ > kept->second.gone && array.lacking == 0) ++outcome_.covered["copies made again"];
  }
}

}  // namespace tilewise::sim
