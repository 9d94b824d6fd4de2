// The bits of host kernels are those of the expression, not of the instruction set: what kernels/README.md promises to be equal
// is computed by each one that this machine has.
#include "conformance/targets.h"

#include <tilewise/kernels/host_info.h>
#include <tilewise/kernels/plugin.h>

#include <cstring>
#include <map>

#include "conformance/harness.h"
#include "map/lanes.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::TapeOp;

// Functions whose last place may differ where there is no FMA: Highway's, and our own and SLEEF's, in whose place is the C library's
// without it. (logaddexp and functions of complex numbers are the C library's everywhere.)
bool wants_fma(TapeOp op) {
  switch (op) {
    case TapeOp::kExp:
    case TapeOp::kExpm1:
    case TapeOp::kLog:
    case TapeOp::kLog1p:
    case TapeOp::kLog2:
    case TapeOp::kLog10:
    case TapeOp::kSin:
    case TapeOp::kCos:
    case TapeOp::kTan:
    case TapeOp::kTanh:
    case TapeOp::kSinh:
    case TapeOp::kCosh:
    case TapeOp::kAsin:
    case TapeOp::kAcos:
    case TapeOp::kAtan:
    case TapeOp::kAsinh:
    case TapeOp::kAcosh:
    case TapeOp::kAtanh:
    case TapeOp::kAtan2:
    case TapeOp::kHypot:
    case TapeOp::kPow:
    case TapeOp::kNormal: return true;
    default: return false;
  }
}
bool wants_fma(const ir::Op& op) {
  const ir::Tape* tape = nullptr;
  if (const auto* map = std::get_if<ir::MapAttrs>(&op.attrs)) tape = &map->tape;
  if (const auto* reduce = std::get_if<ir::ReduceAttrs>(&op.attrs)) tape = &reduce->tape;
  if (tape == nullptr) return false;
  for (const ir::TapeInstr& in : tape->code)
    if (wants_fma(in.op)) return true;
  return false;
}

bool is_nan(DType t, const std::byte* at) {
  if (t == DType::kFloat64) {
    double x;
    std::memcpy(&x, at, sizeof(x));
    return x != x;
  }
  if (t == DType::kFloat32) {
    float x;
    std::memcpy(&x, at, sizeof(x));
    return x != x;
  }
  if (!ir::is_half(t)) return false;
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return (bits & 0x7FFF) > (t == DType::kFloat16 ? 0x7C00 : 0x7F80);
}

// Computes each step with every target and compares the bits of what comes out. NaN equals NaN.
class EveryTarget final : public KernelSet {
 public:
  EveryTarget(KernelSet& set, device::Device& device) : set_(set), device_(device) {}
  Status supports(const ir::Op& op) const override { return set_.supports(op); }
  std::int64_t scratch_bytes(const ir::Op& op) const override { return set_.scratch_bytes(op); }
  Status prepare(const ir::Op& op) override { return set_.prepare(op); }
  Status launch(const KernelCall& call, device::Stream&) override {
    device_.synchronize();  // the operands are there
    const std::vector<std::vector<std::byte>> before = outputs_of(call);
    std::vector<std::vector<std::byte>> first;
    for (const std::int64_t target : targets()) {
      if (target == HWY_SCALAR && wants_fma(*call.op)) continue;
      const WithTarget chosen(target);
      for (std::size_t o = 0; o < before.size(); ++o)
        if (!before[o].empty()) std::memcpy(call.outputs[o].data, before[o].data(), before[o].size());
      REQUIRE(std::string(map::lane_target()) == hwy::TargetName(target));
      TW_TRY(set_.run(call));
      ++ran_[target];
      const auto got = outputs_of(call);
      if (first.empty())
        first = got;
      else
        compare(call, target, got, first);
    }
    return {};
  }
  std::int64_t ran(std::int64_t target) { return ran_[target]; }

 private:
  static std::vector<std::vector<std::byte>> outputs_of(const KernelCall& call) {
    std::vector<std::vector<std::byte>> out;
    for (const TensorView& view : call.outputs) {
      const auto* const data = static_cast<const std::byte*>(view.data);
      out.emplace_back(data,
                       data + static_cast<std::size_t>(ir::volume(view.shape)) * ir::size_of(view.dtype));
    }
    return out;
  }
  static void compare(const KernelCall& call, std::int64_t target,
                      const std::vector<std::vector<std::byte>>& got,
                      const std::vector<std::vector<std::byte>>& want) {
    for (std::size_t o = 0; o < got.size(); ++o) {
      if (got[o] == want[o]) continue;
      const DType part = ir::real_dtype(call.outputs[o].dtype);
      const std::size_t bytes = ir::size_of(part);
      for (std::size_t at = 0; at < got[o].size(); at += bytes) {
        if (std::memcmp(&got[o][at], &want[o][at], bytes) == 0) continue;
        if (is_nan(part, &got[o][at]) && is_nan(part, &want[o][at])) continue;
        FAIL(ir::name_of(call.op->kind)
             << " with " << std::string(hwy::TargetName(target)) << ": output " << o << " of "
             << ir::name_of(call.outputs[o].dtype) << ", number " << at / bytes
             << " has other bits than with " << std::string(hwy::TargetName(targets().front())));
      }
    }
  }

  KernelSet& set_;
  device::Device& device_;
  std::map<std::int64_t, std::int64_t> ran_;
};

struct AllTargets {
  std::unique_ptr<KernelSet> host = make_host_kernels(nullptr);
  std::unique_ptr<device::Device> device =
      device::make_host_device({.threads = 1, .memory_bytes = std::int64_t{1} << 30});
  EveryTarget kernels{*host, *device};
  Subject subject{.kernels = kernels, .device = *device, .random_share = 0.5};

  ~AllTargets() {
    for (const std::int64_t target : targets()) {
      CAPTURE(hwy::TargetName(target));
      CHECK(kernels.ran(target) > 0);
    }
  }
};

}  // namespace

TEST_CASE("the instruction set in use is the one that is told, and by itself the best there is") {
  const std::string best = hwy::TargetName(targets().back());
  CHECK(map::lane_target() == best);
  CHECK(host_numeric_class().starts_with(best + ", openblas "));
  for (const std::int64_t target : targets()) {
    const WithTarget chosen(target);
    CHECK(std::string(map::lane_target()) == hwy::TargetName(target));
    CHECK(host_numeric_class().starts_with(hwy::TargetName(target)));
    // A loop of its own for each, else nothing of this file compares anything.
    for (const std::int64_t other : targets()) {
      const map::LaneFn loop = map::find_lane(TapeOp::kAdd, DType::kFloat64, DType::kFloat64);
      const WithTarget another(other);
      const bool same = loop == map::find_lane(TapeOp::kAdd, DType::kFloat64, DType::kFloat64);
      CHECK(same == (other == target));
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().DeInit();
    }
  }
  CHECK(map::lane_target() == best);
}

TEST_CASE("all instruction sets give the same bits: elementwise") {
  AllTargets setup;
  conform_elementwise(setup.subject);
}
TEST_CASE("all instruction sets give the same bits: tapes") {
  AllTargets setup;
  conform_tapes(setup.subject);
}
TEST_CASE("all instruction sets give the same bits: random numbers") {
  AllTargets setup;
  conform_random(setup.subject);
}
TEST_CASE("all instruction sets give the same bits: reductions, moments, scans") {
  AllTargets setup;
  conform_reductions(setup.subject);
  conform_moments(setup.subject);
  conform_scans(setup.subject);
}
TEST_CASE("all instruction sets give the same bits: products") {
  AllTargets setup;
  conform_products(setup.subject);
}

}  // namespace tilewise::kernels::conformance
