// What the scheduler tells, as the JSON of the page, of scripts and of the tool: docs/dashboard.md names the fields.
// Ids are texts, times are seconds since the scheduler's start, sizes are bytes.
#pragma once
#include "warnings.h"

#include <tilewise/dashboard/log_ring.h>
#include <tilewise/json/json.h>
#include <tilewise/scheduler/view.h>

namespace tilewise::dashboard {

json::object to_json(const scheduler::Overview& overview, const std::vector<Warning>& warnings);
json::object to_json(const scheduler::GraphView& graph);
json::object to_json(const scheduler::ArrayList& arrays);
// With the owners of a window of blocks, at most kWindow along each of the last two dimensions; `at`: its first block.
constexpr std::int64_t kWindow = 64;
json::object to_json(const scheduler::ArrayDetail& array, const ir::Index& at);
json::object to_json(const msg::Explanation& explanation);
json::object to_json(const std::vector<std::shared_ptr<const LogLine>>& lines);
json::object to_json(const scheduler::LinkList& links);
json::object to_json(const std::vector<msg::BlocksReply>& replies);
// Columns of equal length, one entry a record: much smaller than an object each. Clocks are aligned already.
json::object to_json(const std::vector<msg::TraceReply>& replies);

}  // namespace tilewise::dashboard
