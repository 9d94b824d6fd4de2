#include <tilewise/transfer/left_segments.h>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace fs = std::filesystem;
using tilewise::transfer::remove_left_segments;

namespace {

// As UCX does it, in a file system of the same kind.
struct Folder {
  Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Folder() { fs::remove_all(path); }
  int make(const std::string& name) const {
    const int fd = ::open((path + "/" + name).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    REQUIRE(::ftruncate(fd, 8'192) == 0);
    return fd;
  }
  bool has(const std::string& name) const { return fs::exists(path + "/" + name); }
  std::string path = "/dev/shm/tilewise-test-XXXXXX";
};

// A process that holds it open, or has only mapped it.
pid_t hold(int fd, bool open) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!open) {
      if (::mmap(nullptr, 8'192, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) ::_exit(1);
      ::close(fd);
    }
    if (::write(ready[1], "", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  ::close(ready[1]);
  char byte = 1;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(fd);
  return child;
}

}  // namespace

TEST_CASE("a segment goes when the last process that has it is killed, and not before") {
  const Folder folder;
  for (const bool open : {true, false}) {
    CAPTURE(open);
    const pid_t holder = hold(folder.make("ucx_shm_posix_1a2b"), open);
    CHECK(remove_left_segments(folder.path) == 0);
    CHECK(folder.has("ucx_shm_posix_1a2b"));
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    CHECK(remove_left_segments(folder.path) == 1);
    CHECK(!folder.has("ucx_shm_posix_1a2b"));
  }
}

TEST_CASE("what is not a segment of UCX, or what it was told to keep, stays") {
  const Folder folder;
  for (const char* name : {"sem.ucx_shm_posix_1", "ucx_shm", "other"}) ::close(folder.make(name));
  fs::create_directory(folder.path + "/ucx_shm_posix_2");
  fs::create_symlink(folder.path + "/other", folder.path + "/ucx_shm_posix_3");
  CHECK(remove_left_segments(folder.path) == 0);
  ::close(folder.make("ucx_shm_posix_4"));
  ::setenv("UCX_POSIX_USE_PROC_LINK", "n", 1);
  CHECK(remove_left_segments(folder.path) == 0);
  ::setenv("UCX_POSIX_USE_PROC_LINK", "y", 1);
  CHECK(remove_left_segments(folder.path) == 1);
  ::unsetenv("UCX_POSIX_USE_PROC_LINK");
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 5);
  CHECK(remove_left_segments(folder.path + "/nowhere") == 0);
}
