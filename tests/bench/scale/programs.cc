#include "programs.h"

#include <tilewise/base/check.h>
#include <tilewise/base/prng.h>

#include <cmath>

namespace tilewise::scale {

using ir::Source;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;

Source Recorder::push(Result<ir::Inferred> inferred) {
  TW_CHECK(inferred.has_value(), "a program of the bench is wrong: " + inferred.error().message);
  TW_CHECK(inferred->op.has_value() && inferred->op->outputs.size() == 1,
           "an op with one output was expected");
  ir::Op op = std::move(*inferred->op);
  op.outputs[0].array = next_++;
  Source out{op.outputs[0].array, inferred->dtype, op.outputs[0].grid, inferred->view};
  program_.ops.push_back(std::move(op));
  return out;
}

Source Recorder::random(const ir::Shape& shape, const ir::Shape& block) {
  const auto key = next_;
  return push(ir::infer_generate(shape, *ir::Grid::uniform(shape, block),
                                 [&](TapeBuilder& t, std::span<const TapeValue>) {
                                   return t.uniform(ir::DType::kFloat64, ir::random_key(key, key));
                                 }));
}
Source Recorder::map(std::vector<Source> operands, const ir::BuildTape& build) {
  return push(ir::infer_map(operands, build));
}
Source Recorder::add(const Source& a, const Source& b) {
  return map({a, b},
             [](TapeBuilder& t, std::span<const TapeValue> v) { return t.binary(TapeOp::kAdd, v[0], v[1]); });
}
Source Recorder::matmul(const Source& a, const Source& b, std::int64_t k_parts) {
  return push(ir::infer_matmul(a, b, k_parts));
}
Source Recorder::sum(const Source& a, std::optional<std::vector<int>> axes) {
  return push(ir::infer_reduce(a, ir::ReduceKind::kSum, axes, true));
}

Source Recorder::stencil(const Source& a, std::int64_t reach, double flops_per_point) {
  ir::CallAttrs call;
  call.kernel = "paper.stencil";
  call.flops_per_point = flops_per_point;
  ir::OperandMap map;
  for (int d = 0; d < a.grid.rank(); ++d)
    map.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d), 1, 1, reach, reach});
  call.maps = {map};
  return push(ir::infer_call(std::vector{a}, std::move(call), a.grid, {{0, a.dtype, a.grid}}));
}

Source Recorder::row(const Source& a, ir::ExplicitMap lists, double flops_per_point) {
  ir::CallAttrs call;
  call.kernel = "paper.row";
  call.flops_per_point = flops_per_point;
  call.explicit_maps.push_back(std::move(lists));
  return push(ir::infer_call(std::vector{a}, std::move(call), a.grid, {{0, a.dtype, a.grid}}));
}

Source Recorder::transposed(Source a) {
  a.view = *a.view.transpose();
  return a;
}

Program Recorder::take(std::string name) {
  program_.name = std::move(name);
  return std::move(program_);
}

Program matmul_program(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t block, int devices,
                       std::int64_t k_parts) {
  Recorder r;
  const Source a = r.random({m, k}, {block, block}), b = r.random({k, n}, {block, block});
  r.hold(r.matmul(a, b, k_parts));
  Program out = r.take("matmul");
  // Of a device that multiplies an even share into its own part of C: it reads a face of A and one of B, of which it
  // holds a share already (Irony, Toledo and Tiskin 2004, the two-dimensional case).
  const double p = devices;
  const double elements =
      2 * std::sqrt(static_cast<double>(m) * static_cast<double>(n) / p) * static_cast<double>(k);
  const double own = (static_cast<double>(m) + static_cast<double>(n)) * static_cast<double>(k) / p;
  out.received_bytes = std::max(0.0, 8 * (elements - own));
  return out;
}

Program matmul_program(int devices) {
  const auto side = static_cast<std::int64_t>(std::ceil(std::sqrt(devices)));
  return matmul_program(2048 * side, 2048 * side, 16384, 1024, devices);
}

namespace {

Program reductions_of(std::int64_t block_rows, std::int64_t side) {
  Recorder r;
  const Source x = r.random({block_rows * side, 4 * side}, {side, side});
  const Source columns = r.sum(x, std::vector{0}), rows = r.sum(x, std::vector{1});
  const Source squares = r.sum(
      r.map({x},
            [](TapeBuilder& t, std::span<const TapeValue> v) { return t.binary(TapeOp::kMul, v[0], v[0]); }),
      std::nullopt);
  for (const Source& held : {columns, rows, squares}) r.hold(held);
  return r.take("reductions");
}

Program stencil_of(std::int64_t blocks_a_side, std::int64_t side, double flops_per_point) {
  Recorder r;
  Source x = r.random({blocks_a_side * side, blocks_a_side * side}, {side, side});
  for (int i = 0; i < 10; ++i) x = r.stencil(x, 1, flops_per_point);
  r.hold(x);
  return r.take("stencil");
}

Program regression_of(std::int64_t blocks) {
  Recorder r;
  const std::int64_t rows = 16384 * blocks;
  const Source x = r.random({rows, 32}, {16384, 32}), y = r.random({rows}, {16384});
  Source w = r.random({32}, {32});
  for (int i = 0; i < 5; ++i) {
    const Source error = r.map({r.matmul(x, w), y}, [](TapeBuilder& t, std::span<const TapeValue> v) {
      const TapeValue e = t.unary(TapeOp::kExp, t.unary(TapeOp::kNeg, v[0]));
      return t.binary(TapeOp::kSub, t.binary(TapeOp::kDiv, 1.0, t.binary(TapeOp::kAdd, e, 1.0)), v[1]);
    });
    w = r.map({w, r.matmul(Recorder::transposed(x), error)},
              [](TapeBuilder& t, std::span<const TapeValue> v) {
                return t.binary(TapeOp::kSub, v[0], t.binary(TapeOp::kMul, v[1], 1e-6));
              });
  }
  r.hold(w);
  return r.take("logistic regression");
}

Program random_of(std::int64_t width, std::int64_t block, double flops_per_point, std::uint64_t seed) {
  Recorder r;
  Prng prng(seed);
  Source x = r.random({width * block}, {block});
  for (int level = 0; level < 20; ++level) {
    ir::ExplicitMap lists;
    lists.offsets.push_back(0);
    for (std::int64_t i = 0; i < width; ++i) {
      for (int k = 0; k < 2; ++k)
        lists.blocks.push_back(static_cast<std::int64_t>(prng.below(static_cast<std::uint64_t>(width))));
      lists.offsets.push_back(static_cast<std::uint32_t>(lists.blocks.size()));
    }
    x = r.row(x, std::move(lists), flops_per_point);
  }
  r.hold(x);
  return r.take("random graph");
}

std::int64_t root(double area) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::sqrt(area)));
}

}  // namespace

Program reductions_program(int devices) { return reductions_of(std::int64_t{16} * devices, 512); }
Program stencil_program(int devices) {
  return stencil_of(4 * static_cast<std::int64_t>(std::ceil(std::sqrt(devices))), 512, 1e8);
}
Program regression_program(int devices) { return regression_of(std::int64_t{4} * devices); }
Program random_program(int devices, std::uint64_t seed) {
  return random_of(std::int64_t{8} * devices, 32768, 1e8, seed);
}

Program large_matmul_program(int devices, std::int64_t tasks) {
  constexpr std::int64_t kSide = 256;
  const std::int64_t side = kSide * root(static_cast<double>(tasks));
  return matmul_program(side, side, 2 * kSide, kSide, devices);
}
// Each block is read by three sums; two are of the same block as what makes it.
Program large_reductions_program(std::int64_t tasks) {
  return reductions_of(std::max<std::int64_t>(1, tasks / 16), 1024);
}
Program large_stencil_program(std::int64_t tasks) {
  return stencil_of(root(static_cast<double>(tasks) / 11), 128, 2e7);
}
// Two arrays, and five times an error and a product.
Program large_regression_program(std::int64_t tasks) {
  return regression_of(std::max<std::int64_t>(1, tasks / 12));
}
Program large_random_program(std::int64_t tasks, std::uint64_t seed) {
  return random_of(std::max<std::int64_t>(1, tasks / 21), 4096, 2e7, seed);
}

Program rows_program(std::int64_t tasks, std::int64_t ops) {
  Recorder r;
  const std::int64_t width = tasks / ops;
  Source x = r.random({width * 16}, {16});
  for (std::int64_t i = 1; i < ops; ++i) x = r.stencil(x, 0, 2e7);
  r.hold(x);
  return r.take("rows");
}

}  // namespace tilewise::scale
