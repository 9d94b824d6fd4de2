#include <tilewise/base/digest.h>
#include <tilewise/ir/constants.h>

#include <array>
#include <bit>
#include <cstdio>

namespace tilewise::ir {
namespace {

struct Entry {
  TapeOp op;
  int arity;
  std::string_view name;
};
// clang-format off
constexpr std::array kEntries = {
    Entry{TapeOp::kLoad, 0, "load"},        Entry{TapeOp::kConst, 0, "const"},
    Entry{TapeOp::kIota, 0, "iota"},        Entry{TapeOp::kUniform, 0, "uniform"},
    Entry{TapeOp::kNormal, 0, "normal"},    Entry{TapeOp::kRandomInt, 0, "random_int"},
    Entry{TapeOp::kRandomBelow, 1, "random_below"},
    Entry{TapeOp::kCast, 1, "cast"},        Entry{TapeOp::kNeg, 1, "neg"},
    Entry{TapeOp::kAbs, 1, "abs"},          Entry{TapeOp::kSign, 1, "sign"},
    Entry{TapeOp::kSqrt, 1, "sqrt"},        Entry{TapeOp::kExp, 1, "exp"},
    Entry{TapeOp::kExpm1, 1, "expm1"},      Entry{TapeOp::kLog, 1, "log"},
    Entry{TapeOp::kLog1p, 1, "log1p"},      Entry{TapeOp::kSin, 1, "sin"},
    Entry{TapeOp::kCos, 1, "cos"},          Entry{TapeOp::kTan, 1, "tan"},
    Entry{TapeOp::kTanh, 1, "tanh"},        Entry{TapeOp::kFloor, 1, "floor"},
    Entry{TapeOp::kCeil, 1, "ceil"},        Entry{TapeOp::kTrunc, 1, "trunc"},
    Entry{TapeOp::kRound, 1, "round"},      Entry{TapeOp::kIsNan, 1, "isnan"},
    Entry{TapeOp::kIsInf, 1, "isinf"},      Entry{TapeOp::kIsFinite, 1, "isfinite"},
    Entry{TapeOp::kNot, 1, "not"},          Entry{TapeOp::kInvert, 1, "invert"},
    Entry{TapeOp::kAdd, 2, "add"},          Entry{TapeOp::kSub, 2, "sub"},
    Entry{TapeOp::kMul, 2, "mul"},          Entry{TapeOp::kDiv, 2, "div"},
    Entry{TapeOp::kFloorDiv, 2, "floor_div"}, Entry{TapeOp::kRem, 2, "rem"},
    Entry{TapeOp::kPow, 2, "pow"},          Entry{TapeOp::kMinimum, 2, "minimum"},
    Entry{TapeOp::kMaximum, 2, "maximum"},  Entry{TapeOp::kAtan2, 2, "atan2"},
    Entry{TapeOp::kEq, 2, "eq"},            Entry{TapeOp::kNe, 2, "ne"},
    Entry{TapeOp::kLt, 2, "lt"},            Entry{TapeOp::kLe, 2, "le"},
    Entry{TapeOp::kGt, 2, "gt"},            Entry{TapeOp::kGe, 2, "ge"},
    Entry{TapeOp::kAnd, 2, "and"},          Entry{TapeOp::kOr, 2, "or"},
    Entry{TapeOp::kXor, 2, "xor"},          Entry{TapeOp::kShl, 2, "shl"},
    Entry{TapeOp::kShr, 2, "shr"},          Entry{TapeOp::kWhere, 3, "where"},
    Entry{TapeOp::kAcos, 1, "acos"},        Entry{TapeOp::kAcosh, 1, "acosh"},
    Entry{TapeOp::kAsin, 1, "asin"},        Entry{TapeOp::kAsinh, 1, "asinh"},
    Entry{TapeOp::kAtan, 1, "atan"},        Entry{TapeOp::kAtanh, 1, "atanh"},
    Entry{TapeOp::kCosh, 1, "cosh"},        Entry{TapeOp::kSinh, 1, "sinh"},
    Entry{TapeOp::kLog2, 1, "log2"},        Entry{TapeOp::kLog10, 1, "log10"},
    Entry{TapeOp::kSignbit, 1, "signbit"},  Entry{TapeOp::kConj, 1, "conj"},
    Entry{TapeOp::kReal, 1, "real"},        Entry{TapeOp::kImag, 1, "imag"},
    Entry{TapeOp::kCopysign, 2, "copysign"}, Entry{TapeOp::kNextafter, 2, "nextafter"},
    Entry{TapeOp::kHypot, 2, "hypot"},      Entry{TapeOp::kLogaddexp, 2, "logaddexp"},
    Entry{TapeOp::kComplex, 2, "complex"}};
// clang-format on

constexpr bool entries_in_order() {
  if (kEntries.size() != static_cast<std::size_t>(TapeOp::kCount)) return false;
  for (std::size_t i = 0; i < kEntries.size(); ++i)
    if (kEntries[i].op != static_cast<TapeOp>(i)) return false;
  return true;
}
static_assert(entries_in_order(), "one entry an op, in the order of the enumeration");

bool valid(DType t) { return static_cast<int>(t) < kDTypeCount; }
bool real(DType t) { return is_integer(t) || is_floating(t); }
bool inexact(DType t) { return is_floating(t) || is_complex(t); }

// clang-format off
// What the dtypes of an instruction and its arguments must satisfy.
bool dtypes_fit(TapeOp op, DType r, DType a, DType b, DType c) {
  switch (op) {
    case TapeOp::kLoad: case TapeOp::kConst: return true;
    case TapeOp::kCast: return !is_complex(a) || is_complex(r) || r == DType::kBool;
    case TapeOp::kIota: case TapeOp::kRandomInt: return r == DType::kInt64;
    case TapeOp::kRandomBelow: return r == DType::kInt64 && a == DType::kInt64;
    case TapeOp::kUniform: case TapeOp::kNormal: return r == DType::kFloat32 || r == DType::kFloat64;
    case TapeOp::kNeg: case TapeOp::kSign: return r != DType::kBool && a == r;
    case TapeOp::kAbs: return a != DType::kBool && r == real_dtype(a);
    case TapeOp::kSqrt: case TapeOp::kExp: case TapeOp::kExpm1: case TapeOp::kLog: case TapeOp::kLog1p:
    case TapeOp::kSin: case TapeOp::kCos: case TapeOp::kTan: case TapeOp::kTanh: case TapeOp::kRound:
    case TapeOp::kAcos: case TapeOp::kAcosh: case TapeOp::kAsin: case TapeOp::kAsinh: case TapeOp::kAtan:
    case TapeOp::kAtanh: case TapeOp::kCosh: case TapeOp::kSinh: case TapeOp::kLog2: case TapeOp::kLog10:
      return inexact(r) && a == r;
    case TapeOp::kFloor: case TapeOp::kCeil: case TapeOp::kTrunc: return is_floating(r) && a == r;
    case TapeOp::kIsNan: case TapeOp::kIsInf: case TapeOp::kIsFinite: return r == DType::kBool && inexact(a);
    case TapeOp::kSignbit: return r == DType::kBool && is_floating(a);
    case TapeOp::kConj: return is_complex(r) && a == r;
    case TapeOp::kReal: case TapeOp::kImag: return is_complex(a) && r == real_dtype(a);
    case TapeOp::kNot: return r == DType::kBool && a == DType::kBool;
    case TapeOp::kInvert: return is_integer(r) && a == r;
    case TapeOp::kAdd: case TapeOp::kSub: case TapeOp::kMul: case TapeOp::kPow:
      return r != DType::kBool && a == r && b == r;
    case TapeOp::kFloorDiv: case TapeOp::kRem: case TapeOp::kMinimum: case TapeOp::kMaximum:
      return real(r) && a == r && b == r;
    case TapeOp::kDiv: return inexact(r) && a == r && b == r;
    case TapeOp::kAtan2: case TapeOp::kCopysign: case TapeOp::kNextafter: case TapeOp::kHypot:
    case TapeOp::kLogaddexp: return is_floating(r) && a == r && b == r;
    case TapeOp::kComplex: return is_complex(r) && a == real_dtype(r) && b == a;
    case TapeOp::kEq: case TapeOp::kNe: return r == DType::kBool && a == b;
    case TapeOp::kLt: case TapeOp::kLe: case TapeOp::kGt: case TapeOp::kGe:
      return r == DType::kBool && a == b && real(a);
    case TapeOp::kAnd: case TapeOp::kOr: case TapeOp::kXor:
      return (is_integer(r) || r == DType::kBool) && a == r && b == r;
    case TapeOp::kShl: case TapeOp::kShr: return is_integer(r) && a == r && b == r;
    case TapeOp::kWhere: return a == DType::kBool && b == r && c == r;
    case TapeOp::kCount: break;
  }
  return false;
}
// clang-format on

std::string line(std::size_t i, const TapeInstr& in) {
  std::string s =
      "%" + std::to_string(i) + " = " + std::string(name_of(in.op)) + "." + std::string(name_of(in.dtype));
  const int arity = arity_of(in.op);
  if (arity > 0) s += " %" + std::to_string(in.a);
  if (arity > 1) s += " %" + std::to_string(in.b);
  if (arity > 2) s += " %" + std::to_string(in.c);
  if (in.op == TapeOp::kConst && inexact(in.dtype)) {
    char text[64];
    std::snprintf(text, sizeof text, " %.17g", in.imm_f);
    s += text;
    if (is_complex(in.dtype)) {
      std::snprintf(text, sizeof text, "%+.17gj", std::bit_cast<double>(in.imm_i));
      s += text;
    }
  } else if (arity == 0 || in.op == TapeOp::kRandomBelow) {
    s += " #" + std::to_string(in.imm_i);
  }
  return s;
}

}  // namespace

int arity_of(TapeOp op) {
  const auto i = static_cast<std::size_t>(op);
  return i < kEntries.size() ? kEntries[i].arity : 0;
}

std::string_view name_of(TapeOp op) {
  const auto i = static_cast<std::size_t>(op);
  return i < kEntries.size() ? kEntries[i].name : "unknown op";
}

Status Tape::verify(int operands, std::span<const DType> operand_dtypes, int space_rank) const {
  if (code.empty()) return error(Errc::kInvalidArgument, "an empty tape");
  if (code.size() > static_cast<std::size_t>(limits::kMaxTapeInstructions))
    return error(Errc::kLimitExceeded, std::to_string(code.size()) + " tape instructions; the limit is " +
                                           std::to_string(limits::kMaxTapeInstructions));
  int loads = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const TapeInstr& in = code[i];
    const auto fail = [&](const char* why) {
      return error(Errc::kInvalidArgument, "tape instruction " + line(i, in) + ": " + why);
    };
    if (in.op >= TapeOp::kCount || !valid(in.dtype)) return fail("unknown op or dtype");
    const std::uint16_t args[3] = {in.a, in.b, in.c};
    DType types[3] = {DType::kBool, DType::kBool, DType::kBool};
    for (int k = 0; k < 3; ++k) {
      if (k >= arity_of(in.op)) {
        const bool number = in.op == TapeOp::kConst && k == 0;
        if (args[k] != 0 && !number) return fail("an argument too many");
      } else {
        if (args[k] >= i) return fail("arguments must come earlier");
        types[k] = code[args[k]].dtype;
      }
    }
    if (!dtypes_fit(in.op, in.dtype, types[0], types[1], types[2])) return fail("dtypes do not fit");
    if (in.op == TapeOp::kLoad) {
      if (in.imm_i < 0 || in.imm_i >= operands ||
          in.imm_i >= static_cast<std::int64_t>(operand_dtypes.size()))
        return fail("no such operand");
      if (in.dtype != operand_dtypes[static_cast<std::size_t>(in.imm_i)])
        return fail("not the operand's dtype");
      if (++loads > limits::kMaxTapeLoads)
        return error(Errc::kLimitExceeded,
                     "more than " + std::to_string(limits::kMaxTapeLoads) + " loads in a tape");
    }
    if (in.op == TapeOp::kIota && (in.imm_i < 0 || in.imm_i >= space_rank)) return fail("no such dimension");
    if (in.op == TapeOp::kConst && !fits(in.dtype, {in.imm_f, in.imm_i}))
      return fail("does not fit its dtype");
  }
  if (outputs.size() == 1)
    return error(Errc::kInvalidArgument, "a tape names one output; a single one is the last instruction");
  for (const std::uint16_t at : outputs)
    if (at >= code.size())
      return error(Errc::kOutOfRange, "a tape's output is instruction " + std::to_string(at) + " of " +
                                          std::to_string(code.size()));
  return {};
}

std::uint64_t Tape::digest() const {
  Digest d;
  d.mix(code.size());
  for (const TapeInstr& in : code) {
    d.mix(static_cast<std::uint64_t>(in.op) | static_cast<std::uint64_t>(in.dtype) << 8 |
          std::uint64_t{in.a} << 16 | std::uint64_t{in.b} << 32 | std::uint64_t{in.c} << 48);
    d.mix(std::bit_cast<std::uint64_t>(in.imm_f));
    d.mix(static_cast<std::uint64_t>(in.imm_i));
  }
  for (const std::uint16_t at : outputs) d.mix(std::uint64_t{at});
  return d.value();
}

std::uint64_t random_key(std::uint64_t seed, std::uint64_t stream) {
  Digest d;
  d.mix(seed);
  d.mix(stream);
  return d.value();
}

std::string to_string(const Tape& tape) {
  std::string s;
  for (std::size_t i = 0; i < tape.code.size(); ++i) s += line(i, tape.code[i]) + "\n";
  for (std::size_t i = 0; i < tape.outputs.size(); ++i)
    s += (i == 0 ? "-> %" : ", %") + std::to_string(tape.outputs[i]);
  if (!tape.outputs.empty()) s += "\n";
  return s;
}

}  // namespace tilewise::ir
