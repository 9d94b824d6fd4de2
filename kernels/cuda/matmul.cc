// kMatmul and kMatmulPanels: cuBLAS for floats, a generated kernel for integers. Transposed operands are read in place;
// others that BLAS cannot read (steps, broadcasts) are copied to scratch, a bounded piece of k at a time. 16-bit floats are read
// as they are and summed in float32, which the output is.
#include <algorithm>
#include <limits>

#include "matrix.h"

namespace tilewise::cuda {

bool readable(const TensorView& view, BlasMatrix& matrix) {
  const std::int64_t rows = view.shape[0], columns = view.shape[1], s0 = view.strides[0],
                     s1 = view.strides[1];
  matrix.data = view.data;
  if ((s1 == 1 || columns == 1) && (s0 >= columns || rows == 1)) {
    matrix.leading = std::max<std::int64_t>(rows == 1 ? columns : s0, 1);
    matrix.transposed = false;
    return true;
  }
  if ((s0 == 1 || rows == 1) && (s1 >= rows || columns == 1)) {
    matrix.leading = std::max<std::int64_t>(columns == 1 ? rows : s1, 1);
    matrix.transposed = true;
    return true;
  }
  return false;
}

bool may_need_copy(const ir::View& view) {
  if (view.source.empty() || view.rank() < 2) return true;
  const ir::SourceDim& last = view.source.back();
  const int row = view.rank() - 2, column = row + 1;
  if (last.dim < row || last.step != 1) return true;
  const auto other = view.source_of(last.dim == row ? column : row);
  return !other || view.source[static_cast<std::size_t>(*other)].step < 1;
}

namespace {

constexpr std::int64_t kPiece =
    1024;  // of k, where an operand must be copied; part of the order of additions

// As device/matmul.cuh.
struct MatmulParams {
  Walk stack;
  Place place[3];
  std::int64_t m = 0, n = 0, k = 0, tiles_m = 0, tiles_n = 0, a_row = 0, a_column = 0, b_row = 0,
               b_column = 0;
  std::int32_t accumulate = 0, unused = 0;
};

TensorView slice(const TensorView& view, int axis, std::int64_t begin, std::int64_t end) {
  TensorView part = view;
  const auto d = static_cast<std::size_t>(axis);
  part.shape[d] = end - begin;
  part.data = static_cast<std::byte*>(view.data) +
              begin * view.strides[d] * static_cast<std::int64_t>(ir::size_of(view.dtype));
  return part;
}

class FloatProduct {
 public:
  FloatProduct(const Environment& env, const KernelCall& call, CUstream stream)
      : env_(env), call_(call), stream_(stream) {}

  Status run() {
    const TensorView &a = call_.inputs[0], &b = call_.inputs[1];
    if (env_.cublas == nullptr)
      return error(Errc::kUnavailable, "matmul of floats needs cuBLAS, which was not found");
    BlasMatrix unused;
    const std::int64_t k = a.shape[1];
    const bool whole = readable(a, unused) && readable(b, unused);
    const std::int64_t piece = whole ? k : kPiece;
    for (std::int64_t begin = 0; begin < k; begin += piece) {
      const std::int64_t end = std::min(k, begin + piece);
      used_ = 0;
      TW_TRY(multiply(slice(a, 1, begin, end), slice(b, 0, begin, end), call_.step > 0 || begin > 0));
    }
    return {};
  }

 private:
  Result<BlasMatrix> matrix(const TensorView& view) {
    BlasMatrix m;
    if (readable(view, m)) return m;
    if (call_.scratch == nullptr)
      return error(Errc::kInternal, "matmul: an operand that must be copied, and no scratch");
    std::byte* const to = call_.scratch + used_;
    used_ += align_scratch(ir::volume(view.shape) * static_cast<std::int64_t>(ir::size_of(view.dtype)));
    TW_TRY(copy_region(env_, view, contiguous(to, view.shape), stream_));
    return BlasMatrix{to, view.shape[1], false};
  }

  Status multiply(const TensorView& a, const TensorView& b, bool accumulate) {
    TW_ASSIGN(const BlasMatrix left, matrix(a));
    TW_ASSIGN(const BlasMatrix right, matrix(b));
    return env_.cublas->multiply({.dtype = a.dtype,
                                  .tf32 = call_.op->get<ir::MatmulAttrs>().tf32,
                                  .m = a.shape[0],
                                  .n = b.shape[1],
                                  .k = a.shape[1],
                                  .a = left.data,
                                  .b = right.data,
                                  .c = call_.outputs[0].data,
                                  .lda = left.leading,
                                  .ldb = right.leading,
                                  .ldc = b.shape[1],
                                  .transpose_a = left.transposed,
                                  .transpose_b = right.transposed,
                                  .accumulate = accumulate},
                                 stream_);
  }

  const Environment& env_;
  const KernelCall& call_;
  CUstream stream_;
  std::int64_t used_ = 0;  // bytes of scratch
};

}  // namespace

std::int64_t matmul_scratch_bytes(const ir::Op& op) {
  if (!uses_blas(op.outputs[0].dtype) || op.space.rank() < 2) return 0;
  const ir::Shape largest = op.space.max_block_shape();
  const std::size_t first = largest.size() - 2;
  const std::int64_t k = std::min(kPiece, op.operands[0].view.shape.back());
  const auto size = static_cast<std::int64_t>(ir::size_of(op.outputs[0].dtype));
  std::int64_t bytes = 0;
  if (may_need_copy(op.operands[0].view)) bytes += align_scratch(largest[first] * k * size);
  if (may_need_copy(op.operands[1].view)) bytes += align_scratch(largest[first + 1] * k * size);
  return bytes;
}

namespace {

// The matrices numbered `number` of a stack, in C order, as a step of their own.
KernelCall one_of(const KernelCall& call, const ir::Shape& stack, std::int64_t number) {
  const ir::Index at = ir::unravel(number, stack);
  const auto matrix = [&](const TensorView& view, const ir::Strides& strides) {
    TensorView part = view;
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < stack.size(); ++d) offset += at[d] * strides[d];
    part.data =
        static_cast<std::byte*>(view.data) + offset * static_cast<std::int64_t>(ir::size_of(view.dtype));
    part.shape.erase(part.shape.begin(), part.shape.end() - 2);
    part.strides.assign(strides.end() - 2, strides.end());
    return part;
  };
  KernelCall one;
  one.op = call.op;
  one.step = call.step;
  one.steps = call.steps;
  one.scratch = call.scratch;
  for (const TensorView& in : call.inputs) one.inputs.push_back(matrix(in, in.strides));
  const TensorView& out = call.outputs[0];
  one.outputs.push_back(matrix(out, contiguous(out.data, out.shape).strides));
  return one;
}

// All products of a stack at once, where neither operand must be copied and the stack has one stride in each. Else nothing.
Result<bool> batched_product(const Environment& env, const KernelCall& call, const ir::Shape& stack,
                             CUstream stream) {
  if (env.cublas == nullptr) return false;  // the products one by one say so
  const auto stack_of = [&](const void* data, const ir::Strides& strides) {
    return Strided{address(data), ir::Strides(strides.begin(), strides.end() - 2)};
  };
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  const KernelCall first = one_of(call, stack, 0);
  BlasMatrix left, right;
  if (!readable(first.inputs[0], left) || !readable(first.inputs[1], right)) return false;
  const Strided places[3] = {stack_of(a.data, a.strides), stack_of(b.data, b.strides),
                             stack_of(out.data, contiguous(out.data, out.shape).strides)};
  Place merged[3];
  const Walk walk = merge(stack, places, merged);
  if (walk.rank != 1 || walk.count > std::numeric_limits<std::int32_t>::max() || merged[0].stride[0] < 0 ||
      merged[1].stride[0] < 0)
    return false;
  const std::int64_t n = out.shape.back();
  TW_TRY(env.cublas->multiply({.dtype = a.dtype,
                               .tf32 = call.op->get<ir::MatmulAttrs>().tf32,
                               .m = first.inputs[0].shape[0],
                               .n = n,
                               .k = first.inputs[0].shape[1],
                               .a = left.data,
                               .b = right.data,
                               .c = out.data,
                               .lda = left.leading,
                               .ldb = right.leading,
                               .ldc = n,
                               .transpose_a = left.transposed,
                               .transpose_b = right.transposed,
                               .accumulate = call.step > 0,
                               .count = walk.count,
                               .stride_a = merged[0].stride[0],
                               .stride_b = merged[1].stride[0],
                               .stride_c = merged[2].stride[0]},
                              stream));
  return true;
}

// All products of a stack in one launch.
Status integer_products(const Environment& env, const KernelCall& call, const ir::Shape& stack,
                        CUstream stream) {
  constexpr std::int64_t kTile = 16;
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  const auto of_stack = [&](const void* data, const ir::Strides& strides) {
    return Strided{address(data),
                   ir::Strides(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(stack.size()))};
  };
  const Strided places[3] = {of_stack(out.data, ir::c_order_strides(out.shape)), of_stack(a.data, a.strides),
                             of_stack(b.data, b.strides)};
  MatmulParams params;
  params.stack = merge(stack, places, params.place);
  params.m = out.shape[out.shape.size() - 2];
  params.n = out.shape.back();
  params.k = a.shape.back();
  params.tiles_m = (params.m + kTile - 1) / kTile;
  params.tiles_n = (params.n + kTile - 1) / kTile;
  params.a_row = a.strides[a.strides.size() - 2];
  params.a_column = a.strides.back();
  params.b_row = b.strides[b.strides.size() - 2];
  params.b_column = b.strides.back();
  params.accumulate = call.step > 0;
  TW_ASSIGN(const Program program, env.programs.matmul(a.dtype));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[0], params.tiles_m * params.tiles_n * ir::volume(stack), 1, &params,
                       stream);
}

}  // namespace

Status launch_matmul(const Environment& env, const KernelCall& call, CUstream stream) {
  const TensorView& out = call.outputs[0];
  const std::int64_t count = ir::volume(out.shape);
  if (count == 0) return {};
  const bool empty = call.inputs.size() < 2 || call.inputs[0].data == nullptr ||
                     call.inputs[1].data == nullptr || call.inputs[0].shape.back() == 0;
  if (empty) {  // a sum over no k
    if (call.step > 0) return {};
    return clear(env, out, stream);
  }
  const bool panels = call.op->kind == ir::OpKind::kMatmulPanels;
  const ir::Shape stack = panels ? ir::Shape{} : ir::Shape(out.shape.begin(), out.shape.end() - 2);
  if (!uses_blas(out.dtype)) return integer_products(env, call, stack, stream);
  if (stack.empty()) return FloatProduct(env, call, stream).run();
  const std::int64_t products = ir::volume(stack);
  if (products > 1) {
    TW_ASSIGN(const bool done, batched_product(env, call, stack, stream));
    if (done) return {};
  }
  for (std::int64_t i = 0; i < products; ++i) TW_TRY(FloatProduct(env, one_of(call, stack, i), stream).run());
  return {};
}

}  // namespace tilewise::cuda
