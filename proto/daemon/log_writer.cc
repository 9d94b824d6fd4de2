#include "log_writer.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <utility>

namespace tilewise::daemon {

std::string_view write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {  // somebody else who has this open file made it so
      pollfd room{fd, POLLOUT, 0};
      (void)::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      break;
    }
  }
  return text;
}

void write_in_time(int fd, std::string_view text, std::chrono::milliseconds patience) noexcept {
  pollfd room{fd, POLLOUT, 0};
  if (::poll(&room, 1, static_cast<int>(patience.count())) <= 0 || (room.revents & POLLOUT) == 0) return;
  (void)!::write(fd, text.data(), text.size());  // nobody is left to tell
}

void LogWriter::put(std::string line) {
  const std::lock_guard lock(mutex_);
  // A line that finds nobody before it is taken however long it is: what was dropped is told of with the next one that is written.
  if (dropped_ > 0 || (unwritten_ > 0 && unwritten_ + line.size() > options_.limit_bytes)) {
    ++dropped_;
    return;
  }
  if (!started_ && !(started_ = start())) {
    (void)write_all(options_.fd, line);  // the system has no thread for it
    return;
  }
  unwritten_ += line.size();
  lines_.push_back(std::move(line));
  ready_.notify_one();
}

bool LogWriter::drain(std::chrono::milliseconds patience) const noexcept {
  const timespec pause{0, 1'000'000};
  for (auto left = patience.count(); unwritten_ > 0 && left > 0; --left) nanosleep(&pause, nullptr);
  return unwritten_ == 0;
}

// Signals are for other threads: one that came here would not wait in their sigtimedwait().
bool LogWriter::start() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const bool there = pthread_create(&thread, nullptr, &LogWriter::run, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (there) pthread_detach(thread);
  return there;
}

void* LogWriter::run(void* self) {
  pthread_setname_np(pthread_self(), "log");
  static_cast<LogWriter*>(self)->work();
  return nullptr;
}

// Whole lines, no more at a time than a pipe takes at once, so that those of other processes come between lines alone.
std::uint64_t LogWriter::take(std::string& piece) {
  std::uint64_t lines = 0;
  for (; !lines_.empty() && (lines == 0 || piece.size() + lines_.front().size() <= PIPE_BUF); ++lines) {
    piece += lines_.front();
    lines_.pop_front();
  }
  return lines;
}

void LogWriter::work() {
  std::string piece;
  std::unique_lock lock(mutex_);
  while (true) {
    ready_.wait(lock, [&] { return !lines_.empty(); });
    piece.clear();
    if (torn_) piece += '\n';
    if (lost_ > 0) piece += options_.note(lost_);
    const std::size_t before = piece.size();
    const std::uint64_t lines = take(piece);
    lock.unlock();
    const std::string_view left = write_all(options_.fd, piece);
    lock.lock();
    if (left.empty()) {
      lost_ = 0;
      torn_ = false;
    } else {
      lost_ += lines;
      if (left.size() < piece.size()) torn_ = piece[piece.size() - left.size() - 1] != '\n';
    }
    unwritten_ -= piece.size() - before;
    if (dropped_ > 0 && unwritten_ <= options_.limit_bytes / 2) {
      lines_.push_back(options_.note(std::exchange(dropped_, 0)));
      unwritten_ += lines_.back().size();
    }
  }
}

}  // namespace tilewise::daemon
