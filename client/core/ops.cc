// The free functions of array.h: each records one op, named in the language of tapes.
#include <tilewise/array.h>

#include <array>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using ir::ReduceKind;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;
using Values = std::span<const TapeValue>;

Array map(std::initializer_list<Array> arrays, const ir::BuildTape& build) {
  const std::span operands(arrays.begin(), arrays.size());
  const std::vector<ir::Source> sources = Access::sources(operands);
  return Access::record(operands.front(), infer_map(sources, build));
}

Array unary(TapeOp op, const Array& a) {
  return map({a}, [op](TapeBuilder& t, Values v) { return t.unary(op, v[0]); });
}
Array binary(TapeOp op, const Array& a, const Array& b) {
  return map({a, b}, [op](TapeBuilder& t, Values v) { return t.binary(op, v[0], v[1]); });
}
Array binary(TapeOp op, const Array& a, const Scalar& b) {
  return map({a}, [&](TapeBuilder& t, Values v) { return t.binary(op, v[0], b.value()); });
}
Array binary(TapeOp op, const Scalar& a, const Array& b) {
  return map({b}, [&](TapeBuilder& t, Values v) { return t.binary(op, a.value(), v[0]); });
}

// Logical functions take any dtype: what is not zero is true.
TapeValue truth(TapeBuilder& t, TapeValue v) { return t.unary(TapeOp::kNot, t.unary(TapeOp::kNot, v)); }
Array logical(TapeOp op, const Array& a, const Array& b) {
  return map({a, b}, [op](TapeBuilder& t, Values v) { return t.binary(op, truth(t, v[0]), truth(t, v[1])); });
}
Array logical(TapeOp op, const Array& a, const Scalar& b) {  // all three are symmetric
  return map(
      {a}, [&](TapeBuilder& t, Values v) { return t.binary(op, truth(t, v[0]), ir::Scalar(!b.is_zero())); });
}

// Narrow dtypes are reduced in the dtype that kernels compute in. What comes back of min and max fits the narrow one; sums of
// 16-bit floats are rounded to it once, at the end.
Array reduce(ReduceKind kind, const Array& a, const Axes& axes, bool keepdims) {
  const Array out = Access::record(a, infer_reduce(Access::source(a), kind, axes.list(), keepdims));
  const bool extreme = kind == ReduceKind::kMin || kind == ReduceKind::kMax;
  const bool total = kind == ReduceKind::kSum || kind == ReduceKind::kProd;
  return (extreme && is_narrow(a.dtype())) || (total && is_half(a.dtype())) ? out.astype(a.dtype()) : out;
}

}  // namespace

#define TILEWISE_BINARY(name, op) \
  Array name(const Array& a, const Array& b) { return binary(TapeOp::op, a, b); } \
  Array name(const Array& a, const Scalar& b) { return binary(TapeOp::op, a, b); } \
  Array name(const Scalar& a, const Array& b) { return binary(TapeOp::op, a, b); }
TILEWISE_BINARY(operator+, kAdd)
TILEWISE_BINARY(operator-, kSub)
TILEWISE_BINARY(operator*, kMul)
TILEWISE_BINARY(operator/, kDiv)
TILEWISE_BINARY(operator%, kRem)
TILEWISE_BINARY(operator==, kEq)
TILEWISE_BINARY(operator!=, kNe)
TILEWISE_BINARY(operator<, kLt)
TILEWISE_BINARY(operator<=, kLe)
TILEWISE_BINARY(operator>, kGt)
TILEWISE_BINARY(operator>=, kGe)
TILEWISE_BINARY(operator&, kAnd)
TILEWISE_BINARY(operator|, kOr)
TILEWISE_BINARY(operator^, kXor)
TILEWISE_BINARY(floor_divide, kFloorDiv)
TILEWISE_BINARY(power, kPow)
TILEWISE_BINARY(minimum, kMinimum)
TILEWISE_BINARY(maximum, kMaximum)
TILEWISE_BINARY(atan2, kAtan2)
TILEWISE_BINARY(copysign, kCopysign)
TILEWISE_BINARY(nextafter, kNextafter)
TILEWISE_BINARY(hypot, kHypot)
TILEWISE_BINARY(logaddexp, kLogaddexp)
TILEWISE_BINARY(left_shift, kShl)
TILEWISE_BINARY(right_shift, kShr)
#undef TILEWISE_BINARY

#define TILEWISE_LOGICAL(name, op) \
  Array name(const Array& a, const Array& b) { return logical(TapeOp::op, a, b); } \
  Array name(const Array& a, const Scalar& b) { return logical(TapeOp::op, a, b); } \
  Array name(const Scalar& a, const Array& b) { return logical(TapeOp::op, b, a); }
TILEWISE_LOGICAL(logical_and, kAnd)
TILEWISE_LOGICAL(logical_or, kOr)
TILEWISE_LOGICAL(logical_xor, kXor)
#undef TILEWISE_LOGICAL

#define TILEWISE_UNARY(name, op) \
  Array name(const Array& a) { return unary(TapeOp::op, a); }
TILEWISE_UNARY(operator-, kNeg)
TILEWISE_UNARY(operator!, kNot)
TILEWISE_UNARY(operator~, kInvert)
TILEWISE_UNARY(abs, kAbs)
TILEWISE_UNARY(sign, kSign)
TILEWISE_UNARY(sqrt, kSqrt)
TILEWISE_UNARY(exp, kExp)
TILEWISE_UNARY(expm1, kExpm1)
TILEWISE_UNARY(log, kLog)
TILEWISE_UNARY(log1p, kLog1p)
TILEWISE_UNARY(sin, kSin)
TILEWISE_UNARY(cos, kCos)
TILEWISE_UNARY(tan, kTan)
TILEWISE_UNARY(tanh, kTanh)
TILEWISE_UNARY(acos, kAcos)
TILEWISE_UNARY(acosh, kAcosh)
TILEWISE_UNARY(asin, kAsin)
TILEWISE_UNARY(asinh, kAsinh)
TILEWISE_UNARY(atan, kAtan)
TILEWISE_UNARY(atanh, kAtanh)
TILEWISE_UNARY(cosh, kCosh)
TILEWISE_UNARY(sinh, kSinh)
TILEWISE_UNARY(log2, kLog2)
TILEWISE_UNARY(log10, kLog10)
TILEWISE_UNARY(signbit, kSignbit)
TILEWISE_UNARY(conj, kConj)
TILEWISE_UNARY(real, kReal)
TILEWISE_UNARY(imag, kImag)
TILEWISE_UNARY(floor, kFloor)
TILEWISE_UNARY(ceil, kCeil)
TILEWISE_UNARY(trunc, kTrunc)
TILEWISE_UNARY(round, kRound)
TILEWISE_UNARY(isnan, kIsNan)
TILEWISE_UNARY(isinf, kIsInf)
TILEWISE_UNARY(isfinite, kIsFinite)
#undef TILEWISE_UNARY

Array square(const Array& a) { return a * a; }
Array reciprocal(const Array& a) { return 1 / a; }
Array positive(const Array& a) { return a; }
Array angle(const Array& a) { return atan2(imag(a), real(a)); }
Array complex(const Array& re, const Array& im) { return binary(TapeOp::kComplex, re, im); }

Array where(const Array& condition, const Array& a, const Array& b) {
  return map({condition, a, b}, [](TapeBuilder& t, Values v) { return t.where(v[0], v[1], v[2]); });
}
Array where(const Array& condition, const Array& a, const Scalar& b) {
  return map({condition, a}, [&](TapeBuilder& t, Values v) {
    return t.where(v[0], v[1], t.constant(b.value(), ir::scalar_dtype(t.dtype(v[1]), b.value().kind)));
  });
}
Array where(const Array& condition, const Scalar& a, const Array& b) {
  return map({condition, b}, [&](TapeBuilder& t, Values v) {
    return t.where(v[0], t.constant(a.value(), ir::scalar_dtype(t.dtype(v[1]), a.value().kind)), v[1]);
  });
}
Array where(const Array& condition, const Scalar& a, const Scalar& b) {
  return map({condition}, [&](TapeBuilder& t, Values v) {
    const auto constant = [&](const Scalar& s) {
      return t.constant(s.value(), ir::scalar_dtype(DType::kBool, s.value().kind));
    };
    return t.where(v[0], constant(a), constant(b));
  });
}

#define TILEWISE_REDUCE(name, kind) \
  Array name(const Array& a, const Axes& axes, bool keepdims) { \
    return reduce(ReduceKind::kind, a, axes, keepdims); \
  }
TILEWISE_REDUCE(min, kMin)
TILEWISE_REDUCE(max, kMax)
TILEWISE_REDUCE(any, kAny)
TILEWISE_REDUCE(all, kAll)
TILEWISE_REDUCE(argmin, kArgMin)
TILEWISE_REDUCE(argmax, kArgMax)
#undef TILEWISE_REDUCE

namespace {

Array total(ReduceKind kind, const Array& a, const Axes& axes, bool keepdims, std::optional<DType> dtype) {
  if (!dtype) return reduce(kind, a, axes, keepdims);
  if (*dtype == DType::kBool)
    throw ArrayError(Errc::kInvalidArgument, "a sum or product as bool: any() and all() say what is meant");
  return reduce(kind, a.astype(*dtype), axes, keepdims).astype(*dtype);
}

}  // namespace

Array sum(const Array& a, const Axes& axes, bool keepdims, std::optional<DType> dtype) {
  return total(ReduceKind::kSum, a, axes, keepdims, dtype);
}
Array prod(const Array& a, const Axes& axes, bool keepdims, std::optional<DType> dtype) {
  return total(ReduceKind::kProd, a, axes, keepdims, dtype);
}

Array mean(const Array& a, const Axes& axes, bool keepdims) {
  if (is_half(a.dtype())) return mean(a.astype(DType::kFloat32), axes, keepdims).astype(a.dtype());
  const bool inexact = is_floating(a.dtype()) || is_complex(a.dtype());
  const Array total = sum(inexact ? a : a.astype(DType::kFloat64), axes, keepdims);
  // How many elements went into one: both counts are known here. Of nothing: 0 / 0, as in NumPy.
  const std::int64_t results = total.size();
  if (results == 0) return total;
  return total / static_cast<double>(a.size() / results);
}

Array matmul(const Array& a, const Array& b, const MatmulOptions& options) {
  const std::vector<ir::Source> sources = Access::sources(std::vector{a, b});
  for (const Array* x : {&a, &b})
    if (x->dtype() == DType::kBool)
      throw ArrayError(Errc::kInvalidArgument, "matmul of bool and of shape " + ir::to_string(x->shape()) +
                                                   ": cast to a number first");
  // 16-bit floats of one dtype are multiplied as they are and summed in float32; the sum is narrowed once.
  if (is_half(a.dtype()) && a.dtype() == b.dtype())
    return Access::record(a, infer_matmul(sources[0], sources[1], options.k_parts, options.tf32))
        .astype(a.dtype());
  // Arrays of two dtypes meet where their sum would, small ones in wider ones; the result is narrowed once.
  const DType common = ir::common_dtype(a.dtype(), b.dtype());
  const DType wide = common == DType::kUInt64 ? DType::kInt64 : compute_dtype(common);
  if (wide != a.dtype() || wide != b.dtype())
    return matmul(a.astype(wide), b.astype(wide), options).astype(common);
  return Access::record(a, infer_matmul(sources[0], sources[1], options.k_parts, options.tf32));
}

namespace {

using Infer = Result<ir::Inferred> (*)(std::span<const ir::Source>, int);

std::vector<Array> in_common_dtype(std::span<const Array> arrays) {
  if (arrays.empty()) throw ArrayError(Errc::kInvalidArgument, "nothing to join");
  DType common = arrays.front().dtype();
  for (const Array& a : arrays) common = ir::common_dtype(common, a.dtype());
  std::vector<Array> cast;
  for (const Array& a : arrays) cast.push_back(a.astype(common));
  return cast;
}

Array join(const std::vector<Array>& arrays, int axis, Infer infer) {
  return Access::record(arrays.front(), infer(Access::sources(arrays), axis));
}

// Each with the first one, as if there were no other: what is said of a mistake must not be about groups.
void check_pairs(const std::vector<Array>& arrays, int axis, Infer infer) {
  const std::vector<ir::Source> sources = Access::sources(arrays);
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const std::array pair = {sources.front(), sources[i]};
    client::value_or_throw(infer(pair, axis));
  }
}

// An op takes kMaxOperands: more are joined in groups of about the same number, and these then.
Array join_all(std::vector<Array> arrays, int axis) {
  while (arrays.size() > limits::kMaxOperands) {
    const std::size_t n = arrays.size(), groups = (n + limits::kMaxOperands - 1) / limits::kMaxOperands;
    std::vector<Array> fewer;
    for (std::size_t g = 0; g < groups; ++g)
      fewer.push_back(join({arrays.begin() + static_cast<std::ptrdiff_t>(g * n / groups),
                            arrays.begin() + static_cast<std::ptrdiff_t>((g + 1) * n / groups)},
                           axis, ir::infer_concat));
    arrays = std::move(fewer);
  }
  return join(arrays, axis, ir::infer_concat);
}

}  // namespace

Array concat(std::span<const Array> arrays, std::optional<int> axis) {
  std::vector<Array> parts = in_common_dtype(arrays);
  if (!axis)
    for (Array& a : parts) a = a.reshape({-1});
  if (parts.size() <= limits::kMaxOperands) return join(parts, axis.value_or(0), ir::infer_concat);
  check_pairs(parts, axis.value_or(0), ir::infer_concat);
  return join_all(std::move(parts), axis.value_or(0));
}

Array stack(std::span<const Array> arrays, int axis) {
  std::vector<Array> parts = in_common_dtype(arrays);
  if (parts.size() <= limits::kMaxOperands) return join(parts, axis, ir::infer_stack);
  check_pairs(parts, axis, ir::infer_stack);
  for (Array& a : parts) a = a.expand_dims(axis);
  return join_all(std::move(parts), axis);
}

std::vector<Array> unstack(const Array& a, int axis) {
  const int along = client::axis_of(a, axis, "unstack");
  std::vector<Array> out;
  for (std::int64_t i = 0; i < client::extent(a, along); ++i) out.push_back(a.at(along, i));
  return out;
}

}  // namespace tilewise
