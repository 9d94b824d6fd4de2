#include <tilewise/transfer/mapped_slab.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tilewise::transfer {

namespace {
constexpr std::int64_t kMaxSlabBytes = std::int64_t{1} << 46;  // half of a process's address space
}

Result<MappedSlab> MappedSlab::import(int memfd, std::int64_t bytes) {
  const std::string what = "a peer's slab of " + std::to_string(bytes) + " bytes";
  if (bytes < 1 || bytes > kMaxSlabBytes) return error(Errc::kOutOfRange, what + " cannot be");
  struct stat info {};
  if (::fstat(memfd, &info) != 0) return error(Errc::kCorruptData, what + ": fstat: " + std::strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size != bytes) {
    return error(Errc::kCorruptData, what + ": its descriptor holds " + std::to_string(info.st_size));
  }
  const int seals = ::fcntl(memfd, F_GET_SEALS);  // fails on anything but a memfd
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return error(Errc::kCorruptData, what + ": its descriptor is not a memfd sealed against shrinking");
  }
  void* data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED, memfd, 0);
  if (data == MAP_FAILED) return error(Errc::kOutOfMemory, what + ": mmap: " + std::strerror(errno));
  (void)::madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // advice: fewer page faults
  return MappedSlab({static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)});
}

MappedSlab::~MappedSlab() {
  if (memory_.empty()) return;
  ::munmap(const_cast<std::byte*>(memory_.data()), memory_.size());
}

}  // namespace tilewise::transfer
