// Explicit placement: a mesh of devices with named axes, arrays cut over it by partition specs, and what the scheduler
// says about it before anything runs.
//
//   sharding            eight host devices in two workers, in this process
#include <tilewise/embedded/cluster.h>
#include <tilewise/tilewise.h>

#include <cmath>
#include <cstdio>

namespace {

bool close(const char* what, double got, double want) {
  const bool good = std::abs(got - want) <= 1e-9 * std::abs(want);
  std::printf("%s: %.12g, a plain loop says %.12g%s\n", what, got, want, good ? "" : "  WRONG");
  return good;
}

int run() {
  using namespace tilewise;
  auto cluster = embedded::Cluster::start(
      {.workers = 2, .host_devices = 4, .use_cuda = false, .memory_bytes = 64 << 20});
  if (!cluster) throw ArrayError(cluster.error());
  auto session = make_session((*cluster)->connect("sharding"));
  if (!session.wait_for_devices(8, std::chrono::seconds(10))) throw ArrayError(Errc::kTimeout, "no devices");
  const std::vector<Device> devices = session.devices();
  bool good = true;

  // A mesh of 4 x 2: rows of x over "x", columns over "y"; w is cut over "y" and replicated over "x".
  const Mesh mesh(devices, {{"x", 4}, {"y", 2}});
  const std::int64_t n = 512, m = 256;
  Array x = session.arange(n * m).reshape({n, m}).astype(DType::kFloat64).on(mesh, {"x", "y"});
  Array w = session.linspace(0, 1, m).on(mesh, {"y"});
  session.persist({x, w}).wait();
  std::printf("%s, x by %s, w by %s\n%s%s", mesh.to_string().c_str(),
              PartitionSpec{"x", "y"}.to_string().c_str(), PartitionSpec{"y"}.to_string().c_str(),
              session.visualize(x).c_str(), session.visualize(w).c_str());

  const Array total = sum(sin(x) * w);
  std::printf("\nsum(sin(x) * w), before it runs:\n%s\n", session.explain(total).text().c_str());
  double plain = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j)
      plain += std::sin(static_cast<double>(i * m + j)) * static_cast<double>(j) / static_cast<double>(m - 1);
  }
  good &= close("sum(sin(x) * w)", total.item<double>(), plain);

  // One half of the devices, then the other: a redistribution, block by block between owners.
  const Mesh first({devices.begin(), devices.begin() + 4}, {{"row", 4}});
  const Mesh second({devices.begin() + 4, devices.end()}, {{"row", 2}, {"column", 2}});
  Array y = (session.ones({n, m}) * 3.0).on(first, {"row"});
  y.persist().wait();
  Array z = (y + 1.0).on(second, {"row", "column"});
  z.persist().wait();
  std::printf("\nfrom one half\n%sto the other\n%s", session.visualize(y).c_str(),
              session.visualize(z).c_str());
  good &= close("sum after the move", sum(z).item<double>(), 4.0 * static_cast<double>(n * m));

  // Mistakes say what was wrong.
  try {
    (void)x.on(mesh, {"x", "x"});
  } catch (const ArrayError& e) {
    std::printf("\nas it should: %s\n", e.what());
  }
  return good ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
