// Random array programs, as a client's session would record them.
#pragma once
#include <tilewise/base/prng.h>
#include <tilewise/ir/op.h>

#include <vector>

namespace tilewise::sim {

struct Named {               // an array the program may use
  std::uint64_t number = 0;  // the session's
  ir::DType dtype = ir::DType::kFloat64;
  ir::Grid grid;
};

struct Program {
  std::vector<ir::Op> ops;
  std::vector<std::uint64_t> holds;
  std::vector<std::uint64_t> fetches;  // arrays behind kFetch ops
  std::vector<Named> made;             // every array the program makes
};

// `next` is the session's next free number, advanced. `known` are arrays held from earlier programs.
Program random_program(Prng& prng, const std::vector<Named>& known, std::uint64_t& next);

}  // namespace tilewise::sim
