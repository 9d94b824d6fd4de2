// The life of graphs, ops and arrays after they were planned: finishing, cancelling, releasing, retiring.
#pragma once
#include "state.h"

namespace tilewise::scheduler {

// Of a layer: whose blocks it makes again; else itself.
OpRecord& head_of(State& s, OpRecord& op);
// It and all its layers.
bool group_finished(const State& s, const OpRecord& head);
// Its results can be delivered: all are made, and none of them may have been lost meanwhile.
bool complete(const State& s, const OpRecord& head);
// A fetch ends with the rest of its graph, when its client has said that all is there: until then what it may not have
// got yet is made again if it is lost.
bool deliverable(const State& s, const OpRecord& fetch);
// The client has what this graph fetches, or does not want it.
void deliver(State& s, GraphRecord& graph);
// Nothing of this op will run any more: its reads end, and fetches of its outputs are the workers' to complete.
void finish_op(State& s, OpRecord& op);
// Some of what it made may have been lost: those who may have it were asked, and have not all answered.
bool in_doubt(const State& s, const GraphRecord& graph);
// Sends GraphDone when no op is open, and none is in doubt.
void finish_graph_if_done(State& s, GraphRecord& graph);
// One that has ended and has no ops left, not even as lineage.
void forget_if_empty(State& s, GraphRecord& graph);
// Ends the graph and, first, every unfinished graph that reads what it will not make.
void cancel_graph(State& s, GraphId id, const msg::Outcome& why);
// A session's hold on an array begins, and ends; with the last one workers are to be told of what is in `released`.
void hold_array(State& s, ArrayRecord& array, Holder holder);
void release_array(State& s, ArrayRecord& array, SessionId session, std::vector<ArrayId>& released);
// Marks an array as unusable; later submissions that name it are told why.
void fail_array(ArrayRecord& array, const msg::Outcome& why);
void acknowledge_cancels(State& s, WorkerId worker, std::uint64_t log_applied);
// Forgets ops whose outputs are dead, and tells the workers in one entry.
void retire(State& s);

// The graph is one of this session's too, as its request; 0: it is not.
std::uint64_t request_of(const GraphRecord& graph, SessionId session);
// Calls visit(session, request) for each session whose graph it is: none, of those that look after the scheduler's own files.
template <class F> void for_each_asker(const GraphRecord& graph, F&& visit) {
  if (graph.session) visit(graph.session, graph.request);
  for (const Asker& other : graph.others) visit(other.session, other.request);
}

// Of a request that has ended, or of what came after its end.
void tell_end(State& s, const Asker& asker, GraphId graph, const msg::GraphDone& done);

// "request 3, planned op 5 (matmul 'gram')"
std::string describe(const State& s, const OpRecord& op);
std::string describe(const ArrayRecord& array);  // as its user knows it

// Of an op's results, those of this share: all of them, whether they are made yet or not.
std::int64_t share_bytes(const OpRecord& op, const OpShare& share);
std::int64_t share_bytes(std::int64_t all, std::int64_t owned, std::int64_t points);
// Adds (sign 1) or takes away (sign -1) an op's results from its devices' load.
void account_load(State& s, const OpRecord& op, int sign);
// So many of its points, which shares own no more, are made elsewhere or not at all. Between the two above.
void take_points(State& s, OpRecord& op, std::int64_t count);

}  // namespace tilewise::scheduler
