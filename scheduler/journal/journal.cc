#include <tilewise/base/digest.h>
#include <tilewise/base/file.h>
#include <tilewise/journal/journal.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
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
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    const std::string name = entry.path().filename().string();
    std::uint64_t generation = 0;
    if (!name.starts_with("journal.")) continue;
    const char* first = name.data() + 8;
    const auto parsed = std::from_chars(first, name.data() + name.size(), generation);
    if (parsed.ptr == name.data() + name.size() && parsed.ec == std::errc())
      journal->generation_ = std::max(journal->generation_, generation);
  }
  if (failed) return error(Errc::kIo, directory + ": " + failed.message());
  return journal;
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
  const std::string fresh = directory_ + "/next", name = path(generation_ + 1);
  FileHeader head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.state = header.state;
  head.term = header.term;
  head.software_bytes = static_cast<std::uint32_t>(std::min(header.software.size(), kMaxSoftware));
  std::memcpy(head.software, header.software.data(), head.software_bytes);
  head.checksum = checksum(&head, offsetof(FileHeader, checksum), {});
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  add_record(bytes, 0, 0, snapshot);
  TW_ASSIGN(File made, File::open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  TW_TRY(made.write(bytes.data(), bytes.size(), 0));
  TW_TRY(made.sync());
  if (::rename(fresh.c_str(), name.c_str()) != 0) return file_error(errno, name, "cannot rename to it");
  TW_ASSIGN(const File folder, File::open(directory_, O_RDONLY | O_DIRECTORY));
  TW_TRY(folder.sync());
  file_.emplace(std::move(made));
  begins_ = static_cast<std::int64_t>(bytes.size());
  bytes_ = 0;
  ++generation_;
  number_ = 0;
  buffer_.clear();
  // All that are older: more than one where a death came between the rename and this.
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with("journal.") && entry.path() != fs::path(name)) old.push_back(entry.path());
  }
  for (const fs::path& file : old) fs::remove(file, ignored);
  return {};
}

void Journal::append(std::uint32_t kind, std::string_view bytes) {
  add_record(buffer_, kind, ++number_, bytes);
}

Status Journal::flush() {
  if (buffer_.empty()) return {};
  TW_TRY(file_->write(buffer_.data(), buffer_.size(), begins_ + static_cast<std::int64_t>(bytes_)));
  bytes_ += buffer_.size();
  buffer_.clear();
  return options_.sync ? file_->sync() : Status();
}

}  // namespace tilewise::journal
