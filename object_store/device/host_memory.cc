#include "host_memory.h"

#include <tilewise/device/shared_memory.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older glibc lacks the names
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace tilewise::device {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Maps `fd` where huge pages are possible: file offsets and addresses must agree modulo their size, which the kernel
// takes care of only where they are on for shared memory.
void* map_aligned(int fd, std::size_t bytes) {
  const std::size_t room = bytes + kHugePage;
  void* reserved = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  const auto start = reinterpret_cast<std::uintptr_t>(reserved);
  const std::uintptr_t aligned = (start + kHugePage - 1) & ~(kHugePage - 1);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (bytes + page - 1) & ~(page - 1);
  void* at = reinterpret_cast<void*>(aligned);
  void* data = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    munmap(reserved, room);
    errno = code;
    return MAP_FAILED;
  }
  if (aligned > start) munmap(reserved, aligned - start);
  const std::uintptr_t end = start + room;
  if (aligned + mapped < end) munmap(reinterpret_cast<void*>(aligned + mapped), end - aligned - mapped);
  return data;
}

}  // namespace

Result<Slab> map_shared(const std::string& name, std::int64_t bytes, bool huge_pages) {
  const auto refused = [](const char* call, int code) {
    const bool descriptors = code == EMFILE || code == ENFILE;
    return error(descriptors ? Errc::kLimitExceeded : Errc::kOutOfMemory,
                 std::string(call) + ": " + std::strerror(code) +
                     (descriptors ? " (file descriptors: raise the hard limit, ulimit -n)" : ""));
  };
  const int fd = memfd_create(("tilewise " + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return refused("memfd_create", errno);
  if (ftruncate(fd, bytes) != 0) {
    const int code = errno;
    close(fd);
    return refused("ftruncate", code);
  }
  // A peer that maps the slab can rely on its size: touching it never raises SIGBUS.
  (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* data = map_aligned(fd, static_cast<std::size_t>(bytes));
  if (data == MAP_FAILED) {
    const int code = errno;
    close(fd);
    return refused("mmap", code);
  }
  // Honoured where /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise" or more; first touch is then about six
  // times as fast. Elsewhere ("never" is the usual default) the pages are small, unless pre-faulting collapses them.
  if (huge_pages) (void)madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return Slab{.data = static_cast<std::byte*>(data), .bytes = bytes, .memfd = fd};
}

void unmap_shared(const Slab& slab) {
  munmap(slab.data, static_cast<std::size_t>(slab.bytes));
  close(slab.memfd);
}

HostMemory::HostMemory(std::string name, std::int64_t limit_bytes, bool huge_pages, bool prefault)
    : name_(std::move(name)), limit_bytes_(limit_bytes), huge_pages_(huge_pages), prefault_(prefault) {}

HostMemory::~HostMemory() {
  prefaulting_.clear();  // asks them to stop, and joins
  for (const Slab& slab : slabs_) unmap_shared(slab);
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
  auto slab = map_shared(name_, bytes, huge_pages_);
  if (slab) return slab;
  return error(slab.error().code, name_ + ": a slab of " + std::to_string(bytes) + " bytes was asked for, " +
                                      std::to_string(limit_bytes_ - bytes_) + " are left, but " +
                                      slab.error().message);
}

// In pieces, so that destruction does not wait for gigabytes of page clearing. Collapsing makes huge pages of small
// ones whatever the system's setting; it costs another pass over the memory, which is why only this thread does it.
void HostMemory::start_prefault(const Slab& slab) {
  static constexpr std::int64_t kPiece = std::int64_t{16} << 20;
  prefaulting_.emplace_back([data = slab.data, bytes = slab.bytes, huge = huge_pages_](std::stop_token stop) {
    for (std::int64_t at = 0; at < bytes && !stop.stop_requested(); at += kPiece) {
      const auto piece = static_cast<std::size_t>(std::min(kPiece, bytes - at));
      if (madvise(data + at, piece, MADV_POPULATE_WRITE) != 0)
        return;  // an older kernel: pages come when touched
      if (huge && piece >= kHugePage) (void)madvise(data + at, piece, MADV_COLLAPSE);
    }
  });
}

}  // namespace tilewise::device
