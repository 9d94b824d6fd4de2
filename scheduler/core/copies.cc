// Held arrays of which several workers are to have a copy each, so that they outlive the loss of all but one. Who is to have
// one is said by ops of kind kKeep: their placement names a device for each block besides its owner. They are in the graphs that
// asked, so that these are not over before; later ones, which make up for losses, have a graph of their own, so that nothing ends
// with them but themselves. A copy counts while its op is in the array's list: until it fails, or the array is released.
#include "draft.h"
#include "graphs.h"
#include "handlers.h"
#include "layers.h"
#include "outbox.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tilewise::scheduler {
namespace {

bool alive(const State& s, DeviceId id) { return s.device(id)->alive; }

// Chooses devices for copies: of another worker than those that have the block; of these one with room if there is one, then one
// that has copies of the other results of the same tasks, then one of another host, of the owner's kind, with the least to hold.
class Takers {
 public:
  explicit Takers(const State& s) : s_(s) {
    for (const Device& device : s.devices.all()) {
      if (device.alive && s.is_worker(device.peer) && !device.draining) open_.push_back(&device);
    }
  }

  // Whether somebody waits, who is to hear that there is no room; else only devices with room are taken.
  void are_asked_for(bool asked) { asked_ = asked; }

  // It is to make so much besides.
  void promise(DeviceId device, std::int64_t bytes) { promised_[device] += bytes; }

  // None: nobody is left. What is with the same devices goes to the same one, as long as that has room. `more`: that is to go there
  // too, unless it is one of `near`.
  DeviceId take(const std::vector<DeviceId>& have, std::int64_t bytes, const std::vector<DeviceId>& near,
                std::int64_t more) {
    DeviceId& chosen = last_[{have, near}];
    if (!chosen || !has_room(*s_.device(chosen), bytes, near, more)) chosen = best(have, bytes, near, more);
    if (chosen) promised_[chosen] += bytes;
    return chosen;
  }

 private:
  std::int64_t promised(const Device& device) const {
    const auto found = promised_.find(device.id);
    return found == promised_.end() ? 0 : found->second;
  }

  static bool is_one_of(const std::vector<DeviceId>& near, const Device& device) {
    return std::find(near.begin(), near.end(), device.id) != near.end();
  }

  bool has_room(const Device& device, std::int64_t bytes, const std::vector<DeviceId>& near,
                std::int64_t more) const {
    const std::int64_t all = bytes + (is_one_of(near, device) ? 0 : more);
    return device.memory_bytes == 0 || all + promised(device) <= room_of(device);
  }

  DeviceId best(const std::vector<DeviceId>& have, std::int64_t bytes, const std::vector<DeviceId>& near,
                std::int64_t more) const {
    std::tuple<bool, bool, bool, bool, std::int64_t, DeviceId> least{true, true, true, true, INT64_MAX, {}};
    for (const Device* device : open_) {
      const auto any = [&](auto same) {
        return std::any_of(have.begin(), have.end(), [&](DeviceId id) { return same(*s_.device(id)); });
      };
      if (any([&](const Device& d) { return d.peer == device->peer; })) continue;
      const bool room = has_room(*device, bytes, near, more), apart = !is_one_of(near, *device);
      if (!room && !asked_) continue;
      least = std::min(least, {!room, apart, any([&](const Device& d) { return d.host == device->host; }),
                               s_.device(have.front())->kind != device->kind,
                               device->load_bytes + promised(*device), device->id});
    }
    return std::get<DeviceId>(least);
  }

  const State& s_;
  bool asked_ = false;
  std::vector<const Device*> open_;
  std::map<DeviceId, std::int64_t> promised_;
  std::map<std::pair<std::vector<DeviceId>, std::vector<DeviceId>>, DeviceId> last_;
};

std::int64_t bytes_of(const ir::SourceArray& array, std::int64_t points, std::int64_t blocks) {
  if (blocks == 0) return 0;
  const double bytes = std::min(place::bytes_of(array), 1e18);
  return static_cast<std::int64_t>(bytes * static_cast<double>(points) / static_cast<double>(blocks));
}

// Where the other results of the same tasks have copies. Those of several results go to the same devices: only who has all of them can
// stand in for who made them, where they cannot be made again.
struct Beside {
  std::vector<const ir::Placement*> kept;
  double to_come = 0;  // bytes of those that are held and have none
  bool any_listed() const {
    return std::any_of(kept.begin(), kept.end(),
                       [](const ir::Placement* placement) { return placement->listed() != nullptr; });
  }
  std::int64_t more(std::int64_t points, std::int64_t blocks) const {
    return static_cast<std::int64_t>(std::min(to_come, 1e18) * static_cast<double>(points) /
                                     static_cast<double>(blocks));
  }
};

// `planned`: copies that are not yet in the state. `held`: whether a new array is to be.
template <class Held>
Beside beside(const State& s, const ir::Op& op, ArrayId array, const std::vector<PlannedKeep>& planned,
              const Held& held) {
  Beside out;
  if (op.outputs.size() < 2) return out;
  for (const ir::OutputSpec& output : op.outputs) {
    if (output.array == array.value) continue;
    const std::size_t before = out.kept.size();
    const ArrayRecord* other = s.arrays.find(ArrayId{output.array});
    if (other != nullptr)
      for (const OpId id : other->keeps) out.kept.push_back(&s.ops.at(id).placement);
    for (const PlannedKeep& keep : planned)
      if (keep.op.operands[0].array == output.array) out.kept.push_back(&keep.placement);
    const bool lacks = out.kept.size() == before || (other != nullptr && other->lacking > 0);
    if (lacks && (other != nullptr ? other->held : held(output.array)))
      out.to_come += place::bytes_of({output.dtype, output.grid});
  }
  return out;
}

void devices_beside(const State& s, const Beside& beside, const ir::Index& at, std::vector<DeviceId>& out) {
  out.clear();
  for (const ir::Placement* placement : beside.kept) {
    const DeviceId device = placement->owner(at);
    if (device && alive(s, device)) out.push_back(device);
  }
}

// Of an array that is where its plan says, and has no copies yet: its own rule with another device for each, whatever the
// number of blocks.
std::vector<ir::Placement> mirrored(const State& s, const ir::SourceArray& array, std::size_t copies,
                                    const ir::Placement& placement, const Beside& beside, Takers& takers) {
  const std::int64_t blocks = array.grid.block_count();
  std::map<DeviceId, std::vector<DeviceId>> have;
  std::vector<DeviceId> near;
  for (const DeviceId owner : placement.devices()) {
    const std::int64_t points = placement.owned_count(owner);
    if (points == 0) continue;
    devices_beside(s, beside, placement.nth(owner, 0), near);
    std::vector<DeviceId>& with = have[owner];
    with.push_back(owner);
    while (with.size() < copies) {
      const DeviceId next =
          takers.take(with, bytes_of(array, points, blocks), near, beside.more(points, blocks));
      if (!next) break;
      with.push_back(next);
    }
    copies = std::min(copies, with.size());
  }
  std::vector<ir::Placement> out;
  for (std::size_t copy = 1; copy < copies; ++copy) {
    std::vector<ir::Piece> pieces = placement.pieces();
    for (ir::Piece& piece : pieces) {
      std::vector<DeviceId> devices;
      for (std::size_t i = 0; i < piece.rule.devices.size();
           i += static_cast<std::size_t>(piece.rule.copies)) {
        const DeviceId owner = piece.rule.devices[i];
        const auto with = have.find(owner);  // none: of more parts than blocks, one without any
        devices.push_back(with == have.end() ? owner : with->second[copy]);
      }
      piece.rule.devices = std::move(devices);
      piece.rule.copies = 1;
    }
    out.emplace_back(std::move(pieces));
  }
  return out;
}

// What each block lacks, block by block.
std::vector<ir::Placement> listed(const State& s, ArrayRecord& array, const OpRecord& head,
                                  const Beside& beside, Takers& takers) {
  const ir::Shape counts = array.source.grid.counts();
  const std::int64_t blocks = array.source.grid.block_count();
  std::vector<std::vector<ir::Run>> runs(array.copies);
  std::vector<DeviceId> have, near;
  array.lacking = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const ir::Index at = ir::unravel(block, counts);
    const OpRecord* holder = holder_of(s, head, array.id, at);
    const DeviceId owner = holder == nullptr ? DeviceId{} : holder->placement.owner(at);
    if (!owner || !alive(s, owner)) continue;  // it was lost for good
    have.assign(1, owner);
    for (const OpId id : array.keeps) {
      const DeviceId device = s.ops.at(id).placement.owner(at);
      if (!device || !alive(s, device)) continue;
      const WorkerId worker = s.device(device)->peer;
      if (std::none_of(have.begin(), have.end(), [&](DeviceId d) { return s.device(d)->peer == worker; }))
        have.push_back(device);
    }
    devices_beside(s, beside, at, near);
    for (std::size_t copy = 0; have.size() < array.copies; ++copy) {
      const bool long_list = runs[copy].size() >= ir::kMaxRuns;
      const DeviceId next =
          long_list ? DeviceId{}
                    : takers.take(have, bytes_of(array.source, 1, blocks), near, beside.more(1, blocks));
      if (!next) break;
      ir::append(runs[copy], block, next);
      have.push_back(next);
    }
    if (have.size() < array.copies)
      array.lacking = std::max(array.lacking, array.copies - static_cast<std::uint32_t>(have.size()));
  }
  std::vector<ir::Placement> out;
  for (std::vector<ir::Run>& of : runs) {
    if (!of.empty()) out.push_back(ir::Placement::of_runs(counts, std::move(of)));
  }
  return out;
}

// Where copies that are lacking are to be, beside those that are only planned.
std::vector<ir::Placement> lacking_copies(const State& s, ArrayRecord& array, Takers& takers,
                                          const std::vector<PlannedKeep>& planned = {}) {
  const OpRecord& head = s.ops.at(array.producer);
  const Beside others = beside(s, head.op, array.id, planned, [](std::uint64_t) { return false; });
  const std::int64_t blocks = array.source.grid.block_count();
  const std::vector<DeviceId> on = head.placement.devices();
  const bool as_planned = head.layers.empty() && !head.forgotten && array.keeps.empty() &&
                          head.placement.listed() == nullptr && !others.any_listed() &&
                          std::all_of(on.begin(), on.end(), [&](DeviceId id) { return alive(s, id); });
  if (blocks == 0) {
    array.lacking = 0;
    return {};
  }
  if (as_planned) {
    std::vector<ir::Placement> out = mirrored(s, array.source, array.copies, head.placement, others, takers);
    array.lacking = array.copies - 1 - static_cast<std::uint32_t>(out.size());
    return out;
  }
  if (static_cast<std::size_t>(blocks) > s.options.max_recovered_blocks) {
    array.lacking = array.copies - 1;  // or none: nobody looks at so many
    return {};
  }
  return listed(s, array, head, others, takers);
}

// What is on its way for others' sake is waited for: a task on the same device ends with the copy that is there, or comes. Each
// once: some are there for such a wait themselves.
std::vector<ir::Placement> under_way(const State& s, const ArrayRecord& array) {
  std::vector<ir::Placement> out;
  for (const OpId id : array.keeps) {
    const OpRecord& keep = s.ops.at(id);
    if (!keep.finished &&
        std::any_of(keep.shares.begin(), keep.shares.end(),
                    [&](const OpShare& share) { return alive(s, share.device); }) &&
        std::find(out.begin(), out.end(), keep.placement) == out.end())
      out.push_back(keep.placement);
  }
  return out;
}

ir::Op keep_of(ArrayId array, const ir::SourceArray& source) {
  ir::Op op;
  op.kind = ir::OpKind::kKeep;
  op.operands.push_back({array.value, ir::View::identity(source.grid.shape())});
  op.space = source.grid;
  op.attrs = ir::FetchAttrs{};
  return op;
}

msg::PlannedOp add_keep(State& s, GraphRecord& graph, ArrayRecord& array, ir::Placement placement) {
  OpRecord record;
  record.id = OpId{make_id(s.options.term, s.next_op++)};
  record.graph = graph.id;
  record.position = static_cast<std::uint32_t>(graph.ops.size());
  record.op = keep_of(array.id, array.source);
  record.placement = std::move(placement);
  record.decision = {"copies", 0};
  for (const DeviceId device : record.placement.devices()) {
    if (const std::int64_t owned = record.placement.owned_count(device); owned > 0 && alive(s, device))
      record.shares.push_back({device, owned});
  }
  for (const OpShare& share : record.shares) record.points += share.owned;
  record.load_bytes = bytes_of(array.source, record.points, array.source.grid.block_count());
  ++array.open_users;
  ++array.readers;
  array.keeps.push_back(record.id);
  graph.ops.push_back(record.id);
  ++graph.ops_left;
  ++graph.ops_open;
  graph.total += record.points;
  account_load(s, record, 1);
  msg::PlannedOp planned{record.id, record.op, record.placement, false, {}};
  s.ops.insert(record.id, std::move(record));
  return planned;
}

GraphRecord& new_graph(State& s, const GraphRecord& like) {
  GraphRecord graph;
  graph.id = GraphId{make_id(s.options.term, s.next_graph++)};
  graph.session = like.session;
  graph.request = like.request;
  graph.priority = like.priority;
  graph.weight = like.weight;
  graph.running = false;  // no client waits for it
  const GraphId id = graph.id;
  return s.graphs.insert(id, std::move(graph));
}

// Requests under way that are to end with copies of it, the oldest first.
using Askers = std::map<ArrayId, std::vector<GraphId>>;
Askers askers(const State& s) {
  Askers out;
  for (const GraphId id : s.owing) {
    const GraphRecord& graph = s.graphs.at(id);
    if (!graph.root_cause.ok()) continue;
    for (const ArrayId array : graph.copying) out[array].push_back(id);
  }
  return out;
}

// Whether who has a copy of one of the op's held results has one of all, as many as each has.
bool together(const State& s, const OpRecord& op, const std::vector<PlannedKeep>& planned) {
  std::vector<std::vector<const ir::Placement*>> copies;
  for (const ir::OutputSpec& output : op.op.outputs) {
    const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
    if (!array.held) continue;
    std::vector<const ir::Placement*>& of = copies.emplace_back();
    for (const OpId id : array.keeps) of.push_back(&s.ops.at(id).placement);
    for (const PlannedKeep& keep : planned)
      if (keep.op.operands[0].array == output.array) of.push_back(&keep.placement);
  }
  const auto fewest = std::min_element(copies.begin(), copies.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const auto all_have = [&](const ir::Placement* copy) {
    return std::all_of(copies.begin(), copies.end(), [&](const auto& of) {
      return std::any_of(of.begin(), of.end(), [&](const ir::Placement* other) { return *other == *copy; });
    });
  };
  return fewest == copies.end() || std::all_of(fewest->begin(), fewest->end(), all_have);
}

}  // namespace

std::int64_t room_of(const Device& device) {
  const std::int64_t all =
      device.memory_bytes - device.memory_bytes / 10 + device.spill_bytes + device.pinned_bytes;
  return std::max<std::int64_t>(
      0, all - device.stats.bytes_used - device.stats.spilled_bytes - device.stats.pinned_bytes);
}

void want_copies(State& s, ArrayRecord& array, std::uint32_t copies, GraphRecord& graph) {
  array.copies = std::max(array.copies, copies);
  if (array.copies == 1) return;
  s.copied.insert(array.id);
  if (graph.copying.empty()) s.owing.push_back(graph.id);
  graph.copying.push_back(array.id);
  for (ir::Placement& placement : under_way(s, array)) add_keep(s, graph, array, std::move(placement));
  Takers takers(s);
  takers.are_asked_for(true);
  for (ir::Placement& placement : lacking_copies(s, array, takers))
    add_keep(s, graph, array, std::move(placement));
}

std::vector<PlannedKeep> planned_keeps(const State& s, const Draft& draft) {
  std::vector<PlannedKeep> out;
  if (draft.copies.empty()) return out;
  Takers loaded(s);  // with all that the request makes
  loaded.are_asked_for(true);
  boost::unordered_flat_map<std::uint64_t, std::pair<std::size_t, std::size_t>> made_by;  // (op, output)
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    const ir::Op& op = draft.ops[i];
    for (std::size_t o = 0; o < op.outputs.size(); ++o) made_by.emplace(op.outputs[o].array, std::pair(i, o));
    const ir::Placement& placement = draft.placements[i];
    const std::int64_t points = op.space.block_count(), bytes = output_bytes(op);
    for (const DeviceId device : placement.devices())
      loaded.promise(device, share_bytes(bytes, placement.owned_count(device), points));
  }
  const auto keep = [&](ArrayId id, const ir::SourceArray& source, std::vector<ir::Placement> placements) {
    const std::int64_t blocks = source.grid.block_count();
    for (ir::Placement& placement : placements) {
      for (const DeviceId device : placement.devices()) {
        const std::int64_t points = placement.owned_count(device);
        loaded.promise(device, bytes_of(source, points, blocks));
      }
      out.push_back({keep_of(id, source), std::move(placement)});
    }
  };
  for (const auto& [id, copies] : draft.copies) {
    if (const ArrayRecord* there = s.arrays.find(id)) {
      keep(id, there->source, under_way(s, *there));
      ArrayRecord wanted = *there;
      wanted.copies = std::max(wanted.copies, copies);
      Takers takers(loaded);
      keep(id, there->source, lacking_copies(s, wanted, takers, out));
    } else if (const auto made = made_by.find(id.value); made != made_by.end()) {
      const auto [op, output] = made->second;
      const ir::OutputSpec& spec = draft.ops[op].outputs[output];
      const ir::SourceArray source{spec.dtype, spec.grid};
      Takers takers(loaded);
      const std::vector<std::uint64_t>& holds = draft.graph.holds;
      const Beside others = beside(s, draft.ops[op], id, out, [&](std::uint64_t array) {
        return std::binary_search(holds.begin(), holds.end(), array);
      });
      if (spec.grid.block_count() > 0)
        keep(id, source, mirrored(s, source, copies, draft.placements[op], others, takers));
    }
  }
  return out;
}

void mark_lost_copies(State& s) {
  const auto lost = [&](const OpRecord& op) {
    const std::vector<DeviceId> on = op.placement.devices();
    return std::any_of(on.begin(), on.end(),
                       [&](DeviceId id) { return s.recovery.lost.contains(s.device(id)->peer); });
  };
  for (const ArrayId id : s.copied) {
    ArrayRecord& array = s.arrays.at(id);
    const OpRecord& head = s.ops.at(array.producer);
    const auto of = [&](const std::vector<OpId>& ops) {
      return std::any_of(ops.begin(), ops.end(), [&](OpId op) { return lost(s.ops.at(op)); });
    };
    if (lost(head) || of(head.layers) || of(array.keeps)) array.lacking = std::max(1u, array.lacking);
    std::erase_if(array.keeps, [&](OpId keep) {
      const std::vector<DeviceId> on = s.ops.at(keep).placement.devices();
      if (std::any_of(on.begin(), on.end(), [&](DeviceId device) { return alive(s, device); })) return false;
      s.retire_candidates.push_back(keep);
      return true;
    });
  }
}

std::vector<msg::Plan> restore_copies(State& s) {
  std::vector<msg::Plan> plans;
  const auto add = [&](GraphRecord& graph, ArrayRecord& array, const std::vector<ir::Placement>& placements) {
    msg::Plan& plan =
        plans.emplace_back(msg::Plan{graph.id, graph.priority, {}, {}, graph.session, graph.weight});
    for (const ir::Placement& placement : placements)
      plan.ops.push_back(add_keep(s, graph, array, placement));
  };
  std::optional<Askers> asked;
  Takers takers(s);
  for (const ArrayId id : s.copied) {
    ArrayRecord& array = s.arrays.at(id);
    if (array.lacking == 0 || !array.failed.ok()) continue;
    if (!asked) asked = askers(s);
    const std::vector<GraphId>& waiting = (*asked)[id];
    takers.are_asked_for(!waiting.empty());
    const std::vector<ir::Placement> placements = lacking_copies(s, array, takers);
    if (placements.empty()) continue;
    for (const GraphId graph : waiting) add(s.graphs.at(graph), array, placements);
    if (waiting.empty()) add(new_graph(s, s.graphs.at(s.ops.at(array.producer).graph)), array, placements);
  }
  return plans;
}

void check_copies(State& s) {
  if (s.copies_due && !s.recovery.pending) {
    s.copies_due = false;
    for (msg::Plan& plan : restore_copies(s)) log_to_workers(s, std::move(plan));
  }
  for (const GraphId id :
       std::vector<GraphId>(s.owing)) {  // what they wait for may have come about in others
    GraphRecord& graph = s.graphs.at(id);
    finish_graph_if_done(s, graph);
    forget_if_empty(s, graph);
  }
}

bool copied_all(const State& s, const GraphRecord& graph) {
  return std::all_of(graph.copying.begin(), graph.copying.end(), [&](const ArrayId id) {
    const ArrayRecord* array = s.arrays.find(id);
    return array == nullptr || !array->held || complete(s, s.ops.at(array->producer));
  });
}

void end_copying(State& s, GraphRecord& graph) {
  std::erase(s.owing, graph.id);
  for (const ArrayId id : std::exchange(graph.copying, {})) {
    const ArrayRecord* array = s.arrays.find(id);
    if (array == nullptr || !graph.root_cause.ok()) continue;
    if (!array->failed.ok()) graph.root_cause = array->failed;
    const OpRecord& head = s.ops.at(array->producer);
    if (graph.root_cause.ok() && head.has_failed())
      graph.root_cause = {Errc::kTaskFailed, "tasks of " + describe(s, head) + " failed"};
  }
}

void keep_ended(State& s, const OpRecord& keep) {
  ArrayRecord* array = s.arrays.find(ArrayId{keep.op.operands[0].array});
  if (array == nullptr) return;
  if (keep.failed > 0 || keep.completed < keep.points) {
    std::erase(array->keeps, keep.id);
    array->lacking = std::max(1u, array->lacking);
  }
  cut_past(s, s.ops.at(array->producer));
}

bool copied_together(const State& s, const OpRecord& op) { return together(s, op, {}); }

bool copy_unasked(State& s, const OpRecord& op, std::vector<msg::Plan>& plans) {
  Takers takers(s);
  std::vector<PlannedKeep> planned;
  std::vector<ArrayRecord*> fresh;
  const auto plan_copy = [&](ArrayRecord& array) {
    if (array.copies > 1) return array.lacking + 2 <= array.copies;
    fresh.push_back(&array);
    array.copies = 2;
    for (ir::Placement& placement : lacking_copies(s, array, takers, planned))
      planned.push_back({keep_of(array.id, array.source), std::move(placement)});
    return array.lacking == 0;
  };
  bool all = true;
  for (const ir::OutputSpec& output : op.op.outputs) {
    ArrayRecord& array = s.arrays.at(ArrayId{output.array});
    all = all && (!array.held || plan_copy(array));
  }
  if (!all || !together(s, op, planned)) {
    for (ArrayRecord* array : fresh) array->copies = 1, array->lacking = 0;
    return false;
  }
  for (const ArrayRecord* array : fresh) s.copied.insert(array->id);
  if (planned.empty()) return true;  // of no blocks, or all of them have been asked for
  GraphRecord& graph = new_graph(s, s.graphs.at(op.graph));
  msg::Plan& plan =
      plans.emplace_back(msg::Plan{graph.id, graph.priority, {}, {}, graph.session, graph.weight});
  for (PlannedKeep& keep : planned)
    plan.ops.push_back(
        add_keep(s, graph, s.arrays.at(ArrayId{keep.op.operands[0].array}), std::move(keep.placement)));
  return true;
}

}  // namespace tilewise::scheduler
