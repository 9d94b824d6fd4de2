#include "past.h"

#include "state.h"

#include <algorithm>
#include <bit>
#include <boost/container/small_vector.hpp>
#include <cmath>

namespace tilewise::scheduler {
namespace {

constexpr double kMostSeconds = 1e9;
constexpr std::int64_t kLittle =
    8;  // a past that is that many times shorter than another is little beside it

Past own(const OpRecord& op) {
  return {1, static_cast<std::int64_t>(std::ceil(std::clamp(op.work_s, 0.0, kMostSeconds) * 1e9))};
}

// The ops that would have to be run before this one, each once; as far as they count.
template <class S> auto before(S& s, const OpRecord& op) {
  boost::container::small_vector<decltype(&s.ops.at(op.id)), 8> out;
  if (op.cut || op.tried) return out;
  for (const ir::Operand& operand : op.op.operands) {
    const ArrayRecord* array = s.arrays.find(ArrayId{operand.array});
    if (array == nullptr || array->anchor) continue;
    auto& producer = s.ops.at(array->producer);
    if (!producer.past.chosen && std::find(out.begin(), out.end(), &producer) == out.end())
      out.push_back(&producer);
  }
  return out;
}

// None, too, where it says nothing any more.
Past* set_of(State& s, const OpRecord& op) {
  Past* set = s.pasts.set(op.past.set);
  return set == nullptr || set->too_long(limit_of(s.options)) ? nullptr : set;
}

void note(State& s, OpRecord& op) {
  const auto producers = before(s, op);
  op.past = {.most = own(op)};
  const OpRecord* longest = nullptr;
  for (const OpRecord* producer : producers) {
    op.past.most += producer->past.most;
    if (longest == nullptr || producer->past.most.ops > longest->past.most.ops) longest = producer;
  }
  if (longest == nullptr || set_of(s, *longest) == nullptr) return;  // not one of what is little beside it
  op.past.set = longest->past.set;
  Past& set = *set_of(s, *longest);
  set += own(op);
  for (OpRecord* producer : producers) {
    if (producer->past.set == op.past.set) continue;
    set += producer->past.most;
    if (set_of(s, *producer) == nullptr) producer->past.set = op.past.set;
  }
  op.past.most.ops = std::min(op.past.most.ops, set.ops);
  op.past.most.ns = std::min(op.past.most.ns, set.ns);
}

void note_all(State& s) {
  std::vector<OpRecord*> ops;
  s.ops.for_each([&](OpRecord& op) {
    op.past = {};
    if (!op.of) ops.push_back(&op);
  });
  std::sort(ops.begin(), ops.end(), [](const OpRecord* a, const OpRecord* b) { return a->id < b->id; });
  for (OpRecord* op : ops) note(s, *op);
  s.pasts.known = true;
}

bool planned_earlier(const OpRecord* a, const OpRecord* b) { return a->id < b->id; }

template <class F> void for_each_bit(std::uint64_t bits, F&& visit) {
  for (; bits != 0; bits &= bits - 1) visit(static_cast<std::size_t>(std::countr_zero(bits)));
}

constexpr std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << i; }

}  // namespace

Past& Past::operator+=(const Past& more) {
  ops = std::min(ops + more.ops, kMost);
  ns = std::min(ns + more.ns, kMost);
  return *this;
}

Past limit_of(const Options& options) {
  const auto most = static_cast<std::uint64_t>(Past::kMost);
  return {static_cast<std::int64_t>(std::min<std::uint64_t>(options.max_recompute_ops, most)),
          options.max_recompute_ns};
}

Past half_of(const Options& options) {
  const Past limit = limit_of(options);
  return {limit.ops / 2, limit.ns / 2};
}

void note_past(State& s, OpRecord& op, double work_s) {
  op.work_s = std::min(work_s, kMostSeconds);
  if (!s.pasts.known) note_all(s);
  note(s, op);
}

void forget_past(OpRecord& op) {
  op.tried = true;
  op.past.most = own(op);
  op.past.set = 0;
}

PastWalk::PastWalk(State& s, std::span<const OpId> of, Limit limit)
    : s_(s),
      of_(of),
      limit_(limit == Limit::kHalf ? half_of(s.options) : limit_of(s.options)),
      walk_(++s.pasts.walks) {
  TW_CHECK(of.size() <= kMost, "a walk begins with more ops than it can tell apart");
  for (std::size_t i = 0; i < of.size(); ++i) reach(s.ops.at(of[i]), bit(i));
  // What is read was planned earlier, so who comes to an op has come to it before it is its turn.
  while (!open_.empty()) {
    std::pop_heap(open_.begin(), open_.end(), planned_earlier);
    OpRecord& op = *open_.back();
    open_.pop_back();
    op.past.reached = counted(op);
    if (op.past.reached != 0) count(op);
  }
  if (limit == Limit::kWhole)
    bind();  // else it may not have gone to the ends: what is chosen may get no copy
}

void PastWalk::reach(OpRecord& op, std::uint64_t by) {
  if (op.past.walk != walk_) {
    op.past.walk = walk_, op.past.reached = 0;
    open_.push_back(&op);
    std::push_heap(open_.begin(), open_.end(), planned_earlier);
  }
  op.past.reached |= by;
}

void PastWalk::count(OpRecord& op) {
  ++s_.counts.past_walked;
  seen_.push_back(&op);
  const Past more = own(op);
  for_each_bit(op.past.reached, [&](std::size_t i) {
    lengths_[i] += more;
    if (lengths_[i].too_long(limit_)) too_long_ |= bit(i);
  });
  const std::uint64_t by = counted(op);
  if (by == 0) return;
  for (OpRecord* producer : before(s_, op)) {
    TW_CHECK(producer->id < op.id, "an op reads what was planned later");
    reach(*producer, by);
  }
}

std::uint64_t PastWalk::counted(const OpRecord& op) const { return op.past.reached & ~too_long_; }

std::uint64_t PastWalk::counts_for(const OpRecord& op) const {
  return op.past.walk == walk_ ? op.past.reached : 0;
}

// Pasts that were counted to their ends become sets: those that have more than a little in common one together, others one each, so that
// programs that share nothing but their data do not count for each other.
void PastWalk::bind() {
  std::array<std::uint64_t, kMost> together{}, sets{};
  for (std::size_t i = 0; i < of_.size(); ++i) together[i] = bit(i);
  const auto first = [&](std::size_t i) { return static_cast<std::size_t>(std::countr_zero(together[i])); };
  for (const OpRecord* op : seen_) {
    const std::uint64_t by = counted(*op);
    if (by == 0) continue;
    const auto lowest = static_cast<std::size_t>(std::countr_zero(by));
    if ((by & ~together[lowest]) == 0) continue;
    const Past& past = op->past.most;
    if (past.ops <= lengths_[lowest].ops / kLittle && past.ns <= lengths_[lowest].ns / kLittle) continue;
    std::uint64_t all = 0;
    for_each_bit(by, [&](std::size_t i) { all |= together[i]; });
    for_each_bit(all, [&](std::size_t i) { together[i] = all; });
  }
  for (std::size_t i = 0; i < of_.size(); ++i) {
    if (too_long(i)) continue;
    s_.ops.at(of_[i]).past.most = lengths_[i];
    if (first(i) == i) sets[i] = s_.pasts.add({});
  }
  for (OpRecord* op : seen_) {
    for (std::uint64_t by = counted(*op); by != 0;) {
      const auto lowest = static_cast<std::size_t>(std::countr_zero(by));
      const std::uint64_t set = sets[first(lowest)];
      *s_.pasts.set(set) += own(*op);
      if (by == counted(*op)) op->past.set = set;
      by &= ~together[lowest];
    }
  }
}

void check_past(const State& s) {
  if (!s.pasts.known) return;
  constexpr std::size_t kEnough = 4096;
  const OpRecord *newest = nullptr, *some = nullptr;
  const std::uint64_t turn = s.ops.size() == 0 ? 0 : (s.next_op + s.next_graph) % s.ops.size();
  std::uint64_t at = 0;
  s.ops.for_each([&](const OpRecord& op) {
    const bool noted = op.past.most.ops > 0 && !op.of;
    if (noted && (newest == nullptr || newest->id < op.id)) newest = &op;
    if (noted && at <= turn) some = &op;
    ++at;
  });
  for (const OpRecord* of : {newest, some}) {
    if (of == nullptr) continue;
    std::set<OpId> seen{of->id};
    std::vector<const OpRecord*> work{of};
    Past past;
    while (!work.empty() && seen.size() < kEnough) {
      const OpRecord& op = *work.back();
      work.pop_back();
      past += own(op);
      for (const OpRecord* producer : before(s, op))
        if (seen.insert(producer->id).second) work.push_back(producer);
    }
    const Past* set = const_cast<Pasts&>(s.pasts).set(of->past.set);
    TW_CHECK(past.ops <= of->past.most.ops && past.ns <= of->past.most.ns,
             "a past is longer than its op knows");
    TW_CHECK(set == nullptr || (past.ops <= set->ops && past.ns <= set->ns),
             "a past is longer than the set that it is in");
  }
}

}  // namespace tilewise::scheduler
