#include "tape_source.h"

#include <tilewise/ir/element_types.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

namespace tilewise::cuda {
namespace {

using ir::DType;
using ir::TapeOp;

template <class... Args> std::string format(const char* pattern, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::int64_t bits_of(double value, bool is_double) {
  return is_double ? std::bit_cast<std::int64_t>(value)
                   : std::bit_cast<std::int32_t>(static_cast<float>(value));
}

// A constant as words: its bits, for NaN, infinity and the most negative number have no literal. A complex one has two.
using Words = boost::container::static_vector<std::int64_t, 2>;
Words words_of(const ir::TapeInstr& in) {
  switch (in.dtype) {
    case DType::kFloat16: return {bits_of(ir::Float16(in.imm_f), false)};
    case DType::kBFloat16: return {bits_of(ir::BFloat16(in.imm_f), false)};
    case DType::kFloat32:
    case DType::kFloat64: return {bits_of(in.imm_f, in.dtype == DType::kFloat64)};
    case DType::kComplex64:
    case DType::kComplex128: {
      const bool is_double = in.dtype == DType::kComplex128;
      return {bits_of(in.imm_f, is_double), bits_of(std::bit_cast<double>(in.imm_i), is_double)};
    }
    default: return {in.imm_i};
  }
}

// Where a tape's constants are passed, one after the other; -1: this one is in the source.
class ConstantPlaces {
 public:
  int next(const ir::TapeInstr& in) {
    const int words = ir::is_complex(in.dtype) ? 2 : 1;
    return used_ + words <= kConstantWords ? std::exchange(used_, used_ + words) : -1;
  }

 private:
  int used_ = 0;
};

// `place`: as ConstantPlaces gives it.
std::string constant(const ir::TapeInstr& in, int place) {
  std::string words[2];
  const Words bits = words_of(in);
  for (std::size_t i = 0; i < bits.size(); ++i)
    words[i] = place < 0 ? format("(i64)0x%llxull", static_cast<unsigned long long>(bits[i]))
                         : format("constants.word[%d]", place + static_cast<int>(i));
  const auto as_float = [](const std::string& word) { return "__int_as_float((int)" + word + ")"; };
  const auto as_double = [](const std::string& word) { return "__longlong_as_double(" + word + ")"; };
  switch (in.dtype) {
    case DType::kBool: return words[0] + " != 0";
    case DType::kInt64:
    case DType::kUInt32: return words[0];
    case DType::kUInt64: return "(u64)" + words[0];
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32: return as_float(words[0]);
    case DType::kFloat64: return as_double(words[0]);
    case DType::kComplex64: return "c64(" + as_float(words[0]) + ", " + as_float(words[1]) + ")";
    case DType::kComplex128: return "c128(" + as_double(words[0]) + ", " + as_double(words[1]) + ")";
    default: return "(int)" + words[0];
  }
}

// A value in registers made to fit its dtype.
std::string fitted(DType t, const std::string& value) {
  switch (t) {
    case DType::kInt8: return "(int)(signed char)(" + value + ")";
    case DType::kInt16: return "(int)(short)(" + value + ")";
    case DType::kUInt8: return "(int)(u8)(" + value + ")";
    case DType::kUInt16: return "(int)(unsigned short)(" + value + ")";
    case DType::kUInt32: return "(i64)(u32)(" + value + ")";
    case DType::kFloat16: return "tw_fit_f16(" + value + ")";
    case DType::kBFloat16: return "tw_fit_bf16(" + value + ")";
    default: return value;
  }
}
// From memory to registers, and back.
std::string widened(DType t, const std::string& value) {
  switch (t) {
    case DType::kBool: return "(" + value + " != 0)";
    case DType::kFloat16: return "tw_from_f16(" + value + ")";
    case DType::kBFloat16: return "tw_from_bf16(" + value + ")";
    default: return value;
  }
}
std::string narrowed(DType t, const std::string& value) {
  if (t == DType::kFloat16) return "tw_to_f16(" + value + ")";
  if (t == DType::kBFloat16) return "tw_to_bf16(" + value + ")";
  return ir::is_complex(t) ? value : "(" + std::string(memory_type(t)) + ")" + value;
}

// The expression of one instruction but a constant; a, b, c name its arguments, `at` the position it needs.
class Expression {
 public:
  Expression(const ir::Tape& tape, const ir::TapeInstr& in, std::string at)
      : in_(in),
        at_(std::move(at)),
        a_(format("v%u", in.a)),
        b_(format("v%u", in.b)),
        c_(format("v%u", in.c)),
        type_(register_type(in.dtype)),
        float_(ir::compute_dtype(in.dtype) == DType::kFloat32),
        argument_(ir::arity_of(in.op) > 0 ? tape.code[in.a].dtype : in.dtype) {}

  std::string text() const {
    if (ir::is_complex(in_.dtype) || (ir::is_complex(argument_) && ir::arity_of(in_.op) > 0)) {
      if (std::string z = complex_text(); !z.empty()) return z;
    }
    const bool fits = in_.op == TapeOp::kLoad || in_.op == TapeOp::kWhere;
    return fits ? plain_text() : fitted(in_.dtype, plain_text());
  }

 private:
  std::string plain_text() const {
    const std::string key = format("0x%llxull", static_cast<unsigned long long>(in_.imm_i));
    switch (in_.op) {
      case TapeOp::kLoad: return format("element.x%d", static_cast<int>(in_.imm_i));
      case TapeOp::kIota: return at_;
      case TapeOp::kUniform: return random(float_ ? "tw_uniform32" : "tw_uniform64", key);
      case TapeOp::kNormal: return random(float_ ? "tw_normal32" : "tw_normal64", key);
      case TapeOp::kRandomInt: return random("(i64)tw_draw64", key);
      case TapeOp::kRandomBelow: return "tw_random_below(" + key + ", (u64)(" + at_ + "), " + a_ + ")";
      case TapeOp::kCast:
        if (ir::is_half(in_.dtype) && !exact_in_float32(argument_)) return "tw_to_odd(" + a_ + ")";
        return argument_ == in_.dtype
                   ? a_
                   : "tw_cast<" + type_ + ", " + std::string(register_type(argument_)) + ">(" + a_ + ")";
      case TapeOp::kNeg: return call("tw_neg");
      case TapeOp::kAbs: return call("tw_abs");
      case TapeOp::kSign: return call("tw_sign");
      case TapeOp::kSqrt: return math("sqrt");
      case TapeOp::kExp: return math("exp");
      case TapeOp::kExpm1: return math("expm1");
      case TapeOp::kLog: return math("log");
      case TapeOp::kLog1p: return math("log1p");
      case TapeOp::kSin: return math("sin");
      case TapeOp::kCos: return math("cos");
      case TapeOp::kTan: return math("tan");
      case TapeOp::kTanh: return math("tanh");
      case TapeOp::kFloor: return math("floor");
      case TapeOp::kCeil: return math("ceil");
      case TapeOp::kTrunc: return math("trunc");
      case TapeOp::kRound: return math("rint");  // half to even
      case TapeOp::kIsNan: return a_ + " != " + a_;
      case TapeOp::kIsInf: return "isinf(" + a_ + ")";
      case TapeOp::kIsFinite: return "isfinite(" + a_ + ")";
      case TapeOp::kNot: return "!" + a_;
      case TapeOp::kInvert: return "~" + a_;
      case TapeOp::kAdd: return call2("tw_add");
      case TapeOp::kSub: return call2("tw_sub");
      case TapeOp::kMul: return call2("tw_mul");
      case TapeOp::kDiv: return infix("/");
      case TapeOp::kFloorDiv: return call2("tw_floor_div");
      case TapeOp::kRem: return call2("tw_rem");
      case TapeOp::kPow: return call2("tw_pow");
      case TapeOp::kMinimum: return call2("tw_min");
      case TapeOp::kMaximum: return call2("tw_max");
      case TapeOp::kAtan2: return std::string(float_ ? "atan2f" : "atan2") + "(" + a_ + ", " + b_ + ")";
      case TapeOp::kEq: return infix("==");
      case TapeOp::kNe: return infix("!=");
      case TapeOp::kLt: return infix("<");
      case TapeOp::kLe: return infix("<=");
      case TapeOp::kGt: return infix(">");
      case TapeOp::kGe: return infix(">=");
      case TapeOp::kAnd: return infix("&");
      case TapeOp::kOr: return infix("|");
      case TapeOp::kXor: return infix("^");
      case TapeOp::kShl: return call2("tw_shl");
      case TapeOp::kShr: return call2("tw_shr");
      case TapeOp::kWhere: return a_ + " ? " + b_ + " : " + c_;
      case TapeOp::kAcos: return math("acos");
      case TapeOp::kAcosh: return math("acosh");
      case TapeOp::kAsin: return math("asin");
      case TapeOp::kAsinh: return math("asinh");
      case TapeOp::kAtan: return math("atan");
      case TapeOp::kAtanh: return math("atanh");
      case TapeOp::kCosh: return math("cosh");
      case TapeOp::kSinh: return math("sinh");
      case TapeOp::kLog2: return math("log2");
      case TapeOp::kLog10: return math("log10");
      case TapeOp::kSignbit: return "signbit(" + a_ + ")";
      case TapeOp::kCopysign: return math2("copysign");
      case TapeOp::kNextafter:
        if (in_.dtype == DType::kFloat16) return "tw_nextafter_half<false>(" + a_ + ", " + b_ + ")";
        if (in_.dtype == DType::kBFloat16) return "tw_nextafter_half<true>(" + a_ + ", " + b_ + ")";
        return math2("nextafter");
      case TapeOp::kHypot: return math2("hypot");
      case TapeOp::kLogaddexp: return call2("tw_logaddexp");
      case TapeOp::kConj:
      case TapeOp::kReal:
      case TapeOp::kImag:
      case TapeOp::kComplex: break;  // complex_text()
      case TapeOp::kConst:
      case TapeOp::kCount: break;
    }
    return "0";
  }

  // Empty: as any other dtype.
  std::string complex_text() const {
    switch (in_.op) {
      case TapeOp::kAdd: return "tw_add(" + a_ + ", " + b_ + ")";
      case TapeOp::kSub: return "tw_sub(" + a_ + ", " + b_ + ")";
      case TapeOp::kMul: return "tw_mul(" + a_ + ", " + b_ + ")";
      case TapeOp::kDiv: return "tw_div(" + a_ + ", " + b_ + ")";
      case TapeOp::kPow: return type_ + "(tw_pow_z(c128(" + a_ + "), c128(" + b_ + ")))";
      case TapeOp::kNeg: return "tw_neg(" + a_ + ")";
      case TapeOp::kConj: return "tw_conj(" + a_ + ")";
      case TapeOp::kRound: return "tw_round(" + a_ + ")";
      case TapeOp::kReal: return a_ + ".re";
      case TapeOp::kImag: return a_ + ".im";
      case TapeOp::kAbs: return "tw_magnitude(" + a_ + ")";
      case TapeOp::kComplex: return type_ + "(" + a_ + ", " + b_ + ")";
      case TapeOp::kEq: return "tw_equal(" + a_ + ", " + b_ + ")";
      case TapeOp::kNe: return "!tw_equal(" + a_ + ", " + b_ + ")";
      case TapeOp::kIsNan: return a_ + ".re != " + a_ + ".re || " + a_ + ".im != " + a_ + ".im";
      case TapeOp::kIsInf: return "isinf(" + a_ + ".re) || isinf(" + a_ + ".im)";
      case TapeOp::kIsFinite: return "isfinite(" + a_ + ".re) && isfinite(" + a_ + ".im)";
      case TapeOp::kLoad:
      case TapeOp::kCast:
      case TapeOp::kWhere: return {};
      default: return type_ + "(tw_" + std::string(ir::name_of(in_.op)) + "_z(c128(" + a_ + ")))";
    }
  }

  // Whether all of a dtype's numbers are float32's: then a cast to 16 bits rounds once.
  static bool exact_in_float32(DType t) {
    return ir::compute_dtype(t) == DType::kFloat32 || ir::size_of(t) < 4;
  }
  std::string call(const char* name) const { return std::string(name) + "<" + type_ + ">(" + a_ + ")"; }
  std::string call2(const char* name) const {
    return std::string(name) + "<" + type_ + ">(" + a_ + ", " + b_ + ")";
  }
  std::string math(const char* name) const { return std::string(name) + (float_ ? "f(" : "(") + a_ + ")"; }
  std::string math2(const char* name) const {
    return std::string(name) + (float_ ? "f(" : "(") + a_ + ", " + b_ + ")";
  }
  std::string infix(const char* sign) const { return a_ + " " + sign + " " + b_; }
  std::string random(const char* name, const std::string& key) const {
    return std::string(name) + "(" + key + ", (u64)(" + at_ + "))";
  }

  const ir::TapeInstr& in_;
  std::string at_, a_, b_, c_, type_;
  bool float_;
  DType argument_;
};

bool is_random(TapeOp op) {
  return op == TapeOp::kUniform || op == TapeOp::kNormal || op == TapeOp::kRandomInt ||
         op == TapeOp::kRandomBelow;
}

// Outputs as they are computed, and as they go to memory: places 0, 1 ... in their order.
std::string stores_source(const ir::Tape& tape) {
  std::string values = "struct Values {\n", one, group;
  for (std::size_t o = 0; o < tape.output_count(); ++o) {
    const DType t = tape.result(o);
    const char* memory = memory_type(t).data();
    values += format("  %s v%zu;\n", register_type(t).data(), o);
    one += format("  ((%s*)place[%zu].base)[offset[%zu]] = ", memory, o, o) +
           narrowed(t, format("values.v%zu", o)) + ";\n";
    group += format("  Pack<%s, kWidth> pack%zu;\n", memory, o) + "#pragma unroll\n" +
             format("  for (int j = 0; j < kWidth; ++j) pack%zu.v[j] = ", o) +
             narrowed(t, format("values[j].v%zu", o)) + ";\n" +
             format("  *(Pack<%s, kWidth>*)((%s*)place[%zu].base + offset[%zu]) = pack%zu;\n", memory, memory,
                    o, o, o);
  }
  return values + "};\ntypedef " + std::string(register_type(tape.result())) + " Value;\n" +
         "__device__ __forceinline__ void tw_store(const Place* place, const i64* offset, const Values& "
         "values) {\n" +
         one +
         "}\n__device__ __forceinline__ void tw_store_group(const Place* place, const i64* offset, "
         "const Values (&values)[kWidth]) {\n" +
         group + "}\n";
}

std::string loads_source(const ir::Tape& tape, const TapeSources& sources) {
  std::string element = "struct Element {\n", one, group;
  for (std::size_t i = 0; i < sources.loads.size(); ++i) {
    const auto& load = sources.loads[i];
    const int x = load.operand, place = static_cast<int>(tape.output_count() + i);
    const char* type = register_type(load.dtype).data();
    const char* memory = memory_type(load.dtype).data();
    element += format("  %s x%d;\n", type, x);
    const std::string at = format("((const %s*)place[%d].base)[offset[%d]]", memory, place, place);
    one += format("  element.x%d = ", x) + widened(load.dtype, at) + ";\n";
    group += format("  if (place[%d].inner != 0) {\n", place) +
             format(
                 "    const Pack<%s, kWidth> pack = *(const Pack<%s, kWidth>*)((const %s*)place[%d].base + "
                 "offset[%d]);\n",
                 memory, memory, memory, place, place) +
             "#pragma unroll\n" + format("    for (int j = 0; j < kWidth; ++j) element[j].x%d = ", x) +
             widened(load.dtype, "pack.v[j]") + ";\n  } else {\n" + format("    const %s value = ", type) +
             widened(load.dtype, at) + ";\n#pragma unroll\n" +
             format("    for (int j = 0; j < kWidth; ++j) element[j].x%d = value;\n  }\n", x);
  }
  return element + "};\n" +
         "__device__ __forceinline__ void tw_load(const Place* place, const i64* offset, Element& element) "
         "{\n" +
         one +
         "}\n__device__ __forceinline__ void tw_load_group(const Place* place, const i64* offset, "
         "Element (&element)[kWidth]) {\n" +
         group + "}\n";
}

}  // namespace

std::string_view register_type(DType dtype) {
  switch (ir::compute_dtype(dtype)) {
    case DType::kBool: return "bool";
    case DType::kInt32: return "int";
    case DType::kInt64: return "i64";
    case DType::kUInt64: return "u64";
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
    case DType::kComplex64: return "c64";
    case DType::kComplex128: return "c128";
    default: return "";
  }
}

std::string_view memory_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return "u8";
    case DType::kInt8: return "signed char";
    case DType::kInt16: return "short";
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16: return "unsigned short";
    case DType::kUInt32: return "u32";
    default: return register_type(dtype);
  }
}

bool uses_complex(const ir::Tape& tape) {
  return std::any_of(tape.code.begin(), tape.code.end(),
                     [](const ir::TapeInstr& in) { return ir::is_complex(in.dtype); });
}

TapeSources sources_of(const ir::Tape& tape) {
  TapeSources sources;
  for (const ir::TapeInstr& in : tape.code) {
    if (in.op == TapeOp::kLoad) {
      const auto operand = static_cast<std::uint8_t>(in.imm_i);
      const auto same = [&](const auto& load) { return load.operand == operand; };
      if (std::none_of(sources.loads.begin(), sources.loads.end(), same))
        sources.loads.push_back({operand, in.dtype});
    } else if (in.op == TapeOp::kIota || is_random(in.op)) {
      const TapeSources::Position position{is_random(in.op),
                                           static_cast<std::uint8_t>(in.op == TapeOp::kIota ? in.imm_i : 0)};
      if (std::find(sources.positions.begin(), sources.positions.end(), position) == sources.positions.end())
        sources.positions.push_back(position);
    }
  }
  return sources;
}

int group_width(const ir::Tape& tape) {
  std::size_t widest = 1;
  for (std::size_t o = 0; o < tape.output_count(); ++o)
    widest = std::max(widest, ir::size_of(tape.result(o)));
  for (const auto& load : sources_of(tape).loads) widest = std::max(widest, ir::size_of(load.dtype));
  return static_cast<int>(16 / widest);  // 1 for complex128
}

std::string tape_source(const ir::Tape& tape) {
  const TapeSources sources = sources_of(tape);
  const std::size_t outputs = tape.output_count();
  std::string source = format("constexpr int kOutputs = %zu, kPlaces = %zu, kWidth = %d;\n", outputs,
                              outputs + sources.count(), group_width(tape));
  source += stores_source(tape) + loads_source(tape, sources) +
            "__device__ __forceinline__ Values tw_evaluate(const Element& element, const Place* place, "
            "const i64* offset, const Constants& constants) {\n";
  ConstantPlaces constants;
  for (std::size_t p = 0; p < sources.positions.size(); ++p) {
    const std::size_t place = outputs + sources.loads.size() + p;
    source += format("  const i64 at%zu = place[%zu].base + offset[%zu];\n", p, place, place);
  }
  for (std::size_t i = 0; i < tape.code.size(); ++i) {
    const ir::TapeInstr& in = tape.code[i];
    const TapeSources::Position wanted{is_random(in.op),
                                       static_cast<std::uint8_t>(in.op == TapeOp::kIota ? in.imm_i : 0)};
    const auto p =
        std::find(sources.positions.begin(), sources.positions.end(), wanted) - sources.positions.begin();
    source += format("  const %s v%zu = ", register_type(in.dtype).data(), i) +
              (in.op == TapeOp::kConst ? constant(in, constants.next(in))
                                       : Expression(tape, in, format("at%td", p)).text()) +
              ";\n";
  }
  source += "  return {";
  for (std::size_t o = 0; o < outputs; ++o)
    source += format(o == 0 ? "v%d" : ", v%d", static_cast<int>(tape.output(o)));
  return source + "};\n}\n";
}

Constants constants_of(const ir::Tape& tape) {
  Constants constants;
  ConstantPlaces places;
  for (const ir::TapeInstr& in : tape.code) {
    if (in.op != TapeOp::kConst) continue;
    if (const int place = places.next(in); place >= 0) {
      const Words words = words_of(in);
      std::copy(words.begin(), words.end(), constants.word + place);
    }
  }
  return constants;
}

void append_key(const ir::Tape& tape, std::string& key) {
  key.push_back(static_cast<char>(tape.outputs.size()));
  key.append(reinterpret_cast<const char*>(tape.outputs.data()), tape.outputs.size() * sizeof(std::uint16_t));
  ConstantPlaces places;
  for (const ir::TapeInstr& in : tape.code) {
    char bytes[16] = {static_cast<char>(in.op), static_cast<char>(in.dtype)};
    if (in.op == TapeOp::kConst) {
      key.append(bytes, 2);
      if (places.next(in) >= 0) continue;
      for (const std::int64_t word : words_of(in))
        key.append(reinterpret_cast<const char*>(&word), sizeof word);
      continue;
    }
    const std::uint16_t arguments[3] = {in.a, in.b, in.c};
    std::copy_n(reinterpret_cast<const char*>(arguments), sizeof arguments, bytes + 2);
    std::copy_n(reinterpret_cast<const char*>(&in.imm_i), sizeof in.imm_i, bytes + 8);
    key.append(bytes, 16);
  }
}

}  // namespace tilewise::cuda
