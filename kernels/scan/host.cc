// Scans of a block. Lines whose elements are neighbours run alone; else as many neighbouring lines run side by side as a
// tile of running sums holds, row after row, which the compiler turns into vectors.
#include <algorithm>
#include <complex>
#include <cstdlib>
#include <type_traits>

#include "scan/scan.h"

namespace tilewise::kernels::scan {
namespace {

constexpr std::int64_t kColumns = 512;  // lines side by side

template <class T> struct Sum {
  static T neutral() {
    if constexpr (std::is_integral_v<T>)
      return 0;
    else if constexpr (std::is_floating_point_v<T>)
      return T(-0.0);
    else
      return T(-0.0, -0.0);
  }
  static T join(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
template <class T> struct Product {
  static T neutral() { return T(1); }
  static T join(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    } else if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else {  // the textbook's: std::complex repairs infinities. One is neutral, beside infinities too
      if (a == T(1)) return b;
      if (b == T(1)) return a;
      return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
    }
  }
};

// `n` lines that lie `step` apart; elements of a line lie `stride` apart.
template <class T> struct Lines {
  const T* in;
  T* out;
  const T* carry;  // null: none
  std::int64_t length, n;
  std::int64_t in_stride, in_step, out_stride, out_step, carry_step;
};

template <class T, class Op> void exclusive(const Lines<T>& l) {
  for (std::int64_t j = 0; j < l.n; ++j) {
    T now = l.carry != nullptr ? l.carry[j * l.carry_step] : Op::neutral();
    for (std::int64_t i = 0; i < l.length; ++i) {
      l.out[i * l.out_stride + j * l.out_step] = now;
      now = Op::join(now, l.in[i * l.in_stride + j * l.in_step]);
    }
  }
}

// One line after the other. `Write`: with the running values, else only the last of them.
template <class T, class Op, bool kWrite> void along(const Lines<T>& l) {
  for (std::int64_t j = 0; j < l.n; ++j) {
    const T* const in = l.in + j * l.in_step;
    T* const out = l.out + j * l.out_step;
    const bool carried = l.carry != nullptr;
    const T carry = carried ? l.carry[j * l.carry_step] : T();
    T run = Op::neutral();
    const auto put = [&](std::int64_t i, T v) {
      if constexpr (kWrite) out[i * l.out_stride] = carried ? Op::join(carry, v) : v;
    };
    std::int64_t i = 0;
    for (; i + 4 <= l.length; i += 4) {
      const T a = in[i * l.in_stride], x1 = in[(i + 1) * l.in_stride], x2 = in[(i + 2) * l.in_stride],
              x3 = in[(i + 3) * l.in_stride];
      const T b = Op::join(a, x1), c = Op::join(b, x2), d = Op::join(b, Op::join(x2, x3));
      put(i, Op::join(run, a));
      put(i + 1, Op::join(run, b));
      put(i + 2, Op::join(run, c));
      run = Op::join(run, d);
      put(i + 3, run);
    }
    T local = Op::neutral();
    for (std::int64_t k = i; k < l.length; ++k) {
      local = Op::join(local, in[k * l.in_stride]);
      put(k, Op::join(run, local));
    }
    run = Op::join(run, local);
    if constexpr (!kWrite) *out = run;
  }
}

// Rows of neighbouring lines.
template <class T, class Op, bool kWrite> void across(const Lines<T>& l) {
  T run[kColumns], pair[kColumns], third[kColumns];
  for (std::int64_t j0 = 0; j0 < l.n; j0 += kColumns) {
    const std::int64_t n = std::min(kColumns, l.n - j0);
    std::fill_n(run, n, Op::neutral());
    for (std::int64_t i = 0; i < l.length; ++i) {
      const T* const in = l.in + i * l.in_stride + j0 * l.in_step;
      T* const out = l.out + (kWrite ? i * l.out_stride : 0) + j0 * l.out_step;
      const auto each = [&](auto&& value) {
        if (l.in_step == 1 && l.out_step == 1 && l.carry == nullptr)
          for (std::int64_t j = 0; j < n; ++j) {
            const T v = value(j, in[j]);
            if constexpr (kWrite) out[j] = v;
          }
        else
          for (std::int64_t j = 0; j < n; ++j) {
            const T v = value(j, in[j * l.in_step]);
            if constexpr (kWrite)
              out[j * l.out_step] = l.carry != nullptr ? Op::join(l.carry[(j0 + j) * l.carry_step], v) : v;
          }
      };
      const bool last = i + 1 == l.length;
      switch (i % 4) {
        case 0:
          each([&](std::int64_t j, T x) {
            pair[j] = x;
            const T v = Op::join(run[j], x);
            if (last) run[j] = v;
            return v;
          });
          break;
        case 1:
          each([&](std::int64_t j, T x) {
            pair[j] = Op::join(pair[j], x);
            const T v = Op::join(run[j], pair[j]);
            if (last) run[j] = v;
            return v;
          });
          break;
        case 2:
          each([&](std::int64_t j, T x) {
            third[j] = x;
            const T v = Op::join(run[j], Op::join(pair[j], x));
            if (last) run[j] = v;
            return v;
          });
          break;
        default:
          each([&](std::int64_t j, T x) {
            run[j] = Op::join(run[j], Op::join(pair[j], Op::join(third[j], x)));
            return run[j];
          });
      }
    }
    if constexpr (!kWrite)
      for (std::int64_t j = 0; j < n; ++j) l.out[(j0 + j) * l.out_step] = run[j];
  }
}

template <class T, class Op> void lines(const Lines<T>& l, ir::ScanMode mode) {
  const bool side_by_side = l.n > 1 && std::abs(l.in_step) < std::abs(l.in_stride);
  switch (mode) {
    case ir::ScanMode::kExclusive: return exclusive<T, Op>(l);
    case ir::ScanMode::kInclusive: return side_by_side ? across<T, Op, true>(l) : along<T, Op, true>(l);
    case ir::ScanMode::kTotal: return side_by_side ? across<T, Op, false>(l) : along<T, Op, false>(l);
  }
}

template <class T> void block(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::ScanAttrs>();
  const auto axis = static_cast<std::size_t>(attrs.axis);
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  const TensorView* const carry = carry_of(call);
  const ir::Strides out_strides = ir::c_order_strides(out.shape);
  // The lines of one innermost dimension go together; the others are walked one by one.
  std::size_t inner = in.shape.size();
  for (std::size_t d = 0; d < in.shape.size(); ++d)
    if (d != axis && in.shape[d] > 1) inner = d;
  ir::Shape outer = in.shape;
  outer[axis] = 1;
  if (inner < in.shape.size()) outer[inner] = 1;
  Lines<T> l{};
  l.length = in.shape[axis];
  l.n = inner < in.shape.size() ? in.shape[inner] : 1;
  l.in_stride = in.strides[axis];
  l.out_stride = out_strides[axis];
  if (inner < in.shape.size()) {
    l.in_step = in.strides[inner];
    l.out_step = out_strides[inner];
    l.carry_step = carry != nullptr ? carry->strides[inner] : 0;
  }
  const std::int64_t n = ir::volume(outer);
  for (std::int64_t o = 0; o < n; ++o) {
    const ir::Index at = ir::unravel(o, outer);
    const auto offset = [&](const ir::Strides& strides) {
      std::int64_t sum = 0;
      for (std::size_t d = 0; d < at.size(); ++d) sum += at[d] * strides[d];
      return sum;
    };
    l.in = static_cast<const T*>(in.data) + offset(in.strides);
    l.out = static_cast<T*>(out.data) + offset(out_strides);
    l.carry = carry != nullptr ? static_cast<const T*>(carry->data) + offset(carry->strides) : nullptr;
    if (attrs.kind == ir::ReduceKind::kSum)
      lines<T, Sum<T>>(l, attrs.mode);
    else
      lines<T, Product<T>>(l, attrs.mode);
  }
}

}  // namespace

Status supports(const ir::Op&, const PluginTable*) { return {}; }

Status host(const KernelCall& call, const PluginTable*) {
  if (ir::volume(call.box.shape()) == 0) return {};
  if (call.inputs[0].data == nullptr) return error(Errc::kInternal, "a scan without its operand");
  switch (call.outputs[0].dtype) {
    case ir::DType::kFloat64: block<double>(call); break;
    case ir::DType::kFloat32: block<float>(call); break;
    case ir::DType::kInt32: block<std::int32_t>(call); break;
    case ir::DType::kComplex64: block<std::complex<float>>(call); break;
    case ir::DType::kComplex128: block<std::complex<double>>(call); break;
    default: block<std::int64_t>(call);  // and uint64: both wrap
  }
  return {};
}

}  // namespace tilewise::kernels::scan
