// The account of a graph: what was predicted when it was submitted, beside what has been measured since. Of a graph whose
// account was asked for (msg::Submit::account) its plan, and what the cost model knew, are kept, so that the simulation runs
// when somebody wants to see it, once: a submission pays for the copy, others for nothing. For people: no decision looks
// at it.
#pragma once
#include "draft.h"
#include "paper.h"

#include <optional>

namespace tilewise::scheduler {

constexpr std::size_t kMaxForetold = 64;  // graphs, the last; older ones keep what was measured

struct Foretold {
  std::vector<ir::Op> ops;
  std::vector<ir::Placement> placements;
  std::vector<PlannedKeep> keeps;
  std::vector<std::uint64_t> holds;
  std::optional<Paper> paper;  // of what is above; none: it has been run, or there are too many ops
  msg::Explanation prediction;
};

// Right before the draft becomes a graph.
std::unique_ptr<Foretold> foretell(const State& s, const Draft& draft);
void remember_prediction(State& s, GraphId graph, std::unique_ptr<Foretold> foretold);

// Answers Explain::account.
void account_of(State& s, GraphId graph, msg::Explanation& out);

}  // namespace tilewise::scheduler
