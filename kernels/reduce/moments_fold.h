// Vector loops of moments: T is float or double, as the elements; counts, shifts and squares are double.
//
// Partials are joined as T. F. Chan, G. H. Golub and R. J. LeVeque do ("Updating formulae and a pairwise algorithm for
// computing sample variances", Stanford CS-79-773, 1979; The American Statistician 37, 1983), with one difference: a mean is
// held as sum / number plus a shift, so that differences of means keep their digits however far from 0 the means are.
#pragma once
#include <tilewise/ir/dtype.h>

#include <cstdint>

namespace tilewise::kernels::reduce {

// `width` results side by side. The mean is sum / count + shift, with the quotient rounded to double.
struct MomentRow {
  double* count = nullptr;
  void* sum = nullptr;
  double* shift = nullptr;
  double* squares = nullptr;

  MomentRow at(std::int64_t j, std::int64_t size) const {
    return {count + j, static_cast<char*>(sum) + j * size, shift + j, squares + j};
  }
};

struct MomentFns {
  // mean[j] = sum[j] / count
  void (*means)(void* mean, const void* sum, double count, std::int64_t width) = nullptr;
  // for r: d = x[r * pitch + j] - mean[j]; first[j] += d, second[j] += d * d, rows in order
  void (*spread)(void* first, void* second, const void* x, const void* mean, std::int64_t width,
                 std::int64_t rows, std::int64_t pitch) = nullptr;
  // for u, j: the same of x[u][0..length)[j] around mean[u * n + j], from 0, x of shape (units, length, n)
  void (*units)(void* first, void* second, const void* x, const void* mean, std::int64_t units,
                std::int64_t length, std::int64_t n) = nullptr;
  // out = `count` elements each whose sum is out.sum, from what spread() found around `mean`
  void (*settle)(const MomentRow& out, double count, const void* mean, const void* first, const void* second,
                 std::int64_t width) = nullptr;
  // out[c] = the moments of line x[c * length ...], of at most kLine (fold.h) elements, as the functions above make them in the
  // order of host.cc
  void (*lines)(const MomentRow& out, const void* x, std::int64_t count, std::int64_t length) = nullptr;
  // to = to and from together; of nothing and something the latter
  void (*join)(const MomentRow& to, const MomentRow& from, std::int64_t width) = nullptr;
  explicit operator bool() const { return join != nullptr; }
};
MomentFns find_moments(ir::DType dtype);  // float32, float64

}  // namespace tilewise::kernels::reduce
