// Every kernel that can be generated compiles, for sm_90 and without a GPU. Wherever NVRTC is found.
#include <doctest/doctest.h>
#include <tilewise/ir/verify.h>

#include <limits>

#include "embedded.h"
#include "programs.h"
#include "skipped.h"

namespace tilewise::cuda {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::Tape;
using ir::TapeInstr;
using ir::TapeOp;

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int t = 0; t < ir::kDTypeCount; ++t) all.push_back(static_cast<DType>(t));
  return all;
}
const std::vector<DType> kAll = all_dtypes();

// Null, with a message, where there is no NVRTC.
const Nvrtc* compiler() {
  static const auto opened = Nvrtc::open(0);
  if (opened) return opened->get();
  testing::skipped(opened.error().message);
  return nullptr;
}

void check_compiles(const std::string& source, const std::string& what) {
  const auto code = compiler()->compile(source, 90);
  CHECK_MESSAGE(code.has_value(), what << ": " << (code ? std::string() : code.error().message));
}

TapeInstr load(DType dtype, int operand) { return {.op = TapeOp::kLoad, .dtype = dtype, .imm_i = operand}; }

// A narrow dtype's arithmetic is the one of the dtype it is computed in, made to fit: one op shows it.
bool worth_compiling(TapeOp op, DType argument, DType result) {
  const bool narrow = ir::is_narrow(argument) || ir::is_narrow(result);
  switch (op) {
    case TapeOp::kConst:
    case TapeOp::kAdd:
    case TapeOp::kNextafter: return true;
    case TapeOp::kCast: return !ir::is_narrow(argument) || !ir::is_narrow(result);
    default: return !narrow;
  }
}

// All tapes of one instruction (and its loads) that the verifier accepts.
std::vector<Tape> one_op_tapes() {
  std::vector<Tape> tapes;
  for (int o = static_cast<int>(TapeOp::kConst); o < static_cast<int>(TapeOp::kCount); ++o)
    for (const DType argument : kAll)
      for (const DType result : kAll) {
        const auto op = static_cast<TapeOp>(o);
        if (!worth_compiling(op, argument, result)) continue;
        const bool where = op == TapeOp::kWhere;
        const int arity = ir::arity_of(op);
        Tape tape;
        if (arity > 0) tape.code.push_back(load(where ? DType::kBool : argument, 0));
        if (arity > 1) tape.code.push_back(load(argument, 1));
        if (arity > 2) tape.code.push_back(load(argument, 2));
        TapeInstr in{.op = op, .dtype = result, .imm_f = 0.1, .imm_i = op == TapeOp::kRandomBelow ? 99 : 1};
        if (arity > 1) in.b = 1;
        if (arity > 2) in.c = 2;
        if (arity == 0 && argument != DType::kBool) continue;  // once per result dtype
        tape.code.push_back(in);
        const DType dtypes[] = {where ? DType::kBool : argument, argument, argument};
        if (tape.verify(3, dtypes, 2)) tapes.push_back(std::move(tape));
      }
  return tapes;
}

// One NVRTC call has a fixed cost, so many tapes share a program: each in a namespace, with the kernel that has the
// other two around it left out (they differ in how they walk, not in what the tape generates).
TEST_CASE("every tape op on every dtype compiles") {
  if (compiler() == nullptr) return;
  const std::vector<Tape> tapes = one_op_tapes();
  CHECK(tapes.size() > 400);
  constexpr std::size_t kTogether = 64;  // more in one program take longer than two
  std::string source;
  for (std::size_t i = 0; i < tapes.size(); ++i) {
    const std::string name = "t" + std::to_string(i);
    source += "namespace " + name + " {\n" + tape_source(tapes[i]) +
              "__global__ void kernel(const __grid_constant__ Walk walk, const Place* place, const "
              "__grid_constant__ "
              "Constants constants) {\n"
              "  i64 offset[kPlaces] = {};\n  tw_offsets<kPlaces>(walk, place, threadIdx.x, offset);\n"
              "  Element one, group[kWidth];\n  tw_load(place, offset, one);\n  tw_load_group(place, offset, "
              "group);\n"
              "  tw_store(place, offset, tw_evaluate(one, place, offset, constants));\n"
              "  Values values[kWidth];\n  for (int j = 0; j < kWidth; ++j)\n"
              "    values[j] = tw_evaluate(group[j], place, offset, constants);\n"
              "  tw_store_group(place, offset, values);\n}\n}\n";
    if (i % kTogether != kTogether - 1 && i + 1 != tapes.size()) continue;
    check_compiles(std::string(kRandomSource) + kPreludeSource + kComplexMacros + kComplexSource + source,
                   "one-op tapes up to " + std::to_string(i));
    source.clear();
  }
}

TEST_CASE("whole map programs compile") {
  if (compiler() == nullptr) return;
  for (const DType dtype : kAll)
    check_compiles(map_program({{load(dtype, 0)}}), "copy of " + std::string(name_of(dtype)));
  // Mixed sizes, positions, constants without a literal.
  const Tape mixed{
      {load(DType::kBool, 0),
       load(DType::kFloat32, 3),
       {.op = TapeOp::kCast, .dtype = DType::kFloat64, .a = 1},
       {.op = TapeOp::kIota, .dtype = DType::kInt64, .imm_i = 1},
       {.op = TapeOp::kCast, .dtype = DType::kFloat64, .a = 3},
       {.op = TapeOp::kNormal, .dtype = DType::kFloat64, .imm_i = -7},
       {.op = TapeOp::kConst, .dtype = DType::kFloat64, .imm_f = -std::numeric_limits<double>::infinity()},
       {.op = TapeOp::kMaximum, .dtype = DType::kFloat64, .a = 2, .b = 6},
       {.op = TapeOp::kAdd, .dtype = DType::kFloat64, .a = 4, .b = 5},
       {.op = TapeOp::kWhere, .dtype = DType::kFloat64, .a = 0, .b = 7, .c = 8}}};
  check_compiles(map_program(mixed), "a mixed tape");
  Tape several = mixed;  // outputs of every size, a complex one among them
  several.code.push_back({.op = TapeOp::kCast, .dtype = DType::kComplex64, .a = 1});
  several.code.push_back({.op = TapeOp::kCast, .dtype = DType::kFloat16, .a = 9});
  several.outputs = {9, 10, 0, 11};
  check_compiles(map_program(several), "a tape of several outputs");
  // More constants than are passed.
  Tape many{{{.op = TapeOp::kConst, .dtype = DType::kComplex128}}};
  for (std::uint16_t i = 0; i < kConstantWords; ++i) {
    many.code.push_back({.op = TapeOp::kConst, .dtype = DType::kComplex128, .imm_f = i / 7.0, .imm_i = -1});
    const auto last = static_cast<std::uint16_t>(many.code.size() - 1);
    many.code.push_back({.op = TapeOp::kAdd,
                         .dtype = DType::kComplex128,
                         .a = static_cast<std::uint16_t>(last - 1),
                         .b = last});
  }
  check_compiles(map_program(many), "a tape of many constants");
}

TEST_CASE("every reduction of every dtype compiles") {
  if (compiler() == nullptr) return;
  int programs = 0;
  for (int k = 0; k <= static_cast<int>(ReduceKind::kMoments); ++k)
    for (const DType dtype : kAll) {
      const auto kind = static_cast<ReduceKind>(k);
      if (!ir::reduced_dtype(kind, dtype)) continue;
      check_compiles(reduce_program({{load(dtype, 0)}}, kind),
                     std::string(name_of(kind)) + " of " + std::string(name_of(dtype)));
      ++programs;
    }
  CHECK(programs == 38);
  const Tape squares{{load(DType::kFloat64, 0),
                      {.op = TapeOp::kUniform, .dtype = DType::kFloat64, .imm_i = 3},
                      {.op = TapeOp::kMul, .dtype = DType::kFloat64, .a = 0, .b = 1}}};
  check_compiles(reduce_program(squares, ReduceKind::kArgMin), "a fused reduction");
}

TEST_CASE("integer products compile") {
  if (compiler() == nullptr) return;
  for (const DType dtype : {DType::kInt32, DType::kInt64}) check_compiles(matmul_program(dtype), "matmul");
}

TEST_CASE("scans of every dtype compile") {
  if (compiler() == nullptr) return;
  for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kProd})
    for (const DType dtype : kAll)
      if (ir::reduced_dtype(kind, dtype))
        check_compiles(scan_program(kind, dtype),
                       std::string(name_of(kind)) + " scan of " + std::string(name_of(dtype)));
}

// What differs between dtypes is the key: of each sort one, for one takes seconds.
TEST_CASE("built-in kernels compile") {
  if (compiler() == nullptr) return;
  for (const std::size_t bytes : {1, 8, 16})
    check_compiles(index_program(bytes), "indices, elements of " + std::to_string(bytes) + " bytes");
  for (const DType dtype : {DType::kInt8, DType::kUInt64, DType::kFloat32})
    check_compiles(order_program(dtype, false), "order of " + std::string(name_of(dtype)));
  check_compiles(order_program(DType::kFloat64, true), "numbered order of float64");
  check_compiles(gamma_program(DType::kFloat32), "gamma");
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128})
    check_compiles(linalg_program(dtype), "linear algebra of " + std::string(name_of(dtype)));
}

TEST_CASE("source that does not compile is told with the compiler's log") {
  if (compiler() == nullptr) return;
  const auto code = compiler()->compile("__global__ void f() { undeclared(); }", 90);
  REQUIRE_FALSE(code.has_value());
  CHECK(code.error().code == Errc::kInternal);
  CHECK(code.error().message.find("undeclared") != std::string::npos);
}

}  // namespace
}  // namespace tilewise::cuda
