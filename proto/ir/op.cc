#include <tilewise/ir/donation.h>

namespace tilewise::ir {

OpAttrs::OpAttrs() = default;
OpAttrs::OpAttrs(const OpAttrs&) = default;
OpAttrs::OpAttrs(OpAttrs&&) noexcept = default;
OpAttrs& OpAttrs::operator=(const OpAttrs&) = default;
OpAttrs& OpAttrs::operator=(OpAttrs&&) noexcept = default;
OpAttrs::~OpAttrs() = default;

const Tape* tape_of(const Op& op) {
  if (const auto* map = std::get_if<MapAttrs>(&op.attrs)) return &map->tape;
  if (const auto* reduce = std::get_if<ReduceAttrs>(&op.attrs)) return &reduce->tape;
  return nullptr;
}
Tape* tape_of(Op& op) { return const_cast<Tape*>(tape_of(std::as_const(op))); }

bool may_overwrite(const Op& op, std::size_t o, std::size_t i, DType dtype, const Grid& grid) {
  return op.kind == OpKind::kMap && op.outputs[o].dtype == dtype && op.outputs[o].grid == grid &&
         op.operands[i].view.is_identity(grid.shape());
}

std::string title_of(const Op& op) {
  if (!op.label.empty()) return op.label;
  if (op.kind != OpKind::kCall) return std::string(name_of(op.kind));
  constexpr std::string_view kOurs = "tilewise.";
  const std::string& kernel = op.get<CallAttrs>().kernel;
  return kernel.starts_with(kOurs) ? kernel.substr(kOurs.size()) : kernel;
}

std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kMap: return "map";
    case OpKind::kReduce: return "reduce";
    case OpKind::kReduceBlocks: return "reduce_blocks";
    case OpKind::kCombine: return "combine";
    case OpKind::kMatmul: return "matmul";
    case OpKind::kMatmulPanels: return "matmul_panels";
    case OpKind::kCopy: return "copy";
    case OpKind::kReshape: return "reshape";
    case OpKind::kReadNpy: return "read_npy";
    case OpKind::kWriteNpy: return "write_npy";
    case OpKind::kCall: return "call";
    case OpKind::kFetch: return "fetch";
    case OpKind::kProvide: return "provide";
    case OpKind::kScan: return "scan";
    case OpKind::kKeep: return "keep";
  }
  return "unknown kind";
}

std::string_view name_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum: return "sum";
    case ReduceKind::kProd: return "prod";
    case ReduceKind::kMin: return "min";
    case ReduceKind::kMax: return "max";
    case ReduceKind::kAny: return "any";
    case ReduceKind::kAll: return "all";
    case ReduceKind::kArgMin: return "argmin";
    case ReduceKind::kArgMax: return "argmax";
    case ReduceKind::kMoments: return "moments";
  }
  return "unknown reduction";
}

}  // namespace tilewise::ir
