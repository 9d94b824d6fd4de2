// Promotion, kinds and limits of dtypes, by the tables of the Array API standard (2024.12).
#include <doctest/doctest.h>
#include <tilewise/dtypes.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

using namespace tilewise;

namespace {

using enum ir::DType;

struct Meeting {
  DType a, b, result;
};

// What the standard defines; both orders hold.
const std::vector<Meeting> kTable = {
    {kBool, kBool, kBool},
    {kInt8, kInt8, kInt8},
    {kInt8, kInt16, kInt16},
    {kInt8, kInt32, kInt32},
    {kInt8, kInt64, kInt64},
    {kInt16, kInt16, kInt16},
    {kInt16, kInt32, kInt32},
    {kInt16, kInt64, kInt64},
    {kInt32, kInt32, kInt32},
    {kInt32, kInt64, kInt64},
    {kInt64, kInt64, kInt64},
    {kUInt8, kUInt8, kUInt8},
    {kUInt8, kUInt16, kUInt16},
    {kUInt8, kUInt32, kUInt32},
    {kUInt8, kUInt64, kUInt64},
    {kUInt16, kUInt16, kUInt16},
    {kUInt16, kUInt32, kUInt32},
    {kUInt16, kUInt64, kUInt64},
    {kUInt32, kUInt32, kUInt32},
    {kUInt32, kUInt64, kUInt64},
    {kUInt64, kUInt64, kUInt64},
    {kInt8, kUInt8, kInt16},
    {kInt8, kUInt16, kInt32},
    {kInt8, kUInt32, kInt64},
    {kInt16, kUInt8, kInt16},
    {kInt16, kUInt16, kInt32},
    {kInt16, kUInt32, kInt64},
    {kInt32, kUInt8, kInt32},
    {kInt32, kUInt16, kInt32},
    {kInt32, kUInt32, kInt64},
    {kInt64, kUInt8, kInt64},
    {kInt64, kUInt16, kInt64},
    {kInt64, kUInt32, kInt64},
    {kFloat32, kFloat32, kFloat32},
    {kFloat32, kFloat64, kFloat64},
    {kFloat64, kFloat64, kFloat64},
    {kComplex64, kComplex64, kComplex64},
    {kComplex64, kComplex128, kComplex128},
    {kComplex128, kComplex128, kComplex128},
    {kFloat32, kComplex64, kComplex64},
    {kFloat32, kComplex128, kComplex128},
    {kFloat64, kComplex64, kComplex128},
    {kFloat64, kComplex128, kComplex128},
};

template <class F> Errc code_of(F f) {
  try {
    f();
  } catch (const ArrayError& e) {
    return e.code();
  }
  return Errc::kOk;
}

}  // namespace

TEST_CASE("result_type and can_cast follow the standard's table") {
  for (const auto& [a, b, result] : kTable) {
    INFO(std::string(ir::name_of(a)), " ", std::string(ir::name_of(b)));
    CHECK(result_type({a, b}) == result);
    CHECK(result_type({b, a}) == result);
    CHECK(can_cast(a, b) == (result == b));
    CHECK(can_cast(b, a) == (result == a));
  }
  CHECK(result_type({kInt8}) == kInt8);
  CHECK(result_type({kInt8, kUInt8, kInt32}) == kInt32);
  CHECK(result_type({kUInt32, kInt8, kFloat32, kComplex64}) == kComplex128);
}

TEST_CASE("result_type: numbers adopt what arrays meet in") {
  CHECK(result_type({kFloat32, 1.5}) == kFloat32);
  CHECK(result_type({1.5, kFloat32}) == kFloat32);
  CHECK(result_type({2, kInt8, 3}) == kInt8);
  CHECK(result_type({kUInt8, true}) == kUInt8);
  CHECK(result_type({kBool, true}) == kBool);
  CHECK(result_type({kFloat16, 1, 2.5}) == kFloat16);
  CHECK(result_type({kComplex64, 1.5}) == kComplex64);
  CHECK(result_type({kFloat32, std::complex<double>(0, 1)}) == kComplex64);
  CHECK(result_type({kFloat64, std::complex<double>(0, 1)}) == kComplex128);
  // Of another kind: as NumPy.
  CHECK(result_type({kInt32, 1.5}) == kFloat64);
  CHECK(result_type({kBool, 1}) == kInt64);
  CHECK(result_type({kBool, 1.5, 2}) == kFloat64);
  CHECK(code_of([] { result_type({1, 2.5}); }) == Errc::kInvalidArgument);
  CHECK(code_of([] { result_type({}); }) == Errc::kInvalidArgument);
}

TEST_CASE("can_cast beyond the table: 16-bit floats; not between kinds") {
  CHECK_FALSE(can_cast(kBool, kInt8));
  CHECK(can_cast(kFloat16, kFloat32));
  CHECK(can_cast(kBFloat16, kFloat32));
  CHECK_FALSE(can_cast(kFloat16, kBFloat16));
  CHECK_FALSE(can_cast(kBFloat16, kFloat16));
  CHECK_FALSE(can_cast(kInt64, kFloat64));
  CHECK_FALSE(can_cast(kFloat32, kInt64));
  CHECK_FALSE(can_cast(kInt64, kUInt64));
  CHECK_FALSE(can_cast(kComplex64, kFloat64));
  CHECK_FALSE(can_cast(kInt8, kBool));
}

TEST_CASE("isdtype by the standard's kinds") {
  const struct {
    const char* kind;
    std::vector<DType> members;
  } kinds[] = {
      {"bool", {kBool}},
      {"signed integer", {kInt8, kInt16, kInt32, kInt64}},
      {"unsigned integer", {kUInt8, kUInt16, kUInt32, kUInt64}},
      {"integral", {kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64}},
      {"real floating", {kFloat16, kBFloat16, kFloat32, kFloat64}},
      {"complex floating", {kComplex64, kComplex128}},
      {"numeric",
       {kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64, kFloat16, kBFloat16, kFloat32,
        kFloat64, kComplex64, kComplex128}},
  };
  for (int i = 0; i < ir::kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    INFO(std::string(ir::name_of(t)));
    for (const auto& [kind, members] : kinds) {
      CAPTURE(kind);
      CHECK(isdtype(t, kind) == (std::find(members.begin(), members.end(), t) != members.end()));
    }
    CHECK(isdtype(t, t));
    CHECK(isdtype(t, {kInt8, "real floating"}) == (t == kInt8 || ir::is_floating(t)));
    CHECK_FALSE(isdtype(t, t == kBool ? kInt8 : kBool));
  }
  CHECK(code_of([] { isdtype(kInt8, "float"); }) == Errc::kInvalidArgument);
}

TEST_CASE("finfo and iinfo: limits") {
  const struct {
    DType dtype, real;
    int bits;
    double eps, max, smallest_normal;
  } floats[] = {
      {kFloat16, kFloat16, 16, 0x1p-10, 65504, 0x1p-14},
      {kBFloat16, kBFloat16, 16, 0x1p-7, 0x1.FEp127, 0x1p-126},
      {kFloat32, kFloat32, 32, 0x1p-23, 0x1.FFFFFEp127, 0x1p-126},
      {kFloat64, kFloat64, 64, 0x1p-52, 0x1.FFFFFFFFFFFFFp1023, 0x1p-1022},
      {kComplex64, kFloat32, 32, 0x1p-23, 0x1.FFFFFEp127, 0x1p-126},
      {kComplex128, kFloat64, 64, 0x1p-52, 0x1.FFFFFFFFFFFFFp1023, 0x1p-1022},
  };
  for (const auto& want : floats) {
    INFO(std::string(ir::name_of(want.dtype)));
    const FloatInfo got = finfo(want.dtype).value();
    CHECK(got.bits == want.bits);
    CHECK(got.eps == want.eps);
    CHECK(got.max == want.max);
    CHECK(got.min == -want.max);
    CHECK(got.smallest_normal == want.smallest_normal);
    CHECK(got.dtype == want.real);
  }
  const struct {
    DType dtype;
    int bits;
    std::int64_t min;
    std::uint64_t max;
  } integers[] = {
      {kInt8, 8, INT8_MIN, INT8_MAX},     {kInt16, 16, INT16_MIN, INT16_MAX},
      {kInt32, 32, INT32_MIN, INT32_MAX}, {kInt64, 64, INT64_MIN, INT64_MAX},
      {kUInt8, 8, 0, UINT8_MAX},          {kUInt16, 16, 0, UINT16_MAX},
      {kUInt32, 32, 0, UINT32_MAX},       {kUInt64, 64, 0, UINT64_MAX},
  };
  for (const auto& want : integers) {
    INFO(std::string(ir::name_of(want.dtype)));
    const IntegerInfo got = iinfo(want.dtype).value();
    CHECK(got.bits == want.bits);
    CHECK(got.min == want.min);
    CHECK(got.max == want.max);
  }
  for (const DType t : {kBool, kInt32}) CHECK_FALSE(finfo(t).has_value());
  for (const DType t : {kBool, kFloat32, kComplex64}) CHECK_FALSE(iinfo(t).has_value());
}
