#include <tilewise/config/allowance.h>

#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>

#include "temp_folder.h"

using namespace tilewise;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

// A host of 16 GiB, 8 of them available, and its control groups.
struct Host {
  testing::TempFolder folder;
  const std::string& root = folder.path();
  Host() {
    write("/proc/meminfo",
          "MemTotal: 16777216 kB\nMemFree: 1024 kB\nMemAvailable: 8388608 kB\nBuffers: 1 kB\n");
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void write(const std::string& path, std::int64_t number) const {
    write(path, std::to_string(number) + "\n");
  }
  void unified(const std::string& group, const std::string& mounted = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
          "31 22 0:28 " +
              mounted + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void old(const std::string& group, const std::string& mounted = "/") const {
    write("/proc/self/cgroup", "5:devices:/\n4:memory:" + group + "\n1:cpuacct,cpu:" + group + "\n0::/\n");
    write("/proc/self/mountinfo",
          "35 31 0:32 " + mounted +
              " /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
              "32 31 0:29 " +
              mounted +
              " /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
              "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
              "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  }
  config::MemoryAllowance memory() const { return config::memory_allowance(root); }
  config::CoreAllowance cores() const { return config::core_allowance(root); }
};

}  // namespace

TEST_CASE("without control groups it is what the host has available, cache that it would give up included") {
  const Host host;
  CHECK(host.memory().now.bytes == 8192 * kMiB);
  CHECK(host.memory().now.by == "the host");
  CHECK(host.memory().at_most.bytes == 16384 * kMiB);
  CHECK(!host.memory().limited());
  CHECK(host.cores().cores == host.cores().affinity);
  CHECK(host.cores().quota == 0);
}

TEST_CASE("a host whose kernel does not tell what is available, and one without a /proc") {
  const Host host;
  host.write("/proc/meminfo", "MemTotal: 2048 kB\nMemFree: 1024 kB\n");
  CHECK(host.memory().now.bytes == kMiB);
  CHECK(config::memory_allowance("/nowhere/at/all").now.bytes > 0);
  CHECK(config::core_allowance("/nowhere/at/all").cores >= 1);
}

TEST_CASE("version 2: the limit of the group, less what it uses but for cache that can be given up") {
  const Host host;
  host.unified("/pod/one");
  const std::string group = "/sys/fs/cgroup/pod/one";
  host.write(group + "/memory.max", 300 * kMiB);
  CHECK(host.memory().now.bytes == 300 * kMiB);  // nothing says what is used
  host.write(group + "/memory.current", 100 * kMiB);
  CHECK(host.memory().now.bytes == 200 * kMiB);
  host.write(group + "/memory.stat",
             "anon 1\nfile 2\ninactive_anon 3\ninactive_file " + std::to_string(40 * kMiB) + "\n");
  CHECK(host.memory().now.bytes == 240 * kMiB);
  CHECK(host.memory().now.by == group + "/memory.max");
  CHECK(host.memory().at_most.bytes == 300 * kMiB);
  CHECK(host.memory().limited());
  host.write(group + "/memory.high", 200 * kMiB);  // beyond it a process is slowed down until it hardly moves
  CHECK(host.memory().now.bytes == 140 * kMiB);
  CHECK(host.memory().now.by == group + "/memory.high");
  host.write(group + "/memory.current", 900 * kMiB);
  CHECK(host.memory().now.bytes == 0);
  host.write(group + "/memory.max", "max\n"), host.write(group + "/memory.high", "max\n");
  CHECK(host.memory().now.bytes == 8192 * kMiB);
  CHECK(!host.memory().limited());
}

TEST_CASE("version 2: the least of all groups above counts") {
  const Host host;
  host.unified("/slice/service/worker");
  host.write("/sys/fs/cgroup/slice/memory.max", 500 * kMiB);
  host.write("/sys/fs/cgroup/slice/memory.current", 450 * kMiB);  // by others, mostly
  host.write("/sys/fs/cgroup/slice/service/memory.max", "max");
  host.write("/sys/fs/cgroup/slice/service/worker/memory.max", 400 * kMiB);
  host.write("/sys/fs/cgroup/slice/service/worker/memory.current", 10 * kMiB);
  CHECK(host.memory().now.bytes == 50 * kMiB);
  CHECK(host.memory().now.by == "/sys/fs/cgroup/slice/memory.max");
  CHECK(host.memory().at_most.bytes == 400 * kMiB);
  CHECK(host.memory().at_most.by == "/sys/fs/cgroup/slice/service/worker/memory.max");
}

TEST_CASE("version 1: likewise, with its names, and a limit larger than all memory is none") {
  const Host host;
  host.old("/docker/abc");
  const std::string memory = "/sys/fs/cgroup/memory";
  host.write(memory + "/memory.limit_in_bytes", INT64_MAX / 4096 * 4096);
  host.write(memory + "/docker/memory.limit_in_bytes", INT64_MAX / 4096 * 4096);
  host.write(memory + "/docker/abc/memory.limit_in_bytes", INT64_MAX / 4096 * 4096);
  CHECK(!host.memory().limited());
  CHECK(host.memory().now.by == "the host");
  host.write(memory + "/docker/abc/memory.limit_in_bytes", 300 * kMiB);
  host.write(memory + "/docker/abc/memory.usage_in_bytes", 100 * kMiB);
  host.write(memory + "/docker/abc/memory.stat",
             "inactive_file 5\ntotal_inactive_file " + std::to_string(100 * kMiB) + "\n");
  CHECK(host.memory().now.bytes == 300 * kMiB);
  host.write(memory + "/docker/memory.limit_in_bytes", 200 * kMiB);
  CHECK(host.memory().now.bytes == 200 * kMiB);
  CHECK(host.memory().now.by == memory + "/docker/memory.limit_in_bytes");
}

TEST_CASE("a container that sees its own groups only, by whichever path it is told of") {
  const Host host;
  SUBCASE("version 1, without a namespace: the host's path") { host.old("/docker/abc", "/docker/abc"); }
  SUBCASE("version 1, in a namespace") { host.old("/"); }
  SUBCASE("version 1, a mount that does not go with the path") { host.old("/docker/abc", "/../other"); }
  host.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", 64 * kMiB);
  host.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", 50'000);
  host.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", 100'000);
  CHECK(host.memory().now.bytes == 64 * kMiB);
  CHECK(host.memory().now.by == "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  CHECK(host.cores().quota == 0.5);
}

TEST_CASE("version 2 in containers: in a namespace, moved within it, and with the host's path") {
  const Host host;
  SUBCASE("in a namespace") { host.unified("/"); }
  SUBCASE("the root of the namespace is further down") { host.unified("/../../other"); }
  SUBCASE("a part is mounted") { host.unified("/kubepods/pod1/abc", "/kubepods/pod1/abc"); }
  host.write("/sys/fs/cgroup/memory.max", 64 * kMiB);
  host.write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  CHECK(host.memory().now.bytes == 64 * kMiB);
  CHECK(host.cores().quota == 1.5);
}

TEST_CASE("both versions side by side: each controller where it is, wherever that is mounted") {
  const Host host;
  host.write("/proc/self/cgroup", "4:memory:/a\n0::/u\n");
  host.write("/proc/self/mountinfo",
             "35 31 0:32 / /mnt/my\\040groups rw - cgroup none rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  host.write("/mnt/my groups/a/memory.limit_in_bytes", 32 * kMiB);
  host.write("/sys/fs/cgroup/unified/u/cpu.max", "50000 100000");
  CHECK(host.memory().now.bytes == 32 * kMiB);
  CHECK(host.memory().now.by == "/mnt/my groups/a/memory.limit_in_bytes");
  CHECK(host.cores().quota == 0.5);
}

TEST_CASE("a quota of cores is rounded up, the least of all groups counts, and there is always one core") {
  const Host host;
  host.unified("/a/b");
  host.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  CHECK(host.cores().quota == 0);
  host.write("/sys/fs/cgroup/a/cpu.max", "1000 100000\n");
  CHECK(host.cores().cores == 1);
  CHECK(host.cores().quota_by == "/sys/fs/cgroup/a/cpu.max");
  host.write("/sys/fs/cgroup/a/b/cpu.max", "100 100000\n");
  CHECK(host.cores().quota_by == "/sys/fs/cgroup/a/b/cpu.max");
  host.unified("/c");
  host.write("/sys/fs/cgroup/c/cpu.max", "110000 100000\n");
  CHECK(host.cores().cores == std::min(2, host.cores().affinity));
  host.write("/sys/fs/cgroup/c/cpu.max", "99999900000 100000\n");
  CHECK(host.cores().cores == host.cores().affinity);
}

TEST_CASE("version 1: a quota, and none") {
  const Host host;
  host.old("/x");
  host.write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", 100'000);
  host.write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", -1);
  CHECK(host.cores().quota == 0);
  host.write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", 20'000);
  CHECK(host.cores().quota == 0.2);
  CHECK(host.cores().cores == 1);
  CHECK(host.cores().quota_by == "/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us");
}

TEST_CASE("files that hold nothing of use are as if they were not there") {
  const Host host;
  host.write("/proc/self/cgroup", "nonsense\n0:\n0::\n4:memory\n");
  host.write("/proc/self/mountinfo",
             "1\n\n1 2 3 / /x -\n41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  host.write("/sys/fs/cgroup/memory.max", "");
  host.write("/sys/fs/cgroup/cpu.max", "much 1\n");
  CHECK(host.memory().now.bytes == 8192 * kMiB);
  CHECK(host.cores().quota == 0);
}
