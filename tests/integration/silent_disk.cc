// A disk that answers no write while the file SILENT_DISK is there, loaded before the C library's.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace {

template <class F> F* next(const char* name) { return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name)); }

void wait_for_disk() {
  const char* const file = std::getenv("SILENT_DISK");
  while (file != nullptr && access(file, F_OK) == 0) usleep(1000);
}

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  static const auto libc = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  wait_for_disk();
  return libc(fd, from, bytes, at);
}

ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t at) {
  static const auto libc = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  wait_for_disk();
  return libc(fd, from, bytes, at);
}

int fsync(int fd) {
  static const auto libc = next<int(int)>("fsync");
  wait_for_disk();
  return libc(fd);
}
}
