#pragma once
#include <tilewise/ir/op.h>

namespace tilewise::ir {

// Of all that an op says. Without `names` of outputs and label, as common subexpressions are compared. Equal ops have equal
// digests; ops of equal digests have to be compared.
std::uint64_t digest(const Op& op, bool names);

}  // namespace tilewise::ir
