// Writes tapes as NumPy would type them: casts inserted, equal instructions once, constants folded through casts.
//
// Typing of arrays. Two of one kind promote as the Array API says. Beyond the standard, as NumPy does: an integer with a
// float gives the smallest float that holds both (int8 with float16: float16; 16 bits with less than float64: float32; else
// float64), likewise with complex numbers; uint64 with a signed integer gives float64; bool with a number gives the number's
// dtype. A scalar adopts the array's dtype where its kind permits (float32 array + 1.5 is float32); otherwise int array with a
// float scalar gives float64, bool array with an int scalar int64, with a float scalar float64; a complex scalar gives
// complex64 beside float32 and what is narrower, else complex128.
// Division of integers gives float64, as do sqrt, exp and their like, atan2, hypot ...; comparisons and isnan give bool; abs,
// real and imag of complex numbers their parts' dtype. Comparisons of integers with an integer scalar that their dtype does not have are constants; a negative one is no exponent of integers.
// Arithmetic of two bools, and of one bool (negative, sqrt ...), is refused: NumPy's answers there surprise, and a cast
// says what is meant. minimum and maximum of bools are `and` and `or`. Complex numbers have no order, and no cast to reals.
#pragma once
#include <tilewise/ir/tape.h>

#include <optional>

namespace tilewise::ir {

// The dtype that two arrays meet in; see above. Always there is one.
DType common_dtype(DType a, DType b);

// A value of the host language.
struct Scalar {
  ScalarKind kind;
  std::int64_t i = 0;                                       // bool and integers
  double f = 0, g = 0;                                      // floats; real and imaginary part
  bool wide = false;                                        // `i` holds the bits of an integer from 2^63
  Scalar(bool v) : kind(ScalarKind::kBool), i(v) {}         // NOLINT: meant to convert
  Scalar(std::int64_t v) : kind(ScalarKind::kInt), i(v) {}  // NOLINT
  Scalar(int v) : Scalar(static_cast<std::int64_t>(v)) {}   // NOLINT
  Scalar(std::uint64_t v)                                   // NOLINT
      : kind(ScalarKind::kInt), i(static_cast<std::int64_t>(v)), wide(v >> 63 != 0) {}
  Scalar(double v) : kind(ScalarKind::kFloat), f(v) {}  // NOLINT
  static Scalar complex(double real, double imaginary) {
    Scalar s(real);
    s.kind = ScalarKind::kComplex;
    s.g = imaginary;
    return s;
  }
};
// The dtype a scalar takes beside an array of dtype `array`.
DType scalar_dtype(DType array, ScalarKind kind);

// A value of the tape under construction. Only meaningful to the builder that made it.
struct TapeValue {
  std::uint16_t at = 0;
};

// The first error sticks: expressions can be written without checks in between, finish() returns it.
class TapeBuilder {
 public:
  TapeValue load(int operand, DType dtype);
  TapeValue constant(const Scalar& value,
                     DType dtype);  // kOutOfRange where a number does not fit an integer dtype
  TapeValue iota(int dimension);    // int64
  TapeValue uniform(DType dtype, std::uint64_t key);
  TapeValue normal(DType dtype, std::uint64_t key);
  TapeValue random_int(std::uint64_t key);
  TapeValue random_below(TapeValue bound, std::uint64_t key);

  TapeValue cast(TapeValue v, DType to);
  // Any op of that arity in the enumeration's unary and binary sections. kNot of a number asks whether it is zero;
  // kInvert of bool is kNot; floor and its like leave integers alone; isnan of an integer is a constant, as is the imaginary
  // part of what has none; the real part and the conjugate of a real number are itself.
  TapeValue unary(TapeOp op, TapeValue a);
  TapeValue binary(TapeOp op, TapeValue a, TapeValue b);
  TapeValue binary(TapeOp op, TapeValue a, const Scalar& b);
  TapeValue binary(TapeOp op, const Scalar& a, TapeValue b);
  TapeValue where(TapeValue condition, TapeValue a, TapeValue b);  // condition: bool; a and b of any dtypes

  DType dtype(TapeValue v) const { return v.at < code_.size() ? code_[v.at].dtype : DType::kFloat64; }
  void fail(Error error);  // the first one stays

  // The tape that computes `result` and nothing else, or the first error. kLimitExceeded past the lengths of D11.
  Result<Tape> finish(TapeValue result) const;

 private:
  TapeValue push(TapeInstr instr);
  TapeValue refuse(TapeOp op, DType a, const char* why);

  std::vector<TapeInstr> code_;
  std::optional<Error> error_;
};

}  // namespace tilewise::ir
