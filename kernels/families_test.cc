#include "families.h"

#include <doctest/doctest.h>

#include <tilewise/kernels/host_info.h>

#include <cstring>
#include <set>

using namespace tilewise;
using ir::OpKind;

TEST_CASE("each op kind has at most one family, and those without have none to run") {
  std::set<OpKind> seen;
  for (const kernels::Family& family : kernels::families()) {
    for (const OpKind op : family.ops) {
      CHECK(seen.insert(op).second);
      CHECK(kernels::family_of(op) == &family);
    }
  }
  for (const OpKind op :
       {OpKind::kMap, OpKind::kReduceBlocks, OpKind::kCombine, OpKind::kMatmul, OpKind::kMatmulPanels,
        OpKind::kCopy, OpKind::kReshape, OpKind::kReadNpy, OpKind::kWriteNpy, OpKind::kCall, OpKind::kScan}) {
    CHECK(seen.count(op) == 1);
  }
  for (const OpKind op : {OpKind::kReduce, OpKind::kFetch}) {
    ir::Op fetch;
    fetch.kind = op;
    CHECK(kernels::family_of(op) == nullptr);
    CHECK(kernels::make_host_kernels(nullptr)->supports(fetch).error().code == Errc::kUnsupported);
  }
}

TEST_CASE("the numeric class names the instruction set and the BLAS core") {
  CHECK(kernels::host_numeric_class().find("openblas") != std::string::npos);
}

TEST_CASE("an unknown combination of op and dtype is named") {
  ir::Op op;
  op.kind = OpKind::kMap;
  ir::TapeInstr load;
  load.op = ir::TapeOp::kLoad;
  load.dtype = ir::DType::kInt64;
  ir::TapeInstr exp = load;
  exp.op = ir::TapeOp::kExp;
  op.attrs = ir::MapAttrs{{{load, exp}}};
  const auto status = kernels::make_host_kernels(nullptr)->supports(op);
  REQUIRE(status.has_error());
  CHECK(status.error().code == Errc::kUnsupported);
  CHECK(status.error().message.find("exp") != std::string::npos);
  CHECK(status.error().message.find("int64") != std::string::npos);
}

TEST_CASE("a donated input may be the output") {
  ir::Op op;
  op.kind = OpKind::kMap;
  const auto in = [](ir::TapeOp o, std::uint16_t a, std::uint16_t b, std::int64_t imm) {
    ir::TapeInstr i;
    i.op = o;
    i.a = a;
    i.b = b;
    i.imm_i = imm;
    return i;
  };
  // ((x + y) * x) - x, written over x
  op.attrs = ir::MapAttrs{
      {{in(ir::TapeOp::kLoad, 0, 0, 0), in(ir::TapeOp::kLoad, 0, 0, 1), in(ir::TapeOp::kAdd, 0, 1, 0),
        in(ir::TapeOp::kMul, 2, 0, 0), in(ir::TapeOp::kSub, 3, 0, 0)}}};
  std::vector<double> x(3000), y(3000), want(3000);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i % 17) + 0.25;
    y[i] = static_cast<double>(i % 5) - 2;
    want[i] = (x[i] + y[i]) * x[i] - x[i];
  }
  kernels::KernelCall call;
  call.op = &op;
  call.box = ir::box_of({3000});
  call.space_shape = {3000};
  call.inputs.push_back({x.data(), ir::DType::kFloat64, {3000}, {1}});
  call.inputs.push_back({y.data(), ir::DType::kFloat64, {3000}, {1}});
  call.outputs.push_back({x.data(), ir::DType::kFloat64, {3000}, {1}});
  REQUIRE((kernels::make_host_kernels(nullptr)->run(call)).has_value());
  CHECK(x == want);
}
