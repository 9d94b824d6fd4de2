// What is remembered, for people, of graphs and ops beyond their lives: bounded, never looked at by any decision, and
// not there at all where Options::history_graphs is 0.
#pragma once
#include <tilewise/scheduler/view.h>

#include <deque>
#include <map>
#include <span>

namespace tilewise::scheduler {

struct Draft;
struct State;
struct GraphRecord;
struct OpRecord;
struct Peer;

constexpr std::size_t kMaxPastOps = 65'536;   // of all graphs
constexpr std::size_t kMaxSourceOps = 4'096;  // of one graph
constexpr std::size_t kMaxLostPeers = 64;
constexpr std::size_t kMaxPeakGraphs = 64;      // running at once: of more, no peaks are kept
constexpr std::size_t kMaxAffected = 16;        // dependents named of one failure
constexpr std::size_t kMaxRejectedOps = 4'096;  // of one graph, whose rejected placements are kept

struct PastGraph {
  GraphSummary summary;  // while it runs: only what does not change
  std::vector<SourceOp> source;
  std::uint32_t source_count = 0;
  std::vector<PassCount> passes;
  std::vector<std::vector<RejectedView>> rejected;  // by position
  std::vector<OpView> ops;                          // retired ones, in the order in which they went
  std::uint32_t forgotten = 0;
  std::vector<DevicePeak> peaks;  // by device; while it ran
  bool alone = true;              // no other graph ran meanwhile
};

struct History {
  std::map<GraphId, PastGraph> graphs;  // running ones, and those that ended last
  std::deque<GraphId> ended;            // oldest first
  std::size_t ops = 0;                  // in all graphs
  std::vector<GraphId> running;         // of `graphs`
  std::deque<LostPeer> lost;            // oldest first
};

std::vector<SourceOp> source_of(const State& s, const std::vector<ir::Op>& ops);
// What else was thought of for each op of it.
std::vector<std::vector<RejectedView>> rejected_of(const State& s, const Draft& draft);
std::span<const RejectedView> rejected_of(const State& s, const OpRecord& op);
void remember_graph(State& s, const GraphRecord& graph, PastGraph past);
void remember_end(State& s, const GraphRecord& graph);
void remember_op(State& s, const OpRecord& op);  // about to be forgotten
void remember_peak(State& s, const msg::DeviceStats& stats, std::int64_t used_before);
void remember_loss(State& s, const Peer& peer);

// view.cc, shared: without shares
OpView view_of(const State& s, const OpRecord& op);

}  // namespace tilewise::scheduler
