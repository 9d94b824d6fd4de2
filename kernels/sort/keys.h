// Numbers as unsigned keys whose order is the one that arrays are sorted in: NaN last, -0 before +0, and complemented
// where the order is descending (NaN still last). And what sorts such keys.
#pragma once
#include <hwy/contrib/sort/vqsort.h>
#include <tilewise/kernels/plugin_abi.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
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

  static Key key(T x) {
    Key k;
    if constexpr (std::is_floating_point_v<T>) {
      const Key bits = std::bit_cast<Key>(x);
      const auto negative =
          static_cast<Key>(static_cast<std::make_signed_t<Key>>(bits) >> (8 * sizeof(T) - 1));
      k = static_cast<Key>(bits ^ (negative | kSign));
    } else if constexpr (std::is_signed_v<T>) {
      k = static_cast<Key>(static_cast<Key>(x) ^ kSign);
    } else {
      k = static_cast<Key>(x);
    }
    if constexpr (kDescending) k = static_cast<Key>(~k);
    // No other number has it: it would be one with all bits set.
    if constexpr (std::is_floating_point_v<T>) k = x != x ? kMost : k;
    return k;
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

template <class T> constexpr std::int32_t dtype_of() {
  if constexpr (std::is_same_v<T, double>) return TILEWISE_FLOAT64;
  if constexpr (std::is_same_v<T, float>) return TILEWISE_FLOAT32;
  constexpr bool kSigned = std::is_signed_v<T>;
  switch (sizeof(T)) {
    case 1: return kSigned ? TILEWISE_INT8 : TILEWISE_UINT8;
    case 2: return kSigned ? TILEWISE_INT16 : TILEWISE_UINT16;
    case 4: return kSigned ? TILEWISE_INT32 : TILEWISE_UINT32;
    default: return kSigned ? TILEWISE_INT64 : TILEWISE_UINT64;
  }
}

// Many at a time, in whatever vectors the processor has (lanes_keys.cc). `to` may be `from`. Of dtypes that have an order.
struct KeyFns {
  void (*to_keys)(const void* values, void* keys, std::int64_t n) = nullptr;
  void (*from_keys)(const void* keys, void* values, std::int64_t n) = nullptr;
  // How many of the values are in order: up to the first that comes before the one ahead of it.
  std::int64_t (*sorted_until)(const void* values, std::int64_t n) = nullptr;
  // Values that may be passed over, a multiple of kSkipped: among them none has an equal_key() before `bar`, or `bar` itself
  // where `or_equal`.
  std::int64_t (*not_before)(const void* values, std::int64_t n, std::uint64_t bar, bool or_equal) = nullptr;
};
constexpr std::int64_t kSkipped = 64;
KeyFns find_key_fns(std::int32_t dtype, bool descending);

// What lines are sorted by, as keys that vectorised sorting knows. Keys alone:
template <class T, bool kDescending> class Values {
 public:
  static constexpr bool kNumbered = false;
  using Order = sort::Order<T, kDescending>;
  using Key = typename Order::Key;
  static constexpr Key kLast = Order::kMost;

  static Key key(T x, std::int64_t = 0) { return Order::key(x); }
  static T value(Key k) { return Order::value(k); }
  static void keys(const T* from, Key* to, std::int64_t n) { fns().to_keys(from, to, n); }
  static void values(const Key* from, T* to, std::int64_t n) { fns().from_keys(from, to, n); }
  static std::int64_t sorted_until(const T* from, std::int64_t n) { return fns().sorted_until(from, n); }

 private:
  static const KeyFns& fns() {
    static const KeyFns found = find_key_fns(dtype_of<T>(), kDescending);
    return found;
  }
};
// With numbers, from 0 up: as the low half of 128 bits, so that equal elements come in their order, which is what makes the order
// stable. Equal are zeros of both signs: which of them it is, is the lowest bit.
template <class T, bool kDescending> struct NumberedValues {
  static constexpr bool kNumbered = true;
  using Order = sort::Order<T, kDescending>;
  using Key = hwy::uint128_t;
  static constexpr std::int64_t kLastNumber = std::numeric_limits<std::int64_t>::max();
  static constexpr Key kLast{static_cast<std::uint64_t>(kLastNumber) << 1, Order::kMost};

  static Key key(T x, std::int64_t number) {
    bool negative_zero = false;
    if constexpr (std::is_floating_point_v<T>) negative_zero = x == T{0} && std::signbit(x);
    return {static_cast<std::uint64_t>(number) << 1 | (negative_zero ? 1u : 0u), Order::equal_key(x)};
  }
  static T value(const Key& k) {
    const T x = Order::value(static_cast<typename Order::Key>(k.hi));
    if constexpr (std::is_floating_point_v<T>)
      if ((k.lo & 1) != 0) return -x;
    return x;
  }
  static std::int64_t number(const Key& k) { return static_cast<std::int64_t>(k.lo >> 1); }
  // Of values whose numbers count up behind that of `bar`, or of any (`listed`).
  static std::int64_t not_before(const T* from, std::int64_t n, const Key& bar, bool listed) {
    static const KeyFns found = find_key_fns(dtype_of<T>(), kDescending);
    return found.not_before(from, n, bar.hi, listed);
  }
};

inline bool less(const hwy::uint128_t& a, const hwy::uint128_t& b) {
  return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}
template <class Key> bool less(Key a, Key b) { return a < b; }
template <class Key> bool less_than(const Key& a, const Key& b) { return less(a, b); }
template <class Key> bool at_most(const Key& a, const Key& b) { return !less(b, a); }

// Below this the vectorised sort's set-up costs more than it saves.
constexpr std::int64_t kShort = 64;

inline void sort_keys(std::uint8_t* keys, std::int64_t n) {  // a histogram: there are only so many
  std::array<std::int64_t, 256> counts{};
  for (std::int64_t i = 0; i < n; ++i) ++counts[keys[i]];
  for (std::size_t k = 0; k < counts.size(); ++k)
    keys = std::fill_n(keys, counts[k], static_cast<std::uint8_t>(k));
}
template <class Key> void sort_keys(Key* keys, std::int64_t n) {
  if (n < kShort)
    std::sort(keys, keys + n, [](const Key& a, const Key& b) { return less(a, b); });
  else
    hwy::Sorter()(keys, static_cast<std::size_t>(n), hwy::SortAscending());
}

}  // namespace tilewise::kernels::sort
