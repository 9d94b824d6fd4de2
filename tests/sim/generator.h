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

constexpr const char *kPairKernel = "pair", *kListKernel = "list";  // every worker has them, version 1

// An array of so many blocks, and another made of it block by block; both are held.
Program plain_program(std::int64_t blocks, std::uint64_t& next);
struct Mix {            // of the ops, so many are
  double pairs = 0;     // calls of kernels with two results, or on listed blocks, of one result or two
  double lists = 0;     // calls on listed blocks, of one result
  double empty = 0.05;  // of the extents of new arrays: may be 0
  bool uploads = true;  // some arrays come from the client
};
// `next` is the session's next free number, advanced. `known` are arrays held from earlier programs.
Program random_program(Prng& prng, const std::vector<Named>& known, std::uint64_t& next, const Mix& mix);

}  // namespace tilewise::sim
