// Whoever reads our log may stop reading: what is logged waits in memory, and a thread that does nothing else writes it.
#pragma once
#include <sys/types.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace tilewise::daemon {

// Never destroyed: its thread may be in write(2) for good, and is there from the first line on. Any thread.
class LogWriter {
 public:
  struct Options {
    int fd = 2;
    std::size_t limit_bytes = 1 << 20;
    // A line that tells of so many that were left out. Called with the writer's lock held, so that no fork() comes in between.
    std::function<std::string(std::uint64_t lines)> note;
  };
  explicit LogWriter(Options options) : options_(std::move(options)) {}
  ~LogWriter() = delete;

  // Lines are written whole, in this order. One that finds no room is counted, and so are all that follow until half of the room is free
  // again; then, where they are missing, a line says how many. What cannot be written (EPIPE, a full disk) is counted and told likewise.
  void put(std::string line);

  // Until all is written, or for so long. Takes no lock and asks for no memory: for the ends of a process, signal handlers among them.
  bool drain(std::chrono::milliseconds patience) const noexcept;

  // Between the two nobody is in the middle of anything. A child has no thread of its parent's, and takes a new writer.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  const Options& options() const { return options_; }

 private:
  static void* run(void* self);
  bool start();
  void work();
  std::uint64_t take(std::string& piece);

  const Options options_;
  std::mutex mutex_;  // of what follows
  std::condition_variable ready_;
  bool started_ = false;
  std::deque<std::string> lines_;
  std::uint64_t dropped_ = 0;  // behind what is queued
  std::uint64_t lost_ = 0;     // before what is queued
  bool torn_ = false;          // the last line that was written has no end
  std::atomic<std::size_t> unwritten_{0};
};

// What is left of a line after a write(2) that failed, empty where there was none. Waits where the descriptor does not.
std::string_view write_all(int fd, std::string_view text);

// Writes it if that can be done without waiting for a reader for longer. No lock, no memory.
void write_in_time(int fd, std::string_view text, std::chrono::milliseconds patience) noexcept;

}  // namespace tilewise::daemon
