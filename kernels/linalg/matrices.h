// What host and reference kernels of linear algebra share: stacks of matrices seen through the plug-in interface.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>

#include <algorithm>
#include <complex>
#include <cstdio>
#include <new>
#include <vector>

#include "linalg/linalg.h"
#include "move/strided_copy.h"

namespace tilewise::kernels::linalg {

template <class T> struct RealOf { using type = T; };
template <class T> struct RealOf<std::complex<T>> { using type = T; };
template <class T> using Real = typename RealOf<T>::type;
template <class T> constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;
template <class T> T conjugate(T x) {
  if constexpr (kIsComplex<T>)
    return std::conj(x);
  else
    return x;
}

// One matrix of a stack.
template <class T> struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0, row = 0, column = 1;  // extents, strides

  T& at(std::int64_t i, std::int64_t j) const { return data[i * row + j * column]; }
  Matrix transposed() const { return {data, columns, rows, column, row}; }
  // Row by row without gaps, and a row and an element more than it has: OpenBLAS 0.3.21's cgemv_n and zgemv_n, of which LAPACK makes
  // use, read an element behind their vector, which may be a column (seen with 4 n + 2 rows, 6 and more).
  std::vector<T> packed() const {
    std::vector<T> out(static_cast<std::size_t>(rows * columns + columns + 1));
    copy_to({out.data(), rows, columns, columns, 1});
    return out;
  }
  void copy_to(const Matrix& to) const {
    move::strided_copy(reinterpret_cast<std::byte*>(to.data), {to.row, to.column},
                       reinterpret_cast<const std::byte*>(data), {row, column}, {rows, columns}, sizeof(T));
  }
  void conjugate_all() const {
    if constexpr (kIsComplex<T>)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) at(i, j) = std::conj(at(i, j));
  }
  // Is this the other's transpose, in the same memory?
  bool turns(const Matrix& other) const {
    return data == other.data && rows == other.columns && columns == other.rows && row == other.column &&
           column == other.row;
  }
  bool finite() const {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        if (!(std::abs(at(i, j)) <= std::numeric_limits<Real<T>>::max())) return false;
    return true;
  }
};

// One step of one of these kernels.
struct Call {
  const tilewise_call_v1& c;
  Params params;
  ir::Shape stack;
  ir::Index at = {};  // the matrix of the stack that is being worked on

  template <class T> Matrix<T> matrix(const tilewise_view_v1& v) const {
    Matrix<T> m{static_cast<T*>(v.data), v.shape[v.rank - 2], v.shape[v.rank - 1], v.strides[v.rank - 2],
                v.strides[v.rank - 1]};
    for (std::size_t d = 0; d < at.size(); ++d) m.data += at[d] * v.strides[d];
    return m;
  }
  template <class T> Matrix<T> in(int i) const { return matrix<T>(c.inputs[i]); }
  template <class T> Matrix<T> out(int i) const { return matrix<T>(c.outputs[i]); }

  int undefined(const std::string& why) const {
    std::string where;
    if (!at.empty()) where = ", in matrix " + ir::to_string(at) + " of the stack";
    std::snprintf(c.message, c.message_bytes, "%s: %s%s", params.function, why.c_str(), where.c_str());
    return static_cast<int>(Errc::kSingular);
  }
  int minor(const char* what, std::int64_t order) const {
    return undefined(std::string(what) + ": the leading minor of order " +
                     std::to_string(params.first + order));
  }
  int refuse(const std::string& why, Errc code = Errc::kInvalidArgument) const {
    std::snprintf(c.message, c.message_bytes, "%s: %s", params.function, why.c_str());
    return static_cast<int>(code);
  }
};

// What a kernel's matrices have to be like: built-in kernels are called by name, so also by whoever gets it wrong.
struct Contract {
  bool (*fits)(const tilewise_call_v1& c);       // the extents of its matrices
  unsigned real_outputs = 0;                     // bit i: output i holds real numbers
  unsigned index_inputs = 0, index_outputs = 0;  // int64
};
inline std::int64_t rows(const tilewise_view_v1& v) { return v.shape[v.rank - 2]; }
inline std::int64_t columns(const tilewise_view_v1& v) { return v.shape[v.rank - 1]; }
inline bool is(const tilewise_view_v1& v, std::int64_t r, std::int64_t c) {
  return rows(v) == r && columns(v) == c;
}

inline constexpr Contract kCholesky{[](const tilewise_call_v1& c) {
  const std::int64_t n = rows(c.inputs[0]);
  return is(c.inputs[0], n, n) && is(c.outputs[0], n, n);
}};
inline constexpr Contract kSolve{[](const tilewise_call_v1& c) {  // of solve and trsm
  const std::int64_t n = rows(c.inputs[0]), k = columns(c.outputs[0]);
  return c.input_count == 2 && is(c.inputs[0], n, n) && is(c.inputs[1], n, k) && is(c.outputs[0], n, k);
}};
inline constexpr Contract kDet{[](const tilewise_call_v1& c) {
                                 const std::int64_t n = rows(c.inputs[0]);
                                 return is(c.inputs[0], n, n) && c.output_count == 3 &&
                                        is(c.outputs[0], 1, 1) && is(c.outputs[1], 1, 1) &&
                                        is(c.outputs[2], 1, 1);
                               },
                               0b010};
inline constexpr Contract kQr{[](const tilewise_call_v1& c) {
  return c.output_count == 2 && rows(c.outputs[0]) == rows(c.inputs[0]) &&
         columns(c.outputs[1]) == columns(c.inputs[0]);
}};
inline constexpr Contract kGeqrf{[](const tilewise_call_v1& c) {
  if (c.input_count != 1 || c.output_count != 3) return false;
  const std::int64_t m = rows(c.inputs[0]), n = columns(c.inputs[0]), k = std::min(m, n);
  return is(c.outputs[0], m, n) && rows(c.outputs[1]) >= k && columns(c.outputs[1]) == 1 &&
         rows(c.outputs[2]) >= k && columns(c.outputs[2]) == n;
}};
inline constexpr Contract kOrmqr{[](const tilewise_call_v1& c) {
  return c.input_count == 3 && c.output_count == 1 && columns(c.inputs[1]) == 1 &&
         rows(c.inputs[1]) >= std::min(rows(c.inputs[0]), columns(c.inputs[0])) &&
         columns(c.inputs[2]) == columns(c.outputs[0]);
}};
inline constexpr Contract kEigh{[](const tilewise_call_v1& c) {
                                  const std::int64_t n = rows(c.inputs[0]);
                                  return is(c.inputs[0], n, n) &&
                                         rows(c.outputs[0]) * columns(c.outputs[0]) == n &&
                                         (c.output_count < 2 || is(c.outputs[1], n, n));
                                },
                                0b001};
inline constexpr Contract kSvd{
    [](const tilewise_call_v1& c) {
      const std::int64_t m = rows(c.inputs[0]), n = columns(c.inputs[0]), k = std::min(m, n);
      return rows(c.outputs[0]) * columns(c.outputs[0]) == k &&
             (c.output_count == 1 ||
              (c.output_count == 3 && ((is(c.outputs[1], m, k) && is(c.outputs[2], k, n)) ||
                                       (is(c.outputs[1], m, m) && is(c.outputs[2], n, n)))));
    },
    0b001};
inline constexpr Contract kUpdate{[](const tilewise_call_v1& c) {
  if (c.input_count < 2 || c.input_count > 3) return false;
  const tilewise_view_v1 &out = c.outputs[0], &a = c.inputs[c.input_count - 2],
                         &b = c.inputs[c.input_count - 1];
  return is(a, rows(out), rows(b)) && is(b, columns(a), columns(out)) &&
         (c.input_count == 2 || is(c.inputs[0], rows(out), columns(out)));
}};

inline constexpr Contract kLuPanel{[](const tilewise_call_v1& c) {
                                     const std::int64_t m = rows(c.inputs[0]), n = columns(c.inputs[0]);
                                     return m >= n && c.output_count == 3 && is(c.outputs[0], m, n) &&
                                            is(c.outputs[1], m, 1) && is(c.outputs[2], 1, 1);
                                   },
                                   0, 0, 0b010};
inline constexpr Contract kLuUpdate{
    [](const tilewise_call_v1& c) {
      if (c.input_count != 3) return false;
      const std::int64_t m = rows(c.inputs[0]), k = columns(c.inputs[0]), n = columns(c.inputs[2]);
      return m >= k && is(c.inputs[1], m, 1) && is(c.inputs[2], m, n) && is(c.outputs[0], k, n) &&
             (c.output_count < 2 ? m == k : is(c.outputs[1], m - k, n));
    },
    0, 0b010};

// The call's parameters, if it has matrices of one rank, one of the four dtypes and one stack, all there, with such extents.
// kInvalidArgument, kShapeMismatch; the text begins with the caller's function.
Result<Params> admitted(const tilewise_call_v1& c, const Contract& contract);

// Runs K<T>::run(Call&) for each matrix of the stack, T from the first input's dtype. No exception leaves.
template <template <class> class K, const Contract& kContract> int run(const tilewise_call_v1* c) {
  Call call{*c, {}, {}};
  const Result<Params> params = admitted(*c, kContract);
  if (!params) {
    std::snprintf(c->message, c->message_bytes, "%s", params.error().message.c_str());
    return static_cast<int>(params.error().code);
  }
  call.params = *params;
  for (int d = 0; d + 2 < c->outputs[0].rank; ++d) call.stack.push_back(c->outputs[0].shape[d]);
  const auto each = [&]<class T>() {
    const std::int64_t count = ir::volume(call.stack);
    for (std::int64_t i = 0; i < count; ++i) {
      call.at = ir::unravel(i, call.stack);
      if (const int code = K<T>::run(call); code != 0) return code;
    }
    return 0;
  };
  try {
    switch (static_cast<ir::DType>(c->inputs[0].dtype)) {
      case ir::DType::kFloat32: return each.template operator()<float>();
      case ir::DType::kFloat64: return each.template operator()<double>();
      case ir::DType::kComplex64: return each.template operator()<std::complex<float>>();
      case ir::DType::kComplex128: return each.template operator()<std::complex<double>>();
      default: return call.refuse("of another dtype");  // not admitted
    }
  } catch (const std::bad_alloc&) {
    return call.refuse("no memory for a copy of a matrix", Errc::kOutOfMemory);
  }
}

}  // namespace tilewise::kernels::linalg
