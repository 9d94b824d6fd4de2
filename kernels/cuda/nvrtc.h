// NVRTC: CUDA C++ source to machine code of one architecture, at run time and without a GPU.
#pragma once
#include <tilewise/base/result.h>

#include <memory>
#include <string>

namespace tilewise::cuda {

class Nvrtc {
 public:
  // Opens the library (see libraries.h for where it is looked for). `preferred_major`: that of the driver, 0 for any.
  // kUnavailable says what was tried.
  static Result<std::unique_ptr<Nvrtc>> open(int preferred_major);

  // Machine code for compute capability major * 10 + minor. kInternal with the compiler's log, for the source is ours.
  // Any thread.
  Result<std::string> compile(const std::string& source, int architecture) const;
  // "13.0": part of cache keys and of the numeric class.
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }

 private:
  Nvrtc() = default;
  struct Functions;
  std::shared_ptr<const Functions> functions_;
  std::string version_, path_;
};

}  // namespace tilewise::cuda
