// Built-in kernels of kCall on CUDA, compared with the reference: indices, masks, sorting, merging, searching, gamma numbers.
#include <doctest/doctest.h>
#include <tilewise/ir/builtin.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "pair.h"

namespace tilewise::gpu {
namespace {

using ir::DType;

// Compiled together where that is cheaper (conformance_check.cc).
void prepare_all(Pair& pair) {
  for (int d = 0; d < ir::kDTypeCount; ++d) {
    const auto t = static_cast<DType>(d);
    const Array a = Array::contiguous(t, {1}), number = Array::contiguous(DType::kInt64, {1});
    must(pair.cuda->prepare(call_step(ir::builtin::Take{}, {1}, {number, a}, {a}).op), "take");
    must(pair.cuda->prepare(call_step(ir::builtin::SortBlock{}, {1}, {a}, {a}).op), "sort");
    must(pair.cuda->prepare(call_step(ir::builtin::SortBlock{}, {1}, {a}, {a, number}).op), "argsort");
    must(pair.cuda->prepare(
             kernels::conformance::map_step(tape({kernels::conformance::instr(ir::TapeOp::kLoad, t)}), {a},
                                            ir::box_of({1}), {1})
                 .op),
         "copy");
    if (t == DType::kFloat32 || t == DType::kFloat64)
      must(pair.cuda->prepare(call_step(ir::builtin::Gamma{}, {1}, {}, {a}).op), "gamma");
    for (std::int64_t kind = 0; ir::is_complex(t) && kind < 4; ++kind) {
      const DType real = t == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
      const Array r = Array::contiguous(real, {1});
      const Step step = call_step(ir::builtin::Fft{0, kind, 1, std::bit_cast<std::int64_t>(0.5)}, {1},
                                  {kind == ir::builtin::Fft::kRealForward ? r : a},
                                  {kind == ir::builtin::Fft::kRealInverse ? r : a});
      if (pair.cuda->supports(step.op)) must(pair.cuda->prepare(step.op), "fft");
    }
  }
}

// The next step is as it should be.
void faults(Pair& pair) {
  Prng prng(56);
  device::Stream& stream = pair.device->compute_stream(0);
  const auto slab = pair.device->add_slab(1 << 20);
  REQUIRE(slab.has_value());
  const std::int64_t at[4] = {2, 0, 11, -1};
  REQUIRE(stream.copy(slab->data, at, sizeof at).has_value());
  const Step step = call_step(ir::builtin::Take{0, 10}, {4},
                              {Array::contiguous(DType::kInt64, {4}), Array::contiguous(DType::kInt64, {10})},
                              {kernels::conformance::result(DType::kInt64, {4})});
  kernels::KernelCall call = call_of(step.op, {4});
  const auto launch = [&](std::int64_t count) {
    call.inputs.clear(), call.outputs.clear();
    call.input_boxes = {ir::box_of({count}), ir::box_of({10})};
    call.inputs.push_back(dense(slab->data, DType::kInt64, {count}));
    call.inputs.push_back(dense(slab->data + 512, DType::kInt64, {10}));
    call.outputs.push_back(dense(slab->data + 1024, DType::kInt64, {count}));
    call.output_boxes = {ir::box_of({count})};
    must(pair.cuda->launch(call, stream), "take");
    const std::uint64_t sequence = stream.record();
    pair.device->synchronize();
    return sequence;
  };
  for (int round = 0; round < 3; ++round) {
    launch(2);
    const std::uint64_t bad = launch(4);
    launch(2);
    std::vector<device::StepFailure> failures;
    stream.take_failures(failures);
    REQUIRE(failures.size() == 1);
    CHECK(failures[0].sequence == bad);
    CHECK(failures[0].error.code == Errc::kOutOfRange);
    CHECK(failures[0].error.message == "index 11 is out of bounds for axis 0 with size 10");
    CHECK(pair.device->health().has_value());
  }
}

TEST_CASE("built-in kernels on CUDA are the reference's") {
  Pair pair;
  prepare_all(pair);
  SUBCASE("indices and masks") { kernels::conformance::conform_indices(pair.gpu); }
  SUBCASE("order") { kernels::conformance::conform_order(pair.gpu); }
  SUBCASE("numbers") { kernels::conformance::conform_numbers(pair.gpu); }
  SUBCASE("what is wrong with data is told") { faults(pair); }
}

}  // namespace
}  // namespace tilewise::gpu
