// Steps that workers remember, for the page (columns) and for other viewers (Chrome's trace events).
#include "views.h"

#include <tilewise/base/text.h>

#include <algorithm>
#include <cstdio>
#include <map>

namespace tilewise::dashboard {

json::object to_json(const std::vector<msg::TraceReply>& replies) {
  json::array names, columns[7];  // family, device, stream, start, nanoseconds it took, op, point
  std::map<std::string, std::uint32_t> families;
  std::map<std::uint64_t, std::uint32_t> ops;
  json::array op_ids, op_graphs, op_families;
  std::size_t steps = 0;
  std::uint64_t lost = 0;
  std::int64_t origin = 0;
  for (const msg::TraceReply& reply : replies) {
    lost += reply.lost;
    for (const msg::TracedStep& step : reply.steps) {
      if (steps++ == 0 || step.start_ns < origin) origin = step.start_ns;
    }
  }
  for (json::array& column : columns) column.reserve(steps);
  for (const msg::TraceReply& reply : replies) {
    std::vector<std::uint32_t> family;
    for (const std::string& name : reply.families) {
      const auto [it, fresh] =
          families.emplace(json::utf8(name), static_cast<std::uint32_t>(families.size()));
      if (fresh) names.push_back(json::value(it->first));
      family.push_back(it->second);
    }
    for (const msg::TracedStep& step : reply.steps) {
      const auto [op, fresh] = ops.emplace(step.op.value, static_cast<std::uint32_t>(ops.size()));
      const std::int64_t kind = step.family < family.size() ? std::int64_t{family[step.family]} : -1;
      if (fresh) {
        op_ids.push_back(json::value(json::id_text(step.op.value)));
        op_graphs.push_back(json::value(json::id_text(step.graph.value)));
        op_families.push_back(kind);
      }
      columns[0].push_back(kind);
      columns[1].push_back(step.device.value);
      columns[2].push_back(step.stream);
      columns[3].push_back(step.start_ns - origin);
      columns[4].push_back(step.end_ns - step.start_ns);
      columns[5].push_back(op->second);
      columns[6].push_back(step.point);
    }
  }
  return {{"view", "trace"},
          {"origin_ns", json::id_text(static_cast<std::uint64_t>(origin))},
          {"lost", lost},
          {"families", std::move(names)},
          {"ops", std::move(op_ids)},
          {"op_graphs", std::move(op_graphs)},
          {"op_families", std::move(op_families)},
          {"family", std::move(columns[0])},
          {"device", std::move(columns[1])},
          {"stream", std::move(columns[2])},
          {"start", std::move(columns[3])},
          {"took", std::move(columns[4])},
          {"op", std::move(columns[5])},
          {"point", std::move(columns[6])}};
}

}  // namespace tilewise::dashboard
