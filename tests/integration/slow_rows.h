// Rows whose blocks take their time, on workers that count those that they make.
#pragma once
#include <cstdlib>
#include <string>
#include <vector>

#include "harness.h"
#include "programs.h"

namespace tilewise::testing {

inline constexpr std::int64_t kBlocks = 160, kBlock = 16;
inline constexpr std::int64_t kPointNs = 15'000'000;

// Workers of one device each, which count the points that they make.
struct Counted {
  explicit Counted(std::vector<std::string> scheduler_args = {})
      : cluster({.workers = 0, .devices = 1, .scheduler_args = std::move(scheduler_args)}) {}

  void add(int factor) {
    setenv("SLOW_FACTOR", std::to_string(factor).c_str(), 1);  // inherited by the worker
    setenv("SLOW_LOG", log(workers).c_str(), 1);
    cluster.add_worker({"--plugin", TILEWISE_SLOW_PLUGIN});
    unsetenv("SLOW_FACTOR");
    unsetenv("SLOW_LOG");
    ++workers;
  }
  std::string log(int worker) const { return folder / ("points" + std::to_string(worker)); }
  std::int64_t points(int worker) const {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(log(worker), none);
    return none ? 0 : static_cast<std::int64_t>(bytes);
  }
  std::int64_t all_points() const {
    std::int64_t all = 0;
    for (int i = 0; i < workers; ++i) all += points(i);
    return all;
  }

  TempFolder folder;
  Cluster cluster;
  int workers = 0;
};

// `rounds` slow rows, each of which reads the one before, and a reduction of the last.
struct SlowRows {
  Array rows, total;
};
inline SlowRows slow_rows(const Session& session, int rounds) {
  Array x = session.random.normal({kBlocks * kBlock}, {.seed = 9, .block = {kBlock}});
  const Kernel kernel{.name = "slow.third",
                      .version = "1.0",
                      .params = {reinterpret_cast<const char*>(&kPointNs), sizeof kPointNs},
                      .flops_per_point = 1e9};
  for (int i = 0; i < rounds; ++i)
    x = map_blocks(kernel, std::vector{x}, {}, {{DType::kFloat64, x.grid()}})[0];
  return {x, sum(x)};
}
struct Values {
  std::vector<double> rows, total;
};
// The same by elementwise ops on the same cluster: no plug-in, nothing that takes long.
inline Values expected(const Session& session, int rounds) {
  Array x = session.random.normal({kBlocks * kBlock}, {.seed = 9, .block = {kBlock}});
  for (int i = 0; i < rounds; ++i) x = x / 3.0 + 1.0;
  return {x.get<double>({.timeout = kPatience}), sum(x).get<double>({.timeout = kPatience})};
}

}  // namespace tilewise::testing
