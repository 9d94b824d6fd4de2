#include "account.h"

#include <algorithm>
#include <map>

namespace tilewise::scheduler {
namespace {

constexpr double kNs = 1e-9;
constexpr std::size_t kMaxMeasuredLinks = 4096;

// Without its choices: those are predicted.
std::string name_of(const OpView& op) {
  std::string out = "op " + std::to_string(op.position) + " (" + std::string(ir::name_of(op.kind));
  if (!op.label.empty()) out += " '" + op.label.substr(0, limits::kMaxNameBytes) + "'";
  return out + ")";
}

// What placement estimated of each op stands in for a prediction.
void tell_estimates(const std::vector<OpView>& ops, msg::Explanation& out) {
  for (const OpView& op : ops) {
    msg::OpAccount& account = out.ops.emplace_back();
    account.op = name_of(op);
    account.tasks = op.tasks;
    account.bytes_written = op.bytes;
    if (!op.why.empty()) account.choices.push_back({std::string(op.why), {}, op.predicted_s});
    for (const RejectedView& other : op.rejected)
      account.choices.push_back({std::string(other.why), other.placement, other.seconds});
    out.tasks += op.tasks;
  }
}

double since(TimeNs at, TimeNs submitted) {
  return at == kNotYet ? -1 : static_cast<double>(at - submitted) * kNs;
}

class Measuring {
 public:
  Measuring(const State& s, const PastGraph& past, const GraphRecord* graph) : s_(s), past_(past) {
    for (const OpView& op : past.ops) ops_.push_back(op);
    for (const auto& [device, work] : past.work) work_[device] = work;
    for (std::size_t i = 0; graph != nullptr && i < graph->ops.size(); ++i) {
      const OpRecord* op = s.ops.find(graph->ops[i]);
      if (op == nullptr || op->of) continue;
      if (ops_.size() < past.ops.size() + ViewLimits::kOps) ops_.push_back(view_of(s, *op));
      add_work(*op, work_);
    }
    std::sort(ops_.begin(), ops_.end(), [](const auto& a, const auto& b) { return a.position < b.position; });
  }
  const std::vector<OpView>& ops() const { return ops_; }

  // `place`: of the op at a position of the plan.
  template <class Place> msg::Measured told(const GraphRecord* graph, const Place& place) const {
    const GraphSummary& g = past_.summary;
    msg::Measured out;
    out.known = true;
    out.running = g.running;
    out.alone = past_.alone;
    out.outcome = g.cause;
    out.seconds = since(g.running ? s_.now - s_.start : g.ended, g.submitted);
    out.ago_s = since(s_.now - s_.start, g.submitted);
    out.tasks = graph != nullptr && g.running ? graph->total : g.tasks;
    out.tasks_done = graph != nullptr && g.running ? graph->done : g.done;
    out.forgotten = past_.forgotten;
    for (const OpView& op : ops_) {
      if (const std::optional<std::uint32_t> at = place(op.position))
        out.ops.push_back({op.id, *at, op.done, op.failed, op.bytes_moved, since(op.began, g.submitted),
                           since(op.began == kNotYet ? kNotYet : op.ended, g.submitted), op.busy_s,
                           op.busiest_s});
    }
    std::map<DeviceId, msg::MeasuredDevice> devices;
    for (const DevicePeak& peak : past_.peaks) {
      msg::MeasuredDevice& d = devices[peak.device];
      d.bytes_before = peak.before, d.bytes_peak = peak.bytes;
      d.bytes_spilled = peak.spilled, d.bytes_returned = peak.returned;
    }
    for (const auto& [device, work] : work_) {
      msg::MeasuredDevice& d = devices[device];
      d.tasks = work.tasks, d.busy_s = static_cast<double>(work.busy_ns) * kNs;
    }
    for (auto& [id, device] : devices) {
      device.device = id;
      out.devices.push_back(device);
    }
    for (const auto& [key, link] : past_.links)
      out.links.push_back({link.from, link.to, link.lane, link.transfers, link.bytes,
                           static_cast<double>(link.busy_ns) * kNs});
    std::stable_sort(out.links.begin(), out.links.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    if (out.links.size() > kMaxMeasuredLinks) out.links.resize(kMaxMeasuredLinks);
    return out;
  }

 private:
  const State& s_;
  const PastGraph& past_;
  std::vector<OpView> ops_;
  std::map<DeviceId, PastWork> work_;
};

}  // namespace

History::History() = default;
History::~History() = default;

std::unique_ptr<Foretold> foretell(const State& s, const Draft& draft) {
  auto out = std::make_unique<Foretold>();
  if (draft.ops.size() > kMaxToldOps) {
    out->prediction.unpredicted =
        "of more than " + std::to_string(kMaxToldOps) + " ops no prediction is kept";
    return out;
  }
  out->ops = draft.ops;
  out->placements = draft.placements;
  out->holds = draft.graph.holds;
  out->keeps = planned_keeps(s, draft);
  Paper& paper = out->paper.emplace(s);
  for (std::size_t i = 0; i < out->ops.size(); ++i) {
    paper.add(out->ops[i], out->placements[i], out->holds);
    tell_choices(draft, i, out->prediction.ops.emplace_back());
  }
  for (std::size_t i = 0; i < out->keeps.size(); ++i) {
    paper.add(out->keeps[i].op, out->keeps[i].placement, out->holds);
    tell_keep(out->keeps[i], draft.ops.size() + i, out->prediction.ops.emplace_back());
  }
  paper.keep();
  return out;
}

void remember_prediction(State& s, GraphId graph, std::unique_ptr<Foretold> foretold) {
  s.history.foretold[graph] = std::move(foretold);
  if (s.history.foretold.size() > kMaxForetold) s.history.foretold.erase(s.history.foretold.begin());
}

void account_of(State& s, GraphId id, msg::Explanation& out) {
  const auto past = s.history.graphs.find(id);
  if (past == s.history.graphs.end()) {
    out.outcome = {Errc::kNotFound, "nothing is remembered of graph " + std::to_string(id.value) +
                                        ": its account was not asked for when it was submitted, or it ended "
                                        "long ago"};
    return;
  }
  const std::uint64_t request = out.request;
  const GraphRecord* graph = s.graphs.find(id);
  const Measuring measuring(s, past->second, graph);
  const auto foretold = s.history.foretold.find(id);
  if (foretold != s.history.foretold.end()) {
    Foretold& f = *foretold->second;
    if (f.paper) {
      f.paper->account(f.prediction);
      cut_ops(f.prediction);
      f.paper.reset();
      f.ops = {}, f.placements = {}, f.keeps = {}, f.holds = {};
    }
    out = f.prediction;
    out.request = request;
  } else {
    out.unpredicted = "nothing was kept to predict from: its account was not asked for when it was submitted";
  }
  if (out.ops.empty()) {
    tell_estimates(measuring.ops(), out);
    out.op_count = past->second.summary.ops;
    if (out.ops.size() > kMaxToldOps) out.ops.resize(kMaxToldOps);
    std::map<std::uint32_t, std::uint32_t> places;
    for (std::size_t i = 0; i < out.ops.size(); ++i)
      places.emplace(measuring.ops()[i].position, static_cast<std::uint32_t>(i));
    out.measured = measuring.told(graph, [&](std::uint32_t position) -> std::optional<std::uint32_t> {
      const auto at = places.find(position);
      if (at == places.end()) return {};
      return at->second;
    });
    return;
  }
  // Predicted ops are all there are, in their places.
  out.measured = measuring.told(graph, [&](std::uint32_t position) -> std::optional<std::uint32_t> {
    if (position >= out.ops.size()) return {};
    return position;
  });
}

}  // namespace tilewise::scheduler
