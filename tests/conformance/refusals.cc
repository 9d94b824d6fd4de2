#include "refusals.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

namespace tilewise {
namespace {

Refusals own;
Refusals* shared = &own;

bool started = false;

// Whoever started this process says what fails.
__attribute__((constructor)) void share() {
  started = true;
  const char* path = std::getenv("REFUSALS");
  const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void* at = mmap(nullptr, sizeof(Refusals), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at != MAP_FAILED) shared = static_cast<Refusals*>(at);
}

bool armed(Allocator which) {
  return shared->armed.load(std::memory_order_relaxed) == static_cast<int>(which);
}

// This request fails.
bool fails(Allocator which) {
  if (!armed(which)) return false;
  ++shared->seen;
  return --shared->left == 0;
}

// errno is set where it does.
bool no_room() {
  if (!fails(Allocator::kDisk) && !fails(Allocator::kDiskAsItIs)) return false;
  errno = ENOSPC;
  return true;
}
bool no_reading() {
  if (!fails(Allocator::kRead)) return false;
  errno = EIO;
  return true;
}

// Not what only looks like a file.
bool on_disk(std::string_view path) {
  for (const char* other : {"/dev/", "/proc/", "/sys/", "/memfd:"})
    if (path.starts_with(other)) return false;
  return true;
}
bool on_disk(int fd) {
  char path[64], link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path);
  return length > 0 && on_disk(std::string_view(path, static_cast<std::size_t>(length)));
}

bool makes_a_file(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }
int opened(const char* path, int flags, mode_t mode) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (on_disk(path) && (writes ? no_room() : no_reading())) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
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
  if (armed(Allocator::kHost) && executes() && fails(Allocator::kHost)) return nullptr;
  if (bytes == kBlockBytes && armed(Allocator::kBlock) && !executes() && gettid() != getpid() &&
      fails(Allocator::kBlock))
    return nullptr;
  if (armed(Allocator::kThread) && gettid() == shared->thread.load(std::memory_order_relaxed) &&
      fails(Allocator::kThread))
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

void refuse(Allocator which, std::int64_t k) { shared->refuse(which, k); }
std::int64_t allow() { return shared->allow(); }

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
// The C++ library's own call those; sanitizers' do not.
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, std::align_val_t at) { return operator new(bytes, at); }
void* operator new[](std::size_t bytes, const std::nothrow_t& no) noexcept { return operator new(bytes, no); }
void* operator new[](std::size_t bytes, std::align_val_t at, const std::nothrow_t& no) noexcept {
  return operator new(bytes, at, no);
}
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

// The program's own come before the C library's.
extern "C" int memfd_create(const char* name, unsigned flags) {
  const std::string_view what(name);
  if ((what.starts_with("tilewise ") && tilewise::fails(Allocator::kDevice)) ||
      (what == "emulated-gpu" && tilewise::fails(Allocator::kGpu))) {
    errno = ENOMEM;
    return -1;
  }
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}
extern "C" ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  return tilewise::no_room() ? -1 : syscall(SYS_pwrite64, fd, from, bytes, at);
}
extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  return tilewise::no_reading() ? -1 : syscall(SYS_pread64, fd, to, bytes, at);
}
extern "C" int fallocate(int fd, int mode, off_t at, off_t bytes) {
  if (tilewise::armed(Allocator::kDiskAsItIs)) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return tilewise::no_room() ? -1 : static_cast<int>(syscall(SYS_fallocate, fd, mode, at, bytes));
}
extern "C" int ftruncate(int fd, off_t bytes) noexcept {
  if (tilewise::on_disk(fd) && tilewise::no_room()) return -1;
  return static_cast<int>(syscall(SYS_ftruncate, fd, bytes));
}
extern "C" int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = tilewise::makes_a_file(flags) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return tilewise::opened(path, flags, mode);
}
// A sanitizer that is told where to report to calls it before what is compiled for it may look at memory.
extern "C" __attribute__((no_sanitize("address", "thread", "undefined"))) int mkdir(const char* path,
                                                                                    mode_t mode) noexcept {
  return tilewise::started && tilewise::no_room()
             ? -1
             : static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  return tilewise::no_room() ? -1 : static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  return tilewise::no_room()
             ? -1
             : static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
extern "C" int fsync(int fd) { return tilewise::no_room() ? -1 : static_cast<int>(syscall(SYS_fsync, fd)); }
extern "C" int syncfs(int fd) noexcept {
  return tilewise::no_room() ? -1 : static_cast<int>(syscall(SYS_syncfs, fd));
}
// By the names that C libraries know them by, HDF5 for one.
extern "C" ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t at) {
  return pwrite(fd, from, bytes, at);
}
extern "C" ssize_t pread64(int fd, void* to, size_t bytes, off64_t at) { return pread(fd, to, bytes, at); }
extern "C" int fallocate64(int fd, int mode, off64_t at, off64_t bytes) {
  return fallocate(fd, mode, at, bytes);
}
extern "C" int ftruncate64(int fd, off64_t bytes) noexcept { return ftruncate(fd, bytes); }
extern "C" int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = tilewise::makes_a_file(flags) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return tilewise::opened(path, flags, mode);
}

// The emulated driver (tests/gpu/emulated) asks for it.
extern "C" __attribute__((visibility("default"))) bool tilewise_refuses_pinned() {
  return tilewise::fails(Allocator::kPinned);
}

// What C libraries ask for. Sanitizers bring their own, and so does whoever this is loaded into.
#ifdef TILEWISE_REFUSES_LIBRARIES
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* at, size_t bytes);

// Of libraries that say so to their callers. The C library ends the process where it cannot have what threads need, FFTW does so
// always, and HDF5 (1.10) reads through a null pointer.
static bool tilewise_refuses_library(void* caller) {
  if (!tilewise::armed(Allocator::kLibrary) || !tilewise::executes()) return false;
  Dl_info from{};
  if (dladdr(caller, &from) == 0 || from.dli_fname == nullptr) return false;
  for (const char* library : {"/libz.", "/libzstd."})
    if (std::strstr(from.dli_fname, library) != nullptr) return tilewise::fails(Allocator::kLibrary);
  return false;
}
void* malloc(size_t bytes) {
  return tilewise_refuses_library(__builtin_return_address(0)) ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return tilewise_refuses_library(__builtin_return_address(0)) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* at, size_t bytes) {
  return tilewise_refuses_library(__builtin_return_address(0)) ? nullptr : __libc_realloc(at, bytes);
}
}
#endif
