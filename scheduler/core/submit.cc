// Submissions: each request is executed once and answered as often as it is asked.
#include "account.h"
#include "draft.h"
#include "graphs.h"
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kRememberedAnswers = 256;  // of one session

bool runs_nowhere(const ir::Op& op) {
  return op.kind == ir::OpKind::kFetch || op.kind == ir::OpKind::kProvide;
}

void add_op(State& s, GraphRecord& graph, std::uint32_t position, ir::Op op, ir::Placement placement,
            Draft& draft) {
  OpRecord record;
  record.id = OpId{make_id(s.options.term, s.next_op++)};
  record.graph = graph.id;
  record.position = position;
  record.points = op.space.block_count();
  record.load_bytes = output_bytes(op);
  if (!runs_nowhere(op)) {
    for (const DeviceId device : placement.devices()) {
      if (const std::int64_t owned = placement.owned_count(device); owned > 0)
        record.shares.push_back({device, owned});
    }
    graph.total += record.points;
  }
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const std::uint64_t array = op.operands[i].array;
    const bool seen = std::any_of(op.operands.begin(), op.operands.begin() + static_cast<std::ptrdiff_t>(i),
                                  [&](const ir::Operand& o) { return o.array == array; });
    if (seen) continue;
    ArrayRecord& read = s.arrays.at(ArrayId{array});
    ++read.open_users;
    ++read.readers;
    read.was_read = true;
    const OpRecord& producer = s.ops.at(read.producer);
    if (producer.graph == graph.id) record.inputs.push_back(producer.position);
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const ir::OutputSpec& output = op.outputs[i];
    ArrayRecord array;
    array.id = ArrayId{output.array};
    array.producer = record.id;
    array.output = static_cast<std::uint8_t>(i);
    array.source = {output.dtype, output.grid};
    array.session = graph.session;
    array.number = draft.number_of(output.array);
    const Holder holder{graph.session, array.number};
    ArrayRecord& made = s.arrays.insert(array.id, std::move(array));
    if (std::binary_search(draft.graph.holds.begin(), draft.graph.holds.end(), output.array))
      hold_array(s, made, holder);
  }
  record.op = std::move(op);
  record.level_ns = draft.levels_ns[position];
  note_past(s, record, draft.decisions[position].work_s);
  record.placement = std::move(placement);
  const place::Decision& decision = draft.decisions[position];
  record.decision = {decision.why, decision.seconds, decision.moved_bytes};
  graph.ops.push_back(record.id);
  ++graph.ops_left;
  ++graph.ops_open;
  if (record.op.kind == ir::OpKind::kFetch) ++graph.fetches_open;
  account_load(s, record, 1);
  s.ops.insert(record.id, std::move(record));
}

// The order of tasks must agree with dependencies, across graphs too, or a task that waits for a later one could hold the
// memory that this one needs: nothing goes before the unfinished work that it reads.
std::int32_t priority_after_inputs(const State& s, std::int32_t wanted, const Draft& draft) {
  for (const ir::Op& op : draft.ops) {
    for (const ir::Operand& operand : op.operands) {
      const ArrayRecord* array = s.arrays.find(ArrayId{operand.array});
      if (array == nullptr) continue;  // of this very draft
      const OpRecord& producer = s.ops.at(array->producer);
      if (!group_finished(s, producer)) wanted = std::min(wanted, s.graphs.at(producer.graph).priority);
    }
  }
  return wanted;
}

msg::Plan plan_of(const State& s, const GraphRecord& graph, const Draft& draft) {
  msg::Plan plan{graph.id, graph.priority, {}, {}, graph.session, graph.weight};
  plan.ops.reserve(graph.ops.size());
  for (const OpId id : graph.ops) {
    const OpRecord& op = s.ops.at(id);
    plan.ops.push_back({op.id, op.op, op.placement, false, {}, false, {}, op.level_ns});
  }
  for (const std::uint64_t array : draft.graph.holds) plan.holds.push_back(ArrayId{array});
  return plan;
}

// Workers that run a share of the graph or own blocks that it reads. The others only remember its plan.
std::set<WorkerId> takers(const State& s, const GraphRecord& graph) {
  std::set<WorkerId> workers;
  const auto all = static_cast<std::size_t>(
      std::count_if(s.live.begin(), s.live.end(), [&](WorkerId id) { return s.is_worker(id); }));
  const auto add = [&](const OpRecord& op) {
    for (const OpShare& share : op.shares) workers.insert(s.device(share.device)->peer);
    for (const OpId layer : op.layers) {
      for (const OpShare& share : s.ops.at(layer).shares) workers.insert(s.device(share.device)->peer);
    }
  };
  for (const OpId id : graph.ops) {
    if (workers.size() == all) break;
    const OpRecord& op = s.ops.at(id);
    add(op);
    for (const ir::Operand& operand : op.op.operands)
      add(s.ops.at(s.arrays.at(ArrayId{operand.array}).producer));
  }
  return workers;
}

// The plan to all workers, or, where they have kept it, which one it is.
void log_plan(State& s, const GraphRecord& graph, const Draft& draft) {
  const PlanCache::Told told = s.plans.told(draft, graph);
  const std::set<WorkerId> waited_for = takers(s, graph);
  SharedEntry plan, replay;
  const auto whole = [&] {
    msg::Plan made = plan_of(s, graph, draft);
    made.keep_as = told.replay.plan;
    return msg::Entries::share(std::move(made));
  };
  for (const WorkerId worker : s.live) {
    if (!s.is_worker(worker)) continue;
    const bool knows = worker <= told.known;
    SharedEntry& entry = knows ? replay : plan;
    if (!entry) entry = knows ? msg::Entries::share(told.replay) : whole();
    log_to(s, worker, entry, waited_for.contains(worker) ? Haste::kNow : Haste::kLazy);
  }
  s.plans.told_to(draft, s.live.back());
}

}  // namespace

void finish_what_is_done(State& s, GraphId id) {
  const std::vector<OpId> ops = s.graphs.at(id).ops;
  for (const OpId op_id : ops) {
    const OpRecord& op = s.ops.at(op_id);
    if (op.op.kind == ir::OpKind::kFetch)
      s.arrays.at(ArrayId{op.op.operands[0].array}).fetches.push_back(op_id);
  }
  for (const OpId op_id : ops) {
    OpRecord* op = s.ops.find(op_id);
    if (op == nullptr || op->finished) continue;
    if (op->op.kind == ir::OpKind::kFetch) {
      if (!deliverable(s, *op)) continue;
    } else if (op->points > 0 && op->op.kind != ir::OpKind::kProvide) {
      continue;
    }
    finish_op(s, *op);
  }
  if (GraphRecord* graph = s.graphs.find(id)) {
    finish_graph_if_done(s, *graph);  // of no ops at all
    forget_if_empty(s, *graph);
  }
}

GraphRecord& commit(State& s, const Request& request, Draft draft, PastGraph past, msg::SubmitReply& reply) {
  for (const plan::PassReport& pass : draft.passes)
    past.passes.push_back({pass.name, static_cast<std::uint32_t>(pass.ops)});
  past.rejected = rejected_of(s, draft);
  s.next_array = draft.next_array;
  const GraphId id{make_id(s.options.term, s.next_graph++)};
  GraphRecord& graph = s.graphs.insert(id, {});
  graph.id = id;
  graph.session = request.session;
  graph.request = request.number;
  graph.priority = priority_after_inputs(s, request.priority, draft);
  graph.weight = request.weight;
  graph.told_at = s.now;
  if (past.asked) remember_prediction(s, id, foretell(s, draft));
  std::size_t fetch = 0;
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    if (draft.ops[i].kind == ir::OpKind::kFetch) {
      reply.arrays.emplace_back(draft.fetched[fetch++], ArrayId{draft.ops[i].operands[0].array});
    }
    add_op(s, graph, static_cast<std::uint32_t>(i), std::move(draft.ops[i]), std::move(draft.placements[i]),
           draft);
  }
  note_saves(s, graph);
  for (const auto& [array, copies] : draft.copies) want_copies(s, s.arrays.at(array), copies, graph);
  remember_graph(s, graph, std::move(past));
  reply.arrays.insert(reply.arrays.end(), draft.provided.begin(), draft.provided.end());
  reply.graph = id;
  reply.last_op = OpId{make_id(s.options.term, s.next_op - 1)};
  s.session(request.session).running.push_back(id);
  ++s.running;
  forget_kept_plans(s);
  if (!graph.ops.empty()) log_plan(s, graph, draft);
  std::vector<ArrayId> holds;
  for (const std::uint64_t array : draft.graph.holds) holds.push_back(ArrayId{array});
  for (msg::Plan& plan : anchor_some(s, holds)) log_to_workers(s, std::move(plan));
  return s.graphs.at(id);
}

std::int64_t output_bytes(const ir::Op& op) {
  double bytes = 0;
  for (const ir::OutputSpec& output : op.outputs) bytes += place::bytes_of({output.dtype, output.grid});
  return static_cast<std::int64_t>(std::min(bytes, 1e18));
}

namespace {

Status room_for(const State& s, const Draft& draft) {
  const std::size_t live = s.ops.size() - s.lineage.size();
  if (live + draft.ops.size() <= s.options.max_live_ops) return {};
  return error(Errc::kLimitExceeded, std::to_string(live) + " live ops and " +
                                         std::to_string(draft.ops.size()) + " more pass the limit of " +
                                         std::to_string(s.options.max_live_ops));
}

// Passes depend on nothing but the program, and pieces besides on where things are, as the plan has it: what is replayed is what they
// would say, names included.
void check_replay(const State& s, plan::Graph graph, const Draft& draft) {
  const ir::Constants constants = ir::take_constants(graph.ops);
  ir::put_constants(graph.ops, constants);
  std::uint64_t next = s.next_array + draft.own;
  const auto new_array = [&] { return make_id(s.options.term, next++); };
  auto fresh = plan::run_passes(std::move(graph), new_array, {.off = s.options.passes_off});
  TW_CHECK(fresh.has_value(), "a program that cannot be planned was replayed: " + fresh.error().message);
  const auto ops = with_pieces(std::move(fresh->ops), draft.cuts, new_array);
  TW_CHECK(ops.has_value(), "pieces of a replayed plan cannot be cut: " + ops.error().message);
  TW_CHECK(*ops == draft.ops && next == draft.next_array, "a replayed plan is another one");
}

}  // namespace

namespace {

Status keep_program(Session& session, const msg::Submit& submit) {
  if (submit.keep_as == 0 || submit.program != 0) return {};
  if (submit.keep_as > msg::kKeptPrograms)
    return error(Errc::kInvalidArgument, "a program is to be kept in place " +
                                             std::to_string(submit.keep_as) + " of " +
                                             std::to_string(msg::kKeptPrograms));
  TW_ASSIGN(msg::Program program, msg::program_of(submit.ops));
  session.programs[submit.keep_as - 1] = {submit.request,
                                          SessionProgram::of(std::move(program), session.device)};
  return {};
}

}  // namespace

Result<const SessionProgram*> program_of(const Session& session, const msg::Submit& submit) {
  if (submit.program == 0) return nullptr;
  const std::string name = "program " + std::to_string(submit.program);
  if (!submit.ops.empty() || submit.keep_as != 0)
    return error(Errc::kInvalidArgument, "a request names " + name + " and brings one of its own");
  for (const KeptProgram& kept : session.programs) {
    if (kept.request != submit.program) continue;
    const auto check = [&](const char* what, std::size_t given, std::size_t wanted) -> Status {
      if (given == wanted) return {};
      return error(Errc::kInvalidArgument, std::to_string(given) + " " + what + " for " + name +
                                               ", which has " + std::to_string(wanted));
    };
    TW_TRY(check("inputs", submit.inputs.size(), kept.program.inputs));
    TW_TRY(check("constants", submit.constants.size(), kept.program.constants.size()));
    return &kept.program;
  }
  return error(Errc::kNotFound, name + " is not kept: never sent, refused before it came here, or replaced");
}

namespace {

std::vector<ir::Op> ops_of(const SessionProgram& kept, const msg::Submit& submit) {
  return msg::ops_of({*kept.ops, kept.outputs, kept.inputs}, submit.first_output, submit.inputs,
                     submit.constants);
}

// Planned before, and nothing to object to: no op of it is looked at. None: it takes the way of all others.
std::optional<Draft> replay_kept(const State& s, const Session& session, const msg::Submit& submit,
                                 const SessionProgram* kept, bool dump) {
  std::optional<Draft> draft = translate_kept(s, session, submit, kept);
  if (!draft || !s.plans.replay(s, *kept, *draft, dump)) return {};
  if (!s.options.check_replays) return draft;
  msg::Submit whole = submit;
  whole.ops = ops_of(*kept, submit);
  Result<Draft> translated = translate(s, session, whole);
  TW_CHECK(translated.has_value(),
           "a program that cannot be translated was replayed: " + translated.error().message);
  TW_CHECK(translated->graph.holds == draft->graph.holds && translated->fetched == draft->fetched &&
               translated->provided == draft->provided && translated->own == draft->own,
           "a kept program was translated otherwise");
  for (const ir::Op& op : translated->graph.ops) {
    for (const ir::OutputSpec& output : op.outputs)
      TW_CHECK(draft->number_of(output.array) == translated->number_of(output.array),
               "a kept program has other numbers");
  }
  check_replay(s, std::move(translated->graph), *draft);
  return draft;
}

}  // namespace

Result<Draft> prepare(const State& s, const Session& session, msg::Submit& submit, const SessionProgram* kept,
                      bool dump, std::vector<msg::NeedAccount>& needs) {
  TW_TRY(room_for_a_graph(s));
  if (submit.program != 0) {
    if (std::optional<Draft> draft = replay_kept(s, session, submit, kept, dump)) {
      TW_TRY(room_for(s, *draft));
      return std::move(*draft);
    }
    submit.ops = ops_of(*kept, submit);
  }
  TW_ASSIGN(Draft draft, translate(s, session, submit));
  draft.kept = kept;
  return planned(s, std::move(draft), dump, needs);
}

Status room_for_a_graph(const State& s) {
  if (static_cast<std::size_t>(s.running) < s.options.max_graphs) return {};
  return error(Errc::kLimitExceeded,
               std::to_string(s.running) + " unfinished requests, the limit; wait for some");
}

Result<Draft> planned(const State& s, Draft draft, bool dump, std::vector<msg::NeedAccount>& needs) {
  plan::Graph whole;
  if (s.options.check_replays) whole = draft.graph;
  // Where copies are is for what there is at that moment, and pieces are where their clients are: neither is replayed.
  if (draft.copies.empty() && !draft.given && s.plans.replay(s, draft, dump)) {
    if (s.options.check_replays) check_replay(s, std::move(whole), draft);
    TW_TRY(room_for(s, draft));
    return draft;
  }
  const auto new_array = [&] { return make_id(s.options.term, draft.next_array++); };
  plan::Options options;
  options.off = s.options.passes_off;
  options.dump = dump;
  options.geometries = &s.geometries;
  plan::Graph graph = std::move(draft.graph);
  draft.graph = {};
  draft.graph.holds = graph.holds;
  TW_ASSIGN(plan::PlannedGraph planned, plan::run_passes(std::move(graph), new_array, options));
  draft.ops = std::move(planned.ops);
  draft.passes = std::move(planned.passes);
  TW_TRY(room_for(s, draft));
  TW_TRY(place_ops(s, draft, needs));
  if (cuts_pieces(s.options)) {
    TW_TRY(room_for(s, draft));
    draft.passes.push_back({kPiecesPass, draft.ops.size(), dump ? plan::dump(draft.ops) : std::string()});
  }
  return draft;
}

bool answered_before(State& s, const Peer& client, std::uint64_t request) {
  const Session& session = s.session(client.session);
  if (request > session.highest_request) return false;
  const auto known = std::find_if(session.answers.begin(), session.answers.end(),
                                  [&](const Answer& a) { return a.request == request; });
  if (known != session.answers.end()) {
    if (known->due) return true;  // others are awaited
    send(s, client.conn, known->reply);
    if (known->done) send(s, client.conn, known->graph_done);
  } else {
    msg::SubmitReply reply{request, {}, {}, {}, {}};
    reply.outcome = {Errc::kUnavailable, "request " + std::to_string(request) +
                                             " is older than what is remembered; numbers rise"};
    send(s, client.conn, std::move(reply));
  }
  return true;
}

Answer& new_answer(Session& session, std::uint64_t request) {
  session.highest_request = request;
  if (session.answers.size() == kRememberedAnswers) session.answers.pop_front();
  Answer& answer = session.answers.emplace_back();
  answer.request = answer.reply.request = request;
  return answer;
}

void on_submit(State& s, Peer& client, msg::Submit& submit) {
  if (answered_before(s, client, submit.request)) return;
  Session& session = s.session(client.session);
  Answer& answer = new_answer(session, submit.request);
  const Status keeps = keep_program(session, submit);
  const auto named = program_of(session, submit);
  const SessionProgram* kept = submit.keep_as != 0 && submit.program == 0 && keeps
                                   ? &session.programs[submit.keep_as - 1].program
                                   : nullptr;
  PastGraph past;
  Result<Draft> draft = !keeps  ? Result<Draft>(keeps.error())
                        : named ? Draft{}
                                : Result<Draft>(named.error());
  if (draft) {
    if (submit.program != 0) kept = *named;
    const std::vector<ir::Op>& ops = submit.program != 0 ? *kept->ops : submit.ops;
    past.asked = submit.account;
    past.source = source_of(s, ops);
    past.source_count = static_cast<std::uint32_t>(ops.size());
    draft = prepare(s, session, submit, kept, false, answer.reply.needs);
  }
  if (!draft) {
    answer.reply.outcome = outcome_of(draft.error());
  } else {
    if (draft->copies.empty()) s.plans.accepted(s, *draft, s.next_kept_plan);
    const Request request{session.id, submit.request, submit.priority, submit.weight};
    answer.graph = commit(s, request, std::move(*draft), std::move(past), answer.reply).id;
  }
  send(s, client.conn, answer.reply);
  if (answer.graph) finish_what_is_done(s, answer.graph);
}

}  // namespace tilewise::scheduler
