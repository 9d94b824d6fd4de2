// What is made again after a loss, or where a worker leaves, is the minimum: each Recover is compared with what an oracle finds necessary (minimum.h), from what each
// worker had when it said what it has, and from what clients hold and have not got.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::least(std::uint64_t seed) {
  Knobs k = storm(seed);
  Prng p(seed * 0x1EA5 + 53);
  k.minimum = true;
  k.memory_bytes = 4 << 20;
  k.slab_fails = 0;
  k.gpu_every = 0, k.classes = 1;  // all devices make the same bits
  k.recovery_wait_ns = 30 * kSecond;
  k.empty = 0;
  k.lists = p.chance(0.5) ? 0.3 : 0;
  k.workers = static_cast<int>(p.between(2, 4));
  k.clients = static_cast<int>(p.between(1, 2));
  k.kills = static_cast<int>(p.between(1, 3));
  if (p.chance(0.4)) k.copies = 0.5;
  k.uploads = p.chance(0.5);
  k.pairs = p.chance(0.5) ? 0.4 : 0;
  if (p.chance(0.4)) {
    k.drains = static_cast<int>(p.between(1, 3));
    k.kills = static_cast<int>(p.between(0, 2));
    k.undo = p.chance(0.5) ? 0 : p.uniform();
  }
  return k;
}

// What a worker has, when it says so.
void World::note_truth(int index, std::uint64_t version) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  Worker::Told& told = worker.told;
  told = {version, {}, {}, worker.ran};
  std::set<std::pair<BlockId, DeviceId>> slots;
  for (const auto& [array, blocks] : minimum_.arrays()) {
    const msg::BlocksReply reply = worker.core->blocks({1, ArrayId{array}, 0, blocks});
    for (const msg::BlockCopy& copy : reply.copies) {
      const BlockId block{array, copy.block};
      slots.emplace(block, copy.device);
      if (copy.state == msg::BlockState::kHere || copy.state == msg::BlockState::kSpilled)
        told.here[block].insert(copy.device);
    }
  }
  // In flight, and those behind it have been told to read its result: then its memory is somebody else's.
  for (const auto& [task, ran] : worker.ran) {
    const OpId op{task.first};
    if (ran.over || ran.steps < oracle_.steps(op, task.second)) continue;
    for (std::size_t i = 0; i < oracle_.results(op); ++i) {
      const BlockId block{oracle_.made(op, i), task.second};
      if (!slots.contains({block, ran.device})) told.used_up.insert(block);
    }
  }
}

void World::note_launch(int index, const worker::Launch& launch) {
  if (!knobs_.minimum) return;
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  Ran& ran = worker.ran[{launch.run.id.value, launch.point}];
  ran.device = worker.welcome.devices[launch.device];
  ran.spared = false;
  ++ran.steps;
}

// Whose task is to run again, and has all its results: it came by them in another way.
void World::note_spared(int index) {
  if (!knobs_.minimum) return;
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  for (const auto& [task, results] : minimum_.again_on(worker.welcome.devices)) {
    if (worker.ran.contains(task)) continue;
    const DeviceId device = minimum_.maker_of(results.front());
    std::size_t there = 0, to_come = 0;
    for (const auto& [array, block] : results) {
      for (const msg::BlockCopy& copy : worker.core->blocks({1, ArrayId{array}, block, 1}).copies) {
        if (copy.device != device) continue;
        const bool whole = copy.state == msg::BlockState::kHere || copy.state == msg::BlockState::kSpilled;
        ++(whole ? there : to_come);
      }
    }
    if (there == 0 || to_come > 0) continue;
    worker.ran[task] = {.spared = true, .device = device};
    ++outcome_.covered["tasks to be run again that had their results"];
  }
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

// `most`: as workers and clients have told it (what a client has not told of is wanted as a whole), and also what calls of requests that
// are under way make for nobody: they are run for what they do.
Minimum::Truth World::truth(bool most, std::uint64_t answered) const {
  Minimum::Truth out;
  for (const auto& worker : workers_) {
    if (worker->closed || worker->core == nullptr) continue;
    const bool leaves = worker->left_at > recovered_;
    if (worker->left_at > 0 && !(leaves && most)) continue;
    (leaves ? out.left : out.living).insert(worker->welcome.devices.begin(), worker->welcome.devices.end());
    for (const auto& [block, devices] : worker->told.here)
      out.here[block].insert(devices.begin(), devices.end());
    if (leaves) continue;
    out.used_up.insert(worker->told.used_up.begin(), worker->told.used_up.end());
    out.ran.insert(worker->told.ran.begin(), worker->told.ran.end());
  }
  const auto want = [&](std::uint64_t array) {
    const auto known = minimum_.arrays().find(array);
    if (known == minimum_.arrays().end()) return;  // planned in this step
    for (std::int64_t b = 0; b < known->second; ++b) out.wanted.emplace_back(array, b);
  };
  out.ended = ended_;
  if (most) out.ended.insert(ended_now_.begin(), ended_now_.end());
  for (const std::uint64_t array : held_) want(array);
  if (most) {  // copies may have been begun of what was released since
    for (const auto& [keep, array] : minimum_.keeps()) want(array);
  }
  for (const auto& [graph, arrays] : minimum_.fetches()) {
    const Client::Request* request = nullptr;
    const std::map<std::uint64_t, std::set<std::int64_t>>* told = nullptr;
    for (const auto& client : clients_) {
      for (const auto& [number, asked] : client->requests) {
        if (!asked.replied || asked.graph != graph) continue;
        request = &asked;
        const auto missing = client->told.missing.find(number);
        if (client->told.version == answered && missing != client->told.missing.end())
          told = &missing->second;
      }
    }
    if (request != nullptr && request->done) continue;
    for (std::size_t i = 0; most && oracle_.planned(graph, i); ++i) {
      const OpId op = *oracle_.planned(graph, i);
      if (oracle_.kind(op) == ir::OpKind::kCall) want(oracle_.made(op, 0));
    }
    for (const std::uint64_t array : arrays) {
      if (request == nullptr || (most && (told == nullptr || unanswered_))) {
        want(array);
        continue;
      }
      const auto& wanted = most ? *told : request->wanted;
      const auto left = wanted.find(array);
      if (left == wanted.end()) continue;
      for (const std::int64_t b : left->second) out.wanted.emplace_back(array, b);
    }
  }
  return out;
}

// Before any of a step's words has its effect: who is struck off in it, and which graphs have ended well.
void World::note_ends(const std::vector<scheduler::Action>& actions) {
  ended_.merge(std::exchange(ended_now_, {}));
  for (const scheduler::Action& action : actions) {
    const auto* send = std::get_if<scheduler::Send>(&action);
    if (send == nullptr) continue;
    if (const auto* reply = std::get_if<msg::SubmitReply>(&send->message)) {
      graphs_[{send->to.value, reply->request}] = reply->graph;
    } else if (const auto* done = std::get_if<msg::GraphDone>(&send->message);
               done != nullptr && done->outcome.ok()) {
      const auto graph = graphs_.find({send->to.value, done->request});
      if (graph != graphs_.end()) ended_now_.insert(graph->second);
    } else if (const auto* log = std::get_if<msg::Log>(&send->message)) {
      for (const msg::LogEntry& entry : log->entries) {
        const auto* lost = std::get_if<msg::PeerLost>(&entry);
        if (lost == nullptr || !lost->peer) continue;
        last_loss_ = std::max(last_loss_, lost->version);
        for (const auto& worker : workers_) {
          if (worker->welcome.you == lost->peer && !worker->closed && worker->left_at == 0)
            worker->left_at = departed_ = lost->version;
        }
      }
    }
  }
}

void World::check_minimum(const msg::Recover& recover) {
  if (!knobs_.minimum || recover.version <= recovered_) return;
  const scheduler::Counters counts = scheduler_->counters();
  unanswered_ = counts.clients_missed != clients_missed_;
  clients_missed_ = counts.clients_missed;
  // What cannot be had ends what wants it, and then less is wanted.
  if (minimum_.can_tell() && counts.given_up == 0 && counts.cut_answers == 0 && !gave_up_)
    compare_with_minimum(recover, counts.passes_given_up > 0);
  else
    ++outcome_.covered["recoveries that were not compared"];
  gave_up_ = counts.passes_given_up > 0;
  minimum_.learn(recover);
  recovered_ = recover.version;
}

void World::compare_with_minimum(const msg::Recover& recover, bool gave_up) {
  const bool departure = departed_ == recover.version;  // it was a survey that was answered
  const std::uint64_t answered = recover.version - (departure ? 1 : 0);
  for (std::size_t w = 0; w < workers_.size(); ++w) {  // who was not asked
    if (workers_[w]->core != nullptr && workers_[w]->told.version != answered)
      note_truth(static_cast<int>(w), answered);
  }
  const Minimum::Truth most_truth = truth(true, answered);
  // Since it answered a task may have begun, or ended, and what it read been let go of where nobody had answered yet.
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w]->core == nullptr) continue;
    const auto pinned = workers_[w]->told.here;
    note_truth(static_cast<int>(w), answered);
    for (const auto& [block, devices] : pinned)
      workers_[w]->told.here[block].insert(devices.begin(), devices.end());
  }
  const Minimum::Truth least_truth = truth(false, answered);
  const Minimum::Need least = minimum_.needed(least_truth, Minimum::Bound::kLeast, oracle_),
                      most = minimum_.needed(most_truth, Minimum::Bound::kMost, oracle_);
  if (gave_up) {
    if (most.lost.empty()) return violate("given up, though nothing that was uploaded is lost for good");
    ++outcome_.covered["recoveries given up for uploads that are lost"];
    return;
  }
  const std::set<BlockId> made = minimum_.made_again(recover);
  std::set<BlockId> again;
  std::map<BlockId, std::size_t> results;
  for (const BlockId& block : made) again.insert(minimum_.task_of(block)), ++results[minimum_.task_of(block)];
  const auto name = [&](const BlockId& block) {
    return "block " + std::to_string(block.second) + " of array " + std::to_string(block.first & 0xFFFFFF);
  };
  const auto task_name = [&](const BlockId& task) {
    return name(task) + ", last made by d" + std::to_string(minimum_.maker_of(task).value);
  };
  std::string wrong;
  for (const BlockId& task : least.again)
    if (!again.contains(task)) wrong += "\nnot made again: " + task_name(task);
  for (const BlockId& task : again)
    if (!most.again.contains(task)) wrong += "\nmade again for nobody: " + task_name(task);
  for (const BlockId& block : least.missing)
    if (!made.contains(block)) wrong += "\nno longer served by anybody: " + task_name(block);
  for (const BlockId& block : made) {  // of who lives
    const auto wanted = most.wanted.find(minimum_.task_of(block));
    if (wanted != most.wanted.end() && wanted->second.contains(block) && !most.missing.contains(block) &&
        most_truth.living.contains(minimum_.maker_of(block)))
      wrong += "\ntaken from who has it: " + task_name(block);
  }
  for (const BlockId& upload : least.lost) wrong += "\nuploaded, lost and not told: " + name(upload);
  if (!wrong.empty()) return violate("not the minimum after loss " + std::to_string(recover.version) + wrong);
  for (const auto& [task, count] : results)
    outcome_.covered["tasks run again for some of their results"] += count < minimum_.results_of(task);
  note_compared(recover, least_truth, least, most, again);
}

void World::note_compared(const msg::Recover& recover, const Minimum::Truth& truth,
                          const Minimum::Need& least, const Minimum::Need& most,
                          const std::set<BlockId>& again) {
  if (last_loss_ <= recovered_) {  // nobody was lost
    ++outcome_.covered["surveys compared with the minimum"];
    return;
  }
  ++outcome_.covered["recoveries compared with the minimum"];
  if (!minimum_.keeps().empty()) ++outcome_.covered["recoveries compared beside copies"];
  if (least.again == most.again) ++outcome_.covered["recoveries that are the minimum to the block"];
  if (again.empty()) ++outcome_.covered["recoveries that make nothing again"];
  outcome_.covered["blocks made again that must be"] += static_cast<std::int64_t>(again.size());
  outcome_.covered["uploads asked for again that must be"] += static_cast<std::int64_t>(least.asked.size());
  for (const BlockId& task : again) {
    outcome_.covered["blocks made again that their living makers had let go"] +=
        truth.living.contains(minimum_.maker_of(task));
    outcome_.covered["tasks of several results made again"] += minimum_.results_of(task) > 1;
  }
  for (const auto& [task, wanted] : most.wanted) {
    if (truth.living.contains(minimum_.maker_of(task)) || again.contains(task)) continue;
    ++outcome_.covered["wanted blocks of the lost that others have"];
    if (wanted.size() > 1) ++outcome_.covered["tasks whose wanted results one other device has"];
  }
  if (departed_ != recover.version) return;
  ++outcome_.covered["departures compared with the minimum"];
  outcome_.covered["tasks that who left had not begun"] += static_cast<std::int64_t>(again.size());
}

}  // namespace tilewise::sim
