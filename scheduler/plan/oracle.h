// For tests: user-level graphs evaluated element by element, without blocks except where they decide an order (sums).
// Only what the passes can touch: maps and reductions; other kinds are given as inputs.
#pragma once
#include <tilewise/base/check.h>
#include <tilewise/plan/plan.h>

#include <bit>
#include <cmath>
#include <map>

namespace tilewise::plan::test {

struct Value {  // floats as the bits of a double, integers and bools as they are
  std::int64_t i = 0;
  double f() const { return std::bit_cast<double>(i); }
  static Value of(double v) { return {std::bit_cast<std::int64_t>(v)}; }
  friend bool operator==(Value, Value) = default;
};

struct Array {
  ir::Shape shape;
  std::vector<Value> values;  // C order
};
using Arrays = std::map<std::uint64_t, Array>;

inline double rounded(ir::DType t, double v) { return t == ir::DType::kFloat32 ? static_cast<float>(v) : v; }

inline Value apply(const ir::TapeInstr& in, ir::DType from, Value a, Value b, Value c) {
  using Op = ir::TapeOp;
  const bool real = ir::is_floating(from);
  const auto f = [&](double v) { return Value::of(rounded(in.dtype, v)); };
  const auto wrap = [](std::int64_t (*op)(std::uint64_t, std::uint64_t), Value x, Value y) {
    return Value{op(static_cast<std::uint64_t>(x.i), static_cast<std::uint64_t>(y.i))};
  };
  switch (in.op) {
    case Op::kCast: {
      const double v = real ? a.f() : static_cast<double>(a.i);
      if (ir::is_floating(in.dtype)) return f(v);
      const std::int64_t whole = real ? static_cast<std::int64_t>(v) : a.i;
      return {in.dtype == ir::DType::kBool    ? whole != 0
              : in.dtype == ir::DType::kInt32 ? static_cast<std::int32_t>(whole)
                                              : whole};
    }
    case Op::kNeg:
      return real ? f(-a.f()) : Value{static_cast<std::int64_t>(-static_cast<std::uint64_t>(a.i))};
    case Op::kAbs: return real ? f(std::fabs(a.f())) : Value{a.i < 0 ? -a.i : a.i};
    case Op::kAdd:
      return real ? f(a.f() + b.f())
                  : wrap([](auto x, auto y) { return static_cast<std::int64_t>(x + y); }, a, b);
    case Op::kSub:
      return real ? f(a.f() - b.f())
                  : wrap([](auto x, auto y) { return static_cast<std::int64_t>(x - y); }, a, b);
    case Op::kMul:
      return real ? f(a.f() * b.f())
                  : wrap([](auto x, auto y) { return static_cast<std::int64_t>(x * y); }, a, b);
    case Op::kDiv: return f(a.f() / b.f());
    case Op::kLt: return {real ? a.f() < b.f() : a.i < b.i};
    case Op::kWhere: return a.i != 0 ? b : c;
    default: break;
  }
  TW_CHECK(false, "the oracle does not know " + std::string(ir::name_of(in.op)));
  return {};
}

inline std::int64_t source_position(const ir::View& view, const ir::Shape& source, const ir::Index& at) {
  std::int64_t position = 0;
  for (std::size_t s = 0; s < source.size(); ++s) {
    const ir::SourceDim& d = view.source[s];
    position =
        position * source[s] + d.start + (d.dim < 0 ? 0 : d.step * at[static_cast<std::size_t>(d.dim)]);
  }
  return position;
}

// The outputs of one element.
inline std::vector<Value> eval_tape(const ir::Tape& tape, const ir::Op& op, const Arrays& arrays,
                                    const ir::Index& at) {
  std::vector<Value> v(tape.code.size());
  for (std::size_t i = 0; i < tape.code.size(); ++i) {
    const ir::TapeInstr& in = tape.code[i];
    switch (in.op) {
      case ir::TapeOp::kLoad: {
        const ir::Operand& operand = op.operands[static_cast<std::size_t>(in.imm_i)];
        const Array& array = arrays.at(operand.array);
        v[i] = array.values[static_cast<std::size_t>(source_position(operand.view, array.shape, at))];
        break;
      }
      case ir::TapeOp::kConst:
        v[i] = ir::is_floating(in.dtype) ? Value::of(rounded(in.dtype, in.imm_f)) : Value{in.imm_i};
        break;
      case ir::TapeOp::kIota: v[i] = {at[static_cast<std::size_t>(in.imm_i)]}; break;
      case ir::TapeOp::kUniform: {  // any function of key and global position will do
        const std::uint64_t x =
            (static_cast<std::uint64_t>(ir::ravel(at, op.space.shape())) * 0x9E3779B97F4A7C15ull) ^
            static_cast<std::uint64_t>(in.imm_i) * 0xBF58476D1CE4E5B9ull;
        v[i] = Value::of(rounded(in.dtype, static_cast<double>(x >> 11) * 0x1.0p-53));
        break;
      }
      default: v[i] = apply(in, tape.code[in.a].dtype, v[in.a], v[in.b], v[in.c]);
    }
  }
  std::vector<Value> outputs;
  for (std::size_t o = 0; o < tape.output_count(); ++o) outputs.push_back(v[tape.output(o)]);
  return outputs;
}

inline void eval(const ir::Op& op, Arrays& arrays) {
  const ir::Shape shape = op.space.shape();
  if (op.kind == ir::OpKind::kMap) {
    std::vector<Array> outs(op.outputs.size(),
                            {shape, std::vector<Value>(static_cast<std::size_t>(ir::volume(shape)))});
    for (std::int64_t i = 0; i < ir::volume(shape); ++i) {
      const auto values = eval_tape(op.get<ir::MapAttrs>().tape, op, arrays, ir::unravel(i, shape));
      for (std::size_t o = 0; o < outs.size(); ++o)
        outs[o].values[static_cast<std::size_t>(i)] = values.at(o);
    }
    for (std::size_t o = 0; o < outs.size(); ++o) arrays[op.outputs[o].array] = std::move(outs[o]);
  } else if (op.kind == ir::OpKind::kReduce) {
    const auto& attrs = op.get<ir::ReduceAttrs>();
    TW_CHECK(attrs.kind == ir::ReduceKind::kSum, "the oracle only sums");
    const ir::DType dtype = op.outputs[0].dtype;
    const ir::Shape result = op.outputs[0].grid.shape();
    Array out{result, std::vector<Value>(static_cast<std::size_t>(ir::volume(result)))};
    for (std::int64_t b = 0; b < op.space.block_count(); ++b) {  // block sums, added in the order of blocks
      const ir::Box box = op.space.box(ir::unravel(b, op.space.counts()));
      std::map<std::int64_t, Value> partial;
      for (std::int64_t i = 0; i < box.volume(); ++i) {
        ir::Index at = ir::unravel(i, box.shape()), to;
        for (std::size_t d = 0; d < at.size(); ++d)
          at[d] += box.lo[d], to.push_back(attrs.axes >> d & 1u ? 0 : at[d]);
        Value& sum = partial[ir::ravel(to, result)];
        ir::TapeInstr add{ir::TapeOp::kAdd, dtype};
        Value v = eval_tape(attrs.tape, op, arrays, at)[0];
        v = apply({ir::TapeOp::kCast, dtype}, attrs.tape.result(), v, {}, {});
        sum = apply(add, dtype, sum, v, {});
      }
      for (const auto& [to, sum] : partial) {
        Value& total = out.values[static_cast<std::size_t>(to)];
        total = apply({ir::TapeOp::kAdd, dtype}, dtype, total, sum, {});
      }
    }
    arrays[op.outputs[0].array] = std::move(out);
  }
}

}  // namespace tilewise::plan::test
