// A folder that goes away with its contents.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace tilewise::testing {

class TempFolder {
 public:
  // `in_memory`: where the system keeps files in memory, if it does: nothing waits for a disk there.
  explicit TempFolder(bool in_memory = false) {
    std::error_code none;
    const bool memory = in_memory && std::filesystem::is_directory("/dev/shm", none);
    const std::filesystem::path usual = std::filesystem::temp_directory_path();
    for (const std::filesystem::path& parent : {memory ? "/dev/shm" : usual, usual}) {
      path_ = (parent / "tilewise-XXXXXX").string();
      if (mkdtemp(path_.data()) != nullptr) return;
    }
    throw std::runtime_error("no temporary folder");
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::size_t files() const {  // and folders, in it
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

}  // namespace tilewise::testing
