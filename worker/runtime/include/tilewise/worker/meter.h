// What the steps of one family of ops took on one device, beside what the plain model said.
#pragma once
#include <atomic>
#include <cstdint>

namespace tilewise::worker {

class Meter {
 public:
  // From any thread. A lost update of the ratio between two threads does no harm.
  void add(std::int64_t model_ns, std::int64_t took_ns);

  // Nanoseconds that a step of this model time probably takes; the model's own where nothing has run yet.
  double predict(std::int64_t model_ns) const {
    return static_cast<double>(model_ns) * ratio_.load(std::memory_order_relaxed);
  }
  // One of the last thousand steps took far longer than was predicted, and long: nobody should wait for this family.
  bool erratic() const { return trust_.load(std::memory_order_relaxed) < 0; }

  std::int64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  std::int64_t busy_ns() const { return busy_ns_.load(std::memory_order_relaxed); }  // sum of what they took
  std::int64_t model_ns() const { return model_ns_.load(std::memory_order_relaxed); }  // and of the model

 private:
  std::atomic<std::int64_t> steps_{0}, busy_ns_{0}, model_ns_{0};
  std::atomic<float> ratio_{1};  // took / model, of the last few steps
  std::atomic<std::int32_t> trust_{0};
};

}  // namespace tilewise::worker
