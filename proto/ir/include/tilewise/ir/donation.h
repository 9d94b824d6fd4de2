// Which operand's memory an output of a map is written to, where nobody else needs that operand: the rule that workers follow and
// that plans reckon with.
#pragma once
#include <tilewise/ir/op.h>

#include <array>

namespace tilewise::ir {

// Whether output `o` may lie where the blocks of operand `i`, an array of this dtype and grid, do: a map reads it element by
// element in place. Kernels see to it that no output overtakes what another one still reads of the same element.
bool may_overwrite(const Op& op, std::size_t o, std::size_t i, DType dtype, const Grid& grid);

// Of each output, the number of the input that gives its memory; -1: none does.
using Donors = std::array<int, limits::kMaxOutputs>;

// Each output takes the first input that fits(output, input) and that no earlier one has.
template <class Fits> Donors match_donors(std::size_t outputs, std::size_t inputs, const Fits& fits) {
  Donors donors;
  donors.fill(-1);
  for (std::size_t o = 0; o < outputs; ++o)
    for (std::size_t i = 0; i < inputs && donors[o] < 0; ++i) {
      bool taken = false;
      for (std::size_t before = 0; before < o; ++before) taken |= donors[before] == static_cast<int>(i);
      if (!taken && fits(o, i)) donors[o] = static_cast<int>(i);
    }
  return donors;
}

}  // namespace tilewise::ir
