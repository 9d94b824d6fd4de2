#include <doctest/doctest.h>
#include <tilewise/ir/tape.h>

#include <set>

using namespace tilewise;
using namespace tilewise::ir;

namespace {
const std::vector<DType> kTwo{DType::kFloat64, DType::kInt32};
TapeInstr load(int operand, DType t) { return {TapeOp::kLoad, t, 0, 0, 0, 0, operand}; }
Errc code_of(const Tape& t) {
  const Status s = t.verify(2, kTwo, 2);
  return s ? Errc::kOk : s.error().code;
}
}  // namespace

TEST_CASE("a good tape, as text and as digest") {
  Tape t{{load(0, DType::kFloat64),
          {TapeOp::kConst, DType::kFloat64, 0, 0, 0, 1.5},
          {TapeOp::kAdd, DType::kFloat64, 0, 1}}};
  CHECK(code_of(t) == Errc::kOk);
  CHECK(to_string(t) == "%0 = load.float64 #0\n%1 = const.float64 1.5\n%2 = add.float64 %0 %1\n");
  const std::uint64_t before = t.digest();
  t.code[1].imm_f = 2.5;
  CHECK(t.digest() != before);
}

TEST_CASE("the verifier of tapes") {
  const DType f = DType::kFloat64, i = DType::kInt32, b = DType::kBool;
  CHECK(code_of({}) == Errc::kInvalidArgument);
  CHECK(code_of({{load(2, f)}}) == Errc::kInvalidArgument);
  CHECK(code_of({{load(-1, f)}}) == Errc::kInvalidArgument);
  CHECK(code_of({{load(0, i)}}) == Errc::kInvalidArgument);
  CHECK(code_of({{{TapeOp::kNeg, f, 0}}}) == Errc::kInvalidArgument);                 // itself
  CHECK(code_of({{load(0, f), {TapeOp::kNeg, f, 0, 1}}}) == Errc::kInvalidArgument);  // too many arguments
  CHECK(code_of({{load(0, f), load(1, i), {TapeOp::kAdd, f, 0, 1}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{load(1, i), {TapeOp::kDiv, i, 0, 0}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{load(1, i), {TapeOp::kSqrt, i, 0}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{load(0, f), {TapeOp::kLt, f, 0, 0}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{load(0, f), {TapeOp::kLt, b, 0, 0}}}) == Errc::kOk);
  CHECK(code_of({{load(0, f), {TapeOp::kIsNan, b, 0}, {TapeOp::kWhere, f, 1, 0, 0}}}) == Errc::kOk);
  CHECK(code_of({{load(0, f), {TapeOp::kWhere, f, 0, 0, 0}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{{TapeOp::kIota, DType::kInt64, 0, 0, 0, 0, 1}}}) == Errc::kOk);
  CHECK(code_of({{{TapeOp::kIota, DType::kInt64, 0, 0, 0, 0, 2}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{{TapeOp::kConst, i, 0, 0, 0, 0, std::int64_t{1} << 31}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{{TapeOp::kConst, b, 0, 0, 0, 0, 2}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{{TapeOp::kCount, f}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{{static_cast<TapeOp>(200), f}}}) == Errc::kInvalidArgument);
  CHECK(code_of({{{TapeOp::kConst, static_cast<DType>(kDTypeCount)}}}) == Errc::kInvalidArgument);
}

TEST_CASE("outputs of a tape: the last instruction, or those it names") {
  const DType f = DType::kFloat64, b = DType::kBool;
  Tape t{{load(0, f), {TapeOp::kNeg, f, 0}, {TapeOp::kLt, b, 0, 1}}};
  CHECK(t.output_count() == 1);
  CHECK(t.output(0) == 2);
  CHECK(t.result() == b);
  const std::uint64_t alone = t.digest();
  t.outputs = {1, 2};
  CHECK(code_of(t) == Errc::kOk);
  CHECK(t.output_count() == 2);
  CHECK(t.result(0) == f);
  CHECK(t.result(1) == b);
  CHECK(to_string(t) == "%0 = load.float64 #0\n%1 = neg.float64 %0\n%2 = lt.bool %0 %1\n-> %1, %2\n");
  const std::uint64_t both = t.digest();
  CHECK(both != alone);
  t.outputs = {2, 1};
  CHECK(t.digest() != both);
  t.outputs = {1, 1, 0, 2};  // an instruction twice, an operand as it is
  CHECK(code_of(t) == Errc::kOk);
  t.outputs = {1, 3};
  CHECK(code_of(t) == Errc::kOutOfRange);
  t.outputs = {2};  // written in one way only
  CHECK(code_of(t) == Errc::kInvalidArgument);
}

TEST_CASE("lengths of tapes, both sides of the limits") {
  Tape t{std::vector<TapeInstr>(limits::kMaxTapeInstructions, {TapeOp::kConst, DType::kFloat64})};
  CHECK(code_of(t) == Errc::kOk);
  t.code.push_back(t.code.back());
  CHECK(code_of(t) == Errc::kLimitExceeded);
  Tape loads{std::vector<TapeInstr>(limits::kMaxTapeLoads, load(0, DType::kFloat64))};
  CHECK(code_of(loads) == Errc::kOk);
  loads.code.push_back(loads.code.back());
  CHECK(code_of(loads) == Errc::kLimitExceeded);
}

TEST_CASE("every op has a name of its own; keys differ by seed and stream") {
  std::set<std::string_view> names;
  for (int op = 0; op < static_cast<int>(TapeOp::kCount); ++op)
    names.insert(name_of(static_cast<TapeOp>(op)));
  CHECK(names.size() == static_cast<std::size_t>(TapeOp::kCount));
  CHECK(arity_of(TapeOp::kWhere) == 3);
  CHECK(arity_of(TapeOp::kRandomBelow) == 1);
  CHECK(arity_of(TapeOp::kCount) == 0);
  CHECK(random_key(1, 2) != random_key(2, 1));
}
