#include "warnings.h"

#include <tilewise/base/text.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace tilewise::dashboard {
namespace {

using scheduler::Overview;

constexpr TimeNs kRecent = 300 * kSecond;
constexpr double kFull = 0.9;               // of a device's memory
constexpr double kBusy = 0.5, kIdle = 0.1;  // shares of the time between two looks
constexpr std::array<std::string_view, 16> kCodes = {
    "no-workers",     "worker-lost",       "stuck",           "memory-full",   "spilling", "graph-failed",
    "imbalance",      "staged-lane",       "tcp-on-one-host", "no-progress",   "retries",  "drain-waits",
    "copies-lacking", "checkpoint-failed", "lineage-long",    "worker-stopped"};

struct DeviceInfo {
  std::string name;
  std::int64_t memory = 0;
  std::string host;
};
using Devices = std::map<DeviceId, DeviceInfo>;

Devices devices_of(const Overview& o) {
  Devices out;
  for (const msg::PeerInfo& peer : o.status.peers) {
    for (std::size_t i = 0; i < peer.devices.size() && i < peer.descriptions.size(); ++i) {
      if (peer.role == msg::Role::kWorker)
        out[peer.devices[i]] = {peer.descriptions[i].name, peer.descriptions[i].memory_bytes, peer.host_id};
    }
  }
  return out;
}

std::string seconds_ago(TimeNs now, TimeNs then) { return std::to_string((now - then) / kSecond) + " s ago"; }

std::string names(const std::vector<std::string>& all) {
  std::string out;
  for (std::size_t i = 0; i < all.size() && i < 4; ++i) out += (i > 0 ? ", " : "") + all[i];
  if (all.size() > 4) out += " and " + std::to_string(all.size() - 4) + " more";
  return out;
}

// Of those that are not back under their name; who was stopped and had nothing is no news.
void about_lost_workers(const Overview& now, std::vector<Warning>& out) {
  std::vector<std::string> lost, back, stopped;
  TimeNs last_lost = 0, last_back = 0;
  std::int64_t bytes = 0;
  for (const scheduler::LostPeer& gone : now.lost) {
    if (gone.role != msg::Role::kWorker || gone.drained || now.now - gone.at > kRecent) continue;
    const std::string name = "w" + std::to_string(gone.id.value) + " (" + gone.name + ")";
    const bool is_back = std::ranges::any_of(now.status.peers, [&](const msg::PeerInfo& peer) {
      return peer.role == msg::Role::kWorker && peer.name == gone.name && peer.id.value > gone.id.value;
    });
    if (gone.stopped) {
      if (gone.bytes > 0) stopped.push_back(name), bytes += gone.bytes;
    } else {
      (is_back ? back : lost).push_back(name);
      TimeNs& last = is_back ? last_back : last_lost;
      last = std::max(last, gone.at);
    }
  }
  const auto lost_text = [&](const std::vector<std::string>& all, TimeNs last) {
    return (all.size() == 1
                ? "Worker " + all[0] + " was lost "
                : std::to_string(all.size()) + " workers were lost, " + names(all) + ", the last ") +
           seconds_ago(now.now, last) + ", with every block that only " +
           (all.size() == 1 ? "it held" : "they held");
  };
  const std::string made_again =
      " What was held there is made again where that can be done; Errors names the graphs "
      "for which it could not.";
  if (!lost.empty()) {
    out.push_back(
        {true, "worker-lost", lost_text(lost, last_lost) + ".",
         "Look at its log and at the kernel's (out of memory?), then start it again." + made_again});
  }
  if (!back.empty()) {
    out.push_back({false, "worker-lost", lost_text(back, last_back) + ", and has come back.",
                   "Look at its log and at the kernel's (out of memory?)." + made_again});
  }
  if (!stopped.empty()) {
    out.push_back(
        {false, "worker-stopped",
         names(stopped) + (stopped.size() == 1 ? " was" : " were") + " stopped with " + bytes_text(bytes) +
             " of blocks.",
         "tilewise drain has a worker hand on what is needed of its blocks before it goes." + made_again});
  }
}

void about_workers(const Overview& now, const Devices& devices, std::vector<Warning>& out) {
  if (devices.empty()) {
    out.push_back({true, "no-workers", "No worker has joined: nothing can run.",
                   "Start tilewise-worker with this scheduler's address and token; its log says why if it "
                   "cannot join."});
  }
  about_lost_workers(now, out);
}

void about_memory(const Overview& now, const Devices& devices, std::vector<Warning>& out) {
  for (const msg::Stuck& stuck : now.stuck) {
    const auto device = devices.find(stuck.device);
    out.push_back({true, "stuck",
                   "A task on " + (device == devices.end() ? "a device" : device->second.name) + " needs " +
                       bytes_text(stuck.bytes_needed) + " and only " + bytes_text(stuck.bytes_available) +
                       " can be had; nothing there moves.",
                   "The first graph in line will be ended. Use smaller blocks, release arrays that are not "
                   "needed, or give "
                   "workers more --memory."});
  }
  std::vector<std::string> full, spilling;
  std::int64_t on_disk = 0, pinned = 0, lodged = 0;
  for (const msg::DeviceStats& stats : now.status.devices) {
    const auto device = devices.find(stats.device);
    if (device == devices.end() || device->second.memory <= 0) continue;
    if (stats.spilled_bytes + stats.pinned_bytes + stats.lodged_bytes > 0) {
      on_disk += stats.spilled_bytes;
      pinned += stats.pinned_bytes;
      lodged += stats.lodged_bytes;
      spilling.push_back(device->second.name);
    } else if (static_cast<double>(stats.bytes_used) > kFull * static_cast<double>(device->second.memory)) {
      full.push_back(device->second.name);
    }
  }
  if (!spilling.empty()) {
    std::string where;
    const auto add = [&](std::int64_t bytes, const char* place) {
      if (bytes > 0) where += (where.empty() ? "" : ", ") + bytes_text(bytes) + " " + place;
    };
    add(on_disk, "on disk");
    add(pinned, "in pinned host memory");
    add(lodged, "in the memory of neighbouring devices");
    out.push_back(
        {false, "spilling", "Memory has no room for all blocks of " + names(spilling) + ": " + where + ".",
         "What is read from there comes at the speed of the disk or of the link. Release arrays (see "
         "Arrays), give workers more "
         "--memory, or add workers."});
  }
  if (!full.empty()) {
    out.push_back(
        {false, "memory-full", "More than 90 % of the memory of " + names(full) + " is in use.",
         "What does not fit goes to disk where workers have a --spill-dir, from GPUs also to pinned memory "
         "where they have a --pinned-limit, else it fails. Release "
         "arrays (see "
         "Arrays), or add workers."});
  }
}

void about_graphs(const Overview& now, std::vector<Warning>& out) {
  int failed = 0;
  const scheduler::GraphSummary* last = nullptr;
  for (const scheduler::GraphSummary& graph : now.graphs) {
    const bool ended_badly = !graph.running && !graph.cause.ok() && graph.cause.code != Errc::kCancelled;
    if (!ended_badly || now.now - graph.ended > kRecent) continue;
    ++failed;
    if (last == nullptr || graph.ended > last->ended) last = &graph;
  }
  if (failed == 0) return;
  out.push_back(
      {false, "graph-failed",
       std::to_string(failed) + (failed == 1 ? " graph" : " graphs") +
           " failed in the last five minutes; the latest because of: " + last->cause.message.substr(0, 300),
       "Errors has each root cause and what depended on it."});
}

std::map<DeviceId, double> busy_shares(const Overview& now, const Overview& before) {
  std::map<DeviceId, double> out, earlier;
  const double seconds = static_cast<double>(now.now - before.now) * 1e-9;
  if (seconds < 0.2) return out;
  for (const msg::DeviceStats& d : before.status.devices) earlier[d.device] = static_cast<double>(d.busy_ns);
  for (const msg::DeviceStats& d : now.status.devices) {
    if (const auto it = earlier.find(d.device); it != earlier.end())
      out[d.device] = (static_cast<double>(d.busy_ns) - it->second) * 1e-9 / seconds;
  }
  return out;
}

void about_balance(const Overview& now, const Overview* before, const Devices& devices,
                   std::vector<Warning>& out) {
  if (before == nullptr || now.running == 0 || before->running == 0) return;
  std::vector<std::string> busy, idle;
  const std::map<DeviceId, double> shares = busy_shares(now, *before);
  for (const auto& [id, share] : shares) {
    const auto device = devices.find(id);
    if (device == devices.end()) continue;
    if (share > kBusy) busy.push_back(device->second.name);
    if (share < kIdle) idle.push_back(device->second.name);
  }
  if (!busy.empty() && !idle.empty()) {
    out.push_back({false, "imbalance", names(idle) + " hardly worked while " + names(busy) + " did.",
                   "Arrays may have fewer blocks than there are devices, or be placed by hand: see Explain "
                   "for why each "
                   "op is where it is. Smaller blocks spread more evenly."});
  }
  // Nothing was done by anybody for as long as we look.
  if (now.now - before->now >= 5 * kSecond && now.status.tasks_done == before->status.tasks_done &&
      busy.empty() && shares.size() == idle.size() && !shares.empty()) {
    out.push_back({false, "no-progress",
                   "Graphs are running, but for " + std::to_string((now.now - before->now) / kSecond) +
                       " s no task was completed and no device worked.",
                   "A client may be slow to take its results, or to provide its data. See Clients."});
  }
}

void about_lanes(const Overview& now, const Devices& devices, std::vector<Warning>& out) {
  std::int64_t staged = 0, tcp = 0;
  for (const auto& [worker, lane] : now.status.lanes) {
    if (lane.lane == msg::Lane::kStaged) staged += lane.bytes;
    if (lane.lane == msg::Lane::kTcp) tcp += lane.bytes;
  }
  if (staged > 0) {
    out.push_back(
        {false, "staged-lane",
         bytes_text(staged) +
             " went from device to device by way of host memory, which is several times slower.",
         "Use a UCX that was built with CUDA (tilewise doctor says what this one can), or start workers with "
         "strict lanes to make it an error."});
  }
  std::set<std::string> hosts;
  for (const auto& [id, device] : devices) hosts.insert(device.host);
  if (tcp > 0 && hosts.size() == 1 && !devices.empty()) {
    out.push_back(
        {false, "tcp-on-one-host",
         bytes_text(tcp) + " went over TCP between processes of one host, where memory could be shared.",
         "Check that workers see each other's /dev/shm and process ids (containers: share both); tilewise "
         "doctor "
         "tests it."});
  }
}

void about_retries(const Overview& now, const Overview* before, std::vector<Warning>& out) {
  const auto failed = [](const Overview& o) {
    std::int64_t sum = 0;
    for (const auto& [worker, lane] : o.status.lanes) sum += lane.failed;
    return sum;
  };
  const std::int64_t lately = before == nullptr ? failed(now) : failed(now) - failed(*before);
  if (lately > 0)
    out.push_back(
        {false, "retries",
         std::to_string(lately) + (lately == 1 ? " transfer" : " transfers") +
             " between workers failed and had to be tried again" +
             (before == nullptr ? "." : " in the last seconds."),
         "A few while a worker leaves are usual. If they go on: look at the workers' logs, and at the "
         "network between them."});
}

void about_drains(const Overview& now, std::vector<Warning>& out) {
  for (const msg::DrainReply& drain : now.draining) {
    if (drain.why.empty()) continue;
    out.push_back(
        {false, "drain-waits",
         "Worker w" + std::to_string(drain.worker.value) + " (" + drain.name +
             ") is to leave but cannot: " + drain.why + ". It works on what it has.",
         "Add a worker, or release arrays: it is tried again every two seconds. Or let it stay (Devices)."});
  }
}

void about_copies(const Overview& now, std::vector<Warning>& out) {
  if (now.lacking == 0) return;
  out.push_back(
      {false, "copies-lacking",
       std::to_string(now.lacking) + (now.lacking == 1 ? " array is" : " arrays are") +
           " on fewer workers than was asked for.",
       "Add a worker, on another host, or memory: copies are made as soon as somebody can take them."});
}

void about_checkpoints(const Overview& now, std::vector<Warning>& out) {
  if (now.checkpoint_trouble.empty()) return;
  out.push_back(
      {false, "checkpoint-failed", "Arrays cannot be written to disk: " + now.checkpoint_trouble + ".",
       "Look at the scheduler's --checkpoint-dir on the worker's host: all workers must see the same folder, "
       "with room in it. It is tried again; until then what they are made from is kept."});
}

// It has an end where held arrays get a second copy: with one worker and nowhere to write they do not.
void about_lineage(const Overview& now, std::vector<Warning>& out) {
  if (now.lineage_limit == 0 || now.lineage <= now.lineage_limit / 2) return;
  out.push_back(
      {false, "lineage-long",
       std::to_string(now.lineage) + " ops that are over are kept to make lost blocks again, of " +
           std::to_string(now.lineage_limit) + " that may be.",
       "Add a worker, or give the scheduler a --checkpoint-dir: arrays that would take long to make "
       "again get a second copy then, and what they were made from is forgotten. Beyond the limit "
       "(--max-lineage) the oldest ops go, and what was made from them is lost with its last copy."});
}

}  // namespace

std::vector<std::string_view> warning_codes() { return {kCodes.begin(), kCodes.end()}; }

std::vector<Warning> warnings(const Overview& now, const Overview* before) {
  std::vector<Warning> out;
  const Devices devices = devices_of(now);
  about_workers(now, devices, out);
  about_memory(now, devices, out);
  about_graphs(now, out);
  about_balance(now, before, devices, out);
  about_lanes(now, devices, out);
  about_retries(now, before, out);
  about_drains(now, out);
  about_copies(now, out);
  about_checkpoints(now, out);
  about_lineage(now, out);
  std::stable_sort(out.begin(), out.end(),
                   [](const Warning& a, const Warning& b) { return a.serious > b.serious; });
  return out;
}

}  // namespace tilewise::dashboard
