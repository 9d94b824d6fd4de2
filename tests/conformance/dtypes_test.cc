// Every dtype from the client's memory through a cluster and back, its arithmetic, its files; the dtypes of results.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "clusters.h"

using namespace tilewise;

namespace {

using C64 = std::complex<float>;
using C128 = std::complex<double>;

template <class T> std::vector<T> counting(std::int64_t n) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<T>(static_cast<float>(i % 100)));
  return out;
}

template <class T> bool equal(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

// In, added to itself, transposed in blocks, out again.
template <class T> void round_trip(const Session& s) {
  const std::int64_t m = 7, n = 13;
  const std::vector<T> values = counting<T>(m * n);
  const Array x = s.from_memory(values, {m, n}, {.block = {3, 5}});
  CHECK(x.dtype() == ir::dtype_of_v<T>);
  CHECK(equal(x.get<T>(), values));
  std::vector<T> twice, turned;
  for (const T v : values) twice.push_back(static_cast<T>(v + v));
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < m; ++i) turned.push_back(values[static_cast<std::size_t>(i * n + j)]);
  CHECK(equal((x + x).get<T>(), twice));
  CHECK(equal(x.permute().get<T>(), turned));
  CHECK(equal(x.at(0, 3).at(0, 4).get<T>(), {values[3 * 13 + 4]}));
  const Array same = s.full({3}, static_cast<T>(5.0f), {.dtype = x.dtype()});
  CHECK(equal(same.get<T>(), std::vector<T>(3, static_cast<T>(5.0f))));
}

template <class T> void file(const Session& s, const std::filesystem::path& folder) {
  const std::string path = (folder / (std::string(name_of(ir::dtype_of_v<T>)) + ".npy")).string();
  const std::vector<T> values = counting<T>(35);
  s.from_memory(values, {5, 7}, {.block = {2, 3}}).save_npy(path).wait();
  const Array back = s.load_npy(path, {.block = {4, 4}});
  CHECK(back.dtype() == ir::dtype_of_v<T>);
  CHECK(equal(back.get<T>(), values));
}

}  // namespace

TEST_CASE("every dtype goes in, is added, is transposed and comes out") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    round_trip<std::int8_t>(s);
    round_trip<std::int16_t>(s);
    round_trip<std::int32_t>(s);
    round_trip<std::int64_t>(s);
    round_trip<std::uint8_t>(s);
    round_trip<std::uint16_t>(s);
    round_trip<std::uint32_t>(s);
    round_trip<std::uint64_t>(s);
    round_trip<Float16>(s);
    round_trip<BFloat16>(s);
    round_trip<float>(s);
    round_trip<double>(s);
    round_trip<C64>(s);
    round_trip<C128>(s);
  }
}

TEST_CASE("integers wrap, floats round once, and what has no answer says so") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const Array small = s.from_memory(std::vector<std::int8_t>{127, -128, 100}, {3});
  CHECK((small + 1).get<std::int8_t>() == std::vector<std::int8_t>{-128, -127, 101});
  CHECK((-small).get<std::int8_t>() == std::vector<std::int8_t>{-127, -128, -100});
  CHECK(sum(small).item<std::int64_t>() == 99);
  CHECK(min(small).item<std::int8_t>() == -128);
  CHECK(argmax(small).item<std::int64_t>() == 0);
  CHECK(sum(small, {}, false, DType::kInt8).item<std::int8_t>() == 99);
  const Array bytes = s.from_memory(std::vector<std::uint8_t>{250, 3, 255}, {3});
  CHECK((bytes * bytes).get<std::uint8_t>() == std::vector<std::uint8_t>{36, 9, 1});
  CHECK((~bytes).get<std::uint8_t>() == std::vector<std::uint8_t>{5, 252, 0});
  CHECK(sum(bytes).dtype() == DType::kUInt64);
  CHECK((small + bytes).dtype() == DType::kInt16);
  const Array large = s.from_memory(std::vector<std::uint64_t>{~std::uint64_t{0}, 5, 7}, {3});
  CHECK(max(large).item<std::uint64_t>() == ~std::uint64_t{0});
  CHECK(right_shift(large, 63).get<std::uint64_t>() == std::vector<std::uint64_t>{1, 0, 0});
  CHECK((large > 6).get<bool>() == std::vector<bool>{true, false, true});
  CHECK((large == ~std::uint64_t{0}).get<bool>() == std::vector<bool>{true, false, false});
  // 2048 + 1 is 2048 in float16: a sum that rounded each step would stay there.
  const Array ones = s.ones({3000}, {.dtype = DType::kFloat16, .block = {1000}});
  CHECK(float(sum(ones).item<Float16>()) == 3000);
  CHECK(float(mean(ones).item<Float16>()) == 1);
  CHECK(float((s.full({1}, 2048, {.dtype = DType::kFloat16}) + 1).item<Float16>()) == 2048);
  CHECK(
      s.from_memory(std::vector<double>{300, -1, NAN, 1e30}, {4}).astype(DType::kUInt8).get<std::uint8_t>() ==
      std::vector<std::uint8_t>{44, 255, 0, 0});
  CHECK_THROWS_AS(small + 128, ArrayError);
  CHECK_THROWS_AS(bytes - 256, ArrayError);
}

TEST_CASE("doubles and integers become 16-bit floats with one rounding") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::vector<double> x = {
        1 + 0x1p-11 + 0x1p-40, 1 + 3 * 0x1p-11 - 0x1p-40, 2049.0000001, 65519.9999999, 65520, -0.0};
    const Array halves = s.from_memory(x, {6}, {.block = {4}}).astype(DType::kFloat16);
    CHECK(halves.astype(DType::kFloat32).get<float>() ==
          std::vector<float>{1 + 0x1p-10f, 1 + 0x1p-10f, 2050, 65504, INFINITY, 0});
    CHECK(std::signbit(float(halves.get<Float16>()[5])));
    const std::vector<double> y = {1 + 0x1p-8 + 0x1p-40, 1 + 3 * 0x1p-8 - 0x1p-40};
    CHECK(s.from_memory(y, {2}).astype(DType::kBFloat16).astype(DType::kFloat32).get<float>() ==
          std::vector<float>(2, 1 + 0x1p-7f));
    const std::vector<std::int64_t> whole = {(std::int64_t{1} << 40) + (std::int64_t{1} << 32) + 1,
                                             -(std::int64_t{1} << 62) - (std::int64_t{1} << 54) - 1};
    CHECK(s.from_memory(whole, {2}).astype(DType::kBFloat16).astype(DType::kFloat32).get<float>() ==
          std::vector<float>{0x1p40f + 0x1p33f, -0x1p62f - 0x1p55f});
    CHECK(float(s.full({2}, 2049.0000001, {.dtype = DType::kFloat16}).get<Float16>()[1]) == 2050);
    CHECK(float(s.full({2}, 65519.9999999, {.dtype = DType::kFloat16}).get<Float16>()[1]) == 65504);
  }
}

namespace {

// Along each axis and along all, beside loops.
template <class T> void check_counts(const Session& s) {
  const std::int64_t l = 5, m = 300, n = 70;
  std::vector<T> values;
  for (std::int64_t i = 0; i < l * m * n; ++i)
    values.push_back(static_cast<T>(i * i % 7 < 3 ? -0.0f : static_cast<float>(i % 50 - 20)));
  const Array x = s.from_memory(values, {l, m, n}, {.block = {2, 280, 70}});
  std::vector<std::int64_t> first(static_cast<std::size_t>(m * n)), second(static_cast<std::size_t>(l * n)),
      third(static_cast<std::size_t>(l * m));
  std::int64_t all = 0;
  for (std::int64_t i = 0; i < l * m * n; ++i) {
    const bool counts = static_cast<float>(values[static_cast<std::size_t>(i)]) != 0;
    const std::int64_t a = i / (m * n), b = i / n % m, c = i % n;
    first[static_cast<std::size_t>(b * n + c)] += counts;
    second[static_cast<std::size_t>(a * n + c)] += counts;
    third[static_cast<std::size_t>(a * m + b)] += counts;
    all += counts;
  }
  INFO(name_of(x.dtype()));
  CHECK(count_nonzero(x).item<std::int64_t>() == all);
  CHECK(count_nonzero(x, 0).get<std::int64_t>() == first);
  CHECK(count_nonzero(x, 1).get<std::int64_t>() == second);
  CHECK(count_nonzero(x, 2).get<std::int64_t>() == third);
  CHECK(count_nonzero(x.astype(DType::kBool), 2).get<std::int64_t>() == third);
}

}  // namespace

TEST_CASE("what is not zero is counted, of every size of elements") {
  TestCluster cluster(kForms[0]);
  check_counts<std::int8_t>(cluster.session);
  check_counts<std::int16_t>(cluster.session);
  check_counts<std::int32_t>(cluster.session);
  check_counts<Float16>(cluster.session);
  check_counts<BFloat16>(cluster.session);
  check_counts<double>(cluster.session);
}

TEST_CASE("complex numbers: arithmetic, parts, sums, products; no order") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    const std::vector<C128> z = {{3, 4}, {-1, 2}, {0, -2}, {5, 0}};
    const Array x = s.from_memory(z, {2, 2}, {.block = {1, 2}});
    CHECK(abs(x).get<double>() == std::vector<double>{5, std::hypot(-1, 2), 2, 5});
    CHECK(real(x).get<double>() == std::vector<double>{3, -1, 0, 5});
    CHECK(imag(x).get<double>() == std::vector<double>{4, 2, -2, 0});
    CHECK(conj(x).get<C128>()[0] == C128(3, -4));
    CHECK(complex(real(x), imag(x)).get<C128>() == z);
    CHECK(sum(x).item<C128>() == C128(7, 4));
    CHECK(prod(x, 0).get<C128>() == std::vector<C128>{z[0] * z[2], z[1] * z[3]});
    CHECK((x * C128(0, 1)).get<C128>()[1] == C128(-2, -1));
    CHECK((x == C128(3, 4)).get<bool>() == std::vector<bool>{true, false, false, false});
    const std::vector<C128> product = matmul(x, x).get<C128>();
    CHECK(std::abs(product[0] - (z[0] * z[0] + z[1] * z[2])) < 1e-12);
    CHECK(std::abs(product[3] - (z[2] * z[1] + z[3] * z[3])) < 1e-12);
    CHECK(std::abs(exp(x).get<C128>()[1] - std::exp(z[1])) < 1e-15);
    CHECK((s.ones({2}, {.dtype = DType::kFloat32}) + C64(0, 1)).dtype() == DType::kComplex64);
    CHECK_THROWS_AS(max(x), ArrayError);
    CHECK_THROWS_AS(x < x, ArrayError);
    CHECK_THROWS_AS(x.astype(DType::kFloat64), ArrayError);
  }
}

TEST_CASE("products of every dtype") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const std::int64_t n = 12;
  const std::vector<float> a = counting<float>(n * n);
  std::vector<float> want(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t k = 0; k < n; ++k)
        want[static_cast<std::size_t>(i * n + j)] +=
            a[static_cast<std::size_t>(i * n + k)] * a[static_cast<std::size_t>(k * n + j)];
  const Array x = s.from_memory(a, {n, n}, {.block = {5, 4}});
  for (const DType t :
       {DType::kInt8, DType::kUInt16, DType::kUInt64, DType::kFloat16, DType::kBFloat16, DType::kComplex64}) {
    INFO(name_of(t));
    const Array y = x.astype(t), product = matmul(y, y);
    CHECK(product.dtype() == t);
    const Array expected =
        s.from_memory(want, {n, n}).astype(ir::is_integer(t) ? DType::kInt64 : t).astype(t);
    CHECK(all(product == expected).item<bool>());
  }
}

TEST_CASE("files of every dtype but bfloat16") {
  TestCluster cluster(kForms[0]);
  const Session& s = cluster.session;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tilewise-dtypes-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  file<std::int8_t>(s, folder);
  file<std::uint16_t>(s, folder);
  file<std::uint64_t>(s, folder);
  file<Float16>(s, folder);
  file<C64>(s, folder);
  file<C128>(s, folder);
  try {
    s.ones({3}, {.dtype = DType::kBFloat16}).save_npy((folder / "b.npy").string());
    FAIL("bfloat16 was written");
  } catch (const ArrayError& e) {
    CHECK(e.code() == Errc::kUnsupported);
    CHECK(std::string(e.what()).find("float32") != std::string::npos);
  }
  std::filesystem::remove_all(folder);
}
