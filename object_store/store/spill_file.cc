#include <tilewise/store/spill_file.h>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace tilewise::store {
namespace {

constexpr std::int64_t kBounce = 1 << 20;  // of each thread, for memory that direct I/O cannot take
constexpr std::int64_t kCall = 16 << 20;   // at most in one system call
constexpr std::size_t kAlignment = 512;    // of memory for direct I/O

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
  std::unique_ptr<SpillFile> file(new SpillFile(directory, std::move(*data), direct, limit));
  for (int i = 0; i < options.threads; ++i) file->threads_.emplace_back([f = file.get(), i] { f->work(i); });
  return file;
}

SpillFile::SpillFile(std::string directory, File file, bool direct, std::int64_t limit)
    : directory_(std::move(directory)), file_(std::move(file)), direct_(direct), limit_(limit) {}

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
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void SpillFile::work(int thread) {
  const Aligned bounce(kBounce);
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.done(bounce.data == nullptr ? error(Errc::kOutOfMemory, "no memory for a spill file's buffer")
                                    : run(job, bounce.data, thread));
  }
}

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
    return moved;
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
