// A worker is lost: the others are asked what they have, and told what is made again where. What is needed is computed in
// recovery_plan.cc; docs/design/recovery.md says why this is safe.
#include "graphs.h"
#include "handlers.h"
#include "outbox.h"

#include <algorithm>
#include <utility>

namespace tilewise::scheduler {
namespace {

bool lost(const State& s, const OpShare& share) { return !s.device(share.device)->alive; }

// Some of it was to be made by who was lost since the last Recover, or by the worker that might leave.
bool on_lost(const State& s, const OpRecord& op) {
  if (op.op.kind == ir::OpKind::kFetch || op.op.kind == ir::OpKind::kProvide) return false;  // a client's
  const std::vector<DeviceId> on = op.placement.devices();
  return std::any_of(on.begin(), on.end(),
                     [&](DeviceId id) { return s.recovery.concerns(s.device(id)->peer); });
}

// Something of its results may have been lost and may still be wanted.
bool hurt(const State& s, const OpRecord& head) {
  if (head.retired) return false;
  const bool wanted =
      !group_finished(s, head) ||
      std::any_of(head.op.outputs.begin(), head.op.outputs.end(), [&](const ir::OutputSpec& output) {
        const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
        return array.held || array.open_users > 0;
      });
  return wanted && (on_lost(s, head) || std::any_of(head.layers.begin(), head.layers.end(),
                                                    [&](OpId layer) { return on_lost(s, s.ops.at(layer)); }));
}

// Hurt ops, everything that they can be made again from, and who reads any of it.
std::set<OpId> concerned(State& s) {
  std::vector<OpId> work;
  s.ops.for_each([&](const OpRecord& op) {
    if (!op.of && hurt(s, op)) work.push_back(op.id);
  });
  std::set<OpId> heads(work.begin(), work.end());
  while (!work.empty()) {
    const OpRecord& op = s.ops.at(work.back());
    work.pop_back();
    for (const ir::Operand& operand : op.op.operands) {
      const ArrayRecord* array = op.cut ? nullptr : s.arrays.find(ArrayId{operand.array});
      if (array != nullptr && heads.insert(array->producer).second) work.push_back(array->producer);
    }
  }
  if (heads.empty()) return heads;
  std::vector<OpId> users;
  s.ops.for_each([&](OpRecord& op) {
    if (op.finished) return;
    const bool reads = std::any_of(op.op.operands.begin(), op.op.operands.end(), [&](const ir::Operand& o) {
      return heads.contains(s.arrays.at(ArrayId{o.array}).producer);
    });
    if (reads) users.push_back(head_of(s, op).id);
  });
  heads.insert(users.begin(), users.end());
  return heads;
}

// What is under way on lost devices is no longer waited for; what of it is needed has layers by now.
void close_lost_shares(State& s) {
  std::vector<OpId> over;
  s.ops.for_each([&](OpRecord& op) {
    if (op.finished || std::none_of(op.shares.begin(), op.shares.end(),
                                    [&](const OpShare& share) { return lost(s, share); }))
      return;
    account_load(s, op, -1);
    std::int64_t gone = 0;
    for (OpShare& share : op.shares) {
      if (!lost(s, share)) continue;
      gone += share.owned - share.completed;
      share.owned = share.completed;
    }
    take_points(s, op, gone);
    account_load(s, op, 1);
    if (op.completed == op.points) over.push_back(op.id);
  });
  for (const OpId id : over) {
    if (OpRecord* op = s.ops.find(id); op != nullptr && !op->finished) finish_op(s, *op);
  }
}

// Fetches of what was complete all the time, and only waited for the answers to a loss.
void end_fetches(State& s, const std::set<OpId>& asked) {
  for (const OpId id : asked) {
    OpRecord* head = s.ops.find(id);
    if (head == nullptr || !complete(s, *head)) continue;
    std::vector<OpId> fetches;
    for (const ir::OutputSpec& output : head->op.outputs) {
      const std::vector<OpId>& waiting = s.arrays.at(ArrayId{output.array}).fetches;
      fetches.insert(fetches.end(), waiting.begin(), waiting.end());
    }
    for (const OpId fetch : fetches) {
      if (OpRecord* op = s.ops.find(fetch); op != nullptr && !op->finished && deliverable(s, *op))
        finish_op(s, *op);
    }
  }
}

// Clients that wait for blocks which may have been lost, and may have got some of them.
std::set<WorkerId> fetching(const State& s) {
  std::set<WorkerId> clients;
  for (const OpId id : s.recovery.asked) {
    const OpRecord* head = s.ops.find(id);
    if (head == nullptr) continue;
    for (const ir::OutputSpec& output : head->op.outputs) {
      for (const OpId fetch : s.arrays.at(ArrayId{output.array}).fetches) {
        const OpRecord& op = s.ops.at(fetch);
        if (!s.graphs.at(op.graph).delivered) clients.insert(s.device(op.op.get<ir::FetchAttrs>().to)->peer);
      }
    }
  }
  std::erase_if(clients, [&](WorkerId id) {  // one that is away cannot answer
    const Peer& client = s.peer(id);
    return !client.alive || s.links.at(client.conn).away_until != 0;
  });
  return clients;
}

// Nobody is left who could make anything again.
void give_up(State& s) {
  ++s.counts.given_up;
  const msg::Outcome why{Errc::kWorkerLost, "workers were lost, and no other one came in time"};
  std::vector<GraphId> graphs;
  s.ops.for_each([&](OpRecord& op) {
    if (op.of || !hurt(s, op)) return;
    ++s.recovery.unrecoverable;
    for (const ir::OutputSpec& output : op.op.outputs) {
      ArrayRecord& array = s.arrays.at(ArrayId{output.array});
      fail_array(array, {why.code, "blocks of " + describe(array) + " were lost: " + why.message});
    }
  });
  s.graphs.for_each([&](const GraphRecord& graph) {
    if (graph.ops_open > 0 || graph.running) graphs.push_back(graph.id);
  });
  std::sort(graphs.begin(), graphs.end());
  for (const GraphId graph : graphs) cancel_graph(s, graph, why);
  settle_recovery(s, {});
}

}  // namespace

void ask(State& s, WorkerId lost, std::set<OpId> ops) {
  Recovery& r = s.recovery;
  ++r.version;
  r.pending = true;
  r.answers.clear();
  const std::set<OpId> asked_before = std::exchange(r.asked, std::move(ops));
  r.waiting.clear();
  r.clients.clear();
  const SharedEntry entry = msg::Entries::share(msg::PeerLost{lost, r.version, pinned_ops(s), r.move.from});
  for (const WorkerId worker : s.live) {
    if (!s.is_worker(worker)) continue;
    log_to(s, worker, entry);
    r.waiting.insert(worker);
  }
  if (!r.move.head) {  // to move what has not been begun needs no more than workers know
    r.clients = fetching(s);
    r.clients_until = s.now + s.options.client_answer_ns;
    for (const WorkerId client : r.clients) log_to(s, client, msg::PeerLost{{}, r.version, {}});
  }
  r.give_up_at = s.now + s.options.recovery_wait_ns;
  end_fetches(s, asked_before);  // of an earlier loss, not yet answered: this one may not concern them
}

std::vector<OpId> pinned_ops(const State& s) {
  std::vector<OpId> ops;
  for (const OpId head : s.recovery.asked) {
    const OpRecord* op = s.ops.find(head);
    if (op == nullptr || op->retired) continue;
    if (!op->forgotten) ops.push_back(head);
    ops.insert(ops.end(), op->layers.begin(), op->layers.end());
  }
  return ops;
}

void settle_recovery(State& s, std::vector<msg::Plan> plans, std::vector<msg::Tail> moved) {
  Recovery& r = s.recovery;
  r.pending = false;
  r.leaver = {};
  r.move = {};
  r.settled = r.version;
  r.answers.clear();
  r.waiting.clear();
  r.clients.clear();
  r.unheard.clear();
  const std::set<OpId> asked = std::exchange(r.asked, {});
  mark_lost_copies(s);
  r.lost.clear();
  std::vector<msg::Plan> copies = restore_copies(s);  // before a request ends that is to have them
  close_lost_shares(s);
  end_fetches(s, asked);
  s.graphs.for_each([&](GraphRecord& graph) {  // that were in doubt
    finish_graph_if_done(s, graph);
    forget_if_empty(s, graph);
  });
  log_to_workers(s, msg::Recover{r.version, std::move(plans), std::move(moved)});
  for (msg::Plan& plan : copies) log_to_workers(s, std::move(plan));
  for (const ArrayId id : std::vector<ArrayId>(s.copied.begin(), s.copied.end())) {
    if (const ArrayRecord* array = s.arrays.find(id)) cut_past(s, s.ops.at(array->producer));
  }
  for (const auto& [id, file] : s.checkpoints.files) cut_past(s, s.ops.at(s.arrays.at(file.array).producer));
}

void begin_recovery(State& s, const Peer& dead) {
  Recovery& r = s.recovery;
  const bool survey = r.leaver || r.move.head;
  if (r.pending) ++(survey ? s.counts.surveys_overtaken : s.counts.losses_on_losses);
  if (r.leaver) s.leaving.at(std::exchange(r.leaver, {})).step = Leaving::Step::kReady;  // to be asked again
  r.move = {};  // it is looked at again when this is over
  r.lost.insert(dead.info.id);
  ask(s, dead.info.id, concerned(s));
  if (dead.black_box != 0 && !dead.last_words) {
    r.unheard.insert(dead.info.id);
    r.words_until = s.now + s.options.last_words_ns;
  }
  if (r.asked.empty()) settle_recovery(s, {});
}

void ask_newcomer(State& s, WorkerId newcomer) {
  ++s.counts.newcomers_asked;
  // It has nothing, but what it is given to read until the Recover may be lost, and is waited for.
  log_to(s, newcomer, msg::PeerLost{{}, s.recovery.version, pinned_ops(s)});
  s.recovery.waiting.insert(newcomer);
}

void begin_survey(State& s, WorkerId leaver) {
  s.recovery.leaver = leaver;
  ask(s, {}, concerned(s));
}

void on_held(State& s, Peer& worker, msg::Held& held) {
  Recovery& r = s.recovery;
  if (!r.pending || held.version != r.version || r.waiting.erase(worker.info.id) == 0) {
    ++s.counts.late_answers;
    return;
  }
  s.counts.cut_answers += held.cut;
  // What it says of others' devices is not its to say.
  const auto others = [&](const auto& entry) {
    const Device* device = s.device(entry.device);
    return device == nullptr || device->peer != worker.info.id;
  };
  std::erase_if(held.shares, others);
  std::erase_if(held.blocks, others);
  r.answers.push_back(std::move(held));
}

// It becomes what a worker would have said of the fetches, had it to run them: all is begun, so much is not over.
void on_fetches(State& s, const Peer& client, const msg::Held& held) {
  Recovery& r = s.recovery;
  if (!r.pending || held.version != r.version || r.clients.erase(client.info.id) == 0) {
    ++s.counts.late_answers;
    return;
  }
  msg::Held told{held.version, {}, {}, false};
  std::set<OpId> spoken_of;  // once each, however often it says it
  for (const msg::Held::Fetch& fetch : held.fetches) {
    const ArrayRecord* array = s.arrays.find(fetch.array);
    if (array == nullptr) continue;
    for (const OpId id : array->fetches) {
      const OpRecord& op = s.ops.at(id);
      const GraphRecord& graph = s.graphs.at(op.graph);
      if (graph.session != client.session || graph.request != fetch.request || !spoken_of.insert(id).second)
        continue;
      const std::int64_t blocks = op.op.space.block_count();
      told.shares.push_back({id, op.op.get<ir::FetchAttrs>().to, blocks, fetch.missing});
    }
  }
  r.answers.push_back(std::move(told));
}

TimeNs more_answers_until(const State& s) {
  const Recovery& r = s.recovery;
  TimeNs until = 0;
  if (!r.unheard.empty() && s.now < r.words_until) until = r.words_until;
  if (!r.clients.empty() && s.now < r.clients_until) until = std::max(until, r.clients_until);
  return until;
}

void check_recovery(State& s) {
  Recovery& r = s.recovery;
  if (!r.pending || !r.waiting.empty() || more_answers_until(s) != 0) return;
  const bool somebody =
      std::any_of(s.live.begin(), s.live.end(), [&](WorkerId id) { return s.is_worker(id); });
  if (somebody) {
    if (r.leaver) return conclude_survey(s);
    if (r.move.head) return conclude_move(s);
    s.counts.words_missed += !r.unheard.empty();
    s.counts.clients_missed += !r.clients.empty();
    std::vector<msg::Plan> plans = plan_recovery(s);
    return settle_recovery(s, std::move(plans));
  }
  if (s.now >= r.give_up_at) give_up(s);
}

}  // namespace tilewise::scheduler
