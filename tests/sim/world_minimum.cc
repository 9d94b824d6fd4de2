// What is made again after a loss is the minimum: each Recover is compared with what an oracle finds necessary (minimum.h), from what each
// worker had when it said what it has, and from what clients hold and have not got.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::least(std::uint64_t seed) {
  Knobs k = storm(seed);
  Prng p(seed * 0x1EA5 + 53);
  k.minimum = true;
  k.memory_bytes = 4 << 20;
  k.slab_fails = 0;
  k.gpu_every = 0;  // all devices are of one numeric class
  k.recovery_wait_ns = 30 * kSecond;
  k.uploads = false;
  k.empty = k.pairs = 0;
  k.lists = p.chance(0.5) ? 0.3 : 0;
  k.workers = static_cast<int>(p.between(2, 4));
  k.clients = static_cast<int>(p.between(1, 2));
  k.kills = static_cast<int>(p.between(1, 3));
  if (p.chance(0.4)) k.copies = 0.5;
  return k;
}

// What a worker has, when it says so.
void World::note_truth(int index, std::uint64_t version) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  Worker::Told& told = worker.told;
  told = {version, {}, {}, worker.ran};
  std::set<BlockId> slots;
  for (const auto& [array, blocks] : minimum_.arrays()) {
    const msg::BlocksReply reply = worker.core->blocks({1, ArrayId{array}, 0, blocks});
    for (const msg::BlockCopy& copy : reply.copies) {
      slots.emplace(array, copy.block);
      if (copy.state == msg::BlockState::kHere || copy.state == msg::BlockState::kSpilled)
        told.here.emplace(array, copy.block);
    }
  }
  // In flight, and those behind it have been told to read its result: then its memory is somebody else's.
  for (const auto& [task, ran] : worker.ran) {
    if (ran.over || ran.steps < oracle_.steps(OpId{task.first}, task.second)) continue;
    if (!slots.contains({oracle_.made(OpId{task.first}, 0), task.second})) told.used_up.insert(task);
  }
}

void World::note_launch(int index, const worker::Launch& launch) {
  if (knobs_.minimum)
    ++workers_[static_cast<std::size_t>(index)]->ran[{launch.run.id.value, launch.point}].steps;
}

void World::note_held() {
  held_.clear();
  for (const auto& client : clients_) {
    if (!client->welcomed) continue;
    const scheduler::View view = scheduler_->view(scheduler::ArraysRequest{client->welcome.session}, now_);
    for (const scheduler::ArrayView& array : std::get<scheduler::ArrayList>(view).arrays) {
      if (array.held && array.failed.ok()) held_.insert(array.id.value);
    }
  }
}

// `most`: as workers have told it, and also what clients have got of requests that are under way (docs/design/recovery.md, How far from the minimum), and what calls of
// these make for nobody: they are run for what they do.
Minimum::Truth World::truth(bool most) const {
  Minimum::Truth out;
  for (const auto& worker : workers_) {
    if (worker->closed || worker->core == nullptr) continue;
    out.living.insert(worker->welcome.devices.begin(), worker->welcome.devices.end());
    out.here.insert(worker->told.here.begin(), worker->told.here.end());
    out.used_up.insert(worker->told.used_up.begin(), worker->told.used_up.end());
    out.ran.insert(worker->told.ran.begin(), worker->told.ran.end());
  }
  const auto want = [&](std::uint64_t array) {
    const auto known = minimum_.arrays().find(array);
    if (known == minimum_.arrays().end()) return;  // planned in this step
    for (std::int64_t b = 0; b < known->second; ++b) out.wanted.emplace_back(array, b);
  };
  for (const std::uint64_t array : held_) want(array);
  if (most) {  // copies may have been begun of what was released since
    for (const auto& [keep, array] : minimum_.keeps()) want(array);
  }
  for (const auto& [graph, arrays] : minimum_.fetches()) {
    const Client::Request* request = nullptr;
    for (const auto& client : clients_) {
      for (const auto& [number, asked] : client->requests)
        if (asked.replied && asked.graph == graph) request = &asked;
    }
    if (request != nullptr && request->done) continue;
    for (std::size_t i = 0; most && oracle_.planned(graph, i); ++i) {
      const OpId op = *oracle_.planned(graph, i);
      if (oracle_.kind(op) == ir::OpKind::kCall) want(oracle_.made(op, 0));
    }
    for (const std::uint64_t array : arrays) {
      if (request == nullptr || most) {
        want(array);
        continue;
      }
      const auto left = request->wanted.find(array);
      if (left == request->wanted.end()) continue;
      for (const std::int64_t b : left->second) out.wanted.emplace_back(array, b);
    }
  }
  return out;
}

void World::check_minimum(const msg::Recover& recover) {
  if (!knobs_.minimum || recover.version <= recovered_) return;
  const scheduler::Counters counts = scheduler_->counters();
  // What cannot be had ends what wants it, and then less is wanted.
  const bool comparable =
      minimum_.can_tell() && counts.given_up == 0 && counts.passes_given_up == 0 && counts.cut_answers == 0;
  if (comparable) {
    for (std::size_t w = 0; w < workers_.size(); ++w) {  // who was not asked
      if (workers_[w]->core != nullptr && workers_[w]->told.version != recover.version)
        note_truth(static_cast<int>(w), recover.version);
    }
    const Minimum::Truth most_truth = truth(true);
    // Since it answered a task may have begun, or ended, and what it read been let go of where nobody had answered yet.
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      if (workers_[w]->core == nullptr) continue;
      const std::set<BlockId> pinned = workers_[w]->told.here;
      note_truth(static_cast<int>(w), recover.version);
      workers_[w]->told.here.insert(pinned.begin(), pinned.end());
    }
    const Minimum::Truth least_truth = truth(false);
    const std::set<BlockId> least = minimum_.needed(least_truth, oracle_),
                            most = minimum_.needed(most_truth, oracle_);
    const std::set<BlockId> again = Minimum::made_again(recover, oracle_);
    const auto name = [&](const BlockId& block) {
      return "block " + std::to_string(block.second) + " of array " + std::to_string(block.first & 0xFFFFFF) +
             ", last made by d" + std::to_string(minimum_.maker_of(block).value);
    };
    std::string wrong;
    for (const BlockId& block : least)
      if (!again.contains(block)) wrong += "\nnot made again: " + name(block);
    for (const BlockId& block : again)
      if (!most.contains(block)) wrong += "\nmade again for nobody: " + name(block);
    if (!wrong.empty())
      return violate("not the minimum after loss " + std::to_string(recover.version) + wrong);
    ++outcome_.covered["recoveries compared with the minimum"];
    if (!minimum_.keeps().empty()) ++outcome_.covered["recoveries compared beside copies"];
    if (least == most) ++outcome_.covered["recoveries that are the minimum to the block"];
    if (again.empty()) ++outcome_.covered["recoveries that make nothing again"];
    outcome_.covered["blocks made again that must be"] += static_cast<std::int64_t>(again.size());
    for (const BlockId& block : again)
      outcome_.covered["blocks made again that their living makers had let go"] +=
          least_truth.living.contains(minimum_.maker_of(block));
    for (const BlockId& block : most_truth.wanted)
      outcome_.covered["wanted blocks of the lost that others have"] +=
          !least_truth.living.contains(minimum_.maker_of(block)) && least_truth.here.contains(block);
  } else {
    ++outcome_.covered["recoveries that were not compared"];
  }
  minimum_.learn(recover);
  recovered_ = recover.version;
}

}  // namespace tilewise::sim
