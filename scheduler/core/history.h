// What is remembered, for people, of graphs and ops beyond their lives: bounded, never looked at by any decision, and where
// Options::history_graphs is 0, only of graphs whose account was asked for (account.h).
#pragma once
#include <tilewise/scheduler/view.h>

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <tuple>

namespace tilewise::scheduler {

struct Draft;
struct State;
struct GraphRecord;
struct OpRecord;
struct Peer;
struct Foretold;  // account.h

constexpr std::size_t kMaxPastOps = 65'536;   // of all graphs
constexpr std::size_t kMaxSourceOps = 4'096;  // of one graph
constexpr std::size_t kMaxLostPeers = 64;
constexpr std::size_t kMaxPeakGraphs = 64;      // running at once: of more, no peaks are kept
constexpr std::size_t kMaxPastLinks = 4'096;    // of one graph
constexpr std::size_t kMaxAskedGraphs = 64;     // that ended, where only those asked for are kept
constexpr std::size_t kMaxAffected = 16;        // dependents named of one failure
constexpr std::size_t kMaxRejectedOps = 4'096;  // of one graph, whose rejected placements are kept

struct PastWork {  // of a graph's steps, on one device
  std::int64_t tasks = 0, busy_ns = 0;
};

struct PastGraph {
  GraphSummary
      summary;  // while it runs: what does not change, and what a failure has reached of ops that are retired
  std::vector<SourceOp> source;
  std::uint32_t source_count = 0;
  std::vector<PassCount> passes;
  std::vector<std::vector<RejectedView>> rejected;  // by position
  std::vector<OpView> ops;                          // retired ones, in the order in which they went
  std::uint32_t forgotten = 0;
  std::vector<DevicePeak> peaks;                                              // by device; while it ran
  bool alone = true;                                                          // no other graph ran meanwhile
  bool asked = false;                                                         // for its account
  std::map<DeviceId, PastWork> work;                                          // of retired ops
  std::map<std::tuple<DeviceId, DeviceId, msg::Lane>, msg::PairStats> links;  // what moved while it ran
};

struct History {
  History();
  ~History();  // where Foretold is known

  std::map<GraphId, PastGraph> graphs;                    // running ones, and those that ended last
  std::deque<GraphId> ended;                              // oldest first
  std::size_t ops = 0;                                    // in all graphs
  std::vector<GraphId> running;                           // of `graphs`
  std::deque<LostPeer> lost;                              // oldest first
  std::map<GraphId, std::unique_ptr<Foretold>> foretold;  // of the latest graphs that were asked for
};

std::vector<SourceOp> source_of(const State& s, const std::vector<ir::Op>& ops);
// What else was thought of for each op of it.
std::vector<std::vector<RejectedView>> rejected_of(const State& s, const Draft& draft);
std::span<const RejectedView> rejected_of(const State& s, const OpRecord& op);
void remember_graph(State& s, const GraphRecord& graph, PastGraph past);
void remember_end(State& s, const GraphRecord& graph);
void remember_op(State& s, const OpRecord& op);  // about to be forgotten
void remember_peak(State& s, const msg::DeviceStats& stats, const msg::DeviceStats& before);
void remember_link(State& s, const msg::PairStats& more);  // what a pair took in since the last report
void add_work(const OpRecord& op, std::map<DeviceId, PastWork>& work);
void remember_loss(State& s, const Peer& peer, bool stopped);

// view.cc, shared: without shares
OpView view_of(const State& s, const OpRecord& op);

}  // namespace tilewise::scheduler
