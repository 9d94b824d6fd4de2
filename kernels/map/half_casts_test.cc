// The loops that round to 16-bit floats, with each instruction set: half_cases.h says what they must give.
#include <doctest/doctest.h>
#include <tilewise/ir/element_types.h>

#include <bit>

#include "conformance/targets.h"
#include "half_cases.h"
#include "map/lanes.h"

using namespace tilewise;
using kernels::conformance::targets;
using kernels::conformance::WithTarget;

namespace {

template <class T> std::vector<float> rounded(ir::DType to, const std::vector<T>& values) {
  kernels::map::LaneArgs args;
  std::vector<float> out(values.size());
  args.out = out.data();
  args.in[0] = values.data();
  args.n = static_cast<std::int64_t>(values.size());
  kernels::map::find_round(to, ir::dtype_of_v<T>)(args);
  return out;
}

template <class Half, class T> void check_rounding(const std::vector<testing::HalfCase<T>>& cases) {
  REQUIRE(!cases.empty());
  std::vector<T> values;
  for (const auto& c : cases) values.push_back(c.value);
  const std::vector<float> got = rounded(ir::dtype_of_v<Half>, values);
  int wrong = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Half want;
    want.bits = cases[i].bits;
    if (std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(float(want)) || ++wrong > 5)
      continue;
    CHECK_MESSAGE(false, cases[i].value << " gives " << got[i] << ", not " << float(want));
  }
  CHECK(wrong == 0);
}

template <class Half> void check_nans() {
  std::vector<double> values;
  for (int bit = 0; bit < 52; ++bit)
    for (const std::uint64_t sign : {0u, 1u})
      values.push_back(std::bit_cast<double>(sign << 63 | 0x7FF0000000000000u | std::uint64_t{1} << bit));
  const std::vector<float> got = rounded(ir::dtype_of_v<Half>, values);
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(Half(got[i]).bits == Half(values[i]).bits);  // NaN, with the payload's upper bits
}

}  // namespace

TEST_CASE("loops round to 16-bit floats once") {
  const auto doubles16 = testing::half_cases(testing::kFloat16Format);
  const auto doublesb16 = testing::half_cases(testing::kBFloat16Format);
  for (const std::int64_t target : targets()) {
    const WithTarget chosen(target);
    INFO(hwy::TargetName(target));
    check_rounding<ir::Float16>(doubles16);
    check_rounding<ir::Float16>(testing::half_integer_cases<std::int32_t>(testing::kFloat16Format));
    check_rounding<ir::Float16>(testing::half_integer_cases<std::int64_t>(testing::kFloat16Format));
    check_rounding<ir::Float16>(testing::half_integer_cases<std::uint64_t>(testing::kFloat16Format));
    check_rounding<ir::BFloat16>(doublesb16);
    check_rounding<ir::BFloat16>(testing::half_integer_cases<std::int32_t>(testing::kBFloat16Format));
    check_rounding<ir::BFloat16>(testing::half_integer_cases<std::int64_t>(testing::kBFloat16Format));
    check_rounding<ir::BFloat16>(testing::half_integer_cases<std::uint64_t>(testing::kBFloat16Format));
    check_nans<ir::Float16>();
    check_nans<ir::BFloat16>();
  }
}

// The processor's own conversions, where loops have them, beside those of element_types.h.
TEST_CASE("loops between float32 and 16-bit floats have the bits of single conversions") {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4093)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const auto& format : {testing::kFloat16Format, testing::kBFloat16Format})
    for (const auto& c : testing::half_cases(format)) values.push_back(static_cast<float>(c.value));
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<std::uint16_t> narrow(values.size());
  std::vector<float> fitted(values.size());
  for (const std::int64_t target : targets())
    for (const ir::DType half : {ir::DType::kFloat16, ir::DType::kBFloat16}) {
      const WithTarget chosen(target);
      INFO(hwy::TargetName(target), " ", ir::name_of(half));
      kernels::map::LaneArgs args;
      args.in[0] = values.data(), args.n = n;
      args.out = narrow.data();
      kernels::map::find_narrow(half)(args);
      args.out = fitted.data();
      kernels::map::find_fit(half)(args);
      int wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool brain = half == ir::DType::kBFloat16;
        const std::uint16_t want = brain ? ir::bfloat16_bits(values[i]) : ir::float16_bits(values[i]);
        const float wide = brain ? ir::bfloat16_value(want) : ir::float16_value(want);
        wrong += narrow[i] != want ||
                 std::bit_cast<std::uint32_t>(fitted[i]) != std::bit_cast<std::uint32_t>(wide);
      }
      CHECK(wrong == 0);
    }
}
