// Graphs of known families, as a client would record them, for placing and running on paper.
#pragma once
#include <tilewise/ir/infer.h>

#include <string>
#include <vector>

namespace tilewise::scale {

struct Program {
  std::string name;
  std::vector<ir::Op> ops;
  std::vector<std::uint64_t> holds;
  // Bytes that some device has to receive at least, whatever runs where, if no block is computed twice and work is
  // spread evenly. 0: none known.
  double received_bytes = 0;
};

// Records ops; a mistake stops the program with its text.
class Recorder {
 public:
  ir::Source random(const ir::Shape& shape, const ir::Shape& block);
  ir::Source map(std::vector<ir::Source> operands, const ir::BuildTape& build);
  ir::Source add(const ir::Source& a, const ir::Source& b);
  ir::Source matmul(const ir::Source& a, const ir::Source& b, std::int64_t k_parts = 0);
  ir::Source sum(const ir::Source& a, std::optional<std::vector<int>> axes);
  // Each point reads its block of `a` and `reach` elements on each side of it, along every dimension.
  ir::Source stencil(const ir::Source& a, std::int64_t reach, double flops_per_point);
  // One row of tasks, each reading the listed blocks of `a` and writing a block like a's.
  ir::Source row(const ir::Source& a, ir::ExplicitMap lists, double flops_per_point);
  static ir::Source transposed(ir::Source a);
  void hold(const ir::Source& a) { program_.holds.push_back(a.array); }
  Program take(std::string name);

 private:
  ir::Source push(Result<ir::Inferred> inferred);
  Program program_;
  std::uint64_t next_ = 1;
};

// `devices`: sizes grow with them, so that every device has work for a second or so.
Program matmul_program(int devices);
// C is m x n over k, in blocks of `block`, all square. `k_parts`: as the user asks for (ir::MatmulAttrs).
Program matmul_program(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t block, int devices,
                       std::int64_t k_parts = 0);
Program reductions_program(int devices);
Program stencil_program(int devices);
Program regression_program(int devices);
Program random_program(int devices, std::uint64_t seed);
// The same families with about so many tasks, each of a millisecond or two: as many as the paper machine can hold.
Program large_matmul_program(int devices, std::int64_t tasks);
Program large_reductions_program(std::int64_t tasks);
Program large_stencil_program(std::int64_t tasks);
Program large_regression_program(std::int64_t tasks);
Program large_random_program(std::int64_t tasks, std::uint64_t seed);
// `tasks` in `ops` rows over one array; row by row each point reads one block of the row before.
Program rows_program(std::int64_t tasks, std::int64_t ops);

}  // namespace tilewise::scale
