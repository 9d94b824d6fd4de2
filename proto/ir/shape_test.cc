#include <doctest/doctest.h>
#include <tilewise/ir/dtype.h>
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
  CHECK_FALSE(dtype_named("float16"));
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
