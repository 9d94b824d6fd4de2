// Compiled kernels on disk, so that a worker's second start does not compile again.
//
// One file per (source, architecture, compiler version), which are stored in it and compared: a digest alone decides
// nothing. The folder and its files belong to this user and are closed to others; a folder that is not so is not used,
// for machine code from it would run in this process. Files appear by rename, so readers never see half of one.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tilewise::cuda {

class CubinCache {
 public:
  // $TILEWISE_KERNEL_CACHE, else $XDG_CACHE_HOME/tilewise/kernels, else ~/.cache/tilewise/kernels; empty: no cache.
  // TILEWISE_KERNEL_CACHE=off switches it off.
  static std::string default_folder();

  explicit CubinCache(std::string folder);
  bool enabled() const { return !folder_.empty(); }

  // `key` is everything that the code depends on. Failures to read or write are misses: a cache is never required.
  std::optional<std::string> find(const std::string& key) const;
  void store(const std::string& key, const std::string& cubin) const;

 private:
  std::string file_of(const std::string& key) const;
  std::string folder_;
};

}  // namespace tilewise::cuda
