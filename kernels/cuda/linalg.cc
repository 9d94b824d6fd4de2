// Linear algebra of single blocks by cuSOLVER and cuBLAS: the kernels of kernels/linalg, whose header says what each takes and
// gives. Row-major matrices are LAPACK's transposes, as on the host. A matrix of a stack at a time, in the stream's order.
#include <tilewise/ir/linalg.h>
#include <tilewise/kernels/plugin_call.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "call.h"
#include "linalg_plan.h"
#include "matrix.h"

namespace tilewise::cuda {
namespace {

using ir::DType;
using Kernel = LinalgKernel;

// ---- launching ---------------------------------------------------------------------------------------------------------

// As device/linalg.cuh.
struct LinalgFault {
  FaultTo to;
  std::int64_t first = 0, where[2] = {};
  std::int32_t ordered = 0, unused = 0;
};
struct InfoParams {
  std::int64_t info = 0;
  LinalgFault fault, argument;
};
struct FiniteParams {
  std::int64_t data = 0, count = 0;
  LinalgFault fault;
};
struct DiagonalParams {
  std::int64_t data = 0, count = 0, stride = 0;
  LinalgFault fault;
};
struct DetParams {
  std::int64_t factors = 0, pivots = 0, info = 0, n = 0, sign = 0, log = 0, det = 0;
};
struct OrderParams {
  std::int64_t pivots = 0, count = 0, rows = 0, order = 0, sign = 0;
};
struct ExchangeParams {
  std::int64_t from = 0, row = 0, column = 0, order = 0, order_stride = 0;
  std::int64_t rows = 0, columns = 0, first = 0, top = 0, rest = 0;
  LinalgFault fault;
};
enum LinalgEntry : std::size_t {
  kInfoEntry,
  kFiniteEntry,
  kDiagonalEntry,
  kDetEntry,
  kOrderEntry,
  kExchangeEntry
};

constexpr const char* kOrdered = ": the leading minor of order %lld";

// Faults name their text by address, so it stays: one for each function that clients name, of which there are few.
const char* lasting(const std::string& text) {
  static std::mutex mutex;
  static auto* const texts = new std::set<std::string>;
  constexpr std::size_t kMost = 1024;
  const std::lock_guard lock(mutex);
  if (texts->size() >= kMost && !texts->contains(text)) return "the values have no such result";
  return texts->insert(text).first->c_str();
}

// out[i] = x[i], conjugated or where i lies in a triangle (elsewhere 0).
ir::Tape conjugate_tape(DType dtype) {
  ir::Tape tape = copy_tape(dtype);
  tape.code.push_back({.op = ir::TapeOp::kConj, .dtype = dtype});
  return tape;
}
ir::Tape triangle_tape(DType dtype, bool lower) {
  ir::Tape tape = copy_tape(dtype);
  tape.code.push_back({.op = ir::TapeOp::kIota, .dtype = DType::kInt64, .imm_i = 0});
  tape.code.push_back({.op = ir::TapeOp::kIota, .dtype = DType::kInt64, .imm_i = 1});
  tape.code.push_back(
      {.op = lower ? ir::TapeOp::kGe : ir::TapeOp::kLe, .dtype = DType::kBool, .a = 1, .b = 2});
  tape.code.push_back({.op = ir::TapeOp::kConst, .dtype = dtype});
  tape.code.push_back({.op = ir::TapeOp::kWhere, .dtype = dtype, .a = 3, .b = 0, .c = 4});
  return tape;
}

TensorView turned(TensorView m) {
  std::swap(m.shape[0], m.shape[1]);
  std::swap(m.strides[0], m.strides[1]);
  return m;
}
Strided place_of(const TensorView& m) { return {address(m.data), m.strides}; }
TensorView part(TensorView m, std::int64_t r, std::int64_t c) {
  m.shape = {r, c};
  return m;
}

// One step: each method works on one matrix of the stack.
class Task {
 public:
  Task(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault,
       const ir::linalg::Params& params, const Layout& layout)
      : env_(env), call_(call), params_(params), stream_(stream), fault_(fault), l_(layout) {
    dtype_ = call.inputs[0].dtype;
    const ir::Shape& shape = call.outputs[0].shape;
    stack_ = ir::Shape(shape.begin(), shape.end() - 2);
  }

  Status run(Kernel kernel, const Extents& e) {
    const std::int64_t count = ir::volume(stack_);
    for (std::int64_t i = 0; i < count; ++i) {
      number_ = i;
      TW_TRY(one(kernel, e));
    }
    return {};
  }

 private:
  Status one(Kernel kernel, const Extents& e) {
    switch (kernel) {
      case Kernel::kCholesky: return cholesky(e);
      case Kernel::kSolve: return solve(e);
      case Kernel::kDet: return det(e);
      case Kernel::kQr: return qr(e);
      case Kernel::kGeqrf: return geqrf(e);
      case Kernel::kOrmqr: return ormqr(e);
      case Kernel::kEigh: return eigh(e);
      case Kernel::kSvd: return svd(e);
      case Kernel::kTrsm: return trsm(e);
      case Kernel::kUpdate: return update(e);
      case Kernel::kLuPanel: return lu_panel(e);
      case Kernel::kLuUpdate: return lu_update(e);
      case Kernel::kNone: break;
    }
    return {};
  }

  TensorView matrix(const TensorView& view) const {
    const ir::Index at = ir::unravel(number_, stack_);
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * view.strides[d];
    TensorView m = view;
    m.data = static_cast<std::byte*>(view.data) + offset * static_cast<std::int64_t>(ir::size_of(view.dtype));
    m.shape.assign(view.shape.end() - 2, view.shape.end());
    m.strides.assign(view.strides.end() - 2, view.strides.end());
    return m;
  }
  TensorView in(std::size_t i) const { return matrix(call_.inputs[i]); }
  TensorView out(std::size_t i) const { return matrix(call_.outputs[i]); }
  std::byte* at(std::int64_t offset) const { return call_.scratch + offset; }
  // Scratch as a matrix by rows, or by columns (seen by rows and columns as it is meant).
  TensorView by_rows(std::int64_t offset, std::int64_t r, std::int64_t c) const {
    return {at(offset), dtype_, {r, c}, {c, 1}};
  }
  TensorView by_columns(std::int64_t offset, std::int64_t r, std::int64_t c) const {
    return {at(offset), dtype_, {r, c}, {1, r}};
  }
  Cusolver::Call solver() const { return {stream_, dtype_, at(l_.work), l_.work_bytes, at(l_.info)}; }

  Status apply(const ir::Tape& tape, const TensorView& from, const TensorView& to) {
    const ir::Box box = ir::box_of(from.shape);
    return elementwise(env_, {tape, from.shape, place_of(to), {&from, 1}, &box, &from.shape}, stream_);
  }
  Status copy(const TensorView& from, const TensorView& to) { return apply(copy_tape(from.dtype), from, to); }
  Status conjugate(const TensorView& from, const TensorView& to) {
    return apply(ir::is_complex(from.dtype) ? conjugate_tape(from.dtype) : copy_tape(from.dtype), from, to);
  }

  LinalgFault wrong(const std::string& why, bool ordered, Errc code = Errc::kSingular) const {
    std::string function;
    for (const char* c = params_.function; *c != '\0'; ++c) function.append(*c == '%' ? 2 : 1, *c);
    std::string text = function + ": " + why + (ordered && code == Errc::kSingular ? kOrdered : "");
    const std::size_t deep = stack_.size();
    if (deep > 0)
      text += deep == 1   ? ", in matrix (%lld,) of the stack"
              : deep == 2 ? ", in matrix (%lld, %lld) of the stack"
                          : ", in matrix number %lld of the stack";
    LinalgFault fault;
    fault.to = {address(fault_), address(lasting(text)), static_cast<std::int32_t>(code), 0};
    fault.first = code == Errc::kSingular ? params_.first : 0;
    fault.ordered = ordered;
    const ir::Index at = ir::unravel(number_, stack_);
    fault.where[0] = deep == 1 || deep == 2 ? at[0] : number_;
    fault.where[1] = deep == 2 ? at[1] : 0;
    return fault;
  }
  Status launch(LinalgEntry entry, std::int64_t blocks, void* params) {
    TW_ASSIGN(const Program program, env_.programs.linalg(dtype_));
    TW_TRY(env_.context.make_current());
    return launch_kernel(env_, program.entry[entry], blocks, 1, params, stream_);
  }
  // What LAPACK left in `info` becomes the step's failure: above zero `fault`, unless it is none; below, an argument.
  Status heed(const LinalgFault& fault) {
    InfoParams p{address(at(l_.info)), fault,
                 wrong("the solver refuses its argument %lld", true, Errc::kTaskFailed)};
    return launch(kInfoEntry, 1, &p);
  }
  Status heed(const char* why, bool ordered) { return heed(wrong(why, ordered)); }
  // Of contiguous memory. The library takes NaN for zero, or iterates for ever.
  Status refuse_infinite(const TensorView& m) {
    FiniteParams p{address(m.data), ir::volume(m.shape) * (ir::is_complex(dtype_) ? 2 : 1),
                   wrong("the matrix holds NaN or infinity", false)};
    return launch(kFiniteEntry, blocks_for(p.count), &p);
  }
  Status clear_one(const TensorView& m) { return clear(env_, m, stream_); }

  Status cholesky(const Extents& e) {
    const TensorView l = out(0);
    TW_TRY(apply(triangle_tape(dtype_, true), in(0), l));  // the rest is not read
    TW_TRY(refuse_infinite(l));
    TW_TRY(env_.cusolver->potrf(solver(), e.n, l.data));
    TW_TRY(heed("the matrix is not positive definite", true));
    return apply(triangle_tape(dtype_, true), l, l);
  }

  Status solve(const Extents& e) {
    const TensorView factors = by_rows(l_.a, e.n, e.n), right = by_columns(l_.b, e.n, e.k);
    TW_TRY(copy(in(0), factors));
    TW_TRY(refuse_infinite(factors));
    TW_TRY(copy(in(1), right));
    TW_TRY(env_.cusolver->getrf(solver(), e.n, e.n, factors.data, at(l_.pivots)));
    TW_TRY(heed("the matrix is singular", true));
    TW_TRY(env_.cusolver->getrs_transposed(solver(), e.n, e.k, factors.data, at(l_.pivots), right.data));
    return copy(right, out(0));
  }

  Status det(const Extents& e) {
    const TensorView factors = by_rows(l_.a, e.n, e.n);
    if (e.n > 0) {
      TW_TRY(copy(in(0), factors));
      TW_TRY(refuse_infinite(factors));
      TW_TRY(env_.cusolver->getrf(solver(), e.n, e.n, factors.data, at(l_.pivots)));
      TW_TRY(heed({}));
    }
    DetParams p{.factors = address(factors.data),
                .pivots = address(at(l_.pivots)),
                .info = e.n > 0 ? address(at(l_.info)) : 0,
                .n = e.n,
                .sign = address(out(0).data),
                .log = address(out(1).data),
                .det = address(out(2).data)};
    return launch(kDetEntry, 1, &p);
  }

  // R's rows, zero below the diagonal and where there are more rows than reflectors.
  Status triangle(const TensorView& factors, std::int64_t k, const TensorView& r) {
    const std::int64_t kept = std::min(k, r.shape[0]);
    if (kept < r.shape[0]) TW_TRY(clear_one(r));
    return apply(triangle_tape(dtype_, false), part(factors, kept, r.shape[1]), r);
  }
  Status qr(const Extents& e) {
    const std::int64_t k = std::min(e.m, e.n), wanted = std::min(e.q, e.m);
    const TensorView factors = by_columns(l_.a, e.m, std::max(e.n, wanted)), q = out(0), r = out(1);
    TW_TRY(copy(in(0), part(factors, e.m, e.n)));
    TW_TRY(env_.cusolver->geqrf(solver(), e.m, e.n, factors.data, at(l_.tau)));
    TW_TRY(triangle(factors, k, r));
    TW_TRY(env_.cusolver->orgqr(solver(), e.m, wanted, k, factors.data, at(l_.tau)));
    if (wanted < e.q) TW_TRY(clear_one(q));
    return copy(part(factors, e.m, wanted), q);
  }

  // The first rows, and zeros where there are more.
  Status copy_rows(const TensorView& from, const TensorView& to) {
    const std::int64_t kept = std::min(from.shape[0], to.shape[0]);
    if (kept < to.shape[0]) TW_TRY(clear_one(to));
    return copy(part(from, kept, to.shape[1]), to);
  }

  Status geqrf(const Extents& e) {
    const std::int64_t k = std::min(e.m, e.n);
    const TensorView factors = by_columns(l_.a, e.m, e.n);
    TW_TRY(copy(in(0), factors));
    TW_TRY(env_.cusolver->geqrf(solver(), e.m, e.n, factors.data, at(l_.tau)));
    TW_TRY(copy(factors, out(0)));
    TW_TRY(copy_rows(by_columns(l_.tau, k, 1), out(1)));
    return triangle(factors, k, out(2));
  }

  Status ormqr(const Extents& e) {
    const std::int64_t k = std::min(e.m, e.n);
    const TensorView reflectors = by_columns(l_.a, e.m, k), c = by_columns(l_.b, e.m, e.k);
    TW_TRY(copy(part(in(0), e.m, k), reflectors));
    TW_TRY(copy(part(in(1), k, 1), by_columns(l_.tau, k, 1)));
    const TensorView from = in(2);
    if (from.shape[0] < e.m) TW_TRY(clear_one(by_rows(l_.b, e.k, e.m)));
    TW_TRY(copy(part(from, std::min(from.shape[0], e.m), e.k), c));
    TW_TRY(env_.cusolver->ormqr(solver(), (params_.flags & ir::linalg::kAdjoint) != 0, e.m, e.k, k,
                                reflectors.data, at(l_.tau), c.data));
    return copy_rows(c, out(0));
  }

  Status eigh(const Extents& e) {
    const TensorView a = by_rows(l_.a, e.n, e.n);  // LAPACK reads conj(A), whose vectors are the conjugates
    TW_TRY(copy(in(0), a));
    TW_TRY(refuse_infinite(a));
    TW_TRY(env_.cusolver->syevd(solver(), e.n, e.vectors, a.data, out(0).data));
    TW_TRY(heed("the iteration did not converge", false));
    return e.vectors ? conjugate(turned(a), out(1)) : Status{};
  }

  // The library wants m >= n: a wide matrix is its transpose, Vh^T S U^T; a tall one is copied by columns.
  Status svd(const Extents& e) {
    const bool tall = e.m > e.n;
    const std::int64_t k = std::min(e.m, e.n), basis = e.full ? e.m : k;
    const TensorView a = tall ? by_columns(l_.a, e.m, e.n) : by_rows(l_.a, e.m, e.n);
    TW_TRY(copy(in(0), a));
    TW_TRY(refuse_infinite(a));
    const char job = !e.vectors ? 'N' : e.full ? 'A' : 'S';
    TensorView u, vh;
    if (e.vectors) u = out(1), vh = out(2);
    if (!tall) {
      TW_TRY(
          env_.cusolver->gesvd(solver(), job, e.n, e.m, a.data, out(0).data, vh.data, u.data, at(l_.rest)));
      return heed("the iteration did not converge", false);
    }
    const TensorView left = by_columns(l_.u, e.m, basis), right = by_columns(l_.vh, e.n, e.n);
    TW_TRY(env_.cusolver->gesvd(solver(), job, e.m, e.n, a.data, out(0).data, left.data, right.data,
                                at(l_.rest)));
    TW_TRY(heed("the iteration did not converge", false));
    if (!e.vectors) return {};
    TW_TRY(copy(left, u));
    return copy(right, vh);
  }

  // A matrix as BLAS reads it; copied to scratch where it cannot, or where BLAS would not conjugate it.
  Result<BlasMatrix> operand(const TensorView& view, bool room, std::int64_t offset, bool conjugated) {
    BlasMatrix m;
    if (readable(view, m) && (!conjugated || m.transposed)) return m;
    if (!room)
      return error(Errc::kInternal, "linear algebra: an operand that must be copied, and no scratch");
    const TensorView own = by_rows(offset, view.shape[0], view.shape[1]);
    TW_TRY(conjugated ? conjugate(view, own) : copy(view, own));
    return BlasMatrix{own.data, std::max<std::int64_t>(1, own.shape[1]), false};
  }

  Status trsm(const Extents& e) {
    const TensorView a = in(0), x = out(0);
    DiagonalParams p{address(a.data), e.n, a.strides[0] + a.strides[1],
                     wrong("the matrix is singular", true)};
    TW_TRY(launch(kDiagonalEntry, 1, &p));
    TW_TRY(params_.flags & ir::linalg::kConjugate ? conjugate(in(1), x) : copy(in(1), x));
    TW_ASSIGN(const BlasMatrix triangle, operand(a, e.copy_a, l_.a, false));
    return env_.cublas->solve({.dtype = dtype_,
                               .n = e.n,
                               .k = e.k,
                               .a = triangle.data,
                               .lda = triangle.leading,
                               .transpose_a = triangle.transposed,
                               .upper = (params_.flags & ir::linalg::kUpper) != 0,
                               .b = x.data},
                              stream_);
  }

  Status update(const Extents& e) {
    const TensorView c = out(0);
    const std::size_t rank = call_.outputs[0].shape.size();
    const bool plus = call_.inputs.size() > 2;
    const ir::Box& box = call_.output_boxes[0];
    if ((params_.flags & ir::linalg::kLower) && box.lo[rank - 1] >= box.lo[rank - 2] + e.m)
      return clear_one(c);
    if (plus) TW_TRY(copy(in(0), c));
    if (e.k == 0 && !plus) return clear_one(c);
    const bool conjugated = ir::is_complex(dtype_) && (params_.flags & ir::linalg::kConjugate);
    const bool diagonal = (params_.flags & ir::linalg::kLower) && box.lo[rank - 1] == box.lo[rank - 2];
    const TensorView a = in(plus ? 1 : 0), b = in(plus ? 2 : 1), other = turned(b);
    const bool same = a.data == other.data && a.shape == other.shape && a.strides == other.strides;
    if (diagonal && e.m == e.n && e.k > 0 && same && conjugated == ir::is_complex(dtype_) &&
        b.strides[1] == 1 && b.strides[0] >= e.n) {  // B^H B: half the work
      TW_TRY(env_.cublas->add_squares({.dtype = dtype_,
                                       .n = e.n,
                                       .k = e.k,
                                       .a = b.data,
                                       .lda = b.strides[0],
                                       .c = c.data,
                                       .accumulate = plus,
                                       .subtract = plus},
                                      stream_));
    } else if (e.k > 0) {
      TW_TRY(multiply(e, a, b, c, conjugated, plus));
    }
    return diagonal ? apply(triangle_tape(dtype_, true), c, c) : Status{};
  }

  // c = a b, or c - a b.
  Status multiply(const Extents& e, const TensorView& a, const TensorView& b, const TensorView& c,
                  bool conjugated, bool minus) {
    TW_ASSIGN(const BlasMatrix left, operand(a, e.copy_a, l_.a, conjugated));
    TW_ASSIGN(const BlasMatrix right, operand(b, e.copy_b, l_.b, false));
    return env_.cublas->multiply({.dtype = dtype_,
                                  .m = e.m,
                                  .n = e.n,
                                  .k = e.k,
                                  .a = left.data,
                                  .b = right.data,
                                  .c = c.data,
                                  .lda = left.leading,
                                  .ldb = right.leading,
                                  .ldc = e.n,
                                  .transpose_a = left.transposed,
                                  .transpose_b = right.transposed,
                                  .conjugate_a = conjugated,
                                  .accumulate = minus,
                                  .subtract = minus},
                                 stream_);
  }

  Status lu_panel(const Extents& e) {
    const TensorView factors = by_columns(l_.a, e.m, e.n);
    TW_TRY(copy(in(0), factors));
    TW_TRY(refuse_infinite(factors));
    TW_TRY(env_.cusolver->getrf(solver(), e.m, e.n, factors.data, at(l_.pivots)));
    TW_TRY(heed(params_.flags & ir::linalg::kSingularToo ? LinalgFault{}
                                                         : wrong("the matrix is singular", true)));
    TW_TRY(copy(factors, out(0)));
    OrderParams p{address(at(l_.pivots)), e.n, e.m, address(out(1).data), address(out(2).data)};
    return launch(kOrderEntry, 1, &p);
  }

  Status lu_update(const Extents& e) {
    const TensorView lu = in(0), order = in(1), c = in(2), top = out(0);
    ExchangeParams p{.from = address(c.data),
                     .row = c.strides[0],
                     .column = c.strides[1],
                     .order = address(order.data),
                     .order_stride = order.strides[0],
                     .rows = e.m,
                     .columns = e.n,
                     .first = e.k,
                     .top = address(top.data),
                     .rest = e.m > e.k ? address(out(1).data) : 0,
                     .fault = wrong("rows that are exchanged with none", false)};
    TW_TRY(launch(kExchangeEntry, blocks_for(e.m * e.n), &p));
    TW_ASSIGN(const BlasMatrix factors, operand(lu, e.copy_a, l_.a, false));
    TW_TRY(env_.cublas->solve({.dtype = dtype_,
                               .n = e.k,
                               .k = e.n,
                               .a = factors.data,
                               .lda = factors.leading,
                               .transpose_a = factors.transposed,
                               .unit = true,
                               .b = top.data},
                              stream_));
    if (e.m == e.k) return {};
    const std::int64_t below = e.k * (factors.transposed ? 1 : factors.leading);  // L's rows there
    return env_.cublas->multiply({.dtype = dtype_,
                                  .m = e.m - e.k,
                                  .n = e.n,
                                  .k = e.k,
                                  .a = static_cast<const std::byte*>(factors.data) +
                                       below * static_cast<std::int64_t>(ir::size_of(dtype_)),
                                  .b = top.data,
                                  .c = out(1).data,
                                  .lda = factors.leading,
                                  .ldb = e.n,
                                  .ldc = e.n,
                                  .transpose_a = factors.transposed,
                                  .accumulate = true,
                                  .subtract = true},
                                 stream_);
  }

  const Environment& env_;
  const KernelCall& call_;
  const ir::linalg::Params& params_;
  CUstream stream_;
  DataFault* fault_;
  const Layout& l_;
  DType dtype_;
  ir::Shape stack_;
  std::int64_t number_ = 0;
};

}  // namespace

bool is_linalg(const ir::Op& op) { return linalg_kernel_of(op) != Kernel::kNone; }

namespace {

// The thread that launches is the one that all of the worker waits for. A stack is launched matrix by matrix, and syevd and
// gesvd wait for the stream: where that takes 10 s the worker counts as dead. So these bounds, which are reckoned and not
// measured. The longest side also keeps the workspace of both (about 2 n^2 and 6 n^2 elements) below cuSOLVER's 2^31.
constexpr std::int64_t kMostMatrices = 256, kLongestSide = 4096;

Status short_enough(Kernel kernel, const ir::Op& op) {
  const auto refuse = [&](const std::string& why) {
    return error(Errc::kUnsupported, op.get<ir::CallAttrs>().kernel + " on CUDA: " + why);
  };
  if (op.outputs.empty() || op.operands.empty()) return {};
  const ir::Shape out = op.outputs[0].grid.max_block_shape();
  if (out.size() < 2) return {};
  const std::int64_t count = ir::volume(ir::Shape(out.begin(), out.end() - 2));
  if (count > kMostMatrices) return refuse("blocks of " + std::to_string(count) + " matrices");
  if (kernel != Kernel::kEigh && kernel != Kernel::kSvd) return {};
  const ir::Shape& in = op.operands[0].view.shape;
  const std::int64_t longest = std::max(rows(in), columns(in)), shortest = std::min(rows(in), columns(in));
  if (longest > kLongestSide) return refuse("a matrix with a side of " + std::to_string(longest));
  constexpr double kMostWork = double{kLongestSide} * kLongestSide * kLongestSide;
  const double work = static_cast<double>(count) * static_cast<double>(longest) *
                      static_cast<double>(shortest) * static_cast<double>(shortest);
  return work <= kMostWork ? Status{}
                           : refuse(std::to_string(count) + " matrices of a side of " +
                                    std::to_string(longest) + " in a block");
}

// Of the largest block and of the last one: less may want more workspace.
Result<std::int64_t> scratch_of(const Environment& env, Kernel kernel, const ir::Op& op) {
  boost::container::small_vector<ir::Shape, 4> in, out, last;
  for (const ir::Operand& operand : op.operands) in.push_back(operand.view.shape);
  // The reflectors' rows are in no output's extents: those of the space, unless the op reads all of them.
  if (kernel == Kernel::kOrmqr && !in.empty() && in[0].size() >= 2 && op.space.rank() >= 2) {
    const auto& maps = op.get<ir::CallAttrs>().maps;
    const std::size_t row = in[0].size() - 2;
    if (maps.empty() || maps[0][row].kind == ir::DimMap::Kind::kSpan)
      in[0][row] = std::min(in[0][row], op.space.dim(op.space.rank() - 2).max_size());
  }
  for (const ir::OutputSpec& o : op.outputs) {
    out.push_back(o.grid.max_block_shape());
    ir::Index block = o.grid.counts();
    for (std::int64_t& i : block) i = std::max<std::int64_t>(0, i - 1);
    last.push_back(o.grid.block_count() > 0 ? o.grid.box(block).shape() : out.back());
  }
  std::int64_t bytes = 0;
  for (const auto* blocks : {&out, &last}) {
    const std::optional<Extents> e = extents_of(kernel, op, in, *blocks);
    if (!e) continue;
    // Where only real numbers come out the op does not say what goes in.
    const DType dtype = op.outputs.back().dtype;
    const bool unknown = (kernel == Kernel::kEigh || kernel == Kernel::kSvd) && !e->vectors;
    const DType complex = ir::real_dtype(dtype) == DType::kFloat32 ? DType::kComplex64 : DType::kComplex128;
    for (const DType t : {dtype, unknown ? complex : dtype}) {
      TW_ASSIGN(const Layout layout, lay_out(kernel, *e, t, env));
      bytes = std::max(bytes, layout.bytes);
    }
  }
  return bytes;
}

}  // namespace

Status linalg_supports(const Environment& env, const ir::Op& op) {
  const auto lacks = [&](const char* library, const char* variable) {
    return error(Errc::kUnsupported, op.get<ir::CallAttrs>().kernel + " on CUDA needs " + library +
                                         ", which was not found (" + variable + ")");
  };
  const Kernel kernel = linalg_kernel_of(op);
  if (by_blas(kernel) && env.cublas == nullptr) return lacks("cuBLAS", "TILEWISE_CUBLAS_PATH");
  if (!by_blas(kernel) && env.cusolver == nullptr) return lacks("cuSOLVER", "TILEWISE_CUSOLVER_PATH");
  TW_TRY(short_enough(kernel, op));
  TW_TRY(scratch_of(env, kernel, op));
  return {};
}

std::int64_t linalg_scratch_bytes(const Environment& env, const ir::Op& op) {
  if (!linalg_supports(env, op)) return 0;  // launching says why
  const Result<std::int64_t> bytes = scratch_of(env, linalg_kernel_of(op), op);
  return bytes ? *bytes : 0;
}

Status prepare_linalg(const Environment& env, const ir::Op& op, std::span<const CUstream> streams) {
  const Kernel kernel = linalg_kernel_of(op);
  const DType dtype = op.outputs.back().dtype;
  TW_TRY(linalg_supports(env, op));
  std::vector<ir::Tape> tapes{copy_tape(dtype)};
  if (ir::is_complex(dtype)) tapes.push_back(conjugate_tape(dtype));
  if (kernel == Kernel::kCholesky || kernel == Kernel::kQr || kernel == Kernel::kGeqrf)
    tapes.push_back(triangle_tape(dtype, kernel == Kernel::kCholesky));
  for (const ir::Tape& tape : tapes) TW_TRY(env.programs.map(tape));
  TW_TRY(env.programs.linalg(dtype));
  for (const CUstream stream : streams)
    TW_TRY(by_blas(kernel) ? env.cublas->prepare(stream) : env.cusolver->prepare(stream));
  return {};
}

Status launch_linalg(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault) {
  TW_ASSIGN(const ir::linalg::Params params, kernels::linalg_params(call));
  TW_TRY(linalg_supports(env, *call.op));
  const Kernel kernel = linalg_kernel_of(*call.op);
  boost::container::small_vector<ir::Shape, 4> in, out;
  for (const TensorView& view : call.inputs) in.push_back(view.shape);
  for (const TensorView& view : call.outputs) out.push_back(view.shape);
  const std::optional<Extents> e = extents_of(kernel, *call.op, in, out);
  if (!e) return refuse(call, "operands are missing");
  for (const TensorView& view : call.outputs)
    if (ir::volume(view.shape) == 0) return {};
  const bool reflects = kernel == Kernel::kQr || kernel == Kernel::kGeqrf || kernel == Kernel::kOrmqr;
  if (reflects && ir::volume(call.inputs[0].shape) == 0)
    return error(Errc::kUnsupported, std::string(params.function) + " of a matrix without elements on CUDA");
  TW_ASSIGN(const Layout layout, lay_out(kernel, *e, call.inputs[0].dtype, env));
  if (const std::int64_t there = linalg_scratch_bytes(env, *call.op);
      layout.bytes > there || call.scratch == nullptr)
    return error(Errc::kOutOfMemory, std::string(params.function) + ": a matrix of this block wants " +
                                         std::to_string(layout.bytes) + " bytes of scratch, more than the " +
                                         std::to_string(there) + " that the largest block does");
  return Task(env, call, stream, fault, params, layout).run(kernel, *e);
}

}  // namespace tilewise::cuda
