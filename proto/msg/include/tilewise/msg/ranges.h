// Blocks as ranges.
#pragma once
#include <tilewise/msg/msg.h>

#include <cstdint>
#include <vector>

namespace tilewise::msg {

// `block` lies behind all that are there.
inline void append(std::vector<Range>& ranges, std::int64_t block) {
  if (!ranges.empty() && ranges.back().first + ranges.back().count == block)
    ++ranges.back().count;
  else
    ranges.push_back({block, 1});
}

}  // namespace tilewise::msg
