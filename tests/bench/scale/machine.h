// Devices that exist on paper: tasks take the time of the plain cost model, bytes that of their links. Every policy is
// judged by the same one.
//
// A device runs the ready task that is first in plan order, of one op first those that other devices wait for. Those that
// read nothing and that nobody else waits for run when their first reader would be next. A device has one port in and one port out; each byte occupies both for the time of its link
// (place/speeds.h), a queue each. Memory that can be read in place occupies neither and is not traffic. Where every
// task's device is known from the start, a block leaves for its readers as soon as it is made; otherwise when a reader
// has been given a device. Memory is unbounded and counted.
#pragma once
#include "least.h"
#include "unrolled.h"

#include <functional>

namespace tilewise::scale {

struct Machine {
  std::vector<place::Device> devices;  // sorted by id
  std::vector<double> slower;          // by device: times as slow as the model; empty: none is
  // A larger block that several devices of another host read comes there once, by a binary tree over hosts, and is passed on
  // inside, as workers do (docs/design/trees.md), but whole: workers pass large ones on while they come, which is sooner. Only where every
  // task's device is known from the start.
  std::int64_t tree_bytes = place::kTreeBytes;
  double ratio(std::size_t device) const { return slower.empty() ? 1 : slower[device]; }
  double speed() const;  // of all streams together, in streams of ratio 1
};

struct Outcome {
  double seconds = 0;
  std::int64_t moved_bytes = 0;     // between devices
  std::int64_t crossing_bytes = 0;  // of these, between hosts
  std::int64_t peak_bytes = 0;      // of the device that had most
  std::int64_t tasks = 0;
};

// What a policy that decides while the graph runs may look at.
struct Running {
  const Unrolled& graph;
  const Machine& machine;
  const std::vector<std::int32_t>& owner;  // by task, -1: none yet
  const std::vector<double>& occupied_s;   // by device: work given and not finished
  std::int32_t idlest = 0;                 // the device with least of that
  // The block is there, or on its way.
  std::function<bool(std::uint32_t block, std::int32_t device)> has;
};
using Choose = std::function<std::int32_t(std::uint32_t task, const Running&)>;
using Finished = std::function<void(double now, std::uint32_t task, std::int32_t device)>;

Outcome run(const Unrolled& graph, const Machine& machine, std::vector<std::int32_t> owners,
            const Finished& finished = {});
// Asks for a device whenever all that a task reads has been made.
Outcome run(const Unrolled& graph, const Machine& machine, const Choose& choose);

// No schedule is shorter: all work at full speed everywhere, the longest chain on the fastest device, `received_bytes`
// through one port.
double lower_bound_s(const Unrolled& graph, const Machine& machine, double received_bytes);

}  // namespace tilewise::scale
