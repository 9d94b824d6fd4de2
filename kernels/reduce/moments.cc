// Moments of a block on the host: one pass over memory, two over each chunk while it is in cache.
//
// Sums go in the order of host.cc, bit for bit. A chunk's mean m is its sum over its length, rounded; then d = x - m is added up,
// and d * d, in the same order; what is left of the mean, sum(d) / n, becomes the chunk's shift, and its squares are sum(d * d)
// - sum(d)^2 / n (the corrected two-pass algorithm: Chan, Golub and LeVeque 1983). Chunks are joined in pairs (moments_fold.h),
// in double for float32 too.
//
// Error of the squares of m elements, relative: at most (150 + 12 log2(m / 64 + 1)) (1 + (70 u k)^2) u, where u is half a unit in
// the last place of 1 and k the mean over the standard deviation: a large mean costs no digits until k is near 1 / (70 u).
// Chunks round in the elements' dtype, joins in double.
#include "reduce/moments.h"

#include <tilewise/ir/verify.h>

#include <algorithm>
#include <cstring>

#include "map/evaluator.h"
#include "reduce/combine.h"
#include "reduce/order.h"

namespace tilewise::kernels::reduce {
namespace {

constexpr std::int64_t kWindow = 512;      // elements of small units looked at at once
constexpr std::int64_t kMaxColumns = 128;  // of a pass: a chunk stays in the second-level cache
constexpr std::int64_t kLinesAtOnce = 4;

// `width` results in memory of their own.
class MomentBuffer {
 public:
  MomentBuffer(std::int64_t width, std::int64_t size) : width_(width), size_(size) {
    bytes_.resize(static_cast<std::size_t>(width * (3 * 8 + size)));
  }
  MomentRow row() {
    auto* const numbers = reinterpret_cast<double*>(bytes_.data());
    return {numbers, numbers + 3 * width_, numbers + width_, numbers + 2 * width_};
  }

 private:
  std::int64_t width_, size_;
  std::vector<std::byte> bytes_;
};

void copy(const MomentRow& to, const MomentRow& from, std::int64_t width, std::int64_t size) {
  const auto bytes = static_cast<std::size_t>(width) * 8;
  std::memcpy(to.count, from.count, bytes);
  std::memcpy(to.sum, from.sum, static_cast<std::size_t>(width * size));
  std::memcpy(to.shift, from.shift, bytes);
  std::memcpy(to.squares, from.squares, bytes);
}

// As Tree (tree.h): a binary counter of partials.
class MomentTree {
 public:
  MomentTree(const MomentFns& fns, std::int64_t columns, std::int64_t size)
      : fns_(fns), columns_(columns), size_(size) {}

  void reset(std::int64_t width) {
    count_ = 0;
    width_ = width;
  }
  // Takes a partial; overwrites it.
  void push(MomentRow partial) {
    std::size_t l = 0;
    for (; (count_ >> l & 1) != 0; ++l) {
      const MomentRow left = level(l);
      fns_.join(left, partial, width_);
      partial = left;
    }
    copy(level(l), partial, width_, size_);
    ++count_;
  }
  void finish(const MomentRow& out) {
    const MomentRow* right = nullptr;
    MomentRow rows[64];
    for (std::size_t l = 0; count_ >> l != 0; ++l) {
      if ((count_ >> l & 1) == 0) continue;
      rows[l] = level(l);
      if (right != nullptr) fns_.join(rows[l], *right, width_);
      right = &rows[l];
    }
    copy(out, *right, width_, size_);
  }

 private:
  MomentRow level(std::size_t l) {
    while (levels_.size() <= l) levels_.emplace_back(columns_, size_);
    return levels_[l].row();
  }

  MomentFns fns_;
  std::int64_t columns_, size_, width_ = 0;
  std::uint64_t count_ = 0;
  std::vector<MomentBuffer> levels_;
};

class BlockMoments {
 public:
  BlockMoments(map::TileEvaluator& values, ir::DType dtype, const Layout& layout)
      : values_(values),
        folds_(find_folds(ir::ReduceKind::kSum, dtype)),
        fns_(find_moments(dtype)),
        layout_(layout),
        size_(static_cast<std::int64_t>(ir::size_of(dtype))),
        fold_(folds_rows(layout) ? kFold : 1),
        columns_(std::min(layout.n, kMaxColumns)),
        tree_(fns_, columns_, size_),
        partial_(std::max(columns_, kLinesAtOnce), size_),
        lanes_(std::max(fold_ * columns_, kWindow)) {
    for (auto* memory : {&sum_, &mean_, &first_, &second_})
      memory->resize(static_cast<std::size_t>(lanes_ * size_));
    const std::int64_t chunk = std::min(layout.length, kChunkRows * fold_) * (columns_ + kAlign);
    if (!values.in_place())
      buffer_ = map::TileMemory(static_cast<std::size_t>(std::max(chunk, kWindow) * size_));
  }

  void run(const MomentRow& out) {
    if (fold_ == 1 && layout_.sequential() && layout_.length <= kChunkRows && layout_.unit_size() <= kWindow)
      return run_short(out);
    if (by_lines() && layout_.sequential() && layout_.length <= kLine) return run_lines(out);
    for (std::int64_t o = 0; o < layout_.outputs; ++o)
      for (std::int64_t c = 0; c < layout_.n; c += columns_) {
        const std::int64_t width = std::min(columns_, layout_.n - c);
        const MomentRow row = out.at(o * layout_.n + c, size_);
        if (layout_.sequential() && layout_.length <= kChunkRows * fold_) {  // a chunk is all of it
          add_chunk(layout_.unit(o, 0) * layout_.unit_size() + c, layout_.length, width, row);
          continue;
        }
        tree_.reset(width);
        for (std::int64_t r = 0; r < layout_.repeats; ++r)
          add_unit(layout_.unit(o, r) * layout_.unit_size() + c, width);
        tree_.finish(row);
      }
  }

 private:
  static constexpr std::int64_t kAlign = 16;  // elements that rows of a copied chunk begin at multiples of

  // Many units a tile.
  void run_short(const MomentRow& out) {
    const std::int64_t unit = layout_.unit_size(), batch = std::max<std::int64_t>(1, kWindow / unit);
    const auto length = static_cast<double>(layout_.length);
    for (std::int64_t o = 0; o < layout_.outputs; o += batch) {
      const std::int64_t count = std::min(batch, layout_.outputs - o), width = count * layout_.n;
      const void* x = values_.eval(o * unit, count * unit, buffer_.get());
      const MomentRow row = out.at(o * layout_.n, size_);
      folds_.units(row.sum, x, count, layout_.length, layout_.n);
      fns_.means(mean_.data(), row.sum, length, width);
      fns_.units(first_.data(), second_.data(), x, mean_.data(), count, layout_.length, layout_.n);
      fns_.settle(row, length, mean_.data(), first_.data(), second_.data(), width);
    }
  }

  void add_unit(std::int64_t begin, std::int64_t width) {
    if (by_lines()) return add_lines(begin);
    const std::int64_t rows_a_chunk = kChunkRows * fold_;
    for (std::int64_t row = 0; row < layout_.length; row += rows_a_chunk) {
      const std::int64_t rows = std::min(rows_a_chunk, layout_.length - row);
      add_chunk(begin + row * layout_.n, rows, width, partial_.row());
      tree_.push(partial_.row());
    }
  }

  bool by_lines() const { return fold_ == kFold && layout_.n == 1; }
  const std::byte* line_at(std::int64_t begin, std::int64_t n) {
    return static_cast<const std::byte*>(values_.eval(begin, n, buffer_.get()));
  }
  // One line an output.
  void run_lines(const MomentRow& out) {
    const std::int64_t length = layout_.length;
    const std::int64_t batch = values_.in_place() ? layout_.outputs : 1;
    for (std::int64_t o = 0; o < layout_.outputs; o += batch)
      fns_.lines(out.at(o, size_), line_at(o * length, batch * length), batch, length);
  }
  // Of one long line: a partial result for each kLine elements.
  void add_lines(std::int64_t begin) {
    const std::int64_t most = (values_.in_place() ? kLinesAtOnce : 1) * kLine;
    for (std::int64_t at = 0; at < layout_.length; at += most) {
      const std::int64_t n = std::min(most, layout_.length - at), whole = n / kLine, rest = n % kLine;
      const std::byte* const x = line_at(begin + at, n);
      const MomentRow row = partial_.row();
      fns_.lines(row, x, whole, kLine);
      if (rest > 0) fns_.lines(row.at(whole, size_), x + whole * kLine * size_, 1, rest);
      for (std::int64_t k = 0; k < whole + (rest > 0 ? 1 : 0); ++k) tree_.push(row.at(k, size_));
    }
  }

  // Rows of `width` elements that begin `pitch_` apart: in place, or copied.
  const std::byte* chunk(std::int64_t begin, std::int64_t rows, std::int64_t width) {
    pitch_ = layout_.n;
    if (values_.in_place() || width == layout_.n)
      return static_cast<const std::byte*>(
          values_.eval(begin, values_.in_place() ? width : rows * width, buffer_.get()));
    pitch_ = (width + kAlign - 1) / kAlign * kAlign;
    for (std::int64_t r = 0; r < rows; ++r)
      values_.eval(begin + r * layout_.n, width, buffer_.get() + r * pitch_ * size_);
    return buffer_.get();
  }

  // From the lanes' sums the sum and the mean, for every lane; what is left after it starts at nothing.
  void find_mean(std::int64_t rows, std::int64_t width) {
    if (fold_ == kFold) folds_.lanes(sum_.data(), width);
    fns_.means(mean_.data(), sum_.data(), static_cast<double>(rows), width);
    for (std::int64_t l = 1; l < fold_; ++l)
      std::memcpy(mean_.data() + l * width * size_, mean_.data(), static_cast<std::size_t>(width * size_));
    folds_.clear(first_.data(), fold_ * width);
    folds_.clear(second_.data(), fold_ * width);
  }
  void settle(const MomentRow& row, std::int64_t rows, std::int64_t width) {
    if (fold_ == kFold) {
      folds_.lanes(first_.data(), width);
      folds_.lanes(second_.data(), width);
    }
    fns_.settle(row, static_cast<double>(rows), mean_.data(), first_.data(), second_.data(), width);
  }

  void add_chunk(std::int64_t begin, std::int64_t rows, std::int64_t width, const MomentRow& row) {
    const std::byte* const x = chunk(begin, rows, width);
    // Folded rows are whole: width is n there.
    const std::int64_t lanes = fold_ * width, pitch = fold_ * pitch_;
    const std::int64_t whole = rows / fold_, rest = rows % fold_ * width;
    const std::byte* const last = x + whole * pitch * size_;
    folds_.clear(sum_.data(), lanes);
    folds_.rows(sum_.data(), x, lanes, whole, pitch);
    if (rest > 0) folds_.rows(sum_.data(), last, rest, 1, rest);
    find_mean(rows, width);
    fns_.spread(first_.data(), second_.data(), x, mean_.data(), lanes, whole, pitch);
    if (rest > 0) fns_.spread(first_.data(), second_.data(), last, mean_.data(), rest, 1, rest);
    std::memcpy(row.sum, sum_.data(), static_cast<std::size_t>(width * size_));
    settle(row, rows, width);
  }

  map::TileEvaluator& values_;
  FoldFns folds_;
  MomentFns fns_;
  const Layout& layout_;
  std::int64_t size_, fold_, columns_, pitch_ = 0;
  MomentTree tree_;
  MomentBuffer partial_;
  std::int64_t lanes_;
  std::vector<std::byte> sum_, mean_, first_, second_;
  map::TileMemory buffer_{64};
};

}  // namespace

Status moment_blocks(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::ReduceAttrs>();
  const std::vector<ir::DType> dtypes = ir::part_dtypes(attrs.kind, attrs.tape.result());
  bool fits = call.outputs.size() == dtypes.size();
  for (std::size_t i = 0; fits && i < dtypes.size(); ++i)
    fits = call.outputs[i].dtype == dtypes[i] && call.outputs[i].shape == call.outputs[0].shape;
  const ir::DType dtype = dtypes[ir::kMomentSum];
  if (!fits || !find_moments(dtype))
    return error(Errc::kShapeMismatch, "moments of " + std::string(ir::name_of(dtype)) +
                                           " write a count, a sum, a shift and squares");
  if (call.box.volume() == 0) return clear_output(attrs.kind, call);
  TW_ASSIGN(const map::Program program, map::Program::make(attrs.tape, dtype));
  const Layout layout = layout_of(call.box.shape(), attrs.axes);
  TW_ASSIGN(map::TileEvaluator values,
            map::TileEvaluator::make(program, call.inputs, call.box, call.space_shape));
  if (layout.outputs * layout.n != ir::volume(call.outputs[0].shape))
    return error(Errc::kShapeMismatch, "a reduction of " + ir::to_string(call.box) + " into " +
                                           ir::to_string(call.outputs[0].shape));
  const auto part = [&](ir::MomentPart p) { return call.outputs[p].data; };
  BlockMoments(values, dtype, layout)
      .run({static_cast<double*>(part(ir::kMomentCount)), part(ir::kMomentSum),
            static_cast<double*>(part(ir::kMomentShift)), static_cast<double*>(part(ir::kMomentSquares))});
  return {};
}

}  // namespace tilewise::kernels::reduce
