#include <tilewise/base/text.h>
#include <tilewise/out_of_memory.h>

namespace tilewise {
namespace {

constexpr std::size_t kNamed = 4;  // devices of one line

}  // namespace

OutOfMemoryError::OutOfMemoryError(const Error& error, std::vector<msg::NeedAccount> needs,
                                   const std::function<std::string(DeviceId)>& name_of)
    : ArrayError(error.code, error.message + "\n" + needs_text(needs, name_of)), needs_(std::move(needs)) {}

std::string needs_text(const std::vector<msg::NeedAccount>& needs,
                       const std::function<std::string(DeviceId)>& name_of) {
  std::string out;
  for (const msg::NeedAccount& need : needs) {
    out += out.empty() ? "  " : "\n  ";
    for (std::size_t i = 0; i < need.devices.size() && i < kNamed; ++i)
      out += (i > 0 ? ", " : "") + name_of(need.devices[i]);
    if (need.devices.size() > kNamed) append(out, " and %zu more together", need.devices.size() - kNamed);
    out += ": " + bytes_text(need.needed_bytes) + " at once";
    std::string parts;
    const auto part = [&](std::int64_t bytes, const char* what) {
      if (bytes > 0) parts += (parts.empty() ? "" : ", ") + bytes_text(bytes) + what;
    };
    part(need.input_bytes, " to read");
    part(need.output_bytes, " to write");
    part(need.scratch_bytes, " to work in");
    part(need.held_bytes, " of held results");
    if (!parts.empty()) out += " (" + parts + ")";
    if (!need.op.empty()) out += " by " + need.op;
    out += "; there: " + bytes_text(need.memory_bytes);
    if (need.below_bytes > 0) out += ", and " + bytes_text(need.below_bytes) + " below";
  }
  return out;
}

}  // namespace tilewise
