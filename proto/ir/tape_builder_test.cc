#include <doctest/doctest.h>
#include <tilewise/ir/tape_builder.h>

#include <cmath>

using namespace tilewise;
using namespace tilewise::ir;

namespace {

constexpr DType B = DType::kBool, I4 = DType::kInt32, I8 = DType::kInt64, F4 = DType::kFloat32,
                F8 = DType::kFloat64;

DType binary(TapeOp op, DType a, DType b) {
  TapeBuilder t;
  const Result<Tape> tape = t.finish(t.binary(op, t.load(0, a), t.load(1, b)));
  INFO(name_of(op), " ", name_of(a), " ", name_of(b));
  REQUIRE(tape.has_value());
  const DType dtypes[] = {a, b};
  REQUIRE(tape->verify(2, dtypes, 0).has_value());
  return tape->result();
}

DType with(TapeOp op, DType a, const Scalar& b) {
  TapeBuilder t;
  const TapeValue v = t.load(0, a);
  const Tape tape = *t.finish(t.binary(op, v, b));
  const DType dtypes[] = {a};
  REQUIRE(tape.verify(1, dtypes, 0).has_value());
  return tape.result();
}

Errc refused(TapeOp op, DType a, DType b) {
  TapeBuilder t;
  const Result<Tape> tape = t.finish(t.binary(op, t.load(0, a), t.load(1, b)));
  return tape ? Errc::kOk : tape.error().code;
}

}  // namespace

TEST_CASE("two arrays meet as the Array API says, and beyond it as NumPy does") {
  CHECK(binary(TapeOp::kAdd, I4, I8) == I8);
  CHECK(binary(TapeOp::kAdd, F4, F8) == F8);
  CHECK(binary(TapeOp::kAdd, I4, F4) == F8);
  CHECK(binary(TapeOp::kMul, B, F4) == F4);
  CHECK(binary(TapeOp::kMul, B, I4) == I4);
  CHECK(binary(TapeOp::kDiv, I4, I4) == F8);
  CHECK(binary(TapeOp::kDiv, F4, F4) == F4);
  CHECK(binary(TapeOp::kAtan2, I8, I8) == F8);
  CHECK(binary(TapeOp::kFloorDiv, I4, I4) == I4);
  CHECK(binary(TapeOp::kLt, I8, F4) == B);
  CHECK(binary(TapeOp::kLt, B, B) == B);
  CHECK(binary(TapeOp::kAnd, B, B) == B);
  CHECK(binary(TapeOp::kXor, B, I4) == I4);
  CHECK(binary(TapeOp::kMinimum, B, B) == B);
  CHECK(binary(TapeOp::kShl, I4, I8) == I8);
}

TEST_CASE("what has no good answer is refused, and says what to do") {
  CHECK(refused(TapeOp::kAdd, B, B) == Errc::kInvalidArgument);
  CHECK(refused(TapeOp::kDiv, B, B) == Errc::kInvalidArgument);
  CHECK(refused(TapeOp::kAnd, F8, F8) == Errc::kInvalidArgument);
  CHECK(refused(TapeOp::kAnd, I4, F8) == Errc::kInvalidArgument);
  CHECK(refused(TapeOp::kShl, B, B) == Errc::kInvalidArgument);
  CHECK(refused(TapeOp::kSqrt, F8, F8) == Errc::kInvalidArgument);
  CHECK(refused(TapeOp::kWhere, F8, F8) == Errc::kInvalidArgument);
  TapeBuilder t;
  const TapeValue mask = t.load(0, B);
  CHECK(t.finish(t.binary(TapeOp::kSub, mask, t.load(1, B))).error().message ==
        "sub of bool: cast to a number first, or use logical operations");
  // The first error stays, whatever follows.
  CHECK(t.finish(mask).error().message.find("sub of bool") == 0);
}

TEST_CASE("scalars adopt the array's dtype where their kind permits") {
  CHECK(with(TapeOp::kAdd, F4, 1.5) == F4);
  CHECK(with(TapeOp::kAdd, F4, 2) == F4);
  CHECK(with(TapeOp::kAdd, I4, 2) == I4);
  CHECK(with(TapeOp::kAdd, I4, 1.5) == F8);
  CHECK(with(TapeOp::kAdd, B, 1) == I8);
  CHECK(with(TapeOp::kAdd, B, 1.5) == F8);
  CHECK(with(TapeOp::kAdd, I4, true) == I4);
  CHECK(with(TapeOp::kEq, I4, 3) == B);
  CHECK(with(TapeOp::kDiv, I4, 2) == F8);
  TapeBuilder t;
  CHECK(t.finish(t.binary(TapeOp::kAdd, t.load(0, I4), std::int64_t{1} << 31)).error().code ==
        Errc::kOutOfRange);
  TapeBuilder ok;
  CHECK(ok.finish(ok.binary(TapeOp::kAdd, ok.load(0, I4), (std::int64_t{1} << 31) - 1)).has_value());
}

TEST_CASE("a comparison with an integer that the dtype does not have is a constant") {
  const auto answer = [](TapeOp op, DType t, const Scalar& v, bool scalar_first) {
    TapeBuilder b;
    const TapeValue x = b.load(0, t);
    const Result<Tape> tape = b.finish(scalar_first ? b.binary(op, v, x) : b.binary(op, x, v));
    REQUIRE(tape.has_value());
    REQUIRE(tape->code.size() == 1);
    REQUIRE(tape->code[0].op == TapeOp::kConst);
    REQUIRE(tape->result() == DType::kBool);
    return tape->code[0].imm_i != 0;
  };
  struct Beyond {
    DType dtype;
    Scalar value;
    bool above;
  };
  const Beyond all[] = {{DType::kUInt8, 300, true},
                        {DType::kUInt8, -1, false},
                        {DType::kInt8, 128, true},
                        {DType::kInt8, -129, false},
                        {DType::kUInt64, -1, false},
                        {DType::kInt64, ~std::uint64_t{0}, true},
                        {DType::kInt32, std::int64_t{1} << 40, true},
                        {DType::kBool, std::uint64_t{1} << 63, true}};
  for (const auto& [dtype, value, above] : all)
    for (const bool first : {false, true}) {
      INFO(name_of(dtype), " ", above, " ", first);
      const bool less = above != first;  // the left side than the right one
      CHECK(answer(TapeOp::kEq, dtype, value, first) == false);
      CHECK(answer(TapeOp::kNe, dtype, value, first) == true);
      CHECK(answer(TapeOp::kLt, dtype, value, first) == less);
      CHECK(answer(TapeOp::kLe, dtype, value, first) == less);
      CHECK(answer(TapeOp::kGt, dtype, value, first) == !less);
      CHECK(answer(TapeOp::kGe, dtype, value, first) == !less);
    }
  TapeBuilder b;  // what the dtype has is compared
  CHECK(b.finish(b.binary(TapeOp::kLe, b.load(0, DType::kUInt8), 255))->code.size() == 3);
  TapeBuilder sums;
  CHECK(sums.finish(sums.binary(TapeOp::kAdd, sums.load(0, DType::kUInt8), 300)).error().code ==
        Errc::kOutOfRange);
}

TEST_CASE("unary operations") {
  const auto unary = [](TapeOp op, DType a) {
    TapeBuilder t;
    const Result<Tape> tape = t.finish(t.unary(op, t.load(0, a)));
    if (!tape) return std::string("refused");
    const DType dtypes[] = {a};
    REQUIRE(tape->verify(1, dtypes, 0).has_value());
    return std::string(name_of(tape->result()));
  };
  CHECK(unary(TapeOp::kSqrt, I4) == "float64");
  CHECK(unary(TapeOp::kSqrt, F4) == "float32");
  CHECK(unary(TapeOp::kSqrt, B) == "refused");
  CHECK(unary(TapeOp::kNeg, B) == "refused");
  CHECK(unary(TapeOp::kAbs, B) == "bool");
  CHECK(unary(TapeOp::kFloor, I4) == "int32");
  CHECK(unary(TapeOp::kIsNan, I4) == "bool");
  CHECK(unary(TapeOp::kNot, F8) == "bool");
  CHECK(unary(TapeOp::kInvert, B) == "bool");
  CHECK(unary(TapeOp::kInvert, F8) == "refused");
  CHECK(unary(TapeOp::kAdd, F8) == "refused");
}

TEST_CASE("equal instructions once, constants folded, dead code gone") {
  TapeBuilder t;
  const TapeValue x = t.load(0, F4), y = t.load(0, F4);
  CHECK(x.at == y.at);
  const TapeValue square = t.binary(TapeOp::kMul, x, y);
  t.unary(TapeOp::kExp, square);  // not used
  const Tape tape = *t.finish(t.binary(TapeOp::kAdd, square, t.cast(t.constant(0.1, F8), F4)));
  CHECK(to_string(tape) ==
        "%0 = load.float32 #0\n%1 = mul.float32 %0 %0\n"
        "%2 = const.float32 0.10000000149011612\n%3 = add.float32 %1 %2\n");
  TapeBuilder nan;
  CHECK(nan.constant(NAN, F8).at == nan.constant(NAN, F8).at);
  CHECK(nan.constant(0.0, F8).at != nan.constant(-0.0, F8).at);
  CHECK(nan.uniform(F8, 1).at != nan.uniform(F8, 2).at);
}

TEST_CASE("lengths: dead code does not count, live code does") {
  for (const bool live : {false, true}) {
    TapeBuilder t;
    TapeValue sum = t.load(0, F8);
    for (int i = 1; i < limits::kMaxTapeInstructions; ++i) sum = t.unary(TapeOp::kNeg, sum);
    const TapeValue fits = sum;
    sum = t.unary(TapeOp::kNeg, sum);
    const Result<Tape> tape = t.finish(live ? sum : fits);
    CHECK(tape.has_value() == !live);
    if (live) CHECK(tape.error().code == Errc::kLimitExceeded);
  }
  TapeBuilder endless;
  TapeValue v = endless.load(0, F8);
  for (int i = 0; i < 100'000; ++i) v = endless.unary(TapeOp::kNeg, v);
  CHECK(endless.finish(v).error().code == Errc::kLimitExceeded);
}
