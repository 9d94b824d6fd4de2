#include "reduce/count.h"

#include <tilewise/ir/op.h>

#include <algorithm>

#include "map/evaluator.h"
#include "reduce/layout.h"

namespace tilewise::kernels::reduce {
namespace {

constexpr std::int64_t kCountWindow = 1 << 14;  // elements of the tape looked at at once
constexpr std::int64_t kMostInByte = 255;

std::int64_t count(const std::uint8_t* x, std::int64_t n) {
  constexpr std::int64_t kAbreast = 64;
  std::int64_t total = 0;
  while (n >= kAbreast) {
    std::uint8_t sums[kAbreast] = {};
    const std::int64_t rounds = std::min(kMostInByte, n / kAbreast);
    for (std::int64_t r = 0; r < rounds; ++r, x += kAbreast)
      for (std::int64_t j = 0; j < kAbreast; ++j) sums[j] = static_cast<std::uint8_t>(sums[j] + x[j]);
    for (const std::uint8_t sum : sums) total += sum;
    n -= rounds * kAbreast;
  }
  for (std::int64_t j = 0; j < n; ++j) total += x[j];
  return total;
}

class Counter {
 public:
  Counter(map::TileEvaluator& values, const Layout& layout) : values_(values), layout_(layout) {}

  void run(std::int64_t* out) {
    std::fill_n(out, layout_.outputs * layout_.n, 0);
    for (std::int64_t o = 0; o < layout_.outputs; ++o, out += layout_.n)
      for (std::int64_t r = 0; r < layout_.repeats; ++r) {
        const std::int64_t base = layout_.unit(o, r) * layout_.unit_size();
        if (layout_.n == 1)
          add_line(base, *out);
        else
          add_rows(base, out);
      }
  }

 private:
  const std::uint8_t* evaluate(std::int64_t begin, std::int64_t n) {
    return static_cast<const std::uint8_t*>(values_.eval(begin, n, buffer_.get()));
  }

  // Of a short line its successors' elements are looked at too: the next outputs will want them.
  void add_line(std::int64_t base, std::int64_t& sum) {
    for (std::int64_t at = base, end = base + layout_.length; at < end;) {
      if (at < begin_ || at >= end_) {
        const std::int64_t last = layout_.sequential() ? layout_.outputs * layout_.length : end;
        begin_ = at;
        end_ = std::min(at + kCountWindow, last);
        window_ = evaluate(begin_, end_ - begin_);
      }
      const std::int64_t n = std::min(end, end_) - at;
      sum += count(window_ + (at - begin_), n);
      at += n;
    }
  }

  void add_rows(std::int64_t base, std::int64_t* sums) {
    const std::int64_t width = std::min(layout_.n, kCountWindow);
    const std::int64_t most = std::min(kCountWindow / width, kMostInByte);
    for (std::int64_t c = 0; c < layout_.n; c += width) {
      const std::int64_t n = std::min(width, layout_.n - c);
      for (std::int64_t row = 0; row < layout_.length; row += most) {
        const std::int64_t rows = std::min(most, layout_.length - row);
        const std::uint8_t* x = evaluate(base + row * layout_.n + c, rows * n);
        std::fill_n(bytes_.get(), n, std::byte{0});
        auto* bytes = reinterpret_cast<std::uint8_t*>(bytes_.get());
        for (std::int64_t r = 0; r < rows; ++r, x += n)
          for (std::int64_t j = 0; j < n; ++j) bytes[j] = static_cast<std::uint8_t>(bytes[j] + x[j]);
        for (std::int64_t j = 0; j < n; ++j) sums[c + j] += bytes[j];
      }
    }
  }

  map::TileEvaluator& values_;
  const Layout& layout_;
  map::TileMemory buffer_{kCountWindow}, bytes_{kCountWindow};
  const std::uint8_t* window_ = nullptr;
  std::int64_t begin_ = 0, end_ = 0;  // of what lies there
};

}  // namespace

std::optional<ir::Tape> counted_tape(const ir::ReduceAttrs& attrs, ir::DType out) {
  const ir::Tape& tape = attrs.tape;
  if (attrs.kind != ir::ReduceKind::kSum || out != ir::DType::kInt64 || tape.output_count() != 1) return {};
  const std::uint16_t last = tape.output(0);
  if (last + std::size_t{1} != tape.code.size()) return {};
  const ir::TapeInstr& cast = tape.code[last];
  if (cast.op != ir::TapeOp::kCast || cast.dtype != out || tape.code[cast.a].dtype != ir::DType::kBool)
    return {};
  ir::Tape bools = tape;
  bools.code.pop_back();
  bools.outputs.clear();
  if (cast.a + std::size_t{1} != bools.code.size()) bools.outputs = {cast.a};
  return bools;
}

Status count_blocks(const KernelCall& call, const ir::Tape& tape) {
  TW_ASSIGN(const map::Program program, map::Program::make(tape));
  TW_ASSIGN(map::TileEvaluator values,
            map::TileEvaluator::make(program, call.inputs, call.box, call.space_shape));
  const Layout layout = layout_of(call.box.shape(), call.op->get<ir::ReduceAttrs>().axes);
  Counter(values, layout).run(static_cast<std::int64_t*>(call.outputs[0].data));
  return {};
}

}  // namespace tilewise::kernels::reduce
