// The forms of cluster that every program is run on. Some threads poll, some park at once: that changes who meets whom.
#pragma once
#include <tilewise/embedded/cluster.h>
#include <tilewise/io/stored.h>
#include <tilewise/tilewise.h>

#include <stdexcept>

namespace tilewise {

struct Form {
  const char* name;
  embedded::ClusterOptions options;
};

inline const Form kForms[] = {
    {"one device",
     {.workers = 1, .host_devices = 1, .use_cuda = false, .memory_bytes = 64 << 20, .spin_ns = 50'000}},
    {"two workers of three devices",
     {.workers = 2, .host_devices = 3, .use_cuda = false, .memory_bytes = 64 << 20, .spin_ns = 0}},
    {"copies instead of mappings",
     {.workers = 3,
      .host_devices = 1,
      .use_cuda = false,
      .memory_bytes = 64 << 20,
      .map_peers = false,
      .spin_ns = 0}},
    {"little memory above a disk",
     {.workers = 2,
      .host_devices = 2,
      .use_cuda = false,
      .memory_bytes = 256 << 10,
      .spill_directory = "/tmp",
      .spill_bytes = 1 << 30,
      .spin_ns = 0}},
    {"reference kernels",
     {.workers = 1,
      .host_devices = 2,
      .use_cuda = false,
      .memory_bytes = 64 << 20,
      .reference_kernels = true}},
};

struct TestCluster {
  explicit TestCluster(const Form& form)
      : cluster(start(form.options)),
        session(make_session(cluster->connect("test"),
                             {.seed = 5, .timeout = std::chrono::seconds(60), .inspect = io::inspect})) {}
  static std::unique_ptr<embedded::Cluster> start(const embedded::ClusterOptions& options) {
    auto started = embedded::Cluster::start(options);
    if (!started) throw std::runtime_error(started.error().message);
    return std::move(*started);
  }
  std::unique_ptr<embedded::Cluster> cluster;
  Session session;
};

}  // namespace tilewise
