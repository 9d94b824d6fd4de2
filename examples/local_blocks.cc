// One array from rows that several processes have, and its blocks read where they lie. Here the processes are threads with a
// session each and a cluster inside this program; with daemons the same calls are made by a program per host.
//
//   local_blocks
#include <tilewise/embedded/cluster.h>
#include <tilewise/tilewise.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

namespace {

using namespace tilewise;

constexpr int kLoaders = 2;
constexpr std::int64_t kRows = 100'000, kColumns = 28;

double value(std::int64_t row, std::int64_t column) {
  return std::sin(static_cast<double>(row * kColumns + column));
}

std::vector<double> load_rows(std::int64_t first, std::int64_t count) {
  std::vector<double> rows;
  for (std::int64_t r = first; r < first + count; ++r) {
    for (std::int64_t c = 0; c < kColumns; ++c) rows.push_back(value(r, c));
  }
  return rows;
}

std::vector<double> loader(const Session& session, int index) {
  const std::int64_t first = index * kRows / kLoaders, count = (index + 1) * kRows / kLoaders - first;
  auto rows = std::make_shared<std::vector<double>>(load_rows(first, count));
  std::vector<LocalBlock<double>> pieces{{{first, 0}, {count, kColumns}, *rows, rows}};
  Array x = session.from_local_blocks("epoch 1", {kRows, kColumns}, pieces, {.processes = kLoaders});
  pieces.clear(), rows.reset();  // the cluster lets go of them when it has taken them over
  std::vector<double> means = mean(x, 0).get<double>();  // of all rows, the same for every loader

  if (index == 0) {
    std::int64_t here = 0, wrong = 0;
    for (const AddressableBlock& block : session.addressable_blocks(x)) {
      const double* at = block.values<double>().data();
      for (std::int64_t r = block.box.lo[0]; r < block.box.hi[0]; ++r) {
        for (std::int64_t c = block.box.lo[1]; c < block.box.hi[1]; ++c, ++here)
          wrong += *at++ != value(r, c);
      }
    }
    std::printf("%lld elements read in place, %lld wrong\n", static_cast<long long>(here),
                static_cast<long long>(wrong));
    if (wrong > 0 || here != kRows * kColumns) throw std::runtime_error("not the array that was loaded");
  }
  return means;
}

int run() {
  auto cluster = embedded::Cluster::start(
      {.workers = 2, .host_devices = 1, .use_cuda = false, .memory_bytes = 128 << 20});
  if (!cluster) throw ArrayError(cluster.error());
  std::vector<double> means[kLoaders];
  std::string failed;
  std::thread other([&] {
    try {
      means[1] = loader(make_session((*cluster)->connect("loader 1")), 1);
    } catch (const std::exception& e) {
      failed = e.what();
    }
  });
  const auto session = make_session((*cluster)->connect("loader 0"));
  try {
    means[0] = loader(session, 0);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  other.join();
  if (!failed.empty()) throw std::runtime_error(failed);
  double plain = 0;
  for (std::int64_t r = 0; r < kRows; ++r) plain += value(r, 0) / kRows;
  const bool good =
      means[0] == means[1] && means[0].size() == kColumns && std::abs(means[0][0] - plain) < 1e-12;
  std::printf("%zu column means, the same in both; the first is %.3e, a plain loop says %.3e%s\n",
              means[0].size(), means[0].empty() ? 0.0 : means[0][0], plain, good ? "" : "  WRONG");
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
