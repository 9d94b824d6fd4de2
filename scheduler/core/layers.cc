#include "layers.h"

#include "checkpoints.h"
#include "draft.h"
#include "graphs.h"
#include "handlers.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tilewise::scheduler {
namespace {

constexpr std::int64_t kMinChunks = 16, kMaxChunks = 4096;  // of the rule that comes out

struct Overlaid {
  std::vector<DeviceId> owners;  // of each block, in C order
  std::int64_t as_planned = 0;   // so many are where the head has them
};
Overlaid overlay(const State& s, const OpRecord& head, const ir::Shape& counts) {
  Overlaid out;
  const std::int64_t blocks = ir::volume(counts);
  for (std::int64_t i = 0; i < blocks; ++i)
    out.owners.push_back(head.placement.owner(ir::unravel(i, counts)));
  const std::vector<DeviceId> planned = out.owners;
  for (const OpId id : head.layers) {
    const ir::RunMap* listed = s.ops.at(id).placement.listed();
    if (listed == nullptr) continue;  // of kProvided: the head's
    for (const ir::Run& run : listed->runs())
      std::fill_n(out.owners.begin() + static_cast<std::ptrdiff_t>(run.first), run.count, run.device);
  }
  for (std::size_t i = 0; i < planned.size(); ++i) out.as_planned += planned[i] == out.owners[i];
  return out;
}

// Chunks of about equal size, each at the owner of the block in its middle. Returns for how many blocks that is right.
std::int64_t in_chunks(const std::vector<DeviceId>& owners, const ir::Shape& counts, const ir::Shape& parts,
                       ir::Rule& rule) {
  rule.parts.assign(parts.begin(), parts.end());
  rule.cyclic.assign(parts.size(), 0);
  rule.devices.clear();
  for (std::int64_t chunk = 0; chunk < ir::volume(parts); ++chunk) {
    ir::Index middle = ir::unravel(chunk, parts);
    for (std::size_t d = 0; d < parts.size(); ++d) {
      const std::int64_t lo = ir::ceil_div(middle[d] * counts[d], parts[d]);
      middle[d] = (lo + ir::ceil_div((middle[d] + 1) * counts[d], parts[d])) / 2;
    }
    rule.devices.push_back(owners[static_cast<std::size_t>(ir::ravel(middle, counts))]);
  }
  std::int64_t right = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    ir::Index at = ir::unravel(static_cast<std::int64_t>(i), counts);
    for (std::size_t d = 0; d < parts.size(); ++d) at[d] = at[d] * parts[d] / counts[d];
    right += rule.devices[static_cast<std::size_t>(ir::ravel(at, parts))] == owners[i];
  }
  return right;
}

// The coarsest rule that is right about nearly all blocks, or the best.
ir::Placement overlaid(const State& s, const OpRecord& head) {
  const ir::Shape counts = head.op.space.counts();
  const std::int64_t blocks = ir::volume(counts);
  const Overlaid now = overlay(s, head, counts);
  ir::Rule rule, best;
  std::int64_t most = now.as_planned;
  for (std::int64_t chunks = kMinChunks; chunks <= kMaxChunks && most < blocks - blocks / 100; chunks *= 4) {
    const std::int64_t right = in_chunks(now.owners, counts, place::chunks_of(counts, chunks), rule);
    if (right <= most) continue;
    most = right;
    best = rule;
  }
  return best.devices.empty() ? head.placement : ir::Placement::whole(counts, std::move(best));
}

// Of results that are where the layer says, those that burden these devices already: as copies that are kept there.
std::int64_t kept_bytes(const State& s, const OpRecord& layer) {
  const ir::Shape counts = layer.op.space.counts();
  std::int64_t bytes = 0;
  for (const ir::OutputSpec& output : layer.op.outputs) {
    const ArrayRecord* array = s.arrays.find(ArrayId{output.array});
    if (array == nullptr || array->keeps.empty()) continue;
    std::int64_t points = 0;
    for (const ir::Run& run : layer.placement.listed()->runs()) {
      for (std::int64_t point = run.first; point < run.first + run.count; ++point) {
        const ir::Index at = ir::unravel(point, counts);
        points += std::any_of(array->keeps.begin(), array->keeps.end(),
                              [&](OpId keep) { return s.ops.at(keep).placement.owner(at) == run.device; });
      }
    }
    const double all = std::min(place::bytes_of(array->source), 1e18);
    bytes += share_bytes(static_cast<std::int64_t>(all), points, layer.op.space.block_count());
  }
  return bytes;
}

const std::string& numeric_class_of(const State& s, DeviceId id) {
  const msg::PeerInfo& info = s.peer(s.device(id)->peer).info;
  const auto at = std::find(info.devices.begin(), info.devices.end(), id) - info.devices.begin();
  return info.descriptions[static_cast<std::size_t>(at)].numeric_class;
}

bool offers(const Peer& peer, const ir::Op& op) {
  return op.kind != ir::OpKind::kCall ||
         std::any_of(peer.plugins.begin(), peer.plugins.end(),
                     [&](const msg::PluginDesc& p) { return p.kernel == op.get<ir::CallAttrs>().kernel; });
}

}  // namespace

const ir::Placement& layered_placement(const State& s, const OpRecord& head, std::int64_t* budget) {
  if (head.layers.empty() || head.placement.replicated()) return head.placement;
  if (head.layered.last == head.layers.back()) return head.layered.placement;
  const std::int64_t blocks = ir::volume(head.op.space.counts());
  if (blocks > kMaxOverlaid || (budget != nullptr && *budget < blocks)) return head.placement;
  if (budget != nullptr) *budget -= blocks;
  head.layered = {head.layers.back(), overlaid(s, head)};
  return head.layered.placement;
}

ir::Placement without_lost(const State& s, const ir::Placement& placement) {
  std::vector<DeviceId> living, open;
  for (const WorkerId id : s.live) {
    if (s.is_worker(id))
      living.insert(living.end(), s.peer(id).info.devices.begin(), s.peer(id).info.devices.end());
  }
  std::copy_if(living.begin(), living.end(), std::back_inserter(open),
               [&](DeviceId id) { return !s.device(id)->draining; });
  if (!open.empty()) living = std::move(open);
  std::vector<ir::Piece> pieces = placement.pieces();
  std::vector<DeviceId*> lost;
  for (ir::Piece& piece : pieces) {
    for (DeviceId& device : piece.rule.devices)
      if (!s.device(device)->alive && !living.empty()) lost.push_back(&device);
  }
  for (std::size_t i = 0; i < lost.size(); ++i)  // what lies together stays together
    *lost[i] = living[i * living.size() / lost.size()];
  return ir::Placement(std::move(pieces));
}

void add_layer(State& s, std::vector<msg::Plan>& plans, OpRecord& head, std::vector<ir::Run> runs, Form form,
               std::int32_t priority, const Results& results) {
  const OpId id{make_id(s.options.term, s.next_op++)};
  OpRecord layer;
  layer.id = id;
  layer.of = head.id;
  layer.graph = head.graph;
  layer.position = head.position;
  layer.op = head.op;
  const std::size_t all_results = head.op.outputs.size();
  if (results.any() && results.count() < all_results) {
    const bool runs_it = form == Form::kAgain || form == Form::kAlone;
    layer.op.outputs.clear();
    for (std::size_t i = 0; i < all_results; ++i) {
      ir::OutputSpec output = head.op.outputs[i];
      if (results[i])
        layer.op.outputs.push_back(output);
      else if (runs_it)
        output.array = make_id(s.options.term, s.next_array++);
      if (runs_it) layer.made.push_back(std::move(output));
    }
  }
  layer.moved = form == Form::kMoved;
  layer.level_ns = head.level_ns;
  layer.decision = {form == Form::kMoved ? "re-placed" : "recovery", 0};
  layer.placement = form == Form::kProvided ? head.placement
                                            : ir::Placement::of_runs(head.op.space.counts(), std::move(runs));
  if (form != Form::kProvided) {
    for (const DeviceId device : layer.placement.devices())
      layer.shares.push_back({device, layer.placement.owned_count(device), 0, 0});
  }
  for (const OpShare& share : layer.shares) layer.points += share.owned;
  const std::int64_t all = std::max<std::int64_t>(1, head.op.space.block_count());
  layer.load_bytes = share_bytes(output_bytes(layer.op), layer.points, all);
  if (form == Form::kKept) layer.load_bytes -= std::min(layer.load_bytes, kept_bytes(s, layer));
  GraphRecord& graph = s.graphs.at(head.graph);
  graph.ops.push_back(id);
  ++graph.ops_left;
  if (std::exchange(head.retired, false)) s.lineage.erase(head.id);
  head.layers.push_back(id);
  msg::PlannedOp planned;
  if (form == Form::kDoomed) {
    layer.doomed = true;
    layer.op.operands.clear();
    planned = {id, layer.op, layer.placement, false, head.id};
    planned.op.kind = ir::OpKind::kCall;
    planned.op.attrs = ir::CallAttrs{.kernel = "doomed"};
    const ir::Run& run = layer.placement.listed()->runs().front();
    planned.doomed = doom_of(s, head.id, run.first);
    ++graph.ops_open;
    graph.total += layer.points;
  } else if (form == Form::kAgain || form == Form::kAlone || form == Form::kMoved) {
    planned = {id, op_to_run(layer), layer.placement, false, head.id, form == Form::kAlone};
    ++graph.ops_open;
    graph.total += layer.points;
    (form == Form::kMoved ? s.recovery.moved : s.recovery.recovered) += layer.points;
    std::set<std::uint64_t> distinct;
    for (const ir::Operand& operand : layer.op.operands) distinct.insert(operand.array);
    for (const std::uint64_t array : distinct)
      ++s.arrays.at(ArrayId{array}).open_users, ++s.arrays.at(ArrayId{array}).readers;
  } else {
    if (form == Form::kKept) {
      s.recovery.kept += layer.points;
      for (OpShare& share : layer.shares) share.completed = share.owned;
      layer.completed = layer.points;
      graph.done += layer.points;
      graph.total += layer.points;
      planned = without_history(layer);
    } else {
      planned = {id, layer.op, layer.placement, false, {}};
    }
    planned.of = head.id;
    layer.op.operands.clear();
    layer.finished = true;
  }
  account_load(s, layer, 1);
  const std::int32_t at_priority = std::max(graph.priority, priority);
  if (plans.empty() || plans.back().graph != head.graph || plans.back().priority != at_priority)
    plans.push_back({head.graph, at_priority, {}, {}, graph.session, graph.weight});
  planned.level_ns = head.level_ns;
  plans.back().ops.push_back(std::move(planned));
  s.retire_candidates.push_back(head.id);
  s.ops.insert(id, std::move(layer));
}

ir::Op op_to_run(const OpRecord& record) {
  ir::Op op = record.op;
  if (!record.made.empty()) op.outputs = record.made;
  return op;
}

const OpRecord* maker_of(const State& s, const OpRecord& head, const ir::Index& point) {
  for (std::size_t i = head.layers.size(); i-- > 0;) {
    const OpRecord& layer = s.ops.at(head.layers[i]);
    if (layer.placement.owner(point)) return &layer;
  }
  return head.forgotten ? nullptr : &head;
}

const OpRecord* holder_of(const State& s, const OpRecord& head, ArrayId result, const ir::Index& point) {
  for (std::size_t i = head.layers.size(); i-- > 0;) {
    const OpRecord& layer = s.ops.at(head.layers[i]);
    const bool speaks_of_it =
        std::any_of(layer.op.outputs.begin(), layer.op.outputs.end(),
                    [&](const ir::OutputSpec& output) { return ArrayId{output.array} == result; });
    if (speaks_of_it && layer.placement.owner(point)) return &layer;
  }
  return head.forgotten ? nullptr : &head;
}

bool stands_for(const State& s, const OpRecord& head, const OpRecord& record, const ir::Index& point) {
  const std::vector<ir::OutputSpec>& outputs = record.op.outputs;
  if (outputs.empty()) return maker_of(s, head, point) == &record;
  return std::any_of(outputs.begin(), outputs.end(), [&](const ir::OutputSpec& output) {
    return holder_of(s, head, ArrayId{output.array}, point) == &record;
  });
}

bool same_class(const State& s, DeviceId a, DeviceId b) {
  return s.device(a)->kind == s.device(b)->kind && numeric_class_of(s, a) == numeric_class_of(s, b);
}

std::vector<DeviceId> devices_like(const State& s, const OpRecord& head, DeviceId like) {
  std::vector<DeviceId> out;
  for (const WorkerId id : s.live) {
    const Peer& peer = s.peer(id);
    if (!s.is_worker(id) || !offers(peer, head.op)) continue;
    for (const DeviceId device : peer.info.devices) {
      if (is_from_file(head) || same_class(s, device, like)) out.push_back(device);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tilewise::scheduler
