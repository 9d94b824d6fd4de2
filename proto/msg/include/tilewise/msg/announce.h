// From a client: pieces that it has of an array, of which other clients have the rest.
#pragma once
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>
#include <tilewise/msg/outcome.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewise::msg {

constexpr std::uint32_t kMaxAnnouncers = 4'096;       // of one array
constexpr std::size_t kMaxAnnouncedPieces = 65'536;   // of one announcement
constexpr std::int64_t kMaxGatheredBlocks = 1 << 20;  // of one array: what the cuts of all pieces make

// Counts among the session's requests, and is answered by a SubmitReply: when all processes have announced, or when that
// has failed. A repeat is answered again, not counted again.
struct Announce {
  std::uint64_t request = 0;
  std::string name;  // the same in all announcements of one array
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;              // of the whole array
  std::uint32_t processes = 1;  // announcements that it takes
  std::int64_t timeout_ns = 0;  // how long to wait for the others; 0: for ever
  std::uint64_t array = 0;      // what the session calls the array, which it holds from then on
  std::uint32_t weight = 100;   // of the session, as in Submit
  std::vector<ir::Box> pieces;  // elements
  Outcome failed;               // not ok: it cannot take part, and the others need not wait
  friend bool operator==(const Announce&, const Announce&) = default;
};

}  // namespace tilewise::msg
