// What the tool prints. Each command returns the exit code of the program.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>

#include <string>

namespace tilewise::cli {

enum class Format : std::uint8_t { kText, kJson };

void print_status(const msg::StatusReply& status, const std::string& address, Format format);
void print_devices(const msg::StatusReply& status, Format format);

class Control;
struct WebOptions;
// Of a graph that runs, what is predicted of the rest of it; of one that ended, what was estimated and what was measured.
Status explain(Control& control, const WebOptions& dashboard, GraphId graph, Format format);
// Of a graph that runs or has ended: what was predicted when it was submitted, beside what has been measured.
Status account(Control& control, GraphId graph, Format format);
struct TraceOptions {
  std::string file;                 // "-": standard output
  GraphId graph;                    // given: of this one only
  double last_s = 0, before_s = 0;  // given: what ended at most, and began at least, so many seconds ago
};
// Writes the file whole or not at all. With arrows between ops if the dashboard can be asked. What was written is told on
// standard error, as JSON on standard output.
Status trace(Control& control, const WebOptions& dashboard, const TraceOptions& options, Format format);

// A graph's number, whole or as it is printed: without the scheduler's term. Errors: kInvalidArgument.
Result<GraphId> graph_of(Control& control, const std::string& text);

struct DrainOptions {
  std::string worker;  // "w3", "3" or its name
  bool undo = false;
  bool ask = false;      // only tell how far it is
  double wait_s = 3600;  // for the worker to be gone; the wish stays in force after that
  Format format = Format::kText;
};
// Returns when the worker has left, or (undo, ask) when the scheduler has answered. What changes on the way is told on
// standard error. Errors: no such worker; it died (kWorkerLost); it has not left in time (kTimeout, saying why).
Status drain(Control& control, const DrainOptions& options);

struct DoctorOptions {
  std::string scheduler;  // empty: not asked
  std::string token_file;
  TimeNs timeout_ns = 5 * kSecond;
  Format format = Format::kText;
};
// One line a check: ok, warn or fail, and why. 1 if anything failed.
int doctor(const DoctorOptions& options);

}  // namespace tilewise::cli
