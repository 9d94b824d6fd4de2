// Ops and arrays in the form that the simulation wants, and what comes of it in the form that people are told.
#pragma once
#include "draft.h"

#include <tilewise/place/simulate.h>

#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <memory>

namespace tilewise::scheduler {

constexpr std::size_t kMaxToldOps = 8192;  // of one answer, one by one; all are counted

class Paper {
 public:
  explicit Paper(const State& s);

  // Ops that are added next are of this graph. Only one is asked about: without this, all ops are of that one.
  void begin(const place::SimGraph& graph, bool asked);
  // `held`: by ArrayId, sorted. What is given outlives this.
  void add(const ir::Op& op, const ir::Placement& placement, const std::vector<std::uint64_t>& held);
  // Nothing of the state is looked at any more from here on, so this may outlive what it says now.
  void keep();
  // Runs it; `out` has an entry for each op of the graph that is asked about.
  void account(msg::Explanation& out);

 private:
  std::size_t array(std::uint64_t id);
  void forget_promises();
  void critical_path(const std::vector<place::SimCritical>& path, msg::Explanation& out) const;
  place::LinkSpeed speed_of(DeviceId from, DeviceId to, bool mapped) const;

  const State* s_;  // none: kept
  const place::Speeds* speeds_;
  std::unique_ptr<place::Speeds> own_speeds_;
  std::vector<place::Device> devices_;
  std::vector<std::int64_t> below_;  // by device: bytes it may have in the tiers below
  std::deque<ir::Geometry> geometries_;
  std::deque<ir::Placement> own_placements_;
  std::vector<place::SimArray> arrays_;
  std::vector<std::size_t> read_;  // arrays that are none of these ops'
  std::vector<place::SimOp> ops_;
  boost::unordered_flat_map<std::uint64_t, std::size_t> index_;
  place::SimOptions options_;
  std::uint32_t graphs_ = 0;
  std::size_t first_ = 0;  // op of the graph that is asked about
};

// What is told of many ops must fit a message. The end decides the time, so the beginning is cut.
void cut_ops(msg::Explanation& out);

// Where an op of a draft is placed, and why there.
void tell_choices(const Draft& draft, std::size_t op, msg::OpAccount& out);
void tell_keep(const PlannedKeep& keep, std::size_t position, msg::OpAccount& out);

}  // namespace tilewise::scheduler
