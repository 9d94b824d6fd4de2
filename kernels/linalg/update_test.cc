// Updates of a lower triangle by a matrix and its own adjoint, beside the same from a copy, and the reference.
#include <doctest/doctest.h>
#include <tilewise/base/prng.h>

#include <complex>
#include <cstring>
#include <string_view>
#include <vector>

#include "linalg/matrices.h"

namespace tilewise::kernels::linalg {
namespace {

template <class T> struct Dtype;
template <> struct Dtype<float> { static constexpr int kValue = TILEWISE_FLOAT32; };
template <> struct Dtype<double> { static constexpr int kValue = TILEWISE_FLOAT64; };
template <> struct Dtype<std::complex<float>> { static constexpr int kValue = TILEWISE_COMPLEX64; };
template <> struct Dtype<std::complex<double>> { static constexpr int kValue = TILEWISE_COMPLEX128; };

template <class T> tilewise_view_v1 view(std::vector<T>& data, std::int64_t r, std::int64_t c, bool turned) {
  tilewise_view_v1 v{};
  v.data = data.data();
  v.dtype = Dtype<T>::kValue;
  v.rank = 2;
  v.shape[0] = r, v.shape[1] = c;
  v.strides[0] = turned ? 1 : c, v.strides[1] = turned ? r : 1;
  return v;
}

template <class T> T random(Prng& prng) {
  if constexpr (kIsComplex<T>)
    return T(static_cast<Real<T>>(prng.uniform() - 0.5), static_cast<Real<T>>(prng.uniform() - 0.5));
  else
    return static_cast<T>(prng.uniform() - 0.5);
}

// C - Y^H Y, of which the block at (lo, lo) of a larger matrix is wanted below its diagonal.
template <class T>
std::vector<T> updated(tilewise_kernel_fn kernel, std::vector<T> c, std::vector<T> y, std::int64_t n,
                       std::int64_t k, bool own_memory, bool plus) {
  std::vector<T> copy = y, out(static_cast<std::size_t>(n * n), T(77));
  std::vector<tilewise_view_v1> in{view(own_memory ? copy : y, n, k, true), view(y, k, n, false)};
  if (plus) in.insert(in.begin(), view(c, n, n, false));
  tilewise_view_v1 to = view(out, n, n, false);
  to.lo[0] = to.lo[1] = 50;
  const Params params = ir::linalg::params("check", kConjugate | kLower);
  char message[128] = {};
  tilewise_call_v1 call{};
  call.params = &params;
  call.params_bytes = sizeof(params);
  call.input_count = static_cast<std::int32_t>(in.size());
  call.output_count = 1;
  call.inputs = in.data();
  call.outputs = &to;
  call.message = message;
  call.message_bytes = sizeof(message);
  REQUIRE_MESSAGE(kernel(&call) == 0, message);
  return out;
}

template <class T> void check() {
  tilewise_kernel_fn host = nullptr;
  for (const tilewise_kernel_v1& k : host_kernels())
    if (std::string_view(k.name) == "tilewise.update") host = k.host;
  const bool found = host != nullptr;
  REQUIRE(found);
  Prng prng(3);
  for (const std::int64_t n : {1, 2, 7, 40, 129})
    for (const std::int64_t k : {1, 5, 64})
      for (const bool plus : {true, false}) {
        CAPTURE(n);
        CAPTURE(k);
        std::vector<T> c(static_cast<std::size_t>(n * n)), y(static_cast<std::size_t>(k * n));
        for (T& x : c) x = random<T>(prng);
        for (std::int64_t i = 0; i < n; ++i)
          c[static_cast<std::size_t>(i * n + i)] = T(1);  // real, as of Hermitian ones
        for (T& x : y) x = random<T>(prng);
        const std::vector<T> got = updated(host, c, y, n, k, false, plus),
                             product = updated(host, c, y, n, k, true, plus),
                             want = updated(reference_of("tilewise.update"), c, y, n, k, true, plus);
        const double limit = 4 * static_cast<double>(k) * std::numeric_limits<Real<T>>::epsilon();
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const auto at = static_cast<std::size_t>(i * n + j);
            if (j > i) {
              REQUIRE(got[at] == T(0));
              REQUIRE(product[at] == T(0));
              REQUIRE(want[at] == T(0));
            }
            REQUIRE(std::abs(got[at] - want[at]) <= limit);
            REQUIRE(std::abs(product[at] - want[at]) <= limit);
          }
      }
}

}  // namespace

TEST_CASE("a lower triangle less a matrix times its adjoint") {
  check<float>();
  check<double>();
  check<std::complex<float>>();
  check<std::complex<double>>();
}

}  // namespace tilewise::kernels::linalg
