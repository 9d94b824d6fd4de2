#include "shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "os_error.h"

namespace tilewise::net {
namespace {

constexpr std::size_t kHeaderBytes = 4096;  // a page, so that data is aligned
static_assert(sizeof(RingHeader) <= kHeaderBytes);

std::size_t bytes_of_both(std::size_t capacity) { return 2 * (kHeaderBytes + capacity); }

bool is_capacity(std::uint64_t capacity) {
  return std::has_single_bit(capacity) && capacity >= SharedRings::kMinCapacity &&
         capacity <= SharedRings::kMaxCapacity;
}

Error corrupt(const std::string& what) { return error(Errc::kCorruptData, "a shared ring " + what); }

}  // namespace

// ---- one end ----

template <class Copy> void RingEnd::each_part(std::size_t bytes, const Copy& copy) {
  const std::size_t at = position_ & (capacity_ - 1);
  const std::size_t first = std::min(bytes, capacity_ - at);
  if (first > 0) copy(data_ + at, std::size_t{0}, first);
  if (bytes > first) copy(data_, first, bytes - first);
  position_ += bytes;
}

Result<std::size_t> RingEnd::available() {
  const std::uint64_t tail = header_->tail.load(std::memory_order_acquire);
  if (tail - position_ > capacity_ || tail - position_ < other_ - position_)
    return corrupt("whose producer is where it cannot be");
  other_ = tail;
  return static_cast<std::size_t>(tail - position_);
}

void RingEnd::read(std::span<std::byte> into) {
  each_part(into.size(), [&](const std::byte* from, std::size_t at, std::size_t bytes) {
    std::memcpy(into.data() + at, from, bytes);
  });
  header_->head.store(position_, std::memory_order_release);
}

Result<std::size_t> RingEnd::space() {
  const std::uint64_t head = header_->head.load(std::memory_order_acquire);
  if (head - other_ > position_ - other_) return corrupt("whose consumer is where it cannot be");
  other_ = head;
  return capacity_ - static_cast<std::size_t>(position_ - head);
}

void RingEnd::write(std::span<const std::byte> bytes) {
  each_part(bytes.size(), [&](std::byte* to, std::size_t at, std::size_t count) {
    std::memcpy(to, bytes.data() + at, count);
  });
}

// ---- the memory ----

Result<SharedRings> SharedRings::create(std::size_t capacity) {
  if (!is_capacity(capacity)) return error(Errc::kInvalidArgument, "no capacity for a ring");
  UniqueFd memfd(::memfd_create("tilewise-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd) return os_error("make shared memory for a link", errno);
  if (::ftruncate(memfd.get(), static_cast<off_t>(bytes_of_both(capacity))) != 0)
    return os_error("size shared memory for a link", errno);
  if (::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return os_error("seal shared memory for a link", errno);
  return map(std::move(memfd), capacity);
}

// A file that could shrink would end this process with SIGBUS at the next look.
Result<SharedRings> SharedRings::import(UniqueFd memfd, std::uint64_t capacity) {
  if (!is_capacity(capacity)) return corrupt("of " + std::to_string(capacity) + " bytes");
  struct stat info {};
  if (::fstat(memfd.get(), &info) != 0) return os_error("look at a shared ring", errno);
  if (!S_ISREG(info.st_mode) || info.st_size != static_cast<off_t>(bytes_of_both(capacity)))
    return corrupt("of another size than announced");
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);  // fails on anything but a memfd
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return corrupt("whose memory could shrink");
  return map(std::move(memfd), capacity);
}

Result<SharedRings> SharedRings::map(UniqueFd memfd, std::size_t capacity) {
  const std::size_t bytes = bytes_of_both(capacity);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (data == MAP_FAILED) return os_error("map shared memory for a link", errno);
  return SharedRings(std::move(memfd), {static_cast<std::byte*>(data), bytes}, capacity);
}

SharedRings::~SharedRings() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

// The atomics begin as the zeros that a new memfd holds: constructing them would erase what the other side has
// written already.
RingEnd SharedRings::ring(int number) {
  std::byte* at = memory_.data() + static_cast<std::size_t>(number) * (kHeaderBytes + capacity_);
  return {std::launder(reinterpret_cast<RingHeader*>(at)), at + kHeaderBytes, capacity_};
}

}  // namespace tilewise::net
