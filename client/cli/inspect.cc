// Commands that look closer than status: explain, account, trace.
#include <tilewise/account.h>
#include <tilewise/base/text.h>
#include <tilewise/base/utf8.h>
#include <tilewise/explain.h>
#include <tilewise/trace.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "commands.h"
#include "control.h"
#include "flows.h"
#include "live.h"
#include "web.h"

namespace tilewise::cli {
namespace {

Result<std::vector<Device>> devices_of(Control& control) {
  TW_ASSIGN(const msg::StatusReply status, control.status());
  std::vector<Device> devices;
  for (const msg::PeerInfo& peer : status.peers) {
    for (std::size_t i = 0; i < peer.devices.size() && i < peer.descriptions.size(); ++i) {
      const msg::DeviceDesc& d = peer.descriptions[i];
      devices.push_back({peer.devices[i], d.name, d.model, peer.name, peer.id, d.memory_bytes});
    }
  }
  return devices;
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  const auto failed = [&](const char* what) {
    const std::string why = std::strerror(errno);
    std::remove(partial.c_str());
    return error(Errc::kIo, std::string(what) + " " + path + ": " + why);
  };
  std::FILE* file = std::fopen(partial.c_str(), "w");
  if (file == nullptr) return failed("open");
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return failed("write");
  if (std::rename(partial.c_str(), path.c_str()) != 0) return failed("write");
  return {};
}

// Arrows between the steps of these graphs, as far as the dashboard remembers them; how many graphs it was not asked for.
void add_flows(Trace& trace, const Web& web) {
  constexpr std::size_t kMaxGraphs = 64;
  std::set<std::uint64_t> graphs;
  for (const TraceStep& step : trace.steps) graphs.insert(step.graph);
  std::vector<json::value> known;
  for (const std::uint64_t graph : graphs) {
    if (known.size() == kMaxGraphs) break;
    auto told = web.get_json("/api/graph?id=" + std::to_string(graph));
    if (!told && told.error().code != Errc::kNotFound) {
      std::fprintf(stderr, "no arrows between steps: %s\n", printable(told.error().message).c_str());
      return;
    }
    if (told) known.push_back(std::move(*told));
  }
  const std::vector<TraceFlow> more = flows_of(trace.steps, known);
  trace.flows.insert(trace.flows.end(), more.begin(), more.end());
}

// A refusal with the number by which the graph was asked for.
Error refused(const msg::Outcome& outcome, GraphId graph) {
  std::string why = outcome.message;
  const std::string number = std::to_string(graph.value);
  if (const std::size_t at = why.find(number); at != why.npos)
    why.replace(at, number.size(), std::to_string(make_id(0, graph.value)));
  return {outcome.code, why};
}

// Labels are their client's.
std::string printable_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    out += printable(line) + '\n';
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return out;
}

}  // namespace

Result<GraphId> graph_of(Control& control, const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad != std::errc() || end != text.data() + text.size() || text.empty())
    return error(Errc::kInvalidArgument, "graph '" + printable(text) + "' is no number");
  if (make_id(0, number) != number) return GraphId{number};
  TW_ASSIGN(const msg::StatusReply status, control.status());
  // Of an earlier term where the scheduler went on with its state.
  for (const msg::GraphStatus& graph : status.graphs)
    if (make_id(0, graph.graph.value) == number) return graph.graph;
  return GraphId{make_id(status.term, number)};
}

Status explain(Control& control, const WebOptions& dashboard, GraphId graph, Format format) {
  TW_ASSIGN(const std::vector<Device> devices, devices_of(control));
  TW_ASSIGN(msg::Explanation account, control.explain(graph));
  if (account.outcome.code == Errc::kNotFound) {
    if (const auto web = Web::open(dashboard, config::Role::kReader))
      return explain_past(*web, graph, format);
  }
  if (!account.outcome.ok()) return refused(account.outcome, graph);
  const Explanation explanation(std::move(account), devices);
  std::fputs(
      (format == Format::kJson ? explanation.json() + "\n" : printable_lines(explanation.text())).c_str(),
      stdout);
  return {};
}

Status account(Control& control, GraphId graph, Format format) {
  TW_ASSIGN(const std::vector<Device> devices, devices_of(control));
  TW_ASSIGN(msg::Explanation told, control.explain(graph, true));
  if (!told.outcome.ok()) return refused(told.outcome, graph);
  TW_ASSIGN(const msg::StatusReply status, control.status());
  std::map<WorkerId, std::string> hosts;
  for (const msg::PeerInfo& peer : status.peers) hosts[peer.id] = peer.host_id;
  msg::TraceRequest range;
  range.graph = graph;
  TW_ASSIGN(std::vector<msg::TraceReply> traces, control.trace(range));
  msg::align_clocks(traces, hosts);
  const Account account(std::move(told), traces, devices);
  std::fputs((format == Format::kJson ? account.json() + "\n" : printable_lines(account.text())).c_str(),
             stdout);
  return {};
}

Status trace(Control& control, const WebOptions& dashboard, const TraceOptions& options, Format format) {
  const std::string& file = options.file;
  msg::TraceRequest range;
  range.graph = options.graph;
  range.from_age_ns = static_cast<TimeNs>(options.last_s * 1e9);
  range.until_age_ns = static_cast<TimeNs>(options.before_s * 1e9);

  TW_ASSIGN(const std::vector<Device> devices, devices_of(control));
  TW_ASSIGN(const msg::StatusReply status, control.status());
  std::map<WorkerId, std::string> hosts;
  for (const msg::PeerInfo& peer : status.peers) hosts[peer.id] = peer.host_id;
  TW_ASSIGN(std::vector<msg::TraceReply> replies, control.trace(range));
  msg::align_clocks(replies, hosts);
  Trace trace = make_trace(replies, devices);
  if (options.graph && trace.steps.empty())
    return error(Errc::kNotFound,
                 "nothing is remembered of graph " + std::to_string(make_id(0, options.graph.value)));
  if (const auto web = Web::open(dashboard, config::Role::kReader)) add_flows(trace, *web);
  if (trace.lost > 0)
    std::fprintf(stderr, "%llu older records had been overwritten\n",
                 static_cast<unsigned long long>(trace.lost));
  if (trace.cut > 0)
    std::fprintf(
        stderr,
        "%llu records were left out, the oldest: workers made them faster than they could be asked for\n",
        static_cast<unsigned long long>(trace.cut));
  if (file == "-") {
    std::fputs(trace.chrome_json().c_str(), stdout);
    return {};
  }
  TW_TRY(write_file(file, trace.chrome_json()));
  if (format == Format::kJson) {
    std::printf("{\"file\":%s,\"steps\":%zu,\"arrows\":%zu,\"lost\":%llu,\"cut\":%llu}\n",
                json_quote(file).c_str(), trace.steps.size(), trace.flows.size(),
                static_cast<unsigned long long>(trace.lost), static_cast<unsigned long long>(trace.cut));
    return {};
  }
  std::fprintf(stderr, "%zu records and %zu arrows in %s\n", trace.steps.size(), trace.flows.size(),
               file.c_str());
  return {};
}

}  // namespace tilewise::cli
