#include <tilewise/ir/element_types.h>
#include <tilewise/ir/tape_builder.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tilewise::ir {
namespace {

// A float as its dtype holds it.
double fitted(DType t, double v) {
  switch (t) {
    case DType::kFloat16: return Float16(v);
    case DType::kBFloat16: return BFloat16(v);
    case DType::kFloat32: return static_cast<float>(v);
    default: return v;
  }
}

// An integer constant as a float, rounded once.
double as_float(const TapeInstr& c, DType to) {
  const auto of = [to](auto whole) -> double {
    switch (to) {
      case DType::kFloat16: return Float16(whole);
      case DType::kBFloat16: return BFloat16(whole);
      case DType::kFloat32: return static_cast<float>(whole);
      default: return static_cast<double>(whole);
    }
  };
  return c.dtype == DType::kUInt64 ? of(static_cast<std::uint64_t>(c.imm_i)) : of(c.imm_i);
}

// A constant as kCast would turn it. Nothing where that is the kernels' business (floats out of an integer's range).
std::optional<TapeInstr> folded(const TapeInstr& c, DType to) {
  TapeInstr r{TapeOp::kConst, to};
  const bool from_complex = is_complex(c.dtype), from_float = is_floating(c.dtype) || from_complex;
  const double imaginary = from_complex ? std::bit_cast<double>(c.imm_i) : 0;
  if (is_complex(to) || is_floating(to)) {
    r.imm_f = from_float ? fitted(real_dtype(to), c.imm_f) : as_float(c, real_dtype(to));
    if (is_complex(to)) r.imm_i = std::bit_cast<std::int64_t>(fitted(real_dtype(to), imaginary));
    return r;
  }
  if (to == DType::kBool) {
    r.imm_i = from_float ? c.imm_f != 0 || imaginary != 0 : c.imm_i != 0;
    return r;
  }
  if (from_float && !(std::abs(c.imm_f) < 0x1p31)) return std::nullopt;
  r.imm_i = wrapped(to, from_float ? static_cast<std::int64_t>(c.imm_f) : c.imm_i);
  return r;
}

// Does a scalar's value lie in an integer dtype's range?
bool in_range(const Scalar& v, const IntegerInfo& info) {
  if (v.kind == ScalarKind::kFloat) {
    // A float64 from 2^31 on is refused beside the wider dtypes too: few of them are meant exactly.
    const double top = std::min(0x1p31, static_cast<double>(info.max) + 1);
    return v.f > (info.min == 0 ? -1.0 : -top - 1) && v.f < top;
  }
  if (v.wide) return info.max == ~std::uint64_t{0};
  return v.i >= info.min && (v.i < 0 || static_cast<std::uint64_t>(v.i) <= info.max);
}

std::string text_of(const Scalar& v) {
  if (v.kind == ScalarKind::kFloat) return std::to_string(v.f);
  return v.wide ? std::to_string(static_cast<std::uint64_t>(v.i)) : std::to_string(v.i);
}

// What a comparison with an integer that dtype `t` does not have says of all elements; nothing where they decide.
std::optional<bool> comparison(TapeOp op, DType t, const Scalar& v, bool scalar_first) {
  const auto info = iinfo(t);
  if (!is_comparison(op) || !info || v.kind != ScalarKind::kInt || in_range(v, *info)) return std::nullopt;
  if (op == TapeOp::kEq || op == TapeOp::kNe) return op == TapeOp::kNe;
  const bool scalar_less = v.i < 0 && !v.wide;  // than any element
  const bool first_less = scalar_less == scalar_first;
  return first_less == (op == TapeOp::kLt || op == TapeOp::kLe);
}

}  // namespace

DType common_dtype(DType a, DType b) {
  if (const std::optional<DType> t = promote(a, b)) return *t;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  if (is_integer(a) && is_integer(b)) return DType::kFloat64;
  const DType whole = is_integer(a) ? a : b, other = is_integer(a) ? b : a;
  const std::size_t bytes = size_of(whole);
  if (is_complex(other)) return bytes <= 2 ? other : DType::kComplex128;
  if (bytes > 2) return DType::kFloat64;
  if (other == DType::kFloat16 && bytes == 1) return other;
  return is_half(other) ? DType::kFloat32 : other;
}

DType scalar_dtype(DType array, ScalarKind kind) {
  if (const std::optional<DType> t = promote_scalar(array, kind)) return *t;
  if (kind == ScalarKind::kComplex) return DType::kComplex128;
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
  const auto at = std::find(code_.begin(), code_.end(), instr);
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
  if (value.kind == ScalarKind::kComplex && !is_complex(dtype)) {
    fail(error(Errc::kInvalidArgument,
               "a complex number beside " + std::string(name_of(dtype)) + ": it has no complex values"));
    return push({TapeOp::kConst, dtype});
  }
  TapeInstr c{TapeOp::kConst, DType::kFloat64, 0, 0, 0, value.f};
  if (value.kind == ScalarKind::kComplex) {
    c.dtype = DType::kComplex128;
    c.imm_i = std::bit_cast<std::int64_t>(value.g);
  } else if (value.kind != ScalarKind::kFloat) {
    c = {TapeOp::kConst, value.wide ? DType::kUInt64 : DType::kInt64, 0, 0, 0, 0, value.i};
  }
  if (const auto info = iinfo(dtype); info && !in_range(value, *info))
    fail(error(Errc::kOutOfRange, text_of(value) + " does not fit " + std::string(name_of(dtype))));
  return push(folded(c, dtype).value_or(TapeInstr{TapeOp::kConst, dtype}));
}

TapeValue TapeBuilder::iota(int dimension) {
  return push({TapeOp::kIota, DType::kInt64, 0, 0, 0, 0, dimension});
}

TapeValue TapeBuilder::uniform(DType dtype, std::uint64_t key) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64)
    return refuse(TapeOp::kUniform, dtype, "random numbers are float32 or float64");
  return push({TapeOp::kUniform, dtype, 0, 0, 0, 0, static_cast<std::int64_t>(key)});
}

TapeValue TapeBuilder::normal(DType dtype, std::uint64_t key) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64)
    return refuse(TapeOp::kNormal, dtype, "random numbers are float32 or float64");
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
  if (is_complex(dtype(v)) && !is_complex(to) && to != DType::kBool)
    return refuse(TapeOp::kCast, dtype(v), "to real numbers: take real, imag or abs");
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
    case TapeOp::kAbs: return is_bool || is_unsigned_integer(t) ? a : push({op, real_dtype(t), a.at});
    case TapeOp::kSqrt:
    case TapeOp::kExp:
    case TapeOp::kExpm1:
    case TapeOp::kLog:
    case TapeOp::kLog1p:
    case TapeOp::kSin:
    case TapeOp::kCos:
    case TapeOp::kTan:
    case TapeOp::kTanh:
    case TapeOp::kAcos:
    case TapeOp::kAcosh:
    case TapeOp::kAsin:
    case TapeOp::kAsinh:
    case TapeOp::kAtan:
    case TapeOp::kAtanh:
    case TapeOp::kCosh:
    case TapeOp::kSinh:
    case TapeOp::kLog2:
    case TapeOp::kLog10: {
      if (is_bool) return refuse(op, t, "cast to a number first");
      const TapeValue f = is_integer(t) ? cast(a, DType::kFloat64) : a;
      return push({op, dtype(f), f.at});
    }
    case TapeOp::kFloor:
    case TapeOp::kCeil:
    case TapeOp::kTrunc:
      if (is_bool || is_complex(t)) return refuse(op, t, "takes real numbers");
      return is_integer(t) ? a : push({op, t, a.at});
    case TapeOp::kRound:
      if (is_bool) return refuse(op, t, "cast to a number first");
      return is_integer(t) ? a : push({op, t, a.at});
    case TapeOp::kIsNan:
    case TapeOp::kIsInf:
    case TapeOp::kIsFinite:
      if (!is_floating(t) && !is_complex(t)) return constant(op == TapeOp::kIsFinite, DType::kBool);
      return push({op, DType::kBool, a.at});
    case TapeOp::kSignbit:
      if (!is_floating(t)) return refuse(op, t, "takes floats");
      return push({op, DType::kBool, a.at});
    case TapeOp::kConj:
    case TapeOp::kReal: return is_complex(t) ? push({op, op == TapeOp::kConj ? t : real_dtype(t), a.at}) : a;
    case TapeOp::kImag:
      return is_complex(t) ? push({op, real_dtype(t), a.at}) : cast(constant(0, DType::kInt64), t);
    case TapeOp::kNot: return is_bool ? push({op, t, a.at}) : binary(TapeOp::kEq, a, constant(0, t));
    case TapeOp::kInvert:
      if (!is_integer(t) && !is_bool) return refuse(op, t, "takes integers and bool");
      return push({is_bool ? TapeOp::kNot : op, t, a.at});
    default: return refuse(op, t, "not a unary operation");
  }
}

TapeValue TapeBuilder::binary(TapeOp op, TapeValue a, TapeValue b) {
  DType t = common_dtype(dtype(a), dtype(b));
  if (op >= TapeOp::kCount || arity_of(op) != 2) return refuse(op, t, "not a binary operation");
  if (is_bitwise(op)) {
    if (!is_integer(t) && t != DType::kBool) return refuse(op, t, "takes integers and bool");
  } else if (op == TapeOp::kShl || op == TapeOp::kShr) {
    if (!is_integer(t)) return refuse(op, t, "takes integers");
  } else if (is_comparison(op)) {
    const bool equality = op == TapeOp::kEq || op == TapeOp::kNe;
    if (t == DType::kBool && !equality) t = DType::kInt32;
    if (is_complex(t) && !equality) return refuse(op, t, "complex numbers have no order");
  } else if (t == DType::kBool) {
    if (op == TapeOp::kMinimum) return push({TapeOp::kAnd, t, a.at, b.at});
    if (op == TapeOp::kMaximum) return push({TapeOp::kOr, t, a.at, b.at});
    return refuse(op, t, "cast to a number first, or use logical operations");
  } else if (op == TapeOp::kDiv || op == TapeOp::kAtan2 || op >= TapeOp::kCopysign) {
    if (is_complex(t) && op != TapeOp::kDiv) return refuse(op, t, "takes real numbers");
    if (is_integer(t)) t = DType::kFloat64;
    if (op == TapeOp::kComplex) {
      const TapeValue x = cast(a, real_dtype(complex_dtype(t))), y = cast(b, dtype(x));
      return push({op, complex_dtype(t), x.at, y.at});
    }
  } else if (is_complex(t) && op != TapeOp::kAdd && op != TapeOp::kSub && op != TapeOp::kMul &&
             op != TapeOp::kPow) {
    return refuse(op, t, "takes real numbers");
  }
  const TapeValue x = cast(a, t), y = cast(b, t);
  return push({op, is_comparison(op) ? DType::kBool : t, x.at, y.at});
}

TapeValue TapeBuilder::binary(TapeOp op, TapeValue a, const Scalar& b) {
  const DType t = scalar_dtype(dtype(a), b.kind);
  if (op == TapeOp::kPow && is_integer(t) && b.i < 0 && !b.wide)
    return refuse(
        op, dtype(a),
        ("integers to the power " + text_of(b) + " are no integers: cast to a float first").c_str());
  if (const auto settled = comparison(op, t, b, false)) return constant(*settled, DType::kBool);
  return binary(op, a, constant(b, t));
}

TapeValue TapeBuilder::binary(TapeOp op, const Scalar& a, TapeValue b) {
  const DType t = scalar_dtype(dtype(b), a.kind);
  if (const auto settled = comparison(op, t, a, true)) return constant(*settled, DType::kBool);
  return binary(op, constant(a, t), b);
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
