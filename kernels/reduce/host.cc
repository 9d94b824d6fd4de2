// kReduceBlocks on the host: the tape runs tile by tile and each tile is folded while it is in cache.
//
// Order of a sum (a function of the block's shape and axes, see layout.h): rows of a unit go in chunks of 64 (narrow
// rows: 64 * 16, where row r belongs to virtual lane r % 16); within a chunk, per element and lane, left to right; then
// the sixteen lanes by halves (lane i with i + 8, + 4, + 2, + 1); then chunks pairwise (tree.h), across all units of the
// output. Error of a float sum of m elements: at most (64 + 4 + log2(m / 64) + 1) roundings of sum |x|. Moments: moments.cc.
#include <tilewise/ir/op.h>

#include <cstring>

#include "map/evaluator.h"
#include "reduce/args.h"
#include "reduce/combine.h"
#include "reduce/count.h"
#include "reduce/layout.h"
#include "reduce/moments.h"
#include "reduce/order.h"
#include "reduce/reduce.h"
#include "reduce/tree.h"

namespace tilewise::kernels::reduce {
namespace {

constexpr std::int64_t kWindow =
    kLine;  // elements of the tape folded at once; at least a folded row (kNarrow * kFold)
constexpr std::int64_t kMaxColumns = 512;  // accumulators of one pass: within the first-level cache
constexpr std::int64_t kSmallUnit = 512;   // at most: looked at many at once
constexpr std::int64_t kLinesAtOnce = 8;

class BlockReducer {
 public:
  BlockReducer(map::TileEvaluator& values, const FoldFns& folds, const Layout& layout, std::size_t size)
      : values_(values),
        folds_(folds),
        layout_(layout),
        size_(static_cast<std::int64_t>(size)),
        fold_(folds_rows(layout) ? kFold : 1),
        columns_(std::min(layout.n, kMaxColumns)),
        tree_(folds, columns_, size),
        acc_(static_cast<std::size_t>(fold_ * columns_) * size) {}

  void run(std::byte* out) {
    if (fold_ == 1 && layout_.sequential() && layout_.length <= kChunkRows &&
        layout_.unit_size() <= kSmallUnit) {
      return run_short(out);
    }
    if (by_lines() && layout_.sequential() && layout_.length <= kLine) return run_lines(out);
    for (std::int64_t o = 0; o < layout_.outputs; ++o) {
      std::byte* row = out + o * layout_.n * size_;
      for (std::int64_t c = 0; c < layout_.n; c += columns_) {
        const std::int64_t width = std::min(columns_, layout_.n - c);
        if (width != columns_) tree_ = Tree(folds_, width, static_cast<std::size_t>(size_));
        tree_.reset();
        for (std::int64_t r = 0; r < layout_.repeats; ++r) {
          add_unit(layout_.unit(o, r) * layout_.unit_size(), c, width);
        }
        tree_.finish(row + c * size_);
        if (width != columns_) tree_ = Tree(folds_, columns_, static_cast<std::size_t>(size_));
      }
    }
  }

 private:
  // The most elements that evaluate() takes.
  std::int64_t limit() const { return values_.in_place() ? std::int64_t{1} << 40 : kWindow; }
  const std::byte* evaluate(std::int64_t begin, std::int64_t n) {
    return static_cast<const std::byte*>(values_.eval(begin, n, buffer_.get()));
  }

  // Many units a tile, each left to right.
  void run_short(std::byte* out) {
    const std::int64_t unit = layout_.unit_size(), batch = std::max<std::int64_t>(1, kWindow / unit);
    for (std::int64_t o = 0; o < layout_.outputs; o += batch) {
      const std::int64_t count = std::min(batch, layout_.outputs - o);
      const void* x = evaluate(o * unit, count * unit);
      folds_.units(out + o * layout_.n * size_, x, count, layout_.length, layout_.n);
    }
  }

  bool by_lines() const { return fold_ == kFold && layout_.n == 1 && folds_.lines != nullptr; }

  // One line an output.
  void run_lines(std::byte* out) {
    const std::int64_t length = layout_.length, batch = std::max<std::int64_t>(1, limit() / length);
    for (std::int64_t o = 0; o < layout_.outputs; o += batch) {
      const std::int64_t count = std::min(batch, layout_.outputs - o);
      folds_.lines(out + o * size_, evaluate(o * length, count * length), count, length);
    }
  }

  // Of one long line: a partial result for each kLine elements.
  void add_lines(std::int64_t base) {
    alignas(16) std::byte partials[kLinesAtOnce * 16];
    const std::int64_t most = std::min(kLinesAtOnce, limit() / kLine) * kLine;
    for (std::int64_t at = 0; at < layout_.length; at += most) {
      const std::int64_t n = std::min(most, layout_.length - at), whole = n / kLine, rest = n % kLine;
      const std::byte* x = evaluate(base + at, n);
      folds_.lines(partials, x, whole, kLine);
      if (rest > 0) folds_.lines(partials + whole * size_, x + whole * kLine * size_, 1, rest);
      for (std::int64_t k = 0; k < whole + (rest > 0 ? 1 : 0); ++k) tree_.push(partials + k * size_);
    }
  }

  // Elements [begin, begin + n), looking ahead over whole small units: the next outputs will want them.
  const std::byte* window(std::int64_t begin, std::int64_t n) {
    if (begin < window_begin_ || begin + n > window_end_) {
      std::int64_t count = n;
      if (layout_.sequential() && layout_.unit_size() <= limit()) {
        const std::int64_t unit = layout_.unit_size();
        const std::int64_t units =
            std::min(std::max<std::int64_t>(1, kWindow / unit), layout_.outputs - begin / unit);
        if (begin % unit == 0) count = std::max(n, units * unit);
      }
      window_ = evaluate(begin, count);
      window_begin_ = begin;
      window_end_ = begin + count;
    }
    return window_ + (begin - window_begin_) * size_;
  }

  void add_unit(std::int64_t base, std::int64_t column, std::int64_t width) {
    if (by_lines()) return add_lines(base);
    const std::int64_t rows_a_chunk = kChunkRows * fold_;
    for (std::int64_t row = 0; row < layout_.length; row += rows_a_chunk) {
      const std::int64_t rows = std::min(rows_a_chunk, layout_.length - row);
      folds_.clear(acc_.data(), fold_ * width);
      if (width == layout_.n)
        add_rows(base + row * layout_.n, rows);
      else
        add_columns(base + row * layout_.n + column, rows, width);
      if (fold_ == kFold) folds_.lanes(acc_.data(), width);
      tree_.push(acc_.data());
    }
  }

  void add_rows(std::int64_t begin, std::int64_t rows) {
    const std::int64_t width = fold_ * layout_.n;
    const std::int64_t whole = rows / fold_, rest = rows % fold_ * layout_.n;
    const std::int64_t most = std::max<std::int64_t>(1, std::min(limit(), rows * layout_.n) / width);
    for (std::int64_t r = 0; r < whole; r += most) {
      const std::int64_t count = std::min(most, whole - r);
      folds_.rows(acc_.data(), window(begin + r * width, count * width), width, count, width);
    }
    if (rest > 0) folds_.rows(acc_.data(), window(begin + whole * width, rest), rest, 1, rest);
  }

  void add_columns(std::int64_t begin, std::int64_t rows, std::int64_t width) {
    if (values_.in_place()) {
      return folds_.rows(acc_.data(), evaluate(begin, width), width, rows, layout_.n);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      folds_.rows(acc_.data(), evaluate(begin + r * layout_.n, width), width, 1, width);
    }
  }

  map::TileEvaluator& values_;
  FoldFns folds_;
  const Layout& layout_;
  std::int64_t size_, fold_, columns_;
  Tree tree_;
  std::vector<std::byte> acc_;
  map::TileMemory buffer_{kWindow * 16};
  const std::byte* window_ = nullptr;
  std::int64_t window_begin_ = 0, window_end_ = 0;
};

Status reduce_blocks(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::ReduceAttrs>();
  const TensorView& out = call.outputs[0];
  const ir::Shape shape = call.box.shape();
  if (ir::is_arg(attrs.kind)) return arg_blocks(call);
  if (attrs.kind == ir::ReduceKind::kMoments) return moment_blocks(call);
  const FoldFns folds = find_folds(attrs.kind, out.dtype);
  if (!folds)
    return error(Errc::kUnsupported,
                 std::string(ir::name_of(attrs.kind)) + " into " + std::string(ir::name_of(out.dtype)));
  const std::int64_t outputs = ir::volume(out.shape);
  if (call.box.volume() == 0) return clear_output(attrs.kind, call);
  const Layout layout = layout_of(shape, attrs.axes);
  if (layout.outputs * layout.n != outputs) {
    return error(Errc::kShapeMismatch,
                 "a reduction of " + ir::to_string(call.box) + " into " + ir::to_string(out.shape));
  }
  if (const auto bools = counted_tape(attrs, out.dtype); bools) return count_blocks(call, *bools);
  TW_ASSIGN(const map::Program program, map::Program::make(attrs.tape, out.dtype));
  TW_ASSIGN(map::TileEvaluator values,
            map::TileEvaluator::make(program, call.inputs, call.box, call.space_shape));
  BlockReducer(values, folds, layout, ir::size_of(out.dtype)).run(static_cast<std::byte*>(out.data));
  return {};
}

}  // namespace

Status supports(const ir::Op& op, const PluginTable*) {
  const ir::ReduceKind kind =
      op.kind == ir::OpKind::kCombine ? op.get<ir::CombineAttrs>().kind : op.get<ir::ReduceAttrs>().kind;
  const bool moments = kind == ir::ReduceKind::kMoments;
  const ir::DType out = op.outputs.at(moments ? ir::kMomentSum : 0).dtype;
  if (moments ? !find_moments(out) : !ir::is_arg(kind) && !find_folds(kind, out)) {
    return error(Errc::kUnsupported,
                 std::string(ir::name_of(kind)) + " into " + std::string(ir::name_of(out)));
  }
  if (op.kind == ir::OpKind::kCombine) return {};
  const auto program = map::Program::make(op.get<ir::ReduceAttrs>().tape, out);
  if (!program) return program.error();
  return {};
}

Status host(const KernelCall& call, const PluginTable*) {
  return call.op->kind == ir::OpKind::kCombine ? combine(call) : reduce_blocks(call);
}

}  // namespace tilewise::kernels::reduce
