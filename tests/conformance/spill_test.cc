// Working sets larger than the devices: right to the last bit, and nothing left on disk.
#include "clusters.h"
#include "temp_folder.h"

#include <doctest/doctest.h>
#include <cmath>
#include <cstdlib>
#include <filesystem>

using namespace tilewise;
using testing::TempFolder;

namespace {

Form form(const TempFolder& folder, int workers, int devices, std::int64_t memory, bool map = true,
          std::int64_t disk = 1 << 30) {
  return {"spilling",
          {.workers = workers,
           .host_devices = devices,
           .use_cuda = false,
           .memory_bytes = memory,
           .spill_directory = folder.path(),
           .spill_bytes = disk,
           .map_peers = map}};
}

}  // namespace

TEST_CASE("a product and a mean of data three times the devices are what they are in memory") {
  const TempFolder folder;
  const std::int64_t n = 24'576, d = 64;  // 12 MiB
  const auto results = [&](const Form& f) {
    TestCluster cluster(f);
    Session& s = cluster.session;
    Array x = s.random.normal({n, d}, {.seed = 11, .block = {512, d}});
    x.persist().wait();
    std::vector<double> all = matmul(x.T(), x).get<double>();
    for (const double v : mean(x, 0).get<double>()) all.push_back(v);
    for (const double v : mean(x, 0).get<double>()) all.push_back(v);  // again, from disk
    CHECK(folder.files() == 0);
    return all;
  };
  Form plenty = form(folder, 1, 1, 64 << 20);
  plenty.options.spill_directory.clear();
  const std::vector<double> expected = results(plenty);
  CHECK(results(form(folder, 1, 1, 4 << 20)) == expected);
  CHECK(results(form(folder, 2, 2, 1 << 20)) == expected);
  CHECK(results(form(folder, 3, 1, 4 << 20, false)) == expected);
}

TEST_CASE("a working set ten times the device is fetched, transposed and saved") {
  const TempFolder folder;
  const std::int64_t n = 1280, m = 1024;  // 10 MiB
  TestCluster cluster(form(folder, 1, 1, 1 << 20));
  Session& s = cluster.session;
  std::vector<double> a(static_cast<std::size_t>(n * m));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i % 1009) - 500;
  Array x = s.from_memory(a, {n, m}, {.block = {128, 128}});
  x = x + 0.0;
  x.persist().wait();
  CHECK(x.get<double>() == a);  // most of it straight from disk
  const std::vector<double> turned = (x.T() * 2.0).get<double>();
  bool right = true;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j) right &= turned[j * n + i] == 2 * a[i * m + j];
  CHECK(right);
  std::int64_t written = 0, read = 0;  // as the timeline shows them
  for (const TraceStep& step : s.trace().steps) {
    CHECK(step.end_ns >= step.start_ns);
    if (step.kind == msg::TraceKind::kSpill) written += step.bytes;
    if (step.kind == msg::TraceKind::kUnspill) read += step.bytes;
  }
  CHECK(written >= 9 * (1 << 20));  // once, all that does not fit
  CHECK(read >= 9 * (1 << 20));
  const TempFolder out;
  x.save_npy(out / "x.npy").wait();
  Array y = s.load_npy(out / "x.npy", {.block = {20, m}});
  CHECK(y.get<double>() == a);
  CHECK(folder.files() == 0);
}

TEST_CASE("blocks on another worker's disk reach their readers") {
  const TempFolder folder;
  for (const bool map : {true, false}) {
    TestCluster cluster(form(folder, 2, 1, 1 << 20, map));
    Session& s = cluster.session;
    const std::int64_t n = 640;  // 3 MiB
    Array x = s.random.uniform({n, n}, {.seed = 4, .block = {50, n}});
    x.persist().wait();
    Array y = s.random.uniform({n, n}, {.seed = 5, .block = {n, 50}});
    y.persist().wait();
    const std::vector<double> xs = x.get<double>(), ys = y.get<double>(), got = (x + y).get<double>();
    bool right = true;
    for (std::size_t i = 0; i < got.size(); ++i) right &= got[i] == xs[i] + ys[i];
    CHECK(right);
  }
}

TEST_CASE("a full disk is an error that names it, and the cluster goes on") {
  const TempFolder folder;
  TestCluster cluster(form(folder, 1, 1, 1 << 20, true, 1 << 20));
  Session& s = cluster.session;
  const auto code_of = [](auto&& f) {
    try {
      f();
    } catch (const ArrayError& e) {
      return e.code();
    }
    return Errc::kOk;
  };
  Array first = s.random.uniform({512, 128}, {.seed = 1, .block = {32, 128}});  // half a MiB
  first.persist().wait();
  CHECK(code_of([&] {
          Array large = s.random.uniform({1792, 128}, {.seed = 2, .block = {32, 128}});  // fits on paper
          large.persist().wait();
        }) == Errc::kDiskFull);
  CHECK(code_of([&] {
          Array larger = s.random.uniform({8192, 128}, {.seed = 2, .block = {32, 128}});
          larger.persist().wait();
        }) == Errc::kOutOfMemory);  // refused
  CHECK(first.get<double>().size() == 512 * 128);
  CHECK(sum(s.random.uniform({2048, 128}, {.seed = 3, .block = {32, 128}})).item<double>() > 0);
}
