// Constants of tapes as inputs of a program. A step of a loop differs from the last one in what it reads, and in numbers: a
// rate, a power of the step. One plan serves all steps if it follows from no constant's value. So constants are numbered,
// equal ones of a dtype alike, and a program is its ops with numbers instead of values. Passes tell constants apart and
// ask no more: of equal numbers they say the same. They carry numbers along; what they add themselves has none.
#pragma once
#include <tilewise/ir/op.h>

#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace tilewise::ir {

struct Constant {  // imm_f and imm_i of a kConst
  double f = 0;
  std::int64_t i = 0;
  friend bool operator==(const Constant& x, const Constant& y) {  // by bits, as TapeInstr
    return x.i == y.i && std::bit_cast<std::uint64_t>(x.f) == std::bit_cast<std::uint64_t>(y.f);
  }
};
using Constants = std::vector<Constant>;  // of a program; number n is at n - 1

constexpr std::size_t kMaxConstants = 65'535;  // of a program: numbers have 16 bits

bool fits(DType dtype, const Constant& value);                        // can be a constant of that dtype
bool fit(const std::vector<DType>& dtypes, const Constants& values);  // each; as many

class ConstantNumbers {
 public:
  // From 1, by first mention. 0: it has none and is part of the program, for it does not fit its dtype, or they are too many.
  std::uint16_t of(const TapeInstr& constant);
  Constants take() { return std::exchange(values_, {}); }

 private:
  std::map<std::tuple<DType, std::uint64_t, std::int64_t>, std::uint16_t> numbers_;
  Constants values_;
};

// Numbers the constants of a program's ops and takes the values of those that have a number.
Constants take_constants(std::span<Op> ops);
// Gives numbered constants these values.
void put_constants(std::span<Op> ops, const Constants& values);
bool has_constants(const Op& op, const Constants& values);    // put_constants would change nothing
std::vector<DType> constant_dtypes(std::span<const Op> ops);  // by number
// Of the next op of a program and one whose values were taken: are they the same but for those? Goes on with `numbers`.
bool same_attrs(const Op& op, const Op& taken, ConstantNumbers& numbers);

}  // namespace tilewise::ir
