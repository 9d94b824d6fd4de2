#include "verifier.h"

namespace tilewise::ir {
namespace {

constexpr std::size_t kMaxHintDevices = 65'536;

bool valid(DType t) { return static_cast<int>(t) < kDTypeCount; }

}  // namespace

Status Verifier::run() const {
  TW_TRY(common());
  switch (op_.kind) {
    case OpKind::kMap: return map();
    case OpKind::kReduce: return user_only(reduce());
    case OpKind::kReduceBlocks: return lowered_only(reduce());
    case OpKind::kCombine: return lowered_only(combine());
    case OpKind::kMatmul: return matmul(0);
    case OpKind::kMatmulPanels: return lowered_only(matmul(1));
    case OpKind::kCopy: return copy();
    case OpKind::kReshape: return reshape();
    case OpKind::kReadNpy: return read_npy();
    case OpKind::kWriteNpy: return write_npy();
    case OpKind::kCall: return call();
    case OpKind::kFetch: return fetch();
    case OpKind::kProvide: return provide();
    case OpKind::kScan: return scan();
    case OpKind::kKeep: return lowered_only(fetch());
  }
  return fail(Errc::kInvalidArgument, "unknown kind");
}

Status Verifier::array(const std::string& name, DType dtype, const Grid& grid) const {
  if (!valid(dtype)) return fail(Errc::kInvalidArgument, name + ": unknown dtype");
  TW_TRY(in(name, grid.verify()));
  if (*checked_volume(grid.shape()) > INT64_MAX / static_cast<std::int64_t>(size_of(dtype)))
    return fail(Errc::kOutOfRange, name + ": more than 2^63 - 1 bytes");
  return {};
}

Status Verifier::common() const {
  const bool any_number = op_.kind == OpKind::kCopy && stage_ == Stage::kSubmitted;
  if (op_.operands.size() > (any_number ? static_cast<std::size_t>(limits::kMaxOperands) : kMaxStepOperands))
    return fail(Errc::kLimitExceeded, std::to_string(op_.operands.size()) + " operands");
  if (op_.outputs.size() > static_cast<std::size_t>(limits::kMaxOutputs))
    return fail(Errc::kLimitExceeded, std::to_string(op_.outputs.size()) + " outputs");
  if (op_.label.size() > limits::kMaxNameBytes) return fail(Errc::kLimitExceeded, "label too long");
  if (op_.hint.devices.size() > kMaxHintDevices)
    return fail(Errc::kLimitExceeded, "too many devices in a hint");
  for (const DeviceId device : op_.hint.devices)
    if (!device) return fail(Errc::kInvalidArgument, "device 0 in a hint");
  if (!op_.hint.parts.empty() || op_.hint.copies != 1) {
    std::int64_t devices = op_.hint.copies;
    for (const std::int32_t parts : op_.hint.parts) {
      if (parts < 1 || devices < 1 || devices > static_cast<std::int64_t>(kMaxHintDevices))
        return fail(Errc::kInvalidArgument, "parts of a hint");
      devices *= parts;
    }
    if (devices != static_cast<std::int64_t>(op_.hint.devices.size()))
      return fail(Errc::kInvalidArgument, "a hint's parts and copies do not make up its devices");
  }
  if (sources_.size() != op_.operands.size())
    return fail(Errc::kInvalidArgument, std::to_string(sources_.size()) + " arrays for " +
                                            std::to_string(op_.operands.size()) + " operands");
  if (!attrs_fit()) return fail(Errc::kInvalidArgument, "attributes of another kind");
  TW_TRY(in("iteration space", op_.space.verify()));
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    TW_TRY(array(operand_name(i), sources_[i].dtype, sources_[i].grid));
    TW_TRY(in(operand_name(i), op_.operands[i].view.verify(sources_[i].grid.shape())));
  }
  for (std::size_t i = 0; i < op_.outputs.size(); ++i)
    TW_TRY(array("output " + std::to_string(i), op_.outputs[i].dtype, op_.outputs[i].grid));
  return {};
}

bool Verifier::attrs_fit() const {
  switch (op_.kind) {
    case OpKind::kMap: return std::holds_alternative<MapAttrs>(op_.attrs);
    case OpKind::kReduce:
    case OpKind::kReduceBlocks: return std::holds_alternative<ReduceAttrs>(op_.attrs);
    case OpKind::kCombine: return std::holds_alternative<CombineAttrs>(op_.attrs);
    case OpKind::kMatmul:
    case OpKind::kMatmulPanels: return std::holds_alternative<MatmulAttrs>(op_.attrs);
    case OpKind::kCopy: return std::holds_alternative<CopyAttrs>(op_.attrs);
    case OpKind::kReshape: return std::holds_alternative<ReshapeAttrs>(op_.attrs);
    case OpKind::kReadNpy:
    case OpKind::kWriteNpy: return std::holds_alternative<NpyAttrs>(op_.attrs);
    case OpKind::kCall: return std::holds_alternative<CallAttrs>(op_.attrs);
    case OpKind::kFetch:
    case OpKind::kKeep:
    case OpKind::kProvide: return std::holds_alternative<FetchAttrs>(op_.attrs);
    case OpKind::kScan: return std::holds_alternative<ScanAttrs>(op_.attrs);
  }
  return false;
}

Status Verifier::expect(std::size_t operands, std::size_t outputs) const {
  if (op_.operands.size() != operands)
    return mismatch(std::to_string(op_.operands.size()) + " operands, not " + std::to_string(operands));
  if (op_.outputs.size() != outputs)
    return mismatch(std::to_string(op_.outputs.size()) + " outputs, not " + std::to_string(outputs));
  return {};
}

Status Verifier::elementwise_operands() const {
  for (std::size_t i = 0; i < op_.operands.size(); ++i)
    if (logical(i) != op_.space.shape())
      return mismatch(operand_name(i) + " of shape " + to_string(logical(i)) + " in a space of shape " +
                      to_string(op_.space.shape()));
  return {};
}

Status Verifier::output_is(std::size_t i, DType dtype, const Grid& grid) const {
  const OutputSpec& out = op_.outputs[i];
  if (out.dtype != dtype)
    return mismatch("output " + std::to_string(i) + " is " + std::string(name_of(out.dtype)) + ", not " +
                    std::string(name_of(dtype)));
  if (out.grid != grid)
    return mismatch("output " + std::to_string(i) + " is cut as " + to_string(out.grid) + ", not as " +
                    to_string(grid));
  return {};
}

Status Verifier::tape(const Tape& t) const {
  std::vector<DType> dtypes;
  for (const SourceArray& s : sources_) dtypes.push_back(s.dtype);
  return in("tape", t.verify(static_cast<int>(dtypes.size()), dtypes, op_.space.rank()));
}

Status Verifier::map() const {
  const Tape& t = op_.get<MapAttrs>().tape;
  TW_TRY(expect(op_.operands.size(), t.output_count()));
  TW_TRY(elementwise_operands());
  TW_TRY(tape(t));
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) TW_TRY(output_is(i, t.result(i), op_.space));
  return {};
}

Status Verifier::reduce() const {
  const auto& a = op_.get<ReduceAttrs>();
  const bool lowered = op_.kind == OpKind::kReduceBlocks;
  if (a.kind > ReduceKind::kMoments) return fail(Errc::kInvalidArgument, "unknown reduction");
  if (a.axes >> op_.space.rank() != 0) return fail(Errc::kInvalidArgument, "axes beyond the rank");
  const bool with_sum = a.kind == ReduceKind::kMoments && !lowered && op_.outputs.size() == 2;
  TW_TRY(expect(op_.operands.size(), lowered ? parts_of(a.kind) : with_sum ? 2 : 1));
  TW_TRY(elementwise_operands());
  TW_TRY(tape(a.tape));
  if (a.tape.output_count() != 1)
    return mismatch("a tape of " + std::to_string(a.tape.output_count()) + " outputs; one is reduced");
  const std::optional<DType> result = reduced_dtype(a.kind, a.tape.result());
  if (!result)
    return mismatch(std::string(name_of(a.kind)) + " does not take " + std::string(name_of(a.tape.result())));
  std::vector<DimGrid> dims;
  for (int d = 0; d < op_.space.rank(); ++d) {
    const DimGrid& cut = op_.space.dim(d);
    const bool reduced = a.axes >> d & 1u;
    const bool empty =
        cut.extent() == 0 && (a.kind == ReduceKind::kMin || a.kind == ReduceKind::kMax || is_arg(a.kind));
    if (reduced && empty && !lowered)
      return fail(Errc::kInvalidArgument, std::string(name_of(a.kind)) + " over axis " + std::to_string(d) +
                                              " of extent 0 has no value");
    dims.push_back(!reduced ? cut : lowered ? *DimGrid::uniform(cut.count(), 1) : DimGrid::whole(1));
  }
  const Grid grid(std::move(dims));
  if (!lowered) {
    TW_TRY(output_is(0, *result, grid));
    return with_sum ? output_is(1, a.tape.result(), grid) : Status{};
  }
  const std::vector<DType> parts = part_dtypes(a.kind, a.tape.result());
  for (std::size_t i = 0; i < parts.size(); ++i) TW_TRY(output_is(i, parts[i], grid));
  return {};
}

Status Verifier::combine() const {
  const auto& a = op_.get<CombineAttrs>();
  if (a.kind > ReduceKind::kMoments) return fail(Errc::kInvalidArgument, "unknown reduction");
  const std::size_t arrays = parts_of(a.kind);
  TW_TRY(expect(arrays, arrays));
  if (a.axis < 0 || a.axis >= op_.space.rank() || a.fan_in < 2 || a.fan_in > limits::kMaxExplicitCuts)
    return fail(Errc::kInvalidArgument,
                "axis " + std::to_string(a.axis) + ", fan-in " + std::to_string(a.fan_in));
  for (std::size_t i = 0; i < arrays; ++i) {
    if (static_cast<int>(logical(i).size()) != op_.space.rank() || logical(i) != logical(0))
      return mismatch(operand_name(i) + " of shape " + to_string(logical(i)));
    for (int d = 0; d < op_.space.rank(); ++d) {
      const std::int64_t n = logical(i)[d];
      const std::int64_t want = d == a.axis ? ceil_div(n, a.fan_in) : n;
      if (op_.space.dim(d).extent() != want)
        return mismatch(operand_name(i) + " of shape " + to_string(logical(i)) + " in a space of shape " +
                        to_string(op_.space.shape()));
    }
    TW_TRY(output_is(i, sources_[i].dtype, op_.space));
  }
  if (op_.space.dim(a.axis) != *DimGrid::uniform(op_.space.dim(a.axis).extent(), 1))
    return mismatch("the combined axis must be cut into single elements");
  const DType of = sources_[a.kind == ReduceKind::kMoments ? kMomentSum : 0].dtype;
  if (!reduced_dtype(a.kind, of)) return mismatch("partials of the wrong dtype");
  const std::vector<DType> dtypes = part_dtypes(a.kind, of);
  for (std::size_t i = 0; i < arrays; ++i)
    if (sources_[i].dtype != dtypes[i])
      return mismatch(operand_name(i) + " must be " + std::string(name_of(dtypes[i])));
  return {};
}

Status Verifier::scan() const {
  const auto& a = op_.get<ScanAttrs>();
  const bool carried = op_.operands.size() > 1;
  TW_TRY(expect(carried ? 2 : 1, 1));
  if ((a.kind != ReduceKind::kSum && a.kind != ReduceKind::kProd) || a.mode > ScanMode::kTotal)
    return fail(Errc::kInvalidArgument, "neither of sums nor of products, or of an unknown mode");
  if (a.axis < 0 || a.axis >= op_.space.rank())
    return fail(Errc::kInvalidArgument, "axis " + std::to_string(a.axis));
  if (stage_ == Stage::kSubmitted && (carried || a.mode != ScanMode::kInclusive))
    return fail(Errc::kUnsupported, "carries, totals and exclusive scans are made by the planner only");
  if (carried && a.mode == ScanMode::kTotal) return fail(Errc::kInvalidArgument, "totals have no carry");
  const DType t = sources_[0].dtype;
  if (!reduced_dtype(a.kind, t)) return mismatch("no scans of " + std::string(name_of(t)));
  if (logical(0) != op_.space.shape())
    return mismatch("operand of shape " + to_string(logical(0)) + " in a space of shape " +
                    to_string(op_.space.shape()));
  std::vector<DimGrid> dims = op_.space.dims();
  dims[static_cast<std::size_t>(a.axis)] = *DimGrid::uniform(op_.space.dim(a.axis).count(), 1);
  const Grid totals(std::move(dims));
  if (carried && (sources_[1].dtype != t || logical(1) != totals.shape()))
    return mismatch("a carry of " + std::string(name_of(sources_[1].dtype)) + " " + to_string(logical(1)));
  return output_is(0, t, a.mode == ScanMode::kTotal ? totals : op_.space);
}

Status Verifier::matmul(int first) const {
  TW_TRY(expect(2, 1));
  const Shape &left = logical(0), &right = logical(1);
  const std::string shapes = to_string(left) + " x " + to_string(right);
  if (left.size() < 2 || left.size() != right.size() || (first == 1 && left.size() > 2))
    return mismatch(shapes + ": operands must be matrices, or stacks of them of one rank");
  const int stack = static_cast<int>(left.size()) - 2;
  const std::int64_t parts = op_.get<MatmulAttrs>().k_parts;
  if (parts < 0 || parts > (first == 0 && stack == 0 ? kMaxKParts : 1))
    return fail(Errc::kOutOfRange, "k in " + std::to_string(parts) + " parts");
  if (op_.get<MatmulAttrs>().tf32 && sources_[0].dtype != DType::kFloat32)
    return fail(Errc::kInvalidArgument, "tf32 of " + std::string(name_of(sources_[0].dtype)));
  const std::int64_t m = left[stack], k = left[stack + 1], n = right[stack + 1];
  if (k != right[stack])
    return mismatch(shapes + ": inner extents " + std::to_string(k) + " and " + std::to_string(right[stack]) +
                    " differ");
  if (sources_[0].dtype != sources_[1].dtype || !multiplies(sources_[0].dtype))
    return mismatch("operands must share a dtype that is multiplied");
  bool fits = op_.space.rank() == first + stack + 2;
  for (int d = 0; fits && d < stack; ++d) {
    const std::int64_t extent = op_.space.dim(d).extent();
    fits = extent == left[d] && extent == right[d];
  }
  if (!fits || op_.space.dim(first + stack).extent() != m || op_.space.dim(first + stack + 1).extent() != n ||
      (first == 1 && op_.space.dim(0).extent() != k))
    return mismatch(shapes + " in a space of shape " + to_string(op_.space.shape()));
  std::vector<DimGrid> dims = op_.space.dims();
  if (first == 1) dims[0] = *DimGrid::uniform(dims[0].count(), 1);
  return output_is(0, product_dtype(sources_[0].dtype), Grid(std::move(dims)));
}

Status Verifier::npy() const {
  const auto& a = op_.get<NpyAttrs>();
  if (a.path.empty() || a.path.size() > limits::kMaxPathBytes || a.path.find('\0') != std::string::npos)
    return fail(Errc::kInvalidArgument, "a path of " + std::to_string(a.path.size()) + " bytes");
  if (a.data_offset < 0 || a.data_offset > kMaxFactor) return fail(Errc::kOutOfRange, "data offset");
  return {};
}

Status Verifier::read_npy() const {
  TW_TRY(expect(0, 1));
  TW_TRY(npy());
  return output_is(0, op_.outputs[0].dtype, op_.space);
}

Status Verifier::write_npy() const {
  TW_TRY(expect(2, 1));
  TW_TRY(npy());
  if (op_.get<NpyAttrs>().fortran_order) return fail(Errc::kUnsupported, "files are written in C order");
  if (sources_[1].dtype != DType::kInt64 || sources_[1].grid.shape() != Shape{1})
    return mismatch("what file was begun is one int64");
  TW_TRY(elementwise_operands());
  std::vector<DimGrid> dims;
  for (const DimGrid& d : op_.space.dims()) dims.push_back(*DimGrid::uniform(d.count(), 1));
  return output_is(0, DType::kInt64, Grid(std::move(dims)));
}

Status Verifier::fetch() const {
  TW_TRY(expect(1, 0));
  if (!op_.operands[0].view.is_identity(sources_[0].grid.shape()))
    return fail(Errc::kUnsupported, "a view must be materialised before it is fetched");
  if (op_.space != sources_[0].grid) return mismatch("the iteration space must be the array's own grid");
  return {};
}

Status Verifier::provide() const {
  TW_TRY(expect(0, 1));
  return output_is(0, op_.outputs[0].dtype, op_.space);
}

std::optional<DType> reduced_dtype(ReduceKind kind, DType of) {
  const bool number = of != DType::kBool && !is_narrow(of), ordered = number && !is_complex(of);
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProd: return number ? std::optional(of) : std::nullopt;
    case ReduceKind::kMin:
    case ReduceKind::kMax: return ordered ? std::optional(of) : std::nullopt;
    case ReduceKind::kAny:
    case ReduceKind::kAll: return of == DType::kBool ? std::optional(of) : std::nullopt;
    case ReduceKind::kArgMin:
    case ReduceKind::kArgMax: return ordered ? std::optional(DType::kInt64) : std::nullopt;
    case ReduceKind::kMoments:
      return of == DType::kFloat32 || of == DType::kFloat64 ? std::optional(DType::kFloat64) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<DType> part_dtypes(ReduceKind kind, DType of) {
  if (is_arg(kind)) return {of, DType::kInt64};
  if (kind == ReduceKind::kMoments) return {DType::kFloat64, of, DType::kFloat64, DType::kFloat64};
  return {*reduced_dtype(kind, of)};
}

bool multiplies(DType t) { return t != DType::kBool && t != DType::kUInt64 && (!is_narrow(t) || is_half(t)); }
DType product_dtype(DType t) { return is_half(t) ? DType::kFloat32 : t; }

Status verify(const Op& op, std::span<const SourceArray> sources, Stage stage) {
  return Verifier(op, sources, stage).run();
}

}  // namespace tilewise::ir
