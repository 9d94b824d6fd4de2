#include "metrics.h"

#include <tilewise/json/json.h>

#include <chrono>
#include <cstdio>

namespace tilewise::dashboard {
namespace {

const double kBegan =  // as near as no matter: it is set before main()
    std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : json::utf8(text)) {
    if (c == '\\' || c == '"')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + '"';
}

class Text {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void sample(double value, const std::string& labels = {}) {
    char number[40];
    std::snprintf(number, sizeof number, " %.17g\n", value);
    out_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + number;
  }
  template <class T> void sample(T value, const std::string& labels = {}) {
    out_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + std::to_string(value) + "\n";
  }
  std::string take() { return std::move(out_); }

 private:
  std::string name_, out_;
};

struct NamedDevice {
  std::string labels;
  const msg::DeviceStats* stats;
  std::int64_t memory, disk, pinned;
};

std::vector<NamedDevice> named_devices(const msg::StatusReply& status) {
  std::vector<NamedDevice> out;
  std::size_t next = 0;
  for (const msg::PeerInfo& peer : status.peers) {
    if (peer.role != msg::Role::kWorker) continue;
    for (std::size_t i = 0; i < peer.devices.size() && next < status.devices.size(); ++i, ++next) {
      const msg::DeviceDesc& about = peer.descriptions[i];
      out.push_back({"device=" + quoted(about.name) + ",kind=\"" + (about.kind == 0 ? "host" : "cuda") + "\"",
                     &status.devices[next], about.memory_bytes, about.spill_bytes, about.pinned_bytes});
    }
  }
  return out;
}

void about_cluster(Text& t, const scheduler::Overview& o) {
  const msg::StatusReply& s = o.status;
  std::size_t count[3] = {};
  for (const msg::PeerInfo& peer : s.peers) ++count[static_cast<std::size_t>(peer.role)];
  t.family("tilewise_scheduler_uptime_seconds", "gauge",
           "Time since the cluster's state began; goes on after a restart with --state-dir, without the time "
           "in between.");
  t.sample(static_cast<double>(o.now) * 1e-9);
  t.family("tilewise_scheduler_start_time_seconds", "gauge", "When this process began, since 1970.");
  t.sample(kBegan);
  t.family("tilewise_scheduler_term", "gauge", "Number of this scheduler life.");
  t.sample(s.term);
  t.family("tilewise_peers", "gauge", "Joined processes by role.");
  t.sample(count[0], "role=\"worker\"");
  t.sample(count[1], "role=\"client\"");
  t.sample(count[2], "role=\"tool\"");
  t.family("tilewise_worker_info", "gauge", "What a worker is called, by its number in other labels.");
  for (const msg::PeerInfo& peer : s.peers) {
    if (peer.role != msg::Role::kWorker) continue;
    t.sample(1, "worker=\"w" + std::to_string(peer.id.value) + "\",name=" + quoted(peer.name) +
                    ",host=" + quoted(peer.host_id));
  }
  t.family("tilewise_graphs_running", "gauge", "Submitted graphs that have not ended.");
  t.sample(o.running);
  t.family("tilewise_graphs_ended_total", "counter",
           "Graphs that ended, by outcome; cancelled ones count as failed.");
  t.sample(s.graphs_done, "outcome=\"done\"");
  t.sample(s.graphs_failed, "outcome=\"failed\"");
  t.family("tilewise_tasks_completed_total", "counter",
           "Tasks that workers reported as completed, failed ones included.");
  t.sample(s.tasks_done);
  t.family("tilewise_workers_draining", "gauge", "Workers that are to leave as an operator wished.");
  t.sample(o.draining.size());
  t.family("tilewise_blocks_recovered_total", "counter", "Blocks made again after workers were lost.");
  t.sample(o.recovered);
  t.family("tilewise_lineage_ops", "gauge", "Ops that are over and are kept to make others' results again.");
  t.sample(o.lineage);
  t.family("tilewise_checkpoints", "gauge",
           "Arrays that are on disk, so that what they were made from is forgotten.");
  t.sample(o.checkpoints);
  t.family("tilewise_checkpoints_failed_total", "counter", "Arrays that could not be written there.");
  t.sample(o.checkpoints_failed);
  t.family("tilewise_arrays", "gauge", "Arrays that the scheduler knows.");
  t.sample(s.arrays_live);
}

void about_devices(Text& t, const msg::StatusReply& status) {
  const std::vector<NamedDevice> devices = named_devices(status);
  const auto each = [&](const char* name, const char* type, const char* help, auto&& value) {
    t.family(name, type, help);
    for (const NamedDevice& d : devices) t.sample(value(d), d.labels);
  };
  each("tilewise_device_memory_limit_bytes", "gauge", "Bound of the device's arena.",
       [](const NamedDevice& d) { return d.memory; });
  each("tilewise_device_memory_used_bytes", "gauge", "Bytes of blocks on the device.",
       [](const NamedDevice& d) { return d.stats->bytes_used; });
  each("tilewise_device_memory_peak_bytes", "gauge", "Most bytes of blocks at once since the worker joined.",
       [](const NamedDevice& d) { return d.stats->bytes_peak; });
  each("tilewise_device_memory_resident_bytes", "gauge", "Bytes of the arena that are backed by memory.",
       [](const NamedDevice& d) { return d.stats->bytes_resident; });
  each("tilewise_device_spill_limit_bytes", "gauge",
       "The device's share of its worker's spill file; 0: no disk.",
       [](const NamedDevice& d) { return d.disk; });
  each("tilewise_device_spilled_bytes", "gauge", "Bytes of blocks that are on disk only.",
       [](const NamedDevice& d) { return d.stats->spilled_bytes; });
  each("tilewise_device_spill_taken_bytes", "gauge",
       "The device's share of what its worker's spill file takes on the disk.",
       [](const NamedDevice& d) { return d.stats->disk_taken; });
  each("tilewise_device_disk_written_bytes_total", "counter", "Bytes of blocks written to disk.",
       [](const NamedDevice& d) { return d.stats->disk_written; });
  each("tilewise_device_disk_read_bytes_total", "counter", "Bytes of blocks read back from disk.",
       [](const NamedDevice& d) { return d.stats->disk_read; });
  each("tilewise_device_pinned_limit_bytes", "gauge",
       "The device's share of its worker's pinned memory for spilling; 0: none.",
       [](const NamedDevice& d) { return d.pinned; });
  each("tilewise_device_pinned_bytes", "gauge", "Bytes of blocks that are in pinned host memory only.",
       [](const NamedDevice& d) { return d.stats->pinned_bytes; });
  each("tilewise_device_pinned_written_bytes_total", "counter", "Bytes of blocks copied to pinned memory.",
       [](const NamedDevice& d) { return d.stats->pinned_written; });
  each("tilewise_device_pinned_read_bytes_total", "counter",
       "Bytes of blocks copied back from pinned memory.",
       [](const NamedDevice& d) { return d.stats->pinned_read; });
  each("tilewise_device_lodged_bytes", "gauge", "Bytes of blocks that are in neighbours' memory only.",
       [](const NamedDevice& d) { return d.stats->lodged_bytes; });
  each("tilewise_device_lodged_written_bytes_total", "counter", "Bytes of blocks copied to neighbours.",
       [](const NamedDevice& d) { return d.stats->lodged_written; });
  each("tilewise_device_lodged_read_bytes_total", "counter", "Bytes of blocks copied back from neighbours.",
       [](const NamedDevice& d) { return d.stats->lodged_read; });
  each("tilewise_device_guest_bytes", "gauge", "Bytes of neighbours' blocks in the device's memory.",
       [](const NamedDevice& d) { return d.stats->guest_bytes; });
  each("tilewise_device_relocated_bytes_total", "counter",
       "Bytes of blocks moved within the device's memory, to make room in one piece.",
       [](const NamedDevice& d) { return d.stats->relocated; });
  each("tilewise_device_blocks_written_total", "counter",
       "Blocks spilled to disk, pinned memory or neighbours.",
       [](const NamedDevice& d) { return d.stats->blocks_written; });
  each("tilewise_device_blocks_read_back_total", "counter", "Blocks brought back from there.",
       [](const NamedDevice& d) { return d.stats->blocks_read_back; });
  each("tilewise_device_steps_total", "counter", "Kernel steps run.",
       [](const NamedDevice& d) { return d.stats->steps_run; });
  each("tilewise_device_busy_seconds_total", "counter",
       "Time in which the device's streams ran steps, summed over them.",
       [](const NamedDevice& d) { return static_cast<double>(d.stats->busy_ns) * 1e-9; });
}

void about_lanes(Text& t, const msg::StatusReply& status) {
  const auto labels = [](const auto& entry) {
    return "worker=\"w" + std::to_string(entry.first.value) +
           "\",lane=" + quoted(msg::name_of(entry.second.lane));
  };
  t.family("tilewise_lane_bytes_total", "counter",
           "Bytes that a worker took in, by the lane they came over.");
  for (const auto& entry : status.lanes) t.sample(entry.second.bytes, labels(entry));
  t.family("tilewise_lane_transfers_total", "counter", "Blocks that a worker took in, by lane.");
  for (const auto& entry : status.lanes) t.sample(entry.second.transfers, labels(entry));
  t.family("tilewise_lane_failed_transfers_total", "counter",
           "Transfers to a worker that failed and were tried again or given up, by lane.");
  for (const auto& entry : status.lanes) t.sample(entry.second.failed, labels(entry));
}

}  // namespace

std::string metrics_text(const scheduler::Overview& overview, const std::vector<Warning>& found,
                         const ServerCounts& counts, const std::string& version) {
  Text t;
  t.family("tilewise_build_info", "gauge", "The version, as a label.");
  t.sample(1, "version=" + quoted(version));
  about_cluster(t, overview);
  about_devices(t, overview.status);
  about_lanes(t, overview.status);
  t.family("tilewise_warnings", "gauge", "Warnings that the dashboard shows, by code.");
  for (const std::string_view code : warning_codes()) {
    int n = 0;
    for (const Warning& w : found) n += w.code == code ? 1 : 0;
    t.sample(n, "code=" + quoted(code));
  }
  t.family("tilewise_dashboard_connections", "gauge", "Open connections to the dashboard.");
  t.sample(counts.connections);
  t.family("tilewise_dashboard_watchers", "gauge", "Those of them that follow live views.");
  t.sample(counts.sockets);
  t.family("tilewise_dashboard_requests_total", "counter", "Requests that the dashboard answered.");
  t.sample(counts.requests);
  t.family("tilewise_dashboard_refused_total", "counter",
           "Requests that the dashboard refused: no token, wrong host, too large.");
  t.sample(counts.refused);
  return t.take();
}

}  // namespace tilewise::dashboard
