// The main job: a real cluster of processes, a large matrix product and a regression on real data, both checked.
#include "launch.h"
#include "regression.h"

#include <cblas.h>
#include <tilewise/device/cuda.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

using tilewise::Array;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Raw OpenBLAS with `threads` threads, each with its share of the rows.
double raw_dgemm_seconds(const std::vector<double>& a, const std::vector<double>& b, int n, int threads) {
  std::vector<double> c(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      const int from = n * t / threads, rows = n * (t + 1) / threads - from;
      const std::size_t at = static_cast<std::size_t>(from) * static_cast<std::size_t>(n);
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, n, n, 1.0, a.data() + at, n, b.data(), n,
                  0.0, c.data() + at, n);
    });
  }
  for (std::thread& thread : team) thread.join();
  return seconds_since(start);
}

bool matmul_part(tilewise::Session& session, int n, int cores) {
  std::printf("\n1. A blocked %d x %d float64 product\n", n, n);
  const std::int64_t block = n / 4;
  Array a = session.random.uniform({n, n}, {.seed = 1, .block = {block, block}}, -1, 1);
  Array b = session.random.uniform({n, n}, {.seed = 2, .block = {block, block}}, -1, 1);
  session.persist({a, b}).wait({.on_progress = tilewise::ProgressBar("operands")});
  Array c = tilewise::matmul(a, b);
  const Clock::time_point start = Clock::now();
  c.persist().wait({.on_progress = tilewise::ProgressBar("product ")});
  const double seconds = seconds_since(start);

  const std::vector<double> left = a.get<double>(), right = b.get<double>();
  double worst = 0;
  for (int sample = 0; sample < 5; ++sample) {
    const std::int64_t row = static_cast<std::int64_t>(sample) * (n - 1) / 4;
    const std::vector<double> got = c.at(0, row).get<double>();
    std::vector<double> direct(static_cast<std::size_t>(n));
    cblas_dgemv(CblasRowMajor, CblasTrans, n, n, 1.0, right.data(), n, left.data() + row * n, 1, 0.0,
                direct.data(), 1);
    for (int j = 0; j < n; ++j) {
      worst =
          std::max(worst, std::abs(got[static_cast<std::size_t>(j)] - direct[static_cast<std::size_t>(j)]));
    }
  }
  const double raw = raw_dgemm_seconds(left, right, n, cores);
  const double gflop = 2.0 * n * n * n * 1e-9, tolerance = 1e-10 * std::sqrt(static_cast<double>(n));
  std::printf(
      "   Tilewise %.2f s (%.1f GFLOP/s), raw OpenBLAS (%s, %d threads) %.2f s (%.1f GFLOP/s): ratio %.2f\n",
      seconds, gflop / seconds, openblas_get_corename(), cores, raw, gflop / raw, raw / seconds);
  std::printf("   5 rows against a direct BLAS product: largest difference %.2e (allowed %.2e): %s\n", worst,
              tolerance, worst <= tolerance ? "ok" : "WRONG");
  return worst <= tolerance;
}

bool regression_part(tilewise::Session& session, const std::filesystem::path& folder) {
  const char* path = std::getenv("TILEWISE_DEMO_FLIGHTS");
  const demo::Flights flights = demo::load_flights(path == nullptr ? "" : path);
  std::printf("\n2. Late or not? Logistic regression by Newton's method on %s\n", flights.source.c_str());
  const std::string npy = folder / "flights.npy";
  demo::write_npy(npy, flights.table, flights.rows, 3);
  const demo::Fit got = demo::fit_on_cluster(session, npy);
  const demo::Fit plain = demo::fit_plainly(flights);
  double worst = 0, largest = 0;
  for (std::size_t j = 0; j < plain.coefficients.size(); ++j) {
    worst = std::max(worst, std::abs(got.coefficients[j] - plain.coefficients[j]));
    largest = std::max(largest, std::abs(plain.coefficients[j]));
  }
  const bool ok = worst <= 1e-6 * largest && std::abs(got.loss - plain.loss) <= 1e-9;
  std::printf("   %d iterations, loss %.9f in %.2f s; plain single-process loops: %.9f in %.2f s\n",
              got.iterations, got.loss, got.seconds, plain.loss, plain.seconds);
  std::printf("   largest difference of a coefficient %.2e of %.2f: %s\n", worst, largest,
              ok ? "ok" : "WRONG");
  return ok;
}

int usable_cores() {
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

}  // namespace

int main(int argc, char** argv) {
  openblas_set_num_threads(
      1);  // who compares brings threads of its own, and idle ones of OpenBLAS would poll
  int n = 8192;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) {
      std::printf(
          "demo [--size N]   the main job: an N x N product (default 8192, a multiple of 4) and a "
          "regression\n");
      return 0;
    }
    if (std::strcmp(argv[i], "--size") == 0 && i + 1 < argc) {
      n = std::atoi(argv[++i]);
      continue;
    }
    std::fprintf(stderr, "demo: unknown argument '%s'; see --help\n", argv[i]);
    return 2;
  }
  if (n < 64 || n > 32'768 || n % 4 != 0) {
    std::fprintf(stderr, "demo: --size wants a multiple of 4 from 64 to 32768\n");
    return 2;
  }
  try {
    const int cores = usable_cores(), gpus = tilewise::device::cuda_device_count();
    demo::ProcessCluster::Options options;
    options.cores = std::max(1, cores / options.workers);
    if (gpus > 0) {  // one worker owns the GPUs
      options.workers = 1;
      options.devices = "cuda:all";
    }
    std::printf("Starting one scheduler and %d worker%s with %s each\n", options.workers,
                options.workers == 1 ? "" : "s", options.devices.c_str());
    const demo::ProcessCluster cluster(options);
    cluster.enter_environment();
    bool ok = true;
    {
      tilewise::Session session = tilewise::connect({.name = "demo", .timeout = std::chrono::minutes(10)});
      session.wait_for_devices(static_cast<std::size_t>(gpus > 0 ? gpus : 2 * options.workers),
                               std::chrono::seconds(30));
      ok = matmul_part(session, n, cores);
      ok = regression_part(session, cluster.folder()) && ok;
      std::printf("\n3. The cluster's own account\n");
      std::fputs(cluster.run_tool("status").c_str(), stdout);
      std::fputs(cluster.run_tool("devices").c_str(), stdout);
    }
    std::printf("\n%s\n", ok ? "All results are right." : "SOMETHING IS WRONG, see above.");
    return ok ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "demo: %s\n", e.what());
    return 1;
  }
}
