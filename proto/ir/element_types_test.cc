#include <doctest/doctest.h>
#include <tilewise/ir/element_types.h>
#include <tilewise/ir/tape_builder.h>

#include "half_cases.h"

using namespace tilewise;
using namespace tilewise::ir;
using testing::HalfCase;

namespace {

template <class Half, class T> void check(const std::vector<HalfCase<T>>& cases) {
  REQUIRE(!cases.empty());
  int wrong = 0;
  for (const HalfCase<T>& c : cases) {
    if (Half(c.value).bits == c.bits || ++wrong > 5) continue;
    CHECK_MESSAGE(false, c.value << " gives " << Half(c.value).bits << ", not " << c.bits);
  }
  CHECK(wrong == 0);
}

// A constant of a tape, cast as the builder folds it.
template <class Half, class T> float folded(T value) {
  TapeBuilder t;
  const Tape tape = *t.finish(t.cast(t.constant(value, dtype_of_v<T>), dtype_of_v<Half>));
  return static_cast<float>(tape.code[tape.output(0)].imm_f);
}

static_assert(Float16(1 + 0x1p-11 + 0x1p-40).bits == 0x3C01);
static_assert(Float16(65519.9999999).bits == 0x7BFF && Float16(65520.0).bits == 0x7C00);

}  // namespace

TEST_CASE("doubles become 16-bit floats with one rounding") {
  check<Float16>(testing::half_cases(testing::kFloat16Format));
  check<BFloat16>(testing::half_cases(testing::kBFloat16Format));
  for (const std::uint64_t payload : {0x7FF8000000000000u, 0x7FF0000000000001u, 0xFFFFFFFFFFFFFFFFu}) {
    const auto nan = std::bit_cast<double>(payload);
    const std::uint16_t sign = payload >> 63 != 0 ? 0x8000 : 0;
    CHECK((Float16(nan).bits & 0xFE00) == (sign | 0x7E00));
    CHECK((BFloat16(nan).bits & 0xFFC0) == (sign | 0x7FC0));
  }
}

TEST_CASE("integers become 16-bit floats with one rounding") {
  check<Float16>(testing::half_integer_cases<std::int32_t>(testing::kFloat16Format));
  check<Float16>(testing::half_integer_cases<std::uint64_t>(testing::kFloat16Format));
  check<BFloat16>(testing::half_integer_cases<std::int32_t>(testing::kBFloat16Format));
  check<BFloat16>(testing::half_integer_cases<std::int64_t>(testing::kBFloat16Format));
  check<BFloat16>(testing::half_integer_cases<std::uint64_t>(testing::kBFloat16Format));
}

TEST_CASE("constants become 16-bit floats with one rounding") {
  CHECK(folded<Float16>(2049.0000001) == 2050);
  CHECK(folded<BFloat16>(1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7f);
  CHECK(folded<BFloat16>((std::int64_t{1} << 40) + (std::int64_t{1} << 32) + 1) == 0x1p40f + 0x1p33f);
  CHECK(folded<BFloat16>((std::uint64_t{1} << 63) + (std::uint64_t{1} << 55) + 1) == 0x1p63f + 0x1p56f);
}
