#include <tilewise/base/text.h>
#include <tilewise/trace.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

namespace tilewise {

namespace {

using Index = std::size_t;

bool is_step(const TraceStep& s) { return s.kind == msg::TraceKind::kStep; }
bool moves(const TraceStep& s) {
  return s.kind == msg::TraceKind::kTransfer || s.kind == msg::TraceKind::kSpill ||
         s.kind == msg::TraceKind::kUnspill;
}

// The last step of the task that made the block, before it was moved; the first of the user's there afterwards.
void add_flows(Trace& trace) {
  std::map<std::tuple<std::string, std::uint64_t, std::int64_t>, std::vector<Index>> by_task;
  std::map<std::pair<std::string, std::uint64_t>, std::vector<Index>> by_op;
  for (Index i = 0; i < trace.steps.size(); ++i) {
    const TraceStep& s = trace.steps[i];
    if (!is_step(s)) continue;
    by_task[{s.device, s.op, s.point}].push_back(i);
    by_op[{s.device, s.op}].push_back(i);
  }
  for (Index i = 0; i < trace.steps.size(); ++i) {
    const TraceStep& s = trace.steps[i];
    if (s.kind != msg::TraceKind::kTransfer) continue;
    if (const auto made = by_task.find({s.peer, s.op, s.point}); made != by_task.end()) {
      const auto after = std::find_if(made->second.begin(), made->second.end(),
                                      [&](Index k) { return trace.steps[k].start_ns > s.end_ns; });
      if (after != made->second.begin()) trace.flows.push_back({*(after - 1), i});
    }
    if (const auto used = by_op.find({s.device, s.user}); used != by_op.end()) {
      const auto first =
          std::lower_bound(used->second.begin(), used->second.end(), s.end_ns,
                           [&](Index k, std::int64_t t) { return trace.steps[k].start_ns < t; });
      if (first != used->second.end()) trace.flows.push_back({i, *first});
    }
  }
}

// Rows below the streams of a device: waits, then transfers in as many tracks as overlap.
constexpr int kWaitRow = 90, kFirstTrack = 100;

std::vector<int> rows_of(const std::vector<TraceStep>& steps) {
  std::vector<int> rows;
  std::map<std::string, std::vector<std::int64_t>> tracks;  // of a device: until when each is taken
  for (const TraceStep& s : steps) {
    if (is_step(s)) {
      rows.push_back(s.stream);
    } else if (moves(s)) {
      std::vector<std::int64_t>& taken = tracks[s.device];
      const auto free =
          std::find_if(taken.begin(), taken.end(), [&](std::int64_t t) { return t <= s.start_ns; });
      rows.push_back(kFirstTrack + static_cast<int>(free - taken.begin()));
      if (free == taken.end())
        taken.push_back(s.end_ns);
      else
        *free = s.end_ns;
    } else {
      rows.push_back(kWaitRow);
    }
  }
  return rows;
}

}  // namespace

Trace make_trace(const std::vector<msg::TraceReply>& replies, const std::vector<Device>& devices) {
  std::map<DeviceId, std::string> names;
  for (const Device& d : devices) names[d.id] = d.name;
  const auto name_of = [&](DeviceId id) {
    const auto name = names.find(id);
    return name != names.end() ? name->second : "device " + std::to_string(id.value);
  };
  Trace trace;
  for (const msg::TraceReply& reply : replies) {
    trace.lost += reply.lost;
    trace.cut += reply.cut;
    for (const msg::TracedStep& step : reply.steps) {
      const bool ran = step.kind == msg::TraceKind::kStep, moved = step.kind == msg::TraceKind::kTransfer;
      std::string what = moved  ? "lane " + std::string(msg::name_of(step.lane))
                         : !ran ? std::string(msg::name_of(step.kind))
                         : step.family < reply.families.size() ? reply.families[step.family]
                                                               : "?";
      trace.steps.push_back(
          {name_of(step.device), std::move(what), step.op.value, step.graph.value, step.point, step.stream,
           step.start_ns, step.end_ns, step.kind,
           moved || (!ran && step.peer && step.peer != step.device) ? name_of(step.peer) : std::string(),
           step.bytes, step.user.value});
    }
  }
  std::stable_sort(trace.steps.begin(), trace.steps.end(),
                   [](const TraceStep& a, const TraceStep& b) { return a.start_ns < b.start_ns; });
  add_flows(trace);
  return trace;
}

std::string Trace::chrome_json() const {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"tilewise\":{\"lost\":" + std::to_string(lost) +
                    ",\"cut\":" + std::to_string(cut) + "},\"traceEvents\":[";
  const std::vector<int> row_of = rows_of(steps);
  std::set<std::pair<int, int>> named;
  std::map<std::string, int> rows;  // a process in the viewer's words
  const char* comma = "";
  char number[96];
  for (Index i = 0; i < steps.size(); ++i) {
    const TraceStep& step = steps[i];
    const auto [row, fresh] = rows.emplace(step.device, static_cast<int>(rows.size()) + 1);
    if (fresh) {
      out += std::string(comma) +
             "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(row->second) +
             ",\"args\":{\"name\":" + json_quote(step.device) + "}}";
      comma = ",";
    }
    std::snprintf(number, sizeof number, "\"ts\":%.3f,\"dur\":%.3f",
                  static_cast<double>(step.start_ns) * 1e-3,
                  static_cast<double>(step.end_ns - step.start_ns) * 1e-3);
    const char* category = is_step(step) ? "step" : moves(step) ? "transfer" : "wait";
    if (!is_step(step) && named.emplace(row->second, row_of[i]).second)
      out += ",{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" + std::to_string(row->second) +
             ",\"tid\":" + std::to_string(row_of[i]) + ",\"args\":{\"name\":\"" +
             (moves(step) ? "came in" : "idle, why") + "\"}}";
    out += std::string(",{\"ph\":\"X\",\"cat\":\"") + category + "\",\"name\":" + json_quote(step.what) +
           ",\"pid\":" + std::to_string(row->second) + ",\"tid\":" + std::to_string(row_of[i]) + "," +
           number + ",\"args\":{\"op\":" + std::to_string(step.op) +
           ",\"graph\":" + std::to_string(step.graph) + ",\"point\":" + std::to_string(step.point);
    if (moves(step))
      out += ",\"bytes\":" + std::to_string(step.bytes) +
             (step.kind == msg::TraceKind::kSpill ? ",\"to\":" : ",\"from\":") + json_quote(step.peer) +
             ",\"user\":" + std::to_string(step.user);
    out += "}}";
  }
  std::size_t arrow = 0;
  for (const TraceFlow& flow : flows) {
    if (flow.from >= steps.size() || flow.to >= steps.size()) continue;
    ++arrow;
    for (const bool begins : {true, false}) {
      const Index place = begins ? flow.from : flow.to;
      const TraceStep& step = steps[place];
      // An arrow hangs on the step that is under way at its time.
      const std::int64_t at = begins ? std::max(step.start_ns, step.end_ns - 1) : step.start_ns;
      std::snprintf(number, sizeof number, "%.3f", static_cast<double>(at) * 1e-3);
      out += std::string(comma) + (begins ? "{\"ph\":\"s\"" : "{\"ph\":\"f\",\"bp\":\"e\"") +
             ",\"cat\":\"feeds\",\"name\":\"feeds\",\"id\":" + std::to_string(arrow) +
             ",\"pid\":" + std::to_string(rows.at(step.device)) +
             ",\"tid\":" + std::to_string(row_of[place]) + ",\"ts\":" + number + "}";
    }
  }
  return out + "]}\n";
}

}  // namespace tilewise
