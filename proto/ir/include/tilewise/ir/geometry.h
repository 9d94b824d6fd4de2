// Geometry: everything about an op's dependencies that follows from its data, computed when needed and never stored
// per task. Forward: point -> what each step reads. Inverse: block -> which points read it. Both in closed form,
// because every index map is separable, one interval per dimension, or (kReshape) an interval of both sides' C order.
#pragma once
#include <tilewise/ir/op.h>
#include <tilewise/ir/runs.h>

namespace tilewise::ir {

struct SourceArray {  // what is known about an operand's array
  DType dtype = DType::kFloat64;
  Grid grid;
  friend bool operator==(const SourceArray&, const SourceArray&) = default;
};

// One read of one step of one task.
struct Read {
  std::uint8_t operand = 0;
  std::int64_t block = 0;  // C-order number in the operand's grid
  Box region;              // logical coordinates of the operand's view
};

class Geometry {
 public:
  // Verifies that the op can be executed with these operands: what the kernels rely on (kShapeMismatch and friends).
  // Lowered kinds only. `sources[i]` describes operand i. Where a step would read two blocks of one operand, the
  // error says so: lower() gathers such operands first.
  static Result<Geometry> make(const Op& op, std::vector<SourceArray> sources);

  const Shape& counts() const { return counts_; }  // of the iteration space
  std::int64_t point_count() const { return point_count_; }
  Index point(std::int64_t ordinal) const { return unravel(ordinal, counts_); }

  // Number of steps of a task; 1 for most kinds, k panels for kMatmul and those of its part for kMatmulPanels, parts for
  // kCopy, kCombine and kReshape. At least 1 (a task with nothing to read, e.g. a product over an empty k, still initialises its output).
  std::int64_t steps(const Index& point) const;
  // The reads of one step, in operand order. At most one block per operand (explicit maps: several, in their order);
  // operands not read are left out.
  void reads(const Index& point, std::int64_t step, std::vector<Read>& out) const;  // clears `out` first
  // An explicit index map: a step reads any number of blocks of an operand, in the order of operands and lists.
  bool lists_blocks() const { return !explicit_.empty(); }

  // Panels of k of kMatmul, kMatmulPanels and calls that step, else one step.
  const DimGrid& step_grid() const { return step_grid_; }

  // Points that read `block` of operand `operand`: a box of the iteration space (explicit maps, kReshape: several), and how
  // often a task reads it there: once in each of so many steps or, by an explicit map, so often in its one step.
  struct Users {
    Box points;
    std::int64_t steps_each = 1;
  };
  void users(int operand, std::int64_t block, std::vector<Users>& out) const;  // clears `out` first

  // Upper bounds, for admission and cost.
  std::int64_t output_bytes_bound() const;  // of one task, all outputs
  double flops(const Index& point) const;
  std::int64_t bytes_read(const Index& point) const;

 private:
  enum class StepMode : std::uint8_t {
    kSingle,           // one step reads everything
    kPanels,           // one step a block of step_grid_, or of the point's part of it
    kJointParts,       // step s reads index s of the region along joint_dim_, of every operand
    kSequentialParts,  // each step reads one part of one operand
    kRuns,             // each step reads one run of the operand's C order, where both sides are cut into runs
  };
  struct Span {
    std::int64_t lo = 0, hi = 0;
  };
  // One logical dimension of one operand.
  struct DimAccess {
    DimMap map;
    Walk walk;
    std::int64_t block_stride = 0;  // of its source dimension in the numbering of blocks; 0 where it repeats
    bool plain = false;             // the region is the span itself
    bool direct = false;            // and the span is a part: the point's index is the part's number
  };
  struct SourceSlot {        // one source dimension, for the inverse
    std::int64_t count = 0;  // blocks
    int dim = -1;            // logical dimension, or
    std::int64_t fixed = 0;  // the only block
  };
  struct Access {
    std::vector<DimAccess> dims;
    PerDim<SourceSlot> slots;
    std::int64_t base = 0;  // block number contributed by constant source dimensions
    std::int64_t element_bytes = 0;
  };
  // Explicit maps: both directions, each in CSR form. The inverse lists (block, point) by block, each pair once.
  struct Explicit {
    ExplicitMap reads;
    std::vector<std::int64_t> blocks;
    std::vector<std::uint32_t> points;
  };

  struct RunPair {  // of kReshape
    Runs<Walk> from;
    Runs<DimGrid> to;
  };

  void set_maps(const Op& op);
  Status set_runs(const Op& op);
  Status set_step_grid();
  Status split_steps();
  std::int64_t first_step(const Index& point) const;
  std::int64_t step_count(const Index& point) const;
  Status check_one_part(const Op& op) const;
  Span dim_span(const DimAccess& a, const Index& point, std::int64_t step) const;
  Span task_span(const DimAccess& a, const Index& point) const;  // over all steps
  std::int64_t parts(const Access& a, const Index& point) const;
  bool read_whole(std::size_t operand, const Index& point, std::int64_t step, Read& read) const;
  void read_part(const Index& point, std::int64_t step, std::vector<Read>& out) const;
  void read_explicit(const Index& point, std::vector<Read>& out) const;
  void users_explicit(int operand, std::int64_t block, std::vector<Users>& out) const;
  void users_by_part(std::int64_t lo, std::int64_t hi, std::vector<Users>& out) const;
  std::int64_t run_steps(const Index& point) const;
  void read_run(const Index& point, std::int64_t step, std::vector<Read>& out) const;
  void run_users(std::int64_t block, std::vector<Users>& out) const;
  bool narrow(Users& users, const DimAccess& a, std::int64_t part) const;

  Shape counts_;
  std::int64_t point_count_ = 0;
  DimGrid step_grid_ = DimGrid::whole(1);
  bool split_ = false;         // kMatmulPanels: dimension 0 of the space is k, in parts of whole steps
  bool split_evenly_ = false;  // into one step each
  StepMode mode_ = StepMode::kSingle;
  int joint_dim_ = -1;
  std::optional<RunPair> runs_;  // where there are points
  Grid space_;
  std::vector<Access> access_;      // by operand
  std::vector<Explicit> explicit_;  // by operand, or empty
  std::vector<Grid> explicit_grids_;
  std::int64_t output_bytes_ = 0;
  double flops_per_element_ = 0, flops_per_point_ = 0;
  bool flops_of_region_ = false;  // elements are those read from operand 0, not those of the point
};

// Strided placement of a logical region inside one block: offset of region.lo and strides, in elements.
struct BlockWindow {
  std::int64_t offset = 0;
  Strides strides;
};
BlockWindow window(const View& view, const Grid& source, std::int64_t block, const Box& region);

// Where kCopy puts a part: the box that `region` of operand `operand` fills in the output block of the point with box
// `span`, counted from the block's low corner. One operand fills the whole block with its clipped region (so
// overlapping windows unroll); several lie where their maps say, disjoint (concat).
Box copy_destination(const Op& op, const Box& span, int operand, const Box& region);

// The span of a DimMap of kind kSpan before clipping: [floor(lo*mul/div) - before, ceil(hi*mul/div) + after).
void apply_span(const DimMap& map, std::int64_t& lo, std::int64_t& hi);

}  // namespace tilewise::ir
