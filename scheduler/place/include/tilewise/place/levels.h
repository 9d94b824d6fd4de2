// How long the rest of a plan takes at least, seen from each of its ops: the *bottom level*, the longest path from the beginning
// of one of its tasks to the end, in predicted seconds of steps and of blocks on their way. Devices that run out of other work
// wait for those with the highest level, so workers run what these read first (ir/ready_order.h).
//
// By op, not by task: three points of an op are looked at, whatever their number. Where a task reads many blocks of an operand,
// the path has as many tasks of its maker as one device makes of them.
#pragma once
#include <tilewise/place/place.h>

#include <boost/unordered/unordered_flat_map.hpp>

namespace tilewise::place {

class Levels {
 public:
  // `devices`: sorted by id, those that exist; both outlive this.
  Levels(std::span<const Device> devices, const Speeds& speeds) : devices_(devices), speeds_(speeds) {}

  // The next op of a plan, producers before readers. `geometry`: null where nothing runs (kFetch, kProvide).
  void add(const ir::Op& op, const ir::Geometry* geometry, const ir::Placement& placement,
           std::span<const Input> inputs);
  // Of each op added, in nanoseconds.
  std::vector<std::int64_t> nanoseconds() const;

 private:
  struct Edge {
    std::size_t from = 0, to = 0;  // ops: whose blocks `to` reads
    double tasks = 0;              // of `from` that one device makes for one task of `to`
    double moves_s = 0;
  };
  struct Node {
    double task_s = 0;
    double devices = 1;  // that have points of it, as if they had equally many
  };
  const Device& device(DeviceId id) const;
  double moves_s(const Input& input, std::int64_t block, DeviceId to) const;
  void look_at(const ir::Geometry& geometry, std::int64_t ordinal, const ir::Placement& placement,
               std::span<const Input> inputs, const std::string& family);

  std::span<const Device> devices_;
  const Speeds& speeds_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;  // by `to`
  boost::unordered_flat_map<std::uint64_t, std::size_t> maker_;
  struct Seen {
    double blocks = 0, moves_s = 0;  // of an operand: read by a task; the slowest of them
  };
  std::vector<Seen> seen_;
  std::vector<ir::Read> reads_;
};

}  // namespace tilewise::place
