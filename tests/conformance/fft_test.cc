// Fourier transforms against the sum they are, on every form of cluster; long vectors against their own inverse.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Complex = std::complex<double>;
using Line = std::vector<Complex>;

Line plain(const Line& x, std::size_t n, double sign) {
  Line out(n);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t j = 0; j < std::min(n, x.size()); ++j)
      out[k] += x[j] * std::polar(1.0, sign * 2 * std::numbers::pi * static_cast<double>(j * k % n) /
                                           static_cast<double>(n));
  return out;
}

Line signal(std::size_t n, int seed) {
  Line out;
  for (std::size_t i = 0; i < n; ++i)
    out.emplace_back(static_cast<double>((i * 7 + static_cast<std::size_t>(seed)) % 13) - 6,
                     static_cast<double>(i * 5 % 11) - 5);
  return out;
}

double most(const Line& a, const Line& b) {
  REQUIRE(a.size() == b.size());
  double d = 0;
  for (std::size_t i = 0; i < a.size(); ++i) d = std::max(d, std::abs(a[i] - b[i]));
  return d;
}
double greatest(const Array& a) { return max(abs(a)).astype(DType::kFloat64).item<double>(); }

}  // namespace

TEST_CASE("transforms along any axis, cut or not, of any length") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::int64_t m = 6, n = 15;
    const Line a = signal(static_cast<std::size_t>(m * n), 3);
    const Array x = s.from_memory(a, {m, n}, {.block = {4, 4}});
    for (const std::int64_t length : {n, std::int64_t{8}, std::int64_t{20}, std::int64_t{1}}) {
      CAPTURE(length);
      const Line forward = fft::fft(x, length).get<Complex>(),
                 back = fft::ifft(x.T(), length, 0).T().get<Complex>();
      for (std::int64_t i = 0; i < m; ++i) {
        const Line line(a.begin() + i * n, a.begin() + (i + 1) * n);
        const auto size = static_cast<std::size_t>(length);
        Line inverse = plain(line, size, 1);
        for (Complex& c : inverse) c /= static_cast<double>(length);
        const auto row = [&](const Line& all) {
          return Line(all.begin() + i * length, all.begin() + (i + 1) * length);
        };
        CHECK(most(row(forward), plain(line, size, -1)) < 1e-12);
        CHECK(most(row(back), inverse) < 1e-13);
      }
    }
    CHECK(greatest(fft::ifft(fft::fft(x, {}, 0, "ortho"), {}, 0, "ortho") - x) < 1e-13);
    CHECK(greatest(fft::ifft(fft::fft(x, {}, 0, "forward"), {}, 0, "forward") - x) < 1e-13);
    CHECK(greatest(fft::ifftn(fft::fftn(x)) - x) < 1e-13);
    CHECK(greatest(fft::fftn(x) - fft::fft(fft::fft(x, {}, 1), {}, 0)) < 1e-11);
    // Real ones: the first half of the complex ones; even and odd lengths; narrow dtypes stay narrow.
    const Array r = real(x);
    CHECK(greatest(fft::rfft(r) - fft::fft(r).slice(1, 0, 8)) < 1e-12);
    CHECK(greatest(fft::irfft(fft::rfft(r), n) - r) < 1e-13);
    CHECK(greatest(fft::irfft(fft::rfft(r, {}, 0), {}, 0) - r) < 1e-13);
    CHECK(greatest(fft::irfftn(fft::rfftn(r, {}, {1, 0}), {}, {1, 0}) - r) < 1e-13);
    CHECK(greatest(fft::ihfft(fft::hfft(fft::rfft(r), n)).slice(1, 0, 8) - fft::rfft(r)) < 1e-11);
    CHECK(fft::rfft(r.astype(DType::kFloat32)).dtype() == DType::kComplex64);
    CHECK(greatest(fft::fft(x.astype(DType::kComplex64)) - fft::fft(x)) < 1e-4);
    CHECK(fft::fft(s.arange(5)).dtype() == DType::kComplex128);
    CHECK(fft::fftfreq(s, 5, 0.5).get<double>() == std::vector<double>{0, 0.4, 0.8, -0.8, -0.4});
    CHECK(fft::rfftfreq(s, 4).get<double>() == std::vector<double>{0, 0.25, 0.5});
    CHECK(fft::fftshift(s.arange(5)).get<std::int64_t>() == std::vector<std::int64_t>{3, 4, 0, 1, 2});
    CHECK(fft::ifftshift(fft::fftshift(x)).get<Complex>() == a);
    CHECK(code_of([&] { fft::fft(x, {}, 2); }) == Errc::kOutOfRange);
    CHECK(code_of([&] { fft::fft(x, 0); }) == Errc::kInvalidArgument);
    CHECK(code_of([&] { fft::fft(x, {}, 0, "none"); }) == Errc::kInvalidArgument);
    CHECK(code_of([&] { fft::rfft(x); }) == Errc::kInvalidArgument);
    CHECK(code_of([&] { fft::fftn(x, {{4}}, {0, 1}); }) == Errc::kInvalidArgument);
  }
}

namespace {

// What a norm multiplies with.
double factor(const std::string& norm, bool inverse, std::size_t n) {
  const auto count = static_cast<double>(n);
  if (norm == "ortho") return 1 / std::sqrt(count);
  return (norm == "forward") != inverse ? 1 / count : 1;
}
Line scaled(Line x, double by) {
  for (Complex& c : x) c *= by;
  return x;
}
// All n elements of which x has the first n / 2 + 1: the others are conjugates, the ends real.
Line whole(const Line& x, std::size_t n) {
  Line out(n);
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t at = std::min(k, n - k);
    const Complex c = at < x.size() ? x[at] : Complex();
    out[k] = k == at ? c : std::conj(c);
    if (k == n - k || k == 0) out[k] = c.real();
  }
  return out;
}
Line half(Line x) {
  x.resize(x.size() / 2 + 1);
  return x;
}
Line complex_of(const Array& a) { return a.astype(DType::kComplex128).get<Complex>(); }
Line row(const Line& all, std::size_t i, std::size_t n) {
  return Line(all.begin() + static_cast<std::ptrdiff_t>(i * n),
              all.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
}
Line turned(const Line& a, std::size_t rows, std::size_t columns) {
  Line out;
  for (std::size_t j = 0; j < columns; ++j)
    for (std::size_t i = 0; i < rows; ++i) out.push_back(a[i * columns + j]);
  return out;
}
// Each row as `f` makes it.
Line by_rows(const Line& a, std::size_t columns, const std::function<Line(const Line&)>& f) {
  Line out;
  for (std::size_t i = 0; i < a.size() / columns; ++i) {
    const Line line = f(row(a, i, columns));
    out.insert(out.end(), line.begin(), line.end());
  }
  return out;
}

}  // namespace

TEST_CASE("every kind of transform, with every norm, is the sum that it is") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::size_t m = 5, n = 12;
    const Line a = signal(m * n, 3);
    const Array x = s.from_memory(a, {5, 12}, {.block = {2, 5}}), r = real(x);
    const Line re = complex_of(r);
    for (const std::string norm : {"backward", "ortho", "forward"})
      for (const std::size_t length : {12, 9, 16}) {
        CAPTURE(norm);
        CAPTURE(length);
        const auto size = static_cast<std::int64_t>(length);
        const double there = factor(norm, false, length), back = factor(norm, true, length);
        const auto check = [&](const Array& got, const Line& from,
                               const std::function<Line(const Line&)>& f) {
          CHECK(most(complex_of(got), by_rows(from, n, f)) < 1e-12);
        };
        check(fft::fft(x, size, -1, norm), a,
              [&](const Line& l) { return scaled(plain(l, length, -1), there); });
        check(fft::ifft(x, size, -1, norm), a,
              [&](const Line& l) { return scaled(plain(l, length, 1), back); });
        check(fft::rfft(r, size, -1, norm), re,
              [&](const Line& l) { return half(scaled(plain(l, length, -1), there)); });
        check(fft::irfft(x, size, -1, norm), a,
              [&](const Line& l) { return scaled(plain(whole(l, length), length, 1), back); });
        check(fft::hfft(x, size, -1, norm), a,
              [&](const Line& l) { return scaled(plain(whole(l, length), length, -1), there); });
        check(fft::ihfft(r, size, -1, norm), re,
              [&](const Line& l) { return half(scaled(plain(l, length, 1), back)); });
        CHECK(fft::hfft(x, size, -1, norm).dtype() == DType::kFloat64);
        // Two axes, the first one cut to 3 or filled up to 8.
        for (const std::size_t first : {3, 8}) {
          const std::vector<std::int64_t> both = {static_cast<std::int64_t>(first), size};
          const auto across = [&](const Line& rows, std::size_t columns, double sign, double by) {
            return turned(by_rows(turned(rows, m, columns), m,
                                  [&](const Line& l) { return scaled(plain(l, first, sign), by); }),
                          columns, first);
          };
          const double first_there = factor(norm, false, first), first_back = factor(norm, true, first);
          const auto forward = [&](const Line& l) { return scaled(plain(l, length, -1), there); };
          CHECK(most(complex_of(fft::fftn(x, both, {}, norm)),
                     across(by_rows(a, n, forward), length, -1, first_there)) < 1e-11);
          CHECK(most(complex_of(fft::fftn(x, {{size, both[0]}}, {1, 0}, norm)),
                     across(by_rows(a, n, forward), length, -1, first_there)) < 1e-11);
          CHECK(most(complex_of(fft::ifftn(x, both, {}, norm)),
                     across(by_rows(a, n, [&](const Line& l) { return scaled(plain(l, length, 1), back); }),
                            length, 1, first_back)) < 1e-11);
          CHECK(most(complex_of(fft::rfftn(r, both, {}, norm)),
                     across(by_rows(re, n, [&](const Line& l) { return half(forward(l)); }), length / 2 + 1,
                            -1, first_there)) < 1e-11);
          CHECK(most(complex_of(fft::irfftn(x, both, {}, norm)),
                     by_rows(across(a, n, 1, first_back), n, [&](const Line& l) {
                       return scaled(plain(whole(l, length), length, 1), back);
                     })) < 1e-11);
        }
      }
    CHECK(fft::fftn(x, {{7}}).shape() == Shape{5, 7});  // the last axis
    CHECK(most(complex_of(fft::fftn(x, {{7}})), complex_of(fft::fft(x, 7))) == 0);
  }
}

TEST_CASE("frequencies and shifts, of even and odd lengths, in two dimensions") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    using Doubles = std::vector<double>;
    CHECK(fft::fftfreq(s, 4, 0.5).get<double>() == Doubles{0, 0.5, -1, -0.5});
    CHECK(fft::fftfreq(s, 8, 1, {.block = {3}}).get<double>() ==
          Doubles{0, .125, .25, .375, -.5, -.375, -.25, -.125});
    CHECK(fft::fftfreq(s, 1).get<double>() == Doubles{0});
    CHECK(fft::rfftfreq(s, 5, 0.5).get<double>() == Doubles{0, 0.4, 0.8});
    CHECK(fft::rfftfreq(s, 1).get<double>() == Doubles{0});
    CHECK(fft::rfftfreq(s, 2).get<double>() == Doubles{0, 0.5});
    CHECK(fft::fftfreq(s, 4, -0.5, {.dtype = DType::kFloat32}).get<float>() ==
          std::vector<float>{-0.f, -.5f, 1, .5f});
    for (const std::int64_t m : {6, 7})
      for (const std::int64_t n : {4, 9}) {
        CAPTURE(m);
        CAPTURE(n);
        const std::vector<double> a = numbers(m * n, 1);
        const Array x = s.from_memory(a, {m, n}, {.block = {4, 3}});
        const auto moved = [&](std::int64_t down, std::int64_t right) {
          std::vector<double> out(a.size());
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j)
              out[static_cast<std::size_t>((i + down) % m * n + (j + right) % n)] =
                  a[static_cast<std::size_t>(i * n + j)];
          return out;
        };
        CHECK(fft::fftshift(x).get<double>() == moved(m / 2, n / 2));
        CHECK(fft::fftshift(x, 1).get<double>() == moved(0, n / 2));
        CHECK(fft::fftshift(x, {-2}).get<double>() == moved(m / 2, 0));
        CHECK(fft::ifftshift(x).get<double>() == moved((m + 1) / 2, (n + 1) / 2));
        CHECK(fft::ifftshift(x, 0).get<double>() == moved((m + 1) / 2, 0));
      }
  }
}

TEST_CASE("a long vector is transformed in four steps: as in one, and in blocks that do not hold it") {
  // Longer than a default block (524,288 complex128), over two workers of two devices. Each has memory for twice its share (of
  // 4 MiB) and for four blocks (of 8 MiB): with two and a half of them it does not always fit.
  const std::int64_t n = 1 << 20;  // 16 MiB
  const Form form = {
      "small", {.workers = 2, .host_devices = 2, .use_cuda = false, .memory_bytes = 40 << 20, .spin_ns = 0}};
  TestCluster cluster(form);
  const Session& s = cluster.session;
  const Array x = complex(s.random.normal({n}, {.seed = 1, .block = {n / 8}}),
                          s.random.normal({n}, {.seed = 2, .block = {n / 8}}));
  Array y = fft::fft(x);
  y.persist().wait();
  const ir::Shape block = y.grid().max_block_shape();
  CHECK(block[0] < n);
  // Some elements by the sum they are.
  const Line values = x.get<Complex>();
  for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, std::int64_t{777'777}, n - 1}) {
    Complex sum = 0;
    for (std::int64_t j = 0; j < n; ++j)
      sum += values[static_cast<std::size_t>(j)] *
             std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n));
    CHECK(std::abs(y.slice(0, k, k + 1).item<Complex>() - sum) < 1e-8);
  }
  CHECK(greatest(fft::ifft(y) - x) < 1e-12);
  const Array r = real(x);
  CHECK(greatest(fft::irfft(fft::rfft(r), n) - r) < 1e-12);
  CHECK(greatest(fft::irfft(fft::rfft(r, n - 1), n - 1) - r.slice(0, 0, n - 1)) < 1e-12);
}
