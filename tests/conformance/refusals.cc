#include "refusals.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tilewise {
namespace {

std::atomic<int> armed{-1};         // an Allocator, or none
std::atomic<std::int64_t> left{0};  // requests until the one that fails
std::atomic<std::int64_t> seen{0};

// This request fails.
bool fails(Allocator which) {
  if (armed.load(std::memory_order_relaxed) != static_cast<int>(which)) return false;
  ++seen;
  return --left == 0;
}

// Streams' threads have their device's name (host:0/0). What a step asks for is asked there.
bool executes() {
  thread_local bool known = false;  // a name comes after the thread's start
  char name[16] = {};
  if (!known && pthread_getname_np(pthread_self(), name, sizeof name) == 0)
    known = std::strncmp(name, "host:", 5) == 0;
  return known;
}

void* memory(std::size_t bytes, std::size_t alignment) {
  if (armed.load(std::memory_order_relaxed) == static_cast<int>(Allocator::kHost) && executes() &&
      fails(Allocator::kHost))
    return nullptr;
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* memory_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* p = memory(bytes, alignment)) return p;
  throw std::bad_alloc();
}

}  // namespace

void refuse(Allocator which, std::int64_t k) {
  left = k;
  seen = 0;
  armed = static_cast<int>(which);
}
std::int64_t allow() {
  armed = -1;
  return seen;
}

}  // namespace tilewise

using tilewise::Allocator;

void* operator new(std::size_t bytes) { return tilewise::memory_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t at) {
  return tilewise::memory_or_throw(bytes, static_cast<std::size_t>(at));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return tilewise::memory(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t at, const std::nothrow_t&) noexcept {
  return tilewise::memory(bytes, static_cast<std::size_t>(at));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

// The program's own come before the C library's.
extern "C" int memfd_create(const char* name, unsigned flags) {
  if (tilewise::fails(Allocator::kDevice)) {
    errno = ENOMEM;
    return -1;
  }
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}
extern "C" ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  if (tilewise::fails(Allocator::kDisk)) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwrite64, fd, from, bytes, at);
}
extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  if (tilewise::fails(Allocator::kRead)) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_pread64, fd, to, bytes, at);
}
