// Kernel calls of steps that come again and again: their shapes, strides and boxes follow from the op's geometry, so only addresses
// are new each time.
#pragma once
#include <tilewise/worker/step.h>

#include <memory>
#include <utility>
#include <vector>

namespace tilewise::worker {

// Not thread-safe. Ops that share a geometry (ir::GeometryCache) differ in names, label and parameters alone.
class CallCache {
 public:
  // As build_call, valid until the next call.
  kernels::KernelCall& build(const ResolvedStep& step);

 private:
  static constexpr std::int64_t kMaxPoints = 256;  // of an op
  static constexpr std::size_t kGeometries = 16;   // of the last ops
  static constexpr std::size_t kMaxCalls = 512;    // a call takes some kilobytes
  struct Prepared {
    kernels::KernelCall call;
    std::vector<std::pair<std::size_t, std::int64_t>>
        inputs;  // by read: which view, bytes from its block's start
  };
  struct Known {
    ir::SharedGeometry geometry;
    std::vector<std::unique_ptr<Prepared>> points;
  };
  Prepared* find(const ResolvedStep& step);

  std::vector<Known> known_;
  std::size_t oldest_ = 0, calls_ = 0;
  std::vector<ir::Read> reads_;
  kernels::KernelCall other_;
};

}  // namespace tilewise::worker
