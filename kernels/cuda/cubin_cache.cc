#include "cubin_cache.h"

#include <sys/stat.h>
#include <tilewise/base/digest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tilewise::cuda {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "tilewise-cubin-1\n";

bool is_private_folder(const std::string& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

std::string CubinCache::default_folder() {
  if (const char* own = std::getenv("TILEWISE_KERNEL_CACHE"))
    return std::string_view(own) == "off" ? "" : own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string(cache) + "/tilewise/kernels";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/tilewise/kernels";
  return "";
}

CubinCache::CubinCache(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code failed;
  fs::create_directories(fs::path(folder_).parent_path(), failed);
  ::mkdir(folder_.c_str(), 0700);  // may exist
  if (!is_private_folder(folder_)) folder_.clear();
}

std::string CubinCache::file_of(const std::string& key) const {
  Digest digest;
  digest.mix(key);
  char name[32];
  std::snprintf(name, sizeof name, "/%016llx.cubin", static_cast<unsigned long long>(digest.value()));
  return folder_ + name;
}

std::optional<std::string> CubinCache::find(const std::string& key) const {
  if (!enabled()) return std::nullopt;
  std::ifstream file(file_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream buffer;
  buffer << file.rdbuf();
  const std::string all = std::move(buffer).str();
  // magic, sizes of key and code in decimal, key, code
  const std::string_view text = all;
  if (!text.starts_with(kMagic)) return std::nullopt;
  const auto line = text.find('\n', kMagic.size());
  std::size_t key_bytes = 0, code_bytes = 0;
  if (line == text.npos || std::sscanf(all.c_str() + kMagic.size(), "%zu %zu", &key_bytes, &code_bytes) != 2)
    return std::nullopt;
  const std::string_view body = text.substr(line + 1);
  if (key_bytes > body.size() || body.size() - key_bytes != code_bytes || body.substr(0, key_bytes) != key)
    return std::nullopt;
  return std::string(body.substr(key_bytes));
}

void CubinCache::store(const std::string& key, const std::string& cubin) const {
  if (!enabled()) return;
  std::string temporary = folder_ + "/new-XXXXXX";
  const int fd = ::mkstemp(temporary.data());  // mode 0600
  if (fd < 0) return;
  const std::string all = std::string(kMagic) + std::to_string(key.size()) + " " +
                          std::to_string(cubin.size()) + "\n" + key + cubin;
  std::size_t written = 0;
  while (written < all.size()) {
    const ssize_t n = ::write(fd, all.data() + written, all.size() - written);
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  const bool closed = ::close(fd) == 0;
  if (written != all.size() || !closed || ::rename(temporary.c_str(), file_of(key).c_str()) != 0)
    ::unlink(temporary.c_str());
}

}  // namespace tilewise::cuda
