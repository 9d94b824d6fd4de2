// The state of one lowering; each family of kinds is in a source of its own.
#pragma once
#include "infer_common.h"

#include <tilewise/ir/lower.h>

namespace tilewise::ir {

class Lowering {
 public:
  Lowering(const Op& op, std::span<const SourceArray> sources, const NewArray& new_array)
      : op_(op), sources_(sources.begin(), sources.end()), new_array_(new_array) {}

  Result<std::vector<Op>> run();

 private:
  // A new op that goes where the original does.
  Op part(OpKind kind, OpAttrs attrs, Grid space) const {
    Op op;
    op.kind = kind;
    op.attrs = std::move(attrs);
    op.space = std::move(space);
    op.hint = op_.hint;
    op.label = op_.label;
    return op;
  }
  Walk walk(std::size_t i, int d) const { return Walk::of(op_.operands[i].view, sources_[i].grid, d); }

  // Copies what operand i shows into an array of its own, block p from the region of `space` block p widened by its map;
  // `cuts` are those of the new array. Dimensions that repeat are not copied but repeat again. Same sizes: no windows.
  Status gather(std::size_t i, const std::vector<DimGrid>& space, const std::vector<DimGrid>& cuts,
                const OperandMap& windows);
  Status gather(std::size_t i, const std::vector<DimGrid>& cuts);

  // Every operand shows the space; gathers those whose blocks do not hold its blocks.
  Status align();
  Status elementwise();

  // The reduction of nothing, or a position among one: the same everywhere.
  Status fill(std::int64_t value);
  Status reduce();
  // Moments over no axes: each element by itself.
  Status moments_of_elements(const Tape& tape);
  // Outputs of one stage of a reduction. The last stage has the original names: its last array, and of moments the sum where
  // that is wanted.
  std::vector<OutputSpec> partials(const std::vector<DType>& dtypes, const Grid& grid, bool last);
  // Levels of the tree over the partials that the op before wrote.
  void combine(ReduceKind kind, const std::vector<int>& levels, std::vector<DimGrid> dims,
               const std::vector<DType>& dtypes, bool last_is_answer, std::int64_t fan_in);

  Status scan();
  // The ops that scan what `from` shows into `out`, whose cuts are those of the space.
  void scan_blocks(const ScanAttrs& a, const Operand& from, const OutputSpec& out);
  // The same elements in other blocks.
  Op recut(const Operand& from, const OutputSpec& to) const;

  // Has one of the last two dimensions unit stride in every block, and the other a positive one? Then BLAS reads it in place.
  // What repeats is left to the kernel too: gathering would not change it.
  static bool strided(const View& v, const Grid& source);
  Status matmul();
  // Panels of a gathered operand: its own, or the other's where it repeats along k and has none.
  DimGrid inner_cuts(std::size_t i, int inner) const;

  Status copy();
  Status reshape();
  Status call();
  // Gathers an operand of a call whose regions cross blocks; its map then names the gathered blocks.
  Status unroll(std::size_t i, OperandMap& maps);
  Status unroll_dim(std::size_t i, int d, std::int64_t n, const DimMap& map, DimMap& window,
                    std::vector<DimGrid>& space, std::vector<DimGrid>& cuts);

  Op op_;
  std::vector<SourceArray> sources_;
  const NewArray& new_array_;
  std::vector<Op> out_;
};

}  // namespace tilewise::ir
