// One matrix as BLAS reads it.
#pragma once
#include "launch.h"

namespace tilewise::cuda {

struct BlasMatrix {
  const void* data = nullptr;
  std::int64_t leading = 0;
  bool transposed = false;
};

// Where one dimension of a matrix has stride one and the other does not overlap.
bool readable(const TensorView& view, BlasMatrix& matrix);
// The same question to a plan: can a region of this view be such that it is not?
bool may_need_copy(const ir::View& view);

// A library's functions for each of the dtypes that BLAS and LAPACK know; C and Z are complex as its headers have them.
template <template <class> class Typed, class C, class Z> struct TypedFunctions {
  Typed<float> s;
  Typed<double> d;
  Typed<C> c;
  Typed<Z> z;

  // visit() with the functions of a dtype.
  template <class Visit> Status of(ir::DType dtype, const char* library, Visit&& visit) const {
    switch (dtype) {
      case ir::DType::kFloat32: return visit(s);
      case ir::DType::kFloat64: return visit(d);
      case ir::DType::kComplex64: return visit(c);
      case ir::DType::kComplex128: return visit(z);
      default:
        return error(Errc::kUnsupported, std::string(library) + " has no " + std::string(name_of(dtype)));
    }
  }
};

// Scratch for one operand beside others.
inline std::int64_t align_scratch(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace tilewise::cuda
