#include "random_world.h"

#include <doctest/doctest.h>
#include <tilewise/ir/infer.h>
#include <tilewise/ir/verify.h>

using namespace tilewise;
using namespace tilewise::ir;

namespace {

Source array(const Shape& shape, const Shape& block, DType t = DType::kFloat64, std::uint64_t name = 1) {
  return Source::of(name, t, *Grid::uniform(shape, block));
}
Source plain(const Shape& shape, DType t = DType::kFloat64) {
  return Source::of(1, t, *Grid::by_default(shape, size_of(t)));
}

Result<Inferred> add(const Source& a, const Source& b) {
  const Source both[] = {a, b};
  return infer_map(
      both, [](TapeBuilder& t, std::span<const TapeValue> v) { return t.binary(TapeOp::kAdd, v[0], v[1]); });
}

template <class T> std::string text(const Result<T>& r) { return r ? "fine" : r.error().message; }

}  // namespace

TEST_CASE("maps: shapes, dtypes, and cuts of the first operand that has them") {
  const Inferred r = *add(array({1, 6}, {1, 2}), array({4, 6}, {3, 4}, DType::kFloat64, 2));
  CHECK(r.dtype == DType::kFloat64);
  CHECK(r.view == View::identity({4, 6}));
  CHECK(r.op->space == *Grid::uniform({4, 6}, {3, 4}));
  CHECK(r.op->operands[0].view.shape == Shape{4, 6});
  CHECK(text(add(plain({3}), plain({4}))) == "shapes (3,) and (4,) do not broadcast");

  Source t = array({8, 6}, {4, 3});
  t.view = *t.view.transpose()->slice(1, 2, std::nullopt, 2);  // (6, 3): columns 2, 4, 6
  CHECK(add(t, t)->op->space == Grid({*DimGrid::uniform(6, 3), *DimGrid::cuts(3, {0, 1})}));
  CHECK(add(t, t)->op->operands.size() == 1);  // read once
}

TEST_CASE("maps: an operand of the whole shape decides the cuts before one that is repeated to it") {
  const Source column = array({64, 1}, {32, 1}), row = array({48}, {48}),
               matrix = array({64, 48}, {10, 7}, DType::kFloat64, 2);
  const auto space = [](std::initializer_list<Source> operands) {
    return infer_map(std::vector<Source>(operands),
                     [](TapeBuilder& t, std::span<const TapeValue> v) {
                       TapeValue sum = v[0];
                       for (const TapeValue& x : v.subspan(1)) sum = t.binary(TapeOp::kAdd, sum, x);
                       return sum;
                     })
        ->op->space;
  };
  CHECK(space({column, matrix}) == matrix.grid);
  CHECK(space({row, column, matrix}) == matrix.grid);
  CHECK(space({column, row}) == *Grid::uniform({64, 48}, {32, 48}));
  Source repeated = column;  // has the shape, but repeats
  repeated.view = *column.view.broadcast_to({64, 48});
  CHECK(space({repeated, matrix}) == matrix.grid);
  CHECK(space({array({64, 48}, {64, 3}), matrix}) == *Grid::uniform({64, 48}, {64, 3}));
}

TEST_CASE("maps: operands the tape ignores are not read") {
  const Source a = array({4}, {2}, DType::kInt64), b = array({4}, {2}, DType::kFloat64, 2);
  const Source both[] = {a, b};
  const Inferred r = *infer_map(both, [](TapeBuilder& t, std::span<const TapeValue> v) {
    return t.binary(TapeOp::kOr, t.unary(TapeOp::kIsNan, v[0]), t.unary(TapeOp::kIsNan, v[1]));
  });
  CHECK(r.op->operands.size() == 1);
  CHECK(r.op->operands[0].array == 2);
  CHECK(r.dtype == DType::kBool);
}

TEST_CASE("cuts never multiply into giants, and a view that only repeats has none to give") {
  Source column = array({1 << 20}, {1 << 20}), row = array({1 << 20}, {1 << 20}, DType::kFloat64, 2);
  column.view = *column.view.expand_dims(1);
  const Inferred outer = *add(column, row);
  CHECK(outer.op->space == *Grid::by_default({1 << 20, 1 << 20}, 8));
  Source narrow = array({3000}, {1000}), wide = array({2000}, {500}, DType::kFloat64, 2);
  narrow.view = *narrow.view.expand_dims(1);
  CHECK(add(narrow, wide)->op->space == *Grid::uniform({3000, 2000}, {1000, 500}));
  Source scalar = plain({});
  scalar.view = *scalar.view.broadcast_to({5000, 5000});
  CHECK(infer_materialise(scalar)->op->space == *Grid::by_default({5000, 5000}, 8));
  // One array's own large blocks are its user's choice, and stay.
  const Source big = array({1 << 13, 1 << 13}, {1 << 13, 1 << 13});
  CHECK(add(big, big)->op->space == big.grid);
}

TEST_CASE("generated arrays") {
  const auto one = [](TapeBuilder& t, std::span<const TapeValue>) {
    return t.constant(1.0, DType::kFloat32);
  };
  CHECK(infer_generate({5000, 5000}, std::nullopt, one)->op->space == *Grid::by_default({5000, 5000}, 4));
  CHECK(infer_generate({6}, *Grid::uniform({6}, {4}), one)->op->space == *Grid::uniform({6}, {4}));
  CHECK(infer_generate({6}, *Grid::uniform({7}, {4}), one).error().code == Errc::kShapeMismatch);
  CHECK(infer_generate({-1}, std::nullopt, one).error().code == Errc::kInvalidArgument);
  CHECK(infer_generate({}, std::nullopt, one)->op->space.block_count() == 1);
  CHECK(infer_generate({0, 4}, std::nullopt, one)->op->space.block_count() == 0);
  CHECK(
      infer_generate({6}, std::nullopt, [](TapeBuilder& t, std::span<const TapeValue>) { return t.iota(1); })
          .error()
          .code == Errc::kInvalidArgument);
}

TEST_CASE("reductions: dtypes, axes, what has no value") {
  const auto dtype = [](ReduceKind kind, DType t) {
    return infer_reduce(plain({4, 5}, t), kind, std::nullopt, false)->dtype;
  };
  CHECK(dtype(ReduceKind::kSum, DType::kBool) == DType::kInt64);
  CHECK(dtype(ReduceKind::kSum, DType::kInt32) == DType::kInt64);
  CHECK(dtype(ReduceKind::kProd, DType::kInt32) == DType::kInt64);
  CHECK(dtype(ReduceKind::kSum, DType::kFloat32) == DType::kFloat32);
  CHECK(dtype(ReduceKind::kMax, DType::kInt32) == DType::kInt32);
  CHECK(dtype(ReduceKind::kMax, DType::kBool) == DType::kBool);
  CHECK(dtype(ReduceKind::kAny, DType::kFloat64) == DType::kBool);
  CHECK(dtype(ReduceKind::kArgMax, DType::kFloat64) == DType::kInt64);
  CHECK(dtype(ReduceKind::kArgMin, DType::kBool) == DType::kInt64);

  const Source a = array({4, 5, 6}, {2, 5, 4});
  const Inferred r = *infer_reduce(a, ReduceKind::kSum, std::vector<int>{-1, 0}, false);
  CHECK(r.view.shape == Shape{5});
  CHECK(r.op->outputs[0].grid == *Grid::uniform({1, 5, 1}, {1, 5, 1}));
  CHECK(infer_reduce(a, ReduceKind::kSum, std::vector<int>{1}, true)->view.shape == Shape{4, 1, 6});
  CHECK(infer_reduce(a, ReduceKind::kArgMin, std::nullopt, false)->view.shape.empty());
  CHECK(infer_reduce(a, ReduceKind::kArgMin, std::vector<int>{0, 1}, false).error().code ==
        Errc::kInvalidArgument);
  CHECK(infer_reduce(a, ReduceKind::kSum, std::vector<int>{3}, false).error().code == Errc::kOutOfRange);
  CHECK(infer_reduce(a, ReduceKind::kSum, std::vector<int>{0, -3}, false).error().code ==
        Errc::kInvalidArgument);
  CHECK(text(infer_reduce(plain({0, 3}), ReduceKind::kMin, std::vector<int>{0}, false)) ==
        "min over axis 0 of shape (0, 3): nothing has no min");
  CHECK(infer_reduce(plain({0, 3}), ReduceKind::kMin, std::vector<int>{1}, false).has_value());
  CHECK(infer_reduce(plain({0, 3}), ReduceKind::kSum, std::nullopt, false).has_value());
  CHECK(infer_reduce(plain({}), ReduceKind::kArgMax, std::nullopt, false).has_value());
}

TEST_CASE("products: vectors, matrices, and shapes in the text") {
  CHECK(infer_matmul(plain({3, 4}), plain({4, 6}))->view.shape == Shape{3, 6});
  CHECK(infer_matmul(plain({4}), plain({4, 6}))->view.shape == Shape{6});
  CHECK(infer_matmul(plain({3, 4}), plain({4}))->view.shape == Shape{3});
  CHECK(infer_matmul(plain({4}), plain({4}))->view.shape.empty());
  CHECK(infer_matmul(plain({3, 0}), plain({0, 4}))->view.shape == Shape{3, 4});
  CHECK(infer_matmul(plain({0, 3}), plain({3, 0}))->view.shape == Shape{0, 0});
  CHECK(text(infer_matmul(plain({3, 4}), plain({5, 6}))) ==
        "matmul: (3, 4) x (5, 6): inner extents 4 and 5 differ");
  CHECK(infer_matmul(plain({}), plain({5, 6})).error().code == Errc::kShapeMismatch);
  CHECK(infer_matmul(plain({2, 3, 4}), plain({4, 6}))->view.shape == Shape{2, 3, 6});
  CHECK(infer_matmul(plain({5, 1, 3, 4}), plain({7, 4, 6}))->view.shape == Shape{5, 7, 3, 6});
  CHECK(infer_matmul(plain({4}), plain({7, 4, 6}))->view.shape == Shape{7, 6});
  CHECK(infer_matmul(plain({7, 3, 4}), plain({4}))->view.shape == Shape{7, 3});
  CHECK(text(infer_matmul(plain({2, 3, 4}), plain({3, 4, 6}))) ==
        "matmul: (2, 3, 4) x (3, 4, 6): the stacks of matrices do not broadcast");
  CHECK(text(infer_matmul(plain({2, 3, 4}), plain({2, 3, 6}))) ==
        "matmul: (2, 3, 4) x (2, 3, 6): inner extents 4 and 3 differ");
  CHECK(infer_scan(plain({3, 4}), ReduceKind::kSum, -1)->view.shape == Shape{3, 4});
  CHECK(infer_scan(plain({3, 4}), ReduceKind::kSum, 2).error().code == Errc::kOutOfRange);
  CHECK(infer_scan(plain({3}, DType::kBool), ReduceKind::kSum, 0).error().code == Errc::kShapeMismatch);
  CHECK(text(infer_matmul(plain({3, 4}, DType::kInt64), plain({4, 6}))) ==
        "matmul: int64 x float64: cast to one dtype first");
  CHECK(infer_matmul(plain({3, 4}, DType::kBool), plain({4, 6}, DType::kBool)).error().code ==
        Errc::kShapeMismatch);
  CHECK(infer_matmul(array({6, 4}, {4, 2}), array({4, 9}, {3, 5}))->op->space ==
        *Grid::uniform({6, 9}, {4, 5}));
  Source t = array({4, 6}, {2, 4});
  t.view = *t.view.transpose();
  CHECK(infer_matmul(t, array({4, 9}, {3, 5}))->op->space == *Grid::uniform({6, 9}, {4, 5}));
  CHECK(std::get<MatmulAttrs>(infer_matmul(plain({3, 4}), plain({4, 6}), 5)->op->attrs).k_parts == 5);
  CHECK_FALSE(std::get<MatmulAttrs>(infer_matmul(plain({3, 4}), plain({4, 6}), 5)->op->attrs).tf32);
  const Source f = plain({4, 4}, DType::kFloat32);
  CHECK(std::get<MatmulAttrs>(infer_matmul(f, f, 0, true)->op->attrs).tf32);
  CHECK(text(infer_matmul(plain({3, 4}), plain({4, 6}), 0, true)) ==
        "matmul: tf32 is of float32, not of float64");
  for (const DType half : {DType::kFloat16, DType::kBFloat16})  // as they are, into float32
    CHECK(infer_matmul(plain({3, 4}, half), plain({4, 6}, half))->op->outputs[0].dtype == DType::kFloat32);
  CHECK(text(infer_matmul(plain({3, 4}), plain({4, 6}), -1)) ==
        "matmul: k in -1 parts; between 1 and 65536 can be asked for, 0 leaves it open");
  CHECK(infer_matmul(plain({3, 4}), plain({4, 6}), kMaxKParts + 1).error().code == Errc::kInvalidArgument);
  CHECK(infer_matmul(plain({2, 3, 4}), plain({4, 6}), 2).error().code == Errc::kUnsupported);
  // Long thin operands: neither side's blocks decide alone.
  const Source tall = array({1 << 20, 8}, {1 << 17, 8}), flat = array({8, 1 << 20}, {8, 1 << 17});
  CHECK(infer_matmul(tall, flat)->op->space == *Grid::by_default({1 << 20, 1 << 20}, 8));
}

TEST_CASE("joining: shapes, dtypes, cuts side by side") {
  const Source a = array({4, 3}, {3, 3}), b = array({5, 3}, {2, 3}, DType::kFloat64, 2);
  const Source both[] = {a, b};
  CHECK(infer_concat(both, 0)->op->space.dim(0) == *DimGrid::cuts(9, {0, 3, 6}));  // 3, 1 and 2, 2, 1
  CHECK(infer_concat(both, -2)->view.shape == Shape{9, 3});
  CHECK(text(infer_concat(both, 1)) == "concat along axis 1: float64 (4, 3) and float64 (5, 3)");
  CHECK(infer_concat(both, 2).error().code == Errc::kOutOfRange);
  CHECK(infer_concat({}, 0).error().code == Errc::kInvalidArgument);
  CHECK_FALSE(infer_concat({&a, 1}, 0)->op);
  const Source mixed[] = {a, plain({4, 3}, DType::kFloat32)};
  CHECK(infer_concat(mixed, 0).error().code == Errc::kShapeMismatch);
  CHECK(infer_stack(both, 0).error().code == Errc::kShapeMismatch);
  const Source twice[] = {a, a};
  CHECK(infer_stack(twice, -1)->view.shape == Shape{4, 3, 2});
  const std::vector<Source> most(limits::kMaxOperands, a), more(limits::kMaxOperands + 1, a);
  CHECK(infer_concat(most, 0).has_value());
  CHECK(infer_concat(more, 0).error().code == Errc::kLimitExceeded);
}

TEST_CASE("neighbours are joined while they are no larger than the largest block of those that are joined") {
  const auto cuts = [](std::initializer_list<Source> parts) {
    return infer_concat(std::vector<Source>(parts), 0)->op->space.dim(0);
  };
  const Source a = array({40, 3}, {10, 3}), row = array({1, 3}, {1, 3}), tall = array({25, 3}, {5, 3});
  CHECK(cuts({a, row}) == *DimGrid::uniform(41, 10));
  CHECK(cuts({row, a, row}) == *DimGrid::uniform(42, 10, 9));
  CHECK(cuts({a, tall}) == *DimGrid::cuts(65, {0, 10, 20, 30, 40, 50, 60}));
  // Of one block each, with rows among them: up to a MiB. Panels stay what they are.
  const Source panel = array({4, 3}, {4, 3});
  CHECK(cuts({panel, panel, panel}).count() == 3);
  CHECK(cuts({row, row, row}) == DimGrid::whole(3));
  const Source long_row = array({1, 100'000}, {1, 100'000}, DType::kFloat64, 2);  // 0.8 MB
  CHECK(cuts({long_row, long_row}).count() == 2);
  // N times a row more: of two neighbours the sum is larger than the largest.
  DimGrid along = DimGrid::whole(1);
  for (int i = 1; i < 1000; ++i) {
    const Source grown = Source::of(1, DType::kFloat64, Grid({along, DimGrid::whole(20'000)}));
    along = cuts({grown, array({1, 20'000}, {1, 20'000})});
    CHECK(along.count() <= 2 * (i + 1) / along.max_size() + 1);
  }
  CHECK(along.max_size() == 6);  // of 160,000 bytes
}

TEST_CASE("reshape: views where extents of one come and go, runs of C order elsewhere") {
  const Source a = array({6, 4}, {3, 2});
  const auto reshape = [&](std::vector<std::int64_t> to) { return infer_reshape(a, to); };
  CHECK_FALSE(reshape({6, 4})->op);
  CHECK_FALSE(reshape({1, 6, 1, 4})->op);
  CHECK(reshape({1, 6, 1, 4})->view.shape == Shape{1, 6, 1, 4});
  CHECK(reshape({-1})->op->space.shape() == Shape{24});
  CHECK(reshape({8, -1})->view.shape == Shape{8, 3});
  CHECK(text(reshape({5, -1})) == "reshape: no extent for -1 fits: (6, 4) to (5, -1)");
  CHECK(reshape({-1, -1}).error().code == Errc::kInvalidArgument);
  CHECK(reshape({-2, 12}).error().code == Errc::kInvalidArgument);
  CHECK(text(reshape({5, 5})) == "reshape: (6, 4) to (5, 5) changes the number of elements");
  CHECK(reshape(std::vector<std::int64_t>(9, 1)).error().code == Errc::kLimitExceeded);
  CHECK(infer_reshape(plain({0, 3}), std::vector<std::int64_t>{0})->view.shape == Shape{0});
  CHECK(infer_reshape(plain({0, 3}), std::vector<std::int64_t>{0, -1}).error().code == Errc::kShapeMismatch);
  CHECK_FALSE(infer_reshape(plain({1, 1}), std::vector<std::int64_t>{})->op);
  CHECK(infer_reshape(plain({1 << 24}), std::vector<std::int64_t>{1 << 14, 1 << 10})
            ->op->space.max_block_shape() == Shape{1 << 10, 1 << 10});
}

TEST_CASE("reshape: blocks are as large as those of the operand, however long a row is") {
  const auto cuts = [](const Source& a, std::vector<std::int64_t> to) {
    return infer_reshape(a, to)->op->space;
  };
  const Source line = array({1'000'000'000}, {1'000'000});
  CHECK(cuts(line, {2, -1}) == *Grid::uniform({2, 500'000'000}, {1, 1'000'000}));
  CHECK(cuts(line, {1, 2, -1}) == *Grid::uniform({1, 2, 500'000'000}, {1, 1, 1'000'000}));
  CHECK(cuts(line, {1'000, -1}) == *Grid::uniform({1'000, 1'000'000}, {1, 1'000'000}));
  CHECK(cuts(line, {20'000'000, 50}) == *Grid::uniform({20'000'000, 50}, {20'000, 50}));  // short rows: slabs
  CHECK(cuts(line, {8, 5, -1}) == *Grid::uniform({8, 5, 25'000'000}, {1, 1, 1'000'000}));
  // No slivers: 1,000,001 elements in blocks of at most 1,000,000 are 500,001 and 500,000.
  CHECK(cuts(array({10'000'010}, {1'000'000}), {10, 1'000'001}) ==
        *Grid::uniform({10, 1'000'001}, {1, 500'001}));
  CHECK(cuts(array({3, 300'000'000}, {3, 500'000}), {-1}) == *Grid::uniform({900'000'000}, {1'500'000}));
  // No crumbs either, where there are many.
  CHECK(cuts(array({1'000'000}, {1}), {1'000, 1'000}) == *Grid::uniform({1'000, 1'000}, {8, 1'000}));
  CHECK(cuts(array({60}, {1}), {6, 10}) == *Grid::uniform({6, 10}, {1, 1}));
  // Rows that stay keep their cuts.
  Source rows = plain({10, 6});
  rows.grid = Grid({*DimGrid::cuts(10, {0, 3, 4}), DimGrid::whole(6)});
  CHECK(cuts(rows, {10, 2, 3}).dim(0) == rows.grid.dim(0));
  CHECK(cuts(rows, {5, -1}).dim(0) == *DimGrid::uniform(5, 3));
  // Of a view: blocks of the array behind it; where it repeats something small, at most the default's.
  Source every = line;
  every.view = *every.view.slice(0, 0, 1'000'000'000, 100);
  CHECK(cuts(every, {100, 100'000}) == *Grid::uniform({100, 100'000}, {10, 100'000}));
  Source one = array({1}, {1});
  one.view = *one.view.broadcast_to({1 << 12, 1 << 12});
  CHECK(cuts(one, {-1}).max_block_shape() == Shape{1 << 20});
}

TEST_CASE("files, calls, fetches") {
  CHECK(infer_read_npy("x.npy", DType::kFloat32, {5000, 5000}, 128, false, std::nullopt)->op->space ==
        *Grid::by_default({5000, 5000}, 4));
  CHECK(infer_read_npy("", DType::kFloat32, {5}, 128, false, std::nullopt).error().code ==
        Errc::kInvalidArgument);
  CHECK(
      infer_read_npy(std::string(limits::kMaxPathBytes, 'x'), DType::kFloat32, {5}, 128, false, std::nullopt)
          .has_value());
  CHECK(infer_read_npy(std::string(limits::kMaxPathBytes + 1, 'x'), DType::kFloat32, {5}, 128, false,
                       std::nullopt)
            .has_error());
  const Source begun = Source::of(9, DType::kInt64, *Grid::uniform({1}, {1}));
  CHECK(infer_write_npy(array({6, 4}, {4, 4}), begun, "x.npy", 7)->op->outputs[0].grid ==
        *Grid::uniform({2, 1}, {1, 1}));
  CHECK(infer_write_npy(Source::of(1, DType::kFloat32, Grid()), begun, "x.npy", 7).has_value());
  CHECK(infer_write_npy(array({6, 4}, {4, 4}), array({1}, {1}), "x.npy", 7).has_error());
  CHECK(infer_write_npy(array({6, 4}, {4, 4}), Source::of(9, DType::kInt64, *Grid::uniform({2}, {1})),
                        "x.npy", 7)
            .has_error());
  Source a = array({6, 4}, {4, 4});
  CHECK(infer_fetch(a)->op->space == a.grid);
  a.view = *a.view.transpose();
  CHECK(infer_fetch(a).error().code == Errc::kUnsupported);
  CHECK_FALSE(infer_materialise(array({6}, {4}))->op);
  CHECK(infer_materialise(a)->op->space == *Grid::uniform({4, 6}, {4, 4}));
  CHECK_FALSE(infer_reblock(array({6}, {4}), *Grid::uniform({6}, {4}))->op);
  CHECK(infer_reblock(array({6}, {4}), *Grid::uniform({7}, {4})).error().code == Errc::kShapeMismatch);
  CHECK(infer_provide(DType::kBool, a.grid)->op->kind == OpKind::kProvide);
  CallAttrs attrs;
  attrs.kernel = "k";
  const Grid space = *Grid::uniform({3}, {1});
  CHECK(infer_call({}, attrs, space, {{9, DType::kFloat64, space}})->op->outputs[0].array == 0);
  CHECK(infer_call({}, attrs, space, {{9, DType::kFloat64, *Grid::uniform({3}, {2})}}).error().code ==
        Errc::kShapeMismatch);
  CHECK(infer_call({}, attrs, space, {}).error().code == Errc::kShapeMismatch);
}
