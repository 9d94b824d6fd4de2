#include "map/lanes.h"

#include "map/lanes_targets.h"

namespace tilewise::kernels::map {

LaneFn find_lane(ir::TapeOp op, ir::DType out, ir::DType arg) {
  if (op == ir::TapeOp::kWhere) return find_compare(op, out, arg);
  if (ir::is_complex(out) || ir::is_complex(arg)) {
    if (LaneFn fn = find_complex(op, out, arg)) return fn;
    return out == arg ? find_complex_math(op, out) : nullptr;
  }
  if (LaneFn fn = find_compare(op, out, arg)) return fn;
  if (out != arg) return nullptr;
  if (LaneFn fn = find_arith(op, out)) return fn;
  if (LaneFn fn = find_sleef(op, out)) return fn;
  return find_math(op, out);
}

}  // namespace tilewise::kernels::map
