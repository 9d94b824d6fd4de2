// What a plan will do, told before it runs: planned and placed as if it had been submitted, then run on paper. Changes
// nothing.
#include "draft.h"
#include "graphs.h"
#include "handlers.h"
#include "history.h"
#include "layers.h"
#include "outbox.h"

#include <tilewise/place/simulate.h>

#include <algorithm>
#include <deque>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxDumpBytes = 1 << 20;  // of all passes
constexpr std::size_t kMaxLinks = 4096, kMaxCritical = 256;
constexpr std::size_t kMaxOps = 8192;     // told one by one; all are counted
constexpr std::size_t kMaxBeside = 16;    // graphs that run beside the one that is asked about
constexpr std::size_t kMaxArrays = 1024;  // of one question
constexpr std::size_t kMaxArrayDevices =
    1 << 20;  // named by the rules of all of them; the first is always told

// Ops and arrays in the form that the simulation wants.
class Paper {
 public:
  explicit Paper(const State& s) : s_(s) {
    for (const WorkerId id : s.live) {
      if (!s.is_worker(id)) continue;
      for (const DeviceId device : s.peer(id).info.devices)
        devices_.push_back(place_device(*s.device(device)));
    }
    std::sort(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  }

  // Ops that are added next are of this graph. Only one is asked about: without this, all ops are of that one.
  void begin(const place::SimGraph& graph, bool asked) {
    if (graphs_++ > 0) options_.graphs.emplace_back();
    options_.graphs.back() = graph;
    if (asked) options_.asked = graphs_ - 1, first_ = ops_.size();
  }

  // `held`: by ArrayId, sorted. All of it outlives this.
  void add(const ir::Op& op, const ir::Placement& placement, const std::vector<std::uint64_t>& held) {
    place::SimOp sim;
    sim.graph = static_cast<std::uint32_t>(options_.graphs.size() - 1);
    sim.op = &op;
    sim.placement = &placement;
    std::vector<ir::SourceArray> sources;
    for (const ir::Operand& operand : op.operands) {
      sim.inputs.push_back(array(operand.array));
      sources.push_back(arrays_[sim.inputs.back()].source);
    }
    const bool provided = op.kind == ir::OpKind::kProvide;
    if (op.kind == ir::OpKind::kFetch || provided) {
      sim.to = op.get<ir::FetchAttrs>().to;
    } else if (auto geometry = ir::Geometry::make(op, std::move(sources))) {
      geometries_.push_back(std::move(*geometry));
      sim.geometry = &geometries_.back();
    }
    for (const ir::OutputSpec& output : op.outputs) {
      sim.outputs.push_back(arrays_.size());
      index_.emplace(output.array, arrays_.size());
      const bool holds = std::binary_search(held.begin(), held.end(), output.array);
      arrays_.push_back({{output.dtype, output.grid}, &placement, provided, holds});
    }
    ops_.push_back(std::move(sim));
  }

  void account(msg::Explanation& out) {
    forget_promises();
    const place::Simulation done = place::simulate(ops_, arrays_, devices_, s_.speeds, options_);
    out.simulated = done.complete;
    out.tasks = done.tasks;
    out.steps = done.steps;
    out.flops = done.flops;
    out.seconds = done.seconds;
    out.bound_s = done.bound_s;
    for (std::size_t i = first_; i < ops_.size() && ops_[i].graph == options_.asked; ++i) {
      const place::SimOpResult& from = done.ops[i];
      msg::OpAccount& op = out.ops[i - first_];
      op.tasks = from.tasks;
      op.steps = from.steps;
      op.flops = from.flops;
      op.bytes_moved = from.bytes_moved;
      op.begin_s = from.begin_s;
      op.end_s = from.end_s;
      op.busy_s = from.busy_s;
      op.critical_s = from.critical_s;
      op.bytes_written = output_bytes(*ops_[i].op);
    }
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const place::SimDevice& d = done.devices[i];
      out.devices.push_back(
          {d.id, d.tasks, d.bytes_before, d.bytes_peak, d.bytes_after, devices_[i].memory_bytes, d.busy_s});
    }
    for (const place::SimLink& link : done.links) {
      const place::LinkSpeed speed = speed_of(link.from, link.to, link.mapped);
      out.links.push_back({link.from, link.to, link.mapped, link.blocks, link.bytes, link.busy_s,
                           speed.bytes_per_s, speed.measured});
    }
    std::stable_sort(out.links.begin(), out.links.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    if (out.links.size() > kMaxLinks) out.links.resize(kMaxLinks);
    critical_path(done.critical, out);
    // What is cut is at the beginning: the end is where the time is decided.
    if (out.critical.size() > kMaxCritical)
      out.critical.erase(out.critical.begin(),
                         out.critical.end() - static_cast<std::ptrdiff_t>(kMaxCritical));
  }

 private:
  // Where other graphs had to go first, the next op of this one waits for them.
  void critical_path(const std::vector<place::SimCritical>& path, msg::Explanation& out) const {
    double waits_s = 0;
    for (const place::SimCritical& c : path) {
      if (ops_[c.op].graph != options_.asked) {
        waits_s += c.seconds;
        continue;
      }
      const auto op = static_cast<std::uint32_t>(c.op - first_);
      if (waits_s > 0) out.critical.push_back({op, c.device, "waits", std::exchange(waits_s, 0)});
      out.critical.push_back({op, c.device, c.moves ? "moves" : "runs", c.seconds});
    }
  }

  // A device's load has what running ops are to make, all at once; memory has only what was made. What is on paper is made
  // there, and what others will have made meanwhile nobody knows, but for what is read here.
  void forget_promises() {
    s_.ops.for_each([&](const OpRecord& op) {
      if (op.finished || op.points == 0) return;
      for (const ir::OutputSpec& output : op.op.outputs) {
        const auto known = index_.find(output.array);
        if (known != index_.end() && arrays_[known->second].exists) return;
      }
      for (const OpShare& share : op.shares) {
        const auto device = std::lower_bound(devices_.begin(), devices_.end(), share.device,
                                             [](const place::Device& d, DeviceId id) { return d.id < id; });
        if (device != devices_.end() && device->id == share.device)
          device->load_bytes -= share_bytes(op, share);
      }
    });
  }

  std::size_t array(std::uint64_t id) {
    if (const auto it = index_.find(id); it != index_.end()) return it->second;
    const ArrayRecord& record = s_.arrays.at(ArrayId{id});
    arrays_.push_back({record.source, &layered_placement(s_, s_.ops.at(record.producer)), true, record.held});
    index_.emplace(id, arrays_.size() - 1);
    return arrays_.size() - 1;
  }

  // Nothing is known of links to clients.
  place::LinkSpeed speed_of(DeviceId from, DeviceId to, bool mapped) const {
    const auto find = [&](DeviceId id) {
      return std::find_if(devices_.begin(), devices_.end(),
                          [&](const place::Device& d) { return d.id == id; });
    };
    const auto a = find(from), b = find(to);
    if (a == devices_.end() || b == devices_.end()) return {};
    return mapped ? s_.speeds.link(*a, *b) : s_.speeds.copying(*a, *b);
  }

  const State& s_;
  std::vector<place::Device> devices_;
  std::deque<ir::Geometry> geometries_;
  std::vector<place::SimArray> arrays_;
  std::vector<place::SimOp> ops_;
  boost::unordered_flat_map<std::uint64_t, std::size_t> index_;
  place::SimOptions options_;
  std::uint32_t graphs_ = 0;
  std::size_t first_ = 0;  // op of the graph that is asked about
};

// What is told of many ops must fit a message. The end decides the time, so the beginning is cut.
void cut_ops(msg::Explanation& out) {
  out.op_count = static_cast<std::uint32_t>(out.ops.size());
  if (out.ops.size() <= kMaxOps) return;
  const std::size_t cut = out.ops.size() - kMaxOps;
  out.ops.erase(out.ops.begin(), out.ops.begin() + static_cast<std::ptrdiff_t>(cut));
  std::erase_if(out.critical, [&](const msg::CriticalAccount& c) { return c.op < cut; });
  for (msg::CriticalAccount& c : out.critical) c.op -= static_cast<std::uint32_t>(cut);
}

struct Unfinished {
  const GraphRecord* graph = nullptr;
  std::vector<const OpRecord*> ops;
  std::vector<std::uint64_t> held;
};

Unfinished unfinished(const State& s, const GraphRecord& graph) {
  Unfinished out{&graph, {}, {}};
  for (const OpId id : graph.ops) {
    const OpRecord* op = s.ops.find(id);
    if (op == nullptr || op->finished) continue;  // what a finished op has read may be forgotten
    out.ops.push_back(op);
    for (const ir::OutputSpec& output : op->op.outputs) {
      if (s.arrays.at(ArrayId{output.array}).held) out.held.push_back(output.array);
    }
  }
  std::sort(out.held.begin(), out.held.end());
  return out;
}

void account_choices(const State& s, const OpRecord& op, msg::OpAccount& account) {
  account.op = plan::describe(op.op, op.position);
  account.choices.push_back({std::string(op.decision.why),
                             place::describe(op.placement, op.decision.moved_bytes), op.decision.seconds});
  for (const RejectedView& other : rejected_of(s, op))
    account.choices.push_back({std::string(other.why), other.placement, other.seconds});
}

// With all that runs beside it: graphs share the devices, so neither time nor memory is its own.
void explain_graph(const State& s, const GraphRecord& graph, msg::Explanation& out) {
  std::vector<GraphId> beside;
  for (const Session& session : s.sessions) {
    if (!session.alive) continue;
    for (const GraphId id : session.running) {
      if (id != graph.id && s.graphs.at(id).session == session.id) beside.push_back(id);
    }
  }
  std::sort(beside.begin(), beside.end());
  if (beside.size() > kMaxBeside) beside.resize(kMaxBeside);  // the oldest
  // An op that reads what another graph makes comes after it: ids rise in the order of submissions.
  beside.insert(std::upper_bound(beside.begin(), beside.end(), graph.id), graph.id);
  std::vector<Unfinished> all;
  for (const GraphId id : beside) all.push_back(unfinished(s, s.graphs.at(id)));
  Paper paper(s);
  for (const Unfinished& each : all) {
    const bool asked = each.graph == &graph;
    paper.begin({each.graph->session, each.graph->weight, each.graph->priority}, asked);
    for (const OpRecord* op : each.ops) {
      paper.add(op->op, op->placement, each.held);
      if (asked) account_choices(s, *op, out.ops.emplace_back());
    }
  }
  paper.account(out);
  cut_ops(out);
}

void explain_draft(const State& s, const Draft& draft, msg::Explanation& out) {
  std::size_t dumped = 0;
  for (const plan::PassReport& pass : draft.passes) {
    const std::size_t room = kMaxDumpBytes - std::min(kMaxDumpBytes, dumped);
    dumped += pass.dump.size();
    out.passes.push_back({std::string(pass.name), static_cast<std::uint32_t>(pass.ops),
                          pass.dump.size() <= room ? pass.dump : pass.dump.substr(0, room) + "...\n"});
  }
  Paper paper(s);
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    paper.add(draft.ops[i], draft.placements[i], draft.graph.holds);
    msg::OpAccount& account = out.ops.emplace_back();
    account.op = plan::describe(draft.ops[i], i);
    const place::Decision& decision = draft.decisions[i];
    account.choices.push_back({std::string(decision.why),
                               place::describe(draft.placements[i], decision.moved_bytes), decision.seconds});
    for (const place::Rejected& other : decision.rejected)
      account.choices.push_back(
          {std::string(other.why), place::describe(other.placement, other.moved_bytes), other.seconds});
  }
  const std::vector<PlannedKeep> keeps = planned_keeps(s, draft);
  for (std::size_t i = 0; i < keeps.size(); ++i) {
    paper.add(keeps[i].op, keeps[i].placement, draft.graph.holds);
    msg::OpAccount& account = out.ops.emplace_back();
    account.op = plan::describe(keeps[i].op, draft.ops.size() + i);
    account.choices.push_back({"copies", place::describe(keeps[i].placement, 0), 0});
  }
  paper.account(out);
  cut_ops(out);
}

void add_arrays(const State& s, const Session& session, std::vector<std::uint64_t> wanted, const Draft* draft,
                msg::Explanation& out) {
  boost::unordered_flat_map<std::uint64_t, std::pair<std::size_t, std::size_t>> made;  // (op, output)
  for (std::size_t i = 0; draft != nullptr && i < draft->ops.size(); ++i) {
    for (std::size_t o = 0; o < draft->ops[i].outputs.size(); ++o)
      made.emplace(draft->ops[i].outputs[o].array, std::pair(i, o));
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::size_t devices = 0;
  std::int64_t looked_at = 4 * kMaxOverlaid;
  const auto add = [&](std::uint64_t number, ir::DType dtype, const ir::Grid& grid,
                       const ir::Placement& placement, bool planned) {
    for (const ir::Piece& piece : placement.pieces()) devices += piece.rule.devices.size();
    if (devices <= kMaxArrayDevices || out.arrays.empty())
      out.arrays.push_back({number, dtype, grid, placement, planned});
  };
  for (const std::uint64_t number : wanted) {
    if (const auto held = session.arrays.find(number); held != session.arrays.end()) {
      const ArrayRecord& array = s.arrays.at(held->second);
      add(number, array.source.dtype, array.source.grid,
          layered_placement(s, s.ops.at(array.producer), &looked_at), false);
      continue;
    }
    if (draft == nullptr) continue;
    const auto name = draft->names.find(number);
    const auto at = name == draft->names.end() ? made.end() : made.find(name->second);
    if (at == made.end()) continue;
    const auto [op, output] = at->second;
    add(number, draft->ops[op].outputs[output].dtype, draft->ops[op].outputs[output].grid,
        draft->placements[op], true);
  }
}

}  // namespace

void on_explain(State& s, Peer& peer, msg::Explain& explain) {
  msg::Explanation out;
  out.request = explain.submit.request;
  if (explain.graph) {
    if (const GraphRecord* graph = s.graphs.find(explain.graph))
      explain_graph(s, *graph, out);
    else
      out.outcome = {Errc::kNotFound,
                     "no graph " + std::to_string(explain.graph.value) + " is known any more"};
    return send(s, peer.conn, out);
  }
  if (explain.arrays.size() > kMaxArrays) {
    out.outcome = {Errc::kLimitExceeded, "the places of " + std::to_string(explain.arrays.size()) +
                                             " arrays are asked for, the limit is " +
                                             std::to_string(kMaxArrays)};
    return send(s, peer.conn, out);
  }
  const Session& session = s.session(peer.session);
  if (explain.submit.ops.empty() && explain.submit.program == 0 && explain.submit.keeps.empty()) {
    add_arrays(s, session, std::move(explain.arrays), nullptr, out);
    return send(s, peer.conn, out);
  }
  const auto kept = program_of(session, explain.submit);
  const Result<Draft> draft =
      kept ? prepare(s, session, explain.submit, *kept, true) : Result<Draft>(kept.error());
  if (draft) {
    explain_draft(s, *draft, out);
    add_arrays(s, session, std::move(explain.arrays), &*draft, out);
  } else {
    out.outcome = outcome_of(draft.error());
  }
  send(s, peer.conn, out);
}

}  // namespace tilewise::scheduler
