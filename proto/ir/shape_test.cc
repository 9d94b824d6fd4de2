#include <doctest/doctest.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/element_types.h>
#include <tilewise/ir/shape.h>

using namespace tilewise;
using namespace tilewise::ir;

TEST_CASE("boxes: volume, containment, intersection, also of rank 0 and empty") {
  const Box b{{1, 2}, {3, 5}};
  CHECK(b.volume() == 6);
  CHECK(b.shape() == Shape{2, 3});
  CHECK(b.contains({2, 4}));
  CHECK_FALSE(b.contains({3, 4}));
  CHECK(intersect(b, Box{{2, 0}, {9, 3}}) == Box{{2, 2}, {3, 3}});
  CHECK(intersect(b, Box{{3, 0}, {9, 3}}).volume() == 0);
  CHECK(Box{}.volume() == 1);
  CHECK(Box{}.contains({}));
  CHECK(to_string(b) == "[1:3, 2:5]");
}

TEST_CASE("volumes are checked, and an extent of zero does not hide an overflow") {
  CHECK(*checked_volume(Shape{3, 4}) == 12);
  CHECK(*checked_volume(Shape{}) == 1);
  CHECK(*checked_volume(Shape{3, 0}) == 0);
  const std::int64_t big = std::int64_t{1} << 32;
  CHECK(*checked_volume(Shape{big, big / 4, 1}) == std::int64_t{1} << 62);
  CHECK(checked_volume(Shape{big, big}).error().code == Errc::kOutOfRange);
  CHECK(checked_volume(Shape{big, big, 0}).error().code == Errc::kOutOfRange);
  CHECK(checked_volume(Shape{-1}).error().code == Errc::kInvalidArgument);
}

TEST_CASE("ravel and unravel are inverse") {
  const Shape counts{3, 4, 5};
  for (std::int64_t i = 0; i < 60; ++i) CHECK(ravel(unravel(i, counts), counts) == i);
  CHECK(unravel(0, {}).empty());
  CHECK(ravel({}, {}) == 0);
  CHECK(c_order_strides(counts) == Strides{20, 5, 1});
}

TEST_CASE("broadcasting follows NumPy and names both shapes") {
  CHECK(*broadcast({3, 1}, {4}) == Shape{3, 4});
  CHECK(*broadcast({}, {2, 0}) == Shape{2, 0});
  CHECK(*broadcast({1}, {0}) == Shape{0});
  CHECK(broadcast({3}, {4}).error().message == "shapes (3,) and (4,) do not broadcast");
  CHECK(broadcast({0}, {2}).error().code == Errc::kShapeMismatch);
}

TEST_CASE("dtypes: names, NumPy's codes, promotion") {
  CHECK(dtype_named("float64") == DType::kFloat64);
  CHECK(dtype_named("<f8") == DType::kFloat64);
  CHECK(dtype_named("|b1") == DType::kBool);
  CHECK_FALSE(dtype_named(">f8"));
  CHECK_FALSE(dtype_named("|f8"));
  CHECK_FALSE(dtype_named("float128"));
  for (int t = 0; t < kDTypeCount; ++t)
    CHECK(dtype_named(name_of(static_cast<DType>(t))) == static_cast<DType>(t));
  CHECK(promote(DType::kInt32, DType::kInt64) == DType::kInt64);
  CHECK(promote(DType::kFloat32, DType::kFloat64) == DType::kFloat64);
  CHECK_FALSE(promote(DType::kBool, DType::kInt32));
  CHECK_FALSE(promote(DType::kInt64, DType::kFloat64));
  CHECK(promote_scalar(DType::kFloat32, ScalarKind::kFloat) == DType::kFloat32);
  CHECK(promote_scalar(DType::kInt32, ScalarKind::kInt) == DType::kInt32);
  CHECK_FALSE(promote_scalar(DType::kInt32, ScalarKind::kFloat));
  CHECK_FALSE(promote_scalar(DType::kBool, ScalarKind::kInt));
}

TEST_CASE("the next point of a box in C order is found from any point") {
  const Box space = box_of({3, 4, 3});
  const Box box{{1, 0, 1}, {3, 2, 3}};
  for (std::int64_t p = 0; p < space.volume(); ++p) {
    const Index at = unravel(p, {3, 4, 3});
    std::optional<Index> expected;
    for (std::int64_t q = p; q < space.volume() && !expected; ++q) {
      if (box.contains(unravel(q, {3, 4, 3}))) expected = unravel(q, {3, 4, 3});
    }
    CHECK(next_in(box, at) == expected);
  }
  CHECK(!next_in(Box{{1, 1}, {1, 2}}, Index{0, 0}));
  CHECK(next_in(Box{}, Index{}) == Index{});
}

TEST_CASE("the promotion table of the standard") {
  const DType B = DType::kBool, i1 = DType::kInt8, i2 = DType::kInt16, i4 = DType::kInt32, i8 = DType::kInt64,
              u1 = DType::kUInt8, u2 = DType::kUInt16, u4 = DType::kUInt32, u8 = DType::kUInt64,
              f2 = DType::kFloat16, bf = DType::kBFloat16, f4 = DType::kFloat32, f8 = DType::kFloat64,
              c8 = DType::kComplex64, c16 = DType::kComplex128;
  const DType integers[] = {i1, i2, i4, i8, u1, u2, u4, u8}, no = B;
  // Rows and columns as above; `no`: undefined.
  const DType table[8][8] = {{i1, i2, i4, i8, i2, i4, i8, no}, {i2, i2, i4, i8, i2, i4, i8, no},
                             {i4, i4, i4, i8, i4, i4, i8, no}, {i8, i8, i8, i8, i8, i8, i8, no},
                             {i2, i2, i4, i8, u1, u2, u4, u8}, {i4, i4, i4, i8, u2, u2, u4, u8},
                             {i8, i8, i8, i8, u4, u4, u4, u8}, {no, no, no, no, u8, u8, u8, u8}};
  for (int a = 0; a < 8; ++a)
    for (int b = 0; b < 8; ++b) {
      INFO(name_of(integers[a]), " ", name_of(integers[b]));
      CHECK(promote(integers[a], integers[b]) ==
            (table[a][b] == no ? std::nullopt : std::optional(table[a][b])));
    }
  CHECK(promote(f2, f4) == f4);
  CHECK(promote(f2, f2) == f2);
  CHECK(promote(f2, bf) == f4);
  CHECK(promote(bf, f8) == f8);
  CHECK(promote(f4, c8) == c8);
  CHECK(promote(f8, c8) == c16);
  CHECK(promote(c16, f4) == c16);
  CHECK(promote(c8, c16) == c16);
  CHECK(promote(f2, c8) == c8);
  CHECK_FALSE(promote(c8, i4));
  CHECK_FALSE(promote(f4, u1));
  CHECK_FALSE(promote(B, c8));
  CHECK(promote_scalar(f4, ScalarKind::kComplex) == c8);
  CHECK(promote_scalar(f8, ScalarKind::kComplex) == c16);
  CHECK_FALSE(promote_scalar(i4, ScalarKind::kComplex));
  for (int t = 0; t < kDTypeCount; ++t)
    for (int u = 0; u < kDTypeCount; ++u)
      CHECK(promote(static_cast<DType>(t), static_cast<DType>(u)) ==
            promote(static_cast<DType>(u), static_cast<DType>(t)));
}

TEST_CASE("limits of dtypes") {
  CHECK(iinfo(DType::kInt8)->min == -128);
  CHECK(iinfo(DType::kInt8)->max == 127);
  CHECK(iinfo(DType::kUInt16)->max == 65535);
  CHECK(iinfo(DType::kInt64)->min == INT64_MIN);
  CHECK(iinfo(DType::kUInt64)->max == UINT64_MAX);
  CHECK_FALSE(iinfo(DType::kBool));
  CHECK_FALSE(iinfo(DType::kFloat16));
  CHECK(finfo(DType::kFloat16)->max == 65504);
  CHECK(finfo(DType::kBFloat16)->eps == 0.0078125);
  CHECK(finfo(DType::kFloat32)->smallest_normal == 0x1p-126);
  CHECK(finfo(DType::kComplex128)->dtype == DType::kFloat64);
  CHECK(finfo(DType::kComplex128)->bits == 64);
  CHECK_FALSE(finfo(DType::kInt32));
}

TEST_CASE("16-bit floats: every value there and back, and rounding to nearest even") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const float half = float16_value(b), brain = bfloat16_value(b);
    if (half == half) REQUIRE(float16_bits(half) == b);
    if (brain == brain) REQUIRE(bfloat16_bits(brain) == b);
    if (half != half) REQUIRE((float16_bits(half) & 0x7C00) == 0x7C00);
    // Between two neighbours: the nearer one, and of equals the even one.
    if ((b & 0x7FFF) >= 0x7BFF) continue;
    const float next = float16_value(static_cast<std::uint16_t>(b + 1)), middle = (half + next) / 2;
    REQUIRE(float16_bits(middle) == (b & 1 ? b + 1 : b));
    REQUIRE(float16_bits((half + middle) / 2) == b);
    REQUIRE(float16_bits((next + middle) / 2) == b + 1);
  }
  CHECK(float16_bits(65519.9f) == 0x7BFF);
  CHECK(float16_bits(65520.0f) == 0x7C00);
  CHECK(float16_bits(-1e30f) == 0xFC00);
  CHECK(float16_bits(1e-30f) == 0);
  CHECK(float16_bits(-0.0f) == 0x8000);
  CHECK(bfloat16_bits(3.4e38f) == 0x7F80);
  CHECK(float(Float16(0x1p-24f)) == 0x1p-24f);
}
