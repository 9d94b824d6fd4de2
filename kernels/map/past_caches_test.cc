#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "map/evaluator.h"

using namespace tilewise;
using kernels::map::Program;
using kernels::map::TileEvaluator;

namespace {

using ir::DType;
using ir::TapeOp;

ir::TapeInstr instr(TapeOp op, DType t, std::uint16_t a = 0, std::uint16_t b = 0, std::int64_t imm_i = 0) {
  ir::TapeInstr out;
  out.op = op, out.dtype = t, out.a = a, out.b = b, out.imm_i = imm_i;
  return out;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

// The outputs of a tape of two operands, `shift` bytes off a cache line; `over`: the first output takes operand 0's memory. `past`:
// how many went past the caches.
std::vector<std::vector<std::byte>> results(const ir::Tape& tape, DType t, std::int64_t n, std::size_t shift,
                                            bool over, bool past_caches, int& past) {
  const auto lines = static_cast<std::size_t>(n) * 8 / 64 + 2;
  std::vector<std::vector<Line>> memory(2 + tape.output_count(), std::vector<Line>(lines));
  for (int k = 0; k < 2; ++k) {
    for (std::int64_t i = 0; i < n; ++i) {
      std::byte* at =
          memory[static_cast<std::size_t>(k)][0].bytes + i * static_cast<std::int64_t>(ir::size_of(t));
      const auto value = 3 * i + 7 * k + 1;
      if (t == DType::kFloat64) {
        const auto f = static_cast<double>(value) / 4;
        std::memcpy(at, &f, sizeof f);
      } else if (t == DType::kFloat32) {
        const auto f = static_cast<float>(value) / 4;
        std::memcpy(at, &f, sizeof f);
      } else {
        std::memcpy(at, &value, ir::size_of(t));
      }
    }
  }
  const Program program = Program::make(tape).value();
  std::vector<kernels::TensorView> inputs(2);
  for (std::size_t k = 0; k < 2; ++k) inputs[k] = {memory[k][0].bytes, t, {n}, {1}};
  TileEvaluator evaluator = TileEvaluator::make(program, inputs, ir::box_of({n}), {n}).value();
  std::vector<std::byte*> outs;
  for (std::size_t o = 0; o < tape.output_count(); ++o)
    outs.push_back(over && o == 0 ? memory[0][0].bytes : memory[2 + o][0].bytes + shift);
  past = evaluator.eval_all(n, outs, past_caches);
  std::vector<std::vector<std::byte>> got;
  for (std::size_t o = 0; o < outs.size(); ++o)
    got.emplace_back(outs[o], outs[o] + n * static_cast<std::int64_t>(ir::size_of(program.result(o))));
  return got;
}

}  // namespace

TEST_CASE("results that are stored past the caches are the same") {
  struct Case {
    std::vector<std::uint16_t> outputs;
    int free;  // outputs that no later loop reads
  };
  // One; some that others are made of; two that only share operands (chains side by side, of floats), one of booleans.
  const Case cases[] = {{{}, 1}, {{2, 4, 3}, 1}, {{4, 6}, 2}, {{4, 7}, 2}};
  for (const DType t : {DType::kFloat64, DType::kFloat32, DType::kInt64, DType::kUInt8})
    for (const Case& one : cases)
      for (const bool over : {false, true})
        for (const std::int64_t n : {1, 63, 64, 127, 128, 129, 1025, 5000})
          for (const std::size_t shift : {0, 16}) {
            ir::Tape tape{{instr(TapeOp::kLoad, t, 0, 0, 0), instr(TapeOp::kLoad, t, 0, 0, 1),
                           instr(TapeOp::kAdd, t, 0, 1), instr(TapeOp::kMul, t, 2, 0),
                           instr(TapeOp::kSub, t, 3, 1)}};
            // Narrow results are made by loops of their own, which nothing reads.
            const int free =
                ir::is_narrow(t) ? static_cast<int>(std::max<std::size_t>(1, one.outputs.size())) : one.free;
            if (one.free == 2) {
              tape.code.push_back(instr(TapeOp::kSub, t, 0, 1));
              tape.code.push_back(instr(TapeOp::kMul, t, 5, 1));
              if (one.outputs.back() == 7) tape.code.push_back(instr(TapeOp::kLt, DType::kBool, 6, 1));
            }
            tape.outputs.assign(one.outputs.begin(), one.outputs.end());
            INFO(ir::name_of(t), ", outputs ", tape.output_count(), ", over ", over, ", n ", n, ", shift ",
                 shift);
            int past = 0, none = 0;
            CHECK(results(tape, t, n, shift, over, true, past) ==
                  results(tape, t, n, shift, over, false, none));
            CHECK(none == 0);
            if (shift > 0 || !kernels::map::can_stream())
              CHECK(past == 0);
            else if (!over)
              CHECK(past == free);
            else
              CHECK(past <= free);
          }
}

TEST_CASE("what outgrows the caches is told from what does not") {
  const ir::Tape tape{
      {instr(TapeOp::kLoad, DType::kFloat64, 0, 0, 0), instr(TapeOp::kNeg, DType::kFloat64, 0)}};
  const Program program = Program::make(tape).value();
  double one = 1;
  const std::vector<kernels::TensorView> inputs{{&one, DType::kFloat64, {1000}, {0}}};
  const auto evaluator = TileEvaluator::make(program, inputs, ir::box_of({1000}), {1000}).value();
  CHECK_FALSE(evaluator.outgrows_caches(1000));
  CHECK(evaluator.outgrows_caches(std::int64_t{1} << 40));
}
