// Every named elementwise function against the C++ library's, on every form of cluster: that each calls its own op. Arguments
// are chosen so that no two functions agree on them.
#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <functional>

#include "clusters.h"
#include "plain.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;
using Bools = std::vector<bool>;
using Z = std::complex<double>;

const Doubles kAny = {-3.5, -2.5, -1.25, -0.75, -0.5, 0.3, 0.5, 1.5, 2.5, 3.7};
const Doubles kPositive = {0.25, 0.5, 1.25, 2, 3.5, 10};
const Doubles kWithin = {-0.9, -0.5, -0.25, 0.1, 0.6, 0.95};  // (-1, 1)
const Doubles kAboveOne = {1.25, 1.5, 2, 7};

template <class T> Array given(const Session& s, const std::vector<T>& values) {
  return s.from_memory(values, {static_cast<std::int64_t>(values.size())}, {.block = {4}});
}
template <class T> std::vector<bool> bools(const std::vector<T>& values, const std::function<bool(T)>& f) {
  std::vector<bool> out;
  for (const T v : values) out.push_back(f(v));
  return out;
}

void check_close(const Doubles& got, const Doubles& want, const char* name) {
  INFO(name);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(got[i] - want[i]) <= 4e-16 * std::abs(want[i]));
  }
}

struct Unary {
  const char* name;
  Array (*function)(const Array&);
  double (*known)(double);
  const Doubles* arguments;
};
#define TW_UNARY(name, arguments) \
  { \
#name, [](const Array& a) { return name(a); }, [](double x) -> double { return std::name(x); }, \
                                                                                                 &arguments \
  }
const Unary kUnary[] = {
    TW_UNARY(abs, kAny),
    TW_UNARY(sqrt, kPositive),
    TW_UNARY(exp, kAny),
    TW_UNARY(expm1, kAny),
    TW_UNARY(log, kPositive),
    TW_UNARY(log1p, kWithin),
    TW_UNARY(log2, kPositive),
    TW_UNARY(log10, kPositive),
    TW_UNARY(sin, kAny),
    TW_UNARY(cos, kAny),
    TW_UNARY(tan, kAny),
    TW_UNARY(asin, kWithin),
    TW_UNARY(acos, kWithin),
    TW_UNARY(atan, kAny),
    TW_UNARY(sinh, kAny),
    TW_UNARY(cosh, kAny),
    TW_UNARY(tanh, kAny),
    TW_UNARY(asinh, kAny),
    TW_UNARY(acosh, kAboveOne),
    TW_UNARY(atanh, kWithin),
    TW_UNARY(floor, kAny),
    TW_UNARY(ceil, kAny),
    TW_UNARY(trunc, kAny),
    {"round", [](const Array& a) { return round(a); }, [](double x) { return std::nearbyint(x); }, &kAny},
    {"sign", [](const Array& a) { return sign(a); }, [](double x) { return x > 0 ? 1.0 : -1.0; }, &kAny},
    {"negative", [](const Array& a) { return -a; }, [](double x) { return -x; }, &kAny},
    {"square", [](const Array& a) { return square(a); }, [](double x) { return x * x; }, &kAny},
    {"reciprocal", [](const Array& a) { return reciprocal(a); }, [](double x) { return 1 / x; }, &kAny},
    {"positive", [](const Array& a) { return positive(a); }, [](double x) { return x; }, &kAny},
    {"conj", [](const Array& a) { return conj(a); }, [](double x) { return x; }, &kAny},
    {"real", [](const Array& a) { return real(a); }, [](double x) { return x; }, &kAny},
    {"imag", [](const Array& a) { return imag(a); }, [](double) { return 0.0; }, &kAny},
};
#undef TW_UNARY

// A function of two arguments in its three forms; T: of what, R: into what.
template <class T, class R> struct Binary {
  const char* name;
  std::function<Array(const Array&, const Array&)> arrays;
  std::function<Array(const Array&, const Scalar&)> right;
  std::function<Array(const Scalar&, const Array&)> left;
  R (*known)(T, T);
};
#define TW_FORMS(expression) \
  [](const Array& a, const Array& b) { return expression; }, \
      [](const Array& a, const Scalar& b) { return expression; }, \
      [](const Scalar& a, const Array& b) { return expression; }

double python_rem(double a, double b) { return a - b * std::floor(a / b); }
const Binary<double, double> kOfFloats[] = {
    {"add", TW_FORMS(a + b), [](double a, double b) { return a + b; }},
    {"subtract", TW_FORMS(a - b), [](double a, double b) { return a - b; }},
    {"multiply", TW_FORMS(a* b), [](double a, double b) { return a * b; }},
    {"divide", TW_FORMS(a / b), [](double a, double b) { return a / b; }},
    {"remainder", TW_FORMS(a % b), python_rem},
    {"floor_divide", TW_FORMS(floor_divide(a, b)), [](double a, double b) { return std::floor(a / b); }},
    {"minimum", TW_FORMS(minimum(a, b)), [](double a, double b) { return std::min(a, b); }},
    {"maximum", TW_FORMS(maximum(a, b)), [](double a, double b) { return std::max(a, b); }},
    {"atan2", TW_FORMS(atan2(a, b)), [](double a, double b) { return std::atan2(a, b); }},
    {"copysign", TW_FORMS(copysign(a, b)), [](double a, double b) { return std::copysign(a, b); }},
    {"hypot", TW_FORMS(hypot(a, b)), [](double a, double b) { return std::hypot(a, b); }},
    {"logaddexp", TW_FORMS(logaddexp(a, b)),
     [](double a, double b) {
       return static_cast<double>(
           std::log(std::exp(static_cast<long double>(a)) + std::exp(static_cast<long double>(b))));
     }},
};
const Binary<double, double> kOfPositive[] = {
    {"power", TW_FORMS(power(a, b)), [](double a, double b) { return std::pow(a, b); }},
};
const Binary<double, bool> kComparisons[] = {
    {"equal", TW_FORMS(a == b), [](double a, double b) { return a == b; }},
    {"not_equal", TW_FORMS(a != b), [](double a, double b) { return a != b; }},
    {"less", TW_FORMS(a < b), [](double a, double b) { return a < b; }},
    {"less_equal", TW_FORMS(a <= b), [](double a, double b) { return a <= b; }},
    {"greater", TW_FORMS(a > b), [](double a, double b) { return a > b; }},
    {"greater_equal", TW_FORMS(a >= b), [](double a, double b) { return a >= b; }},
    {"logical_and", TW_FORMS(logical_and(a, b)), [](double a, double b) { return a != 0 && b != 0; }},
    {"logical_or", TW_FORMS(logical_or(a, b)), [](double a, double b) { return a != 0 || b != 0; }},
    {"logical_xor", TW_FORMS(logical_xor(a, b)), [](double a, double b) { return (a != 0) != (b != 0); }},
};
const Binary<std::int64_t, std::int64_t> kOfIntegers[] = {
    {"and", TW_FORMS(a& b), [](std::int64_t a, std::int64_t b) { return a & b; }},
    {"or", TW_FORMS(a | b), [](std::int64_t a, std::int64_t b) { return a | b; }},
    {"xor", TW_FORMS(a ^ b), [](std::int64_t a, std::int64_t b) { return a ^ b; }},
    {"left_shift", TW_FORMS(left_shift(a, b)), [](std::int64_t a, std::int64_t b) { return a << b; }},
    {"right_shift", TW_FORMS(right_shift(a, b)), [](std::int64_t a, std::int64_t b) { return a >> b; }},
    {"floor_divide", TW_FORMS(floor_divide(a, b)), [](std::int64_t a, std::int64_t b) { return a / b; }},
    {"remainder", TW_FORMS(a % b), [](std::int64_t a, std::int64_t b) { return a % b; }},
};
const Binary<double, double> kNextafter[] = {
    {"nextafter", TW_FORMS(nextafter(a, b)), [](double a, double b) { return std::nextafter(a, b); }},
};
#undef TW_FORMS

bool close(double got, double want) { return std::abs(got - want) <= 1e-15 * std::abs(want); }
bool close(bool got, bool want) { return got == want; }
bool close(std::int64_t got, std::int64_t want) { return got == want; }

// All pairs, array with array; every value as the scalar of the other two forms.
template <class T, class R, std::size_t n>
void check_binary(const Session& s, const Binary<T, R> (&functions)[n], const std::vector<T>& values,
                  bool to_the_bit = false) {
  std::vector<T> first, second;
  for (const T a : values)
    for (const T b : values) first.push_back(a), second.push_back(b);
  const Array x = given(s, first), y = given(s, second), v = given(s, values);
  const T middle = values[values.size() / 2];
  for (const Binary<T, R>& f : functions) {
    INFO(f.name);
    const auto same = [&](R got, R want) { return to_the_bit ? got == want : close(got, want); };
    const std::vector<R> pairs = f.arrays(x, y).template get<R>();
    const std::vector<R> right = f.right(v, Scalar(middle)).template get<R>();
    const std::vector<R> left = f.left(Scalar(middle), v).template get<R>();
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(same(pairs[i], f.known(first[i], second[i])));
    for (std::size_t i = 0; i < values.size(); ++i) {
      CHECK(same(right[i], f.known(values[i], middle)));
      CHECK(same(left[i], f.known(middle, values[i])));
    }
  }
}

}  // namespace

TEST_CASE("each elementwise function of one argument is the one it is called") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    for (const Unary& f : kUnary) {
      Doubles want;
      for (const double x : *f.arguments) want.push_back(f.known(x));
      check_close(f.function(given(s, *f.arguments)).get<double>(), want, f.name);
    }
    const Doubles special = {0.0, -0.0, 1, -2, INFINITY, -INFINITY, std::nan("")};
    const Array x = given(s, special);
    CHECK(isnan(x).get<bool>() == bools<double>(special, [](double v) { return std::isnan(v); }));
    CHECK(isinf(x).get<bool>() == bools<double>(special, [](double v) { return std::isinf(v); }));
    CHECK(isfinite(x).get<bool>() == bools<double>(special, [](double v) { return std::isfinite(v); }));
    CHECK(signbit(x).get<bool>() == bools<double>(special, [](double v) { return std::signbit(v); }));
    CHECK((!x).get<bool>() == bools<double>(special, [](double v) { return v == 0; }));
    const Ints whole = {0, 1, -1, 12345, -98765};
    Ints inverted;
    for (const std::int64_t v : whole) inverted.push_back(~v);
    CHECK((~given(s, whole)).get<std::int64_t>() == inverted);
    CHECK((~(given(s, whole) > 0)).get<bool>() == bools<std::int64_t>(whole, [](auto v) { return v <= 0; }));
  }
}

TEST_CASE("each elementwise function of two arguments is the one it is called, in its three forms") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    check_binary(s, kOfFloats, Doubles{-3.5, -1.5, 0.75, 2, 5.25});
    check_binary(s, kOfPositive, Doubles{0.5, 1.5, 2.25, 3});
    check_binary(s, kNextafter, Doubles{-3.5, 0, 0.75, 2}, true);
    check_binary(s, kComparisons, Doubles{-1, 0, 1, 2.5});
    check_binary(s, kOfIntegers, Ints{1, 2, 3, 5, 12});
    const Array a = given(s, Ints{0, 0, 1, 1}) > 0, b = given(s, Ints{0, 1, 0, 1}) > 0;
    CHECK((a & b).get<bool>() == Bools{false, false, false, true});
    CHECK((a | b).get<bool>() == Bools{false, true, true, true});
    CHECK((a ^ b).get<bool>() == Bools{false, true, true, false});
    const Array x = given(s, Doubles{1, 2, 3, 4}), y = given(s, Doubles{-1, -2, -3, -4});
    CHECK(where(b, x, y).get<double>() == Doubles{-1, 2, -3, 4});
    CHECK(where(b, x, 9).get<double>() == Doubles{9, 2, 9, 4});
    CHECK(where(b, 9, y).get<double>() == Doubles{-1, 9, -3, 9});
    CHECK(where(b, 8.5, 9.5).get<double>() == Doubles{9.5, 8.5, 9.5, 8.5});
  }
}

TEST_CASE("each function of complex numbers is the one it is called") {
  struct Function {
    const char* name;
    Array (*function)(const Array&);
    Z (*known)(Z);
  };
#define TW_COMPLEX(name) \
  { \
#name, [](const Array& a) { return name(a); }, [](Z z) { return Z(std::name(z)); } \
  }
  const Function functions[] = {
      TW_COMPLEX(sqrt),
      TW_COMPLEX(exp),
      TW_COMPLEX(log),
      TW_COMPLEX(log10),
      TW_COMPLEX(sin),
      TW_COMPLEX(cos),
      TW_COMPLEX(tan),
      TW_COMPLEX(asin),
      TW_COMPLEX(acos),
      TW_COMPLEX(atan),
      TW_COMPLEX(sinh),
      TW_COMPLEX(cosh),
      TW_COMPLEX(tanh),
      TW_COMPLEX(asinh),
      TW_COMPLEX(acosh),
      TW_COMPLEX(atanh),
      TW_COMPLEX(conj),
      {"expm1", [](const Array& a) { return expm1(a); }, [](Z z) { return std::exp(z) - 1.0; }},
      {"log1p", [](const Array& a) { return log1p(a); }, [](Z z) { return std::log(1.0 + z); }},
      {"log2", [](const Array& a) { return log2(a); }, [](Z z) { return std::log(z) / std::log(2.0); }},
      {"sign", [](const Array& a) { return sign(a); }, [](Z z) { return z / std::abs(z); }},
      {"negative", [](const Array& a) { return -a; }, [](Z z) { return -z; }},
      {"square", [](const Array& a) { return square(a); }, [](Z z) { return z * z; }},
      {"reciprocal", [](const Array& a) { return reciprocal(a); }, [](Z z) { return 1.0 / z; }},
  };
#undef TW_COMPLEX
  const std::vector<Z> values = {{0.3, 0.7}, {-1.5, 0.4}, {2, -1.25}, {-0.6, -2}, {0.9, 3}};
  Doubles re, im, size;
  for (const Z z : values) re.push_back(z.real()), im.push_back(z.imag()), size.push_back(std::abs(z));
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array z = given(s, values);
    for (const Function& f : functions) {
      INFO(f.name);
      const std::vector<Z> got = f.function(z).get<Z>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Z want = f.known(values[i]);
        CHECK(std::abs(got[i] - want) <= 4e-15 * std::abs(want));
      }
    }
    CHECK(real(z).get<double>() == re);
    CHECK(imag(z).get<double>() == im);
    check_close(abs(z).get<double>(), size, "abs");
    CHECK(complex(given(s, re), given(s, im)).get<Z>() == values);
    const std::vector<Z> powers = power(z, 1.5).get<Z>();
    for (std::size_t i = 0; i < values.size(); ++i)
      CHECK(std::abs(powers[i] - std::pow(values[i], 1.5)) <= 4e-15 * std::abs(powers[i]));
  }
}

TEST_CASE("integers compare with numbers that their dtype does not have") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const Array x = s.from_memory(std::vector<std::uint8_t>{0, 7, 255}, {3}, {.block = {2}});
    const std::vector<bool> yes(3, true), no(3, false);
    CHECK((x == 300).get<bool>() == no);
    CHECK((x != 300).get<bool>() == yes);
    CHECK((x < 300).get<bool>() == yes);
    CHECK((300 <= x).get<bool>() == no);
    CHECK((x > -1).get<bool>() == yes);
    CHECK((-1 >= x).get<bool>() == no);
    CHECK(where(x < 300, x, 0).get<std::uint8_t>() == std::vector<std::uint8_t>{0, 7, 255});
    CHECK((x <= 255).get<bool>() == yes);
  }
}
