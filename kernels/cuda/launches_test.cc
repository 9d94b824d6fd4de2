// What a step of an expression asks of the driver: how many launches, of which kernel, over how many thread blocks; and where
// its code comes from. The driver is one that writes down what it is told; the compiler is NVRTC, wherever it is found.
#include <doctest/doctest.h>
#include <tilewise/ir/verify.h>

#include <cstring>
#include <set>

#include "launch.h"
#include "skipped.h"
#include "temp_folder.h"

namespace tilewise::cuda {
namespace {

using ir::DType;
using ir::Tape;
using ir::TapeInstr;
using ir::TapeOp;

struct Launched {
  std::string kernel;
  unsigned blocks_x, blocks_y, threads;
  std::int64_t constant;  // the first one's bits, of a map
};
// Of the test that runs: the driver's functions are C's.
std::vector<Launched> launched;
int modules = 0;

// A function is its name.
const Driver& recording() {
  static const Driver driver = [] {
    Driver d;
    d.version = 13000;
    d.cuCtxSetCurrent_ = [](CUcontext) { return CUDA_SUCCESS; };
    d.cuModuleLoadData_ = [](CUmodule* module, const void* image) {
      const bool elf = std::memcmp(image, "\177ELF", 4) == 0;
      *module = reinterpret_cast<CUmodule>(static_cast<std::intptr_t>(++modules));
      return elf ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
    };
    d.cuModuleUnload_ = [](CUmodule) { return CUDA_SUCCESS; };
    d.cuModuleGetFunction_ = [](CUfunction* function, CUmodule, const char* name) {
      static std::set<std::string> names;
      *function = reinterpret_cast<CUfunction>(const_cast<char*>(names.emplace(name).first->c_str()));
      return CUDA_SUCCESS;
    };
    d.cuLaunchKernel_ = [](CUfunction function, unsigned x, unsigned y, unsigned, unsigned threads, unsigned,
                           unsigned, unsigned, CUstream, void** params, void**) {
      std::int64_t constant = 0;  // behind walk and elements
      std::memcpy(&constant, static_cast<const char*>(params[0]) + sizeof(Walk) + sizeof(std::int64_t),
                  sizeof constant);
      launched.push_back({reinterpret_cast<const char*>(function), x, y, threads, constant});
      return CUDA_SUCCESS;
    };
    return d;
  }();
  return driver;
}

struct Machine {
  explicit Machine(std::unique_ptr<Nvrtc> nvrtc, const std::string& folder = "")
      : programs(context, std::move(nvrtc), CubinCache(folder)) {
    launched.clear();
    modules = 0;
  }
  Context context{.driver = &recording(), .compute_major = 9, .compute_minor = 0, .multiprocessors = 132};
  Programs programs;
  Environment env{context, programs, nullptr, nullptr, nullptr, nullptr};
};

// Null, with a message, where there is no NVRTC.
std::unique_ptr<Nvrtc> compiler() {
  auto opened = Nvrtc::open(0);
  if (opened) return std::move(*opened);
  testing::skipped(opened.error().message);
  return nullptr;
}

TapeInstr load(DType dtype, int operand) { return {.op = TapeOp::kLoad, .dtype = dtype, .imm_i = operand}; }
// sqrt(a * b + a) - b: of one op each it would be four launches, and three arrays between them.
Tape chain(DType t) {
  return {{load(t, 0),
           load(t, 1),
           {.op = TapeOp::kMul, .dtype = t, .a = 0, .b = 1},
           {.op = TapeOp::kAdd, .dtype = t, .a = 2, .b = 0},
           {.op = TapeOp::kSqrt, .dtype = t, .a = 3},
           {.op = TapeOp::kSub, .dtype = t, .a = 4, .b = 1}}};
}

// A block of the expression; nobody follows the addresses.
struct Block {
  Block(const Tape& tape, const ir::Shape& shape, const std::vector<ir::Strides>& strides,
        std::int64_t misplaced = 0) {
    op.kind = ir::OpKind::kMap;
    op.attrs = ir::MapAttrs{tape};
    call.op = &op;
    call.box = ir::box_of(shape);
    call.space_shape = shape;
    const auto at = [](std::int64_t address) {
      return reinterpret_cast<void*>(static_cast<std::intptr_t>(address));
    };
    for (std::size_t i = 0; i < strides.size(); ++i) {
      call.inputs.push_back({at((std::int64_t{1} << 40) * static_cast<std::int64_t>(i + 2) + misplaced),
                             tape.code[i].dtype, shape, strides[i]});
      call.input_boxes.push_back(call.box);
    }
    for (std::size_t o = 0; o < tape.output_count(); ++o) {
      call.outputs.push_back({at((std::int64_t{1} << 40) + (static_cast<std::int64_t>(o) << 36)),
                              tape.result(o), shape, ir::c_order_strides(shape)});
      call.output_boxes.push_back(call.box);
    }
  }
  ir::Op op;
  KernelCall call;
};

Launched only_launch(Machine& machine, const Block& block) {
  launched.clear();
  const Status status = launch_map(machine.env, block.call, nullptr);
  REQUIRE_MESSAGE(status.has_value(), (status ? std::string() : status.error().message));
  REQUIRE(launched.size() == 1);
  CHECK(launched[0].threads == kThreads);
  CHECK(launched[0].blocks_y == 1);
  return launched[0];
}

}  // namespace

TEST_CASE(
    "a block of an expression is one launch, of the kernel that takes 16 bytes at a time where memory allows "
    "it") {
  auto nvrtc = compiler();
  if (nvrtc == nullptr) return;
  Machine machine(std::move(nvrtc));
  const ir::Shape shape{1000, 1002};
  const ir::Strides rows = ir::c_order_strides(shape);
  for (const DType t : {DType::kFloat32, DType::kFloat64}) {
    CAPTURE(ir::name_of(t));
    const std::int64_t width = t == DType::kFloat32 ? 4 : 2;
    const auto groups = static_cast<unsigned>((1000 * 1002 / width + kThreads - 1) / kThreads);
    const Tape tape = chain(t);
    Launched one = only_launch(machine, {tape, shape, {rows, rows}});
    CHECK(one.kernel == "tw_map_groups");
    CHECK(one.blocks_x == groups);
    one = only_launch(machine, {tape, shape, {rows, {0, 0}}});  // a scalar
    CHECK(one.kernel == "tw_map_groups");
    CHECK(one.blocks_x == groups);
    // A column that repeats along rows; 1002 is a multiple of two float64, not of four float32.
    one = only_launch(machine, {tape, shape, {rows, {1, 0}}});
    CHECK(one.kernel == (t == DType::kFloat64 ? "tw_map_groups" : "tw_map_any"));
    one = only_launch(machine, {tape, shape, {rows, {1, 1000}}});  // transposed
    CHECK(one.kernel == "tw_map_squares");
    one = only_launch(machine, {tape, shape, {rows, {2004, 2}}});  // every second column
    CHECK(one.kernel == "tw_map_any");
    one = only_launch(machine,
                      {tape, shape, {rows, rows}, static_cast<std::int64_t>(ir::size_of(t))});  // not aligned
    CHECK(one.kernel == "tw_map_any");
  }
  // A ragged end is the same launch.
  CHECK(only_launch(machine, {chain(DType::kFloat32), {1027}, {{1}, {1}}}).blocks_x == 2);
  // Nothing to do is none.
  launched.clear();
  const Block empty(chain(DType::kFloat32), {0}, {{1}, {1}});
  CHECK(launch_map(machine.env, empty.call, nullptr).has_value());
  CHECK(launched.empty());
}

TEST_CASE(
    "several outputs are one launch, of as many elements at a time as the widest type has in 16 bytes") {
  auto nvrtc = compiler();
  if (nvrtc == nullptr) return;
  Machine machine(std::move(nvrtc));
  const ir::Shape shape{1000, 1002};
  const ir::Strides rows = ir::c_order_strides(shape);
  Tape tape = chain(DType::kFloat32);
  tape.code.push_back({.op = TapeOp::kLt, .dtype = DType::kBool, .a = 0, .b = 5});
  tape.outputs = {5, 6, 2};
  const auto groups = [](std::int64_t width) {
    return static_cast<unsigned>((1000 * 1002 / width + kThreads - 1) / kThreads);
  };
  Launched one = only_launch(machine, {tape, shape, {rows, rows}});
  CHECK(one.kernel == "tw_map_groups");
  CHECK(one.blocks_x == groups(4));
  CHECK(only_launch(machine, {tape, shape, {rows, {1, 1000}}}).kernel == "tw_map_squares");
  CHECK(modules == 1);
  Tape wider = tape;  // an output of 8 bytes
  wider.code.push_back({.op = TapeOp::kCast, .dtype = DType::kFloat64, .a = 4});
  wider.outputs.push_back(7);
  one = only_launch(machine, {wider, shape, {rows, rows}});
  CHECK(one.kernel == "tw_map_groups");
  CHECK(one.blocks_x == groups(2));
  CHECK(modules == 2);
  // Other outputs of the same instructions are another program.
  wider.outputs = {5, 7};
  only_launch(machine, {wider, shape, {rows, rows}});
  CHECK(modules == 3);
  Block misplaced(tape, shape, {rows, rows});
  misplaced.call.outputs[2].data = static_cast<std::byte*>(misplaced.call.outputs[2].data) + 4;
  CHECK(only_launch(machine, misplaced).kernel == "tw_map_any");
}

TEST_CASE("a block of any size is one launch: threads go on to further groups") {
  auto nvrtc = compiler();
  if (nvrtc == nullptr) return;
  Machine machine(std::move(nvrtc));
  constexpr unsigned kMost = 1 << 18;
  const std::int64_t all = std::int64_t{kMost} * kThreads * 2;  // of float64, two a thread
  const Tape tape = chain(DType::kFloat64);
  CHECK(only_launch(machine, {tape, {all}, {{1}, {1}}}).blocks_x == kMost);
  CHECK(only_launch(machine, {tape, {all + 1}, {{1}, {1}}}).blocks_x == kMost);
  CHECK(only_launch(machine, {tape, {all - 512}, {{1}, {1}}}).blocks_x == kMost - 1);
  // More groups than a grid has thread blocks.
  CHECK(only_launch(machine, {tape, {std::int64_t{1} << 45}, {{1}, {1}}}).blocks_x == kMost);
}

TEST_CASE("constants beyond those that a launch passes are part of the program") {
  auto nvrtc = compiler();
  if (nvrtc == nullptr) return;
  Machine machine(std::move(nvrtc));
  const auto sum = [](double first, double last) {
    Tape tape = chain(DType::kFloat64);
    for (int i = 0; i <= kConstantWords; ++i) {
      const double value = i == 0 ? first : i == kConstantWords ? last : i;
      tape.code.push_back({.op = TapeOp::kConst, .dtype = DType::kFloat64, .imm_f = value});
      const auto at = static_cast<std::uint16_t>(tape.code.size() - 1);
      tape.code.push_back(
          {.op = TapeOp::kAdd, .dtype = DType::kFloat64, .a = static_cast<std::uint16_t>(at - 1), .b = at});
    }
    return Block(tape, {64, 64}, {{64, 1}, {64, 1}});
  };
  only_launch(machine, sum(0.5, 100));
  only_launch(machine, sum(0.25, 100));
  CHECK(modules == 1);
  only_launch(machine, sum(0.5, 200));
  CHECK(modules == 2);
}

TEST_CASE("code is compiled once, then comes from memory, and in the next process from disk") {
  if (compiler() == nullptr) return;
  const testing::TempFolder folder;
  const std::string kernels = folder.path() + "/kernels";
  const Block block(chain(DType::kFloat64), {64, 64}, {{64, 1}, {64, 1}});
  {
    Machine first(compiler(), kernels);
    for (int i = 0; i < 5; ++i) only_launch(first, block);
    CHECK(first.programs.counts().compiled == 1);
    CHECK(first.programs.counts().from_disk == 0);
    CHECK(first.programs.counts().compile_seconds > 0);
    CHECK(modules == 1);
    // Another tape is another program; another constant or shape is not.
    for (const double value : {2.0, 3.0, -0.5}) {
      Tape other = chain(DType::kFloat64);
      other.code.push_back({.op = TapeOp::kConst, .dtype = DType::kFloat64, .imm_f = value});
      other.code.push_back({.op = TapeOp::kAdd, .dtype = DType::kFloat64, .a = 5, .b = 6});
      CHECK(only_launch(first, {other, {64, 64}, {{64, 1}, {64, 1}}}).constant ==
            std::bit_cast<std::int64_t>(value));
    }
    only_launch(first, {chain(DType::kFloat64), {7, 5}, {{5, 1}, {1, 7}}});
    CHECK(first.programs.counts().compiled == 2);
    CHECK(modules == 2);
  }
  {
    Machine second(compiler(), kernels);
    for (int i = 0; i < 5; ++i) only_launch(second, block);
    CHECK(second.programs.counts().compiled == 0);
    CHECK(second.programs.counts().from_disk == 1);
    CHECK(modules == 1);
    only_launch(second, {chain(DType::kFloat32), {64, 64}, {{64, 1}, {64, 1}}});
    CHECK(second.programs.counts().compiled == 1);
    CHECK(second.programs.counts().from_disk == 1);
  }
  {  // another architecture has other code
    Machine third(compiler(), kernels);
    third.context.compute_major = 8;
    only_launch(third, block);
    CHECK(third.programs.counts().compiled == 1);
    CHECK(third.programs.counts().from_disk == 0);
  }
}

}  // namespace tilewise::cuda
