#include <tilewise/transfer/left_segments.h>

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>

namespace tilewise::transfer {
namespace {

namespace fs = std::filesystem;

using FileId = std::pair<dev_t, ino_t>;
using Files = std::map<FileId, std::string>;  // their paths

// What is in a folder, as far as it can be read.
template <typename Visit> void for_each_entry(const fs::path& folder, Visit visit) {
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed); !failed && it != fs::directory_iterator();
       it.increment(failed)) {
    visit(*it);
  }
}

Files segments_of_ours(const std::string& folder) {
  Files out;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    struct stat file {};
    if (!entry.path().filename().string().starts_with("ucx_shm_posix_")) return;
    if (::lstat(entry.path().c_str(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != ::geteuid())
      return;
    out[{file.st_dev, file.st_ino}] = entry.path();
  });
  return out;
}

void strike_open(const fs::path& process, Files& files) {
  for_each_entry(process / "fd", [&](const fs::directory_entry& entry) {
    struct stat file {};
    if (::stat(entry.path().c_str(), &file) == 0) files.erase({file.st_dev, file.st_ino});
  });
}

void strike_mapped(const fs::path& process, Files& files) {
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned major = 0, minor = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*s %*s %*s %x:%x %lu", &major, &minor, &inode) == 3)
      files.erase({makedev(major, minor), inode});
  }
}

bool names_are_kept() {
  const char* linked = std::getenv("UCX_POSIX_USE_PROC_LINK");
  return linked != nullptr && std::string(linked) != "y" && std::string(linked) != "yes" &&
         std::string(linked) != "1";
}

}  // namespace

int remove_left_segments(const std::string& folder) {
  if (names_are_kept()) return 0;
  Files files = segments_of_ours(folder);
  if (files.empty()) return 0;
  for_each_entry("/proc", [&](const fs::directory_entry& process) {
    const std::string pid = process.path().filename();
    if (!std::all_of(pid.begin(), pid.end(), [](char c) { return c >= '0' && c <= '9'; })) return;
    // In this order: whoever closes such a file has mapped it before.
    strike_open(process, files);
    strike_mapped(process, files);
  });
  int removed = 0;
  for (const auto& [id, path] : files) removed += ::unlink(path.c_str()) == 0 ? 1 : 0;
  return removed;
}

}  // namespace tilewise::transfer
