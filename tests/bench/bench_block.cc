#include "bench_block.h"

#include <cblas.h>
#include <tilewise/kernels/host_info.h>
#include <tilewise/kernels/kernels.h>

#include <cstring>
#include <stdexcept>

#include "beside.h"
#include "loop.h"

namespace tilewise::bench {
namespace {

using ir::TapeOp;

// One step of one op on contiguous memory, as often as wanted.
class Step {
 public:
  Step(ir::OpKind kind, ir::OpAttrs attrs, const ir::Shape& shape) {
    op_.kind = kind;
    op_.attrs = std::move(attrs);
    call_.op = &op_;
    call_.box = ir::box_of(shape);
    call_.space_shape = shape;
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  void input(void* data, DType t, const ir::Shape& shape, const ir::Strides& strides) {
    call_.inputs.push_back({data, t, shape, strides});
    call_.input_boxes.push_back(ir::box_of(shape));
    op_.operands.push_back({0, ir::View::identity(shape)});
  }
  void input(void* data, DType t, const ir::Shape& shape) {
    input(data, t, shape, ir::c_order_strides(shape));
  }
  void output(void* data, DType t, const ir::Shape& shape) {
    call_.outputs.push_back({data, t, shape, ir::c_order_strides(shape)});
    call_.output_boxes.push_back(ir::box_of(shape));
    op_.outputs.resize(call_.outputs.size());
    op_.outputs.back().dtype = t;
  }
  void run() {
    static const auto kernels = kernels::make_host_kernels(nullptr);
    if (const Status done = kernels->run(call_); !done) throw std::runtime_error(done.error().message);
  }

 private:
  ir::Op op_;
  kernels::KernelCall call_;
};

ir::Tape one_op(TapeOp op, DType t) { return {{{.op = TapeOp::kLoad, .dtype = t}, {.op = op, .dtype = t}}}; }

// Medians of both, in turns.
void beside(Report& report, const Settings& settings, Figure figure, double work, double bound,
            const std::function<void()>& ours, const std::function<void()>& theirs) {
  std::vector<double> a, b;
  for (int i = -1; i < settings.repeats; ++i) {
    const double one = seconds_of(ours), two = seconds_of(theirs);
    if (i >= 0) a.push_back(work / one), b.push_back(work / two);
  }
  figure.value = median(a);
  figure.reference_value = median(b);
  report.at_least(std::move(figure), bound);
}

void reductions(const Settings& settings, Report& report, const std::string& name, const ir::Shape& shape,
                std::uint32_t axes, ir::ReduceKind kind) {
  const std::int64_t n = ir::volume(shape);
  const Buffer x(n);
  ir::Shape kept = shape;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (axes >> d & 1) kept[d] = 1;
  std::vector<double> out(static_cast<std::size_t>(ir::volume(kept)));
  std::vector<std::int64_t> index(out.size());
  Step step(ir::OpKind::kReduceBlocks,
            ir::ReduceAttrs{{{{.op = TapeOp::kLoad, .dtype = DType::kFloat64}}}, kind, axes}, shape);
  step.input(x.data(), DType::kFloat64, shape);
  step.output(out.data(), DType::kFloat64, kept);
  if (ir::name_of(kind).starts_with("arg")) step.output(index.data(), DType::kInt64, kept);
  volatile std::uint64_t used = 0;
  beside(
      report, settings, {.metric = name, .unit = "GB/s", .reference = "read-only loop, 1 thread"},
      8e-9 * static_cast<double>(n), 0.9, [&] { step.run(); },
      [&] { used = used ^ read_only(x.data(), 0, n); });
}

void transposed(const Settings& settings, Report& report, std::int64_t side) {
  const std::int64_t n = side * side;
  const Buffer x(n), out(n);
  const ir::Shape shape{side, side};
  const auto copy = [&] { std::memcpy(out.data(), x.data(), static_cast<std::size_t>(n) * 8); };
  const std::string size = " of " + std::to_string(side) + "^2";
  Step sum(ir::OpKind::kMap,
           ir::MapAttrs{{{{.op = TapeOp::kLoad, .dtype = DType::kFloat64},
                          {.op = TapeOp::kLoad, .dtype = DType::kFloat64, .imm_i = 1},
                          {.op = TapeOp::kAdd, .dtype = DType::kFloat64, .a = 0, .b = 1}}}},
           shape);
  sum.input(x.data(), DType::kFloat64, shape);
  sum.input(x.data(), DType::kFloat64, shape, {1, side});
  sum.output(out.data(), DType::kFloat64, shape);
  beside(
      report, settings, {.metric = "a + a.T" + size, .unit = "GB/s", .reference = "memcpy"},
      16e-9 * static_cast<double>(n), 0.5, [&] { sum.run(); }, copy);
  ir::OperandMap map(2);
  map[1].dim = 1;
  Step turn(ir::OpKind::kCopy, ir::CopyAttrs{{map}}, shape);
  turn.input(x.data(), DType::kFloat64, shape, {1, side});
  turn.output(out.data(), DType::kFloat64, shape);
  beside(
      report, settings, {.metric = "copy of a.T" + size, .unit = "GB/s", .reference = "memcpy"},
      16e-9 * static_cast<double>(n), 0.5, [&] { turn.run(); }, copy);
}

void scans(const Settings& settings, Report& report, const ir::Shape& shape, int axis) {
  const std::int64_t n = ir::volume(shape);
  const Buffer x(n), out(n);
  Step step(ir::OpKind::kScan, ir::ScanAttrs{ir::ReduceKind::kSum, static_cast<std::int8_t>(axis)}, shape);
  step.input(x.data(), DType::kFloat64, shape);
  step.output(out.data(), DType::kFloat64, shape);
  beside(
      report, settings,
      {.metric = "running sum " + ir::to_string(shape) + " axis " + std::to_string(axis),
       .unit = "GB/s",
       .reference = "memcpy"},
      16e-9 * static_cast<double>(n), 0.5, [&] { step.run(); },
      [&] { std::memcpy(out.data(), x.data(), static_cast<std::size_t>(n) * 8); });
}

template <class T> void functions(const Settings& settings, Report& report, DType t) {
  constexpr std::int64_t n = 16'384;
  constexpr int kTimes = 200;
  const Numbers<T> x(n), out(n);
  NumPy numpy(n, t == DType::kFloat32 ? "float32" : "float64");
  if (numpy.version().empty()) return report.note("no python3 with NumPy here: no functions in cache");
  for (const TapeOp op : {TapeOp::kExp, TapeOp::kLog, TapeOp::kSin, TapeOp::kTanh}) {
    Step step(ir::OpKind::kMap, ir::MapAttrs{one_op(op, t)}, {n});
    step.input(x.data(), t, {n});
    step.output(out.data(), t, {n});
    const std::string name(ir::name_of(op));
    std::vector<double> ours, theirs;
    for (int i = -1; i < settings.repeats; ++i) {
      const double one = seconds_of([&] {
        for (int j = 0; j < kTimes; ++j) step.run();
      });
      const double two =
          numpy.seconds("[np." + name + "(a, out=b) for _ in range(" + std::to_string(kTimes) + ")] and 0");
      const double m = 1e-6 * static_cast<double>(n) * kTimes;
      if (i >= 0) ours.push_back(m / one), theirs.push_back(m / two);
    }
    report.at_least({.metric = name + " " + std::string(ir::name_of(t)) + ", in cache",
                     .value = median(ours),
                     .unit = "M/s",
                     .reference = "NumPy " + numpy.version(),
                     .reference_value = median(theirs)},
                    1);
  }
}

}  // namespace

void block_functions(const Settings& settings, Report& report) {
  functions<double>(settings, report, DType::kFloat64);
  functions<float>(settings, report, DType::kFloat32);
}

void bench_block(const Settings& settings, Report& report) {
  openblas_set_num_threads(1);
  report.note(kernels::host_numeric_class());
  const std::int64_t n = settings.quick ? 1 << 20 : 1 << 24;
  using ir::ReduceKind;
  reductions(settings, report, "sum, all", {n}, 1, ReduceKind::kSum);
  reductions(settings, report, "min, all", {n}, 1, ReduceKind::kMin);
  reductions(settings, report, "argmax, all", {n}, 1, ReduceKind::kArgMax);
  for (const std::int64_t columns : {n / 1024, std::int64_t{100}, std::int64_t{3}})
    for (const std::uint32_t axis : {1u, 0u})
      reductions(settings, report,
                 "sum of rows of " + std::to_string(columns) + ", axis " + std::to_string(axis),
                 {n / columns, columns}, 1u << axis, ReduceKind::kSum);
  reductions(settings, report, "argmin, axis 0", {1024, n / 1024}, 1, ReduceKind::kArgMin);
  transposed(settings, report, 1024);
  transposed(settings, report, 4096);
  scans(settings, report, {n}, 0);
  scans(settings, report, {1024, n / 1024}, 1);
  scans(settings, report, {1024, n / 1024}, 0);
  const std::int64_t side = 1024;
  const Buffer a(side * side), b(side * side), c(side * side);
  Step product(ir::OpKind::kMatmul, ir::MatmulAttrs{}, {side, side});
  product.input(a.data(), DType::kFloat64, {side, side});
  product.input(b.data(), DType::kFloat64, {side, side});
  product.output(c.data(), DType::kFloat64, {side, side});
  beside(
      report, settings,
      {.metric = "dgemm 1024, one block", .unit = "GFLOP/s", .reference = "OpenBLAS, 1 thread"},
      2e-9 * 1024 * 1024 * 1024, 0.98, [&] { product.run(); },
      [&] {
        const int s = static_cast<int>(side);
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, s, s, s, 1.0, a.data(), s, b.data(), s, 0.0,
                    c.data(), s);
      });
}

}  // namespace tilewise::bench
