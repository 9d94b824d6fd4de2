#include "flows.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "fields.h"

namespace tilewise::cli {
namespace {

std::uint64_t id_of(const json::value& op) {
  const json::value* id = member(op, "id");
  return id != nullptr && id->is_string() ? std::strtoull(id->get_string().c_str(), nullptr, 10) : 0;
}

// (op, op that it reads)
std::vector<std::pair<std::uint64_t, std::uint64_t>> edges_of(const json::value& graph) {
  std::map<std::int64_t, std::uint64_t> at;
  for (const json::value& op : list(graph, "ops")) {
    const json::value* position = op.is_object() ? op.get_object().if_contains("position") : nullptr;
    if (position != nullptr && position->is_number()) at[position->to_number<std::int64_t>()] = id_of(op);
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (const json::value& op : list(graph, "ops")) {
    for (const json::value& input : list(op, "inputs")) {
      const auto producer = input.is_number() ? at.find(input.to_number<std::int64_t>()) : at.end();
      if (producer != at.end()) out.emplace_back(id_of(op), producer->second);
    }
  }
  return out;
}

}  // namespace

std::vector<TraceFlow> flows_of(const std::vector<TraceStep>& steps, std::span<const json::value> graphs) {
  std::map<std::uint64_t, std::vector<std::size_t>> by_end;           // steps of an op, by their end
  std::map<std::uint64_t, std::map<std::string, std::size_t>> first;  // of an op, on each device
  for (std::size_t i = 0; i < steps.size(); ++i) {                    // by start
    if (steps[i].kind != msg::TraceKind::kStep) continue;
    by_end[steps[i].op].push_back(i);
    first[steps[i].op].emplace(steps[i].device, i);
  }
  const auto ends_before = [&](std::size_t a, std::size_t b) { return steps[a].end_ns < steps[b].end_ns; };
  for (auto& [op, list] : by_end) std::stable_sort(list.begin(), list.end(), ends_before);
  std::vector<TraceFlow> out;
  for (const json::value& graph : graphs) {
    for (const auto& [reader, read] : edges_of(graph)) {
      const auto made = by_end.find(read);
      const auto used = first.find(reader);
      if (made == by_end.end() || used == first.end()) continue;
      for (const auto& [device, to] : used->second) {
        const auto after =
            std::upper_bound(made->second.begin(), made->second.end(), steps[to].start_ns,
                             [&](std::int64_t t, std::size_t i) { return t < steps[i].end_ns; });
        if (after != made->second.begin()) out.push_back({*(after - 1), to});
      }
    }
  }
  return out;
}

}  // namespace tilewise::cli
