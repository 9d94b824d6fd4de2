// Commands that ask the dashboard.
#pragma once
#include "commands.h"
#include "web.h"

namespace tilewise::cli {

// A page of text, drawn again and again until interrupted; once if `once`, or if standard output is no terminal.
Status top(const Web& web, Format format, double interval_s, bool once);
Status arrays(const Web& web, Format format);
// What has been measured of links, and what moved over them.
Status links(const Web& web, Format format);
// Empty `id`: a list of all that are remembered. `wait`: until it has ended, with a bar on standard error if that is a
// terminal; then kCancelled, or what it failed of, is an error.
Status graph(const Web& web, const std::string& id, bool wait, Format format);
// What was estimated of the ops of a graph when they were placed, beside what was measured, also when it has ended.
Status explain_past(const Web& web, GraphId graph, Format format);
// Prints a link that logs a browser in, once.
Status login_link(const Web& web, config::Role role, Format format);

// ---- texts, for tests ------------------------------------------------------------------------------------------------

// `before`: an earlier overview, for rates; null at first.
std::string top_text(const json::value& overview, const json::value* before);
std::string arrays_text(const json::value& arrays);
std::string links_text(const json::value& links, const json::value& overview);
std::string graph_text(const json::value& graph);
std::string account_text(const json::value& graph, const json::value& overview);

}  // namespace tilewise::cli
