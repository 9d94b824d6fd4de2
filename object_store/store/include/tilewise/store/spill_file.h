// The disk below device memory: one private file, read and written at offsets that somebody else hands out, by threads of
// its own. It has no name (or loses it at once), so nothing is left of it however its process ends.
#pragma once
#include <tilewise/base/file.h>
#include <tilewise/base/result.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tilewise::store {

struct SpillOptions {
  std::string directory;         // on a local disk; empty: no spilling
  std::int64_t limit_bytes = 0;  // of the file; 0: half of what is free there now
  int threads = 2;
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

  // Before the first read or write: called by each of its threads, which count from 0, before and after every call to the system
  // that moves bytes, of at most 16 MiB.
  void on_io(std::function<void(int thread, bool begins)> hook) { on_io_ = std::move(hook); }

  std::int64_t limit_bytes() const { return limit_; }
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
  SpillFile(std::string directory, File file, bool direct, std::int64_t limit);
  void work(int thread);
  void push(Job job);
  Status run(const Job& job, std::byte* bounce, int thread) const;

  std::string directory_;
  const File file_;
  bool direct_;
  std::int64_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::function<void(int, bool)> on_io_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tilewise::store
