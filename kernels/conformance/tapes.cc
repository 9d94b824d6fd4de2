// Random tapes over random layouts; fused against one instruction at a time; lengths around every limit of the tiling.
#include <tilewise/kernels/random_spec.h>

#include <cmath>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::TapeOp;

// Instructions that are exact, so that a whole tape can be compared bit for bit.
constexpr TapeOp kExact[] = {
    TapeOp::kNeg,       TapeOp::kAbs,     TapeOp::kSign,      TapeOp::kSqrt,       TapeOp::kFloor,
    TapeOp::kRound,     TapeOp::kIsNan,   TapeOp::kNot,       TapeOp::kInvert,     TapeOp::kAdd,
    TapeOp::kSub,       TapeOp::kMul,     TapeOp::kDiv,       TapeOp::kFloorDiv,   TapeOp::kRem,
    TapeOp::kMinimum,   TapeOp::kMaximum, TapeOp::kEq,        TapeOp::kLt,         TapeOp::kGe,
    TapeOp::kAnd,       TapeOp::kOr,      TapeOp::kXor,       TapeOp::kShl,        TapeOp::kShr,
    TapeOp::kWhere,     TapeOp::kCast,    TapeOp::kIota,      TapeOp::kConst,      TapeOp::kCopysign,
    TapeOp::kNextafter, TapeOp::kSignbit, TapeOp::kConj,      TapeOp::kReal,       TapeOp::kImag,
    TapeOp::kComplex,   TapeOp::kUniform, TapeOp::kRandomInt, TapeOp::kRandomBelow};

int pick(Prng& prng, const ir::Tape& tape, DType t) {
  std::vector<int> fit;
  for (std::size_t i = 0; i < tape.code.size(); ++i)
    if (tape.code[i].dtype == t) fit.push_back(static_cast<int>(i));
  return fit.empty() ? -1 : fit[prng.below(fit.size())];
}

ir::Tape random_tape(Prng& prng, const std::vector<DType>& operands, int rank, int length) {
  ir::Tape tape;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    tape.code.push_back(instr(TapeOp::kLoad, operands[k], 0, 0, 0, static_cast<std::int64_t>(k)));
  }
  while (static_cast<int>(tape.code.size()) < length) {
    const TapeOp op = kExact[prng.below(std::size(kExact))];
    const auto out = static_cast<DType>(prng.below(ir::kDTypeCount)),
               arg = static_cast<DType>(prng.below(ir::kDTypeCount));
    const int arity = ir::arity_of(op);
    int a[3] = {0, 0, 0};
    bool found = true;
    for (int k = 0; k < arity; ++k) {
      a[k] = pick(prng, tape, op == TapeOp::kWhere && k == 0 ? DType::kBool : arg);
      found = found && a[k] >= 0;
    }
    if (!found || (op == TapeOp::kIota && rank == 0)) continue;
    const std::int64_t imm = op == TapeOp::kIota
                                 ? static_cast<std::int64_t>(prng.below(static_cast<std::uint64_t>(rank)))
                             : op == TapeOp::kConst ? prng.between(0, 1)
                                                    : static_cast<std::int64_t>(prng.next());
    tape.code.push_back(instr(op, out, a[0], a[1], a[2], imm, prng.uniform() * 4 - 2));
    // Square roots, magnitudes and signs of complex numbers are not exact.
    const bool rounds = op == TapeOp::kSqrt || op == TapeOp::kAbs || op == TapeOp::kSign;
    if ((rounds && ir::is_complex(arg)) || !tape.verify(static_cast<int>(operands.size()), operands, rank))
      tape.code.pop_back();
  }
  return tape;
}

ir::Box box_at(Prng& prng, const ir::Shape& shape, ir::Shape& space) {
  ir::Box box;
  space = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t before = prng.between(0, 5);
    box.lo.push_back(before);
    box.hi.push_back(before + shape[d]);
    space[d] = before + shape[d] + prng.between(0, 5);
  }
  return box;
}

// Two to four outputs, of any instructions, operands and one instruction twice among them.
void name_outputs(Prng& prng, ir::Tape& tape) {
  for (std::int64_t n = prng.between(2, limits::kMaxOutputs); n > 0; --n)
    tape.outputs.push_back(static_cast<std::uint16_t>(prng.below(tape.code.size())));
}

// Every instruction as a map of its own, results stored between: its outputs.
std::vector<Array> unfused(const Subject& subject, const Step& fused) {
  const ir::Tape& tape = fused.op.get<ir::MapAttrs>().tape;
  std::vector<Array> values;
  for (const ir::TapeInstr& in : tape.code) {
    ir::Tape one;
    std::vector<Array> inputs;
    const std::uint16_t args[3] = {in.a, in.b, in.c};
    ir::TapeInstr last = in;
    last.a = last.b = last.c = 0;
    std::uint16_t* to[3] = {&last.a, &last.b, &last.c};
    for (int k = 0; k < ir::arity_of(in.op); ++k) {
      one.code.push_back(instr(TapeOp::kLoad, tape.code[args[k]].dtype, 0, 0, 0, k));
      inputs.push_back(values[args[k]]);
      *to[k] = static_cast<std::uint16_t>(k);
    }
    if (in.op == TapeOp::kLoad) {
      inputs.push_back(fused.inputs[static_cast<std::size_t>(in.imm_i)]);
      last.imm_i = 0;
    }
    one.code.push_back(last);
    Step step = map_step(one, std::move(inputs), fused.box, fused.space);
    run(subject, step);
    values.push_back(std::move(step.outputs[0]));
  }
  std::vector<Array> outputs;
  for (std::size_t o = 0; o < tape.output_count(); ++o) outputs.push_back(values[tape.output(o)]);
  return outputs;
}

// What the subject gives for every output beside the reference.
Step check_step(const Subject& subject, Step step, const std::string& what) {
  Step want = step;
  run(subject, step);
  run_reference(want);
  for (std::size_t o = 0; o < want.outputs.size(); ++o)
    check_same(step.outputs[o], want.outputs[o], "output " + std::to_string(o) + ", " + what);
  return step;
}

void random_tapes(const Subject& subject) {
  Prng prng(subject.seed + 1);
  for (int round = 0; round < subject.share_of(300); ++round) {
    const bool plain = prng.chance(0.3);
    const ir::Shape shape = random_shape(prng, 4, round % 10 == 0 ? 20000 : 3000);
    ir::Shape space;
    const ir::Box box = box_at(prng, shape, space);
    std::vector<DType> types;
    std::vector<Array> inputs;
    for (std::int64_t k = prng.between(1, 4); k > 0; --k) {
      types.push_back(static_cast<DType>(prng.below(ir::kDTypeCount)));
      inputs.push_back(random_layout(prng, types.back(), shape, plain));
      fill_random(prng, inputs.back(), true);
    }
    const int length =
        static_cast<int>(types.size()) + static_cast<int>(prng.between(0, round % 20 == 0 ? 200 : 15));
    ir::Tape tape = random_tape(prng, types, static_cast<int>(shape.size()), length);
    if (prng.chance(0.6)) name_outputs(prng, tape);
    const std::string what =
        "round " + std::to_string(round) + " over " + ir::to_string(box) + "\n" + ir::to_string(tape);
    const Step step = check_step(subject, map_step(tape, std::move(inputs), box, space), what);
    if (round % 5 != 0 || length >= 40) continue;
    const std::vector<Array> each = unfused(subject, step);
    for (std::size_t o = 0; o < each.size(); ++o) check_same(step.outputs[o], each[o], "unfused, " + what);
  }
}

// Outputs in the memory of operands that instructions behind them still read. Some of the others are repeated, transposed or
// positions, which no output may take: the ways through memory all differ.
void taken_memory(const Subject& subject) {
  Prng prng(subject.seed + 8);
  const auto D = DType::kFloat64, F = DType::kFloat32, B = DType::kBool;
  const ir::Tape tapes[] = {
      // a + b over a, (a + b) * a, b - a over b: all read a
      {{instr(TapeOp::kLoad, D, 0, 0, 0, 0), instr(TapeOp::kLoad, D, 0, 0, 0, 1),
        instr(TapeOp::kAdd, D, 0, 1), instr(TapeOp::kMul, D, 2, 0), instr(TapeOp::kSub, D, 1, 0)},
       {2, 3, 4}},
      // Adam's: the moments over themselves, then what is made of them; c is read last
      {{instr(TapeOp::kLoad, D, 0, 0, 0, 0), instr(TapeOp::kLoad, D, 0, 0, 0, 1),
        instr(TapeOp::kLoad, D, 0, 0, 0, 2), instr(TapeOp::kMul, D, 2, 2), instr(TapeOp::kAdd, D, 0, 2),
        instr(TapeOp::kAdd, D, 1, 3), instr(TapeOp::kAbs, D, 5), instr(TapeOp::kSqrt, D, 6),
        instr(TapeOp::kSub, D, 4, 7), instr(TapeOp::kMul, D, 8, 0)},
       {4, 5, 9}},
      // operands change places
      {{instr(TapeOp::kLoad, D, 0, 0, 0, 0), instr(TapeOp::kLoad, D, 0, 0, 0, 1)}, {1, 0}},
      // one value twice, over what it was made of; a narrower one and a bool beside it
      {{instr(TapeOp::kLoad, D, 0, 0, 0, 0), instr(TapeOp::kNeg, D, 0), instr(TapeOp::kCast, F, 0),
        instr(TapeOp::kLt, B, 0, 1)},
       {1, 1, 2, 3}},
      // with the position of the element
      {{instr(TapeOp::kLoad, D, 0, 0, 0, 0), instr(TapeOp::kIota, DType::kInt64), instr(TapeOp::kCast, D, 1),
        instr(TapeOp::kAdd, D, 0, 2), instr(TapeOp::kLoad, D, 0, 0, 0, 1), instr(TapeOp::kSub, D, 0, 4)},
       {3, 5}}};
  const std::vector<std::vector<int>> takes{{0, -1, 1}, {0, 1, 2}, {0, 1}, {0, -1, -1, -1}, {0, 1}};
  for (std::size_t t = 0; t < std::size(tapes); ++t)
    for (const ir::Shape& shape : {ir::Shape{0}, ir::Shape{1}, ir::Shape{63}, ir::Shape{64}, ir::Shape{65},
                                   ir::Shape{2049}, ir::Shape{33, 70}, ir::Shape{3, 300}})
      for (int layout = 0; layout < 3; ++layout) {
        std::vector<Array> inputs;
        for (int k = 0; k < 3; ++k) {
          inputs.push_back(Array::contiguous(D, shape));
          const bool taken = std::find(takes[t].begin(), takes[t].end(), k) != takes[t].end();
          if (!taken && layout == 1) inputs.back().strides.assign(shape.size(), 0);
          if (!taken && layout == 2 && shape.size() == 2) inputs.back().strides = {1, shape[0]};
          fill_random(prng, inputs.back(), false);
        }
        Step step = map_step(tapes[t], std::move(inputs), ir::box_of(shape), shape);
        step.takes = takes[t];
        check_step(subject, std::move(step),
                   "in place over " + ir::to_string(shape) + "\n" + ir::to_string(tapes[t]));
      }
}

// Every pair of neighbours that one loop may do together, both orders, with splats, in place of their two loops. Of the
// host only: on CUDA every tape is one loop anyway, and 360 of them take NVRTC minutes.
void neighbours(const Subject& subject) {
  if (subject.device.info().kind == device::Kind::kCuda) return;
  Prng prng(subject.seed + 6);
  for (const DType t : {DType::kFloat32, DType::kFloat64}) {
    for (const TapeOp inner : {TapeOp::kAdd, TapeOp::kSub, TapeOp::kMul, TapeOp::kAbs, TapeOp::kNeg}) {
      for (const TapeOp outer :
           {TapeOp::kAdd, TapeOp::kSub, TapeOp::kMul, TapeOp::kAbs, TapeOp::kNeg, TapeOp::kSqrt}) {
        for (int variant = 0; variant < 6; ++variant) {
          const bool second = variant % 2 == 1, splat = variant / 2 == 1, used_twice = variant / 2 == 2;
          ir::Tape tape{
              {instr(TapeOp::kLoad, t, 0, 0, 0, 0), instr(TapeOp::kLoad, t, 0, 0, 0, 1),
               splat ? instr(TapeOp::kConst, t, 0, 0, 0, 0, 1.5) : instr(TapeOp::kLoad, t, 0, 0, 0, 2),
               instr(inner, t, 0, 1), second ? instr(outer, t, 2, 3) : instr(outer, t, 3, 2)}};
          if (ir::arity_of(outer) == 1) tape.code.back() = instr(outer, t, 3);
          if (used_twice) tape.code.push_back(instr(TapeOp::kMaximum, t, 3, 4));
          std::vector<Array> inputs;
          for (int k = 0; k < 3; ++k) {
            inputs.push_back(Array::contiguous(t, {1000}));
            fill_random(prng, inputs.back(), true);
          }
          Step step = map_step(tape, std::move(inputs), ir::box_of({1000}), {1000});
          Step want = step;
          run(subject, step);
          run_reference(want);
          check_same(step.outputs[0], want.outputs[0], ir::to_string(tape));
        }
      }
    }
  }
}

// Tapes of one float dtype, which hosts join into chains: values that are read again later, more operands than a chain takes
// (eight), more instructions (32), functions that go through memory, repeated operands, every length around a block's; booleans
// that come of them or choose among them, from memory and to it.
void chains(const Subject& subject) {
  if (subject.device.info().kind == device::Kind::kCuda)
    return;  // one loop anyway, and each takes NVRTC long
  Prng prng(subject.seed + 9);
  constexpr TapeOp kOps[] = {
      TapeOp::kAdd,   TapeOp::kSub, TapeOp::kMul,  TapeOp::kDiv,   TapeOp::kMinimum, TapeOp::kMaximum,
      TapeOp::kNeg,   TapeOp::kAbs, TapeOp::kSqrt, TapeOp::kFloor, TapeOp::kCeil,    TapeOp::kTrunc,
      TapeOp::kRound, TapeOp::kExp, TapeOp::kTanh, TapeOp::kPow,   TapeOp::kSign,    TapeOp::kCopysign};
  constexpr TapeOp kTests[] = {TapeOp::kEq,       TapeOp::kNe,      TapeOp::kLt,    TapeOp::kLe,
                               TapeOp::kGt,       TapeOp::kGe,      TapeOp::kIsNan, TapeOp::kIsInf,
                               TapeOp::kIsFinite, TapeOp::kSignbit, TapeOp::kCast};
  constexpr TapeOp kChoices[] = {TapeOp::kWhere, TapeOp::kWhere,  TapeOp::kCast, TapeOp::kAnd,
                                 TapeOp::kOr,    TapeOp::kXor,    TapeOp::kNot,  TapeOp::kInvert,
                                 TapeOp::kEq,    TapeOp::kMinimum};
  for (int round = 0; round < subject.share_of(600); ++round) {
    const DType t = round % 2 == 0 ? DType::kFloat64 : DType::kFloat32;
    const std::int64_t n = round % 10 == 0 ? 3000 : prng.between(0, 140);
    const int operands = static_cast<int>(prng.between(1, 12));
    ir::Tape tape;
    std::vector<Array> inputs;
    for (int k = 0; k < operands; ++k) {
      const DType c = t == DType::kFloat64 ? DType::kComplex128 : DType::kComplex64;
      const bool complex = prng.chance(0.1);  // its magnitude, which has an argument of another dtype
      tape.code.push_back(instr(TapeOp::kLoad, complex ? c : t, 0, 0, 0, k));
      inputs.push_back(Array::contiguous(complex ? c : t, {n}));
      fill_random(prng, inputs.back(), true);
      if (prng.chance(0.2)) inputs.back().strides[0] = 0;
      if (complex) tape.code.push_back(instr(TapeOp::kAbs, t, static_cast<int>(tape.code.size()) - 1));
    }
    const auto masks = static_cast<int>(prng.between(0, 2));  // booleans in memory
    for (int k = operands; k < operands + masks; ++k) {
      tape.code.push_back(instr(TapeOp::kLoad, DType::kBool, 0, 0, 0, k));
      inputs.push_back(Array::contiguous(DType::kBool, {n}));
      fill_random(prng, inputs.back(), true);
      if (prng.chance(0.2)) inputs.back().strides[0] = 0;
    }
    const double chooses = prng.chance(0.5) ? 0.4 : 0;  // how often a step has to do with booleans
    for (std::int64_t left = prng.between(1, round % 7 == 0 ? 120 : 12); left > 0; --left) {
      const auto have = static_cast<std::int64_t>(tape.code.size());
      const auto any = [&](DType of) {  // the latest, or one of all
        std::int64_t at = have - 1;
        while (tape.code[static_cast<std::size_t>(at)].dtype != of || prng.chance(0.4))
          at = prng.between(0, have - 1);
        return static_cast<int>(at);
      };
      const auto load = [&] {  // whose NaN have signs of their own: those of sums are anybody's
        const int at = any(t);
        return tape.code[static_cast<std::size_t>(at)].op == TapeOp::kLoad ? at : -1;
      };
      const auto add = [&](TapeOp op, DType out) {
        int a = any(t), b = any(t);
        if (op == TapeOp::kCopysign) b = load();
        if (op == TapeOp::kSignbit) a = load();
        if (a < 0 || b < 0) return;
        tape.code.push_back(ir::arity_of(op) == 1 ? instr(op, out, a) : instr(op, out, a, b));
      };
      const bool has_masks = std::any_of(tape.code.begin(), tape.code.end(),
                                         [](const ir::TapeInstr& in) { return in.dtype == DType::kBool; });
      if (!prng.chance(chooses)) {
        add(kOps[prng.below(std::size(kOps))], t);
      } else if (!has_masks || prng.chance(0.4)) {
        add(kTests[prng.below(std::size(kTests))], DType::kBool);
      } else {
        const TapeOp op = kChoices[prng.below(std::size(kChoices))];
        const int m = any(DType::kBool);
        if (op == TapeOp::kWhere) {
          const DType of = prng.chance(0.2) ? DType::kBool : t;
          const int a = any(of), b = any(of);
          tape.code.push_back(instr(op, of, m, a, b));
        } else if (op == TapeOp::kCast) {
          tape.code.push_back(instr(op, t, m));
        } else {
          const int other = any(DType::kBool);
          tape.code.push_back(ir::arity_of(op) == 1 ? instr(op, DType::kBool, m)
                                                    : instr(op, DType::kBool, m, other));
        }
      }
    }
    if (prng.chance(0.3)) name_outputs(prng, tape);
    Step step = map_step(tape, std::move(inputs), ir::box_of({n}), {n});
    const std::vector<Array> each = unfused(subject, step);
    run(subject, step);
    for (std::size_t o = 0; o < each.size(); ++o)
      check_same(step.outputs[o], each[o],
                 "chains, output " + std::to_string(o) + " of " + std::to_string(each.size()) + ", %" +
                     std::to_string(tape.output(o)) + "\n" + ir::to_string(tape));
  }
}

// A value computed from constants alone is one block, repeated; its memory may be wanted for the result.
void repeated_values(const Subject& subject) {
  Prng prng(subject.seed + 4);
  for (const TapeOp op : {TapeOp::kMaximum, TapeOp::kSub, TapeOp::kWhere}) {
    const auto D = DType::kFloat64;
    ir::Tape tape{
        {instr(TapeOp::kConst, D, 0, 0, 0, 0, 0.25), instr(TapeOp::kNeg, D, 0), instr(TapeOp::kLoad, D)}};
    if (op == TapeOp::kWhere) {
      tape.code.push_back(instr(TapeOp::kLt, DType::kBool, 1, 2));
      tape.code.push_back(instr(op, D, 3, 1, 2));
    } else {
      tape.code.push_back(instr(op, D, 1, 2));
    }
    Array a = Array::contiguous(D, {700});
    fill_random(prng, a, false);
    Step step = map_step(tape, {a}, ir::box_of({700}), {700});
    Step want = step;
    run(subject, step);
    run_reference(want);
    check_same(step.outputs[0], want.outputs[0], ir::to_string(tape));
  }
}

// The same bits for the same value wherever the element stands.
void positions(const Subject& subject) {
  Prng prng(subject.seed + 2);
  const ir::Tape tape{{instr(TapeOp::kLoad, DType::kFloat64), instr(TapeOp::kExp, DType::kFloat64, 0),
                       instr(TapeOp::kSin, DType::kFloat64, 1), instr(TapeOp::kPow, DType::kFloat64, 1, 2)}};
  Array all = Array::contiguous(DType::kFloat64, {5000});
  fill_random(prng, all, false);
  Step whole = map_step(tape, {all}, ir::box_of({5000}), {5000});
  run(subject, whole);
  for (const std::int64_t n : {0,   1,   7,    31,   32,   33,   63,   64,   255,  256, 257,
                               511, 512, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4097}) {
    const std::int64_t from = prng.between(0, 5000 - n);
    Array part = all;
    part.shape = {n};
    part.offset = from;
    Step step = map_step(tape, {part}, {{from}, {from + n}}, {5000});
    run(subject, step);
    Array want = whole.outputs[0];
    want.shape = {n};
    want.offset = from;
    check_same(step.outputs[0], want, "elements " + std::to_string(from) + " + " + std::to_string(n));
  }
}

// Rows and columns on both sides of where kernels change their way: padded rows (256), transposed operands (strips of 32
// to 8192 elements, tiles of 32 x 32), for elements of every size.
void limits(const Subject& subject) {
  Prng prng(subject.seed + 7);
  const ir::Shape shapes[] = {{3, 255},   {3, 256},   {3, 257},    {40, 31},    {40, 32},  {40, 33},
                              {31, 31},   {31, 32},   {32, 31},    {32, 32},    {33, 32},  {32, 33},
                              {33, 33},   {65, 64},   {9, 8191},   {9, 8192},   {9, 8193}, {70, 127},
                              {8192, 31}, {8193, 32}, {2, 32, 33}, {3, 33, 256}};
  for (const DType t :
       {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex128}) {
    const ir::Tape tape{{instr(TapeOp::kLoad, t, 0, 0, 0, 0), instr(TapeOp::kLoad, t, 0, 0, 0, 1),
                         instr(TapeOp::kLoad, t, 0, 0, 0, 2), instr(TapeOp::kSub, t, 0, 1),
                         instr(TapeOp::kAdd, t, 3, 2)}};
    ir::Tape several = tape;  // outputs of two sizes
    several.code.push_back(instr(TapeOp::kEq, DType::kBool, 0, 1));
    several.outputs = {4, 5, 3};
    for (const ir::Shape& shape : shapes) {
      Array plain = Array::contiguous(t, shape), padded = plain, across = plain;
      const std::size_t last = shape.size() - 1;
      std::int64_t step = shape[last] + 3;
      for (std::size_t d = last; d-- > 0; step *= shape[d]) padded.strides[d] = step;
      padded.bytes.resize(static_cast<std::size_t>(step) * ir::size_of(t));
      across.strides[last] = shape[last - 1];
      across.strides[last - 1] = 1;
      for (Array* a : {&plain, &padded, &across}) fill_random(prng, *a, false);
      for (const ir::Tape* outputs : {&tape, static_cast<const ir::Tape*>(&several)})
        check_step(subject, map_step(*outputs, {plain, padded, across}, ir::box_of(shape), shape),
                   std::string(ir::name_of(t)) + " at a limit, " + ir::to_string(shape));
    }
  }
}

}  // namespace

void conform_tapes(const Subject& subject) {
  repeated_values(subject);
  neighbours(subject);
  chains(subject);
  random_tapes(subject);
  taken_memory(subject);
  positions(subject);
  limits(subject);
}

void conform_random(const Subject& subject) {
  const auto known = random_spec::block(0, 0);
  CHECK(known.w[0] == 0x6627e8d5u);
  CHECK(known.w[1] == 0xe169c58du);
  CHECK(known.w[2] == 0xbc57ac4cu);
  CHECK(known.w[3] == 0x9b00dbd8u);
  Prng prng(subject.seed + 3);
  struct Draw {
    TapeOp op;
    DType dtype;
  };
  for (const Draw draw : {Draw{TapeOp::kUniform, DType::kFloat64}, Draw{TapeOp::kUniform, DType::kFloat32},
                          Draw{TapeOp::kRandomInt, DType::kInt64}, Draw{TapeOp::kNormal, DType::kFloat64},
                          Draw{TapeOp::kNormal, DType::kFloat32}}) {
    const ir::Shape space = {37, 129};
    const ir::Tape tape{{instr(draw.op, draw.dtype, 0, 0, 0, static_cast<std::int64_t>(prng.next()))}};
    const std::string what = std::string(ir::name_of(draw.op)) + " " + std::string(ir::name_of(draw.dtype));
    Step whole = map_step(tape, {}, ir::box_of(space), space);
    Step want = whole;
    run(subject, whole);
    run_reference(want);
    if (draw.op == TapeOp::kNormal) {
      // Near cos's zeros a last place is meaningless: distances against the larger of the value and 1.
      double most = 0;
      const double last = draw.dtype == DType::kFloat32 ? 0x1p-23 : 0x1p-52;
      for (std::int64_t e = 0; e < want.outputs[0].volume(); ++e) {
        const double w = want.outputs[0].as_double(e);
        most =
            std::max(most, std::fabs(whole.outputs[0].as_double(e) - w) / std::max(1.0, std::fabs(w)) / last);
      }
      MESSAGE("" << what << ": " << most << " ulp of max(1, |x|)");
      CHECK(most <= subject.normal_ulps);
    } else {
      check_same(whole.outputs[0], want.outputs[0], what);
    }
    for (int round = 0; round < 20; ++round) {  // any block of any grid
      ir::Box box;
      for (const std::int64_t extent : space) {
        box.lo.push_back(prng.between(0, extent - 1));
        box.hi.push_back(prng.between(box.lo.back() + 1, extent));
      }
      Step step = map_step(tape, {}, box, space);
      run(subject, step);
      Array part = whole.outputs[0];
      part.shape = box.shape();
      part.offset = ir::ravel(box.lo, space);
      check_same(step.outputs[0], part, what + " " + ir::to_string(box));
    }
  }
}

}  // namespace tilewise::kernels::conformance
