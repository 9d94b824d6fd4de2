// The last lines of a log, in memory, to be read and searched from the page. Any thread.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tilewise::dashboard {

struct LogLine {
  std::uint64_t number = 0;  // from 1, without gaps
  std::int64_t wall_ms = 0;  // since 1970
  int level = 1;             // 0 debug, 1 info, 2 warning, 3 error
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};

class LogRing {
 public:
  static constexpr std::size_t kLines = 2'000, kFields = 16, kFieldBytes = 512;

  void add(LogLine line);  // numbers it; long fields are cut
  // Those after `number`, oldest first. Lines are shared, so whoever logs meanwhile waits for a copy of pointers at most.
  std::vector<std::shared_ptr<const LogLine>> after(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<const LogLine>> lines_;
  std::uint64_t last_ = 0;
};

}  // namespace tilewise::dashboard
