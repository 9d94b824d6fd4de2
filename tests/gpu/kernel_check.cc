// What the conformance suite leaves out: products through scratch memory, as large as scratch_bytes() says.
#include <doctest/doctest.h>

#include "mirror.h"

namespace tilewise::gpu {
namespace {

using ir::DType;
using kernels::KernelCall;

double tolerance(DType dtype) { return dtype == DType::kFloat32 ? 4e-4 : 1e-11; }

TEST_CASE("products whose operands must be copied, a piece of k at a time") {
  Gpu gpu(std::int64_t{256} << 20);
  const auto reference = kernels::make_reference_kernels(nullptr);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Mirror mirror(gpu, true);
    const DType dtype = prng.chance(0.5) ? DType::kFloat64 : DType::kFloat32;
    const std::int64_t m = prng.between(1, 70), n = prng.between(1, 70),
                       k = prng.chance(0.3) ? prng.between(1000, 2100) : prng.between(1, 90);
    ir::Op op = map_op(tape({{.op = ir::TapeOp::kLoad, .dtype = dtype, .imm_i = 0}}), {m, n}, 2);
    op.kind = ir::OpKind::kMatmul;
    op.attrs = ir::MatmulAttrs{};
    // Views that say nothing about memory make the kernels reserve scratch for copies.
    op.operands[0].view = {{m, k}, {}};
    op.operands[1].view = {{k, n}, {}};
    KernelCall call = call_of(op, {m, n});
    call.step = prng.between(0, 1);
    call.steps = 2;
    call.inputs.push_back(mirror.random_view(dtype, {m, k}, prng));
    call.inputs.push_back(mirror.random_view(dtype, {k, n}, prng));
    for (const auto& in : call.inputs) call.input_boxes.push_back(ir::box_of(in.shape));
    call.outputs.push_back(mirror.random_output(dtype, {m, n}, prng));
    call.output_boxes.push_back(call.box);
    INFO(name_of(dtype) << " " << m << " x " << k << " x " << n << ", step " << call.step);
    const Status ran = mirror.run(call, *reference);
    REQUIRE_MESSAGE(ran.has_value(), (ran ? std::string() : ran.error().message));
    CHECK(mirror.difference(call.outputs[0], tolerance(dtype)) <= 1.0);
  }
}

}  // namespace
}  // namespace tilewise::gpu
