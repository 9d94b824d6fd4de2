// What must be made again after a loss, and where: from the answers of the living and the plan.
//
// Words: a *head* is a planned op, its *points* number the blocks of its results. A point is *wanted* if a result is held, a
// client's fetch waits for it, a task that has been begun waits for it, a task not begun will read it, or a point that is
// made again reads it. A wanted point is *there* if its owner lives and has the block or will make it; else it is *kept*
// where another device has a copy, else it is *made again*. Heads are visited from the last to the first, so every reader
// comes before what it reads, and each is visited once.
#include <tilewise/ir/file_info.h>

#include "draft.h"
#include "graphs.h"
#include "handlers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::int64_t kMaxLooked = 4096;  // points of a reader that are looked at one by one

using Ranges = std::vector<msg::Range>;

bool contains(const Ranges& ranges, std::int64_t block) {
  const auto at = std::upper_bound(ranges.begin(), ranges.end(), block,
                                   [](std::int64_t b, const msg::Range& r) { return b < r.first; });
  return at != ranges.begin() && block < std::prev(at)->first + std::prev(at)->count;
}

class Planner {
 public:
  explicit Planner(State& s) : s_(s) {
    for (const msg::Held& held : s.recovery.answers) {
      cut_ = cut_ || held.cut;
      for (const auto& share : held.shares) shares_[{share.op, share.device}] = &share;
      for (const auto& blocks : held.blocks) blocks_[blocks.array].push_back(&blocks);
    }
    for (auto& [array, devices] : blocks_) {
      std::sort(devices.begin(), devices.end(),
                [](const auto* a, const auto* b) { return a->device < b->device; });
    }
    s.ops.for_each([&](OpRecord& op) {
      if (op.finished) return;
      for (std::size_t i = 0; i < op.op.operands.size(); ++i)
        users_[ArrayId{op.op.operands[i].array}].emplace_back(op.id, static_cast<int>(i));
    });
  }

  // False: something cannot be recovered. Then what wanted it has been ended, and all is to be computed again.
  bool compute() {
    std::set<OpId> left = s_.recovery.asked;
    while (!left.empty()) {
      const OpId id = *left.rbegin();
      left.erase(id);
      OpRecord* head = s_.ops.find(id);
      if (head == nullptr) continue;
      Group& group = groups_[id];
      group.head = head;
      if (!visit(group, left)) return false;
    }
    return true;
  }

  // Layers in the order of the plan: producers first.
  std::vector<msg::Plan> commit() {
    std::vector<msg::Plan> plans;
    for (auto& [id, group] : groups_) {
      if (group.provided) add_layer(plans, group, {}, Form::kProvided);
      if (!group.kept.empty()) add_layer(plans, group, std::move(group.kept), Form::kKept);
      if (!group.again.empty()) {
        introduce_operands(plans, *group.head);
        add_layer(plans, group, place(group), Form::kAgain);
      }
    }
    return plans;
  }

 private:
  enum class Form { kAgain, kKept, kProvided };
  struct Group {
    OpRecord* head = nullptr;
    std::optional<ir::Geometry> geometry;
    std::vector<std::int64_t> demand;  // by points that are made again
    std::vector<OpId> demanded_by;     // whose they are
    std::vector<std::int64_t> again;   // points, rising
    std::vector<DeviceId> before;      // parallel: who had it
    std::vector<ir::Run> kept;         // rising
    bool provided = false;             // workers are to know a client's array again
  };

  // ---- what is there ----

  bool alive(DeviceId id) const { return s_.device(id)->alive; }

  // The record that stands for the point, or none.
  OpRecord* maker(const OpRecord& head, const ir::Index& point) const {
    for (std::size_t i = head.layers.size(); i-- > 0;) {
      OpRecord& layer = s_.ops.at(head.layers[i]);
      if (layer.placement.owner(point)) return &layer;
    }
    return head.forgotten ? nullptr : &s_.ops.at(head.id);
  }

  bool sealed(const OpRecord& head, std::int64_t point, DeviceId device) const {
    return std::all_of(head.op.outputs.begin(), head.op.outputs.end(), [&](const ir::OutputSpec& output) {
      const auto found = blocks_.find(ArrayId{output.array});
      if (found == blocks_.end()) return false;
      const auto at = std::find_if(found->second.begin(), found->second.end(),
                                   [&](const auto* blocks) { return blocks->device == device; });
      return at != found->second.end() && contains((*at)->sealed, point);
    });
  }

  DeviceId sealed_somewhere(const OpRecord& head, std::int64_t point) const {
    const auto found = blocks_.find(ArrayId{head.op.outputs[0].array});
    if (found == blocks_.end()) return {};
    for (const auto* blocks : found->second) {
      if (alive(blocks->device) && sealed(head, point, blocks->device)) return blocks->device;
    }
    return {};
  }

  bool sealed_in_part(const OpRecord& head, std::int64_t point) const {
    return std::any_of(head.op.outputs.begin(), head.op.outputs.end(), [&](const ir::OutputSpec& output) {
      const auto found = blocks_.find(ArrayId{output.array});
      return found != blocks_.end() &&
             std::any_of(found->second.begin(), found->second.end(),
                         [&](const auto* blocks) { return contains(blocks->sealed, point); });
    });
  }

  // The device lives, and will make the point or is making it. An op that nobody was asked about is newer than the loss.
  bool to_come(const OpRecord& op, const ir::Index& at, std::int64_t point, DeviceId device) const {
    const auto share = shares_.find({op.id, device});
    if (share == shares_.end()) return !op.finished && !s_.recovery.asked.contains(op.of ? op.of : op.id);
    return op.placement.ordinal(device, at) >= share->second->next || contains(share->second->begun, point);
  }

  // ---- what is wanted ----

  bool wanted(const Group& group, std::int64_t point) {
    for (const ir::OutputSpec& output : group.head->op.outputs) {
      const ArrayId id{output.array};
      const ArrayRecord& array = s_.arrays.at(id);
      if (!array.failed.ok()) continue;
      if (array.held || !array.fetches.empty()) return true;
      const auto blocks = blocks_.find(id);
      if (blocks != blocks_.end() && std::any_of(blocks->second.begin(), blocks->second.end(),
                                                 [&](const auto* on) { return contains(on->wanted, point); }))
        return true;
      for (const auto& [user, operand] : users_[id]) {
        if (will_read(user, operand, point)) return true;
      }
    }
    return false;
  }

  // Some point that has not been begun on a living device reads the block.
  bool will_read(OpId id, int operand, std::int64_t block) {
    OpRecord* user = s_.ops.find(id);
    if (user == nullptr || user->finished) return false;  // its graph has been ended meanwhile
    OpRecord& head = head_of(s_, *user);
    const ir::Geometry& geometry = geometry_of(groups_[head.id], head);
    std::vector<ir::Geometry::Users> readers;
    geometry.users(operand, block, readers);
    for (const ir::Geometry::Users& box : readers) {
      std::int64_t looked = 0;
      ir::Index at(box.points.lo.begin(), box.points.lo.end());
      if (box.points.volume() == 0) continue;
      while (true) {
        if (++looked > kMaxLooked) return true;
        const DeviceId device = user->placement.owner(at);
        if (device && alive(device) && maker(head, at) == user) {
          const auto share = shares_.find({user->id, device});
          if (share == shares_.end() || user->placement.ordinal(device, at) >= share->second->next)
            return true;
        }
        int d = box.points.rank() - 1;
        for (; d >= 0 && ++at[d] == box.points.hi[d]; --d) at[d] = box.points.lo[d];
        if (d < 0) break;
      }
    }
    return false;
  }

  const ir::Geometry& geometry_of(Group& group, OpRecord& head) {
    if (!group.geometry) {
      group.head = &head;
      std::vector<ir::SourceArray> sources;
      for (const ir::Operand& operand : head.op.operands)
        sources.push_back(s_.arrays.at(ArrayId{operand.array}).source);
      auto geometry = ir::Geometry::make(head.op, std::move(sources));
      TW_CHECK(geometry.has_value(), "a planned op has lost its geometry");
      group.geometry = std::move(*geometry);
    }
    return *group.geometry;
  }

  // Points on lost devices that are wanted, besides those that readers made again have asked for.
  void add_lost(Group& group) {
    OpRecord& head = *group.head;
    if (head.retired) return;
    std::vector<OpId> records(head.layers);
    if (!head.forgotten) records.push_back(head.id);
    for (const OpId id : records) {
      const OpRecord& op = s_.ops.at(id);
      for (const DeviceId device : op.placement.devices()) {
        if (alive(device)) continue;
        const std::int64_t owned = op.placement.owned_count(device);
        for (std::int64_t i = 0; i < owned; ++i) {
          const ir::Index at = op.placement.nth(device, i);
          if (maker(head, at) != &op) continue;
          const std::int64_t point = ir::ravel(at, head.op.space.counts());
          if (wanted(group, point)) group.demand.push_back(point);
        }
      }
    }
  }

  // ---- one head ----

  bool visit(Group& group, std::set<OpId>& left) {
    OpRecord& head = *group.head;
    if (head.op.outputs.empty()) return true;
    add_lost(group);
    std::sort(group.demand.begin(), group.demand.end());
    group.demand.erase(std::unique(group.demand.begin(), group.demand.end()), group.demand.end());
    if (group.demand.empty()) return true;
    if (cut_) return broken(group, "too many pieces of blocks to tell what is left");
    const ir::Shape counts = head.op.space.counts();
    if (head.op.kind == ir::OpKind::kProvide) {
      if (!s_.graphs.at(head.graph).running) {
        return broken(group, "its data was uploaded by the client, and the only copies were lost");
      }
      group.provided = head.forgotten && head.layers.empty();
      return true;
    }
    for (const std::int64_t point : group.demand) {
      const ir::Index at = ir::unravel(point, counts);
      const OpRecord* op = maker(head, at);
      const DeviceId owner = op == nullptr ? DeviceId{} : op->placement.owner(at);
      if (owner && alive(owner) && (sealed(head, point, owner) || to_come(*op, at, point, owner))) continue;
      if (const DeviceId device = sealed_somewhere(head, point)) {
        ir::append(group.kept, point, device);
        continue;
      }
      if (sealed_in_part(head, point))
        return broken(group, "some results of a task are left, others are not");
      group.again.push_back(point);
      group.before.push_back(owner ? owner : head.placement.owner(at));
    }
    if (group.again.empty()) return true;
    return can_make(group) && ask_for_operands(group, left);
  }

  bool can_make(Group& group) {
    const OpRecord& head = *group.head;
    total_ += group.again.size();
    if (total_ > s_.options.max_recovered_blocks)
      return broken(group,
                    "more than " + std::to_string(s_.options.max_recovered_blocks) + " blocks were lost");
    if (s_.graphs.at(head.graph).cancelled) return broken(group, "its request was cancelled");
    if (head.failed > 0) return broken(group, "some of its tasks had failed");
    if (head.op.kind == ir::OpKind::kCall && ir::is_file_kernel(head.op.get<ir::CallAttrs>().kernel))
      return broken(group, "a file was being put in place");
    for (const ir::Operand& operand : head.op.operands) {
      if (s_.arrays.find(ArrayId{operand.array}) == nullptr)
        return broken(group, "what it was made from is no longer known");
    }
    for (const DeviceId device : group.before) {
      if (eligible(head, device).empty()) return broken(group, "no device of its numeric class is left");
    }
    return true;
  }

  bool ask_for_operands(Group& group, std::set<OpId>& left) {
    OpRecord& head = *group.head;
    const ir::Geometry& geometry = geometry_of(group, head);
    std::vector<ir::Read> reads;
    for (const std::int64_t point : group.again) {
      const ir::Index at = geometry.point(point);
      for (std::int64_t step = geometry.steps(at); step-- > 0;) {
        geometry.reads(at, step, reads);
        for (const ir::Read& read : reads) {
          const OpId producer = s_.arrays.at(ArrayId{head.op.operands[read.operand].array}).producer;
          Group& source = groups_[producer];
          source.demand.push_back(read.block);
          if (source.demanded_by.empty() || source.demanded_by.back() != head.id)
            source.demanded_by.push_back(head.id);
          left.insert(producer);
        }
      }
    }
    return true;
  }

  // Ends everything that wants what cannot be had.
  bool broken(const Group& group, const std::string& why) {
    std::string lost;
    for (const Peer& peer : s_.peers) {
      if (!peer.alive && peer.info.role == msg::Role::kWorker)
        lost = "worker w" + std::to_string(peer.info.id.value) + " ('" + peer.info.name + "') was lost";
    }
    ++s_.recovery.unrecoverable;
    std::set<OpId> reached{group.head->id};
    std::vector<OpId> work{group.head->id};
    std::vector<GraphId> graphs;
    while (!work.empty()) {
      const OpId id = work.back();
      work.pop_back();
      OpRecord& head = s_.ops.at(id);
      if (s_.graphs.at(head.graph).ops_open > 0) graphs.push_back(head.graph);
      for (const ir::OutputSpec& output : head.op.outputs) {
        ArrayRecord& array = s_.arrays.at(ArrayId{output.array});
        fail_array(array, {Errc::kWorkerLost, lost + " with blocks of " + describe(array) + ": " + why});
        for (const auto& [user, operand] : users_[array.id]) {
          if (const OpRecord* op = s_.ops.find(user); op != nullptr && !op->finished)
            graphs.push_back(op->graph);
        }
      }
      for (const OpId reader : groups_[id].demanded_by) {
        if (reached.insert(reader).second) work.push_back(reader);
      }
    }
    std::sort(graphs.begin(), graphs.end());
    graphs.erase(std::unique(graphs.begin(), graphs.end()), graphs.end());
    const OpRecord& head = *group.head;
    const ArrayRecord& array = s_.arrays.at(ArrayId{head.op.outputs[0].array});
    const msg::Outcome outcome{Errc::kWorkerLost, lost + " with blocks of " + describe(array) + " (" +
                                                      describe(s_, head) + "): " + why};
    for (const GraphId graph : graphs) cancel_graph(s_, graph, outcome);
    return false;
  }

  // ---- where ----

  const std::string& class_of(DeviceId id) const {
    const msg::PeerInfo& info = s_.peer(s_.device(id)->peer).info;
    const auto at = std::find(info.devices.begin(), info.devices.end(), id) - info.devices.begin();
    return info.descriptions[static_cast<std::size_t>(at)].numeric_class;
  }

  // Living devices that make the same bits as the one that had it, rising.
  const std::vector<DeviceId>& eligible(const OpRecord& head, DeviceId before) {
    const bool call = head.op.kind == ir::OpKind::kCall;
    auto [found, fresh] = eligible_.try_emplace({call ? head.id : OpId{}, before});
    if (!fresh) return found->second;
    for (const WorkerId id : s_.live) {
      const Peer& peer = s_.peer(id);
      if (peer.info.role != msg::Role::kWorker) continue;
      const bool offers =
          !call || std::any_of(peer.plugins.begin(), peer.plugins.end(), [&](const msg::PluginDesc& p) {
            return p.kernel == head.op.get<ir::CallAttrs>().kernel;
          });
      if (!offers) continue;
      for (const DeviceId device : peer.info.devices) {
        if (s_.device(device)->kind == s_.device(before)->kind && class_of(device) == class_of(before))
          found->second.push_back(device);
      }
    }
    std::vector<DeviceId>& all = found->second;
    std::sort(all.begin(), all.end());
    const auto draining = [&](DeviceId device) { return s_.device(device)->draining; };
    if (!std::all_of(all.begin(), all.end(), draining)) std::erase_if(all, draining);
    return all;
  }

  // What a lost device had is dealt out in pieces of equal size, so that ops whose lost blocks belong together stay
  // together; what a living one has let go it makes again itself.
  std::vector<ir::Run> place(const Group& group) {
    std::map<DeviceId, std::pair<std::size_t, std::size_t>>
        dealt;  // of a lost device: how many, and how many so far
    for (const DeviceId device : group.before) ++dealt[device].first;
    std::vector<ir::Run> runs;
    for (std::size_t i = 0; i < group.again.size(); ++i) {
      const DeviceId before = group.before[i];
      auto& [all, so_far] = dealt[before];
      const std::vector<DeviceId>& to = eligible(*group.head, before);
      const DeviceId device =
          alive(before) && s_.is_worker(s_.device(before)->peer) ? before : to[so_far++ * to.size() / all];
      ir::append(runs, group.again[i], device);
    }
    return runs;
  }

  // ---- layers ----

  // Workers must know every array that an op reads, also those of which it reads nothing this time.
  void introduce_operands(std::vector<msg::Plan>& plans, const OpRecord& op) {
    for (const ir::Operand& operand : op.op.operands) {
      OpRecord& source = s_.ops.at(s_.arrays.at(ArrayId{operand.array}).producer);
      if (!source.retired) continue;
      Group& group = groups_[source.id];
      group.head = &source;
      add_layer(plans, group, {}, source.op.kind == ir::OpKind::kProvide ? Form::kProvided : Form::kKept);
    }
  }

  void add_layer(std::vector<msg::Plan>& plans, const Group& group, std::vector<ir::Run> runs, Form form) {
    OpRecord& head = *group.head;
    const OpId id{make_id(s_.options.term, s_.next_op++)};
    OpRecord layer;
    layer.id = id;
    layer.of = head.id;
    layer.graph = head.graph;
    layer.position = head.position;
    layer.op = head.op;
    layer.decision = {"recovery", 0};
    layer.placement = form == Form::kProvided
                          ? head.placement
                          : ir::Placement::of_runs(head.op.space.counts(), std::move(runs));
    if (form != Form::kProvided) {
      for (const DeviceId device : layer.placement.devices())
        layer.shares.push_back({device, layer.placement.owned_count(device), 0, 0});
    }
    for (const OpShare& share : layer.shares) layer.points += share.owned;
    const std::int64_t all = std::max<std::int64_t>(1, head.op.space.block_count());
    layer.load_bytes =
        static_cast<std::int64_t>(static_cast<__int128>(output_bytes(head.op)) * layer.points / all);
    GraphRecord& graph = s_.graphs.at(head.graph);
    graph.ops.push_back(id);
    ++graph.ops_left;
    if (std::exchange(head.retired, false)) s_.lineage.erase(head.id);
    head.layers.push_back(id);
    msg::PlannedOp planned;
    if (form == Form::kAgain) {
      planned = {id, layer.op, layer.placement, false, head.id};
      ++graph.ops_open;
      graph.total += layer.points;
      s_.recovery.recovered += layer.points;
      std::set<std::uint64_t> distinct;
      for (const ir::Operand& operand : layer.op.operands) distinct.insert(operand.array);
      for (const std::uint64_t array : distinct)
        ++s_.arrays.at(ArrayId{array}).open_users, ++s_.arrays.at(ArrayId{array}).readers;
    } else {
      if (form == Form::kKept) {
        s_.recovery.kept += layer.points;
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
    account_load(s_, layer, 1);
    if (plans.empty() || plans.back().graph != head.graph)
      plans.push_back({head.graph, graph.priority, {}, {}, graph.session, graph.weight});
    plans.back().ops.push_back(std::move(planned));
    s_.retire_candidates.push_back(head.id);
    s_.ops.insert(id, std::move(layer));
  }

  State& s_;
  bool cut_ = false;
  std::size_t total_ = 0;
  std::map<OpId, Group> groups_;
  std::map<std::pair<OpId, DeviceId>, const msg::Held::Share*> shares_;
  std::map<ArrayId, std::vector<const msg::Held::Blocks*>> blocks_;
  std::map<ArrayId, std::vector<std::pair<OpId, int>>> users_;  // unfinished, by array
  std::map<std::pair<OpId, DeviceId>, std::vector<DeviceId>> eligible_;
};

}  // namespace

std::vector<msg::Plan> plan_recovery(State& s) {
  // Each failure ends something that was under way or could be named, so this comes to an end.
  while (true) {
    Planner planner(s);
    if (planner.compute()) return planner.commit();
  }
}

}  // namespace tilewise::scheduler
