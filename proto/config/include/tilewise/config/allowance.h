// What this process may have of its host: memory and cores, by what the host has left and by the limits of its control groups (containers,
// Kubernetes, Slurm, systemd), of version 1 and 2, wherever they are mounted. `root` stands before /proc and /sys, for tests.
#pragma once
#include <cstdint>
#include <string>

namespace tilewise::config {

// Of memory, with what counts for it: "the host", or the file whose limit it is.
struct Allowance {
  std::int64_t bytes = 0;
  std::string by;
};

struct MemoryAllowance {
  // What can be had now: MemAvailable, or what a limit leaves beside what the group uses already. Page cache that the kernel would give
  // up (inactive_file) counts as not used. Never below 0.
  Allowance now;
  // What could be had if nothing else were there: the host's memory, or the least limit.
  Allowance at_most;
  bool limited() const { return at_most.by != kHost; }
  static constexpr const char* kHost = "the host";
};

// The groups of this process and all above them count, as far as they can be seen: in a container they often end at its own.
MemoryAllowance memory_allowance(const std::string& root = "");

struct CoreAllowance {
  int cores = 1;         // that can be kept busy: those of `affinity`, or the quota, rounded up
  int affinity = 1;      // that threads may run on
  double quota = 0;      // that they may use together, over time; 0: none
  std::string quota_by;  // the file that says so
};

CoreAllowance core_allowance(const std::string& root = "");

}  // namespace tilewise::config
