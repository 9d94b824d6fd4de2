// Rates of kernels, copies and launches, next to what the hardware or NVIDIA's library does.
#include <tilewise/base/time.h>
#include <tilewise/cuda/driver.h>
#include <tilewise/device/cuda_pinned.h>

#include <algorithm>
#include <thread>

#include "cublas.h"
#include "gpu.h"

namespace tilewise::gpu {
namespace {

using ir::DType;
using ir::TapeInstr;
using ir::TapeOp;
using kernels::KernelCall;

constexpr double kGiga = 1e9;

// Best of `rounds`, seconds per repetition: enqueues `repeat` times, then waits.
template <class Work> double seconds(Gpu& gpu, int rounds, int repeat, const Work& work) {
  double best = 1e30;
  work();  // compiles, touches
  gpu.finish();
  for (int round = 0; round < rounds; ++round) {
    const TimeNs begin = monotonic_now();
    for (int i = 0; i < repeat; ++i) work();
    gpu.finish();
    best = std::min(best, static_cast<double>(monotonic_now() - begin) * 1e-9 / repeat);
  }
  return best;
}

void launch(Gpu& gpu, const KernelCall& call, int stream = 0) {
  must(gpu.kernels().launch(call, gpu.stream(stream)), "launch");
  gpu.stream(stream).record();
}

KernelCall dense_call(const ir::Op& op, const ir::Shape& shape, std::span<std::byte* const> inputs,
                      std::byte* out) {
  KernelCall call = call_of(op, shape);
  for (std::byte* in : inputs) {
    call.inputs.push_back(dense(in, op.outputs[0].dtype, shape));
    call.input_boxes.push_back(call.box);
  }
  call.outputs.push_back(dense(out, op.outputs[0].dtype, shape));
  call.output_boxes.push_back(call.box);
  return call;
}

void fill_uniform(Gpu& gpu, std::byte* data, DType dtype, std::int64_t count) {
  const ir::Op op = map_op(tape({{.op = TapeOp::kUniform, .dtype = dtype, .imm_i = 42}}), {count}, 0);
  launch(gpu, dense_call(op, {count}, {}, data));
  gpu.finish();
}

// n^3 products: cuBLAS on whole matrices, and through the kernel set in blocks with two streams, as tasks would.
void bench_matmul(Gpu& gpu, DType dtype, std::vector<Figure>& figures) {
  constexpr std::int64_t n = 4096;
  const auto size = static_cast<std::int64_t>(ir::size_of(dtype));
  const double flops = 2.0 * n * n * n;
  const std::string name = dtype == DType::kFloat64 ? "dgemm" : "sgemm";
  gpu.reset();
  std::byte *a = gpu.allocate(n * n * size), *b = gpu.allocate(n * n * size), *c = gpu.allocate(n * n * size);
  fill_uniform(gpu, a, dtype, n * n);
  fill_uniform(gpu, b, dtype, n * n);
  auto context = cuda::context_of(gpu.device());
  if (!context) stop(context.error().message);
  auto cublas = cuda::Cublas::open(**context);
  if (!cublas) stop(cublas.error().message);
  const cuda::Gemm raw{
      .dtype = dtype, .m = n, .n = n, .k = n, .a = a, .b = b, .c = c, .lda = n, .ldb = n, .ldc = n};
  const double best =
      flops / kGiga / seconds(gpu, 3, 10, [&] {
        must((*cublas)->multiply(raw, static_cast<CUstream>(gpu.stream().native())), "cuBLAS");
        gpu.stream().record();
      });
  figures.push_back({"raw cuBLAS " + name + " 4096", "GFLOP/s", best});
  for (const std::int64_t block : {2048, 1024}) {
    ir::Op op = map_op(tape({{.op = TapeOp::kLoad, .dtype = dtype, .imm_i = 0}}), {block, block}, 2);
    op.kind = ir::OpKind::kMatmul;
    op.attrs = ir::MatmulAttrs{};
    must(gpu.kernels().prepare(op), "prepare");
    const std::int64_t blocks = n / block, bytes = block * block * size;
    // Blocks are contiguous, as in the store.
    const auto at = [&](std::byte* base, std::int64_t i, std::int64_t j) {
      return base + (i * blocks + j) * bytes;
    };
    const double rate = flops / kGiga / seconds(gpu, 3, 10, [&] {
                          for (std::int64_t i = 0; i < blocks; ++i)
                            for (std::int64_t j = 0; j < blocks; ++j)
                              for (std::int64_t k = 0; k < blocks; ++k) {
                                std::byte* const operands[] = {at(a, i, k), at(b, k, j)};
                                KernelCall call = dense_call(op, {block, block}, operands, at(c, i, j));
                                call.step = k;
                                call.steps = blocks;
                                launch(gpu, call, static_cast<int>((i * blocks + j) % 2));
                              }
                        });
    figures.push_back(
        {name + " 4096 in blocks of " + std::to_string(block), "GFLOP/s", rate, best, "raw cuBLAS"});
  }
}

void bench_memory(Gpu& gpu, std::vector<Figure>& figures) {
  constexpr std::int64_t count = std::int64_t{1} << 27;  // 1 GiB of float64
  constexpr double bytes = 8.0 * count;
  gpu.reset();
  std::byte* arrays[4];
  for (std::byte*& array : arrays) array = gpu.allocate(count * 8);
  for (std::byte* array : arrays) fill_uniform(gpu, array, DType::kFloat64, count);
  const double copy =
      2 * bytes / kGiga / seconds(gpu, 3, 10, [&] {
        must(gpu.stream().copy(arrays[1], arrays[0], static_cast<std::size_t>(bytes)), "copy");
        gpu.stream().record();
      });
  figures.push_back({"cuMemcpyAsync on the device, 1 GiB", "GB/s", copy});

  const TapeInstr load{.op = TapeOp::kLoad, .dtype = DType::kFloat64, .imm_i = 0};
  const auto loads = [&](int i) {
    TapeInstr in = load;
    in.imm_i = i;
    return in;
  };
  const auto binary = [](TapeOp op, int a, int b) {
    return TapeInstr{.op = op,
                     .dtype = DType::kFloat64,
                     .a = static_cast<std::uint16_t>(a),
                     .b = static_cast<std::uint16_t>(b)};
  };
  const ir::Op chain = map_op(tape({loads(0),
                                    loads(1),
                                    loads(2),
                                    binary(TapeOp::kMul, 0, 1),
                                    binary(TapeOp::kAdd, 3, 2),
                                    binary(TapeOp::kSub, 4, 1),
                                    binary(TapeOp::kMul, 5, 5),
                                    {.op = TapeOp::kSqrt, .dtype = DType::kFloat64, .a = 6}}),
                              {count}, 3);
  const KernelCall chain_call = dense_call(chain, {count}, {arrays, 3}, arrays[3]);
  figures.push_back({"fused chain of 5 ops, 3 inputs, float64", "GB/s",
                     4 * bytes / kGiga / seconds(gpu, 3, 10, [&] { launch(gpu, chain_call); }), copy,
                     "device copy"});

  constexpr std::int64_t side = 8192;
  const ir::Shape square{side, side};
  const ir::Op add = map_op(tape({loads(0), loads(1), binary(TapeOp::kAdd, 0, 1)}), square, 2);
  KernelCall transposed = dense_call(add, square, {arrays, 2}, arrays[2]);
  std::swap(transposed.inputs[1].strides[0], transposed.inputs[1].strides[1]);
  figures.push_back({"a + b.T, 8192 x 8192 float64", "GB/s",
                     3 * 8.0 * side * side / kGiga / seconds(gpu, 3, 10, [&] { launch(gpu, transposed); }),
                     copy, "device copy"});
  KernelCall row = dense_call(add, square, {arrays, 2}, arrays[2]);
  row.inputs[1].strides[0] = 0;
  figures.push_back({"a + row, 8192 x 8192 float64", "GB/s",
                     2 * 8.0 * side * side / kGiga / seconds(gpu, 3, 10, [&] { launch(gpu, row); }), copy,
                     "device copy"});

  const ir::Op uniform =
      map_op(tape({{.op = TapeOp::kUniform, .dtype = DType::kFloat64, .imm_i = 1}}), {count}, 0);
  const KernelCall uniform_call = dense_call(uniform, {count}, {}, arrays[0]);
  figures.push_back({"uniform float64", "GB/s",
                     bytes / kGiga / seconds(gpu, 3, 5, [&] { launch(gpu, uniform_call); }), copy,
                     "device copy"});

  std::byte* const scratch = gpu.allocate(1 << 20);
  std::byte* const out = gpu.allocate(side * 8);
  const auto sum = [&](const std::string& name, const ir::Shape& shape, std::uint32_t axes,
                       ir::ReduceKind kind) {
    const ir::Op op = reduce_op(tape({load}), kind, axes, shape);
    KernelCall call = call_of(op, shape);
    call.inputs.push_back(dense(arrays[0], DType::kFloat64, shape));
    call.input_boxes.push_back(call.box);
    call.outputs.push_back(dense(out, DType::kFloat64, {1}));
    call.outputs.push_back(dense(out, DType::kInt64, {1}));
    call.scratch = scratch;
    if (gpu.kernels().scratch_bytes(op) > 1 << 20) stop("scratch");
    figures.push_back({name, "GB/s",
                       8.0 * static_cast<double>(ir::volume(shape)) / kGiga /
                           seconds(gpu, 3, 10, [&] { launch(gpu, call); }),
                       copy, "device copy"});
  };
  sum("sum of 2^27 float64", {count}, 1, ir::ReduceKind::kSum);
  sum("sum over axis 0, 8192 x 8192", square, 1, ir::ReduceKind::kSum);
  sum("sum over axis 1, 8192 x 8192", square, 2, ir::ReduceKind::kSum);
  sum("argmax of 8192 x 8192", square, 3, ir::ReduceKind::kArgMax);

  constexpr std::size_t piece = std::size_t{256} << 20;
  auto pinned = device::PinnedBuffer::make(gpu.device(), piece);
  if (!pinned) stop(pinned.error().message);
  const auto link = [&](const std::string& name, void* to, const void* from) {
    figures.push_back({name, "GB/s", static_cast<double>(piece) / kGiga / seconds(gpu, 3, 3, [&] {
                                       must(gpu.device().copy_stream().copy(to, from, piece), "copy");
                                       gpu.device().copy_stream().record();
                                     })});
  };
  link("host to device, pinned", arrays[0], (*pinned)->data());
  link("device to host, pinned", (*pinned)->data(), arrays[0]);
  std::vector<std::byte> pageable(piece);
  link("host to device, pageable", arrays[0], pageable.data());
}

void bench_steps(Gpu& gpu, std::vector<Figure>& figures) {
  gpu.reset();
  constexpr std::int64_t count = 1024;
  std::byte *a = gpu.allocate(count * 8), *b = gpu.allocate(count * 8);
  const ir::Op op = map_op(tape({{.op = TapeOp::kLoad, .dtype = DType::kFloat64, .imm_i = 0},
                                 {.op = TapeOp::kNeg, .dtype = DType::kFloat64, .a = 0}}),
                           {count}, 1);
  const KernelCall call = dense_call(op, {count}, {&a, 1}, b);
  const auto per = [](double s) { return s * 1e6; };
  figures.push_back({"tiny step: launch and record, pipelined", "us",
                     per(seconds(gpu, 3, 5000, [&] { launch(gpu, call); }))});
  device::Stream& stream = gpu.stream();
  const auto round_trip = [&](bool yield) {
    return per(seconds(gpu, 3, 1000, [&] {
      launch(gpu, call);
      const std::uint64_t step = stream.record();
      while (stream.completed() < step)
        if (yield) std::this_thread::yield();
    }));
  };
  figures.push_back({"tiny step: launch to completed() seen", "us", round_trip(false)});
  // The host's own share: everything up to the driver's queue.
  const TimeNs begin = monotonic_now();
  for (int i = 0; i < 500; ++i) launch(gpu, call);
  figures.push_back({"tiny step: host time of launch and record", "us",
                     static_cast<double>(monotonic_now() - begin) * 1e-3 / 500});
  gpu.finish();
  figures.push_back({"record alone", "us", per(seconds(gpu, 3, 5000, [&] { stream.record(); }))});
  const double wait = per(seconds(gpu, 3, 2000, [&] {
    const std::uint64_t step = stream.record();
    must(gpu.stream(1).wait(stream, step), "wait");
    gpu.stream(1).record();
  }));
  figures.push_back({"record, wait on another stream, record", "us", wait});
}

}  // namespace

std::vector<Figure> run_benchmarks() {
  std::vector<Figure> figures;
  Gpu gpu(std::int64_t{5} << 30);
  bench_matmul(gpu, DType::kFloat64, figures);
  bench_matmul(gpu, DType::kFloat32, figures);
  bench_memory(gpu, figures);
  bench_steps(gpu, figures);
  return figures;
}

}  // namespace tilewise::gpu
