#include <tilewise/ir/tape_builder.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tilewise::ir {
namespace {

bool same(const TapeInstr& a, const TapeInstr& b) {  // NaN constants too; -0 is not 0
  return a.op == b.op && a.dtype == b.dtype && a.a == b.a && a.b == b.b && a.c == b.c && a.imm_i == b.imm_i &&
         std::bit_cast<std::uint64_t>(a.imm_f) == std::bit_cast<std::uint64_t>(b.imm_f);
}

bool is_comparison(TapeOp op) { return op >= TapeOp::kEq && op <= TapeOp::kGe; }
bool is_bitwise(TapeOp op) { return op >= TapeOp::kAnd && op <= TapeOp::kXor; }

// A constant as kCast would turn it. Nothing where that is the kernels' business (floats out of an integer's range).
std::optional<TapeInstr> folded(const TapeInstr& c, DType to) {
  TapeInstr r{TapeOp::kConst, to};
  const bool from_float = is_floating(c.dtype);
  if (is_floating(to)) {
    r.imm_f = from_float ? c.imm_f : static_cast<double>(c.imm_i);
    if (to == DType::kFloat32)
      r.imm_f = from_float ? static_cast<float>(c.imm_f) : static_cast<float>(c.imm_i);
    return r;
  }
  if (to == DType::kBool) {
    r.imm_i = from_float ? c.imm_f != 0 : c.imm_i != 0;
    return r;
  }
  if (from_float) {
    if (!(std::abs(c.imm_f) < 0x1p31)) return std::nullopt;
    r.imm_i = static_cast<std::int64_t>(c.imm_f);
    return r;
  }
  r.imm_i = to == DType::kInt32 ? static_cast<std::int32_t>(c.imm_i) : c.imm_i;
  return r;
}

}  // namespace

DType common_dtype(DType a, DType b) {
  if (const std::optional<DType> t = promote(a, b)) return *t;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  return DType::kFloat64;
}

DType scalar_dtype(DType array, ScalarKind kind) {
  if (const std::optional<DType> t = promote_scalar(array, kind)) return *t;
  return kind == ScalarKind::kInt ? DType::kInt64 : DType::kFloat64;
}

void TapeBuilder::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

TapeValue TapeBuilder::refuse(TapeOp op, DType a, const char* why) {
  fail(error(Errc::kInvalidArgument,
             std::string(name_of(op)) + " of " + std::string(name_of(a)) + ": " + why));
  return {};
}

TapeValue TapeBuilder::push(TapeInstr instr) {
  const auto at =
      std::find_if(code_.begin(), code_.end(), [&](const TapeInstr& i) { return same(i, instr); });
  if (at != code_.end()) return {static_cast<std::uint16_t>(at - code_.begin())};
  // Dead code may go once finished, so some slack before giving up; indices must fit 16 bits.
  if (code_.size() >= 16 * static_cast<std::size_t>(limits::kMaxTapeInstructions)) {
    fail(error(Errc::kLimitExceeded,
               "an expression of more than " + std::to_string(code_.size()) + " instructions"));
    return {};
  }
  code_.push_back(instr);
  return {static_cast<std::uint16_t>(code_.size() - 1)};
}

TapeValue TapeBuilder::load(int operand, DType dtype) {
  return push({TapeOp::kLoad, dtype, 0, 0, 0, 0, operand});
}

TapeValue TapeBuilder::constant(const Scalar& value, DType dtype) {
  TapeInstr c{TapeOp::kConst, DType::kFloat64, 0, 0, 0, value.f};
  if (value.kind != ScalarKind::kFloat) {
    c = {TapeOp::kConst, DType::kInt64, 0, 0, 0, 0, value.i};
    if (dtype == DType::kInt32 && value.i != static_cast<std::int32_t>(value.i))
      fail(error(Errc::kOutOfRange, std::to_string(value.i) + " does not fit int32"));
  } else if (!is_floating(dtype) && dtype != DType::kBool && !(std::abs(value.f) < 0x1p31)) {
    fail(error(Errc::kOutOfRange, std::to_string(value.f) + " does not fit " + std::string(name_of(dtype))));
  }
  return push(folded(c, dtype).value_or(TapeInstr{TapeOp::kConst, dtype}));
}

TapeValue TapeBuilder::iota(int dimension) {
  return push({TapeOp::kIota, DType::kInt64, 0, 0, 0, 0, dimension});
}

TapeValue TapeBuilder::uniform(DType dtype, std::uint64_t key) {
  if (!is_floating(dtype)) return refuse(TapeOp::kUniform, dtype, "random numbers are float32 or float64");
  return push({TapeOp::kUniform, dtype, 0, 0, 0, 0, static_cast<std::int64_t>(key)});
}

TapeValue TapeBuilder::normal(DType dtype, std::uint64_t key) {
  if (!is_floating(dtype)) return refuse(TapeOp::kNormal, dtype, "random numbers are float32 or float64");
  return push({TapeOp::kNormal, dtype, 0, 0, 0, 0, static_cast<std::int64_t>(key)});
}

TapeValue TapeBuilder::random_int(std::uint64_t key) {
  return push({TapeOp::kRandomInt, DType::kInt64, 0, 0, 0, 0, static_cast<std::int64_t>(key)});
}

TapeValue TapeBuilder::random_below(TapeValue bound, std::uint64_t key) {
  return push({TapeOp::kRandomBelow, DType::kInt64, cast(bound, DType::kInt64).at, 0, 0, 0,
               static_cast<std::int64_t>(key)});
}

TapeValue TapeBuilder::cast(TapeValue v, DType to) {
  if (dtype(v) == to) return v;
  if (v.at < code_.size() && code_[v.at].op == TapeOp::kConst)
    if (const std::optional<TapeInstr> c = folded(code_[v.at], to)) return push(*c);
  return push({TapeOp::kCast, to, v.at});
}

TapeValue TapeBuilder::unary(TapeOp op, TapeValue a) {
  const DType t = dtype(a);
  const bool is_bool = t == DType::kBool;
  switch (op) {
    case TapeOp::kNeg:
    case TapeOp::kSign:
      if (is_bool) return refuse(op, t, "cast to a number first");
      return push({op, t, a.at});
    case TapeOp::kAbs: return is_bool ? a : push({op, t, a.at});
    case TapeOp::kSqrt:
    case TapeOp::kExp:
    case TapeOp::kExpm1:
    case TapeOp::kLog:
    case TapeOp::kLog1p:
    case TapeOp::kSin:
    case TapeOp::kCos:
    case TapeOp::kTan:
    case TapeOp::kTanh: {
      if (is_bool) return refuse(op, t, "cast to a number first");
      const TapeValue f = is_integer(t) ? cast(a, DType::kFloat64) : a;
      return push({op, dtype(f), f.at});
    }
    case TapeOp::kFloor:
    case TapeOp::kCeil:
    case TapeOp::kTrunc:
    case TapeOp::kRound:
      if (is_bool) return refuse(op, t, "cast to a number first");
      return is_integer(t) ? a : push({op, t, a.at});
    case TapeOp::kIsNan:
    case TapeOp::kIsInf:
    case TapeOp::kIsFinite:
      if (!is_floating(t)) return constant(op == TapeOp::kIsFinite, DType::kBool);
      return push({op, DType::kBool, a.at});
    case TapeOp::kNot: return is_bool ? push({op, t, a.at}) : binary(TapeOp::kEq, a, constant(0, t));
    case TapeOp::kInvert:
      if (is_floating(t)) return refuse(op, t, "takes integers and bool");
      return push({is_bool ? TapeOp::kNot : op, t, a.at});
    default: return refuse(op, t, "not a unary operation");
  }
}

TapeValue TapeBuilder::binary(TapeOp op, TapeValue a, TapeValue b) {
  DType t = common_dtype(dtype(a), dtype(b));
  if (op < TapeOp::kAdd || op > TapeOp::kShr) return refuse(op, t, "not a binary operation");
  if (is_bitwise(op)) {
    if (is_floating(t)) return refuse(op, t, "takes integers and bool");
  } else if (op == TapeOp::kShl || op == TapeOp::kShr) {
    if (!is_integer(t)) return refuse(op, t, "takes integers");
  } else if (is_comparison(op)) {
    if (t == DType::kBool && op != TapeOp::kEq && op != TapeOp::kNe) t = DType::kInt32;
  } else if (t == DType::kBool) {
    if (op == TapeOp::kMinimum) return push({TapeOp::kAnd, t, a.at, b.at});
    if (op == TapeOp::kMaximum) return push({TapeOp::kOr, t, a.at, b.at});
    return refuse(op, t, "cast to a number first, or use logical operations");
  } else if ((op == TapeOp::kDiv || op == TapeOp::kAtan2) && is_integer(t)) {
    t = DType::kFloat64;
  }
  const TapeValue x = cast(a, t), y = cast(b, t);
  return push({op, is_comparison(op) ? DType::kBool : t, x.at, y.at});
}

TapeValue TapeBuilder::binary(TapeOp op, TapeValue a, const Scalar& b) {
  return binary(op, a, constant(b, scalar_dtype(dtype(a), b.kind)));
}

TapeValue TapeBuilder::binary(TapeOp op, const Scalar& a, TapeValue b) {
  return binary(op, constant(a, scalar_dtype(dtype(b), a.kind)), b);
}

TapeValue TapeBuilder::where(TapeValue condition, TapeValue a, TapeValue b) {
  if (dtype(condition) != DType::kBool)
    return refuse(TapeOp::kWhere, dtype(condition), "the condition must be bool");
  const DType t = common_dtype(dtype(a), dtype(b));
  const TapeValue x = cast(a, t), y = cast(b, t);
  return push({TapeOp::kWhere, t, condition.at, x.at, y.at});
}

Result<Tape> TapeBuilder::finish(TapeValue result) const {
  if (error_) return *error_;
  if (result.at >= code_.size()) return error(Errc::kInvalidArgument, "an expression without a value");
  // Arguments come earlier, so one pass back finds what is needed; whatever follows the result is not.
  std::vector<std::uint8_t> needed(result.at + 1u, 0);
  needed[result.at] = 1;
  for (std::size_t i = result.at + 1u; i-- > 0;) {
    if (!needed[i]) continue;
    const std::uint16_t args[3] = {code_[i].a, code_[i].b, code_[i].c};
    for (int k = 0; k < arity_of(code_[i].op); ++k) needed[args[k]] = 1;
  }
  std::vector<std::uint16_t> to(needed.size(), 0);
  Tape tape;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    TapeInstr instr = code_[i];
    instr.a = to[instr.a], instr.b = to[instr.b], instr.c = to[instr.c];
    to[i] = static_cast<std::uint16_t>(tape.code.size());
    tape.code.push_back(instr);
  }
  if (tape.code.size() > static_cast<std::size_t>(limits::kMaxTapeInstructions))
    return error(Errc::kLimitExceeded, "an expression of " + std::to_string(tape.code.size()) +
                                           " instructions; the limit is " +
                                           std::to_string(limits::kMaxTapeInstructions));
  return tape;
}

}  // namespace tilewise::ir
