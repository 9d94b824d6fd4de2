// An append-only file of checksummed records in a directory that one process uses at a time.
//
//   <dir>/lock                     locked while somebody has it open; holds that process's id
//   <dir>/journal.<generation>     a header, the snapshot that it begins with, and what came since
//
// A new generation is written beside the old one, made durable, and renamed into place; then the old one goes. So there is
// always one that begins with a whole snapshot. The lock may be lost without a word (a lease of NFS, a host that was suspended), so
// whoever writes looks whether its generation is still there under its name and the last one: who finds that another process has gone
// on from it touches nothing more. A generation is never put in another one's place, nor is a later one removed. A record that was cut short by a death is the last one: it is dropped,
// and said. A record that is wrong with good ones behind it is kCorruptData: somebody else's doing, and nobody should go on
// from a guess.
#pragma once
#include <tilewise/base/file.h>
#include <tilewise/base/result.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::journal {

constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 32;

struct Header {
  std::uint64_t state = 0;  // names this state, in all its generations
  std::uint32_t term = 0;   // of the life that writes
  std::string software;     // version of who writes; at most 64 bytes
};

class Journal {
 public:
  struct Options {
    bool sync = false;  // every flush() waits for the disk: outlives the host's death, not only the process's
  };
  // Makes the directory (0700) if need be. kAlreadyExists: another process has it, named by its id. kIo, kDiskFull.
  static Result<std::unique_ptr<Journal>> open(const std::string& directory, Options options);
  ~Journal();  // what was not flushed is dropped: nobody has been told of it

  // What was written before, if anything: the snapshot first (kind 0). visit: false ends it. The bytes are valid during
  // the call. kCorruptData names the file and the place; `torn` (of a good one): bytes at the end that were dropped.
  struct Past {
    bool any = false;
    Header header;
    std::uint64_t records = 0, torn = 0;
  };
  Result<Past> read(const std::function<Status(const Header&)>& begin,
                    const std::function<Status(std::uint32_t kind, std::string_view bytes)>& visit);

  // Begins a new generation. Durable, and the old one gone, when it returns. kAlreadyExists: another process has gone on from
  // here; nothing of its was touched.
  Status begin(const Header& header, std::string_view snapshot);

  // Into memory; kind 1 or more. Only after begin().
  void append(std::uint32_t kind, std::string_view bytes);
  // What was appended is the operating system's (sync: the disk's) when it returns. Nothing to do: no system call. kAlreadyExists:
  // as of begin().
  Status flush();

  std::uint64_t bytes() const {
    return bytes_ + buffer_.size();
  }  // of this generation, its snapshot not counted
  std::size_t buffered() const { return buffer_.size(); }

 private:
  Journal(std::string directory, Options options, int lock)
      : directory_(std::move(directory)), options_(options), lock_(lock) {}
  std::string path(std::uint64_t generation) const;
  Result<std::vector<std::uint64_t>> generations() const;  // that there are
  Status check_last() const;                               // ours is there, and the last one
  void remove_unfinished() const;
  Error overtaken(const std::string& how) const;

  const std::string directory_;
  const Options options_;
  int lock_ = -1;
  std::optional<File> file_;      // of the generation in use
  std::int64_t begins_ = 0;       // where in it the records behind the snapshot begin
  std::uint64_t generation_ = 0;  // in use, or the last one there was
  std::uint32_t number_ = 0;      // of the last record
  std::uint64_t bytes_ = 0;
  std::string buffer_;
};

}  // namespace tilewise::journal
