#include "call.h"

namespace tilewise::fuzz {

namespace {

Op unary(Array (*function)(const Array&)) {
  return [function](const Call& call) { return function(call[0]); };
}

// Of two arrays, or of one and scalar=, on the left where reversed=1.
template <class F> Op binary(F function) {
  return [function](const Call& call) -> Array {
    if (!call.has("scalar")) return function(call[0], call[1]);
    if (call.flag("reversed")) return function(call.scalar(), call[0]);
    return function(call[0], call.scalar());
  };
}

Array where_of(const Call& call) {
  if (!call.has("scalar")) return where(call[0], call[1], call[2]);
  if (call.flag("reversed")) return where(call[0], call.scalar(), call[1]);
  return where(call[0], call[1], call.scalar());
}

Bound bound_of(const Call& call, const char* key, std::size_t operand) {
  if (call.has(key)) return Bound(call.scalar(key));
  return call[operand];
}

}  // namespace

Ops elementwise_ops() {
  return {
      {"abs", unary(abs)},
      {"sign", unary(sign)},
      {"sqrt", unary(sqrt)},
      {"exp", unary(exp)},
      {"expm1", unary(expm1)},
      {"log", unary(log)},
      {"log1p", unary(log1p)},
      {"log2", unary(log2)},
      {"log10", unary(log10)},
      {"sin", unary(sin)},
      {"cos", unary(cos)},
      {"tan", unary(tan)},
      {"asin", unary(asin)},
      {"acos", unary(acos)},
      {"atan", unary(atan)},
      {"sinh", unary(sinh)},
      {"cosh", unary(cosh)},
      {"tanh", unary(tanh)},
      {"asinh", unary(asinh)},
      {"acosh", unary(acosh)},
      {"atanh", unary(atanh)},
      {"floor", unary(floor)},
      {"ceil", unary(ceil)},
      {"trunc", unary(trunc)},
      {"round", unary(round)},
      {"isnan", unary(isnan)},
      {"isinf", unary(isinf)},
      {"isfinite", unary(isfinite)},
      {"signbit", unary(signbit)},
      {"square", unary(square)},
      {"reciprocal", unary(reciprocal)},
      {"positive", unary(positive)},
      {"conj", unary(conj)},
      {"real", unary(real)},
      {"imag", unary(imag)},
      {"negative", [](const Call& call) { return -call[0]; }},
      {"logical_not", [](const Call& call) { return !call[0]; }},
      {"bitwise_invert", [](const Call& call) { return ~call[0]; }},
      {"add", binary([](const auto& a, const auto& b) { return a + b; })},
      {"subtract", binary([](const auto& a, const auto& b) { return a - b; })},
      {"multiply", binary([](const auto& a, const auto& b) { return a * b; })},
      {"divide", binary([](const auto& a, const auto& b) { return a / b; })},
      {"remainder", binary([](const auto& a, const auto& b) { return a % b; })},
      {"floor_divide", binary([](const auto& a, const auto& b) { return floor_divide(a, b); })},
      {"pow", binary([](const auto& a, const auto& b) { return power(a, b); })},
      {"equal", binary([](const auto& a, const auto& b) { return a == b; })},
      {"not_equal", binary([](const auto& a, const auto& b) { return a != b; })},
      {"less", binary([](const auto& a, const auto& b) { return a < b; })},
      {"less_equal", binary([](const auto& a, const auto& b) { return a <= b; })},
      {"greater", binary([](const auto& a, const auto& b) { return a > b; })},
      {"greater_equal", binary([](const auto& a, const auto& b) { return a >= b; })},
      {"minimum", binary([](const auto& a, const auto& b) { return minimum(a, b); })},
      {"maximum", binary([](const auto& a, const auto& b) { return maximum(a, b); })},
      {"atan2", binary([](const auto& a, const auto& b) { return atan2(a, b); })},
      {"hypot", binary([](const auto& a, const auto& b) { return hypot(a, b); })},
      {"logaddexp", binary([](const auto& a, const auto& b) { return logaddexp(a, b); })},
      {"copysign", binary([](const auto& a, const auto& b) { return copysign(a, b); })},
      {"nextafter", binary([](const auto& a, const auto& b) { return nextafter(a, b); })},
      {"logical_and", binary([](const auto& a, const auto& b) { return logical_and(a, b); })},
      {"logical_or", binary([](const auto& a, const auto& b) { return logical_or(a, b); })},
      {"logical_xor", binary([](const auto& a, const auto& b) { return logical_xor(a, b); })},
      {"bitwise_and", binary([](const auto& a, const auto& b) { return a & b; })},
      {"bitwise_or", binary([](const auto& a, const auto& b) { return a | b; })},
      {"bitwise_xor", binary([](const auto& a, const auto& b) { return a ^ b; })},
      {"bitwise_left_shift", binary([](const auto& a, const auto& b) { return left_shift(a, b); })},
      {"bitwise_right_shift", binary([](const auto& a, const auto& b) { return right_shift(a, b); })},
      {"complex", [](const Call& call) { return complex(call[0], call[1]); }},
      {"where", where_of},
      {"astype", [](const Call& call) { return call[0].astype(call.dtype()); }},
      {"clip",
       [](const Call& call) { return clip(call[0], bound_of(call, "low", 1), bound_of(call, "high", 2)); }},
  };
}

}  // namespace tilewise::fuzz
