// Which steps of a trace fed which: arrows for viewers of traces.
#pragma once
#include <tilewise/json/json.h>
#include <tilewise/trace.h>

#include <span>

namespace tilewise::cli {

// One arrow for each op, op that it reads, and device it ran on: from the last step of the op that is read to end before, to
// the first step there. `graphs`: as the dashboard tells them. Steps of one host: clocks of several do not compare.
std::vector<TraceFlow> flows_of(const std::vector<TraceStep>& steps, std::span<const json::value> graphs);

}  // namespace tilewise::cli
