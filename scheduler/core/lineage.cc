// Lineage that does not grow for ever. Where the past of an array that is held is too long (past.h), it becomes an *anchor*: it gets a
// second copy (copies.cc), or goes to disk where no other worker can take one (checkpoints.h), and once it has that its op lets go of what
// it read. What is made from an anchor is made again from there, no further; so it stays as long as that may have to be done, also when
// its session has let it go. Of several results of one op all that are held become anchors together, with their second copies on the
// same devices: only who has all of them can stand in for who made them. The past is cut when nobody reads the others any more.
#include "graphs.h"
#include "handlers.h"

#include <algorithm>
#include <set>
#include <span>

namespace tilewise::scheduler {
namespace {

template <class F> void for_each_result(State& s, const OpRecord& op, F&& visit) {
  for (const ir::OutputSpec& output : op.op.outputs) visit(s.arrays.at(ArrayId{output.array}));
}

// Decides, in their order, which of these ops have pasts that are too long, each as if those before it that have were anchors already.
// After one that has, half of that is too long: arrays that are made anew together are then copied together, and all of them start anew.
// Else those that happen to be a little below the limit would stay there, and with them the pasts of all that reads them, so that
// the others were copied at each request.
class Choice {
 public:
  explicit Choice(State& s) : s_(s) {}

  std::vector<OpId> of(std::vector<OpId> ops) {
    while (!ops.empty()) {
      const std::span<const OpId> all = ops, first = all.first(std::min(all.size(), PastWalk::kMost));
      std::vector<OpId> left = decide(first);
      const auto others = all.subspan(first.size());
      left.insert(left.end(), others.begin(), others.end());
      ops = std::move(left);
    }
    for (const OpId id : chosen_) s_.ops.at(id).past.chosen = false;
    std::sort(chosen_.begin(), chosen_.end());
    return std::move(chosen_);
  }

 private:
  // As many as a walk can tell apart. Those that read, however indirectly, what has been chosen meanwhile are counted again.
  std::vector<OpId> decide(std::span<const OpId> ops) {
    const PastWalk walk(s_, ops, chosen_.empty() ? PastWalk::Limit::kWhole : PastWalk::Limit::kHalf);
    std::vector<OpId> again;
    std::uint64_t changed = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      OpRecord& op = s_.ops.at(ops[i]);
      if ((changed >> i & 1) != 0) {
        again.push_back(op.id);
      } else if (walk.too_long(i) || (!chosen_.empty() && walk.length(i).too_long(half_of(s_.options)))) {
        chosen_.push_back(op.id);
        op.past.chosen = true;
      } else {
        continue;
      }
      changed |= walk.counts_for(op);
    }
    return again;
  }

  State& s_;
  std::vector<OpId> chosen_;
};

// Its data has to stay only for what its session has let go of.
void let_go(State& s, ArrayRecord& array) {
  array.unnamed = array.anchor = array.held = false;
  s.let_go.push_back(array.id);
  s.copied.erase(array.id);
  s.retire_candidates.push_back(array.producer);
  s.retire_candidates.insert(s.retire_candidates.end(), array.keeps.begin(), array.keeps.end());
}

std::set<std::uint64_t> reads_of(const OpRecord& op) {
  std::set<std::uint64_t> distinct;
  for (const ir::Operand& operand : op.op.operands) distinct.insert(operand.array);
  return distinct;
}

// It lets go of what it read, and so do those that have made some of its blocks again.
void cut(State& s, OpRecord& op) {
  std::vector<std::uint64_t> read;
  const auto drop = [&](const OpRecord& record) {
    const std::set<std::uint64_t> distinct = reads_of(record);
    read.insert(read.end(), distinct.begin(), distinct.end());
  };
  drop(op);
  for (const OpId id : op.layers) {
    OpRecord& layer = s.ops.at(id);
    drop(layer);
    layer.op.operands.clear();
  }
  op.cut = true;
  bool on_file = false;
  for_each_result(s, op, [&](const ArrayRecord& result) { on_file = on_file || result.file != 0; });
  if (on_file) turn_to_file(s, op);
  for (const std::uint64_t id : read) {
    if (ArrayRecord* source = s.arrays.find(ArrayId{id})) unread(s, *source);
  }
}

}  // namespace

std::vector<msg::Plan> anchor_some(State& s, const std::vector<ArrayId>& arrays) {
  std::vector<msg::Plan> plans;
  if (s.options.max_recompute_ns == 0) return plans;
  std::vector<OpId> ops;
  std::set<OpId> once;
  bool any = false;
  for (const ArrayId id : arrays) {
    const ArrayRecord* array = s.arrays.find(id);
    if (array == nullptr || array->anchor || !array->held) continue;
    const OpRecord& op = s.ops.at(array->producer);
    if (op.op.operands.empty() || op.tried || !op.past.most.too_long(half_of(s.options))) continue;
    if (once.insert(op.id).second) ops.push_back(op.id);
    any = any || op.past.most.too_long(limit_of(s.options));
  }
  if (!any) return plans;
  for (const OpId id : Choice(s).of(std::move(ops))) {
    OpRecord& op = s.ops.at(id);
    if (copy_unasked(s, op, plans) || write_unasked(s, op, plans)) {
      for_each_result(s, op, [](ArrayRecord& result) { result.anchor = result.held; });
      cut_past(s, op);  // it may have had its copies before
    } else if (!writes_later(s)) {
      forget_past(op);
    }  // else it is the next request's turn
  }
  return plans;
}

void cut_past(State& s, OpRecord& op) {
  // While a loss is unanswered, copies are counted that are gone: settle_recovery() comes back to it.
  if (op.cut || !group_finished(s, op) || s.recovery.pending) return;
  bool any = false, on_file = false, read = false, failed = false, few = false, to_come = false;
  for_each_result(s, op, [&](ArrayRecord& result) {
    if (!result.anchor) {
      read = read || result.readers > 0;
      return;
    }
    any = true;
    failed = failed || !result.failed.ok();
    on_file = on_file || result.file != 0;
    few = few || result.copies - std::min(result.copies, result.lacking) < 2;
    to_come =
        to_come || (result.file != 0 ? !on_disk(s, result)
                                     : std::any_of(result.keeps.begin(), result.keeps.end(),
                                                   [&](OpId keep) { return !s.ops.at(keep).finished; }));
  });
  if (!any || failed) return;
  if (!on_file && (few || !copied_together(s, op))) {  // they could not be made
    for_each_result(s, op, [&](ArrayRecord& result) {
      result.anchor = false;
      if (result.unnamed) let_go(s, result);
    });
    s.pasts.known = false;  // of what is made from it: longer
    return;
  }
  if (!to_come && !read) cut(s, op);
}

void unread(State& s, ArrayRecord& array) {
  if (--array.readers == 0) s.retire_candidates.push_back(array.producer);
  if (array.unnamed && array.readers <= static_cast<std::int32_t>(array.keeps.size())) let_go(s, array);
}

}  // namespace tilewise::scheduler
