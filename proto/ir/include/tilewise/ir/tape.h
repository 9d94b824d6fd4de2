// Tapes: fused elementwise programs in SSA form. The same tape is interpreted on the host, becomes CUDA source on a
// GPU, and is evaluated plainly by the reference; all three give the rounding of one operation at a time (no
// contraction, no reassociation: D9).
#pragma once
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>

#include <bit>
#include <vector>

namespace tilewise::ir {

// Stable on the wire: append only.
// clang-format off
enum class TapeOp : std::uint8_t {
  // sources
  kLoad,      // operand `imm.i` at this element, as `dtype`
  kConst,     // imm (f for floats, i for integers and bool)
  kIota,      // global index along dimension imm.i of the op's space, as int64
  kUniform,   // uniform [0, 1): float64 53 bits, float32 24 bits, no other; counter = global C-order element index; imm.i = key
  kNormal,    // standard normal: Box-Muller on two uniforms of the same counter
  kRandomInt, // int64 uniform over all 64 bits; key imm.i (bounded by later ops through kRandomBelow)
  kRandomBelow,  // int64 in [0, a): a = first argument (>0); multiply-high of one 64-bit draw; key imm.i
  // unary
  kCast,      // to dtype; README.md says what does not fit becomes. No complex to real numbers: kReal, kAbs
  kNeg, kAbs, kSign, kSqrt, kExp, kExpm1, kLog, kLog1p, kSin, kCos, kTan, kTanh, kFloor, kCeil, kTrunc, kRound,
  kIsNan, kIsInf, kIsFinite, kNot /* bool */, kInvert /* bits */,
  // binary
  kAdd, kSub, kMul, kDiv /* floats */, kFloorDiv, kRem /* sign of divisor */, kPow, kMinimum, kMaximum, kAtan2,
  kEq, kNe, kLt, kLe, kGt, kGe, kAnd, kOr, kXor /* bool: logical; integers: bits */, kShl, kShr,
  // ternary
  kWhere,     // a ? b : c, a is bool
  // more unary ones
  kAcos, kAcosh, kAsin, kAsinh, kAtan, kAtanh, kCosh, kSinh, kLog2, kLog10, kSignbit /* bool */,
  kConj, kReal, kImag,  // of a complex number; kReal and kImag (and kAbs of complex) give the parts' dtype
  // more binary ones
  kCopysign, kNextafter, kHypot, kLogaddexp,
  kComplex,   // real, imaginary part
  kCount
};
// clang-format on

int arity_of(TapeOp op);              // 0, 1, 2 or 3
std::string_view name_of(TapeOp op);  // "add"
constexpr bool is_comparison(TapeOp op) { return op >= TapeOp::kEq && op <= TapeOp::kGe; }
constexpr bool is_bitwise(TapeOp op) { return op >= TapeOp::kAnd && op <= TapeOp::kXor; }

struct TapeInstr {
  TapeOp op = TapeOp::kConst;
  DType dtype = DType::kFloat64;  // of the result. Integer results wrap at the dtype's width
  std::uint16_t a = 0, b = 0,
                c = 0;  // earlier instructions; a of kConst: its number in a program (constants.h), or 0
  double imm_f = 0;     // kConst of a float; the real part of a complex one
  std::int64_t imm_i =
      0;  // kLoad operand, kIota dimension, key, kConst of an integer (uint64: its bits) or bool;
          // of a complex number: the bits of the imaginary part, a float64
  // Constants by their bits: NaN equals itself, -0 is not 0. Else a program with NaN in it would never be the same program.
  friend bool operator==(const TapeInstr& x, const TapeInstr& y) {
    return x.op == y.op && x.dtype == y.dtype && x.a == y.a && x.b == y.b && x.c == y.c &&
           x.imm_i == y.imm_i &&
           std::bit_cast<std::uint64_t>(x.imm_f) == std::bit_cast<std::uint64_t>(y.imm_f);
  }
};

// Each instruction's result is rounded to its dtype (integers wrap), whatever the kernels compute in.
// Integer division or remainder by zero gives 0. Minimum and maximum propagate NaN. Comparison operands share a
// dtype, as do the operands of every binary instruction (kCast makes it so; kWhere: b and c).
struct Tape {
  std::vector<TapeInstr> code;
  // The instructions whose values are the outputs, in their order; an instruction may be several of them. Empty: there is one
  // output, the last instruction, which is not written in any other way.
  boost::container::static_vector<std::uint16_t, limits::kMaxOutputs> outputs = {};

  std::size_t output_count() const { return outputs.empty() ? 1 : outputs.size(); }
  std::uint16_t output(std::size_t i) const {
    return outputs.empty() ? static_cast<std::uint16_t>(code.size() - 1) : outputs[i];
  }
  DType result(std::size_t i = 0) const { return code[output(i)].dtype; }
  // Operand indices below `operands`, arguments earlier, dtypes consistent, outputs there, lengths within limits.
  Status verify(int operands, std::span<const DType> operand_dtypes, int space_rank) const;
  std::uint64_t digest() const;
  friend bool operator==(const Tape&, const Tape&) = default;
};

// 64-bit key of a random stream, from a user's seed and a per-session stream number.
std::uint64_t random_key(std::uint64_t seed, std::uint64_t stream);

std::string to_string(const Tape& tape);  // one line an instruction

}  // namespace tilewise::ir
