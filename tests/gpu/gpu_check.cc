// Checks and measures the CUDA module on a machine with a GPU: device conformance, kernels against the reference, IPC
// between two processes, benchmarks. See docs/gpu.md.
//
//   gpu_check [--require-gpu] [--no-bench] [--only-bench] [--json FILE] [-- doctest options]
#define DOCTEST_CONFIG_IMPLEMENT
#include "gpu.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>

#include "sanitizers.h"

namespace tilewise::gpu {

void stop(const std::string& story) {
  std::fprintf(stderr, "gpu_check: %s\n", story.c_str());
  std::exit(1);
}

void must(const Status& status, const std::string& what) {
  if (!status) stop(what + ": " + status.error().message);
}

Gpu::Gpu(std::int64_t memory_bytes) {
  auto made = device::make_cuda_device({.memory_bytes = memory_bytes});
  if (!made) stop(made.error().message);
  device_ = std::move(*made);
  auto set = kernels::make_cuda_kernels(*device_, nullptr);
  if (!set) stop(set.error().message);
  kernels_ = std::move(*set);
  auto slab = device_->add_slab(memory_bytes);
  if (!slab) stop(slab.error().message);
  slab_ = *slab;
}

std::byte* Gpu::allocate(std::int64_t bytes) {
  const std::int64_t at = (used_ + 255) / 256 * 256;
  if (at + bytes > slab_.bytes) stop("a check wants more device memory than it was given");
  used_ = at + bytes;
  return slab_.data + at;
}

void Gpu::finish() {
  device_->synchronize();
  must(device_->health(), "device");
  std::vector<device::StepFailure> failures;
  for (int i = 0; i < device_->info().compute_streams; ++i)
    device_->compute_stream(i).take_failures(failures);
  if (!failures.empty())
    stop("step " + std::to_string(failures[0].sequence) + ": " + failures[0].error.message);
}

ir::Tape tape(std::initializer_list<ir::TapeInstr> code) { return {{code}}; }

namespace {
ir::Grid whole(const ir::Shape& shape) {
  std::vector<ir::DimGrid> dims;
  for (const std::int64_t n : shape) dims.push_back(ir::DimGrid::whole(n));
  return ir::Grid(std::move(dims));
}
}  // namespace

ir::Op map_op(ir::Tape tape, const ir::Shape& shape, int operands) {
  ir::Op op;
  op.kind = ir::OpKind::kMap;
  op.space = whole(shape);
  op.outputs.push_back({.dtype = tape.result(), .grid = op.space});
  for (int i = 0; i < operands; ++i) op.operands.push_back({.view = ir::View::identity(shape)});
  op.attrs = ir::MapAttrs{std::move(tape)};
  return op;
}

ir::Op reduce_op(ir::Tape tape, ir::ReduceKind kind, std::uint32_t axes, const ir::Shape& shape) {
  ir::Op op = map_op(tape, shape, 1);
  op.kind = ir::OpKind::kReduceBlocks;
  op.attrs = ir::ReduceAttrs{std::move(tape), kind, axes};
  return op;
}

kernels::TensorView dense(void* data, ir::DType dtype, const ir::Shape& shape) {
  return {data, dtype, shape, ir::c_order_strides(shape)};
}

kernels::KernelCall call_of(const ir::Op& op, const ir::Shape& shape) {
  kernels::KernelCall call;
  call.op = &op;
  call.box = ir::box_of(shape);
  call.space_shape = shape;
  return call;
}

namespace {

struct Options {
  bool require_gpu = false, checks = true, bench = true;
  std::string json;
  int doctest_from = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  options.doctest_from = argc;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--require-gpu")
      options.require_gpu = true;
    else if (arg == "--no-bench")
      options.bench = false;
    else if (arg == "--only-bench")
      options.checks = false;
    else if (arg == "--json" && i + 1 < argc)
      options.json = argv[++i];
    else if (arg == "--") {
      options.doctest_from = i + 1;
      break;
    } else
      stop("usage: gpu_check [--require-gpu] [--no-bench] [--only-bench] [--json FILE] [-- doctest options]");
  }
  return options;
}

int run_checks(int argc, char** argv, int from) {
  doctest::Context context;
  std::vector<const char*> arguments{argv[0]};
  for (int i = from; i < argc; ++i) arguments.push_back(argv[i]);
  context.applyCommandLine(static_cast<int>(arguments.size()), arguments.data());
  return context.run();
}

void print(const std::vector<Figure>& figures) {
  std::printf("\n%-44s %12s %-8s\n", "measurement", "value", "unit");
  for (const Figure& f : figures) {
    std::printf("%-44s %12.2f %-8s", f.name.c_str(), f.value, f.unit.c_str());
    if (f.reference > 0)
      std::printf(" %5.1f %% of %.2f (%s)", 100 * f.value / f.reference, f.reference, f.of.c_str());
    std::printf("\n");
  }
}

void write_json(const std::string& file, const device::Info& info, int failed,
                const std::vector<Figure>& figures) {
  std::ofstream out(file);
  out << "{\n  \"model\": \"" << info.model << "\",\n  \"numeric_class\": \"" << info.numeric_class
      << "\",\n  \"checks_failed\": " << failed << ",\n  \"figures\": [";
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const Figure& f = figures[i];
    out << (i ? ",\n    " : "\n    ") << "{\"name\": \"" << f.name << "\", \"value\": " << f.value
        << ", \"unit\": \"" << f.unit << "\"";
    if (f.reference > 0) out << ", \"reference\": " << f.reference << ", \"of\": \"" << f.of << "\"";
    out << "}";
  }
  out << "\n  ]\n}\n";
  if (!out.flush()) stop("cannot write " + file);
}

}  // namespace
}  // namespace tilewise::gpu

int main(int argc, char** argv) {
  using namespace tilewise;
  if (argc == 4 && std::string_view(argv[1]) == "--ipc-child")
    return gpu::ipc_child(argv[2], std::atoll(argv[3]));
  const gpu::Options options = gpu::parse(argc, argv);
  gpu::set_program(argv[0]);
  if (const std::string reason = device::cuda_unavailable_reason(); !reason.empty()) {
    std::printf("gpu_check: skipped: %s\n", reason.c_str());
    return options.require_gpu ? 1 : 0;
  }
  device::Info info;
  {
    auto device = device::make_cuda_device({.memory_bytes = 1 << 20});
    if (!device) gpu::stop(device.error().message);
    info = (*device)->info();
  }
  std::printf("%s: %s, %s\n", info.name.c_str(), info.model.c_str(), info.numeric_class.c_str());
  std::fflush(stdout);
  // A check that hangs must not hold a machine: ten minutes are several times what everything takes.
  ::alarm(600 * tilewise::testing::kTimesSlower);
  const int failed = options.checks ? gpu::run_checks(argc, argv, options.doctest_from) : 0;
  std::vector<gpu::Figure> figures;
  if (options.bench) figures = gpu::run_benchmarks();
  gpu::print(figures);
  if (!options.json.empty()) gpu::write_json(options.json, info, failed, figures);
  std::printf("gpu_check: %s\n", failed == 0 ? "passed" : "FAILED");
  return failed == 0 ? 0 : 1;
}
