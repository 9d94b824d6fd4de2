// Doors of the foreach_target files, joined by lanes.cc.
#pragma once
#include "map/lanes.h"

namespace tilewise::kernels::map {
LaneFn find_arith(ir::TapeOp op, ir::DType t);
LaneFn find_compare(ir::TapeOp op, ir::DType out,
                    ir::DType arg);  // results of another dtype than the arguments
LaneFn find_math(ir::TapeOp op, ir::DType t);
}  // namespace tilewise::kernels::map
