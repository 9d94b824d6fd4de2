#include "passes.h"
#include "sources.h"

#include <tilewise/ir/verify.h>

#include <algorithm>

namespace tilewise::plan {
namespace {

constexpr std::string_view kNames[] = {"dead-code",      "common-subexpressions", "shared-moments",
                                       "fusion",         "shared-tapes",          "lowering",
                                       "shared-gathers", "memory-order"};

Status verify(const Graph& graph, ir::Stage stage, ir::GeometryCache& geometries) {
  const Sources sources(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op& op = graph.ops[i];
    auto of = sources.of(op);
    const auto failed = [&](const Error& e) { return error(e.code, describe(op, i) + ": " + e.message); };
    if (!of) return failed(of.error());
    for (const ir::Operand& operand : op.operands) {
      const auto* producer = sources.producer(operand.array);
      if (producer != nullptr && producer->op >= i) {
        return failed(error(Errc::kInvalidArgument,
                            "reads array " + std::to_string(operand.array) + " before it is made"));
      }
    }
    if (stage == ir::Stage::kLowered) {
      if (auto made = geometries.of(op, std::move(*of)); !made) return failed(made.error());
    } else if (const Status status = ir::verify(op, *of, stage); !status) {
      return failed(status.error());
    }
  }
  return {};
}

}  // namespace

std::span<const std::string_view> pass_names() { return kNames; }

Status check_off(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (name != kPlacedPass && std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
      std::string known(kPlacedPass);
      for (const std::string_view pass : kNames) known += ", " + std::string(pass);
      return error(Errc::kInvalidArgument, "no pass is called '" + name + "'; there are " + known);
    }
  }
  if (std::find(names.begin(), names.end(), kNames[5]) != names.end()) {
    return error(Errc::kInvalidArgument, "workers cannot do without pass 'lowering'");
  }
  return {};
}

Result<PlannedGraph> run_passes(Graph graph, const NewArray& new_array, const Options& options) {
  TW_TRY(check_off(options.off));
  const auto on = [&](std::string_view name) {
    return std::find(options.off.begin(), options.off.end(), name) == options.off.end();
  };
  ir::GeometryCache own;
  ir::GeometryCache& geometries = options.geometries != nullptr ? *options.geometries : own;
  TW_TRY(verify(graph, ir::Stage::kSubmitted, geometries));
  PlannedGraph out;
  const auto check = [&](std::string_view name, ir::Stage stage) -> Status {
    if (const Status status = verify(graph, stage, geometries); !status)
      return error(Errc::kInternal, "after pass '" + std::string(name) + "': " + status.error().message);
    return {};
  };
  const auto ran = [&](std::string_view name, ir::Stage stage) -> Status {
    if (options.verify_each) TW_TRY(check(name, stage));
    out.passes.push_back({name, graph.ops.size(), options.dump ? dump(graph.ops) : std::string()});
    return {};
  };
  if (on(kNames[0])) {
    remove_dead_code(graph);
    TW_TRY(ran(kNames[0], ir::Stage::kSubmitted));
  }
  if (on(kNames[1])) {
    merge_common_subexpressions(graph);
    TW_TRY(ran(kNames[1], ir::Stage::kSubmitted));
  }
  if (on(kNames[2])) {
    share_moments(graph);
    TW_TRY(ran(kNames[2], ir::Stage::kSubmitted));
  }
  if (on(kNames[3])) {
    fuse_elementwise(graph);
    TW_TRY(ran(kNames[3], ir::Stage::kSubmitted));
  }
  if (on(kNames[4])) {
    share_tapes(graph);
    TW_TRY(ran(kNames[4], ir::Stage::kSubmitted));
  }
  TW_TRY(lower_ops(graph, new_array));
  TW_TRY(ran(kNames[5], ir::Stage::kLowered));
  if (on(kNames[6])) {  // ops that gather the same region of the same operand gather it once
    merge_common_subexpressions(graph);
    TW_TRY(ran(kNames[6], ir::Stage::kLowered));
  }
  if (on(kNames[7])) {
    order_for_memory(graph);
    TW_TRY(ran(kNames[7], ir::Stage::kLowered));
  }
  if (!options.verify_each) TW_TRY(check(out.passes.back().name, ir::Stage::kLowered));
  out.ops = std::move(graph.ops);
  return out;
}

}  // namespace tilewise::plan
