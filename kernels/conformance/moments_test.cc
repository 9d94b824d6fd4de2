#include <hwy/highway.h>

#include <vector>

#include "conformance/harness.h"

using namespace tilewise;
using namespace tilewise::kernels;
using kernels::conformance::Array;

namespace {

// All four arrays of moments over `axes`, as bytes.
std::vector<std::vector<std::byte>> moments(const Array& input, std::uint32_t axes) {
  const auto kernels = make_host_kernels(nullptr);
  const auto device = device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 26});
  const conformance::Subject subject{.kernels = *kernels, .device = *device};
  ir::Shape kept = input.shape;
  for (std::size_t d = 0; d < kept.size(); ++d)
    if (axes >> d & 1) kept[d] = 1;
  conformance::Step step;
  step.op.kind = ir::OpKind::kReduceBlocks;
  step.op.attrs =
      ir::ReduceAttrs{{{conformance::instr(ir::TapeOp::kLoad, input.dtype)}}, ir::ReduceKind::kMoments, axes};
  for (const ir::DType t : {ir::DType::kFloat64, input.dtype, ir::DType::kFloat64, ir::DType::kFloat64}) {
    step.outputs.push_back(Array::contiguous(t, kept));
    step.op.outputs.push_back({.dtype = t});
  }
  step.box = ir::box_of(input.shape);
  step.space = input.shape;
  step.inputs.push_back(input);
  conformance::run(subject, step);
  std::vector<std::vector<std::byte>> out;
  for (const Array& part : step.outputs) out.push_back(part.bytes);
  return out;
}

}  // namespace

TEST_CASE("moments have the same bits whatever the width of vectors") {
  int compared = 0;
  for (const ir::DType t : {ir::DType::kFloat32, ir::DType::kFloat64})
    for (const auto& [shape, axes] : std::vector<std::pair<ir::Shape, std::uint32_t>>{{{100'003}, 1},
                                                                                      {{777, 5}, 1},
                                                                                      {{300, 200}, 1},
                                                                                      {{300, 200}, 2},
                                                                                      {{400, 9}, 2},
                                                                                      {{40, 7, 30}, 5}}) {
      Prng prng(7);
      Array input = Array::contiguous(t, shape);
      for (std::int64_t e = 0; e < input.volume(); ++e) input.set(e, 1000 + prng.uniform(), 0);
      const auto want = moments(input, axes);
      for (std::int64_t target = 1; target != 0 && target <= HWY_SCALAR; target <<= 1) {
        hwy::SetSupportedTargetsForTest(0);
        if ((hwy::SupportedTargets() & target) == 0) continue;
        hwy::SetSupportedTargetsForTest(target | HWY_SCALAR);
        hwy::GetChosenTarget().DeInit();  // the next call chooses anew
        CHECK(moments(input, axes) == want);
        ++compared;
      }
      hwy::SetSupportedTargetsForTest(0);
      hwy::GetChosenTarget().DeInit();
    }
  CHECK(compared >= 12);  // without vectors at least
}
