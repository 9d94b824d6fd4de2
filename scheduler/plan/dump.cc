#include <tilewise/plan/plan.h>

#include <algorithm>

namespace tilewise::plan {
namespace {

void append_view(std::string& out, const ir::View& view) {
  bool plain = view.source.size() == view.shape.size();
  for (std::size_t s = 0; plain && s < view.source.size(); ++s) {
    plain =
        view.source[s].dim == static_cast<int>(s) && view.source[s].start == 0 && view.source[s].step == 1;
  }
  if (plain) return;
  out += '[';
  for (std::size_t s = 0; s < view.source.size(); ++s) {
    const ir::SourceDim& d = view.source[s];
    if (s > 0) out += ", ";
    out += std::to_string(d.start);
    if (d.dim < 0) continue;
    out += d.step < 0 ? " - " : " + ";
    if (d.step != 1 && d.step != -1) out += std::to_string(d.step < 0 ? -d.step : d.step) + "*";
    out += 'i';
    out += std::to_string(static_cast<int>(d.dim));
  }
  out += ']';
}

void append_tape(std::string& out, const ir::Tape& tape) {
  const std::string text = ir::to_string(tape);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) out.append("    ").append(text, at, end - at).append("\n");
    at = end + 1;
  }
}

}  // namespace

namespace {

// Products that may round more than their dtype does say so (D9).
std::string_view mark_of(const ir::Op& op) {
  const auto* matmul = std::get_if<ir::MatmulAttrs>(&op.attrs);
  return matmul != nullptr && matmul->tf32 ? " tf32" : "";
}

}  // namespace

std::string describe(const ir::Op& op, std::size_t position) {
  std::string out = "op " + std::to_string(position) + " (" + std::string(ir::name_of(op.kind));
  out += mark_of(op);
  if (!op.label.empty()) out += " '" + op.label.substr(0, limits::kMaxNameBytes) + "'";
  return out + ")";
}

std::string dump(std::span<const ir::Op> ops) {
  std::string out;
  for (const ir::Op& op : ops) {
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      out += (i > 0 ? ", %" : "%") + std::to_string(op.outputs[i].array);
    }
    if (!op.outputs.empty()) out += " = ";
    out += ir::name_of(op.kind);
    out += mark_of(op);
    if (op.kind == ir::OpKind::kReduce || op.kind == ir::OpKind::kReduceBlocks) {
      out += std::string(" ") + std::string(ir::name_of(op.get<ir::ReduceAttrs>().kind));
    }
    if (op.kind == ir::OpKind::kCombine) {
      out += std::string(" ") + std::string(ir::name_of(op.get<ir::CombineAttrs>().kind));
    }
    if (op.kind == ir::OpKind::kScan) {
      out += std::string(" ") + std::string(ir::name_of(op.get<ir::ScanAttrs>().kind));
    }
    out += '(';
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      out += (i > 0 ? ", %" : "%") + std::to_string(op.operands[i].array);
      append_view(out, op.operands[i].view);
    }
    out += ") " + ir::to_string(op.space);
    if (!op.hint.devices.empty()) out += " on " + std::to_string(op.hint.devices.size()) + " given devices";
    if (!op.label.empty()) out += " '" + op.label + "'";
    out += '\n';
    if (const auto* map = std::get_if<ir::MapAttrs>(&op.attrs)) append_tape(out, map->tape);
    if (const auto* reduce = std::get_if<ir::ReduceAttrs>(&op.attrs)) append_tape(out, reduce->tape);
  }
  return out;
}

}  // namespace tilewise::plan
