#include "host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older glibc lacks the name
#endif

namespace tilewise::device {

HostMemory::HostMemory(std::string name, std::int64_t limit_bytes, bool huge_pages, bool prefault)
    : name_(std::move(name)), limit_bytes_(limit_bytes), huge_pages_(huge_pages), prefault_(prefault) {}

HostMemory::~HostMemory() {
  prefaulting_.clear();  // asks them to stop, and joins
  for (const Slab& slab : slabs_) {
    munmap(slab.data, static_cast<std::size_t>(slab.bytes));
    close(slab.memfd);
  }
}

Result<Slab> HostMemory::add(std::int64_t bytes) {
  if (bytes < 1)
    return error(Errc::kInvalidArgument, name_ + ": a slab of " + std::to_string(bytes) + " bytes");
  if (bytes > limit_bytes_ - bytes_) {
    return error(Errc::kOutOfMemory, name_ + ": a slab of " + std::to_string(bytes) +
                                         " bytes was asked for, " + std::to_string(limit_bytes_ - bytes_) +
                                         " of " + std::to_string(limit_bytes_) + " are left");
  }
  TW_ASSIGN(const Slab slab, map(bytes));
  slabs_.push_back(slab);
  bytes_ += bytes;
  if (prefault_) start_prefault(slab);
  return slab;
}

Result<Slab> HostMemory::map(std::int64_t bytes) const {
  const auto refused = [&](const char* call, int code) {
    return error(Errc::kOutOfMemory, name_ + ": a slab of " + std::to_string(bytes) +
                                         " bytes was asked for, " + std::to_string(limit_bytes_ - bytes_) +
                                         " are left, but " + call + ": " + std::strerror(code));
  };
  const int fd = memfd_create(("tilewise " + name_).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return refused("memfd_create", errno);
  if (ftruncate(fd, bytes) != 0) {
    const int code = errno;
    close(fd);
    return refused("ftruncate", code);
  }
  // A peer that maps the slab can rely on its size: touching it never raises SIGBUS.
  (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    close(fd);
    return refused("mmap", code);
  }
  // Honoured where /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise"; first touch is then about six times
  // as fast. Advice only: elsewhere small pages do.
  if (huge_pages_) (void)madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return Slab{.data = static_cast<std::byte*>(data), .bytes = bytes, .memfd = fd};
}

// In pieces, so that destruction does not wait for gigabytes of page clearing.
void HostMemory::start_prefault(const Slab& slab) {
  static constexpr std::int64_t kPiece = std::int64_t{16} << 20;
  prefaulting_.emplace_back([data = slab.data, bytes = slab.bytes](std::stop_token stop) {
    for (std::int64_t at = 0; at < bytes && !stop.stop_requested(); at += kPiece) {
      const auto piece = static_cast<std::size_t>(std::min(kPiece, bytes - at));
      if (madvise(data + at, piece, MADV_POPULATE_WRITE) != 0)
        return;  // an older kernel: pages come when touched
    }
  });
}

}  // namespace tilewise::device
