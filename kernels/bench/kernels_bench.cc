// Single-core figures of the host kernels beside hand-written loops. Prints a line each: name, ns an element, GB/s.
//
//   kernels_bench [elements]     (clear OPENBLAS_CORETYPE first: it would choose slower kernels for both sides)
//
// With FUSED_ONLY set only the fused chain and its sum; with NOHUGE set in pages of 4 KiB, as shared memory often has.
#include <cblas.h>
#include <sys/mman.h>
#include <tilewise/kernels/host_info.h>
#include <tilewise/kernels/kernels.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "families.h"

using namespace tilewise;
using ir::DType;
using ir::TapeOp;

namespace {

double seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);  // of this thread: other work on the machine does not count
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F> double best_of(int times, F&& f) {
  double best = 1e30;
  double spent = 0;
  for (int i = 0; i < times || spent < 0.05; ++i) {  // short ones often: the processor has to warm up
    const double start = seconds();
    f();
    const double took = seconds() - start;
    best = std::min(best, took);
    spent += took;
  }
  return best;
}

void report(const char* name, double seconds, double elements, double bytes) {
  std::printf("%-44s %8.3f ms %8.3f ns/element %8.2f GB/s\n", name, seconds * 1e3, seconds / elements * 1e9,
              bytes / seconds / 1e9);
}

ir::TapeInstr instr(TapeOp op, DType t, int a = 0, int b = 0, std::int64_t imm = 0, double f = 0) {
  ir::TapeInstr in;
  in.op = op;
  in.dtype = t;
  in.a = static_cast<std::uint16_t>(a);
  in.b = static_cast<std::uint16_t>(b);
  in.imm_i = imm;
  in.imm_f = f;
  return in;
}

// Memory as a device's arena gives it: aligned, in huge pages where the system has them.
template <class T> struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U> Aligned(const Aligned<U>&) {}
  T* allocate(std::size_t n) {
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    const std::size_t bytes = (n * sizeof(T) + kHuge - 1) / kHuge * kHuge;
    void* p = std::aligned_alloc(kHuge, bytes);
    if (std::getenv("NOHUGE") == nullptr)
      madvise(p, bytes, MADV_HUGEPAGE);
    else
      madvise(p, bytes, MADV_NOHUGEPAGE);
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t) { std::free(p); }
  friend bool operator==(const Aligned&, const Aligned&) { return true; }
};
using Buffer = std::vector<double, Aligned<double>>;
kernels::TensorView view(Buffer& data, ir::Shape shape) {
  return {data.data(), DType::kFloat64, shape, ir::c_order_strides(shape)};
}

struct Call {
  ir::Op op;
  kernels::KernelCall call;
  Call(ir::OpKind kind, ir::OpAttrs attrs, ir::Shape shape) {
    op.kind = kind;
    op.attrs = std::move(attrs);
    call.op = &op;
    call.box = ir::box_of(shape);
    call.space_shape = shape;
  }
  void run() {
    const auto status = kernels::family_of(op.kind)->host(call, nullptr);
    if (!status) {
      std::printf("%s\n", status.error().message.c_str());
      std::abort();
    }
  }
};

ir::Tape map_tape(TapeOp op) {
  return {{instr(TapeOp::kLoad, DType::kFloat64), instr(op, DType::kFloat64, 0)}};
}

void maps(std::int64_t n) {
  Buffer a(n, 1.5), b(n, 2.5), c(n, -3.0), d(n, 0.25), out(n, 0.0);
  const auto D = DType::kFloat64;
  const ir::Tape tape{{instr(TapeOp::kLoad, D, 0, 0, 0), instr(TapeOp::kLoad, D, 0, 0, 1),
                       instr(TapeOp::kLoad, D, 0, 0, 2), instr(TapeOp::kLoad, D, 0, 0, 3),
                       instr(TapeOp::kMul, D, 0, 1), instr(TapeOp::kAdd, D, 4, 2),
                       instr(TapeOp::kMul, D, 5, 3), instr(TapeOp::kAbs, D, 0), instr(TapeOp::kSqrt, D, 7),
                       instr(TapeOp::kSub, D, 6, 8)}};
  Call call(ir::OpKind::kMap, ir::MapAttrs{tape}, {n});
  for (Buffer* x : {&a, &b, &c, &d}) call.call.inputs.push_back(view(*x, {n}));
  call.call.outputs.push_back(view(out, {n}));
  const double dn = static_cast<double>(n);
  report("(a*b+c)*d - sqrt(abs(a))", best_of(7, [&] { call.run(); }), dn, 40 * dn);
  report("  the same, hand-written loop",
         best_of(7,
                 [&] {
                   const double *pa = a.data(), *pb = b.data(), *pc = c.data(), *pd = d.data();
                   double* po = out.data();
                   for (std::int64_t i = 0; i < n; ++i)
                     po[i] = (pa[i] * pb[i] + pc[i]) * pd[i] - std::sqrt(std::fabs(pa[i]));
                 }),
         dn, 40 * dn);
  Call summed(ir::OpKind::kReduceBlocks, ir::ReduceAttrs{tape, ir::ReduceKind::kSum, 1}, {n});
  Buffer total(1);
  summed.call.inputs = call.call.inputs;
  summed.call.outputs.push_back(view(total, {1}));
  report("its sum", best_of(7, [&] { summed.run(); }), dn, 32 * dn);
  volatile double sink = 0;
  report("  the same, hand-written loop with sixteen partial sums",
         best_of(7,
                 [&] {
                   const double *pa = a.data(), *pb = b.data(), *pc = c.data(), *pd = d.data();
                   double sums[16] = {};
                   for (std::int64_t i = 0; i + 16 <= n; i += 16) {
                     for (int j = 0; j < 16; ++j) {
                       sums[j] +=
                           (pa[i + j] * pb[i + j] + pc[i + j]) * pd[i + j] - std::sqrt(std::fabs(pa[i + j]));
                     }
                   }
                   for (const double s : sums) sink = sink + s;
                 }),
         dn, 32 * dn);
  if (std::getenv("FUSED_ONLY") != nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) a[i] = 0.001 * static_cast<double>(i % 5000) + 0.01;
  for (const TapeOp op : {TapeOp::kExp, TapeOp::kLog, TapeOp::kSin, TapeOp::kTanh, TapeOp::kExpm1,
                          TapeOp::kLog1p, TapeOp::kFloor}) {
    Call unary(ir::OpKind::kMap, ir::MapAttrs{map_tape(op)}, {n});
    unary.call.inputs.push_back(view(a, {n}));
    unary.call.outputs.push_back(view(out, {n}));
    report(std::string(ir::name_of(op)).c_str(), best_of(3, [&] { unary.run(); }), dn, 16 * dn);
  }
  for (const TapeOp op : {TapeOp::kUniform, TapeOp::kNormal, TapeOp::kConst}) {
    Call fill(ir::OpKind::kMap, ir::MapAttrs{ir::Tape{{instr(op, D, 0, 0, 42)}}}, {n});
    fill.call.outputs.push_back(view(out, {n}));
    report(std::string(ir::name_of(op)).c_str(), best_of(3, [&] { fill.run(); }), dn, 8 * dn);
  }
}

void transposed(std::int64_t side) {
  Buffer a(side * side, 1.5), out(side * side, 0.0);
  const auto D = DType::kFloat64;
  const ir::Tape tape{
      {instr(TapeOp::kLoad, D, 0, 0, 0), instr(TapeOp::kLoad, D, 0, 0, 1), instr(TapeOp::kAdd, D, 0, 1)}};
  Call call(ir::OpKind::kMap, ir::MapAttrs{tape}, {side, side});
  call.call.inputs.push_back(view(a, {side, side}));
  call.call.inputs.push_back(view(a, {side, side}));
  call.call.inputs[1].strides = {1, side};
  call.call.outputs.push_back(view(out, {side, side}));
  const double n = static_cast<double>(side * side);
  report("a + a.T", best_of(3, [&] { call.run(); }), n, 24 * n);
  call.op.kind = ir::OpKind::kCopy;
  ir::OperandMap map(2);
  map[1].dim = 1;
  call.op.attrs = ir::CopyAttrs{{map}};
  call.op.operands.push_back({0, ir::View::identity({side, side})});
  call.call.inputs.erase(call.call.inputs.begin());
  call.call.input_boxes.push_back(ir::box_of({side, side}));
  call.call.output_boxes.push_back(ir::box_of({side, side}));
  report("copy of a.T", best_of(3, [&] { call.run(); }), n, 16 * n);
}

void reductions(const char* name, ir::Shape shape, std::uint32_t axes, ir::ReduceKind kind) {
  const std::int64_t n = ir::volume(shape);
  Buffer a(n, 1.5);
  for (std::int64_t i = 0; i < n; ++i) a[i] = std::sin(static_cast<double>(i));
  ir::Shape kept = shape;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (axes >> d & 1) kept[d] = 1;
  Buffer out(ir::volume(kept));
  std::vector<std::int64_t> index(out.size());
  Call call(ir::OpKind::kReduceBlocks,
            ir::ReduceAttrs{ir::Tape{{instr(TapeOp::kLoad, DType::kFloat64)}}, kind, axes}, shape);
  call.call.inputs.push_back(view(a, shape));
  call.call.outputs.push_back(view(out, kept));
  call.call.outputs.push_back({index.data(), DType::kInt64, kept, ir::c_order_strides(kept)});
  const double dn = static_cast<double>(n);
  report(name, best_of(5, [&] { call.run(); }), dn, 8 * dn);
  if (kind != ir::ReduceKind::kSum || shape.size() != 1) return;
  volatile double sink = 0;
  report("  a plain read of the same memory",
         best_of(5,
                 [&] {
                   std::uint64_t lanes[32] = {};
                   const auto* x = reinterpret_cast<const std::uint64_t*>(a.data());
                   for (std::int64_t i = 0; i + 32 <= n; i += 32) {
                     for (int j = 0; j < 32; ++j) lanes[j] ^= x[i + j];
                   }
                   for (const std::uint64_t lane : lanes) sink = sink + static_cast<double>(lane & 1);
                 }),
         dn, 8 * dn);
}

void products(std::int64_t side) {
  Buffer a(side * side, 1.5), b(side * side, 0.5), c(side * side);
  Call call(ir::OpKind::kMatmul, ir::MatmulAttrs{}, {side, side});
  call.call.inputs.push_back(view(a, {side, side}));
  call.call.inputs.push_back(view(b, {side, side}));
  call.call.outputs.push_back(view(c, {side, side}));
  const double flops =
      2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
  const auto n = static_cast<blasint>(side);
  const double ours = best_of(9, [&] { call.run(); });
  const double raw = best_of(9, [&] {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1.0, a.data(), n, b.data(), n, 0.0,
                c.data(), n);
  });
  std::printf("dgemm %lld: %.1f GFLOP/s, raw %.1f, ratio %.3f\n", static_cast<long long>(side),
              flops / ours / 1e9, flops / raw / 1e9, raw / ours);
}

void overhead() {
  Buffer a(16, 1.0), out(16);
  Call call(ir::OpKind::kMap, ir::MapAttrs{map_tape(TapeOp::kNeg)}, {16});
  call.call.inputs.push_back(view(a, {16}));
  call.call.outputs.push_back(view(out, {16}));
  const double t = best_of(5, [&] {
    for (int i = 0; i < 1000; ++i) call.run();
  });
  std::printf("a 16-element map: %.0f ns\n", t * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  openblas_set_num_threads(
      1);  // who compares brings threads of its own, and idle ones of OpenBLAS would poll
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 1 << 24;
  std::printf("%s, %lld elements\n", kernels::host_numeric_class().c_str(), static_cast<long long>(n));
  overhead();
  if (std::getenv("REDUCE_ONLY") == nullptr) {
    maps(n);
    if (std::getenv("FUSED_ONLY") != nullptr) return 0;
    transposed(1024);
    transposed(4096);
  }
  if (std::getenv("FUSED_ONLY") != nullptr) return 0;
  using ir::ReduceKind;
  reductions("sum, all", {n}, 1, ReduceKind::kSum);
  reductions("min, all", {n}, 1, ReduceKind::kMin);
  reductions("argmax, all", {n}, 1, ReduceKind::kArgMax);
  reductions("sum (1024, n/1024) axis 1", {1024, n / 1024}, 2, ReduceKind::kSum);
  reductions("sum (1024, n/1024) axis 0", {1024, n / 1024}, 1, ReduceKind::kSum);
  reductions("sum (n/100, 100) axis 1", {n / 100, 100}, 2, ReduceKind::kSum);
  reductions("sum (n/100, 100) axis 0", {n / 100, 100}, 1, ReduceKind::kSum);
  reductions("sum (n/3, 3) axis 1", {n / 3, 3}, 2, ReduceKind::kSum);
  reductions("sum (n/3, 3) axis 0", {n / 3, 3}, 1, ReduceKind::kSum);
  reductions("argmin (1024, n/1024) axis 0", {1024, n / 1024}, 1, ReduceKind::kArgMin);
  products(1024);
  products(512);
  return 0;
}
