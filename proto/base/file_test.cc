#include <tilewise/base/file.h>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

using namespace tilewise;

TEST_CASE("a named pipe is refused by its name, whatever it is opened for, and not waited for") {
  const std::string path =
      std::filesystem::temp_directory_path() / ("tilewise-pipe-" + std::to_string(::getpid()));
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_CREAT | O_NOFOLLOW}) {
    const auto file = File::open(path, flags);
    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().code == Errc::kInvalidArgument);
    CHECK(file.error().message == path + ": not a regular file");
  }
  std::filesystem::remove(path);
}
