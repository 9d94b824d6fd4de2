// What must agree to the last bit: random numbers with the host's, fused programs with unfused ones, a reduction with
// itself.
#include "device_conformance.h"  // prints errors

#include <tilewise/kernels/random_spec.h>

#include <cstring>

#include "mirror.h"

namespace tilewise::gpu {
namespace {

using ir::DType;
using ir::TapeInstr;
using ir::TapeOp;
using kernels::KernelCall;

constexpr std::int64_t kKey = 0x1234'5678'9abc'def1;

TEST_CASE("random numbers equal the host's") {
  Gpu gpu(std::int64_t{64} << 20);
  const auto host = kernels::make_host_kernels(nullptr);
  const ir::Shape shape{37, 3, 129};
  const ir::Tape tapes[] = {
      tape({{.op = TapeOp::kUniform, .dtype = DType::kFloat64, .imm_i = kKey}}),
      tape({{.op = TapeOp::kUniform, .dtype = DType::kFloat32, .imm_i = kKey}}),
      tape({{.op = TapeOp::kRandomInt, .dtype = DType::kInt64, .imm_i = kKey}}),
      tape({{.op = TapeOp::kConst, .dtype = DType::kInt64, .imm_i = 1'000'003},
            {.op = TapeOp::kRandomBelow, .dtype = DType::kInt64, .a = 0, .imm_i = kKey}}),
  };
  for (const ir::Tape& t : tapes) {
    INFO(ir::to_string(t));
    Mirror mirror(gpu);
    const ir::Op op = map_op(t, shape, 0);
    KernelCall call = call_of(op, shape);
    call.box = {{5, 1, 1000}, {42, 4, 1129}};  // a block inside a larger space
    call.space_shape = {1000, 7, 5000};
    call.outputs.push_back(mirror.output(t.result(), shape));
    call.output_boxes.push_back(call.box);
    const Status ran = mirror.run(call, *host);
    REQUIRE_MESSAGE(ran, (ran ? std::string() : ran.error().message));
    CHECK(mirror.difference(call.outputs[0], 0) == 0);
    if (t.result() == DType::kInt64 && t.code.size() == 1) {  // and those of the specification itself
      const std::int64_t first = ir::ravel(call.box.lo, call.space_shape);
      std::int64_t got;
      std::memcpy(&got, mirror.gpu_bytes(call.outputs[0].data), 8);
      CHECK(got ==
            static_cast<std::int64_t>(kernels::random_spec::draw64(kKey, static_cast<std::uint64_t>(first))));
    }
  }
  // Normals agree within what log and cos are good for.
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    Mirror mirror(gpu);
    const ir::Op op = map_op(tape({{.op = TapeOp::kNormal, .dtype = dtype, .imm_i = kKey}}), shape, 0);
    KernelCall call = call_of(op, shape);
    call.outputs.push_back(mirror.output(dtype, shape));
    call.output_boxes.push_back(call.box);
    REQUIRE(mirror.run(call, *host));
    CHECK(mirror.difference(call.outputs[0], dtype == DType::kFloat64 ? 1e-14 : 2e-6) <= 1);
  }
}

// x -> ((x * y + x) / (y - x)) ... one instruction at a time, each through memory.
TEST_CASE("fused equals unfused") {
  Gpu gpu(std::int64_t{64} << 20);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const TapeInstr x{.op = TapeOp::kLoad, .dtype = dtype, .imm_i = 0},
        y{.op = TapeOp::kLoad, .dtype = dtype, .imm_i = 1};
    const auto op2 = [&](TapeOp op, int a, int b) {
      return TapeInstr{
          .op = op, .dtype = dtype, .a = static_cast<std::uint16_t>(a), .b = static_cast<std::uint16_t>(b)};
    };
    const ir::Tape fused = tape({x,
                                 y,
                                 op2(TapeOp::kMul, 0, 1),
                                 op2(TapeOp::kAdd, 2, 0),
                                 op2(TapeOp::kSub, 1, 0),
                                 op2(TapeOp::kDiv, 3, 4),
                                 {.op = TapeOp::kExp, .dtype = dtype, .a = 5},
                                 op2(TapeOp::kMul, 6, 1),
                                 op2(TapeOp::kSub, 7, 2)});
    Prng prng(5);
    const ir::Shape shape{301, 77};
    Mirror all(gpu);
    const kernels::TensorView vx = all.random_view(dtype, shape, prng, true),
                              vy = all.random_view(dtype, shape, prng, true);
    const auto bytes = static_cast<std::size_t>(ir::volume(shape)) * ir::size_of(dtype);
    // Unfused: every instruction is a map of its own whose operands are earlier results.
    std::vector<std::vector<std::byte>> values;
    for (const TapeInstr& in : fused.code) {
      auto& value = values.emplace_back(bytes);
      if (in.op == TapeOp::kLoad) {
        std::memcpy(value.data(), in.imm_i == 0 ? vx.data : vy.data, bytes);
        continue;
      }
      Mirror one(gpu);
      TapeInstr last = in;
      last.a = 0;
      ir::Tape t = tape({x});
      if (ir::arity_of(in.op) == 2) {
        t.code.push_back(y);
        last.b = 1;
      }
      t.code.push_back(last);
      const ir::Op op = map_op(t, shape, 2);
      KernelCall call = call_of(op, shape);
      for (const int argument : {static_cast<int>(in.a), static_cast<int>(in.b)}) {
        kernels::TensorView view = dense(one.add(static_cast<std::int64_t>(bytes)), dtype, shape);
        std::memcpy(view.data, values[static_cast<std::size_t>(argument)].data(), bytes);
        call.inputs.push_back(view);
        call.input_boxes.push_back(call.box);
      }
      call.outputs.push_back(one.output(dtype, shape));
      call.output_boxes.push_back(call.box);
      REQUIRE(one.run_gpu(call));
      std::memcpy(value.data(), one.gpu_bytes(call.outputs[0].data), bytes);
    }
    const ir::Op op = map_op(fused, shape, 2);
    for (const bool flat : {true, false}) {  // the flat kernel and the strided one
      Mirror mirror(gpu);
      KernelCall call = call_of(op, shape);
      for (const auto* from : {&vx, &vy}) {
        const ir::Shape wide{shape[0], shape[1] + (flat ? 0 : 3)};
        kernels::TensorView view = dense(mirror.add(ir::volume(wide) * 8), dtype, shape);
        view.strides[0] = wide[1];
        const auto row = static_cast<std::size_t>(shape[1]) * ir::size_of(dtype);
        for (std::int64_t r = 0; r < shape[0]; ++r)
          std::memcpy(
              static_cast<std::byte*>(view.data) + static_cast<std::size_t>(r * wide[1]) * ir::size_of(dtype),
              static_cast<const std::byte*>(from->data) + static_cast<std::size_t>(r) * row, row);
        call.inputs.push_back(view);
        call.input_boxes.push_back(call.box);
      }
      call.outputs.push_back(mirror.output(dtype, shape));
      call.output_boxes.push_back(call.box);
      REQUIRE(mirror.run_gpu(call));
      CHECK(std::memcmp(mirror.gpu_bytes(call.outputs[0].data), values.back().data(), bytes) == 0);
    }
  }
}

TEST_CASE("a sum has the same bits every time") {
  Gpu gpu(std::int64_t{64} << 20);
  const ir::Shape shape{1'000'003};
  const ir::Op op = reduce_op(tape({{.op = TapeOp::kLoad, .dtype = DType::kFloat64, .imm_i = 0}}),
                              ir::ReduceKind::kSum, 1, shape);
  double first = 0;
  for (int round = 0; round < 20; ++round) {
    Prng prng(3);
    Mirror mirror(gpu, true);
    KernelCall call = call_of(op, shape);
    call.inputs.push_back(mirror.random_view(DType::kFloat64, shape, prng, true));
    call.input_boxes.push_back(call.box);
    call.outputs.push_back(mirror.output(DType::kFloat64, {1}));
    call.output_boxes.push_back(ir::box_of({1}));
    REQUIRE(mirror.run_gpu(call));
    double sum;
    std::memcpy(&sum, mirror.gpu_bytes(call.outputs[0].data), 8);
    if (round == 0) first = sum;
    CHECK(std::memcmp(&sum, &first, 8) == 0);
  }
}

}  // namespace
}  // namespace tilewise::gpu
