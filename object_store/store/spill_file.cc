#include <tilewise/base/text.h>
#include <tilewise/store/spill_file.h>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace tilewise::store {
namespace {

constexpr std::int64_t kBounce = 1 << 20;  // of each thread, for memory that direct I/O cannot take
constexpr std::int64_t kCall = 16 << 20;   // at most in one system call
constexpr std::size_t kAlignment = 512;    // of memory for direct I/O
// What is vacated is mostly written again soon, while the file is in use; and its blocks would have to be found on the disk again.
constexpr TimeNs kQuiet = 1 * kSecond;
constexpr std::int64_t kMuch = 256 << 20;
constexpr std::int64_t kHole = 1 << 30;  // at most in one system call

// Without a name from the start, or where the file system does not know such files, from at once.
int open_nameless(const std::string& directory, int flags) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) return -1;
  const std::string path = directory + "/.tilewise-spill-" + std::to_string(number);
  const int named = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (named >= 0) unlink(path.c_str());
  return named;
}

struct Aligned {
  explicit Aligned(std::int64_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(SpillFile::kPage, static_cast<std::size_t>(bytes)))) {
    if (data != nullptr) std::memset(data, 0, static_cast<std::size_t>(bytes));
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::byte* data;
};

// Some file systems take the flag and refuse the transfer.
bool takes_direct(int fd) {
  const Aligned page(2 * SpillFile::kPage);
  if (page.data == nullptr) return false;
  std::byte* memory = page.data + kAlignment;
  const bool ok = pwrite(fd, memory, SpillFile::kPage, 0) == SpillFile::kPage &&
                  pread(fd, memory, SpillFile::kPage, 0) == SpillFile::kPage;
  return ftruncate(fd, 0) == 0 && ok;
}

bool makes_holes(int fd) {
  return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SpillFile::kPage) == 0;
}

}  // namespace

Result<std::unique_ptr<SpillFile>> SpillFile::open(const SpillOptions& options) {
  const std::string& directory = options.directory;
  if (directory.empty() || directory.find('\0') != std::string::npos)
    return error(Errc::kInvalidArgument, "a spill directory is empty or holds a NUL");
  if (options.limit_bytes < 0 || options.threads < 1 || options.threads > 64)
    return error(Errc::kInvalidArgument, "a spill file needs a limit and 1 to 64 threads");
  struct statvfs fs {};
  if (statvfs(directory.c_str(), &fs) != 0)
    return file_error(errno, "spill file in " + directory, "no such directory");
  const auto free_bytes = static_cast<std::int64_t>(fs.f_bavail) * static_cast<std::int64_t>(fs.f_frsize);
  const std::int64_t limit = (options.limit_bytes > 0 ? options.limit_bytes : free_bytes / 2) & -kPage;
  if (limit < kPage)
    return error(Errc::kDiskFull,
                 "spill file in " + directory + ": " + std::to_string(free_bytes) + " bytes free");
  const std::string name = "spill file in " + directory;
  std::optional<File> data;
  if (const int fd = open_nameless(directory, O_DIRECT); fd >= 0) data.emplace(File::adopt(name, fd));
  const bool direct = data && takes_direct(data->fd());
  if (!direct) {
    const int fd = open_nameless(directory, 0);
    if (fd < 0) return file_error(errno, name, "cannot be made");
    data.emplace(File::adopt(name, fd));
  }
  std::unique_ptr<SpillFile> file(
      new SpillFile(directory, std::move(*data), direct, limit, free_bytes, options));
  for (int i = 0; i < options.threads; ++i) file->threads_.emplace_back([f = file.get(), i] { f->work(i); });
  return file;
}

SpillFile::SpillFile(std::string directory, File file, bool direct, std::int64_t limit,
                     std::int64_t free_at_start, const SpillOptions& options)
    : directory_(std::move(directory)),
      file_(std::move(file)),
      direct_(direct),
      limit_(limit),
      free_at_start_(free_at_start),
      holes_(options.holes && makes_holes(file_.fd())),
      running_(static_cast<std::size_t>(options.threads)) {}

SpillFile::~SpillFile() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void SpillFile::write(std::int64_t at, const std::byte* from, std::int64_t bytes, Done done) {
  push({true, at, bytes, const_cast<std::byte*>(from), std::move(done)});
}

void SpillFile::read(std::int64_t at, std::byte* to, std::int64_t bytes, Done done) {
  push({false, at, bytes, to, std::move(done)});
}

void SpillFile::push(Job job) {
  {
    std::lock_guard lock(mutex_);
    if (job.write) {
      const Range range = range_of(job);
      revive(range);
      // What is cut at the end has to be all dead: what was left out, too.
      if (!holes_ && range.begin > end_) dead_.emplace(end_, range.begin), dead_bytes_ += range.begin - end_;
      end_ = std::max(end_, range.end);
    }
    jobs_.push_back(std::move(job));
    last_use_ = monotonic_now();
  }
  changed_.notify_one();
}

void SpillFile::work(int thread) {
  const Aligned bounce(kBounce);
  std::optional<Range>& mine = running_[static_cast<std::size_t>(thread)];
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const bool much = dead_bytes_ >= std::max(kMuch, taken_ / 2);
    const TimeNs quiet_at = last_use_ + kQuiet;
    const bool quiet = jobs_.empty() && monotonic_now() >= quiet_at;
    const std::optional<Range> hole = giving_back_ ? std::nullopt : next_hole();
    if (hole && (much || quiet)) {
      give_back(lock, *hole, thread);
    } else if (!jobs_.empty() && !(giving_back_ && giving_back_->meets(range_of(jobs_.front())))) {
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      mine = range_of(job);
      lock.unlock();
      Status status = bounce.data == nullptr
                          ? Status(error(Errc::kOutOfMemory, "no memory for a spill file's buffer"))
                          : run(job, bounce.data, thread);
      if (job.write) measure();
      lock.lock();
      mine.reset();  // before `done`, after which the part may be vacated
      last_use_ = monotonic_now();
      lock.unlock();
      job.done(std::move(status));
      job = {};
      lock.lock();
    } else if (hole && jobs_.empty()) {
      changed_.wait_for(lock, std::chrono::nanoseconds(quiet_at - monotonic_now()));
    } else {
      changed_.wait(lock);
    }
  }
}

// ---- giving back ---------------------------------------------------------------------------------------------------

void SpillFile::vacate(std::int64_t at, std::int64_t bytes) {
  if (bytes <= 0) return;
  {
    std::lock_guard lock(mutex_);
    add_dead({at, at + ((bytes + kPage - 1) & -kPage)});
    last_use_ = monotonic_now();
  }
  changed_.notify_one();
}

// What lies beyond the end was promised, and never written.
void SpillFile::add_dead(Range range) {
  range.end = std::min(range.end, end_);
  if (range.begin >= range.end) return;
  revive(range);  // lest it be counted twice
  dead_bytes_ += range.end - range.begin;
  const auto after = dead_.lower_bound(range.begin);
  if (after != dead_.end() && after->first == range.end) range.end = after->second, dead_.erase(after);
  const auto next = dead_.lower_bound(range.begin);
  if (next != dead_.begin() && std::prev(next)->second == range.begin)
    std::prev(next)->second = range.end;
  else
    dead_.emplace(range.begin, range.end);
}

// What is written, or given back, is no longer dead.
void SpillFile::revive(const Range& range) {
  auto it = dead_.upper_bound(range.begin);
  if (it != dead_.begin()) --it;
  while (it != dead_.end() && it->first < range.end) {
    const Range dead{it->first, it->second};
    if (!dead.meets(range)) {
      ++it;
      continue;
    }
    it = dead_.erase(it);
    dead_bytes_ -= std::min(dead.end, range.end) - std::max(dead.begin, range.begin);
    if (dead.begin < range.begin) dead_.emplace(dead.begin, range.begin);
    if (dead.end > range.end) dead_.emplace(range.end, dead.end);
  }
}

bool SpillFile::in_use(const Range& range) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const auto& job) { return job && job->meets(range); }) ||
         std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& job) { return range_of(job).meets(range); });
}

std::optional<SpillFile::Range> SpillFile::next_hole() const {
  if (!holes_) {  // then only what nothing lies after
    if (dead_.empty()) return std::nullopt;
    const Range last{dead_.rbegin()->first, INT64_MAX};
    return dead_.rbegin()->second < end_ || in_use(last) ? std::nullopt : std::optional(last);
  }
  for (const auto& [begin, end] : dead_) {
    const Range hole{begin, std::min(end, begin + kHole)};
    if (!in_use(hole)) return hole;
  }
  return std::nullopt;
}

void SpillFile::give_back(std::unique_lock<std::mutex>& lock, const Range& hole, int thread) {
  const bool cut = !holes_;
  revive(hole);
  if (cut) end_ = hole.begin;
  giving_back_ = hole;
  lock.unlock();
  if (on_io_) on_io_(thread, true);
  int failed = 0;
  do {
    failed = (cut ? ftruncate(file_.fd(), hole.begin)
                  : fallocate(file_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, hole.begin,
                              hole.end - hole.begin)) == 0
                 ? 0
                 : errno;
  } while (failed == EINTR);
  if (on_io_) on_io_(thread, false);
  measure();
  lock.lock();
  giving_back_.reset();
  if (!cut && failed != 0) {
    holes_ = false;
    if (!in_use(hole)) add_dead(hole);
  }
  changed_.notify_all();
}

void SpillFile::measure() {
  struct stat st {};
  if (fstat(file_.fd(), &st) != 0) return;
  const std::int64_t now = std::int64_t{st.st_blocks} * 512;
  if (taken_.exchange(now) != now && on_taken_) on_taken_(now);
}

// A disk that is full is so for reasons of its own, mostly: what others have there.
Status SpillFile::explained(const Error& why) const {
  struct statvfs fs {};
  if (why.code != Errc::kDiskFull || fstatvfs(file_.fd(), &fs) != 0) return why;
  return error(why.code, why.message + "; the file takes " + bytes_text(taken_) + " of the " +
                             bytes_text(limit_) + " that it may, and the disk has " +
                             bytes_text(static_cast<std::int64_t>(fs.f_bavail) *
                                        static_cast<std::int64_t>(fs.f_frsize)) +
                             " free");
}

// ---- reading and writing -------------------------------------------------------------------------------------------

// Straight from and to the block's memory where its address allows, else by way of `bounce`; so is the end of a block that
// does not fill its last page.
Status SpillFile::run(const Job& job, std::byte* bounce, int thread) const {
  if (job.at % kPage != 0 || job.at < 0 || job.bytes < 0 || job.at + job.bytes > limit_)
    return error(Errc::kInternal, "bytes " + std::to_string(job.at) + " to " +
                                      std::to_string(job.at + job.bytes) + " of a spill file of " +
                                      std::to_string(limit_));
  const bool straight = !direct_ || reinterpret_cast<std::uintptr_t>(job.memory) % kAlignment == 0;
  const auto move = [&](std::byte* memory, std::int64_t at, std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    if (on_io_) on_io_(thread, true);
    Status moved = job.write ? file_.write(memory, size, at) : file_.read(memory, size, at);
    if (on_io_) on_io_(thread, false);
    return moved ? moved : explained(moved.error());
  };
  for (std::int64_t done = 0; done < job.bytes;) {
    const std::int64_t left = job.bytes - done;
    if (const std::int64_t whole = direct_ ? left & -kPage : left; straight && whole > 0) {
      const std::int64_t part = std::min(whole, kCall);
      TW_TRY(move(job.memory + done, job.at + done, part));
      done += part;
      continue;
    }
    const std::int64_t part = std::min(left, kBounce);
    const auto size = static_cast<std::size_t>(part);
    if (job.write) std::memcpy(bounce, job.memory + done, size);
    TW_TRY(move(bounce, job.at + done, (part + kPage - 1) & -kPage));
    if (!job.write) std::memcpy(job.memory + done, bounce, size);
    done += part;
  }
  return {};
}

}  // namespace tilewise::store
