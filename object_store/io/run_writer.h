// Writes runs of bytes into a file that others fill beside us, on this host or another.
//
// Long runs go past the page cache, straight from where they are if their address allows it, else by way of a small buffer. Through
// the cache each byte is copied, waits for the disk all the same (commit() ends with fsync), and under load 10 times as long:
// writers of dirty pages are made to wait for each other. Only whole pages of a run go that way. The pages at its ends may be
// somebody else's too, who would write them at the same time: these are the cache's, which knows of both.
#pragma once
#include <tilewise/base/file.h>

#include <cstdlib>
#include <memory>
#include <optional>

namespace tilewise::io {

class RunWriter {
 public:
  static constexpr std::int64_t kPage = 4096;
  static constexpr std::int64_t kLongRun = 1 << 20;  // shorter ones: through the cache

  // `direct`: long runs go past the cache, where the file system knows how.
  static Result<RunWriter> open(const std::string& path, bool direct);
  Status write(const std::byte* data, std::int64_t bytes, std::int64_t offset);

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  explicit RunWriter(File file) : file_(std::move(file)) {}
  Status write_pages(const std::byte* data, std::int64_t bytes, std::int64_t offset);

  File file_;
  std::optional<File> direct_;
  std::int64_t memory_alignment_ = kPage;
  std::unique_ptr<std::byte, Free> buffer_;
};

}  // namespace tilewise::io
