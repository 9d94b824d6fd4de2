#include "doctor_system.h"

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "temp_folder.h"

namespace tilewise::cli {
namespace {

using Verdict = Finding::Verdict;
namespace fs = std::filesystem;

struct System {
  testing::TempFolder folder;
  std::string proc = folder.path() + "/proc", sys = folder.path() + "/sys";
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  void link(const std::string& path, const std::string& to) const {
    fs::create_directories(fs::path(path).parent_path());
    fs::create_symlink(to, path);
  }
};

bool says(const Finding& finding, std::string_view text) {
  return finding.text.find(text) != std::string::npos;
}

TEST_CASE("the host's namespaces are told from those of containers") {
  System s;
  s.link(s.proc + "/self/ns/pid", "pid:[4026531836]");
  s.link(s.proc + "/self/ns/ipc", "ipc:[4026532711]");
  const std::vector<Finding> found = look_at_namespaces(s.proc);
  REQUIRE(found.size() == 2);
  CHECK(found[0].verdict == Verdict::kOk);
  CHECK(found[1].verdict == Verdict::kWarn);
  CHECK(says(found[1], "ipc:[4026532711]"));
  CHECK(says(found[1], "--ipc=host"));
  const System none;
  CHECK(look_at_namespaces(none.proc)[0].verdict == Verdict::kWarn);
}

TEST_CASE("a PID namespace of its own and the host's IPC namespace") {
  System s;
  s.link(s.proc + "/self/ns/pid", "pid:[4026533000]");
  s.link(s.proc + "/self/ns/ipc", "ipc:[4026531839]");
  const std::vector<Finding> found = look_at_namespaces(s.proc);
  CHECK(found[0].verdict == Verdict::kWarn);
  CHECK(says(found[0], "GPU memory"));
  CHECK(found[1].verdict == Verdict::kOk);
}

TEST_CASE("what GPUDirect needs: a driver, a card, and one of two ways between them") {
  System s;
  CHECK(says(look_at_gpudirect(s.proc, s.sys), "no NVIDIA driver"));
  s.write(s.proc + "/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54\n");
  CHECK(says(look_at_gpudirect(s.proc, s.sys), "no RDMA device"));
  fs::create_directories(s.sys + "/class/infiniband/mlx5_0");
  Finding found = look_at_gpudirect(s.proc, s.sys);
  CHECK(found.verdict == Verdict::kWarn);
  CHECK(says(found, "modprobe nvidia_peermem"));
  CHECK(says(found, "open kernel modules"));

  s.write(s.proc + "/driver/nvidia/version",
          "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1\n");
  s.write(s.proc + "/sys/kernel/osrelease", "5.4.0-200-generic\n");
  found = look_at_gpudirect(s.proc, s.sys);
  CHECK(found.verdict == Verdict::kWarn);
  CHECK(says(found, "too old (5.4.0-200-generic"));
  s.write(s.proc + "/sys/kernel/osrelease", "6.8.0-31-generic\n");
  found = look_at_gpudirect(s.proc, s.sys);
  CHECK(found.verdict == Verdict::kOk);
  CHECK(says(found, "dmabuf"));

  s.write(s.proc + "/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54\n");
  fs::create_directories(s.sys + "/module/nvidia_peermem");
  found = look_at_gpudirect(s.proc, s.sys);
  CHECK(found.verdict == Verdict::kOk);
  CHECK(says(found, "nvidia_peermem"));
}

TEST_CASE("which limit of memory and of cores counts") {
  System s;
  const std::string root = s.folder.path();
  s.write(s.proc + "/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
  Finding found = look_at_memory(root);
  CHECK(found.verdict == Verdict::kOk);
  CHECK(says(found, "4.0 GiB can be had now, by the host"));
  CHECK(look_at_cores(root).verdict == Verdict::kOk);
  s.write(s.proc + "/self/cgroup", "0::/job\n");
  s.write(s.proc + "/self/mountinfo", "31 22 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  s.write(s.sys + "/fs/cgroup/job/memory.max", std::to_string(1 << 30));
  s.write(s.sys + "/fs/cgroup/job/memory.current", std::to_string(1 << 29));
  s.write(s.sys + "/fs/cgroup/job/cpu.max", "50000 100000\n");
  found = look_at_memory(root);
  CHECK(found.verdict == Verdict::kWarn);
  CHECK(says(found, "/sys/fs/cgroup/job/memory.max limits it to 1.0 GiB"));
  CHECK(says(found, "512.0 MiB can be had now"));
  found = look_at_cores(root);
  CHECK(found.verdict == Verdict::kWarn);
  CHECK(says(found, "1 by default"));
  CHECK(says(found, "cpu.max has them stand still when they have used 0.50 cores' time"));
}

TEST_CASE("a UCX with assertions says so in its list of settings") {
  CHECK(has_assertions("#define ENABLE_ASSERT             1\n#define ENABLE_MT 1\n") == true);
  CHECK(has_assertions("#define ENABLE_ASSERT             0\n") == false);
  CHECK(has_assertions("#define ENABLE_MT 1\n") == false);
  CHECK(has_assertions("") == std::nullopt);
  CHECK(has_assertions("ucx_info: not found") == std::nullopt);
}

TEST_CASE("the library that is loaded, and the tool beside it") {
  System s;
  const std::string lib = s.folder.path() + "/opt/libucx/lib/libucp.so.0.0.0";
  const std::string tool = s.folder.path() + "/opt/libucx/bin/ucx_info";
  s.write(s.proc + "/maps",
          "7f00-7f01 r-xp 0000 00:00 0 \n7f01-7f02 r-xp 00 08:01 12   /lib/libc.so.6\n7f02-7f03 r-xp 00 "
          "08:01 13   " +
              lib + "\n");
  CHECK(loaded_library(s.proc + "/maps", "libucp") == lib);
  CHECK(loaded_library(s.proc + "/maps", "libucs").empty());
  CHECK(loaded_library(s.proc + "/none", "libucp").empty());
  s.write(lib, "");
  CHECK(ucx_info_beside(lib).empty());
  s.write(tool, "#!/bin/sh\n");
  ::chmod(tool.c_str(), 0755);
  CHECK(ucx_info_beside(lib) == tool);
}

}  // namespace
}  // namespace tilewise::cli
