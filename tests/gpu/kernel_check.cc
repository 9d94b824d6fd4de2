// CUDA kernels against the reference on random shapes, strides and values. A failure prints its seed.
#include "device_conformance.h"  // prints errors

#include <tilewise/ir/verify.h>

#include "mirror.h"

namespace tilewise::gpu {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::TapeInstr;
using ir::TapeOp;
using kernels::KernelCall;

constexpr DType kAll[] = {DType::kBool, DType::kInt32, DType::kInt64, DType::kFloat32, DType::kFloat64};
constexpr DType kNumbers[] = {DType::kInt32, DType::kInt64, DType::kFloat32, DType::kFloat64};

double tolerance(DType dtype) { return dtype == DType::kFloat32 ? 4e-6 : 1e-13; }

struct Checker {
  Gpu gpu{std::int64_t{256} << 20};
  std::unique_ptr<kernels::KernelSet> reference = kernels::make_reference_kernels(nullptr);

  void compare(Mirror& mirror, const KernelCall& call, double looser = 1) {
    const Status ran = mirror.run(call, *reference);
    CHECK_MESSAGE(ran, (ran ? std::string() : ran.error().message));
    if (!ran) return;
    for (const auto& out : call.outputs)
      CHECK_MESSAGE(mirror.difference(out, looser * tolerance(out.dtype)) <= 1.0,
                    name_of(call.op->kind) << " of " << ir::to_string(call.box) << " into " << name_of(out.dtype));
  }
};

TapeInstr load(DType dtype, int operand) { return {.op = TapeOp::kLoad, .dtype = dtype, .imm_i = operand}; }

KernelCall elementwise_call(const ir::Op& op, Mirror& mirror, const ir::Shape& shape, std::span<const DType> operands,
                            Prng& prng) {
  KernelCall call = call_of(op, shape);
  for (const DType dtype : operands) call.inputs.push_back(mirror.random_view(dtype, shape, prng, prng.chance(0.4)));
  for (std::size_t i = 0; i < operands.size(); ++i) call.input_boxes.push_back(call.box);
  call.outputs.push_back(mirror.output(op.outputs[0].dtype, shape));
  call.output_boxes.push_back(call.box);
  return call;
}

// Every op on every dtype it takes, judged by Tape::verify.
std::vector<ir::Tape> one_op_tapes() {
  std::vector<ir::Tape> tapes;
  for (int o = static_cast<int>(TapeOp::kCast); o < static_cast<int>(TapeOp::kCount); ++o)
    for (const DType argument : kAll)
      for (const DType result : kAll) {
        const auto op = static_cast<TapeOp>(o);
        const bool where = op == TapeOp::kWhere;
        ir::Tape t{{load(where ? DType::kBool : argument, 0), load(argument, 1), load(argument, 2)}};
        TapeInstr in{.op = op, .dtype = result, .a = 0};
        if (ir::arity_of(op) > 1) in.b = 1;
        if (ir::arity_of(op) > 2) in.c = 2;
        t.code.push_back(in);
        const DType dtypes[] = {where ? DType::kBool : argument, argument, argument};
        if (t.verify(3, dtypes, 2)) tapes.push_back(std::move(t));
      }
  return tapes;
}

TEST_CASE("every tape op on every dtype") {
  Checker checker;
  for (const ir::Tape& t : one_op_tapes()) {
    Prng prng(t.digest());
    for (int round = 0; round < 3; ++round) {
      Mirror mirror(checker.gpu);
      const ir::Shape shape = random_shape(prng, 3, 3000);
      const ir::Op op = map_op(t, shape, 3);
      const DType operands[] = {t.code[0].dtype, t.code[1].dtype, t.code[2].dtype};
      INFO(ir::to_string(t));
      // tan near its poles and powers amplify the last bit of an intermediate.
      checker.compare(mirror, elementwise_call(op, mirror, shape, operands, prng), 8);
    }
  }
}

TEST_CASE("maps of random shapes and strides") {
  Checker checker;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Mirror mirror(checker.gpu);
    const DType dtype = kNumbers[prng.below(4)];
    const ir::Shape shape = random_shape(prng, 5, 40'000);
    ir::Tape t = tape({load(dtype, 0), load(dtype, 1), {.op = TapeOp::kMul, .dtype = dtype, .a = 0, .b = 1},
                       {.op = TapeOp::kSub, .dtype = dtype, .a = 2, .b = 0}});
    if (!shape.empty())
      t.code.push_back({.op = TapeOp::kIota, .dtype = DType::kInt64, .imm_i = prng.between(0, static_cast<std::int64_t>(shape.size()) - 1)});
    const auto last = static_cast<std::uint16_t>(t.code.size() - 1);
    t.code.push_back({.op = TapeOp::kCast, .dtype = dtype, .a = last});
    t.code.push_back({.op = TapeOp::kAdd, .dtype = dtype, .a = 3, .b = static_cast<std::uint16_t>(last + 1)});
    const ir::Op op = map_op(t, shape, 2);
    const DType operands[] = {dtype, dtype};
    KernelCall call = elementwise_call(op, mirror, shape, operands, prng);
    for (std::size_t d = 0; d < shape.size(); ++d) {  // a block somewhere in a larger space
      const std::int64_t lo = prng.between(0, 1000);
      call.box.lo[d] += lo;
      call.box.hi[d] += lo;
      call.space_shape[d] = call.box.hi[d] + prng.between(0, 50);
    }
    checker.compare(mirror, call);
  }
}

TEST_CASE("reductions of random shapes, axes and strides") {
  Checker checker;
  for (std::uint64_t seed = 1; seed <= 240; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Mirror mirror(checker.gpu, prng.chance(0.8));
    const auto kind = static_cast<ReduceKind>(prng.below(8));
    DType dtype = kAll[prng.below(5)];
    while (!ir::reduced_dtype(kind, dtype)) dtype = kAll[prng.below(5)];
    ir::Shape shape = random_shape(prng, 4, prng.chance(0.3) ? 300'000 : 5000);
    const auto axes = static_cast<std::uint32_t>(prng.below(std::uint64_t{1} << shape.size()));
    const ir::Op op = reduce_op(tape({load(dtype, 0)}), kind, axes, shape);
    KernelCall call = call_of(op, shape);
    call.inputs.push_back(mirror.random_view(dtype, shape, prng, prng.chance(0.5)));
    if (kind == ReduceKind::kProd && ir::is_floating(dtype))  // products of many numbers leave every range
      continue;
    call.input_boxes.push_back(call.box);
    ir::Shape out = shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (axes >> d & 1) out[d] = 1;
      const std::int64_t lo = prng.between(0, 100);
      call.box.lo[d] += lo;
      call.box.hi[d] += lo;
      call.space_shape[d] = call.box.hi[d];
    }
    INFO(name_of(kind) << " of " << name_of(dtype) << ir::to_string(shape) << " over axes " << axes);
    const int outputs = ir::is_arg(kind) ? 2 : 1;
    for (int i = 0; i < outputs; ++i) {
      call.outputs.push_back(mirror.output(i == 0 ? dtype : DType::kInt64, out));
      call.output_boxes.push_back(ir::box_of(out));
    }
    checker.compare(mirror, call, 1000);  // sums of up to 300,000 numbers in another order
  }
}

TEST_CASE("combining partials") {
  Checker checker;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Mirror mirror(checker.gpu);
    const auto kind = static_cast<ReduceKind>(prng.below(8));
    DType dtype = kAll[prng.below(5)];
    while (!ir::reduced_dtype(kind, dtype)) dtype = kAll[prng.below(5)];
    const ir::Shape shape = random_shape(prng, 3, 20'000);
    if (shape.empty()) continue;
    ir::Shape partial = shape;
    partial[0] = 1;
    ir::Op op = map_op(tape({load(dtype, 0)}), partial, 1);
    op.kind = ir::OpKind::kCombine;
    op.attrs = ir::CombineAttrs{kind, 0, 16};
    KernelCall call = call_of(op, partial);
    call.step = prng.between(0, 2);
    call.steps = 3;
    const int arrays = ir::is_arg(kind) ? 2 : 1;
    for (int i = 0; i < arrays; ++i) {
      const DType t = i == 0 ? dtype : DType::kInt64;
      call.inputs.push_back(mirror.random_view(t, partial, prng));
      call.input_boxes.push_back(call.box);
      call.outputs.push_back(mirror.random_output(t, partial, prng));
      call.output_boxes.push_back(call.box);
      if (i == 1) {  // positions are not negative
        for (auto* p = static_cast<std::int64_t*>(call.outputs[1].data); p < static_cast<std::int64_t*>(call.outputs[1].data) + ir::volume(partial); ++p) *p &= 0xffff;
      }
    }
    if (arrays == 2) {
      call.inputs[1] = mirror.random_output(DType::kInt64, partial, prng);
      for (auto* p = static_cast<std::int64_t*>(call.inputs[1].data); p < static_cast<std::int64_t*>(call.inputs[1].data) + ir::volume(partial); ++p) *p &= 0xffff;
    }
    INFO(name_of(kind) << " of " << name_of(dtype) << ir::to_string(partial));
    checker.compare(mirror, call, 4);
  }
}

TEST_CASE("products of every dtype, layout and step") {
  Checker checker;
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Mirror mirror(checker.gpu, true);
    const DType dtype = kNumbers[prng.below(4)];
    const std::int64_t m = prng.between(1, 70), n = prng.between(1, 70), k = prng.chance(0.1) ? 1500 : prng.between(1, 90);
    ir::Op op = map_op(tape({load(dtype, 0)}), {m, n}, 2);
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
    for (auto& in : call.inputs) {
      call.input_boxes.push_back(ir::box_of(in.shape));
    }
    call.outputs.push_back(mirror.random_output(dtype, {m, n}, prng));
    call.output_boxes.push_back(call.box);
    INFO(name_of(dtype) << " " << m << " x " << k << " x " << n << ", step " << call.step);
    checker.compare(mirror, call, 400);
  }
}

TEST_CASE("copies and reshapes of blocks") {
  Checker checker;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Mirror mirror(checker.gpu);
    const DType dtype = kAll[prng.below(5)];
    const bool reshape = prng.chance(0.4);
    const std::int64_t rows = prng.between(1, 40), row = prng.between(1, 50);
    if (reshape) {  // (rows * a, row) -> (rows, a * row), one slab of it
      const std::int64_t a = prng.between(1, 6);
      ir::Op op = map_op(tape({load(dtype, 0)}), {rows, a * row}, 1);
      op.kind = ir::OpKind::kReshape;
      op.attrs = ir::ReshapeAttrs{};
      op.operands[0].view = ir::View::identity({rows * a, row});
      KernelCall call = call_of(op, {rows, a * row});
      const std::int64_t lo = prng.between(0, rows - 1), hi = prng.between(lo + 1, rows);
      call.box.lo[0] = lo;
      call.box.hi[0] = hi;
      const std::int64_t in_lo = prng.between(0, lo * a), in_hi = prng.between(hi * a, rows * a);
      call.inputs.push_back(mirror.random_view(dtype, {in_hi - in_lo, row}, prng));
      call.input_boxes.push_back({{in_lo, 0}, {in_hi, row}});
      call.outputs.push_back(mirror.output(dtype, {hi - lo, a * row}));
      call.output_boxes.push_back(call.box);
      checker.compare(mirror, call);
      continue;
    }
    // One part of a concatenation: the operand starts at `at` in the output.
    const std::int64_t at = prng.between(0, 20);
    ir::Op op = map_op(tape({load(dtype, 0)}), {rows + at, row}, 1);
    op.kind = ir::OpKind::kCopy;
    op.attrs = ir::CopyAttrs{{{{.dim = 0, .before = at, .after = -at}, {.dim = 1}}}};
    op.operands[0].view = ir::View::identity({rows, row});
    KernelCall call = call_of(op, {rows + at, row});
    const std::int64_t part = prng.between(0, rows - 1);
    call.inputs.push_back(mirror.random_view(dtype, {rows - part, row}, prng));
    call.input_boxes.push_back({{part, 0}, {rows, row}});
    call.outputs.push_back(mirror.random_output(dtype, {rows + at, row}, prng));
    call.output_boxes.push_back(call.box);
    checker.compare(mirror, call);
  }
}

}  // namespace
}  // namespace tilewise::gpu
