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
Status explain(Control& control, GraphId graph, Format format);
struct WebOptions;
// Writes the file whole or not at all; "-": standard output. With arrows between ops if the dashboard can be asked. What
// was written is told on standard error, as JSON on standard output.
Status trace(Control& control, const WebOptions& dashboard, const std::string& file, Format format);

struct DoctorOptions {
  std::string scheduler;  // empty: not asked
  std::string token_file;
  TimeNs timeout_ns = 5 * kSecond;
  Format format = Format::kText;
};
// One line a check: ok, warn or fail, and why. 1 if anything failed.
int doctor(const DoctorOptions& options);

}  // namespace tilewise::cli
