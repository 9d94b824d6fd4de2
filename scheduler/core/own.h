// Ops of the scheduler's own: what it has workers do that no client asked for. Each stands in a graph of its own, which no client waits
// for; what came of it is told to who looks after such ops (own_op_ended in checkpoints.h).
#pragma once
#include "state.h"

#include <string>
#include <string_view>

namespace tilewise::scheduler {

// An empty graph; `like`: with the session, number and weight of another one.
GraphRecord& own_graph(State& s, const GraphRecord* like);
// An op that says of each of its points that it is done, with a number that nobody reads but who waits for it.
ir::Op own_call(State& s, std::string_view label, std::string_view kernel, std::string params,
                const ir::Grid& space);
ir::Grid one_point();
// Into the graph and the plan, which workers are still to be told.
OpId add_own(State& s, GraphRecord& graph, msg::Plan& plan, ir::Op op, ir::Placement placement);
msg::Plan own_plan(const GraphRecord& graph);

}  // namespace tilewise::scheduler
