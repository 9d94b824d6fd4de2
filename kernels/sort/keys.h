// Numbers as unsigned keys whose order is the one that arrays are sorted in: NaN last, -0 before +0, and complemented
// where the order is descending (NaN still last).
#pragma once
#include <tilewise/kernels/plugin_abi.h>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace tilewise::kernels::sort {

template <std::size_t Bytes> struct KeyOf;
template <> struct KeyOf<1> { using type = std::uint8_t; };
template <> struct KeyOf<2> { using type = std::uint16_t; };
template <> struct KeyOf<4> { using type = std::uint32_t; };
template <> struct KeyOf<8> { using type = std::uint64_t; };

template <class T, bool kDescending> struct Order {
  using Key = typename KeyOf<sizeof(T)>::type;
  static constexpr Key kSign = static_cast<Key>(Key{1} << (8 * sizeof(T) - 1));
  static constexpr Key kMost = static_cast<Key>(~Key{0});

  // Of a number: its bits, so that unsigned comparison orders them.
  static constexpr Key rising(T x) {
    const Key bits = std::bit_cast<Key>(x);
    const auto negative = static_cast<Key>(static_cast<std::make_signed_t<Key>>(bits) >> (8 * sizeof(T) - 1));
    return static_cast<Key>(bits ^ (negative | kSign));
  }
  static Key key(T x) {
    Key k;
    if constexpr (std::is_floating_point_v<T>) {
      if (x != x) return kMost;  // no other number has it: it would be one with all bits set
      k = rising(x);
    } else if constexpr (std::is_signed_v<T>) {
      k = static_cast<Key>(static_cast<Key>(x) ^ kSign);
    } else {
      k = static_cast<Key>(x);
    }
    return kDescending ? static_cast<Key>(~k) : k;
  }
  static T value(Key k) {
    if constexpr (std::is_floating_point_v<T>) {
      if (k == kMost) return static_cast<T>(__builtin_nan(""));
    }
    if constexpr (kDescending) k = static_cast<Key>(~k);
    if constexpr (std::is_floating_point_v<T>) {
      return std::bit_cast<T>(static_cast<Key>(k ^ ((k & kSign) ? kSign : kMost)));
    } else if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(k ^ kSign);
    } else {
      return static_cast<T>(k);
    }
  }
  // The order of key(), of numbers as value() gives them: a NaN has one form, so nothing needs to be asked about it.
  static Key sorted_key(T x) {
    if constexpr (!std::is_floating_point_v<T>) {
      return key(x);
    } else if constexpr (!kDescending) {
      return rising(x);
    } else {
      // NaN would come first: the keys are turned until it is the last.
      constexpr Key kPastNan = static_cast<Key>(~rising(static_cast<T>(__builtin_nan(""))) + 1);
      return static_cast<Key>(~rising(x) - kPastNan);
    }
  }
  // Equal for == : what stable orders must not tell apart.
  static Key equal_key(T x) {
    if constexpr (std::is_floating_point_v<T>)
      if (x == T{0}) return key(T{0});
    return key(x);
  }
};

// visit(T()) for a dtype that has an order here; false for others (16-bit floats are sorted as float32).
template <class Visit> bool with_ordered(std::int32_t dtype, Visit&& visit) {
  switch (dtype) {
    case TILEWISE_BOOL:
    case TILEWISE_UINT8: visit(std::uint8_t{}); return true;
    case TILEWISE_INT8: visit(std::int8_t{}); return true;
    case TILEWISE_INT16: visit(std::int16_t{}); return true;
    case TILEWISE_UINT16: visit(std::uint16_t{}); return true;
    case TILEWISE_INT32: visit(std::int32_t{}); return true;
    case TILEWISE_UINT32: visit(std::uint32_t{}); return true;
    case TILEWISE_INT64: visit(std::int64_t{}); return true;
    case TILEWISE_UINT64: visit(std::uint64_t{}); return true;
    case TILEWISE_FLOAT32: visit(float{}); return true;
    case TILEWISE_FLOAT64: visit(double{}); return true;
    default: return false;
  }
}

}  // namespace tilewise::kernels::sort
