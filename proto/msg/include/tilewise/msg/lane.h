// Which way bytes really went.
#pragma once
#include <cstdint>
#include <string_view>

namespace tilewise::msg {

// Stable on the wire.
enum class Lane : std::uint8_t {
  kSameDevice = 0,
  kMapped,
  kPeerCopy,
  kCudaIpc,
  kSharedMemory,
  kRdma,
  kTcp,
  kStaged,
  kInline
};
constexpr int kLaneCount = 9;
std::string_view name_of(Lane lane);

}  // namespace tilewise::msg
