#include <tilewise/ir/constants.h>

#include <algorithm>
#include <bit>

namespace tilewise::ir {
namespace {

Constant value_of(const TapeInstr& constant) { return {constant.imm_f, constant.imm_i}; }
void set(TapeInstr& constant, const Constant& value) { constant.imm_f = value.f, constant.imm_i = value.i; }

template <class AnyOp, class Visit> void each_constant(AnyOp& op, const Visit& visit) {
  auto* tape = tape_of(op);
  if (tape == nullptr) return;
  for (auto& in : tape->code)
    if (in.op == TapeOp::kConst) visit(in);
}

bool same_tape(const Tape& tape, const Tape& taken, ConstantNumbers& numbers) {
  const auto same = [&](const TapeInstr& a, const TapeInstr& b) {
    if (a.op != TapeOp::kConst) return a == b;
    TapeInstr numbered = a;
    numbered.a = numbers.of(a);
    if (numbered.a != 0) set(numbered, {});
    return numbered == b;
  };
  return tape.outputs == taken.outputs &&
         std::equal(tape.code.begin(), tape.code.end(), taken.code.begin(), taken.code.end(), same);
}

}  // namespace

bool fits(DType dtype, const Constant& value) {
  if (dtype == DType::kBool) return value.i == 0 || value.i == 1;
  const auto limits = iinfo(dtype);
  return !limits || limits->bits == 64 ||
         (value.i >= limits->min && value.i <= static_cast<std::int64_t>(limits->max));
}

bool fit(const std::vector<DType>& dtypes, const Constants& values) {
  return std::equal(dtypes.begin(), dtypes.end(), values.begin(), values.end(), fits);
}

std::uint16_t ConstantNumbers::of(const TapeInstr& constant) {
  const Constant value = value_of(constant);
  if (!fits(constant.dtype, value)) return 0;
  const std::tuple key(constant.dtype, std::bit_cast<std::uint64_t>(value.f), value.i);
  if (const auto known = numbers_.find(key); known != numbers_.end()) return known->second;
  if (numbers_.size() == kMaxConstants) return 0;
  values_.push_back(value);
  return numbers_[key] = static_cast<std::uint16_t>(values_.size());
}

Constants take_constants(std::span<Op> ops) {
  ConstantNumbers numbers;
  for (Op& op : ops) {
    each_constant(op, [&](TapeInstr& constant) {
      constant.a = numbers.of(constant);
      if (constant.a != 0) set(constant, {});
    });
  }
  return numbers.take();
}

void put_constants(std::span<Op> ops, const Constants& values) {
  for (Op& op : ops) {
    each_constant(op, [&](TapeInstr& constant) {
      if (constant.a != 0) set(constant, values.at(constant.a - 1u));
    });
  }
}

bool has_constants(const Op& op, const Constants& values) {
  bool has = true;
  each_constant(op, [&](const TapeInstr& constant) {
    has = has && (constant.a == 0 || values.at(constant.a - 1u) == value_of(constant));
  });
  return has;
}

std::vector<DType> constant_dtypes(std::span<const Op> ops) {
  std::vector<DType> dtypes;
  for (const Op& op : ops) {
    each_constant(op, [&](const TapeInstr& constant) {
      if (constant.a > dtypes.size()) dtypes.resize(constant.a);
      if (constant.a != 0) dtypes[constant.a - 1u] = constant.dtype;
    });
  }
  return dtypes;
}

bool same_attrs(const Op& op, const Op& taken, ConstantNumbers& numbers) {
  const Tape *tape = tape_of(op), *other = tape_of(taken);
  if (tape == nullptr || other == nullptr) return op.attrs == taken.attrs;
  if (op.attrs.index() != taken.attrs.index() || !same_tape(*tape, *other, numbers)) return false;
  const auto *a = std::get_if<ReduceAttrs>(&op.attrs), *b = std::get_if<ReduceAttrs>(&taken.attrs);
  return a == nullptr || (a->kind == b->kind && a->axes == b->axes);
}

}  // namespace tilewise::ir
