// "--devices host:0-3,cuda:all": which devices this process owns.
#pragma once
#include <tilewise/config/allowance.h>
#include <tilewise/device/device.h>

#include <memory>
#include <string>
#include <vector>

namespace tilewise::worker {

struct DeviceName {
  device::Kind kind = device::Kind::kHost;
  int ordinal = 0;
  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// Items host:N, host:N-M, cuda:N, cuda:N-M, cuda:all (those there are: `cuda_count`), separated by commas.
// kInvalidArgument quotes the item; kAlreadyExists for one named twice; kNotFound for a GPU that is not there.
Result<std::vector<DeviceName>> parse_devices(const std::string& text, int cuda_count);

// Of a device: a step's blocks have to fit.
constexpr std::int64_t kLeastMemory = 1 << 20;

struct DevicePlan {
  int cores = 1;  // what this process may keep busy
  // Of each device; 0: a share of 60 % of `room`, all of which is taken for this process's (CUDA: its own default).
  std::int64_t memory_bytes = 0;
  config::Allowance room;
};

// One executor thread a host device, more where cores are left over; none of them polls when there are more executors
// than cores (D8). kOutOfMemory where a share is less than kLeastMemory.
Result<std::vector<std::unique_ptr<device::Device>>> make_devices(const std::vector<DeviceName>& names,
                                                                  const DevicePlan& plan);

// All that host devices may grow to.
std::int64_t host_bytes(const std::vector<std::unique_ptr<device::Device>>& devices);

}  // namespace tilewise::worker
