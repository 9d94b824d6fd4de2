#include "measured_path.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tilewise::client {
namespace {

using Index = std::size_t;

class Chain {
 public:
  explicit Chain(const std::vector<msg::TraceReply>& traces) {
    for (const msg::TraceReply& reply : traces) {
      for (const msg::TracedStep& step : reply.steps) {
        if (step.kind == msg::TraceKind::kStep || step.kind == msg::TraceKind::kTransfer)
          records_.push_back(step);
      }
    }
    std::stable_sort(records_.begin(), records_.end(),
                     [](const auto& a, const auto& b) { return a.end_ns < b.end_ns; });
    for (Index i = 0; i < records_.size(); ++i) {
      const msg::TracedStep& r = records_[i];
      if (r.kind == msg::TraceKind::kStep) {
        steps_[r.device].push_back(i);
        made_[{r.device, r.op, r.point}].push_back(i);
      } else {
        taken_in_[{r.device, r.user}].push_back(i);
      }
    }
  }

  // Last to first.
  template <class Visit> void walk(const Visit& visit) const {
    if (records_.empty()) return;
    Index at = records_.size();
    while (at-- > 0 && records_[at].kind != msg::TraceKind::kStep) {
    }
    // Each is earlier in the list than the one before, so this ends.
    while (at < records_.size()) {
      const msg::TracedStep& r = records_[at];
      const Index before = r.kind == msg::TraceKind::kStep ? before_step(at) : before_transfer(at);
      const std::int64_t ready = before < records_.size() ? records_[before].end_ns : r.start_ns;
      visit(r, std::max<std::int64_t>(0, r.start_ns - ready));
      at = before;
    }
  }

 private:
  // The last of a list, in order of their ends, that ended when record `at` began, and comes before it.
  template <class Map, class Key> Index last_before(const Map& lists, const Key& key, Index at) const {
    const auto list = lists.find(key);
    if (list == lists.end()) return records_.size();
    const std::int64_t begin = records_[at].start_ns;
    const auto after = std::partition_point(list->second.begin(), list->second.end(),
                                            [&](Index i) { return records_[i].end_ns <= begin && i < at; });
    return after == list->second.begin() ? records_.size() : *(after - 1);
  }
  Index before_step(Index at) const {
    const msg::TracedStep& r = records_[at];
    const Index step = last_before(steps_, r.device, at);
    const Index bytes = last_before(taken_in_, std::pair(r.device, r.user ? r.user : r.op), at);
    if (step == records_.size()) return bytes;
    if (bytes == records_.size()) return step;
    return records_[bytes].end_ns > records_[step].end_ns ? bytes : step;
  }
  Index before_transfer(Index at) const {
    const msg::TracedStep& r = records_[at];
    return last_before(made_, std::tuple(r.peer, r.op, r.point), at);
  }

  std::vector<msg::TracedStep> records_;  // by their ends
  std::map<DeviceId, std::vector<Index>> steps_;
  std::map<std::pair<DeviceId, OpId>, std::vector<Index>> taken_in_;
  std::map<std::tuple<DeviceId, OpId, std::int64_t>, std::vector<Index>> made_;
};

}  // namespace

std::vector<msg::CriticalAccount> measured_path(const std::vector<msg::TraceReply>& traces,
                                                const std::vector<msg::MeasuredOp>& ops, std::size_t most) {
  std::map<OpId, std::uint32_t> places;
  for (const msg::MeasuredOp& op : ops) places.emplace(op.id, op.op);
  std::vector<msg::CriticalAccount> path;  // last to first
  const auto add = [&](std::uint32_t op, DeviceId device, const char* what, std::int64_t ns) {
    if (ns <= 0) return;
    if (!path.empty() && path.back().op == op && path.back().device == device && path.back().what == what)
      path.back().seconds += static_cast<double>(ns) * 1e-9;
    else if (path.size() < most)
      path.push_back({op, device, what, static_cast<double>(ns) * 1e-9});
  };
  Chain(traces).walk([&](const msg::TracedStep& r, std::int64_t waited_ns) {
    const bool moved = r.kind == msg::TraceKind::kTransfer;
    const auto place = places.find(moved ? r.user : r.op);
    const std::uint32_t op = place != places.end() ? place->second : UINT32_MAX;
    add(op, r.device, moved ? "moves" : "runs", r.end_ns - r.start_ns);
    add(op, r.device, "waits", waited_ns);
  });
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace tilewise::client
