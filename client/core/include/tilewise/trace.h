// What really ran, when and where: the last steps of host kernels that the workers remember.
#pragma once
#include <tilewise/msg/msg.h>
#include <tilewise/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewise {

struct TraceStep {
  std::string device;    // "w1/host:0"
  std::string what;      // family of ops: "matmul", "call heat.windowed"
  std::uint64_t op = 0;  // number in the cluster; ids rise along a graph
  std::uint64_t graph = 0;
  std::int64_t point = 0;  // C-order number of the task in its op
  int stream = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // monotonic clock of the worker's host: compare within a host only
};

struct TraceFlow {  // what `from` made was needed for `to`: places in Trace::steps
  std::size_t from = 0, to = 0;
};

struct Trace {
  std::vector<TraceStep> steps;  // by start
  std::vector<TraceFlow> flows;  // drawn as arrows; filled in by who knows them (`tilewise trace`)
  std::uint64_t lost = 0;        // older ones that workers had forgotten

  // For chrome://tracing and Perfetto: a row for each device and stream; microseconds.
  std::string chrome_json() const;
};

// From the workers' replies. Devices are named by `devices`.
Trace make_trace(const std::vector<msg::TraceReply>& replies, const std::vector<Device>& devices);

}  // namespace tilewise
