// What a matrix at a time needs one kernel; the block algorithms are in linalg_blocked.cc.
#include "linalg.h"

#include <cmath>
#include <limits>

namespace tilewise {
namespace {

using ir::real_dtype;
using namespace client::linalg;
using client::Access;
using client::refuse;
using ir::TapeBuilder;
using ir::TapeValue;

Array square_matrix(const Array& a, const char* function) {
  const Array m = matrix(a, function);
  if (rows(m) != columns(m))
    refuse(Errc::kShapeMismatch, std::string(function) + " wants square matrices", a);
  return m;
}

// The other half of a dtype's arithmetic: what was computed wider comes back.
Array back(const Array& result, const Array& like) {
  return ir::is_half(like.dtype()) ? result.astype(like.dtype()) : result;
}
double epsilon(const Array& a) {
  return real_dtype(a.dtype()) == DType::kFloat32 ? std::numeric_limits<float>::epsilon()
                                                  : std::numeric_limits<double>::epsilon();
}

Array identity_like(const Array& a) {
  return generated(a, a.shape(), a.dtype(), [&](TapeBuilder& t) {
    return t.binary(ir::TapeOp::kEq, t.iota(a.rank() - 2), t.iota(a.rank() - 1));
  });
}

}  // namespace

Array cholesky(const Array& a, bool upper) {
  const Array m = square_matrix(a, "cholesky");
  const Array l =
      cuts_matrix(m) && m.rank() == 2
          ? blocked_cholesky(m)
          : one_each("tilewise.cholesky", "cholesky", {m}, {{m.dtype(), rows(m), rows(m)}}, flops(m) / 3)[0];
  return back(upper ? adjoint(l) : l, a);
}

QrResult qr(const Array& a, QrMode mode) {
  const Array m = matrix(a, "qr");
  QrResult out;
  if (mode == QrMode::kReduced && is_tall(m)) {
    const TallFactors tall = tall_factors(m, "qr");
    out = {multiplied(tall, identity_like(tall.r)), tall.r};
  } else {
    const std::int64_t k = mode == QrMode::kComplete ? rows(m) : std::min(rows(m), columns(m));
    auto both = one_each("tilewise.qr", "qr", {m}, {{m.dtype(), rows(m), k}, {m.dtype(), k, columns(m)}},
                         4 * flops(m));
    out = {both[0], both[1]};
  }
  return {back(out.q, a), back(out.r, a)};
}

SvdResult svd(const Array& a, bool full_matrices) {
  const Array m = matrix(a, "svd");
  const std::int64_t k = std::min(rows(m), columns(m));
  SvdResult out;
  if (is_tall(m) && !full_matrices) {
    const TallFactors tall = tall_factors(m, "svd");
    const SvdResult small = svd(tall.r, false);
    out = {multiplied(tall, small.u), small.s, small.vh};
  } else {
    auto all = one_each("tilewise.svd", "svd", {m},
                        {{real_dtype(m.dtype()), k, 1},
                         {m.dtype(), rows(m), full_matrices ? rows(m) : k},
                         {m.dtype(), full_matrices ? columns(m) : k, columns(m)}},
                        20 * flops(m));
    out = {all[1], all[0].squeeze(-1), all[2]};
  }
  return {back(out.u, a), back(out.s, a), back(out.vh, a)};
}

Array svdvals(const Array& a) {
  const Array m = matrix(a, "svdvals");
  if (is_tall(m)) return back(svdvals(tall_factors(m, "svdvals").r), a);
  const std::int64_t k = std::min(rows(m), columns(m));
  return back(
      one_each("tilewise.svd", "svdvals", {m}, {{real_dtype(m.dtype()), k, 1}}, 4 * flops(m))[0].squeeze(-1),
      a);
}

EighResult eigh(const Array& a) {
  const Array m = square_matrix(a, "eigh");
  auto both = one_each("tilewise.eigh", "eigh", {m},
                       {{real_dtype(m.dtype()), rows(m), 1}, {m.dtype(), rows(m), rows(m)}}, 9 * flops(m));
  return {back(both[0].squeeze(-1), a), back(both[1], a)};
}

Array eigvalsh(const Array& a) {
  const Array m = square_matrix(a, "eigvalsh");
  return back(
      one_each("tilewise.eigh", "eigvalsh", {m}, {{real_dtype(m.dtype()), rows(m), 1}}, 4 * flops(m))[0]
          .squeeze(-1),
      a);
}

namespace {

// `kernel` on a square matrix and a right side, whose stacks broadcast; vectors are columns.
Array with_right_side(const Array& a, const Array& b, const char* function,
                      const std::function<Array(const Array&, const Array&)>& compute) {
  const DType common = ir::common_dtype(a.dtype(), b.dtype());
  const bool vector = b.rank() == 1;
  Array m = square_matrix(a.astype(common), function);
  Array right = matrix(vector ? b.expand_dims(1).astype(common) : b.astype(common), function);
  if (rows(right) != rows(m))
    refuse(Errc::kShapeMismatch,
           std::string(function) + " with a right side of shape " + ir::to_string(b.shape()), a);
  Shape stack = client::value_or_throw(ir::broadcast(stack_of(m), stack_of(right)));
  const auto spread = [&](const Array& x) {
    Shape shape = stack;
    shape.push_back(rows(x)), shape.push_back(columns(x));
    return x.shape() == shape ? x : x.broadcast_to(shape);
  };
  m = spread(m), right = spread(right);
  const Array x = compute(m, right);
  const Array out = vector ? x.squeeze(-1) : x;
  return ir::is_half(common) ? out.astype(common) : out;
}

Array solved(const Array& m, const Array& right, const char* function) {
  if (m.rank() == 2 && is_cut(m) && right.size() > 0) return blocked_solve(m, right, function);
  return one_each("tilewise.solve", function, {m, right}, {{m.dtype(), rows(m), columns(right)}},
                  flops(m))[0];
}

}  // namespace

Array solve(const Array& a, const Array& b) {
  return with_right_side(a, b, "solve",
                         [](const Array& m, const Array& right) { return solved(m, right, "solve"); });
}

Array inv(const Array& a) {
  const Array m = square_matrix(a, "inv");
  return back(solved(m, identity_like(m), "inv"), a);
}

Array solve_triangular(const Array& a, const Array& b, bool lower) {
  return with_right_side(a, b, "solve_triangular", [&](const Array& m, const Array& right) {
    if (m.rank() == 2 && cuts_matrix(m)) return blocked_triangular(m, right, lower);
    return one_each("tilewise.trsm", "solve_triangular", {m, right}, {{m.dtype(), rows(m), columns(right)}},
                    flops(m), lower ? 0 : ir::linalg::kUpper)[0];
  });
}

LstsqResult lstsq(const Array& a, const Array& b) {
  const DType common = ir::common_dtype(a.dtype(), b.dtype());
  const bool vector = b.rank() == 1;
  const Array m = matrix(a.astype(common), "lstsq");
  const Array right = matrix(vector ? b.expand_dims(1).astype(common) : b.astype(common), "lstsq");
  if (m.rank() != 2 || right.rank() != 2 || rows(right) != rows(m))
    refuse(Errc::kShapeMismatch, "lstsq with a right side of shape " + ir::to_string(b.shape()), a);
  if (rows(m) < columns(m)) refuse(Errc::kShapeMismatch, "lstsq wants no fewer rows than columns", a);
  const auto zeros = [&](const Shape& shape, DType dtype) {
    return generated(m, shape, dtype,
                     [](TapeBuilder& t) { return t.constant(ir::Scalar(std::int64_t{0}), DType::kInt64); });
  };
  Array x;
  if (columns(m) * columns(right) == 0) {
    x = zeros({columns(m), columns(right)}, m.dtype());
  } else {
    const TallFactors tall = tall_factors(m, "lstsq");
    // What is left of a column that depends on those before it is rounding: zero, which no triangular solve divides by.
    const Array size = abs(tall.r);
    const Array vanishes = size <= max(size, 0, true) * (10 * static_cast<double>(columns(m)) * epsilon(m));
    const Array r = where((identity_like(tall.r) != 0) & vanishes, 0, tall.r);
    x = one_each("tilewise.trsm", "lstsq", {r.astype(m.dtype()), multiplied_by_adjoint(tall, right)},
                 {{m.dtype(), columns(m), columns(right)}}, flops(r), ir::linalg::kUpper)[0];
  }
  // Of what is left of b itself: |b|^2 - |Q^H b|^2 would cancel.
  const Array residuals =
      rows(m) > columns(m) ? sum(square(abs(right - matmul(m, x))), 0) : zeros({0}, real_dtype(m.dtype()));
  const auto rounded = [&](const Array& y) { return ir::is_half(common) ? y.astype(common) : y; };
  return {rounded(vector ? x.squeeze(-1) : x), rounded(residuals)};
}

namespace {

// `rtol`: one for all matrices of the stack, or an array of one each, beside which singular values have another axis.
double limit_of(std::optional<double> rtol, const Array& m) {
  return rtol.value_or(static_cast<double>(std::max(rows(m), columns(m))) * epsilon(m));
}
Array limit_of(const Array& rtol, const Array& m) {
  return rtol.astype(real_dtype(m.dtype())).expand_dims(-1);
}

template <class Rtol> Array pseudo_inverse(const Array& a, const Rtol& rtol) {
  const Array m = matrix(a, "pinv");
  const SvdResult f = svd(m, false);
  if (f.s.size() == 0) return back(adjoint(m), a);
  const Array kept = f.s > max(f.s, -1, true) * limit_of(rtol, m);
  const Array inverse = where(kept, 1 / f.s, 0.0);
  return back(matmul(adjoint(f.vh) * inverse.expand_dims(-2), adjoint(f.u)), a);
}

template <class Rtol> Array rank_of(const Array& a, const Rtol& rtol) {
  const Array m = matrix(a, "matrix_rank");
  const Array s = svdvals(m);
  if (std::min(rows(m), columns(m)) == 0) return sum(s.astype(DType::kInt64), -1);
  return sum(s > max(s, -1, true) * limit_of(rtol, m), -1);
}

}  // namespace

Array pinv(const Array& a, std::optional<double> rtol) { return pseudo_inverse(a, rtol); }
Array client::pinv(const Array& a, const Array& rtol) { return pseudo_inverse(a, rtol); }
Array matrix_rank(const Array& a, std::optional<double> rtol) { return rank_of(a, rtol); }
Array client::matrix_rank(const Array& a, const Array& rtol) { return rank_of(a, rtol); }

namespace {

std::vector<Array> determinant(const Array& m, const char* function) {
  std::vector<Array> all;
  if (rows(m) == 0) {  // of nothing: one
    const Array one = generated(m, stack_of(m), m.dtype(), [](TapeBuilder& t) {
      return t.constant(ir::Scalar(std::int64_t{1}), DType::kInt64);
    });
    return {one, (abs(one) - 1).astype(real_dtype(m.dtype())), one};
  }
  if (m.rank() == 2 && is_cut(m)) {
    const Factors lu = blocked_lu_factors(m, function);
    const Array exchanged = prod(lu.signs), size = abs(lu.pivots);
    const Array units = where(size == 0, 0, lu.pivots / where(size == 0, 1, size)).astype(m.dtype());
    return {exchanged * prod(units), sum(log(size)), exchanged * prod(lu.pivots)};
  }
  for (const Array& x :
       one_each("tilewise.det", function, {m},
                {{m.dtype(), 1, 1}, {real_dtype(m.dtype()), 1, 1}, {m.dtype(), 1, 1}}, flops(m) / 1.5))
    all.push_back(x.squeeze(-1).squeeze(-1));
  return all;
}

}  // namespace

Array det(const Array& a) { return back(determinant(square_matrix(a, "det"), "det")[2], a); }
SlogdetResult slogdet(const Array& a) {
  const auto all = determinant(square_matrix(a, "slogdet"), "slogdet");
  return {back(all[0], a), back(all[1], a)};
}

Array matrix_power(const Array& a, std::int64_t n) {
  if (n < 0) {
    if (n == std::numeric_limits<std::int64_t>::min()) refuse(Errc::kOutOfRange, "matrix_power by -2^63", a);
    return matrix_power(inv(a), -n);
  }
  if (a.rank() < 2 || rows(a) != columns(a))
    refuse(Errc::kShapeMismatch, "matrix_power wants square matrices", a);
  if (a.dtype() == DType::kBool) refuse(Errc::kInvalidArgument, "matrix_power of bool", a);
  if (n == 0) return identity_like(a);
  Array square = a, out;
  for (std::int64_t left = n;; left /= 2) {
    if (left % 2 == 1) out = out.valid() ? matmul(out, square) : square;
    if (left == 1) return out;
    square = matmul(square, square);
  }
}

// ---- norms -------------------------------------------------------------------------------------------------------------

namespace {

// Of sizes; of none 0.
Array largest(const Array& sizes, const Axes& axes, bool keepdims) {
  for (const int axis : client::axes_of(sizes, axes, "a norm"))
    if (extent(sizes, axis) == 0) return sum(sizes, axes, keepdims);
  return max(sizes, axes, keepdims);
}

}  // namespace

Array vector_norm(const Array& a, const Axes& axes, bool keepdims, double ord) {
  if (ir::is_half(a.dtype()))
    return vector_norm(a.astype(DType::kFloat32), axes, keepdims, ord).astype(a.dtype());
  if (std::isnan(ord)) refuse(Errc::kInvalidArgument, "vector_norm of order NaN", a);
  const bool inexact = ir::is_floating(a.dtype()) || ir::is_complex(a.dtype());
  const Array size = abs(inexact ? a : a.astype(DType::kFloat64));
  if (ord == 0) return sum(size != 0, axes, keepdims).astype(size.dtype());
  if (std::isinf(ord)) return ord > 0 ? largest(size, axes, keepdims) : min(size, axes, keepdims);
  if (ord == 1) return sum(size, axes, keepdims);
  if (ord == 2) return sqrt(sum(square(size), axes, keepdims));
  return power(sum(power(size, ord), axes, keepdims), 1 / ord);
}

Array matrix_norm(const Array& a, const std::string& ord, bool keepdims) {
  const Array m = matrix(a, "matrix_norm");
  const auto kept = [&](const Array& norm) { return keepdims ? norm.expand_dims(-1).expand_dims(-1) : norm; };
  if (ord == "fro") return back(vector_norm(m, {-2, -1}, keepdims), a);
  if (ord == "nuc") return back(kept(sum(svdvals(m), -1)), a);
  refuse(Errc::kInvalidArgument, "matrix_norm '" + ord + "'", a);
}

Array matrix_norm(const Array& a, double ord, bool keepdims) {
  const Array m = matrix(a, "matrix_norm");
  const auto kept = [&](const Array& norm) { return keepdims ? norm.expand_dims(-1).expand_dims(-1) : norm; };
  const bool one = std::abs(ord) == 1;
  if (std::abs(ord) == 2) {
    const Array s = svdvals(m);
    return back(kept(ord > 0 ? largest(s, -1, false) : min(s, -1)), a);
  }
  if (!one && !std::isinf(ord))
    refuse(Errc::kInvalidArgument, "matrix_norm of order " + std::to_string(ord), a);
  const Array sums = sum(abs(m), one ? -2 : -1);
  return back(kept(ord > 0 ? largest(sums, -1, false) : min(sums, -1)), a);
}

// ---- elements ----------------------------------------------------------------------------------------------------------

Array cross(const Array& a, const Array& b, int axis) {
  for (const Array* x : {&a, &b}) {
    const int at = axis < 0 ? axis + x->rank() : axis;
    if (at < 0 || at >= x->rank()) refuse(Errc::kOutOfRange, "cross along axis " + std::to_string(axis), *x);
    if (x->shape()[static_cast<std::size_t>(at)] != 3)
      refuse(Errc::kShapeMismatch, "cross wants three elements along an axis", *x);
    if (x->dtype() == DType::kBool) refuse(Errc::kInvalidArgument, "cross of bool", *x);
  }
  if (axis >= 0 && a.rank() != b.rank())
    refuse(Errc::kInvalidArgument, "cross of arrays of two ranks wants an axis counted from the end", a);
  const auto part = [&](int i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    return (a.slice(axis, j, j + 1) * b.slice(axis, k, k + 1) -
            a.slice(axis, k, k + 1) * b.slice(axis, j, j + 1));
  };
  return concat({part(0), part(1), part(2)}, axis);
}

Array trace(const Array& a, std::int64_t offset, std::optional<DType> dtype) {
  return sum(diagonal(a, offset), -1, false, dtype);
}

Array diagonal(const Array& a, std::int64_t offset) {
  if (a.rank() < 2) refuse(Errc::kShapeMismatch, "diagonal wants two dimensions or more", a);
  offset = std::clamp(offset, -rows(a), columns(a));
  const std::int64_t first = std::max<std::int64_t>(0, -offset);
  const std::int64_t n =
      std::max<std::int64_t>(0, std::min(rows(a) - first, columns(a) - std::max<std::int64_t>(0, offset)));
  if (n == 0) {
    Shape shape = stack_of(a);
    shape.push_back(0);
    return generated(a, shape, a.dtype(),
                     [](TapeBuilder& t) { return t.constant(ir::Scalar(std::int64_t{0}), DType::kInt64); });
  }
  // The square that holds it; off the diagonal zeros, which add nothing.
  const Array part = a.slice(-2, first, first + n)
                         .slice(-1, std::max<std::int64_t>(0, offset), std::max<std::int64_t>(0, offset) + n);
  const ir::Grid cuts = part.grid();
  const Array on = generated(
      part, {n, n}, DType::kBool,
      [](TapeBuilder& t) { return t.binary(ir::TapeOp::kEq, t.iota(0), t.iota(1)); },
      ir::Grid({cuts.dim(part.rank() - 2), cuts.dim(part.rank() - 1)}));
  if (a.dtype() == DType::kBool) return any(part & on, -1);
  return sum(where(on, part, 0), -1).astype(a.dtype());
}

}  // namespace tilewise
