#include "reduce/args.h"

#include "map/evaluator.h"
#include "reduce/fold.h"
#include "reduce/layout.h"

namespace tilewise::kernels::reduce {
namespace {

// Turns a position among the block's reduced elements into one among the space's. Both orders agree, so ties within a
// block are settled before.
class GlobalPosition {
 public:
  GlobalPosition(const ir::Box& box, const ir::Shape& space, std::uint32_t axes) {
    for (int d = 0; d < box.rank(); ++d) {
      if ((axes >> d & 1) == 0) continue;
      const auto u = static_cast<std::size_t>(d);
      block_.push_back(box.extent(d));
      lo_.push_back(box.lo[u]);
      space_.push_back(space[u]);
    }
  }
  std::int64_t operator()(std::int64_t local) const {
    ir::Index at = ir::unravel(local, block_);
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += lo_[d];
    return ir::ravel(at, space_);
  }

 private:
  ir::Shape block_, space_;
  ir::Index lo_;
};

constexpr std::int64_t kWindow = 512;       // elements of the tape looked at at once
constexpr std::int64_t kMaxColumns = 4096;  // of a pass: what is best stays in the second-level cache

struct Scan {
  map::TileEvaluator& values;
  const Layout& layout;
  const ArgFns& args;
  std::int64_t size;
  map::TileMemory buffer;

  // Rows of one element: candidates follow each other.
  void rows(std::int64_t output, std::byte* best, std::int64_t* index) const {
    bool empty = true;
    for (std::int64_t r = 0; r < layout.repeats; ++r) {
      const std::int64_t base = layout.unit(output, r) * layout.length;
      for (std::int64_t at = 0; at < layout.length;) {
        const std::int64_t n = std::min(values.in_place() ? layout.length : kWindow, layout.length - at);
        args.row(values.eval(base + at, n, buffer.get()), n, r * layout.length + at, empty, best, index);
        empty = false;
        at += n;
      }
    }
  }

  // Rows of several: every column has its own best.
  void columns(std::int64_t output, std::byte* best, std::int64_t* index) const {
    const std::int64_t width = values.in_place() ? kMaxColumns : kWindow;
    for (std::int64_t c = 0; c < layout.n; c += width) {
      const std::int64_t n = std::min(width, layout.n - c);
      for (std::int64_t r = 0; r < layout.repeats * layout.length; ++r) {
        const std::int64_t base = layout.unit(output, r / layout.length) * layout.unit_size();
        const void* x = values.eval(base + r % layout.length * layout.n + c, n, buffer.get());
        args.columns(x, n, r, r == 0, best + c * size, index + c);
      }
    }
  }
};

}  // namespace

Status arg_blocks(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::ReduceAttrs>();
  if (call.outputs.size() < 2 || call.outputs[1].dtype != ir::DType::kInt64) {
    return error(Errc::kShapeMismatch, "argmin and argmax write values and int64 indices");
  }
  const TensorView& out = call.outputs[0];
  if (call.box.volume() == 0)
    return error(Errc::kInvalidArgument, std::string(ir::name_of(attrs.kind)) + " of nothing");
  const Layout layout = layout_of(call.box.shape(), attrs.axes);
  if (layout.outputs * layout.n != ir::volume(out.shape)) {
    return error(Errc::kShapeMismatch,
                 "a reduction of " + ir::to_string(call.box) + " into " + ir::to_string(out.shape));
  }
  TW_ASSIGN(const map::Program program, map::Program::make(attrs.tape, out.dtype));
  TW_ASSIGN(map::TileEvaluator values,
            map::TileEvaluator::make(program, call.inputs, call.box, call.space_shape));
  const ArgFns args = find_args(attrs.kind == ir::ReduceKind::kArgMin, out.dtype);
  const GlobalPosition global(call.box, call.space_shape, attrs.axes);
  const Scan scan{values, layout, args, static_cast<std::int64_t>(ir::size_of(out.dtype)),
                  map::TileMemory(kWindow * 8)};
  auto* index = static_cast<std::int64_t*>(call.outputs[1].data);
  for (std::int64_t o = 0; o < layout.outputs; ++o) {
    std::byte* best = static_cast<std::byte*>(out.data) + o * layout.n * scan.size;
    std::int64_t* row = index + o * layout.n;
    if (layout.n == 1)
      scan.rows(o, best, row);
    else
      scan.columns(o, best, row);
    for (std::int64_t j = 0; j < layout.n; ++j) row[j] = global(row[j]);
  }
  return {};
}

}  // namespace tilewise::kernels::reduce
