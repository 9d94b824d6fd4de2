// Points of a running op that have not been begun go to other devices. Everybody is asked as after a loss, though nobody was lost;
// who is to give holds back meanwhile. What is moved becomes a layer, like what is made again; what cannot be moved without making
// something again stays where it is. docs/design/rebalance.md
#include "answers.h"
#include "graphs.h"
#include "handlers.h"
#include "layers.h"

#include <tilewise/ir/file_info.h>

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxLayers = 64;  // of an op: beyond it is left alone

class Mover {
 public:
  Mover(State& s, const Move& move)
      : s_(s), head_(s.ops.at(move.head)), move_(move), answers_(s.recovery.answers) {
    std::vector<ir::SourceArray> sources;
    for (const ir::Operand& operand : head_.op.operands)
      sources.push_back(s.arrays.at(ArrayId{operand.array}).source);
    auto geometry = ir::Geometry::make(head_.op, std::move(sources));
    TW_CHECK(geometry.has_value(), "a planned op has lost its geometry");
    geometry_ = std::move(*geometry);
    for (const auto& [device, points] : move_.to) room_ += points;
    room_ = std::min(room_, s.options.rebalance.max_points);
    const auto runs = static_cast<std::int64_t>(s.options.max_recovered_runs);
    kept_left_ = std::min<std::int64_t>(runs, ir::kMaxRuns);
    reads_left_ = s.options.rebalance.max_reads;
  }

  void run(std::vector<msg::Plan>& plans, std::vector<msg::Tail>& moved) {
    std::vector<std::pair<OpRecord*, std::int64_t>> less;  // records, and how many points they lose
    for (const msg::Tail& tail : move_.from) {
      OpRecord* op = s_.ops.find(tail.op);
      if (op == nullptr || op->finished || op->doomed) continue;
      const std::int64_t count = take(*op, tail, moved);
      if (count > 0) less.emplace_back(op, count);
    }
    if (points_.empty()) return;
    for (auto& [producer, blocks] : kept_) {
      std::vector<ir::Run> where;
      for (const auto& [block, device] : blocks) ir::append(where, block, device);
      add_layer(s_, plans, s_.ops.at(producer), std::move(where), Form::kKept);
    }
    add_layer(s_, plans, head_, deal(), Form::kMoved);
    for (const auto& [op, count] : less) shrink(*op, count, moved);
  }

 private:
  // The longest end of the share that can be moved.
  std::int64_t take(const OpRecord& op, const msg::Tail& tail, std::vector<msg::Tail>& moved) {
    const msg::Held::Share* told = answers_.share(op.id, tail.device);
    const auto share = std::find_if(op.shares.begin(), op.shares.end(),
                                    [&](const OpShare& x) { return x.device == tail.device; });
    if (told == nullptr || share == op.shares.end()) return 0;
    const std::int64_t lowest = std::max(tail.from, told->next);
    std::int64_t end = share->owned;
    while (end > lowest && fits() && movable(op.placement.nth(tail.device, end - 1), tail.device)) --end;
    const std::int64_t count = share->owned - end;
    if (count > 0) moved.push_back({op.id, tail.device, end});
    return count;
  }

  bool fits() const {
    return static_cast<std::int64_t>(points_.size()) < room_ && reads_left_ > 0 && kept_left_ > 0;
  }

  // Nothing has to be made again for its sake. If so it is noted. A result that is there already, since the point was to be made again
  // for the sake of another, has readers who know where it is.
  bool movable(const ir::Index& at, DeviceId from) {
    const std::int64_t point = ir::ravel(at, head_.op.space.counts());
    if (deaths_of(s_, head_.id, point) > 0) return false;
    for (const ir::OutputSpec& output : head_.op.outputs)
      if (answers_.has(ArrayId{output.array}, point, from)) return false;
    std::vector<std::tuple<OpId, std::int64_t, DeviceId>> elsewhere;
    std::vector<ir::Read> reads;
    for (std::int64_t step = geometry_->steps(at); step-- > 0;) {
      geometry_->reads(at, step, reads);
      reads_left_ -= static_cast<std::int64_t>(reads.size());
      if (reads_left_ < 0) return false;
      for (const ir::Read& read : reads) {
        const ArrayId array{head_.op.operands[read.operand].array};
        const OpRecord& producer = s_.ops.at(s_.arrays.at(array).producer);
        const auto [where, fresh] = where_.try_emplace({array, read.block});
        if (fresh) where->second = find(producer, array, read.block);
        if (where->second.lost) return false;
        if (where->second.copy) elsewhere.emplace_back(producer.id, read.block, where->second.copy);
      }
    }
    if (static_cast<std::int64_t>(elsewhere.size()) > kept_left_) return false;
    for (const auto& [producer, block, device] : elsewhere)
      kept_left_ -= kept_[producer].insert_or_assign(block, device).second;
    points_.push_back(point);
    return true;
  }

  struct Where {
    bool lost = false;  // nobody has it for sure, or it is a client's
    DeviceId copy;      // none: its owner has it, or will
  };
  Where find(const OpRecord& producer, ArrayId array, std::int64_t block) const {
    if (producer.retired || producer.op.kind == ir::OpKind::kProvide) return {true, {}};
    const ir::Index at = ir::unravel(block, producer.op.space.counts());
    const OpRecord* maker = holder_of(s_, producer, array, at);
    const DeviceId owner = maker == nullptr ? DeviceId{} : maker->placement.owner(at);
    if (owner && s_.device(owner)->alive &&
        (answers_.has(array, block, owner) || to_come(*maker, at, block, owner)))
      return {};
    if (producer.op.outputs.size() == 1) {
      for (const auto* blocks : answers_.blocks(array)) {
        if (s_.device(blocks->device)->alive && contains(blocks->sealed, block))
          return {false, blocks->device};
      }
    }
    return {true, {}};
  }

  bool to_come(const OpRecord& op, const ir::Index& at, std::int64_t point, DeviceId device) const {
    const msg::Held::Share* share = answers_.share(op.id, device);
    if (share == nullptr) return false;
    return op.placement.ordinal(device, at) >= share->next || contains(share->begun, point);
  }

  // Contiguous pieces, in proportion to what each is to take.
  std::vector<ir::Run> deal() {
    std::sort(points_.begin(), points_.end());
    std::int64_t all = 0, before = 0;
    for (const auto& [device, points] : move_.to) all += points;
    std::vector<ir::Run> runs;
    std::size_t next = 0;
    for (const auto& [device, points] : move_.to) {
      before += points;
      const auto end = static_cast<std::size_t>(static_cast<__int128>(points_.size()) * before / all);
      for (; next < end; ++next) ir::append(runs, points_[next], device);
    }
    return runs;
  }

  void shrink(OpRecord& op, std::int64_t count, const std::vector<msg::Tail>& moved) {
    account_load(s_, op, -1);
    for (const msg::Tail& tail : moved) {
      if (tail.op != op.id) continue;
      for (OpShare& share : op.shares)
        if (share.device == tail.device) share.owned = tail.from;
    }
    take_points(s_, op, count);
    account_load(s_, op, 1);
    if (op.completed == op.points && !op.finished) finish_op(s_, op);
  }

  State& s_;
  OpRecord& head_;
  const Move& move_;
  std::optional<ir::Geometry> geometry_;
  std::int64_t room_ = 0, kept_left_ = 0, reads_left_ = 0;
  const Answers answers_;
  std::map<std::pair<ArrayId, std::int64_t>, Where> where_;  // of blocks that were looked for
  std::vector<std::int64_t> points_;                         // that move
  std::map<OpId, std::map<std::int64_t, DeviceId>>
      kept_;  // by producer: blocks that their owners have let go
};

}  // namespace

bool may_move(const State& s, const OpRecord& head) {
  const GraphRecord& graph = s.graphs.at(head.graph);
  const ir::OpKind kind = head.op.kind;
  if (head.of || head.retired || head.has_failed() || group_finished(s, head)) return false;
  if (!graph.running || graph.own || graph.cancelled || graph.failed > 0) return false;
  if (kind == ir::OpKind::kFetch || kind == ir::OpKind::kProvide || kind == ir::OpKind::kKeep) return false;
  if (kind == ir::OpKind::kCall && ir::is_file_kernel(head.op.get<ir::CallAttrs>().kernel)) return false;
  if (!head.op.hint.devices.empty() || head.placement.replicated() || head.layers.size() >= kMaxLayers)
    return false;
  const auto in_part = [&](OpId layer) { return !s.ops.at(layer).made.empty(); };
  if (std::any_of(head.layers.begin(), head.layers.end(), in_part)) return false;
  // Copies are on other devices than the blocks that they are of, as the plan has those.
  return std::all_of(head.op.outputs.begin(), head.op.outputs.end(), [&](const ir::OutputSpec& output) {
    const ArrayRecord& array = s.arrays.at(ArrayId{output.array});
    return array.copies == 1 && array.keeps.empty();
  });
}

void begin_move(State& s, Move move) {
  const OpRecord& head = s.ops.at(move.head);
  std::set<OpId> ops{head.id};
  for (const ir::Operand& operand : head.op.operands)
    ops.insert(s.arrays.at(ArrayId{operand.array}).producer);
  s.recovery.move = std::move(move);
  ask(s, {}, std::move(ops));
}

void conclude_move(State& s) {
  const Move move = std::exchange(s.recovery.move, {});
  const OpRecord* head = s.ops.find(move.head);
  const auto cut = [](const msg::Held& held) { return held.cut; };
  const auto takes = [&](const auto& to) {
    return s.device(to.first)->alive && !s.device(to.first)->draining;
  };
  std::vector<msg::Plan> plans;
  std::vector<msg::Tail> moved;
  if (head != nullptr && may_move(s, *head) && std::all_of(move.to.begin(), move.to.end(), takes) &&
      std::none_of(s.recovery.answers.begin(), s.recovery.answers.end(), cut))
    Mover(s, move).run(plans, moved);
  settle_recovery(s, std::move(plans), std::move(moved));
}

}  // namespace tilewise::scheduler
