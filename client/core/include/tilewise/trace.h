// What devices really did, when and where: the last steps, transfers and waits that the workers remember.
#pragma once
#include <tilewise/msg/msg.h>
#include <tilewise/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewise {

struct TraceStep {
  std::string device;    // "w1/host:0"
  std::string what;      // family of ops: "matmul", "call heat.windowed"; "lane tcp"; "waits for inputs"
  std::uint64_t op = 0;  // number in the cluster; ids rise along a graph
  std::uint64_t graph = 0;
  std::int64_t point = 0;  // C-order number of the task in its op
  int stream = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // monotonic clock of the worker's host: compare within a host only
  msg::TraceKind kind = msg::TraceKind::kStep;
  // Of transfers: from where, how much, for whom. `op` and `point` name the block by who makes it. Of blocks that leave a full
  // device, or come back: the neighbour that keeps them, empty where they are below.
  std::string peer;
  std::int64_t bytes = 0;
  std::uint64_t user = 0;
};

struct TraceFlow {  // what `from` made was needed for `to`: places in Trace::steps
  std::size_t from = 0, to = 0;
};

struct Trace {
  std::vector<TraceStep> steps;  // by start
  // Drawn as arrows. From maker to transfer to user, as far as transfers are remembered; those between ops of one device
  // are added by who knows them (`tilewise trace`).
  std::vector<TraceFlow> flows;
  std::uint64_t lost = 0;  // older ones that workers had forgotten
  std::uint64_t cut = 0;   // and those of the range that were too many to tell

  // For chrome://tracing and Perfetto: rows for each device's streams, waits and transfers; microseconds.
  std::string chrome_json() const;
};

// From the workers' replies. Devices are named by `devices`.
Trace make_trace(const std::vector<msg::TraceReply>& replies, const std::vector<Device>& devices);

}  // namespace tilewise
