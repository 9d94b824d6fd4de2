// One verification; index maps and what moves elements are in a source of their own.
#pragma once
#include <tilewise/ir/verify.h>

namespace tilewise::ir {

// Of a DimMap: sums stay inside 64 bits, products inside 128.
constexpr std::int64_t kMaxFactor = std::int64_t{1} << 61;

inline std::string operand_name(std::size_t i) { return "operand " + std::to_string(i); }

class Verifier {
 public:
  Verifier(const Op& op, std::span<const SourceArray> sources, Stage stage)
      : op_(op), sources_(sources), stage_(stage) {}

  Status run() const;

 private:
  Error fail(Errc code, const std::string& what) const {
    return error(code, std::string(name_of(op_.kind)) + ": " + what);
  }
  Error mismatch(const std::string& what) const { return fail(Errc::kShapeMismatch, what); }

  Status lowered_only(Status s) const {
    if (stage_ != Stage::kLowered) return fail(Errc::kUnsupported, "this kind is made by the planner only");
    return s;
  }
  Status user_only(Status s) const {
    if (stage_ != Stage::kSubmitted) return fail(Errc::kUnsupported, "this kind must be lowered first");
    return s;
  }
  // Errors from below, with the op's name before them.
  Status in(const std::string& where, Status s) const {
    if (s) return s;
    return fail(s.error().code, where + ": " + s.error().message);
  }

  Status array(const std::string& name, DType dtype, const Grid& grid) const;
  Status common() const;
  bool attrs_fit() const;
  Status expect(std::size_t operands, std::size_t outputs) const;
  const Shape& logical(std::size_t i) const { return op_.operands[i].view.shape; }
  // Operands of elementwise kinds show the whole space each.
  Status elementwise_operands() const;
  Status output_is(std::size_t i, DType dtype, const Grid& grid) const;
  Status tape(const Tape& t) const;

  Status map() const;
  Status reduce() const;
  Status combine() const;
  Status scan() const;
  // first: 1 where the output has a dimension of panels before (M, N).
  Status matmul(int first) const;

  Status maps(const std::vector<OperandMap>& all) const;
  Status copy() const;
  // Each region of an array of this shape, once clipped, is as large as the output block.
  Status copy_fills(const OperandMap& map, const Shape& shape) const;
  Status copy_windows() const;
  Status tiles(const OperandMap& first, const Shape& shape) const;
  Status reshape() const;

  Status npy() const;
  Status read_npy() const;
  Status write_npy() const;
  Status call() const;
  Status sweep(const std::vector<OperandMap>& all) const;  // kStep dimensions of a call
  Status explicit_maps() const;
  Status fetch() const;
  Status provide() const;

  const Op& op_;
  std::span<const SourceArray> sources_;
  Stage stage_;
};

}  // namespace tilewise::ir
