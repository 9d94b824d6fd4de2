#include <tilewise/config/allowance.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace tilewise::config {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (in >> value && value >= 0) return value;  // "max" and -1 are no limits
  return std::nullopt;
}

// The value of a line "key value" or "key: value".
std::optional<std::int64_t> entry_in(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

bool lists(const std::string& items, std::string_view item) {
  std::istringstream all(items);
  for (std::string one; std::getline(all, one, ',');)
    if (one == item) return true;
  return false;
}

// mountinfo writes blanks and backslashes of paths as three octal digits.
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

struct Mount {
  bool unified = false;  // version 2
  fs::path root;         // which group is seen at `point`
  fs::path point;
};

// Where groups of `controller` can be seen: in the hierarchy of version 1 that has it, and in that of version 2, which has it where the other
// has not. A line: "36 35 0:31 ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS".
std::vector<Mount> mounts_of(const std::string& root, std::string_view controller) {
  std::vector<Mount> out;
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string skipped, group, point, type, source, options;
    words >> skipped >> skipped >> skipped >> group >> point;
    while (words >> skipped && skipped != "-") continue;
    words >> type >> source >> options;
    const bool unified = type == "cgroup2";
    if (unified || (type == "cgroup" && lists(options, controller)))
      out.push_back({unified, unescaped(group), unescaped(point)});
  }
  return out;
}

// This process's group in the hierarchy. A line: "4:memory:/a/b"; of version 2: "0::/a/b".
std::optional<fs::path> group_in(const std::string& root, bool unified, std::string_view controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? line.starts_with("0::") : lists(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

struct Folder {
  bool unified = false;
  fs::path path, shown;  // with and without `root`
};

// The folders of this process's groups, each below the next, as far as they are mounted. Without a namespace of its own a container is told
// the host's path of its group, of which it sees the end only (the mount's root is taken off), or something that is not under its mount at
// all: then its group is what is mounted.
std::vector<Folder> groups_of(const std::string& root, std::string_view controller) {
  std::vector<Folder> out;
  for (const Mount& mount : mounts_of(root, controller)) {
    const std::optional<fs::path> group = group_in(root, mount.unified, controller);
    if (!group) continue;
    fs::path below = group->lexically_relative(mount.root);
    if (below.empty() || *below.begin() == "..") below = ".";
    for (;; below = below.parent_path()) {
      const fs::path shown = below.empty() || below == "." ? mount.point : mount.point / below;
      out.push_back({mount.unified, root + shown.string(), shown});
      if (below.empty() || below == ".") break;
    }
  }
  return out;
}

void lower(Allowance& least, std::int64_t bytes, const std::string& by) {
  if (bytes < least.bytes) least = {std::max<std::int64_t>(bytes, 0), by};
}

struct Usage {
  const char *limit, *usage, *reclaimable;
};
constexpr Usage kOld{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Usage kNew[] = {{"memory.max", "memory.current", "inactive_file"},
                          {"memory.high", "memory.current", "inactive_file"}};

void count(const Folder& group, const Usage& names, MemoryAllowance& out) {
  const std::optional<std::int64_t> limit = number_in(group.path / names.limit);
  if (!limit) return;
  const std::string by = (group.shown / names.limit).string();
  const std::int64_t usage = number_in(group.path / names.usage).value_or(0);
  const std::int64_t cache = entry_in(group.path / "memory.stat", names.reclaimable).value_or(0);
  lower(out.now, *limit - std::max<std::int64_t>(usage - cache, 0), by);
  lower(out.at_most, *limit, by);
}

// In cores; none: no quota.
std::optional<double> quota_of(const Folder& group) {
  if (group.unified) {
    std::ifstream in(group.path / "cpu.max");  // "50000 100000", "max 100000"
    double quota = 0, period = 0;
    if (in >> quota >> period && quota > 0 && period > 0) return quota / period;
    return std::nullopt;
  }
  const std::optional<std::int64_t> quota = number_in(group.path / "cpu.cfs_quota_us");
  const std::optional<std::int64_t> period = number_in(group.path / "cpu.cfs_period_us");
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

MemoryAllowance memory_allowance(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::optional<std::int64_t> total = entry_in(meminfo, "MemTotal:");
  std::optional<std::int64_t> available = entry_in(meminfo, "MemAvailable:");
  if (!available) available = entry_in(meminfo, "MemFree:");
  MemoryAllowance out;
  out.now = {available ? *available * 1024 : sysconf(_SC_AVPHYS_PAGES) * page, MemoryAllowance::kHost};
  out.at_most = {total ? *total * 1024 : sysconf(_SC_PHYS_PAGES) * page, MemoryAllowance::kHost};
  for (const Folder& group : groups_of(root, "memory")) {
    if (!group.unified) count(group, kOld, out);
    for (const Usage& names : kNew)
      if (group.unified) count(group, names, out);
  }
  return out;
}

CoreAllowance core_allowance(const std::string& root) {
  CoreAllowance out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) out.affinity = std::max(1, CPU_COUNT(&set));
  out.cores = out.affinity;
  for (const Folder& group : groups_of(root, "cpu")) {
    const std::optional<double> quota = quota_of(group);
    if (!quota || (out.quota > 0 && *quota >= out.quota)) continue;
    out.quota = *quota;
    out.quota_by = (group.shown / (group.unified ? "cpu.max" : "cpu.cfs_quota_us")).string();
  }
  if (out.quota > 0 && out.quota < out.affinity)
    out.cores = std::max(1, static_cast<int>(std::ceil(out.quota)));
  return out;
}

}  // namespace tilewise::config
