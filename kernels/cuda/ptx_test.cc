// The instructions that generated kernels are made of, as NVRTC's PTX for sm_90: wide accesses, no contraction. Wherever NVRTC
// is found; no GPU is needed.
#include <doctest/doctest.h>
#include <tilewise/cuda/libraries.h>

#include <regex>

#include "programs.h"
#include "skipped.h"

namespace tilewise::cuda {
namespace {

using ir::DType;
using ir::Tape;
using ir::TapeInstr;
using ir::TapeOp;

// nvrtc.h asks for machine code; this for the text that comes before.
class PtxCompiler {
 public:
  static const PtxCompiler* get() {
    static const PtxCompiler compiler;
    if (compiler.good_) return &compiler;
    testing::skipped(compiler.why_);
    return nullptr;
  }
  std::string compile(const std::string& source) const {
    void* program = nullptr;
    REQUIRE(create_(&program, source.c_str(), "tilewise.cu", 0, nullptr, nullptr) == 0);
    const char* const options[] = {"--gpu-architecture=compute_90", "--std=c++20", "--fmad=false"};
    REQUIRE(compile_(program, 3, options) == 0);
    std::size_t size = 0;
    REQUIRE(size_(program, &size) == 0);
    std::string text(size, '\0');
    REQUIRE(text_(program, text.data()) == 0);
    destroy_(&program);
    return text;
  }

 private:
  PtxCompiler() {
    const auto library = open_library(nvrtc_library(0));
    if (!library) {
      why_ = library.error().message;
      return;
    }
    Symbols symbols(*library);
    symbols.get(create_, "nvrtcCreateProgram");
    symbols.get(compile_, "nvrtcCompileProgram");
    symbols.get(destroy_, "nvrtcDestroyProgram");
    symbols.get(size_, "nvrtcGetPTXSize");
    symbols.get(text_, "nvrtcGetPTX");
    const Status all = symbols.all_found();
    good_ = all.has_value();
    if (!good_) why_ = all.error().message;
  }
  bool good_ = false;
  std::string why_;
  int (*create_)(void**, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile_)(void*, int, const char* const*) = nullptr;
  int (*destroy_)(void**) = nullptr;
  int (*size_)(void*, std::size_t*) = nullptr;
  int (*text_)(void*, char*) = nullptr;
};

// From an entry point's name to its closing brace.
std::string body_of(const std::string& ptx, const std::string& entry) {
  const std::size_t begin = ptx.find(".entry " + entry + "(");
  REQUIRE(begin != std::string::npos);
  const std::size_t end = ptx.find("\n}", begin);
  REQUIRE(end != std::string::npos);
  return ptx.substr(begin, end - begin);
}

struct Accesses {
  int wide_loads = 0, wide_stores = 0;    // 16 bytes each
  int other_loads = 0, other_stores = 0;  // of fewer
};
// Of global or generic memory; parameters and constants are not counted.
Accesses accesses_of(const std::string& body) {
  static const std::regex access(
      R"(\b(ld|st)((?:\.global|\.nc|\.relaxed|\.weak)*)(\.v2|\.v4)?\.([busf])(8|16|32|64)\s)");
  Accesses out;
  for (std::sregex_iterator it(body.begin(), body.end(), access), end; it != end; ++it) {
    const std::string vector = (*it)[3];
    const int bytes = std::stoi((*it)[5]) / 8 * (vector == ".v4" ? 4 : vector == ".v2" ? 2 : 1);
    const bool load = (*it)[1] == "ld";
    ++(load          ? bytes == 16 ? out.wide_loads : out.other_loads
       : bytes == 16 ? out.wide_stores
                     : out.other_stores);
  }
  return out;
}

TapeInstr load(DType dtype, int operand) { return {.op = TapeOp::kLoad, .dtype = dtype, .imm_i = operand}; }
// a * b + c
Tape multiply_add(DType t) {
  return {{load(t, 0),
           load(t, 1),
           load(t, 2),
           {.op = TapeOp::kMul, .dtype = t, .a = 0, .b = 1},
           {.op = TapeOp::kAdd, .dtype = t, .a = 3, .b = 2}}};
}

}  // namespace

TEST_CASE("a map's main kernel reads and writes 16 bytes of each array at a time") {
  const PtxCompiler* compiler = PtxCompiler::get();
  if (compiler == nullptr) return;
  for (const DType t : {DType::kInt8, DType::kFloat16, DType::kInt32, DType::kFloat32, DType::kInt64,
                        DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    CAPTURE(ir::name_of(t));
    const std::string ptx = compiler->compile(map_program(multiply_add(t)));
    const Accesses groups = accesses_of(body_of(ptx, "tw_map_groups"));
    CHECK(groups.wide_loads >= 3);
    CHECK(groups.wide_stores >= 1);
    // The one that takes any strides does not (but complex128 is that wide by itself).
    const Accesses any = accesses_of(body_of(ptx, "tw_map_any"));
    CHECK(any.wide_loads == (t == DType::kComplex128 ? 3 : 0));
    CHECK(any.wide_stores == (t == DType::kComplex128 ? 1 : 0));
    CHECK((t == DType::kComplex128 || any.other_loads >= 3));
  }
}

TEST_CASE("a map of several outputs reads each operand once and writes 16 bytes of each output at a time") {
  const PtxCompiler* compiler = PtxCompiler::get();
  if (compiler == nullptr) return;
  for (const DType t : {DType::kInt8, DType::kFloat32, DType::kFloat64}) {
    CAPTURE(ir::name_of(t));
    Tape tape = multiply_add(t);
    const int wide = accesses_of(body_of(compiler->compile(map_program(tape)), "tw_map_groups")).wide_loads;
    tape.outputs = {4, 3};
    const Accesses groups = accesses_of(body_of(compiler->compile(map_program(tape)), "tw_map_groups"));
    CHECK(groups.wide_loads == wide);
    CHECK(groups.wide_stores >= 2);
  }
}

TEST_CASE("a map's kernels loop over more than their grid") {
  const PtxCompiler* compiler = PtxCompiler::get();
  if (compiler == nullptr) return;
  const std::string ptx = compiler->compile(map_program(multiply_add(DType::kFloat64)));
  for (const char* entry : {"tw_map_groups", "tw_map_any"}) {
    CAPTURE(entry);
    const std::string body = body_of(ptx, entry);
    CHECK(body.find("%nctaid.x") != std::string::npos);  // the stride
  }
}

TEST_CASE("fused arithmetic is not contracted") {
  const PtxCompiler* compiler = PtxCompiler::get();
  if (compiler == nullptr) return;
  for (const DType t : {DType::kFloat32, DType::kFloat64}) {
    const std::string body = body_of(compiler->compile(map_program(multiply_add(t))), "tw_map_groups");
    CHECK(body.find("fma.") == std::string::npos);
    CHECK(std::regex_search(body, std::regex(R"(\bmul(\.rn)?\.f(32|64))")));
    CHECK(std::regex_search(body, std::regex(R"(\badd(\.rn)?\.f(32|64))")));
  }
}

}  // namespace tilewise::cuda
