#include "doctor_system.h"

#include <tilewise/base/text.h>
#include <tilewise/config/allowance.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace tilewise::cli {
namespace {

namespace fs = std::filesystem;
using Verdict = Finding::Verdict;

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool has_entries(const std::string& folder) {
  std::error_code ignored;
  fs::directory_iterator entries(folder, ignored);
  return !ignored && entries != fs::directory_iterator();
}

// The inodes of the first namespaces are fixed by the kernel (include/linux/proc_ns.h).
Finding look_at_namespace(const std::string& proc, const char* kind, const char* first,
                          const std::string& consequence) {
  std::error_code failed;
  const std::string name = fs::read_symlink(proc + "/self/ns/" + kind, failed).string();
  if (failed) return {Verdict::kWarn, kind, "its namespace cannot be told: " + failed.message()};
  if (name == std::string(kind) + ":[" + first + "]")
    return {Verdict::kOk, kind, "the host's " + std::string(kind) + " namespace"};
  return {Verdict::kWarn, kind, "own namespace " + name + ": " + consequence};
}

// "5.12.3-generic" -> 5, 12
bool kernel_has_dmabuf(const std::string& release) {
  int major = 0, minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return major > 5 || (major == 5 && minor >= 12);
}

}  // namespace

std::vector<Finding> look_at_namespaces(const std::string& proc) {
  return {look_at_namespace(
              proc, "pid", "4026531836",
              "workers in different ones cannot share GPU memory, and not all can read each other's "
              "memory in place; docker: --pid=host, or --pid=container:NAME for all but one"),
          look_at_namespace(proc, "ipc", "4026531839",
                            "processes in different ones may not open each other's GPU memory; docker: "
                            "--ipc=host, or --ipc=container:NAME")};
}

Finding look_at_gpudirect(const std::string& proc, const std::string& sys) {
  const std::string driver = read_line(proc + "/driver/nvidia/version");
  if (driver.empty()) return {Verdict::kOk, "gpudirect", "no NVIDIA driver is loaded: nothing to do"};
  if (!has_entries(sys + "/class/infiniband"))
    return {Verdict::kOk, "gpudirect", "no RDMA device: blocks of GPUs go between hosts through host memory"};
  std::error_code ignored;
  if (fs::exists(sys + "/module/nvidia_peermem", ignored))
    return {Verdict::kOk, "gpudirect", "nvidia_peermem is loaded: the network card reaches GPU memory"};
  const bool open = driver.find("Open Kernel Module") != std::string::npos;
  const std::string release = read_line(proc + "/sys/kernel/osrelease");
  if (open && kernel_has_dmabuf(release))
    return {Verdict::kOk, "gpudirect",
            "dmabuf: NVIDIA's open kernel modules, Linux " + release + " (UCX 1.14 or later)"};
  return {
      Verdict::kWarn, "gpudirect",
      "the network card cannot reach GPU memory: nvidia_peermem is not loaded (modprobe nvidia_peermem), and "
      "for dmabuf " +
          std::string(open ? "Linux is too old (" + release + ", from 5.12 on)"
                           : "the driver is not of NVIDIA's open kernel modules")};
}

Finding look_at_memory(const std::string& root) {
  const config::MemoryAllowance memory = config::memory_allowance(root);
  const std::string now = bytes_text(memory.now.bytes) + " can be had now, by " + memory.now.by +
                          ", and a worker takes 60 % of it by default";
  if (!memory.limited()) return {Verdict::kOk, "memory", now};
  return {Verdict::kWarn, "memory",
          memory.at_most.by + " limits it to " + bytes_text(memory.at_most.bytes) + ": " + now +
              "; the kernel ends a worker that is given more (--memory), and two of them share by hand"};
}

Finding look_at_cores(const std::string& root) {
  const config::CoreAllowance cores = config::core_allowance(root);
  std::string text = std::to_string(cores.cores) + " by default (--cores), of " +
                     std::to_string(cores.affinity) + " that threads may run on";
  if (cores.quota == 0 || cores.quota >= cores.affinity) return {Verdict::kOk, "cores", text};
  append(text, "; %s has them stand still when they have used %.2f cores' time", cores.quota_by.c_str(),
         cores.quota);
  return {Verdict::kWarn, "cores", text};
}

std::optional<bool> has_assertions(std::string_view text) {
  constexpr std::string_view kName = "#define ENABLE_ASSERT ";
  const std::size_t at = text.find(kName);
  if (at != text.npos) {
    const std::size_t value = text.find_first_not_of(' ', at + kName.size());
    if (value == text.npos) return std::nullopt;
    return text[value] != '0';
  }
  // Switched off it is not defined at all, in a list that has others.
  if (text.find("#define ") != text.npos) return false;
  return std::nullopt;
}

std::string loaded_library(const std::string& maps, std::string_view name) {
  std::ifstream file(maps);
  for (std::string line; std::getline(file, line);) {
    const std::size_t path = line.find('/');
    if (path == line.npos) continue;
    const std::string library = line.substr(path);
    if (fs::path(library).filename().string().starts_with(name)) return library;
  }
  return {};
}

std::string ucx_info_beside(const std::string& library) {
  fs::path folder = fs::path(library).parent_path();
  for (int up = 0; up < 3 && folder.has_parent_path(); ++up) {  // lib, lib64, lib/x86_64-linux-gnu
    folder = folder.parent_path();
    const fs::path tool = folder / "bin" / "ucx_info";
    if (::access(tool.c_str(), X_OK) == 0) return tool.string();
    if (folder == folder.root_path()) break;
  }
  return {};
}

}  // namespace tilewise::cli
