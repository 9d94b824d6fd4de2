// What workers report: counts, failures, and that they cannot go on.
#include "effects.h"
#include "graphs.h"
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

void add_root_cause(GraphRecord& graph, msg::Outcome why) {
  if (graph.running && graph.root_cause.ok()) graph.root_cause = std::move(why);
}

// "w1/host:0"
std::string name_of(const State& s, const Device& device) {
  const msg::PeerInfo& info = s.peer(device.peer).info;
  const auto at = std::find(info.devices.begin(), info.devices.end(), device.id) - info.devices.begin();
  return info.descriptions[static_cast<std::size_t>(at)].name;
}

OpShare* share_of(OpRecord& op, DeviceId device) {
  const auto share = std::lower_bound(op.shares.begin(), op.shares.end(), device,
                                      [](const OpShare& a, DeviceId id) { return a.device < id; });
  return share == op.shares.end() || share->device != device ? nullptr : &*share;
}

bool has_layers(const State& s, const GraphRecord& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [&](OpId id) {
    const OpRecord* op = s.ops.find(id);
    return op != nullptr && op->of;
  });
}

// Comes with the report that completes the share, and is looked at before it: then the op may be forgotten.
void merge_measured(State& s, const Peer& worker, const msg::OpMeasured& report) {
  OpRecord* op = s.ops.find(report.op);
  OpShare* share = op == nullptr ? nullptr : share_of(*op, report.device);
  if (share == nullptr || s.device(report.device)->peer != worker.info.id) return;
  share->busy_ns = std::max(share->busy_ns, report.busy_ns);
  share->bytes_moved = std::max(share->bytes_moved, report.bytes_moved);
}

void merge_op(State& s, const Peer& worker, const msg::OpProgress& report) {
  OpRecord* op = s.ops.find(report.op);
  if (op == nullptr || op->finished) return;  // late news of what is over
  OpShare* share = share_of(*op, report.device);
  if (share == nullptr || s.device(report.device)->peer != worker.info.id) {
    refuse(s, worker.conn, Errc::kInvalidArgument,
           "progress of " + describe(s, *op) + " on a device that owns none of it");
    return;
  }
  if (report.completed > share->owned || report.failed > report.completed || report.failed < 0) {
    refuse(
        s, worker.conn, Errc::kInvalidArgument,
        "progress of " + describe(s, *op) + " beyond its " + std::to_string(share->owned) + " points there");
    return;
  }
  const std::int64_t more = std::max<std::int64_t>(0, report.completed - share->completed);
  const std::int64_t more_failed = std::max<std::int64_t>(0, report.failed - share->failed);
  if (more == 0 && more_failed == 0) return;
  s.stuck.erase(report.device);
  if (op->began == kNotYet) op->began = s.now - s.start;
  op->ended = s.now - s.start;
  share->completed += more;
  share->failed += more_failed;
  op->completed += more;
  op->failed += more_failed;
  if (op->moved && more_failed > 0) {
    if (OpRecord* head = s.ops.find(op->of)) head->moved_failed = true;
  }
  note_progress(s, *op, report.device, more);
  s.tasks_done += more;
  GraphRecord& graph = s.graphs.at(op->graph);
  graph.done += more;
  graph.failed += more_failed;
  if (!graph.dirty && graph.running) graph.dirty = true, s.dirty.push_back(graph.id);
  // The first TaskFailed names the cause; this is for one that never came.
  if (op->completed == op->points) {
    if (op->failed > 0 && op->doomed)
      add_root_cause(graph, doom_of(s, op->of, op->placement.listed()->runs().front().first));
    else if (op->failed > 0)
      add_root_cause(graph, {Errc::kTaskFailed, "tasks of " + describe(s, *op) + " failed"});
    if (op->failed > 0 && op->of && !op->doomed && !op->moved) {
      for (const ir::OutputSpec& output : op->op.outputs) {
        ArrayRecord& array = s.arrays.at(ArrayId{output.array});
        fail_array(array,
                   {Errc::kWorkerLost, "lost blocks of " + describe(array) + " could not be made again"});
      }
    }
    finish_op(s, *op);
  }
}

constexpr std::size_t kMaxFamilies = 4096;  // of one device: kinds of ops, and kernels of plug-ins

void learn(State& s, const Peer& worker, const msg::FamilyStats& stats) {
  Device* device = s.device(stats.device);
  if (device == nullptr || device->peer != worker.info.id || stats.busy_ns < 0 || stats.model_ns < 0) return;
  if (device->families.size() >= kMaxFamilies && !device->families.contains(stats.family)) return;
  msg::FamilyStats& known = device->families[stats.family];
  if (stats.steps < known.steps) return;  // a late report
  known = stats;
  s.speeds.learn(place_device(*device), stats.family, stats.busy_ns, stats.model_ns);
}

void learn_link(State& s, const Peer& worker, const msg::LinkStats& stats) {
  const Peer* known = s.find_worker(stats.from);
  if (known == nullptr || !known->alive) return;
  const msg::PeerInfo& from = known->info;
  if (from.devices.empty() || worker.info.devices.empty()) return;
  using Way = place::Speeds::Way;
  const bool one_host = s.device(from.devices[0])->host == s.device(worker.info.devices[0])->host;
  s.speeds.learn_link(stats.from, worker.info.id, one_host ? Way::kSameHost : Way::kOtherHost,
                      stats.size_class, stats.transfers, stats.bytes, stats.busy_ns);
}

constexpr std::size_t kMaxPairs = 65'536;

void learn_pair(State& s, const Peer& worker, const msg::PairStats& stats) {
  const Device *from = s.device(stats.from), *to = s.device(stats.to);
  if (from == nullptr || to == nullptr || to->peer != worker.info.id || !from->alive) return;
  const std::tuple key(stats.from, stats.to, stats.lane);
  if (s.pairs.size() >= kMaxPairs && !s.pairs.contains(key)) return;
  msg::PairStats& known = s.pairs[key];
  if (stats.transfers < known.transfers || stats.bytes < known.bytes) return;  // a late report
  msg::PairStats more = stats;
  more.transfers -= known.transfers, more.bytes -= known.bytes;
  more.busy_ns = std::max<std::int64_t>(0, more.busy_ns - known.busy_ns);
  known = stats;
  remember_link(s, more);
}

}  // namespace

void on_progress(State& s, Peer& worker, const msg::Progress& progress) {
  if (progress.log_applied >= worker.log_next) {
    refuse(s, worker.conn, Errc::kInvalidArgument,
           "log entry " + std::to_string(progress.log_applied) + " was never sent");
    return;
  }
  // What devices and links did belongs to graphs that this very report may end.
  for (const msg::DeviceStats& stats : progress.devices) {
    Device* device = s.device(stats.device);
    if (device == nullptr || device->peer != worker.info.id) continue;
    const msg::DeviceStats before = device->stats;
    device->stats = stats;
    device->stats.bytes_peak = std::max(before.bytes_peak, stats.bytes_peak);
    device->stats.steps_run = std::max(before.steps_run, stats.steps_run);
    device->stats.busy_ns = std::max(before.busy_ns, stats.busy_ns);
    device->stats.disk_written = std::max(before.disk_written, stats.disk_written);
    device->stats.disk_read = std::max(before.disk_read, stats.disk_read);
    device->stats.pinned_written = std::max(before.pinned_written, stats.pinned_written);
    device->stats.pinned_read = std::max(before.pinned_read, stats.pinned_read);
    device->stats.lodged_written = std::max(before.lodged_written, stats.lodged_written);
    device->stats.lodged_read = std::max(before.lodged_read, stats.lodged_read);
    device->stats.relocated = std::max(before.relocated, stats.relocated);
    device->stats.blocks_written = std::max(before.blocks_written, stats.blocks_written);
    device->stats.blocks_read_back = std::max(before.blocks_read_back, stats.blocks_read_back);
    remember_peak(s, stats, before);
  }
  for (const msg::PairStats& stats : progress.pairs) learn_pair(s, worker, stats);
  for (const msg::OpMeasured& report : progress.measured) merge_measured(s, worker, report);
  for (const msg::OpProgress& report : progress.ops) merge_op(s, worker, report);
  for (const msg::FamilyStats& stats : progress.families) learn(s, worker, stats);
  for (const msg::LinkStats& stats : progress.links) learn_link(s, worker, stats);
  for (const msg::LaneStats& stats : progress.lanes) {
    const auto lane = static_cast<std::size_t>(stats.lane);
    if (lane >= worker.lanes.size()) continue;
    worker.lanes[lane].transfers = std::max(worker.lanes[lane].transfers, stats.transfers);
    worker.lanes[lane].bytes = std::max(worker.lanes[lane].bytes, stats.bytes);
    worker.lanes[lane].failed = std::max(worker.lanes[lane].failed, stats.failed);
  }
  if (progress.log_applied > worker.log_applied) {
    worker.log_applied = progress.log_applied;
    acknowledge_cancels(s, worker.info.id, progress.log_applied);
  }
}

void on_task_failed(State& s, Peer& worker, const msg::TaskFailed& failure) {
  const OpRecord* op = s.ops.find(failure.op);
  const Device* device = s.device(failure.device);
  if (op == nullptr || op->finished || (device != nullptr && device->peer != worker.info.id)) return;
  GraphRecord& graph = s.graphs.at(op->graph);
  if (graph.own) own_op_failed(s, *op, failure.why.message.substr(0, 4 * limits::kMaxNameBytes));
  if (!graph.running && !graph.own && !op->of && op->op.kind != ir::OpKind::kKeep) return;
  if (op->of && is_from_file(*op)) {
    for (const ir::OutputSpec& output : op->op.outputs)
      fail_array(s.arrays.at(ArrayId{output.array}),
                 {Errc::kWorkerLost, failure.why.message.substr(0, 4 * limits::kMaxNameBytes)});
  } else if (op->of && !op->moved && failure.why.code == Errc::kOutOfMemory) {
    for (const ir::OutputSpec& output : op->op.outputs) {
      ArrayRecord& array = s.arrays.at(ArrayId{output.array});
      fail_array(array,
                 {Errc::kOutOfMemory, "lost blocks of " + describe(array) + " could not be made again: " +
                                          failure.why.message.substr(0, 4 * limits::kMaxNameBytes)});
    }
  }
  const std::string where =
      device == nullptr ? "w" + std::to_string(worker.info.id.value) : name_of(s, *device);
  msg::Outcome why{
      failure.why.ok() ? Errc::kTaskFailed : failure.why.code,
      (op->doomed ? std::string()  // its story names it
                  : describe(s, *op) + ", point " + std::to_string(failure.point) + ", on " + where + ": ") +
          failure.why.message.substr(0, 4 * limits::kMaxNameBytes)};
  // After a loss it is not known what had become of the file, and this one could not find out either.
  if (why.code == Errc::kNotFound && is_of_save(*op) && has_layers(s, graph)) why.code = Errc::kWorkerLost;
  if (why.code == Errc::kInternal) {
    // The worker could not even take the op, so it will never count it: the graph would wait for ever.
    cancel_graph(s, graph.id, why);
    return;
  }
  add_root_cause(graph, std::move(why));
}

void on_stuck(State& s, Peer& worker, const msg::Stuck& stuck) {
  const Device* device = s.device(stuck.device);
  const OpRecord* op = s.ops.find(stuck.op);
  if (device == nullptr || device->peer != worker.info.id || op == nullptr || op->finished ||
      op->graph != stuck.graph) {
    return;
  }
  s.stuck[stuck.device] = stuck;
}

void end_stuck_graph(State& s) {
  std::erase_if(s.stuck, [&](const auto& entry) {
    const OpRecord* op = s.ops.find(entry.second.op);
    return op == nullptr || op->finished;
  });
  // What is pinned for a recovery goes soon.
  if (s.stuck.empty() || s.now < s.stuck_at || s.recovery.pending) return;
  // The lowest in the total order of tasks: everything before it is done, so nothing else can make room for it.
  const msg::Stuck* lowest = nullptr;
  const auto before = [&](GraphId a, GraphId b) {
    const std::int32_t pa = s.graphs.at(a).priority, pb = s.graphs.at(b).priority;
    return pa != pb ? pa > pb : a < b;
  };
  for (const auto& [device, report] : s.stuck) {
    if (lowest == nullptr || before(report.graph, lowest->graph)) lowest = &report;
  }
  const Device& device = *s.device(lowest->device);
  std::string below;
  if (lowest->pinned_limit > 0)
    below = ", " + std::to_string(lowest->pinned_used) + " of " + std::to_string(lowest->pinned_limit) +
            " bytes of its worker's pinned memory are used";
  if (lowest->disk_limit > 0)
    below += ", " + std::to_string(lowest->disk_used) + " of " + std::to_string(lowest->disk_limit) +
             " bytes on its worker's disk are used" +
             (lowest->disk_full ? " and no more can be written there" : "");
  if (!lowest->refused.ok()) below += "; the system refused more: " + lowest->refused.message;
  const Errc short_of =
      lowest->refused.code == Errc::kLimitExceeded ? Errc::kLimitExceeded : Errc::kOutOfMemory;
  const msg::Outcome why{lowest->disk_full ? Errc::kDiskFull : short_of,
                         describe(s, s.ops.at(lowest->op)) + " needs " +
                             std::to_string(lowest->bytes_needed) + " bytes on " + name_of(s, device) +
                             ", where " + std::to_string(lowest->bytes_available) + " of " +
                             std::to_string(device.memory_bytes) + " bytes can be had" + below};
  const GraphId graph = lowest->graph;
  for (const auto& [id, report] : s.stuck) {
    std::vector<msg::NeedAccount>& needs = s.graphs.at(graph).needs;
    if (report.graph != graph || needs.size() == msg::kMaxNeeds) continue;
    msg::NeedAccount& need = needs.emplace_back();
    need.devices = {id};
    need.needed_bytes = report.bytes_needed;
    need.memory_bytes = s.device(id)->memory_bytes;
    need.below_bytes = report.disk_limit + report.pinned_limit;
    need.op = describe(s, s.ops.at(report.op));
  }
  cancel_graph(s, graph, why);
  std::erase_if(s.stuck, [&](const auto& entry) { return entry.second.graph == graph; });
  s.stuck_at = s.now + s.options.stuck_again_ns;
}

void tell_progress(State& s) {
  std::erase_if(s.dirty, [&](GraphId id) {
    GraphRecord* graph = s.graphs.find(id);
    if (graph == nullptr || !graph->running) return true;
    if (s.now - graph->told_at < s.options.progress_every_ns) return false;
    graph->dirty = false;
    graph->told_at = s.now;
    graph->told = graph->done;
    for_each_asker(*graph, [&](SessionId session, std::uint64_t request) {
      send(s, s.peer(s.session(session).peer).conn, msg::GraphProgress{request, graph->done, graph->total});
    });
    return true;
  });
}

}  // namespace tilewise::scheduler
