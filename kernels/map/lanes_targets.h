// Doors of the files that are compiled per instruction set, and of those that need not be, joined by lanes.cc. Dtypes are
// those that kernels compute in.
#pragma once
#include "map/lanes.h"

namespace tilewise::kernels::map {
LaneFn find_arith(ir::TapeOp op, ir::DType t);
LaneFn find_compare(ir::TapeOp op, ir::DType out,
                    ir::DType arg);  // results of another dtype than the arguments
LaneFn find_math(ir::TapeOp op, ir::DType t);
LaneFn find_sleef(ir::TapeOp op, ir::DType t);
LaneFn find_complex(ir::TapeOp op, ir::DType out, ir::DType arg);  // complex numbers on either side
LaneFn find_complex_math(ir::TapeOp op, ir::DType t);
}  // namespace tilewise::kernels::map
