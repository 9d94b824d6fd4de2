// From what workers remember of a graph, the chain that decided its end.
#pragma once
#include <tilewise/msg/msg.h>

#include <vector>

namespace tilewise::client {

// Begins with the step that ended last. Before a step came whatever ended last of: what its op took in on that device, the
// step before it there. Before a transfer came the last step of the task that made the block. Hosts' clocks
// are to be aligned (msg::align_clocks); what is still out of order has no length. Neighbours of one op, device and kind are one
// stretch; at most `most` of them are told, the last.
std::vector<msg::CriticalAccount> measured_path(const std::vector<msg::TraceReply>& traces,
                                                const std::vector<msg::MeasuredOp>& ops, std::size_t most);

}  // namespace tilewise::client
