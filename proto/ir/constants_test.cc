#include <doctest/doctest.h>
#include <tilewise/ir/constants.h>

#include <cmath>
#include <limits>

using namespace tilewise;
using namespace tilewise::ir;

namespace {

TapeInstr number(double value, DType dtype = DType::kFloat64) {
  return {TapeOp::kConst, dtype, 0, 0, 0, value};
}
TapeInstr integer(std::int64_t value, DType dtype = DType::kInt64) {
  return {TapeOp::kConst, dtype, 0, 0, 0, 0, value};
}
Op map_of(std::vector<TapeInstr> code) {
  Op op;
  op.attrs = MapAttrs{{std::move(code)}};
  return op;
}
Op reduce_of(std::vector<TapeInstr> code) {
  Op op;
  op.kind = OpKind::kReduce;
  op.attrs = ReduceAttrs{{std::move(code)}};
  return op;
}
std::vector<int> numbers_of(const Op& op) {
  std::vector<int> out;
  for (const TapeInstr& in : tape_of(op)->code) out.push_back(in.a);
  return out;
}

}  // namespace

TEST_CASE("constants are numbered by first mention, equal ones of a dtype alike") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Op> before{
      map_of({number(2), number(0.0), number(2), number(2, DType::kFloat32), number(-0.0), number(nan)}),
      reduce_of({number(nan), integer(7), number(0.0)})};
  std::vector<Op> ops = before;
  const Constants values = take_constants(ops);
  CHECK(numbers_of(ops[0]) == std::vector{1, 2, 1, 3, 4, 5});
  CHECK(numbers_of(ops[1]) == std::vector{5, 6, 2});
  CHECK(values == Constants{{2}, {0.0}, {2}, {-0.0}, {nan}, {0, 7}});
  CHECK(constant_dtypes(ops) == std::vector{DType::kFloat64, DType::kFloat64, DType::kFloat32,
                                            DType::kFloat64, DType::kFloat64, DType::kInt64});
  std::vector<Op> others = before;
  for (Op& op : others)
    for (TapeInstr& in : tape_of(op)->code) in.imm_f += 1, in.imm_i += in.imm_i != 0;
  tape_of(others[0])->code[4].imm_f = 4;
  const Constants changed = take_constants(others);
  CHECK(others == ops);  // the same program
  CHECK(changed != values);
  CHECK(has_constants(before[0], {}));  // none is numbered
  put_constants(ops, values);
  for (const Op& op : ops) CHECK(has_constants(op, values));
  CHECK_FALSE(has_constants(ops[1], changed));
  CHECK(take_constants(ops) == values);  // the same once more
}

TEST_CASE("what does not fit its dtype has no number, and neither has what comes after the last") {
  std::vector<Op> ops{
      map_of({integer(300, DType::kInt8), integer(2, DType::kBool), integer(127, DType::kInt8)})};
  const Op before = ops[0];
  CHECK(take_constants(ops) == Constants{{0, 127}});
  CHECK(numbers_of(ops[0]) == std::vector{0, 0, 1});
  CHECK(tape_of(ops[0])->code[0] == tape_of(before)->code[0]);
  const std::vector<DType> dtypes{DType::kInt8, DType::kFloat64};
  CHECK(fit(dtypes, {{0, -128}, {1e300}}));
  CHECK_FALSE(fit(dtypes, {{0, -129}, {1}}));
  CHECK_FALSE(fit(dtypes, {{0, 1}}));
  CHECK_FALSE(fit(dtypes, {{0, 1}, {1}, {1}}));

  ops.assign(kMaxConstants + 1, map_of({number(0)}));
  for (std::size_t i = 0; i < ops.size(); ++i) tape_of(ops[i])->code[0].imm_f = static_cast<double>(i);
  CHECK(take_constants(ops).size() == kMaxConstants);
  CHECK(numbers_of(ops[kMaxConstants - 1]) == std::vector{static_cast<int>(kMaxConstants)});
  CHECK(numbers_of(ops[kMaxConstants]) == std::vector{0});
}

TEST_CASE("ops are compared with those of a program as if their constants were taken") {
  std::vector<Op> taken{map_of({number(2), number(3)}),
                        reduce_of({number(2), {TapeOp::kNeg, DType::kFloat64, 0}})};
  take_constants(taken);
  const auto same = [&](const Op& first, const Op& second) {
    ConstantNumbers numbers;
    return same_attrs(first, taken[0], numbers) && same_attrs(second, taken[1], numbers);
  };
  const auto negated = [](double value) {
    return reduce_of({number(value), {TapeOp::kNeg, DType::kFloat64, 0}});
  };
  CHECK(same(map_of({number(2), number(3)}), negated(2)));
  CHECK(same(map_of({number(5), number(-1)}), negated(5)));
  CHECK_FALSE(same(map_of({number(5), number(-1)}), negated(-1)));  // another one of the two
  CHECK_FALSE(same(map_of({number(5), number(5)}), negated(5)));    // now equal
  CHECK_FALSE(same(map_of({number(5), number(6, DType::kFloat32)}), negated(5)));
  CHECK_FALSE(same(map_of({number(5), number(6)}), reduce_of({number(5)})));
  Op other = negated(5);
  other.attrs = ReduceAttrs{*tape_of(other), ReduceKind::kMax};
  CHECK_FALSE(same(map_of({number(5), number(6)}), other));
  Op named = map_of({number(2), number(3)});
  tape_of(named)->outputs = {0, 1};
  CHECK_FALSE(same(named, negated(2)));
}
