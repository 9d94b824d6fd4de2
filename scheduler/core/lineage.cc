// Lineage that does not grow for ever. Each op knows about what it would take to make its results again, with everything before
// that is not safe: a sum over what it reads, so too much where paths meet. Where that is beyond the limits for an array that is
// held, and a walk confirms it, the array becomes an *anchor*: it gets a second copy (copies.cc), or goes to disk where no other worker
// can take one (checkpoints.h), and once it has that its op lets go of what it read. What is made from an anchor is made again from
// there, no further; so it stays as long as that may have to be done, also when its session has let it go. Of several results of one op
// all that are held become anchors together, with their second copies on the same devices: only who has all of them can stand in for
// who made them. The past is cut when nobody reads the others any more.
#include "graphs.h"
#include "handlers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr double kMost = 1e12;  // seconds, ops: sums of sums stay finite

bool beyond(const Options& options, double seconds, std::int64_t ops) {
  return seconds * 1e9 > static_cast<double>(options.max_recompute_ns) ||
         ops > static_cast<std::int64_t>(options.max_recompute_ops);
}

// The ops that would have to be run before this one, each once.
std::vector<OpId> before(const State& s, const OpRecord& op) {
  std::vector<OpId> out;
  for (const ir::Operand& operand : op.op.operands) {
    const ArrayRecord* array = op.cut ? nullptr : s.arrays.find(ArrayId{operand.array});
    if (array == nullptr || array->anchor) continue;
    if (std::find(out.begin(), out.end(), array->producer) == out.end()) out.push_back(array->producer);
  }
  return out;
}

template <class F> void for_each_result(State& s, const OpRecord& op, F&& visit) {
  for (const ir::OutputSpec& output : op.op.outputs) visit(s.arrays.at(ArrayId{output.array}));
}

// Counts each op once, and notes what it finds.
bool confirm(State& s, OpRecord& op) {
  std::set<OpId> seen{op.id};
  std::vector<OpId> work{op.id};
  double seconds = 0;
  while (!work.empty()) {
    const OpRecord& next = s.ops.at(work.back());
    work.pop_back();
    seconds += next.work_s;
    if (beyond(s.options, seconds, static_cast<std::int64_t>(seen.size()))) return true;
    for (const OpId id : before(s, next)) {
      if (seen.insert(id).second) work.push_back(id);
    }
  }
  op.past_s = seconds;
  op.past_ops = static_cast<std::int64_t>(seen.size());
  return false;
}

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

void note_past(State& s, OpRecord& op, double work_s) {
  op.work_s = std::min(work_s, kMost);
  double seconds = op.work_s, ops = 1;
  for (const OpId id : before(s, op)) {
    const OpRecord& producer = s.ops.at(id);
    seconds += producer.past_s;
    ops += static_cast<double>(producer.past_ops);
  }
  op.past_s = std::min(seconds, kMost);
  op.past_ops = static_cast<std::int64_t>(std::min(ops, kMost));
}

std::vector<msg::Plan> anchor_some(State& s, const std::vector<ArrayId>& arrays) {
  std::vector<msg::Plan> plans;
  if (s.options.max_recompute_ns == 0) return plans;
  for (const ArrayId id : arrays) {
    ArrayRecord* array = s.arrays.find(id);
    if (array == nullptr || array->anchor || !array->held) continue;
    OpRecord& op = s.ops.at(array->producer);
    if (op.op.operands.empty() || !beyond(s.options, op.past_s, op.past_ops) || !confirm(s, op)) continue;
    if (!copy_unasked(s, op, plans) && !write_unasked(s, op, plans)) {  // tried again after as much more
      op.past_s = op.work_s, op.past_ops = 1;
      continue;
    }
    for_each_result(s, op, [](ArrayRecord& result) { result.anchor = result.held; });
    cut_past(s, op);  // it may have had its copies before
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
    return;
  }
  if (!to_come && !read) cut(s, op);
}

void unread(State& s, ArrayRecord& array) {
  if (--array.readers == 0) s.retire_candidates.push_back(array.producer);
  if (array.unnamed && array.readers <= static_cast<std::int32_t>(array.keeps.size())) let_go(s, array);
}

}  // namespace tilewise::scheduler
