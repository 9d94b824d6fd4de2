#include "log_writer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <sstream>
#include <vector>

#include "temp_folder.h"

using namespace tilewise;
using daemon::LogWriter;
using std::chrono::milliseconds;

namespace {

struct Pipe {
  Pipe() {
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
  }
  ~Pipe() {
    for (const int fd : ends)
      if (fd >= 0) close(fd);
  }
  int ends[2] = {-1, -1};
};

LogWriter& writer_to(int fd, std::size_t limit_bytes) {
  return *new LogWriter({.fd = fd, .limit_bytes = limit_bytes, .note = [](std::uint64_t lines) {
                           return "missing " + std::to_string(lines) + "\n";
                         }});
}

// Lines, until none comes any more.
std::vector<std::string> read_lines(int fd, milliseconds patience) {
  std::string text(1 << 16, 0), all;
  pollfd ready{fd, POLLIN, 0};
  while (poll(&ready, 1, static_cast<int>(patience.count())) > 0) {
    const ssize_t n = read(fd, text.data(), text.size());
    if (n <= 0) break;
    all.append(text, 0, static_cast<std::size_t>(n));
  }
  std::vector<std::string> lines;
  std::istringstream stream(all);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("who does not read keeps nobody waiting; what is missing then is counted where it is missing") {
  const Pipe pipe;
  constexpr std::size_t kLimit = 64 << 10;
  constexpr int kLines = 20'000;
  LogWriter& log = writer_to(pipe.ends[1], kLimit);
  const std::string filling(90, '.');
  for (int i = 0; i < kLines; ++i) log.put(std::to_string(i) + filling + "\n");
  CHECK(!log.drain(milliseconds(10)));
  const std::vector<std::string> lines = read_lines(pipe.ends[0], milliseconds(1'000));
  REQUIRE(lines.size() > kLimit / 100);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    CAPTURE(i);
    REQUIRE(lines[i] == std::to_string(i) + filling);
  }
  CHECK(lines.back() == "missing " + std::to_string(kLines - static_cast<int>(lines.size()) + 1));
  log.put("and on\n");
  CHECK(log.drain(milliseconds(10'000)));
  CHECK(read_lines(pipe.ends[0], milliseconds(100)) == std::vector<std::string>{"and on"});
}

TEST_CASE("a line that is longer than all the room is missing; one that is longer than a pipe is whole") {
  const Pipe pipe;
  LogWriter& log = writer_to(pipe.ends[1], 64 << 10);
  const std::string longest(50'000, 'x');
  log.put(longest + "\n");
  log.put(std::string(70'000, 'y') + "\n");
  const std::vector<std::string> lines = read_lines(pipe.ends[0], milliseconds(1'000));
  CHECK(lines == std::vector<std::string>{longest, "missing 1"});
}

TEST_CASE("a reader that has gone ends nobody, and the next one is told what it missed") {
  const testing::TempFolder folder;
  const std::string path = folder / "fifo";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  LogWriter& log = writer_to(fd, 64 << 10);
  log.put("first\n");
  CHECK(log.drain(milliseconds(10'000)));
  CHECK(read_lines(reader, milliseconds(100)) == std::vector<std::string>{"first"});
  close(reader);
  for (int i = 0; i < 3; ++i) log.put("nobody reads this\n");
  CHECK(log.drain(milliseconds(10'000)));
  reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  log.put("last\n");
  CHECK(log.drain(milliseconds(10'000)));
  CHECK(read_lines(reader, milliseconds(100)) == std::vector<std::string>{"missing 3", "last"});
  close(reader);
  close(fd);
}
