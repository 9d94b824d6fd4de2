// The disk below device memory: one private file, read and written at offsets that somebody else hands out, by threads of
// its own. It has no name (or loses it at once), so nothing is left of it however its process ends.
#pragma once
#include <tilewise/base/file.h>
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tilewise::store {

struct SpillOptions {
  std::string directory;         // on a local disk; empty: no spilling
  std::int64_t limit_bytes = 0;  // of the file; 0: half of what is free there now
  int threads = 2;
  bool holes = true;  // false: as on a file system that cannot give back what lies within a file
  friend bool operator==(const SpillOptions&, const SpillOptions&) = default;
};

class SpillFile {
 public:
  static constexpr std::int64_t kPage = 4096;  // offsets are multiples of it, and parts are rounded up to it
  using Done = std::function<void(Status)>;    // on one of the file's threads

  // The directory has to exist and be writable: kNotFound, kPermissionDenied, kInvalidArgument, kDiskFull, kIo. Mode 0600.
  static Result<std::unique_ptr<SpillFile>> open(const SpillOptions& options);
  ~SpillFile();  // ends what a thread has begun; what is queued is dropped, its `done` destroyed uncalled

  // Any thread. `at` is a multiple of kPage; the part [at, at + bytes rounded up) is the caller's alone until `done`, and so
  // is the memory. In order of the calls as far as they begin, but several are under way at once. kDiskFull, kIo.
  void write(std::int64_t at, const std::byte* from, std::int64_t bytes, Done done);
  void read(std::int64_t at, std::byte* to, std::int64_t bytes, Done done);

  // Any thread. What lies there is of no use any more: the disk gets it back, when the file has not been used for a second, or as soon as
  // that is much (256 MiB and half of what the file takes); where the file system cannot make holes, only what lies at the end. Never what is read or written, or is to
  // be: that comes before this call, or, written, after it.
  void vacate(std::int64_t at, std::int64_t bytes);

  // Before the first read or write, on one of its threads: what it takes on the disk has changed.
  void on_taken(std::function<void(std::int64_t bytes)> hook) { on_taken_ = std::move(hook); }
  std::int64_t taken_bytes() const { return taken_; }

  // Before the first read or write: called by each of its threads, which count from 0, before and after every call to the system
  // that moves bytes, of at most 16 MiB, or gives space back.
  void on_io(std::function<void(int thread, bool begins)> hook) { on_io_ = std::move(hook); }

  std::int64_t limit_bytes() const { return limit_; }
  std::int64_t free_at_start() const { return free_at_start_; }  // on the disk
  // Past the page cache; false where the file system cannot (tmpfs, some network ones).
  bool direct() const { return direct_; }
  const std::string& directory() const { return directory_; }

 private:
  struct Job {
    bool write = false;
    std::int64_t at = 0, bytes = 0;
    std::byte* memory = nullptr;
    Done done;
  };
  struct Range {
    std::int64_t begin = 0, end = 0;
    bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  static Range range_of(const Job& job) { return {job.at, job.at + ((job.bytes + kPage - 1) & -kPage)}; }
  SpillFile(std::string directory, File file, bool direct, std::int64_t limit, std::int64_t free_at_start,
            const SpillOptions& options);
  void work(int thread);
  void push(Job job);
  Status run(const Job& job, std::byte* bounce, int thread) const;
  Status explained(const Error& why) const;
  // Under `mutex_`.
  void revive(const Range& range);
  void add_dead(Range range);
  bool in_use(const Range& range) const;
  std::optional<Range> next_hole() const;
  void give_back(std::unique_lock<std::mutex>& lock, const Range& hole, int thread);
  void measure();

  std::string directory_;
  const File file_;
  bool direct_;
  std::int64_t limit_, free_at_start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::function<void(int, bool)> on_io_;
  std::function<void(std::int64_t)> on_taken_;
  std::atomic<std::int64_t> taken_ = 0;
  bool ending_ = false;
  bool holes_;  // the file system can make them, as far as is known
  std::map<std::int64_t, std::int64_t>
      dead_;                               // vacated, and not given back: begin -> end, apart from each other
  std::int64_t dead_bytes_ = 0, end_ = 0;  // no part that was written and not given back ends after it
  std::vector<std::optional<Range>> running_;  // by thread
  std::optional<Range> giving_back_;           // whoever is to read or write there waits
  TimeNs last_use_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace tilewise::store
