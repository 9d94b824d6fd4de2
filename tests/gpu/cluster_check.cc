// Array programs through the whole engine on a GPU: client, scheduler, worker core, runtime, CUDA kernels, and the way
// back to the client's memory.
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <thread>

#include "conformance/plain.h"
#include "gpu_cluster.h"

using namespace tilewise;
using testing::GpuCluster;

TEST_CASE("cluster: uploads, elementwise, matmul, reductions and results on a GPU") {
  GpuCluster gpu;
  Session& s = *gpu.session;
  const std::vector<Device> devices = s.devices();
  REQUIRE(!devices.empty());
  CHECK(devices[0].name.find("cuda:0") != std::string::npos);
  const std::int64_t m = 300, k = 257, n = 190;
  std::vector<double> a(m * k), b(n * k);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i % 11) - 5;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i % 7) - 3;
  Array x = s.from_memory(a, {m, k}, {.block = {100, 64}});
  Array y = s.from_memory(b, {n, k}, {.block = {64, 90}});
  s.persist({x, y}).wait();
  const std::vector<double> product = matmul(x, y.T()).get<double>();
  bool exact = true;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t q = 0; q < k; ++q) sum += a[i * k + q] * b[j * k + q];
      exact &= product[static_cast<std::size_t>(i * n + j)] == sum;
    }
  }
  CHECK(exact);
  CHECK(sum(x).item<double>() == std::accumulate(a.begin(), a.end(), 0.0));
  const std::vector<double> mapped = ((x * 2.0 + 1.0) - sqrt(abs(x))).get<double>();
  bool same = true;
  for (std::size_t i = 0; i < a.size(); ++i)
    same &= mapped[i] == (a[i] * 2.0 + 1.0) - std::sqrt(std::abs(a[i]));
  CHECK(same);
  CHECK(argmax(x.slice(0, 5, 200).T()).item<std::int64_t>() >= 0);
  const std::vector<double> rows = sum(x, 1).get<double>();
  CHECK(rows[3] == std::accumulate(a.begin() + 3 * k, a.begin() + 4 * k, 0.0));
  CHECK(concat({x, x.slice(0, 0, 7)}, 0).get<double>().size() == static_cast<std::size_t>((m + 7) * k));
  CHECK((s.full({}, 2.5) * 2.0).item<double>() == 5.0);
  CHECK_THROWS_AS(matmul(x, y), ArrayError);
}

TEST_CASE("cluster: a loop whose constants change, replayed on a GPU") {
  GpuCluster gpu;
  const Session& s = *gpu.session;
  Array x = s.ones({1000}, {.block = {256}});
  s.persist({x}).wait();
  double plain = 1;
  int replays = 0;
  for (int i = 1; i <= 12; ++i) {
    const double rate = std::pow(0.9, i);
    const Array next = x * (1 - rate) + sum(x * rate) * (0.001 / i);
    replays += s.explain(next).account().passes.at(0).name == "replayed";
    s.persist({next});
    x = next;
    plain = plain * (1 - rate) + 1000 * (plain * rate) * (0.001 / i);
    for (const double value : x.get<double>()) REQUIRE(std::abs(value / plain - 1) < 1e-12);
  }
  CHECK(replays >= 7);
}

// The host makes these steps in the middle of the GPU's streams, while kernels that are new have to be loaded, for which the
// driver waits for the whole GPU.
TEST_CASE("cluster: files through a GPU, between kernels that are loaded meanwhile") {
  GpuCluster gpu;
  Session& s = *gpu.session;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tilewise-gpu-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::vector<double> values(300 * 200);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 101) - 50;
  const Array x = s.from_memory(values, {300, 200}, {.block = {64, 90}});
  for (int round = 0; round < 6; ++round) {
    const std::string path = folder / ("x" + std::to_string(round) + ".npy");
    x.save_npy(path).wait();
    // Another tape each round, on blocks that are still being read.
    Array y = s.load_npy(path, {.block = {37, 200}});
    for (int i = 0; i <= round; ++i) y = y * 2.0 + static_cast<double>(round);
    double scale = 1, shift = 0;
    for (int i = 0; i <= round; ++i) scale *= 2, shift = shift * 2 + round;
    const std::vector<double> got = (y - abs(y)).get<double>();
    bool same = got.size() == values.size();
    for (std::size_t i = 0; same && i < got.size(); ++i) {
      const double want = values[i] * scale + shift;
      same = got[i] == want - std::abs(want);
    }
    CHECK(same);
  }
  const Array gone = s.load_npy(folder / "x0.npy", {.block = {50, 200}});
  std::filesystem::remove(folder / "x0.npy");
  try {
    (void)gone.get<double>();
    FAIL("a file that is gone was read");
  } catch (const ArrayError& e) {
    CHECK(e.code() == Errc::kNotFound);
  }
  CHECK(s.load_npy(folder / "x1.npy").get<double>() == values);
  std::filesystem::remove_all(folder);
}

TEST_CASE("cluster: random numbers and regression steps agree with the host") {
  GpuCluster gpu;
  auto host = embedded::Cluster::start({.host_devices = 2, .use_cuda = false, .memory_bytes = 256 << 20});
  REQUIRE(host.has_value());
  Session other = make_session((*host)->connect("host"), {.seed = 1, .timeout = std::chrono::seconds(120)});
  const auto program = [](Session& s) {
    const Array x = s.random.uniform({20'000, 8}, {.seed = 3, .block = {3'000, 8}});
    const Array w = s.linspace(-1, 1, 8);
    const Array p = 1.0 / (1.0 + exp(-matmul(x, w)));
    return matmul(x.T(), p - 0.5).get<double>();
  };
  CHECK(gpu.session->random.uniform({1000}, {.seed = 9}).get<double>() ==
        other.random.uniform({1000}, {.seed = 9}).get<double>());
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    INFO(std::string(name_of(dtype)));
    const double high = dtype == DType::kFloat64 ? 1 + 0x1p-50 : 1001;  // rounding would reach it
    const double low = dtype == DType::kFloat64 ? 1 : dtype == DType::kFloat32 ? 1001 - 0x1p-10 : 1;
    const auto draw = [&](Session& s) {
      const Array x = s.random.uniform({3000}, {.seed = 9, .dtype = dtype}, low, high);
      return x.astype(DType::kFloat64).get<double>();
    };
    const std::vector<double> got = draw(*gpu.session);
    CHECK(got == draw(other));
    CHECK(*std::max_element(got.begin(), got.end()) < high);
  }
  const std::vector<double> on_gpu = program(*gpu.session), on_host = program(other);
  for (std::size_t i = 0; i < on_gpu.size(); ++i)
    CHECK(on_gpu[i] == doctest::Approx(on_host[i]).epsilon(1e-10));
}

// Blocks of 40 of what a host would do in one; the answers are those of plain loops.
TEST_CASE("cluster: order, indices, masks and stacks of products on a GPU") {
  GpuCluster gpu;
  Session& s = *gpu.session;
  std::vector<double> values(300);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>((i * 7919 + 5) % 211) - 100;
  const Array x = s.from_memory(values, {300}, {.block = {40}});
  std::vector<double> ordered = values;
  std::sort(ordered.begin(), ordered.end());
  CHECK(sort(x).get<double>() == ordered);
  std::vector<std::int64_t> places(values.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i)] < values[static_cast<std::size_t>(j)];
  });
  CHECK(argsort(x).get<std::int64_t>() == places);
  CHECK(take(x, argsort(x)).get<double>() == ordered);
  const TopK best = topk(x, 7);
  CHECK(best.values.get<double>() == std::vector<double>(ordered.rbegin(), ordered.rbegin() + 7));
  std::vector<double> once = ordered;
  once.erase(std::unique(once.begin(), once.end()), once.end());
  CHECK(unique_values(x).get<double>() == once);
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > 0) found.push_back(static_cast<std::int64_t>(i));
  CHECK(nonzero(maximum(x, 0.0))[0].get<std::int64_t>() == found);
  const Array probes = s.from_memory(std::vector<double>{-1000, -0.5, 3, 1000}, {4});
  const std::vector<std::int64_t> before = searchsorted(sort(x), probes).get<std::int64_t>();
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(before[i] ==
          std::lower_bound(ordered.begin(), ordered.end(), probes.get<double>()[i]) - ordered.begin());
  std::vector<double> changed = values;
  changed[3] = -7, changed[299] = 8;
  const Array at = s.from_memory(std::vector<std::int64_t>{3, -1}, {2});
  CHECK(put(x, at, s.from_memory(std::vector<double>{-7, 8}, {2})).get<double>() == changed);
  try {
    (void)take(x, s.from_memory(std::vector<std::int64_t>{4, 300}, {2})).get<double>();
    FAIL("an index that is out of bounds was taken");
  } catch (const ArrayError& e) {
    CHECK(e.code() == Errc::kOutOfRange);
    CHECK(std::string(e.what()).find("index 300 is out of bounds for axis 0 with size 300") !=
          std::string::npos);
  }
  CHECK(sort(x).get<double>() == ordered);  // the GPU goes on
  // Several arrays of indices, and updates through them and through masks.
  const Array table = x.reshape({30, 10}), rows = s.from_memory(std::vector<std::int64_t>{29, -30, 4}, {3}),
              columns = s.from_memory(std::vector<std::int64_t>{-1, 7}, {2, 1});
  std::vector<double> picked, written = values, lifted = values;
  for (const std::size_t j : {9, 7})
    for (const std::size_t i : {29, 0, 4}) picked.push_back(values[i * 10 + j]), written[i * 10 + j] = 5;
  CHECK(table.index({rows, columns}).get<double>() == picked);
  CHECK(set_index(table, {rows, columns}, 5).get<double>() == written);
  for (double& v : lifted)
    if (v > 50) v += 1;
  CHECK(set_index(table, {table > 50.0}, boolean_index(table, table > 50.0) + 1.0).get<double>() == lifted);
  CHECK(code_of([&] { table.index({rows, rows}).get<double>(); }) == Errc::kOutOfRange);
  const Array a = s.from_memory(values, {3, 10, 10}), b = s.from_memory(changed, {3, 10, 10});
  const std::vector<double> products = matmul(a, b).get<double>();
  bool same = true;
  for (std::size_t m = 0; m < 3; ++m)
    for (std::size_t i = 0; i < 10; ++i)
      for (std::size_t j = 0; j < 10; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < 10; ++k)
          sum += values[m * 100 + i * 10 + k] * changed[m * 100 + k * 10 + j];
        same &= products[m * 100 + i * 10 + j] == sum;
      }
  CHECK(same);
}

TEST_CASE("cluster: links into a GPU and out of it are measured before any block moves") {
  GpuCluster gpu({.workers = 2, .host_devices = 1, .memory_bytes = std::int64_t{256} << 20});
  Session& s = *gpu.session;
  Device cuda, host;
  for (const Device& d : s.devices()) (d.name.find("cuda") != std::string::npos ? cuda : host) = d;
  REQUIRE(cuda.id);
  REQUIRE(host.id);
  for (const auto& [from, to] : {std::pair(host, cuda), std::pair(cuda, host)}) {
    CAPTURE(from.name);
    const Array x = s.ones({256, 256}, {.block = {128, 128}}).on(from);
    msg::LinkAccount link;
    for (int i = 0; i < 1000 && !link.measured; ++i) {
      const msg::Explanation told = s.explain((x + 1.0).on(to)).account();
      REQUIRE(told.links.size() == 1);
      link = told.links[0];
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(link.measured);
    CHECK(link.bytes_per_s > 1e6);
    std::printf("link: %s to %s %.1f GB/s\n", from.name.c_str(), to.name.c_str(), link.bytes_per_s * 1e-9);
  }
}

// What links are measured with, and kernels' scratch, are no part of the memory that the arena may grow to.
TEST_CASE("cluster: a GPU whose memory is one slab is filled after its links were measured") {
  constexpr std::int64_t kMemory = std::int64_t{96} << 20, kBlock = 8 << 20;  // bytes
  GpuCluster gpu({.workers = 2,
                  .host_devices = 1,
                  .memory_bytes = std::int64_t{256} << 20,
                  .cuda_memory_bytes = kMemory});
  Session& s = *gpu.session;
  Device cuda, host;
  for (const Device& d : s.devices()) (d.name.find("cuda") != std::string::npos ? cuda : host) = d;
  const Array x = s.ones({256, 256}, {.block = {128, 128}}).on(host);
  bool measured = false;
  for (int i = 0; i < 1000 && !measured; ++i) {
    measured = s.explain((x + 1.0).on(cuda)).account().links.at(0).measured;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(measured);
  const std::int64_t blocks = kMemory / kBlock - 2, side = kBlock / 8;
  const Array full = s.full({blocks * side}, 3.0, {.block = {side}}).on(cuda);
  s.persist({full}).wait();
  CHECK(sum(full.slice(0, side * (blocks - 1), side * blocks)).item<double>() ==
        3.0 * static_cast<double>(side));
}

TEST_CASE("cluster: a blocked product through the engine, timed") {
  GpuCluster gpu;
  Session& s = *gpu.session;
  const std::int64_t n = 16'384;
  Array a = s.random.uniform({n, n}, {.seed = 1, .block = {4096, 4096}}),
        b = s.random.uniform({n, n}, {.seed = 2, .block = {4096, 4096}});
  s.persist({a, b}).wait();
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    Array c = matmul(a, b);
    const auto start = std::chrono::steady_clock::now();
    c.persist().wait();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("engine: dgemm %lld, blocks of 4096: %.1f TFLOP/s\n", static_cast<long long>(n),
              2e-12 * n * n * n / best);
  std::vector<double> tiny;
  for (int i = 0; i < 50; ++i) {
    const auto start = std::chrono::steady_clock::now();
    (void)(s.full({}, 1.0) + 1.0).item<double>();
    tiny.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(tiny.begin(), tiny.end());
  std::printf("engine: tiny get() %.0f us (median)\n", 1e6 * tiny[tiny.size() / 2]);
  CHECK(best < 60);
}
