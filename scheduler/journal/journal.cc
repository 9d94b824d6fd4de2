#include <tilewise/base/digest.h>
#include <tilewise/base/file.h>
#include <tilewise/journal/journal.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

namespace tilewise::journal {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'L', 'W', 'J', 'R', 'N', 'L', '1'};
constexpr std::size_t kMaxSoftware = 64;

struct FileHeader {
  char magic[8];
  std::uint64_t state;
  std::uint32_t term, software_bytes;
  char software[kMaxSoftware];
  std::uint64_t checksum;  // of what is before
};
static_assert(sizeof(FileHeader) == 96);

struct RecordHeader {
  std::uint32_t kind, number;  // numbers rise by one
  std::uint64_t bytes;
  std::uint64_t checksum;  // of what is before, and of the bytes
};
static_assert(sizeof(RecordHeader) == 24);

std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

std::uint64_t checksum(const void* head, std::size_t head_bytes, std::string_view body) {
  Digest d;
  d.mix(std::string_view(static_cast<const char*>(head), head_bytes));
  d.mix(body);
  return d.value();
}
std::uint64_t checksum(const RecordHeader& header, std::string_view body) {
  return checksum(&header, offsetof(RecordHeader, checksum), body);
}

void add_record(std::string& out, std::uint32_t kind, std::uint32_t number, std::string_view bytes) {
  RecordHeader header{kind, number, bytes.size(), 0};
  header.checksum = checksum(header, bytes);
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  out.append(bytes);
  out.append(padded(bytes.size()) - bytes.size(), '\0');
}

// A whole record at `at`, or none.
bool record_at(std::string_view file, std::size_t at, RecordHeader& header, std::string_view& bytes) {
  if (at + sizeof header > file.size()) return false;
  std::memcpy(&header, file.data() + at, sizeof header);
  if (header.bytes > kMaxRecordBytes || header.bytes > file.size() - at - sizeof header) return false;
  bytes = file.substr(at + sizeof header, header.bytes);
  return header.checksum == checksum(header, bytes);
}

// A good record of a later number behind `at`.
bool goes_on(std::string_view file, std::size_t at, std::uint32_t number) {
  RecordHeader header{};
  std::string_view bytes;
  for (at += 8; at + sizeof header <= file.size(); at += 8) {
    std::memcpy(&header, file.data() + at, sizeof header);
    if (header.number > number && header.kind > 0 && header.kind < 256 && record_at(file, at, header, bytes))
      return true;
  }
  return false;
}

constexpr std::string_view kUnfinished = "next";  // and what mkstemp() makes of it

// Never onto what is there: EEXIST.
int rename_to_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(from.c_str(), to.c_str()) != 0) return errno;  // NFS knows no such renaming
  return ::unlink(from.c_str()) == 0 ? 0 : errno;
}

}  // namespace

std::string Journal::path(std::uint64_t generation) const {
  return directory_ + "/journal." + std::to_string(generation);
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& directory, Options options) {
  std::error_code failed;
  if (fs::create_directories(directory, failed)) fs::permissions(directory, fs::perms::owner_all, failed);
  if (failed) return error(Errc::kIo, directory + ": " + failed.message());
  const std::string lock_path = directory + "/lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return file_error(errno, lock_path, "open");
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    char owner[32] = {};
    (void)!::read(lock, owner, sizeof owner - 1);
    ::close(lock);
    return error(Errc::kAlreadyExists, "the state directory " + directory + " is in use by process " + owner);
  }
  const std::string pid = std::to_string(::getpid());
  (void)!::ftruncate(lock, 0);
  (void)!::pwrite(lock, pid.data(), pid.size(), 0);
  std::unique_ptr<Journal> journal(new Journal(directory, options, lock));
  TW_ASSIGN(const std::vector<std::uint64_t> there, journal->generations());
  for (const std::uint64_t generation : there)
    journal->generation_ = std::max(journal->generation_, generation);
  return journal;
}

Result<std::vector<std::uint64_t>> Journal::generations() const {
  std::vector<std::uint64_t> found;
  std::error_code failed;
  for (fs::directory_iterator at(directory_, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("journal.")) continue;
    std::uint64_t generation = 0;
    const char* last = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + 8, last, generation);
    if (parsed.ptr == last && parsed.ec == std::errc()) found.push_back(generation);
  }
  if (failed) return file_error(failed.value(), directory_, "cannot be read");
  return found;
}

Error Journal::overtaken(const std::string& how) const {
  return error(Errc::kAlreadyExists,
               "another scheduler has gone on from the state in " + directory_ + ": " + how);
}

Status Journal::check_last() const {
  TW_ASSIGN(const std::vector<std::uint64_t> there, generations());
  bool ours = generation_ == 0;  // nothing was there
  for (const std::uint64_t generation : there) {
    if (generation > generation_) return overtaken(path(generation) + " is not of this one's making");
    ours |= generation == generation_;
  }
  if (!ours) return overtaken(path(generation_) + " is gone");
  if (!file_) return {};
  struct stat mine {
  }, named{};
  if (::fstat(file_->fd(), &mine) != 0) return file_error(errno, file_->path(), "stat");
  if (::stat(path(generation_).c_str(), &named) != 0) return file_error(errno, path(generation_), "stat");
  if (mine.st_dev != named.st_dev || mine.st_ino != named.st_ino)
    return overtaken(path(generation_) + " is another file");
  return {};
}

Journal::~Journal() {
  if (lock_ >= 0) ::close(lock_);
}

Result<Journal::Past> Journal::read(
    const std::function<Status(const Header&)>& begin,
    const std::function<Status(std::uint32_t kind, std::string_view bytes)>& visit) {
  Past past;
  if (generation_ == 0) return past;
  const std::string name = path(generation_);
  TW_ASSIGN(const File opened, File::open(name, O_RDONLY));
  TW_ASSIGN(const std::int64_t size, opened.size());
  std::string file(static_cast<std::size_t>(size), '\0');
  TW_TRY(opened.read(file.data(), file.size(), 0));
  FileHeader head{};
  if (file.size() < sizeof head) return error(Errc::kCorruptData, name + ": shorter than its header");
  std::memcpy(&head, file.data(), sizeof head);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 || head.software_bytes > kMaxSoftware ||
      head.checksum != checksum(&head, offsetof(FileHeader, checksum), {}))
    return error(Errc::kCorruptData, name + ": not a scheduler's journal, or its header is damaged");
  past.any = true;
  past.header = {head.state, head.term, std::string(head.software, head.software_bytes)};
  TW_TRY(begin(past.header));
  std::size_t at = sizeof head;
  for (std::uint32_t number = 0; at < file.size(); ++number) {
    RecordHeader record{};
    std::string_view bytes;
    const bool whole = record_at(file, at, record, bytes) && record.number == number;
    if (!whole && (number == 0 || goes_on(file, at, number)))
      return error(Errc::kCorruptData, name + ": record " + std::to_string(number) + " at byte " +
                                           std::to_string(at) + " is damaged");
    if (!whole) break;
    TW_TRY(visit(record.kind, bytes));
    ++past.records;
    at += sizeof record + padded(record.bytes);
  }
  if (past.records == 0) return error(Errc::kCorruptData, name + ": has no snapshot");
  past.torn = file.size() - std::min(at, file.size());
  return past;
}

Status Journal::begin(const Header& header, std::string_view snapshot) {
  const std::string name = path(generation_ + 1);
  FileHeader head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.state = header.state;
  head.term = header.term;
  head.software_bytes = static_cast<std::uint32_t>(std::min(header.software.size(), kMaxSoftware));
  std::memcpy(head.software, header.software.data(), head.software_bytes);
  head.checksum = checksum(&head, offsetof(FileHeader, checksum), {});
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  add_record(bytes, 0, 0, snapshot);
  TW_TRY(check_last());
  // A name of its own: whoever else writes here now has another.
  std::string fresh = directory_ + "/" + std::string(kUnfinished) + ".XXXXXX";
  const int fd = ::mkostemp(fresh.data(), O_CLOEXEC);
  if (fd < 0) return file_error(errno, directory_, "cannot make a file in it");
  File made = File::adopt(name, fd);
  Status written = made.write(bytes.data(), bytes.size(), 0);
  if (written) written = made.sync();
  if (written) written = check_last();
  if (written) {
    const int failed = rename_to_new(fresh, name);
    if (failed == EEXIST)
      written = overtaken(name + " is not of this one's making");
    else if (failed != 0)
      written = file_error(failed, name, "cannot rename to it");
  }
  if (!written) {
    ::unlink(fresh.c_str());
    return written;
  }
  TW_ASSIGN(const std::vector<std::uint64_t> there, generations());
  if (const auto later =
          std::find_if(there.begin(), there.end(), [&](std::uint64_t g) { return g > generation_ + 1; });
      later != there.end()) {  // it was too quick for the look before
    ::unlink(name.c_str());
    return overtaken(path(*later) + " is not of this one's making");
  }
  TW_ASSIGN(const File folder, File::open(directory_, O_RDONLY | O_DIRECTORY));
  TW_TRY(folder.sync());
  const bool takes_over = !file_;
  file_.emplace(std::move(made));
  begins_ = static_cast<std::int64_t>(bytes.size());
  bytes_ = 0;
  ++generation_;
  number_ = 0;
  buffer_.clear();
  // More than one where a death came between the rename and this.
  for (const std::uint64_t generation : there) {
    if (generation < generation_) ::unlink(path(generation).c_str());
  }
  if (takes_over) remove_unfinished();
  return {};
}

// What the dead left, or one who thinks that the state is his: then he cannot finish it.
void Journal::remove_unfinished() const {
  std::error_code ignored;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
    if (entry.path().filename().string().starts_with(kUnfinished)) unfinished.push_back(entry.path());
  }
  for (const fs::path& file : unfinished) fs::remove(file, ignored);
}

void Journal::append(std::uint32_t kind, std::string_view bytes) {
  add_record(buffer_, kind, ++number_, bytes);
}

Status Journal::flush() {
  if (buffer_.empty()) return {};
  // Whoever goes on from this file removes it. (Elsewhere: a file that a server has removed cannot be written, ESTALE.)
  struct stat mine {};
  if (::fstat(file_->fd(), &mine) != 0) return file_error(errno, file_->path(), "stat");
  if (mine.st_nlink == 0) return overtaken(file_->path() + " was removed");
  TW_TRY(file_->write(buffer_.data(), buffer_.size(), begins_ + static_cast<std::int64_t>(bytes_)));
  bytes_ += buffer_.size();
  buffer_.clear();
  return options_.sync ? file_->sync() : Status();
}

}  // namespace tilewise::journal
