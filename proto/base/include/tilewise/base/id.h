// Strongly typed identifiers. Never an address, never reused.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>

namespace tilewise {

template <class Tag, class Rep> struct Id {
  using rep = Rep;
  Rep value = 0;  // 0 is "none"

  constexpr Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  constexpr explicit operator bool() const { return value != 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

// Issued by the scheduler: (term << 40) | counter, so that no two scheduler lives issue the same one.
using ArrayId = Id<struct ArrayTag, std::uint64_t>;
using OpId = Id<struct OpTag, std::uint64_t>;
using GraphId = Id<struct GraphTag, std::uint64_t>;
// A worker id is issued at each join: it *is* the worker's incarnation.
using WorkerId = Id<struct WorkerTag, std::uint32_t>;
using SessionId = Id<struct SessionTag, std::uint32_t>;
// One device of one worker incarnation, or the data endpoint of one client session. Dense, never reused.
using DeviceId = Id<struct DeviceTag, std::uint32_t>;

constexpr std::uint64_t make_id(std::uint32_t term, std::uint64_t counter) {
  return (std::uint64_t{term} << 40) | (counter & ((std::uint64_t{1} << 40) - 1));
}

}  // namespace tilewise

template <class Tag, class Rep> struct std::hash<tilewise::Id<Tag, Rep>> {
  std::size_t operator()(tilewise::Id<Tag, Rep> id) const noexcept {
    std::uint64_t x = id.value * 0x9E3779B97F4A7C15ull;
    return static_cast<std::size_t>(x ^ (x >> 32));
  }
};
