// An embedded cluster with the GPUs that are found, and a session on it.
#pragma once
#include <tilewise/embedded/cluster.h>
#include <tilewise/io/stored.h>
#include <tilewise/tilewise.h>

#include <doctest/doctest.h>
#include <chrono>
#include <memory>
#include <optional>

namespace tilewise::testing {

struct GpuCluster {
  explicit GpuCluster(embedded::ClusterOptions options = {.workers = 1,
                                                          .memory_bytes = std::int64_t{2} << 30}) {
    auto started = embedded::Cluster::start(options);
    REQUIRE(started.has_value());
    cluster = std::move(*started);
    session.emplace(make_session(cluster->connect("gpu_check"),
                                 {.seed = 1, .timeout = std::chrono::seconds(120), .inspect = io::inspect}));
  }
  std::unique_ptr<embedded::Cluster> cluster;
  std::optional<Session> session;
};

}  // namespace tilewise::testing
