#include "bench_disk.h"

#include <tilewise/tilewise.h>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"

namespace tilewise::bench {
namespace {

constexpr std::int64_t kPiece = 8 << 20;

// A file read and written past the page cache by two threads, half of it each: what the disk does.
class RawFile {
 public:
  RawFile(std::string path, std::int64_t bytes) : path_(std::move(path)), bytes_(bytes & -kPiece) {}
  double write() const { return both(O_WRONLY | O_CREAT); }
  double read() const { return both(O_RDONLY); }
  std::int64_t bytes() const { return bytes_; }

 private:
  double both(int flags) const {
    const auto half = [&](std::int64_t begin, std::int64_t end) {
      const int fd = open(path_.c_str(), flags | O_DIRECT, 0600);
      const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, kPiece), std::free);
      for (std::int64_t at = begin; at < end; at += kPiece) {
        const ssize_t n = (flags & O_WRONLY) != 0 ? pwrite(fd, memory.get(), kPiece, at)
                                                  : pread(fd, memory.get(), kPiece, at);
        if (n != kPiece) bad_ = true;
      }
      if ((flags & O_WRONLY) != 0) fsync(fd);
      close(fd);
    };
    const double took = seconds_of([&] {
      const std::int64_t middle = bytes_ / kPiece / 2 * kPiece;
      std::thread second([&] { half(middle, bytes_); });
      half(0, middle);
      second.join();
    });
    if (bad_) throw std::runtime_error("direct I/O fails in " + path_);
    return took;
  }
  std::string path_;
  std::int64_t bytes_;
  mutable std::atomic<bool> bad_ = false;
};

void drop_cache(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  fsync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

double rate(std::int64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; }

// Bytes that came back from disk since `after_ns`.
std::int64_t came_back(const Session& session, std::int64_t after_ns) {
  std::int64_t bytes = 0;
  for (const TraceStep& step : session.trace().steps)
    if (step.kind == msg::TraceKind::kUnspill && step.start_ns >= after_ns) bytes += step.bytes;
  return bytes;
}

}  // namespace

void bench_spill(const Settings& settings, Report& report) {
  const std::int64_t arena = (settings.quick ? 64 : 256) << 20, columns = 512;
  const std::int64_t rows = 3 * 2 * arena / 8 / columns, block = arena / 16 / 8 / columns;
  const testing::TempFolder folder;
  const RandomOptions look{.seed = 5, .block = {block, columns}};
  const Cluster small(std::to_string(arena >> 20) + "MiB", {"--spill-dir", folder.path()});
  const Cluster large(std::to_string(4 * arena >> 20) + "MiB");
  const Session session = small.session(), plenty = large.session();
  Array x = session.random.uniform({rows, columns}, look),
        same = plenty.random.uniform({rows, columns}, look);
  x.persist().wait();
  same.persist().wait();
  // What cannot be in memory has to come from disk, at best.
  const RawFile raw(folder / "raw", 2 * 2 * arena);
  raw.write();
  struct Work {
    const char* name;
    std::function<Array(const Array&)> of;
  };
  const Work product{"X.T @ X, 3 x the arenas", [](const Array& a) { return matmul(a.T(), a); }};
  const Work column_mean{"column mean, 3 x the arenas", [](const Array& a) { return mean(a, 0); }};
  for (const Work& work : {product, column_mean}) {
    std::vector<double> ours, compute, disk, rates, best;
    for (int i = -1; i < settings.repeats; ++i) {
      const std::int64_t before = static_cast<std::int64_t>(now() * 1e9);
      std::vector<double> a, b;
      const double one = seconds_of([&] { a = work.of(x).get<double>(); });
      const std::int64_t bytes = came_back(session, before);
      const double two = seconds_of([&] { b = work.of(same).get<double>(); });
      const double three = raw.read();
      if (a != b) throw std::runtime_error(std::string(work.name) + ": other bits than in memory");
      if (i < 0) continue;
      ours.push_back(one);
      compute.push_back(two);
      disk.push_back(three);
      rates.push_back(rate(bytes, one));
      best.push_back(rate(raw.bytes(), three));
    }
    const bool bound_by_disk = median(disk) > median(compute);
    report.at_most({.metric = work.name,
                    .value = median(ours),
                    .unit = "s",
                    .reference = bound_by_disk ? "direct read of what memory cannot hold, 2 threads"
                                               : "the same in memory",
                    .reference_value = std::max(median(disk), median(compute))},
                   1.1);
    if (bound_by_disk)
      report.at_least({.metric = std::string(work.name) + ": from disk",
                       .value = median(rates),
                       .unit = "GB/s",
                       .reference = "direct read, 2 threads",
                       .reference_value = median(best)},
                      0.9);
  }
}

void bench_npy(const Settings& settings, Report& report) {
  const std::int64_t rows = settings.quick ? 16'384 : 61'440, columns = 8192, block = 1024;  // 4.03e9 bytes
  const std::int64_t bytes = rows * columns * 8;
  const testing::TempFolder folder;
  const std::string path = folder / "x.npy";
  const RawFile raw(folder / "raw", bytes);
  const Cluster cluster(std::to_string(bytes / 2 / (1 << 20) + 512) + "MiB");
  const Session session = cluster.session();
  Array x = session.random.uniform({rows, columns}, {.seed = 5, .block = {block, columns}});
  x.persist().wait();
  std::vector<double> write, raw_write, read, raw_read;
  const double wanted = sum(x).item<double>();
  for (int i = 0; i < settings.repeats; ++i) {
    std::filesystem::remove(path);
    write.push_back(rate(bytes, seconds_of([&] { x.save_npy(path).wait(); })));
    std::filesystem::remove(folder / "raw");
    raw_write.push_back(rate(raw.bytes(), raw.write()));
  }
  x = Array();  // its memory is for reading now
  for (int i = 0; i < settings.repeats; ++i) {
    drop_cache(path);
    Array y = session.load_npy(path, {.block = {block, columns}});
    read.push_back(rate(bytes, seconds_of([&] { y.persist().wait(); })));
    if (i == 0 && sum(y).item<double>() != wanted) throw std::runtime_error("other values came back");
    raw_read.push_back(rate(raw.bytes(), raw.read()));
  }
  const std::string size = std::to_string(bytes / 1'000'000) + " MB";
  report.at_least({.metric = ".npy write, " + size,
                   .value = median(write),
                   .unit = "GB/s",
                   .reference = "direct write and fsync, 2 threads",
                   .reference_value = median(raw_write)},
                  0.95);
  report.at_least({.metric = ".npy read, " + size,
                   .value = median(read),
                   .unit = "GB/s",
                   .reference = "direct read, 2 threads",
                   .reference_value = median(raw_read)},
                  0.95);
}

}  // namespace tilewise::bench
