// Kernels of one's own: a rod that cools down, by a plug-in that the workers have loaded (heat_plugin.cc). Steps are
// calls on all blocks, each reading its block and one element beyond it (map_blocks), or single calls (task).
//
//   stencil heat_plugin.so
#include <tilewise/embedded/cluster.h>
#include <tilewise/tilewise.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr double kRate = 0.25;

std::string params() {
  std::string bytes(sizeof(kRate), '\0');
  std::memcpy(bytes.data(), &kRate, sizeof(kRate));
  return bytes;
}

std::vector<double> start(std::int64_t n) {
  std::vector<double> u(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < u.size(); ++i)
    u[i] = std::sin(0.01 * static_cast<double>(i)) + (i % 7 == 0 ? 1.0 : 0.0);
  return u;
}

std::vector<double> plain(std::vector<double> u, int steps) {
  for (int s = 0; s < steps; ++s) {
    std::vector<double> next = u;
    for (std::size_t i = 1; i + 1 < u.size(); ++i) next[i] = u[i] + kRate * (u[i - 1] - 2 * u[i] + u[i + 1]);
    u = std::move(next);
  }
  return u;
}

bool same(const char* what, const std::vector<double>& got, const std::vector<double>& want) {
  double worst = got.size() == want.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < got.size() && i < want.size(); ++i)
    worst = std::max(worst, std::abs(got[i] - want[i]));
  std::printf("%s: largest difference from a plain loop %g\n", what, worst);
  return worst <= 1e-12;
}

int run(const std::string& plugin) {
  auto cluster = tilewise::embedded::Cluster::start(
      {.workers = 2, .host_devices = 2, .use_cuda = false, .memory_bytes = 64 << 20, .plugins = {plugin}});
  if (!cluster) throw tilewise::ArrayError(cluster.error());
  auto session = tilewise::make_session((*cluster)->connect("stencil"));

  // map_blocks: the grid has ragged blocks; a window may reach into two neighbours, on other workers too.
  const std::int64_t n = 100'003;
  const int steps = 40;
  tilewise::Array u = session.from_memory(start(n), {n}, {.block = {12'000}});
  const tilewise::Kernel windowed{
      .name = "heat.windowed", .version = "1.0", .params = params(), .flops_per_point = 4.0 * 12'000};
  tilewise::ir::DimMap window;       // of the span of the block's own elements ...
  window.before = window.after = 1;  // ... and one more at each side, clipped at the ends of the rod
  for (int s = 0; s < steps; ++s) {
    u = tilewise::map_blocks(windowed, std::vector{u}, {{window}}, {{tilewise::DType::kFloat64, u.grid()}})
            .front();
  }
  bool good =
      same("map_blocks, 40 steps", u.get<double>(), plain(start(n), steps));  // one message, 360 tasks

  // task: calls one by one, on blocks by number. Here a short rod in one block.
  const std::int64_t m = 1000;
  tilewise::Array v = session.from_memory(start(m), {m}, {.block = {m}});
  const tilewise::Kernel whole{.name = "heat.whole", .version = "1.0", .params = params()};
  for (int s = 0; s < 5; ++s) v = tilewise::task(whole, {{v, 0}}, tilewise::DType::kFloat64, {m});
  good &= same("task, 5 steps", v.get<double>(), plain(start(m), 5));

  // A kernel's own complaint reaches the line that waits.
  const tilewise::Kernel bad{.name = "heat.whole", .version = "1.0"};
  try {
    (void)tilewise::task(bad, {{v, 0}}, tilewise::DType::kFloat64, {m}).get<double>();
    good = false;
  } catch (const tilewise::ArrayError& e) {
    std::printf("as expected: %s\n", e.what());
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s PLUGIN.so\n", argv[0]);
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
