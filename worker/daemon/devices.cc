#include "devices.h"

#include <tilewise/base/text.h>
#include <tilewise/device/cuda.h>

#include <algorithm>
#include <charconv>

namespace tilewise::worker {
namespace {

constexpr int kMaxOrdinal = 1023;
constexpr TimeNs kSpinNs = 20 * kMicrosecond;

bool parse_number(std::string_view text, int& out) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failed == std::errc() && end == text.data() + text.size() && out >= 0 && out <= kMaxOrdinal;
}

Status add_range(const std::string& item, int cuda_count, std::vector<DeviceName>& out) {
  const auto wrong = [&](const std::string& why) {
    return error(Errc::kInvalidArgument, "device '" + item + "': " + why);
  };
  const std::size_t colon = item.find(':');
  if (colon == std::string::npos) return wrong("write host:0, host:0-3, cuda:0 or cuda:all");
  const std::string kind = item.substr(0, colon), which = item.substr(colon + 1);
  if (kind != "host" && kind != "cuda") return wrong("the kinds are host and cuda");
  const bool cuda = kind == "cuda";
  int first = 0, last = 0;
  if (cuda && which == "all") {
    if (cuda_count == 0)
      return error(Errc::kNotFound, "cuda:all: no GPU, " + device::cuda_unavailable_reason());
    last = cuda_count - 1;
  } else {
    const std::size_t dash = which.find('-');
    const std::string_view low = std::string_view(which).substr(0, dash);
    const std::string_view high = dash == std::string::npos ? low : std::string_view(which).substr(dash + 1);
    if (!parse_number(low, first) || !parse_number(high, last) || last < first) {
      return wrong("'" + which + "' is no number or range of numbers up to " + std::to_string(kMaxOrdinal));
    }
  }
  if (cuda && last >= cuda_count) {
    return error(Errc::kNotFound, "device 'cuda:" + std::to_string(last) + "': there are " +
                                      std::to_string(cuda_count) + " usable GPUs" +
                                      (cuda_count == 0 ? ", " + device::cuda_unavailable_reason() : ""));
  }
  for (int i = first; i <= last; ++i) {
    const DeviceName name{cuda ? device::Kind::kCuda : device::Kind::kHost, i};
    if (std::find(out.begin(), out.end(), name) != out.end()) {
      return error(Errc::kAlreadyExists, "device '" + kind + ":" + std::to_string(i) + "' is named twice");
    }
    out.push_back(name);
  }
  return {};
}

}  // namespace

std::int64_t host_bytes(const std::vector<std::unique_ptr<device::Device>>& devices) {
  std::int64_t bytes = 0;
  for (const auto& device : devices)
    if (device->info().kind == device::Kind::kHost) bytes += device->info().memory_bytes;
  return bytes;
}

Result<std::vector<DeviceName>> parse_devices(const std::string& text, int cuda_count) {
  std::vector<DeviceName> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    TW_TRY(add_range(text.substr(at, comma - at), cuda_count, out));
    at = comma + 1;
  }
  return out;
}

Result<std::vector<std::unique_ptr<device::Device>>> make_devices(const std::vector<DeviceName>& names,
                                                                  const DevicePlan& plan) {
  const auto hosts = static_cast<int>(std::count_if(
      names.begin(), names.end(), [](const DeviceName& n) { return n.kind == device::Kind::kHost; }));
  const int threads = hosts > 0 ? std::max(1, plan.cores / hosts) : 1;
  const std::int64_t share = hosts > 0 ? plan.room.bytes / 10 * 6 / hosts : 0;
  if (hosts > 0 && plan.memory_bytes == 0 && share < kLeastMemory)
    return error(Errc::kOutOfMemory, "60 % of the " + bytes_text(plan.room.bytes) + " of memory that " +
                                         plan.room.by + " leaves is less than " + bytes_text(kLeastMemory) +
                                         " for each of " + std::to_string(hosts) + " host devices");
  std::vector<std::unique_ptr<device::Device>> devices;
  for (const DeviceName& name : names) {
    if (name.kind == device::Kind::kCuda) {
      TW_ASSIGN(auto device,
                device::make_cuda_device({.ordinal = name.ordinal, .memory_bytes = plan.memory_bytes}));
      devices.push_back(std::move(device));
      continue;
    }
    device::HostOptions host;
    host.ordinal = name.ordinal;
    host.threads = threads;
    host.memory_bytes = plan.memory_bytes > 0 ? plan.memory_bytes : share;
    // A single core is the main thread's, which runs short steps itself (RuntimeOptions::one_core).
    host.spin_ns = plan.cores > 1 && hosts * threads <= plan.cores ? kSpinNs : 0;
    devices.push_back(device::make_host_device(host));
  }
  return devices;
}

}  // namespace tilewise::worker
