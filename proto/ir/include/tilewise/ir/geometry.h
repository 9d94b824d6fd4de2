// Geometry: everything about an op's dependencies that follows from its data, computed when needed and never stored
// per task. Forward: point -> what each step reads. Inverse: block -> which points read it. Both in closed form,
// because every index map is separable: one interval per dimension.
#pragma once
#include <tilewise/ir/op.h>

namespace tilewise::ir {

struct SourceArray {  // what is known about an operand's array
  DType dtype = DType::kFloat64;
  Grid grid;
};

// One read of one step of one task.
struct Read {
  std::uint8_t operand = 0;
  std::int64_t block = 0;   // C-order number in the operand's grid
  Box region;               // logical coordinates of the operand's view
};

class Geometry {
 public:
  // Verifies that the op can be executed with these operands: what the kernels rely on (kShapeMismatch and friends).
  // Lowered kinds only. `sources[i]` describes operand i.
  static Result<Geometry> make(const Op& op, std::vector<SourceArray> sources);

  const Shape& counts() const { return counts_; }            // of the iteration space
  std::int64_t point_count() const { return point_count_; }
  Index point(std::int64_t ordinal) const { return unravel(ordinal, counts_); }

  // Number of steps of a task; 1 for most kinds, k panels for kMatmul, parts for kCopy, kCombine and kReshape. At
  // least 1 (a task with nothing to read, e.g. a product over an empty k, still initialises its output).
  std::int64_t steps(const Index& point) const;
  // The reads of one step, in operand order. At most one block per operand; operands not read are left out.
  void reads(const Index& point, std::int64_t step, std::vector<Read>& out) const;  // clears `out` first
  // Step grid of kMatmul (k panels), else one step.
  const DimGrid& step_grid() const { return step_grid_; }

  // Points that read `block` of operand `operand`: a box of the iteration space (explicit maps: several), and how
  // many of a task's steps read it there.
  struct Users { Box points; std::int64_t steps_each = 1; };
  void users(int operand, std::int64_t block, std::vector<Users>& out) const;  // clears `out` first

  // Upper bounds, for admission and cost.
  std::int64_t output_bytes_bound() const;   // of one task, all outputs
  double flops(const Index& point) const;
  std::int64_t bytes_read(const Index& point) const;

 private:
  struct Impl;
  Shape counts_;
  std::int64_t point_count_ = 0;
  DimGrid step_grid_ = DimGrid::whole(1);
  // ... see geometry.cc for the representation
  enum class StepMode : std::uint8_t { kSingle, kPanels, kJointParts, kSequentialParts };
  StepMode mode_ = StepMode::kSingle;
  Op op_;
  std::vector<SourceArray> sources_;
  std::vector<OperandMap> maps_;
  std::vector<ExplicitMap> explicit_;
  struct Csr { std::vector<std::uint32_t> offsets, points; };
  std::vector<Csr> explicit_inverse_;

  Box region(int operand, const Index& point, std::int64_t step) const;
  std::int64_t parts(int operand, const Index& point) const;
};

// Strided placement of a logical region inside one block: offset of region.lo and strides, in elements.
struct BlockWindow { std::int64_t offset = 0; Strides strides; };
BlockWindow window(const View& view, const Grid& source, std::int64_t block, const Box& region);

}  // namespace tilewise::ir
