// N-dimensional copies between strided memories.
#pragma once
#include <tilewise/ir/shape.h>

#include <boost/container/static_vector.hpp>
#include <cstddef>
#include <cstdint>

namespace tilewise::kernels::move {

// to[i] = from[i] for every index of `shape`, as often as it is called. Strides in elements, signed; those of `from` may be 0, those of
// `to` must not overlap. The memories are disjoint.
class StridedCopy {
 public:
  StridedCopy(const ir::Strides& to_strides, const ir::Strides& from_strides, const ir::Shape& shape,
              std::size_t element_bytes);
  void operator()(std::byte* to, const std::byte* from) const;

  struct Dim {
    std::int64_t extent, to, from;
  };
  using Dims = boost::container::static_vector<Dim, limits::kMaxRank>;

 private:
  Dims dims_;  // none: nothing to copy
  std::size_t element_bytes_;
};

inline void strided_copy(std::byte* to, const ir::Strides& to_strides, const std::byte* from,
                         const ir::Strides& from_strides, const ir::Shape& shape, std::size_t element_bytes) {
  StridedCopy(to_strides, from_strides, shape, element_bytes)(to, from);
}

}  // namespace tilewise::kernels::move
