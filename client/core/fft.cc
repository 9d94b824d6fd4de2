#include <tilewise/fft.h>
#include <tilewise/functions.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "builtin_call.h"

namespace tilewise::fft {
namespace {

using client::Access;
using client::axis_of;
using client::extent;
using client::kDefaultBlockBytes;
using client::refuse;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;
using ir::builtin::Fft;

bool inverse(Fft::Kind kind) { return kind == Fft::kInverse || kind == Fft::kRealInverse; }

double scale_of(std::string_view norm, bool inverse, std::int64_t n, const Array& x) {
  const auto count = static_cast<double>(n);
  if (norm == "ortho") return 1 / std::sqrt(count);
  if (norm == "backward") return inverse ? 1 / count : 1;
  if (norm == "forward") return inverse ? 1 : 1 / count;
  refuse(Errc::kInvalidArgument, "fft with norm '" + std::string(norm) + "', not backward, ortho or forward",
         x);
}

DType complex_of(DType t) {
  const bool narrow = t == DType::kFloat32 || t == DType::kComplex64 || ir::is_half(t);
  return narrow ? DType::kComplex64 : DType::kComplex128;
}
DType real_of(DType t) { return complex_of(t) == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64; }

Array zeros(const Array& like, const Shape& shape) {
  return Access::record(Access::state(like), nullptr,
                        ir::infer_generate(shape, std::nullopt, [&](TapeBuilder& t, auto) {
                          return t.cast(t.constant(ir::Scalar(std::int64_t{0}), DType::kInt64), like.dtype());
                        }));
}

// n elements along the axis: the first ones, or all and zeros behind them.
Array fitted(const Array& x, int axis, std::int64_t n) {
  const std::int64_t have = extent(x, axis);
  if (n <= have) return n == have ? x : x.slice(axis, 0, n);
  Shape rest = x.shape();
  rest[static_cast<std::size_t>(axis)] = n - have;
  return concat({x, zeros(x, rest)}, axis);
}

// Smaller blocks are not worth their tasks.
constexpr std::int64_t kLeastBlockBytes = std::int64_t{1} << 20;

// Cuts for a result of `shape` that leave lines along `axis` whole: x's own where they do, else as many lines a block as x's
// blocks have room for, one at least: a device that has room for a few of its blocks has room for a few of the result's.
Grid line_grid(const Array& x, int axis, const Shape& shape, std::size_t element_bytes) {
  std::vector<ir::DimGrid> dims = x.grid().dims();
  const auto along = static_cast<std::size_t>(axis);
  const bool whole = dims[along].count() <= 1;
  dims[along] = ir::DimGrid::whole(shape[along]);
  if (!whole) {
    const std::int64_t line = shape[along] * static_cast<std::int64_t>(element_bytes);
    const std::int64_t bytes =
        std::clamp(client::block_volume(x.grid()) * static_cast<std::int64_t>(element_bytes),
                   kLeastBlockBytes, kDefaultBlockBytes);
    std::int64_t room = std::max<std::int64_t>(1, bytes / std::max<std::int64_t>(1, line));
    for (std::size_t d = dims.size(); d-- > 0;) {
      if (d == along) continue;
      const std::int64_t size =
          std::min(std::max<std::int64_t>(1, dims[d].max_size()),
                   static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(room))));
      if (size < dims[d].max_size()) dims[d] = client::value_or_throw(ir::DimGrid::uniform(shape[d], size));
      room = std::max<std::int64_t>(1, room / size);
    }
  }
  Grid grid(std::move(dims));
  if (const Status good = grid.verify(); !good) throw ArrayError(good.error());
  return grid;
}

// One transform along an axis; x has the dtype and the extent that it wants.
Array lines(const Array& x, Fft::Kind kind, int axis, std::int64_t n, double scale) {
  Shape shape = x.shape();
  if (kind == Fft::kRealForward) shape[static_cast<std::size_t>(axis)] = n / 2 + 1;
  if (kind == Fft::kRealInverse) shape[static_cast<std::size_t>(axis)] = n;
  const DType dtype = kind == Fft::kRealInverse ? real_of(x.dtype()) : complex_of(x.dtype());
  const Grid grid = line_grid(x, axis, shape, size_of(complex_of(dtype)));
  ir::OperandMap map = client::span_map(x.rank());
  map[static_cast<std::size_t>(axis)] = {ir::DimMap::Kind::kWhole};
  const double flops =
      5 * static_cast<double>(client::block_volume(grid)) * std::log2(static_cast<double>(n) + 1);
  return map_blocks(client::builtin_kernel(Fft{axis, kind, n, std::bit_cast<std::int64_t>(scale)}, flops),
                    std::span(&x, 1), {map}, {{dtype, grid}})
      .front();
}

// The largest divisor of n up to its root.
std::int64_t divisor_of(std::int64_t n) {
  auto d = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
  while (d > 1 && n % d != 0) --d;
  return d;
}

// Is a vector transformed in four steps? Where it is cut, longer than a default block, and both factors of its length fit
// one. A function of shape, dtype and grid only (D9).
bool four_steps(const Array& x, std::int64_t n) {
  const std::int64_t most = kDefaultBlockBytes / static_cast<std::int64_t>(size_of(x.dtype()));
  return x.rank() == 1 && x.grid().dim(0).count() > 1 && n > most && n / divisor_of(n) <= most;
}

// Bailey, "FFTs in external or hierarchical memory", 1990: rows of n2 after columns of n1, with a twist between.
//   X[k1 + n1 k2] = sum_j2 W(n2)^(j2 k2) * (W(n)^(j2 k1) * sum_j1 W(n1)^(j1 k1) x[n2 j1 + j2])
Array in_four_steps(const Array& x, bool inverse, std::int64_t n, double scale) {
  const std::int64_t n1 = divisor_of(n), n2 = n / n1;
  const Fft::Kind kind = inverse ? Fft::kInverse : Fft::kForward;
  const Array columns = lines(x.reshape({n1, n2}), kind, 0, n1, 1);
  const double turn = (inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(n);
  const ir::Source source = Access::source(columns);
  const Array twisted = Access::record(
      columns, infer_map(std::span(&source, 1), [&](TapeBuilder& t, std::span<const TapeValue> v) {
        // k1 * j2 < n, so the angle is within one turn.
        const TapeValue at = t.cast(t.binary(TapeOp::kMul, t.iota(0), t.iota(1)), DType::kFloat64);
        const TapeValue angle = t.binary(TapeOp::kMul, at, ir::Scalar(turn));
        const TapeValue w =
            t.binary(TapeOp::kComplex, t.unary(TapeOp::kCos, angle), t.unary(TapeOp::kSin, angle));
        return t.binary(TapeOp::kMul, v[0], t.cast(w, t.dtype(v[0])));
      }));
  return lines(twisted, kind, 1, n2, scale).T().reshape({n});
}

Array one(const Array& given, Fft::Kind kind, std::optional<std::int64_t> length, int axis,
          std::string_view norm, const char* function) {
  const int along = axis_of(given, axis, function);
  if (kind == Fft::kRealForward && is_complex(given.dtype()))
    refuse(Errc::kInvalidArgument, std::string(function) + " wants real numbers", given);
  const std::int64_t have = extent(given, along);
  const std::int64_t n = length.value_or(kind == Fft::kRealInverse ? 2 * (have - 1) : have);
  if (n < 1) refuse(Errc::kInvalidArgument, std::string(function) + " of length " + std::to_string(n), given);
  if (n > INT32_MAX && !four_steps(given, n))
    refuse(Errc::kLimitExceeded, std::string(function) + " of length " + std::to_string(n), given);
  const double scale = scale_of(norm, inverse(kind), n, given);
  const Array cast =
      given.astype(kind == Fft::kRealForward ? real_of(given.dtype()) : complex_of(given.dtype()));
  const Array x = fitted(cast, along, kind == Fft::kRealInverse ? n / 2 + 1 : n);
  if (!four_steps(x, n)) return lines(x, kind, along, n, scale);
  const bool back = inverse(kind);
  if (kind == Fft::kRealForward)
    return in_four_steps(x.astype(complex_of(x.dtype())), false, n, scale).slice(0, 0, n / 2 + 1);
  if (kind ==
      Fft::
          kRealInverse) {  // the other half is this one's conjugates, backwards; the ends have real parts only
    const Array ends = complex(real(x), zeros(real(x), x.shape()));
    const std::int64_t inner = (n - 1) / 2;
    std::vector<Array> parts = {ends.slice(0, 0, 1), x.slice(0, 1, 1 + inner)};
    if (n % 2 == 0) parts.push_back(ends.slice(0, n / 2, n / 2 + 1));
    parts.push_back(conj(flip(x.slice(0, 1, 1 + inner), 0)));
    return real(in_four_steps(concat(parts), true, n, scale));
  }
  return in_four_steps(x, back, n, scale);
}

std::vector<int> axes_of(const Array& x, const Axes& axes, const std::optional<std::vector<std::int64_t>>& s,
                         const char* function) {
  std::vector<int> out;
  if (axes.list()) {
    for (const int a : *axes.list()) out.push_back(axis_of(x, a, function));
  } else {  // the last ones, as many as there are lengths
    const int count = s ? static_cast<int>(s->size()) : x.rank();
    if (count > x.rank()) refuse(Errc::kInvalidArgument, std::string(function) + " of too many lengths", x);
    out.resize(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), x.rank() - count);
  }
  if (s && s->size() != out.size())
    refuse(Errc::kInvalidArgument, std::string(function) + " wants a length for each axis", x);
  if (out.empty()) refuse(Errc::kInvalidArgument, std::string(function) + " along no axis", x);
  return out;
}

std::optional<std::int64_t> length_of(const std::optional<std::vector<std::int64_t>>& s, std::size_t i) {
  return s ? std::optional((*s)[i]) : std::nullopt;
}

Array several(const Array& x, Fft::Kind kind, const std::optional<std::vector<std::int64_t>>& s,
              const Axes& axes, std::string_view norm, const char* function) {
  const std::vector<int> along = axes_of(x, axes, s, function);
  Array out = x;
  for (std::size_t i = 0; i < along.size(); ++i)
    out = one(out, kind, length_of(s, i), along[i], norm, function);
  return out;
}

Array shifted(const Array& x, const Axes& axes, bool back) {
  Array out = x;
  for (const int axis : axes_of(x, x.rank() == 0 ? Axes{} : axes, {}, "fftshift")) {
    const std::int64_t half = extent(x, axis) / 2;
    out = roll(out, back ? -half : half, axis);
  }
  return out;
}

Array frequencies(const Session& session, std::int64_t n, double d, const CreateOptions& options, bool real,
                  const char* function) {
  if (n < 1 || d == 0)
    throw ArrayError(Errc::kInvalidArgument, std::string(function) + " of " + std::to_string(n) +
                                                 " samples " + std::to_string(d) + " apart");
  const Array k = session.arange(0, real ? n / 2 + 1 : n, 1, {.block = options.block});
  const Array turned = real ? k : where(k < (n + 1) / 2, k, k - n);
  return (turned.astype(DType::kFloat64) / (static_cast<double>(n) * d)).astype(options.dtype);
}

std::string_view other_way(std::string_view norm) {  // of a transform written as the other one
  return norm == "backward" ? "forward" : norm == "forward" ? "backward" : norm;
}

}  // namespace

Array fft(const Array& x, std::optional<std::int64_t> n, int axis, std::string_view norm) {
  return one(x, Fft::kForward, n, axis, norm, "fft");
}
Array ifft(const Array& x, std::optional<std::int64_t> n, int axis, std::string_view norm) {
  return one(x, Fft::kInverse, n, axis, norm, "ifft");
}
Array rfft(const Array& x, std::optional<std::int64_t> n, int axis, std::string_view norm) {
  return one(x, Fft::kRealForward, n, axis, norm, "rfft");
}
Array irfft(const Array& x, std::optional<std::int64_t> n, int axis, std::string_view norm) {
  return one(x, Fft::kRealInverse, n, axis, norm, "irfft");
}
Array hfft(const Array& x, std::optional<std::int64_t> n, int axis, std::string_view norm) {
  return one(conj(x.astype(complex_of(x.dtype()))), Fft::kRealInverse, n, axis, other_way(norm), "hfft");
}
Array ihfft(const Array& x, std::optional<std::int64_t> n, int axis, std::string_view norm) {
  return conj(one(x, Fft::kRealForward, n, axis, other_way(norm), "ihfft"));
}

Array fftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s, const Axes& axes,
           std::string_view norm) {
  return several(x, Fft::kForward, s, axes, norm, "fftn");
}
Array ifftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s, const Axes& axes,
            std::string_view norm) {
  return several(x, Fft::kInverse, s, axes, norm, "ifftn");
}

Array rfftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s, const Axes& axes,
            std::string_view norm) {
  const std::vector<int> along = axes_of(x, axes, s, "rfftn");
  const std::size_t last = along.size() - 1;
  Array out = one(x, Fft::kRealForward, length_of(s, last), along[last], norm, "rfftn");
  for (std::size_t i = 0; i < last; ++i)
    out = one(out, Fft::kForward, length_of(s, i), along[i], norm, "rfftn");
  return out;
}

Array irfftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s, const Axes& axes,
             std::string_view norm) {
  const std::vector<int> along = axes_of(x, axes, s, "irfftn");
  const std::size_t last = along.size() - 1;
  Array out = x;
  for (std::size_t i = 0; i < last; ++i)
    out = one(out, Fft::kInverse, length_of(s, i), along[i], norm, "irfftn");
  return one(out, Fft::kRealInverse, length_of(s, last), along[last], norm, "irfftn");
}

Array fftfreq(const Session& session, std::int64_t n, double d, const CreateOptions& options) {
  return frequencies(session, n, d, options, false, "fftfreq");
}
Array rfftfreq(const Session& session, std::int64_t n, double d, const CreateOptions& options) {
  return frequencies(session, n, d, options, true, "rfftfreq");
}
Array fftshift(const Array& x, const Axes& axes) { return shifted(x, axes, false); }
Array ifftshift(const Array& x, const Axes& axes) { return shifted(x, axes, true); }

}  // namespace tilewise::fft
