// Scalar evaluation of tapes, for the reference kernels of every family that fuses one.
#pragma once
#include <tilewise/kernels/kernels.h>

#include <span>

namespace tilewise::kernels::map {

// An element: `f` of a floating dtype, `f` and `g` of a complex one, else `i` (bool: 0 or 1; uint64: its bits).
struct RefValue {
  double f = 0, g = 0;
  std::int64_t i = 0;
};

// Where an element is.
struct RefSite {
  ir::Index local, global;  // in the task's box, in the op's space
  const boost::container::small_vector<TensorView, 16>* inputs = nullptr;
  const ir::Shape* space_shape = nullptr;
};
RefSite ref_site(const KernelCall& call, const ir::Shape& shape, std::int64_t position);

RefValue ref_load(const TensorView& view, const ir::Index& at);
void ref_store(const TensorView& view, std::int64_t position, RefValue value);  // contiguous views
RefValue ref_cast(RefValue value, ir::DType from, ir::DType to);
// One a tape's output; the first alone.
void ref_tape(const ir::Tape& tape, const RefSite& at, std::span<RefValue> outputs);
RefValue ref_tape(const ir::Tape& tape, const RefSite& at);

}  // namespace tilewise::kernels::map
