// What a client wants kept, and what it takes back.
#pragma once
#include <cstdint>
#include <vector>

namespace tilewise::msg {

// An array that is held is to be on so many workers, on different hosts where there are as many: the request is done when it is.
// With fewer workers it is on all of them, and on more as soon as they join.
constexpr std::uint32_t kMaxCopies = 16;
struct Keep {
  std::uint64_t array = 0;
  std::uint32_t copies = 1;  // 1 to kMaxCopies
  friend bool operator==(const Keep&, const Keep&) = default;
};

// What a session needs no more.
struct ReleaseArrays {
  std::vector<std::uint64_t> arrays;  // session numbers; follow the submits that name them
  // Requests of which the client has all that they fetch, or wants no more of it. Until then the scheduler has lost
  // blocks of it made again, and the request does not end.
  std::vector<std::uint64_t> delivered;
  friend bool operator==(const ReleaseArrays&, const ReleaseArrays&) = default;
};
struct CancelRequest {
  std::uint64_t request = 0;
  friend bool operator==(const CancelRequest&, const CancelRequest&) = default;
};

}  // namespace tilewise::msg
