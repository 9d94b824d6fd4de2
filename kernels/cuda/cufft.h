// One-dimensional Fourier transforms of many lines by cuFFT. Plans are kept by stream and shape; work areas come from the
// caller, so that only what a plan precomputes lies outside of what the engine counts.
#pragma once
#include <tilewise/cuda/driver.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace tilewise::cuda {

// `count` lines one behind the other, unscaled. Real lines have n numbers, half ones n / 2 + 1 complex numbers.
struct FftLines {
  enum class Kind : std::uint8_t { kForward, kInverse, kRealForward, kRealInverse } kind = Kind::kForward;
  bool narrow = false;  // float32, complex64; else float64, complex128
  std::int64_t n = 0, count = 0;
  auto operator<=>(const FftLines&) const = default;
};

class Cufft {
 public:
  // kUnavailable says where the library was looked for.
  static Result<std::unique_ptr<Cufft>> open(const Context& context);
  ~Cufft();

  // Bytes of work area, asked of the library once for each. Any thread.
  Result<std::int64_t> work_bytes(const FftLines& lines);
  Status prepare(const FftLines& lines, CUstream stream);  // makes the plan; else the first run does
  // `in` and `out` are apart, aligned to complex numbers; a kRealInverse may overwrite `in`.
  Status run(const FftLines& lines, void* in, void* out, void* work, CUstream stream);

 private:
  // The least recently used plan makes room; its stream is waited for.
  static constexpr std::size_t kMostPlans = 64, kMostSizes = 4096;
  using Key = std::tuple<CUstream, FftLines>;
  struct Plan {
    Key key;
    int handle = 0;
    std::int64_t work_bytes = 0;
  };
  struct Functions;
  explicit Cufft(const Context& context) : context_(context) {}
  Result<int> make(const FftLines& lines, std::int64_t& work_bytes) const;
  Result<const Plan*> plan_for(const FftLines& lines, CUstream stream);

  const Context& context_;
  std::shared_ptr<const Functions> functions_;
  std::mutex mutex_;       // plans are used by one thread at a time
  std::list<Plan> plans_;  // the latest first
  std::map<Key, std::list<Plan>::iterator> by_key_;
  std::map<FftLines, std::int64_t> sizes_;
};

}  // namespace tilewise::cuda
