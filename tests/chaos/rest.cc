#include "rest.h"

#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "../sanitizers.h"

namespace tilewise::testing {
namespace {

// A worker or a scheduler at rest has a fifth of it, and half as many open files, however many peers came and went.
constexpr std::int64_t kMostAnonymousKb = (160 << 10) + (kOfSanitizers >> 10);
constexpr std::ptrdiff_t kMostOpenFiles = 128;

// Slabs are memfds: their owner maps them writable, others to read. (inode, writable) of a process's.
std::set<std::pair<std::string, bool>> slabs_of(int pid) {
  std::set<std::pair<std::string, bool>> found;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tilewise ") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode;
    fields >> range >> rights >> offset >> device >> inode;
    found.emplace(inode, rights.find('w') != std::string::npos);
  }
  return found;
}

// Whoever was started with this cluster's token, as its command line or environment says, and is there still.
std::vector<int> processes_of(const Cluster& cluster) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(getpid())) continue;
    const std::string words = read_file(entry.path() / "cmdline") + read_file(entry.path() / "environ");
    if (words.find(cluster.token_file()) != std::string::npos) found.push_back(std::stoi(pid));
  }
  return found;
}

bool slabs_are_whole(const Cluster& cluster) {
  std::set<std::string> owned, read;
  const auto add = [&](int pid) {
    for (const auto& [inode, writable] : slabs_of(pid)) (writable ? owned : read).insert(inode);
  };
  add(getpid());
  for (const int pid : processes_of(cluster)) add(pid);
  return std::includes(owned.begin(), owned.end(), read.begin(), read.end());
}

std::int64_t anonymous_kb(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0) return std::stoll(line.substr(8));
  }
  return 0;
}

std::vector<std::int64_t> numbers_in(const std::string& json, const std::string& key) {
  std::vector<std::int64_t> found;
  const std::string name = "\"" + key + "\":";
  for (auto at = json.find(name); at != std::string::npos; at = json.find(name, at + 1))
    found.push_back(std::stoll(json.substr(at + name.size())));
  return found;
}

}  // namespace

void check_rest(Cluster& cluster, const std::vector<int>& members, Counts& counts) {
  const auto expect = [&](bool ok, const std::string& what) {
    if (ok) return;
    ++counts.failed;
    say("LEFT: " + what);
  };
  const auto zero = [&](const std::string& command, const std::string& key) {
    return eventually([&] {
      const auto found = numbers_in(cluster.tool({command, "--json"}).output, key);
      return !found.empty() && std::all_of(found.begin(), found.end(), [](auto n) { return n == 0; });
    });
  };
  expect(zero("status", "arrays_live"), "arrays: " + cluster.status());
  expect(zero("devices", "used_bytes"), "bytes: " + cluster.tool({"devices", "--json"}).output);
  expect(zero("devices", "spilled_bytes"), "bytes on disk: " + cluster.tool({"devices", "--json"}).output);
  expect(eventually([&] { return slabs_are_whole(cluster); }), "mapped slabs of the dead");
  for (const int pid : processes_of(cluster)) {
    const std::int64_t kb = anonymous_kb(pid);
    expect(kb <= kMostAnonymousKb, std::to_string(kb >> 10) + " MiB of process " + std::to_string(pid));
    const auto open =
        std::distance(std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"), {});
    expect(open <= kMostOpenFiles, std::to_string(open) + " open files of process " + std::to_string(pid));
  }
  const Ran shut = cluster.tool({"shutdown"});
  expect(shut.code == 0, "a cluster that does not shut down: " + shut.errors);
  for (const int i : members)
    expect(cluster.worker(i).wait().has_value(), "worker process " + std::to_string(i));
  expect(cluster.scheduler().wait().has_value(), "the scheduler's process");
  expect(eventually([&] { return processes_of(cluster).empty(); }), "processes");
  for (const int pid : processes_of(cluster)) say("LEFT: process " + std::to_string(pid));
}

}  // namespace tilewise::testing
