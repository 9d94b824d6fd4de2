// The slabs of one host device: sealed memfds, mapped shared, so that other processes of the host can map them too.
#pragma once
#include <tilewise/device/device.h>

#include <thread>

namespace tilewise::device {

// Not thread safe, except that the optional pre-faulting thread works beside.
class HostMemory {
 public:
  HostMemory(std::string name, std::int64_t limit_bytes, bool huge_pages, bool prefault);
  ~HostMemory();

  // kInvalidArgument for a size below one, kOutOfMemory past the limit or when the system has no more, kLimitExceeded
  // where it has no file descriptor. The size is
  // rounded up to whole pages in the mapping, not in the result.
  Result<Slab> add(std::int64_t bytes);
  std::int64_t bytes() const { return bytes_; }

 private:
  Result<Slab> map(std::int64_t bytes) const;
  void start_prefault(const Slab& slab);

  const std::string name_;
  const std::int64_t limit_bytes_;
  const bool huge_pages_, prefault_;
  std::int64_t bytes_ = 0;
  std::vector<Slab> slabs_;
  std::vector<std::jthread> prefaulting_;
};

}  // namespace tilewise::device
