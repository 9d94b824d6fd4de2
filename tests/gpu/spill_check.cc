// Working sets ten times a GPU's memory: to pinned host memory, to disk, and to the one behind the other.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "gpu_cluster.h"
#include "temp_folder.h"

using namespace tilewise;
using testing::GpuCluster;
using testing::TempFolder;

namespace {

constexpr std::int64_t kMemory = 8 << 20, kSide = 3200;  // 78 MiB of float64 above 8 MiB

struct SpillCluster : GpuCluster {
  SpillCluster(std::int64_t pinned, const std::string& folder, int workers = 1, std::int64_t disk = 1 << 30)
      : GpuCluster({.workers = workers,
                    .memory_bytes = 256 << 20,
                    .cuda_memory_bytes = kMemory,
                    .pinned_bytes = pinned,
                    .spill_directory = folder,
                    .spill_bytes = folder.empty() ? 0 : disk}) {}
};

// The values are small whole numbers: sums are exact whatever their order.
void ten_times_the_memory(Session& s) {
  const std::int64_t n = kSide;
  std::vector<double> a(static_cast<std::size_t>(n * n));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i % 1009) - 500;
  Array x = s.from_memory(a, {n, n}, {.block = {200, 400}}) + 1.0;
  x.persist().wait();
  const std::vector<double> turned = (x.T() * 2.0).get<double>();  // reads all of it, makes as much
  bool right = true;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) right &= turned[j * n + i] == 2 * (a[i * n + j] + 1);
  CHECK(right);
  double total = 0;
  for (const double v : a) total += v + 1;
  for (int round = 0; round < 2; ++round) CHECK(sum(x).item<double>() == total);
  const std::vector<double> back = x.get<double>();  // most of it straight from where it lies
  right = true;
  for (std::size_t i = 0; i < a.size(); ++i) right &= back[i] == a[i] + 1;
  CHECK(right);
  std::int64_t written = 0, read = 0;
  for (const TraceStep& step : s.trace().steps) {
    if (step.kind == msg::TraceKind::kSpill) written += step.bytes;
    if (step.kind == msg::TraceKind::kUnspill) read += step.bytes;
  }
  CHECK(written >= 60 << 20);
  CHECK(read >= 60 << 20);
}

Errc code_of(const std::function<void()>& f, std::string* story = nullptr) {
  try {
    f();
  } catch (const ArrayError& e) {
    if (story != nullptr) *story = e.what();
    return e.code();
  }
  return Errc::kOk;
}

}  // namespace

TEST_CASE("spill: ten times a GPU's memory, to pinned memory alone") {
  SpillCluster gpu(256 << 20, "");
  ten_times_the_memory(*gpu.session);
}

TEST_CASE("spill: ten times a GPU's memory, to pinned memory and what that has no room for to disk") {
  const TempFolder folder;
  SpillCluster gpu(24 << 20, folder.path());
  ten_times_the_memory(*gpu.session);
  CHECK(folder.files() == 0);
}

TEST_CASE("spill: what is read last goes on from pinned memory to disk") {
  const TempFolder folder;
  SpillCluster gpu(16 << 20, folder.path());
  Session& s = *gpu.session;
  const std::int64_t n = 1600;  // 20 MiB each
  const auto filled = [&](std::uint64_t seed) {
    return s.random.integers(0, 100, {n, n}, {.seed = seed, .block = {200, 200}});
  };
  Array late = filled(1), soon = filled(2);
  late.persist().wait();  // fills pinned memory
  // `soon` is read by what needs all of it, `late` by what needs that.
  Array turned = soon.T() + soon;
  const auto total = sum(late * turned.T()).item<std::int64_t>();
  const std::vector<std::int64_t> a = late.get<std::int64_t>(), b = soon.get<std::int64_t>();
  std::int64_t expected = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) expected += a[i * n + j] * (b[i * n + j] + b[j * n + i]);
  CHECK(total == expected);
  CHECK(folder.files() == 0);
}

TEST_CASE("spill: ten times a GPU's memory, to disk alone") {
  const TempFolder folder;
  SpillCluster gpu(0, folder.path());
  ten_times_the_memory(*gpu.session);
  CHECK(folder.files() == 0);
}

TEST_CASE("spill: blocks below a GPU reach another worker's devices") {
  const TempFolder folder;
  SpillCluster gpu(16 << 20, folder.path(), 2);
  Session& s = *gpu.session;
  const std::vector<Device> devices = s.devices();
  REQUIRE(devices.size() >= 2);
  const std::int64_t n = 2000;  // 31 MiB
  Array x = s.random.uniform({n, n}, {.seed = 4, .block = {200, 200}}).on(devices.front());
  x.persist().wait();
  const std::vector<double> values = x.get<double>();
  Array there = x.on(devices.back());
  there.persist().wait();
  CHECK(there.get<double>() == values);
}

TEST_CASE("spill: to a neighbour's memory while that has room, and out of its way when it has none") {
  SpillCluster gpu(256 << 20, "");
  Session& s = *gpu.session;
  std::vector<Device> gpus;
  for (const Device& device : s.devices())
    if (device.name.find("cuda") != std::string::npos) gpus.push_back(device);
  if (gpus.size() < 2) {
    MESSAGE("not run: one GPU");
    return;
  }
  const auto moved = [&](msg::TraceKind kind, std::size_t device, const std::string& peer) {
    std::int64_t bytes = 0;
    for (const TraceStep& step : s.trace().steps)
      if (step.kind == kind && step.device == gpus[device].name && step.peer == peer) bytes += step.bytes;
    return bytes;
  };
  const std::string &neighbour = gpus[1].name, below;
  const std::int64_t n = 1200;  // 11 MiB: 3 more than a GPU has
  const auto filled = [&](std::uint64_t seed, std::size_t device) {
    Array x = s.random.integers(0, 100, {n, n}, {.seed = seed, .block = {100, 400}}).on(gpus[device]);
    x.persist().wait();
    return x;
  };
  {
    const Array first = filled(1, 0), second = filled(2, 0);  // the other one has a slab now
  }
  // Alone: which of two arrays' blocks went to the neighbour, and which below, would be a matter of time.
  Array x = filled(4, 0);
  if (moved(msg::TraceKind::kSpill, 0, neighbour) == 0) {
    MESSAGE("not run: the GPUs reach each other no faster than the host's memory");
    return;
  }
  const auto sum_of_x = sum(x).item<std::int64_t>();
  CHECK(moved(msg::TraceKind::kUnspill, 0, neighbour) > 0);
  CHECK(moved(msg::TraceKind::kSpill, 1, below) == 0);
  Array y = filled(3, 1);  // wants all of the neighbour's memory, and more
  CHECK(moved(msg::TraceKind::kSpill, 1, below) > 0);
  const std::vector<std::int64_t> values = x.get<std::int64_t>();
  CHECK(std::accumulate(values.begin(), values.end(), std::int64_t{0}) == sum_of_x);
  CHECK(sum(x.T() + y).item<std::int64_t>() == sum_of_x + sum(y).item<std::int64_t>());
}

TEST_CASE("blocks move within a GPU's memory where what is free lies about in pieces") {
  GpuCluster gpu({.workers = 1, .memory_bytes = 256 << 20, .cuda_memory_bytes = kMemory});  // nothing below
  Session& s = *gpu.session;
  const std::vector<Device> devices = s.devices();
  const auto on_gpu = std::find_if(devices.begin(), devices.end(), [](const Device& device) {
    return device.name.find("cuda") != std::string::npos;
  });
  REQUIRE(on_gpu != devices.end());
  const auto filled = [&](std::uint64_t seed, std::int64_t mib) {
    const std::int64_t n = mib << 17;
    Array x = s.random.integers(0, 1000, {n}, {.seed = seed, .block = {n}}).on(*on_gpu);
    x.persist().wait();
    return x;
  };
  std::vector<std::optional<Array>> pieces;
  for (std::uint64_t i = 0; i < std::uint64_t{kMemory >> 20}; ++i) pieces.emplace_back(filled(i, 1));
  std::vector<std::vector<std::int64_t>> values;
  for (std::size_t i = 1; i < pieces.size(); i += 2) values.push_back(pieces[i]->get<std::int64_t>());
  for (std::size_t i = 0; i < pieces.size(); i += 2) pieces[i].reset();
  const Array large = filled(100, 3);  // four are free, each by itself
  CHECK(large.get<std::int64_t>().size() == 3 << 17);
  for (std::size_t i = 1; i < pieces.size(); i += 2) CHECK(pieces[i]->get<std::int64_t>() == values[i / 2]);
}

TEST_CASE("spill: pinned memory that is full is an error that says so, and the cluster goes on") {
  SpillCluster gpu(8 << 20, "");
  Session& s = *gpu.session;
  const auto gpus = static_cast<std::int64_t>(s.devices().size());
  Array first = s.random.uniform({256, 1024}, {.seed = 1, .block = {64, 512}});  // 2 MiB
  first.persist().wait();
  std::string story;
  CHECK(code_of(
            [&] {
              // Half a MiB more than there is, with the first one: 6 MiB of each GPU and 8 below. It fits on paper.
              s.random.uniform({768 * gpus + 832, 1024}, {.seed = 2, .block = {64, 512}}).persist().wait();
            },
            &story) == Errc::kOutOfMemory);
  CHECK(story.find("pinned memory") != std::string::npos);
  CHECK(code_of([&] {
          s.random.uniform({8192, 1024}, {.seed = 3, .block = {64, 512}}).persist().wait();
        }) == Errc::kOutOfMemory);  // refused
  CHECK(first.get<double>().size() == 256 * 1024);
  CHECK(sum(s.random.uniform({4096, 1024}, {.seed = 3, .block = {64, 512}})).item<double>() > 0);
}
