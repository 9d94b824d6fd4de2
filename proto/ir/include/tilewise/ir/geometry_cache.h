// Geometries of ops that differ in names only. A loop submits the same op over and over: its geometry is made and
// verified once, takes memory once, and stays in the processor's caches.
#pragma once
#include <tilewise/ir/geometry.h>

#include <memory>

namespace tilewise::ir {

// Constant, as an op's placement is: whoever has it may read it from any thread.
using SharedGeometry = std::shared_ptr<const Geometry>;

// Not thread-safe; what it returns may outlive it.
class GeometryCache {
 public:
  // As Geometry::make, errors included.
  Result<SharedGeometry> of(const Op& op, std::vector<SourceArray> sources);

 private:
  struct Entry {
    std::uint64_t key = 0;  // of what is quick to compare
    Op op;                  // without label and params
    std::vector<SourceArray> sources;
    SharedGeometry geometry;
  };
  static constexpr std::size_t kEntries = 32;  // more than the ops of a loop's body, as a rule
  std::vector<Entry> entries_;
  std::size_t oldest_ = 0;
};

}  // namespace tilewise::ir
