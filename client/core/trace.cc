#include <tilewise/base/text.h>
#include <tilewise/trace.h>

#include <algorithm>
#include <cstdio>
#include <map>

namespace tilewise {

Trace make_trace(const std::vector<msg::TraceReply>& replies, const std::vector<Device>& devices) {
  std::map<DeviceId, std::string> names;
  for (const Device& d : devices) names[d.id] = d.name;
  Trace trace;
  for (const msg::TraceReply& reply : replies) {
    trace.lost += reply.lost;
    for (const msg::TracedStep& step : reply.steps) {
      const auto name = names.find(step.device);
      trace.steps.push_back(
          {name != names.end() ? name->second : "device " + std::to_string(step.device.value),
           step.family < reply.families.size() ? reply.families[step.family] : "?", step.op.value,
           step.graph.value, step.point, step.stream, step.start_ns, step.end_ns});
    }
  }
  std::stable_sort(trace.steps.begin(), trace.steps.end(),
                   [](const TraceStep& a, const TraceStep& b) { return a.start_ns < b.start_ns; });
  return trace;
}

std::string Trace::chrome_json() const {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  std::map<std::string, int> rows;  // a process in the viewer's words
  const char* comma = "";
  char number[96];
  for (const TraceStep& step : steps) {
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
    out += std::string(comma) + "{\"ph\":\"X\",\"name\":" + json_quote(step.what) +
           ",\"pid\":" + std::to_string(row->second) + ",\"tid\":" + std::to_string(step.stream) + "," +
           number + ",\"args\":{\"op\":" + std::to_string(step.op) +
           ",\"graph\":" + std::to_string(step.graph) + ",\"point\":" + std::to_string(step.point) + "}}";
    comma = ",";
  }
  std::size_t arrow = 0;
  for (const TraceFlow& flow : flows) {
    if (flow.from >= steps.size() || flow.to >= steps.size()) continue;
    ++arrow;
    for (const bool begins : {true, false}) {
      const TraceStep& step = steps[begins ? flow.from : flow.to];
      // An arrow hangs on the step that is under way at its time.
      const std::int64_t at = begins ? std::max(step.start_ns, step.end_ns - 1) : step.start_ns;
      std::snprintf(number, sizeof number, "%.3f", static_cast<double>(at) * 1e-3);
      out += std::string(comma) + (begins ? "{\"ph\":\"s\"" : "{\"ph\":\"f\",\"bp\":\"e\"") +
             ",\"cat\":\"feeds\",\"name\":\"feeds\",\"id\":" + std::to_string(arrow) +
             ",\"pid\":" + std::to_string(rows.at(step.device)) + ",\"tid\":" + std::to_string(step.stream) +
             ",\"ts\":" + number + "}";
    }
  }
  return out + "]}\n";
}

}  // namespace tilewise
