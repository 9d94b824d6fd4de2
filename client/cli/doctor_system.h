// What doctor reads of the system's own files: pure, so that tests can give it files of their own.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::cli {

struct Finding {
  enum class Verdict : char { kOk, kWarn } verdict = Verdict::kOk;
  const char* what = "";
  std::string text;
};

// `proc` and `sys` are those folders, here or in a test's.
std::vector<Finding> look_at_namespaces(const std::string& proc);
// What a network card needs to reach a GPU's memory by itself (GPUDirect RDMA): nvidia_peermem, or dmabuf with NVIDIA's open modules.
Finding look_at_gpudirect(const std::string& proc, const std::string& sys);

// What workers' defaults of --memory and --cores go by; `root` stands before /proc and /sys.
Finding look_at_memory(const std::string& root);
Finding look_at_cores(const std::string& root);

// `text` is what `ucx_info -b` prints; nothing if it does not say.
std::optional<bool> has_assertions(std::string_view text);
// The library's file among this process's mappings, `maps` being /proc/self/maps; empty: it is not loaded.
std::string loaded_library(const std::string& maps, std::string_view name);
// The tool that was installed with the library in that file, or empty.
std::string ucx_info_beside(const std::string& library);

}  // namespace tilewise::cli
