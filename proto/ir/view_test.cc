#include "random_world.h"

#include <doctest/doctest.h>

using namespace tilewise;
using namespace tilewise::ir;
using namespace tilewise::ir::testing;

TEST_CASE("slices follow NumPy's clipping") {
  const View v = View::identity({10});
  const auto cut = [&](auto start, auto stop, std::int64_t step) {
    const View s = *v.slice(0, start, stop, step);
    std::vector<std::int64_t> got;
    for (std::int64_t i = 0; i < s.shape[0]; ++i) got.push_back(source_index(s, {i})[0]);
    return got;
  };
  using V = std::vector<std::int64_t>;
  using O = std::optional<std::int64_t>;
  CHECK(cut(O(2), O(8), 3) == V{2, 5});
  CHECK(cut(O(), O(), -3) == V{9, 6, 3, 0});
  CHECK(cut(O(-3), O(), 1) == V{7, 8, 9});
  CHECK(cut(O(), O(-8), 1) == V{0, 1});
  CHECK(cut(O(100), O(2), -4) == V{9, 5});
  CHECK(cut(O(-100), O(100), 5) == V{0, 5});
  CHECK(cut(O(5), O(5), 1) == V{});
  CHECK(cut(O(8), O(2), 1) == V{});
  CHECK(cut(O(3), O(-100), -1) == V{3, 2, 1, 0});
  CHECK(cut(O(), O(), INT64_MIN) == V{9});
  CHECK(v.slice(0, O(), O(), 0).error().code == Errc::kInvalidArgument);
  CHECK(v.slice(1, O(), O(), 1).error().code == Errc::kOutOfRange);
  CHECK(View::identity({0}).slice(0, O(), O(), -1)->shape == Shape{0});
}

TEST_CASE("views compose: axes dropped, inserted, permuted, broadcast") {
  const View v = View::identity({4, 5, 6});
  const View t = *v.transpose();
  CHECK(t.shape == Shape{6, 5, 4});
  CHECK(source_index(t, {1, 2, 3}) == Index{3, 2, 1});
  const View a = *t.at(1, -1);
  CHECK(a.shape == Shape{6, 4});
  CHECK(source_index(a, {5, 3}) == Index{3, 4, 5});
  CHECK(t.at(1, 5).error().message == "index 5 is out of bounds for axis 1 of shape (6, 5, 4)");
  const View e = *a.expand_dims(-1);
  CHECK(e.shape == Shape{6, 4, 1});
  CHECK(*e.squeeze(2) == a);
  CHECK(e.squeeze(0).error().code == Errc::kInvalidArgument);
  const View b = *e.broadcast_to({2, 6, 4, 7});
  CHECK(b.shape == Shape{2, 6, 4, 7});
  CHECK(source_index(b, {1, 5, 3, 6}) == Index{3, 4, 5});
  CHECK(e.broadcast_to({6, 3, 1}).error().message == "shape (6, 4, 1) does not broadcast to (6, 3, 1)");
  CHECK(v.permute(std::vector<int>{0, 0, 1}).error().code == Errc::kInvalidArgument);
  CHECK(v.permute(std::vector<int>{0, 1}).error().code == Errc::kInvalidArgument);
  View deep = View::identity({1, 1, 1, 1, 1, 1, 1, 1});
  CHECK(deep.expand_dims(0).error().code == Errc::kLimitExceeded);
}

TEST_CASE("the verifier of views refuses what reads outside") {
  View v = View::identity({4});
  CHECK(v.verify({4}).has_value());
  CHECK(v.verify({3}).error().code == Errc::kOutOfRange);
  CHECK(v.verify({4, 1}).error().code == Errc::kShapeMismatch);
  v.source[0].step = 0;
  CHECK(v.verify({4}).error().code == Errc::kInvalidArgument);
  v.source[0].step = INT64_MAX;
  CHECK(v.verify({4}).error().code == Errc::kOutOfRange);
  v.source[0].step = INT64_MIN;
  CHECK(v.verify({4}).error().code == Errc::kOutOfRange);
  v.source[0] = {5, 0, 1};
  CHECK(v.verify({4}).error().code == Errc::kInvalidArgument);
  v.source[0] = {-2, 0, 1};
  CHECK(v.verify({4}).error().code == Errc::kInvalidArgument);
  v.source[0] = {-1, 4, 1};
  CHECK(v.verify({4}).error().code == Errc::kOutOfRange);
  View twice{{3}, {{0, 0, 1}, {0, 0, 1}}};
  CHECK(twice.verify({3, 3}).error().code == Errc::kInvalidArgument);
  View one{{1}, {{0, 0, 4}}};
  CHECK(one.verify({4}).has_value());
  one.source[0].step = -5;
  CHECK(one.verify({4}).error().code == Errc::kOutOfRange);
  one.source[0].step = INT64_MIN;
  CHECK(one.verify({4}).error().code == Errc::kOutOfRange);
  View nothing{{0}, {{0, 4, 1}}};
  CHECK(nothing.verify({4}).has_value());
  View vast{{std::int64_t{1} << 40, std::int64_t{1} << 40}, {}};
  CHECK(vast.verify({}).error().code == Errc::kOutOfRange);
}

TEST_CASE("property: chains of operations equal index arithmetic, and stay verified") {
  const std::uint64_t seed = 4242;
  INFO("seed ", seed);
  Prng rng(seed);
  for (int round = 0; round < 1500; ++round) {
    const Shape shape = random_shape(rng, static_cast<int>(rng.below(4)), 5);
    View v = View::identity(shape);
    for (int k = 0; k < 5; ++k) {
      const View before = v;
      View step = View::identity(before.shape);  // the same operation on the shown shape alone
      const std::uint64_t what = rng.below(6);
      const int axis = v.rank() ? static_cast<int>(rng.below(static_cast<std::uint64_t>(v.rank()))) : 0;
      const auto apply = [&](auto&& op) {
        auto done = op(v), alone = op(step);
        REQUIRE(done.has_value() == alone.has_value());
        if (done) v = *done, step = *alone;
      };
      if (what == 0) apply([](View& x) { return x.transpose(); });
      if (what == 1) apply([&](View& x) { return x.at(axis, 0); });
      if (what == 2) apply([&](View& x) { return x.expand_dims(axis); });
      if (what == 3) apply([&](View& x) { return x.squeeze(axis); });
      if (what == 4) {
        const auto a = rng.between(-6, 6), b = rng.between(-6, 6),
                   s = rng.chance(0.5) ? rng.between(1, 3) : -rng.between(1, 3);
        apply([&](View& x) { return x.slice(axis, a, b, s); });
      }
      if (what == 5 && v.rank() < 4) {
        Shape to = v.shape;
        for (std::int64_t& e : to) e = e == 1 && rng.chance(0.5) ? 3 : e;
        if (rng.chance(0.5)) to.insert(to.begin(), 2);
        apply([&](View& x) { return x.broadcast_to(to); });
      }
      REQUIRE(v.verify(shape).has_value());
      const View composed = compose(step, before);
      REQUIRE(composed.shape == v.shape);
      for_each_index(v.shape, [&](const Index& i) {
        REQUIRE(source_index(v, i) == source_index(before, source_index(step, i)));
        REQUIRE(source_index(composed, i) == source_index(v, i));
      });
    }
  }
}

TEST_CASE("property: parts of a walk are the runs of one source block") {
  const std::uint64_t seed = 31337;
  INFO("seed ", seed);
  Prng rng(seed);
  for (int round = 0; round < 4000; ++round) {
    const World w = random_operand(rng, random_shape(rng, 1, 25));
    REQUIRE(w.operand.view.verify(w.source.grid.shape()).has_value());
    const View& v = w.operand.view;
    const Walk walk = Walk::of(v, w.source.grid, 0);
    const std::optional<int> s = v.source_of(0);
    std::int64_t part = -1, last_block = -1;
    for (std::int64_t i = 0; i < v.shape[0]; ++i) {
      const std::int64_t block = s ? w.source.grid.dim(*s).find(source_index(v, {i})[*s]) : 0;
      if (block != last_block) {
        last_block = block;
        ++part;
        REQUIRE(walk.begin(part) == i);
        REQUIRE(walk.block(part) == block);
        REQUIRE(walk.part_of_block(block) == part);
      }
      REQUIRE(walk.part_of(i) == part);
      REQUIRE(walk.end(part) > i);
    }
    REQUIRE(walk.count() == part + 1);
    if (s && walk.count() > 0)
      for (std::int64_t b = 0; b < w.source.grid.dim(*s).count(); ++b) {
        const std::int64_t p = walk.part_of_block(b);
        REQUIRE((p == -1 || walk.block(p) == b));
      }
    const DimGrid cuts = *walk.cuts();
    REQUIRE(cuts.count() == walk.count());
    for (std::int64_t p = 0; p < walk.count(); ++p) REQUIRE(cuts.begin(p) == walk.begin(p));
    // Alignment against a random space, by definition.
    const DimGrid space = random_cuts(rng, v.shape[0]);
    bool one = true;
    for (std::int64_t i = 0; i < space.count(); ++i)
      one &= walk.part_of(space.begin(i)) == walk.part_of(space.end(i) - 1);
    REQUIRE(aligned(walk, space) == one);
  }
}

TEST_CASE("long walks: closed forms where cuts cannot be listed") {
  const std::int64_t n = std::int64_t{1} << 30;
  const DimGrid source = *DimGrid::uniform(n, 1000);
  const Walk odd = Walk::over(source, 0, 3, n / 3);  // 1000 / 3 is no whole number
  CHECK_FALSE(odd.cuts());
  CHECK(odd.cuts_or_similar().block() == 512);
  CHECK(odd.begin(1) == 334);
  CHECK(odd.part_of_block(7) == 7);
  CHECK_FALSE(aligned(odd, odd.cuts_or_similar()));
  CHECK(aligned(odd, *DimGrid::uniform(n / 3, 1)));
  const Walk even = Walk::over(source, n - 1, -4, n / 4);
  CHECK(even.cuts()->block() == 250);
  CHECK(aligned(even, *even.cuts()));
  CHECK_FALSE(aligned(even, *DimGrid::uniform(n / 4, 125)));
  const Walk sparse = Walk::over(source, 5, 2000, n / 2000);
  CHECK(sparse.count() == n / 2000);
  CHECK(sparse.part_of_block(1) == -1);
  CHECK(sparse.part_of_block(2) == 1);
}

TEST_CASE("source boxes bound what a logical box touches") {
  const View v =
      *View::identity({10, 10}).slice(0, std::nullopt, std::nullopt, -2)->slice(1, 3, std::nullopt, 1);
  CHECK(v.source_box({{0, 0}, {2, 3}}) == Box{{7, 3}, {10, 6}});
  CHECK(v.source_box({{0, 0}, {0, 3}}).volume() == 0);
  CHECK(v.at(0, 1)->source_box({{0}, {1}}) == Box{{7, 3}, {8, 4}});
}
