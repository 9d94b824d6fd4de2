#include "generator.h"

#include <tilewise/base/check.h>

#include <algorithm>

namespace tilewise::sim {
namespace {

using ir::DType;
using ir::Op;
using ir::OpKind;

class Generator {
 public:
  Generator(Prng& prng, const std::vector<Named>& known, std::uint64_t& next, const Mix& mix)
      : prng_(prng), next_(next), mix_(mix), pool_(known) {}

  Program run() {
    const int ops = static_cast<int>(prng_.between(1, 10));
    for (int i = 0; i < ops; ++i) one();
    // Hold some, fetch some; what is neither is dead unless something uses it.
    for (const Named& named : program_.made) {
      if (prng_.chance(0.3)) program_.holds.push_back(named.number);
      if (prng_.chance(0.3)) fetch(named);
    }
    if (program_.fetches.empty()) fetch(program_.made.back());
    return std::move(program_);
  }

 private:
  const Named& pick() { return pool_[prng_.below(pool_.size())]; }

  ir::Grid random_grid(const ir::Shape& shape) {
    std::vector<ir::DimGrid> dims;
    for (std::int64_t extent : shape) {
      if (extent > 1 && prng_.chance(0.2)) {  // explicit cuts
        std::vector<std::int64_t> starts{0};
        for (std::int64_t at = prng_.between(1, extent); at < extent; at += prng_.between(1, extent))
          starts.push_back(at);
        dims.push_back(*ir::DimGrid::cuts(extent, starts));
      } else {
        dims.push_back(*ir::DimGrid::uniform(extent, prng_.between(1, std::max<std::int64_t>(1, extent))));
      }
    }
    return ir::Grid(std::move(dims));
  }

  Op base(OpKind kind, ir::Grid grid, DType dtype) {
    Op op;
    op.kind = kind;
    op.space = grid;
    op.outputs.push_back({next_++, dtype, std::move(grid)});
    return op;
  }

  void finish(Op op) {
    for (const ir::OutputSpec& output : op.outputs) {
      const Named named{output.array, output.dtype, output.grid};
      pool_.push_back(named);
      program_.made.push_back(named);
    }
    program_.ops.push_back(std::move(op));
  }

  static ir::Operand whole(const Named& named) {
    return {named.number, ir::View::identity(named.grid.shape())};
  }

  void source() {
    ir::Shape shape;
    const int rank = static_cast<int>(prng_.between(0, 3));
    for (int d = 0; d < rank; ++d) shape.push_back(prng_.between(prng_.chance(mix_.empty) ? 0 : 1, 12));
    Op op = base(OpKind::kMap, random_grid(shape), DType::kFloat64);
    ir::TapeInstr value;
    value.op = prng_.chance(0.5) ? ir::TapeOp::kConst : ir::TapeOp::kUniform;
    value.imm_f = value.op == ir::TapeOp::kConst ? prng_.uniform() : 0;
    value.imm_i = value.op == ir::TapeOp::kConst ? 0 : static_cast<std::int64_t>(prng_.next());
    op.attrs = ir::MapAttrs{{{value}}};
    finish(std::move(op));
  }

  void provide() {
    ir::Shape shape{prng_.between(1, 40), prng_.between(1, 40)};
    Op op = base(OpKind::kProvide, random_grid(shape), DType::kFloat64);
    op.attrs = ir::FetchAttrs{};
    const Named named{op.outputs[0].array, DType::kFloat64, op.outputs[0].grid};
    program_.ops.push_back(std::move(op));
    copy(named);  // into the cluster
  }

  // A random view of an array, of rank at most its own.
  ir::View random_view(const Named& named) {
    ir::View view = ir::View::identity(named.grid.shape());
    for (int d = 0; d < view.rank(); ++d) {
      const std::int64_t extent = view.shape[static_cast<std::size_t>(d)];
      if (extent < 2 || !prng_.chance(0.3)) continue;
      const std::int64_t lo = prng_.between(0, extent - 2), hi = prng_.between(lo + 1, extent);
      auto sliced = prng_.chance(0.3) ? view.slice(d, std::nullopt, std::nullopt, -1)
                                      : view.slice(d, lo, hi, prng_.between(1, 2));
      TW_CHECK(sliced.has_value(), "the generator sliced wrongly");
      view = *sliced;
    }
    if (view.rank() >= 2 && prng_.chance(0.3)) view = *view.transpose();
    return view;
  }

  void map() {
    const Named& first = pick();
    const ir::View view = random_view(first);
    Op op =
        base(OpKind::kMap, prng_.chance(0.6) ? ir::induced_grid(view, first.grid) : random_grid(view.shape),
             DType::kFloat64);
    op.operands.push_back({first.number, view});
    ir::Tape tape;
    ir::TapeInstr load;
    load.op = ir::TapeOp::kLoad;
    load.dtype = first.dtype;
    tape.code.push_back(load);
    for (int more = static_cast<int>(prng_.between(0, 2)); more > 0; --more) {
      const Named& other = pick();
      auto broadcast = random_view(other).broadcast_to(view.shape);
      if (!broadcast || other.dtype != first.dtype) continue;
      op.operands.push_back({other.number, *broadcast});
      ir::TapeInstr second = load;
      second.imm_i = static_cast<std::int64_t>(op.operands.size()) - 1;
      tape.code.push_back(second);
      ir::TapeInstr add;
      add.op = ir::TapeOp::kAdd;
      add.dtype = first.dtype;
      add.a = static_cast<std::uint16_t>(tape.code.size() - 2);
      add.b = static_cast<std::uint16_t>(tape.code.size() - 1);
      tape.code.push_back(add);
    }
    op.outputs[0].dtype = tape.result();
    op.attrs = ir::MapAttrs{std::move(tape)};
    finish(std::move(op));
  }

  void reduce() {
    const Named& source = pick();
    const int rank = source.grid.rank();
    if (rank == 0) return this->source();
    const auto axes = static_cast<std::uint32_t>(prng_.between(1, (1 << rank) - 1));
    std::vector<ir::DimGrid> dims;
    for (int d = 0; d < rank; ++d) {
      dims.push_back((axes >> d & 1) != 0 ? ir::DimGrid::whole(1) : source.grid.dim(d));
      if (source.grid.dim(d).extent() == 0) return this->source();
    }
    Op op = base(OpKind::kReduce, source.grid, source.dtype);
    op.outputs[0].grid = ir::Grid(std::move(dims));
    op.operands.push_back(whole(source));
    ir::TapeInstr load;
    load.op = ir::TapeOp::kLoad;
    load.dtype = source.dtype;
    op.attrs =
        ir::ReduceAttrs{{{load}}, prng_.chance(0.5) ? ir::ReduceKind::kSum : ir::ReduceKind::kMax, axes};
    finish(std::move(op));
  }

  void matmul() {
    const Named& a = pick();
    if (a.grid.rank() != 2 || a.dtype != DType::kFloat64) return map();
    // A right-hand side of the right height, made for the purpose.
    ir::Shape shape{a.grid.dim(1).extent(), prng_.between(1, 10)};
    Op filler = base(OpKind::kMap, random_grid(shape), DType::kFloat64);
    ir::TapeInstr one;
    one.op = ir::TapeOp::kConst;
    one.imm_f = 1;
    filler.attrs = ir::MapAttrs{{{one}}};
    const Named left = a;
    finish(std::move(filler));
    const Named right = pool_.back();
    Op op = base(OpKind::kMatmul, ir::Grid({left.grid.dim(0), right.grid.dim(1)}), DType::kFloat64);
    op.operands = {whole(left), whole(right)};
    op.attrs = ir::MatmulAttrs{prng_.chance(0.3) ? prng_.between(2, 4) : 0};
    finish(std::move(op));
  }

  void copy(Named source) {
    Op op = base(OpKind::kCopy, random_grid(source.grid.shape()), source.dtype);
    op.operands.push_back(whole(source));
    ir::OperandMap map;
    for (int d = 0; d < source.grid.rank(); ++d) {
      ir::DimMap dim;
      dim.dim = static_cast<std::int8_t>(d);
      map.push_back(dim);
    }
    op.attrs = ir::CopyAttrs{{map}};
    finish(std::move(op));
  }

  // A kernel's two results: one like what it reads, one like that or with an element a block.
  void pair() {
    const Named source = pick();
    const int rank = source.grid.rank();
    Op op = base(OpKind::kCall, source.grid, source.dtype);
    std::vector<ir::DimGrid> dims;
    ir::OperandMap map;
    for (int d = 0; d < rank; ++d) {
      ir::DimMap dim;
      dim.dim = static_cast<std::int8_t>(d);
      if (prng_.chance(0.15)) dim.kind = ir::DimMap::Kind::kWhole;
      map.push_back(dim);
      dims.push_back(*ir::DimGrid::uniform(source.grid.dim(d).count(), 1));
    }
    op.outputs.push_back(
        {next_++, DType::kFloat32, prng_.chance(0.5) ? source.grid : ir::Grid(std::move(dims))});
    op.operands.push_back(whole(source));
    op.attrs = ir::CallAttrs{.kernel = kPairKernel, .version = "1", .maps = {map}};
    finish(std::move(op));
  }

  // A kernel on listed blocks, as in a graph of one's own: each point reads what its lists name, in their order. Points that read one
  // block twice, or nothing, and operands of one array are as good as any. No step is larger than five blocks and a result.
  void listed() {
    ir::Shape shape;
    for (int d = static_cast<int>(prng_.between(0, 2)); d > 0; --d) shape.push_back(prng_.between(1, 8));
    Op op = base(OpKind::kCall, random_grid(shape), DType::kFloat64);
    if (mix_.pairs > 0 && prng_.chance(0.3))
      op.outputs.push_back({next_++, DType::kFloat32, op.outputs[0].grid});
    ir::CallAttrs attrs{.kernel = kListKernel, .version = "1"};
    const std::int64_t points = op.space.block_count();
    std::vector<std::int64_t> left(static_cast<std::size_t>(points), 5);
    for (std::int64_t o = prng_.between(1, 3); o > 0; --o) {
      const Named source = !op.operands.empty() && prng_.chance(0.3) ? named(op.operands[0].array) : pick();
      const std::int64_t blocks = source.grid.block_count();
      op.operands.push_back(whole(source));
      ir::ExplicitMap& map = attrs.explicit_maps.emplace_back();
      map.offsets.push_back(0);
      for (std::int64_t p = 0; p < points; ++p) {
        std::int64_t& room = left[static_cast<std::size_t>(p)];
        const std::int64_t reads =
            blocks == 0 || prng_.chance(0.2) ? 0 : prng_.between(0, std::min<std::int64_t>(room, 3));
        room -= reads;
        for (std::int64_t r = 0; r < reads; ++r)
          map.blocks.push_back(r > 0 && prng_.chance(0.3) ? map.blocks.back() : prng_.between(0, blocks - 1));
        map.offsets.push_back(static_cast<std::uint32_t>(map.blocks.size()));
      }
    }
    op.attrs = std::move(attrs);
    finish(std::move(op));
  }

  const Named& named(std::uint64_t number) const {
    return *std::find_if(pool_.begin(), pool_.end(), [&](const Named& n) { return n.number == number; });
  }

  void fetch(const Named& named) {
    Op op;
    op.kind = OpKind::kFetch;
    op.space = named.grid;
    op.operands.push_back(whole(named));
    op.attrs = ir::FetchAttrs{};
    program_.ops.push_back(std::move(op));
    program_.fetches.push_back(named.number);
  }

  void one() {
    if (pool_.empty() || prng_.chance(0.2)) return source();
    if (mix_.pairs > 0 && prng_.chance(mix_.pairs)) return prng_.chance(0.4) ? listed() : pair();
    if (mix_.lists > 0 && prng_.chance(mix_.lists)) return listed();
    switch (prng_.below(6)) {
      case 0: return mix_.uploads ? provide() : map();
      case 1: return reduce();
      case 2: return matmul();
      case 3: return copy(pick());
      default: return map();
    }
  }

  Prng& prng_;
  std::uint64_t& next_;
  Mix mix_;
  std::vector<Named> pool_;
  Program program_;
};

}  // namespace

Program random_program(Prng& prng, const std::vector<Named>& known, std::uint64_t& next, const Mix& mix) {
  return Generator(prng, known, next, mix).run();
}

Program plain_program(std::int64_t blocks, std::uint64_t& next) {
  Program program;
  const ir::Grid grid = *ir::Grid::uniform({blocks}, {1});
  for (int i = 0; i < 2; ++i) {
    Op op;
    op.kind = OpKind::kMap;
    op.space = grid;
    op.outputs.push_back({next, DType::kFloat64, grid});
    ir::TapeInstr instr;
    instr.op = i == 0 ? ir::TapeOp::kUniform : ir::TapeOp::kLoad;
    if (i == 1) op.operands.push_back({next - 1, ir::View::identity(grid.shape())});
    op.attrs = ir::MapAttrs{{{instr}}};
    program.ops.push_back(std::move(op));
    program.holds.push_back(next);
    program.made.push_back({next, DType::kFloat64, grid});
    ++next;
  }
  return program;
}

}  // namespace tilewise::sim
