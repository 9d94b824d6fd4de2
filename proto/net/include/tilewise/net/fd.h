// One owned file descriptor.
#pragma once
#include <tilewise/base/result.h>

#include <cstddef>
#include <utility>

namespace tilewise::net {

constexpr std::size_t kMaxFdsPerFrame = 16;

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// A second descriptor (close-on-exec) for the same open file; the first stays its owner's.
Result<UniqueFd> duplicate(int fd);

}  // namespace tilewise::net
