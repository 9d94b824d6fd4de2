#include <tilewise/base/id.h>
#include <tilewise/base/text.h>
#include <tilewise/base/utf8.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "commands.h"

namespace tilewise::cli {
namespace {

const char* role_of(msg::Role role) {
  switch (role) {
    case msg::Role::kWorker: return "worker";
    case msg::Role::kClient: return "client";
    case msg::Role::kTool: return "tool";
  }
  return "?";
}

// Summed over workers.
std::map<msg::Lane, msg::LaneStats> lanes_of(const msg::StatusReply& status) {
  std::map<msg::Lane, msg::LaneStats> lanes;
  for (const auto& [worker, stats] : status.lanes) {
    msg::LaneStats& sum = lanes[stats.lane];
    sum.lane = stats.lane;
    sum.transfers += stats.transfers;
    sum.bytes += stats.bytes;
  }
  return lanes;
}

std::string lane_name(msg::Lane lane) { return std::string(msg::name_of(lane)); }

void print_status_json(const msg::StatusReply& s, const std::string& address) {
  std::printf(
      "{\"scheduler\":%s,\"term\":%u,\"uptime_s\":%.3f,\"graphs_done\":%lld,\"graphs_failed\":%lld,"
      "\"tasks_done\":%lld,\"arrays_live\":%lld,\"peers\":[",
      json_quote(address).c_str(), s.term, static_cast<double>(s.uptime_ns) * 1e-9,
      static_cast<long long>(s.graphs_done), static_cast<long long>(s.graphs_failed),
      static_cast<long long>(s.tasks_done), static_cast<long long>(s.arrays_live));
  const char* comma = "";
  for (const msg::PeerInfo& peer : s.peers) {
    std::printf("%s{\"id\":%u,\"role\":\"%s\",\"name\":%s,\"devices\":%zu}", comma, peer.id.value,
                role_of(peer.role), json_quote(peer.name).c_str(), peer.devices.size());
    comma = ",";
  }
  std::printf("],\"graphs\":[");
  comma = "";
  for (const msg::GraphStatus& graph : s.graphs) {
    std::printf("%s{\"id\":%llu,\"session\":%u,\"done\":%lld,\"total\":%lld,\"failed\":%s}", comma,
                static_cast<unsigned long long>(graph.graph.value), graph.session.value,
                static_cast<long long>(graph.done), static_cast<long long>(graph.total),
                graph.failed ? "true" : "false");
    comma = ",";
  }
  std::printf("],\"lanes\":{");
  comma = "";
  for (const auto& [lane, stats] : lanes_of(s)) {
    std::printf("%s%s:{\"transfers\":%lld,\"bytes\":%lld}", comma, json_quote(lane_name(lane)).c_str(),
                static_cast<long long>(stats.transfers), static_cast<long long>(stats.bytes));
    comma = ",";
  }
  std::printf("}}\n");
}

}  // namespace

void print_status(const msg::StatusReply& s, const std::string& address, Format format) {
  if (format == Format::kJson) return print_status_json(s, address);
  const auto count = [&](msg::Role role) {
    return std::count_if(s.peers.begin(), s.peers.end(),
                         [&](const msg::PeerInfo& p) { return p.role == role; });
  };
  std::printf("scheduler %s  term %u  up %.1f s\n", address.c_str(), s.term,
              static_cast<double>(s.uptime_ns) * 1e-9);
  std::printf("workers %td  devices %zu  clients %td\n", count(msg::Role::kWorker), s.devices.size(),
              count(msg::Role::kClient));
  std::printf("graphs  running %zu  done %lld  failed %lld   tasks done %lld   live arrays %lld\n",
              s.graphs.size(), static_cast<long long>(s.graphs_done), static_cast<long long>(s.graphs_failed),
              static_cast<long long>(s.tasks_done), static_cast<long long>(s.arrays_live));
  for (const msg::PeerInfo& peer : s.peers) {
    std::printf("%-6s w%-5u %zu device%s  %s\n", role_of(peer.role), peer.id.value, peer.devices.size(),
                peer.devices.size() == 1 ? " " : "s", printable(peer.name).c_str());
  }
  for (const msg::GraphStatus& graph : s.graphs) {
    std::printf("graph  %llu  session %u  %lld/%lld tasks  %d ops left%s\n",
                static_cast<unsigned long long>(make_id(0, graph.graph.value)), graph.session.value,
                static_cast<long long>(graph.done), static_cast<long long>(graph.total), graph.ops,
                graph.failed ? "  failing" : "");
  }
  for (const auto& [lane, stats] : lanes_of(s)) {
    std::printf("lane   %-14s %lld transfers  %s\n", lane_name(lane).c_str(),
                static_cast<long long>(stats.transfers), bytes_text(stats.bytes).c_str());
  }
}

void print_devices(const msg::StatusReply& s, Format format) {
  std::map<DeviceId, msg::DeviceStats> stats;
  for (const msg::DeviceStats& d : s.devices) stats[d.device] = d;
  if (format == Format::kText) {
    std::printf("%-5s %-16s %11s %11s %11s %10s %9s  %s\n", "id", "name", "memory", "used", "peak", "steps",
                "busy s", "model");
  } else {
    std::printf("[");
  }
  const char* comma = "";
  for (const msg::PeerInfo& peer : s.peers) {
    if (peer.role != msg::Role::kWorker) continue;
    for (std::size_t i = 0; i < peer.devices.size() && i < peer.descriptions.size(); ++i) {
      const msg::DeviceDesc& device = peer.descriptions[i];
      const msg::DeviceStats& d = stats[peer.devices[i]];
      if (format == Format::kText) {
        std::printf("%-5u %-16s %11s %11s %11s %10lld %9.2f  %s\n", peer.devices[i].value,
                    printable(device.name).c_str(), bytes_text(device.memory_bytes).c_str(),
                    bytes_text(d.bytes_used).c_str(), bytes_text(d.bytes_peak).c_str(),
                    static_cast<long long>(d.steps_run), static_cast<double>(d.busy_ns) * 1e-9,
                    printable(device.model).c_str());
        continue;
      }
      std::printf(
          "%s{\"id\":%u,\"name\":%s,\"worker\":%s,\"kind\":%s,\"model\":%s,\"memory_bytes\":%lld,"
          "\"used_bytes\":%lld,\"peak_bytes\":%lld,\"spilled_bytes\":%lld,\"steps\":%lld,\"busy_s\":%.6f,"
          "\"numeric_class\":%s}",
          comma, peer.devices[i].value, json_quote(device.name).c_str(), json_quote(peer.name).c_str(),
          device.kind == 0 ? "\"host\"" : "\"cuda\"", json_quote(device.model).c_str(),
          static_cast<long long>(device.memory_bytes), static_cast<long long>(d.bytes_used),
          static_cast<long long>(d.bytes_peak), static_cast<long long>(d.spilled_bytes),
          static_cast<long long>(d.steps_run), static_cast<double>(d.busy_ns) * 1e-9,
          json_quote(device.numeric_class).c_str());
      comma = ",";
    }
  }
  if (format == Format::kJson) std::printf("]\n");
}

}  // namespace tilewise::cli
