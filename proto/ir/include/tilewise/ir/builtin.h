// The built-in kernels that client functions call: names, and parameters as they travel (CallAttrs::params). What each
// reads and writes is said here once, for the client that calls it and the kernel that runs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace tilewise::ir::builtin {

// Parameters as bytes. All fields are int64, so there is no padding; client and workers share one byte order.
template <class P> std::string bytes_of(const P& params) {
  static_assert(std::is_trivially_copyable_v<P> && sizeof(P) % sizeof(std::int64_t) == 0);
  return std::string(reinterpret_cast<const char*>(&params), sizeof(P));
}
template <class P> bool read(P& params, const void* data, std::size_t bytes) {
  if (bytes != sizeof(P)) return false;
  std::memcpy(&params, data, sizeof(P));
  return true;
}

// ---- indices: int64, negative ones count from the end; outside [-extent, extent): kOutOfRange ----

// (indices, x swept along `axis`) -> x's element at indices[j...] for positions j... of the result: the dimensions of the
// indices, of which there may be any number, stand where x has `axis`. A second result, int64 and as many elements as there are indices, which
// then have one dimension, is what the steps of a sweep keep of them, in a form of their own.
struct Take {
  static constexpr std::string_view kName = "tilewise.take";
  std::int64_t axis = 0, extent = 0;  // of x along it
};
// (indices, x swept along `axis`), of one rank: each line along `axis` has its own.
struct TakeAlong {
  static constexpr std::string_view kName = "tilewise.take_along_axis";
  std::int64_t axis = 0, extent = 0;
};
// (a, indices swept, values swept along `axis`) -> a, with values[..., j, ...] at indices[j]; of equal ones the last. `add`: with these
// added to what is there, one after the other in the order of j; numbers but 16-bit floats.
struct Put {
  static constexpr std::string_view kName = "tilewise.put";
  std::int64_t axis = 0, extent = 0;  // of a
  std::int64_t add = 0;
  std::int64_t local = 0;  // indices count from where a's block begins; `extent` is then the block's

  // From where indices of a block that begins at `lo` along the axis count.
  std::int64_t origin(std::int64_t lo) const { return local != 0 ? 0 : lo; }
};
// (indices of an axis) -> the same counted from 0; `axis` is what errors call it.
struct WrapIndex {
  static constexpr std::string_view kName = "tilewise.wrap_index";
  std::int64_t axis = 0, extent = 0;
};
// (v, sorted vector swept) -> int64: how many of its elements are before v (right: or equal), NaN last.
struct SearchSorted {
  static constexpr std::string_view kName = "tilewise.searchsorted";
  std::int64_t right = 0;
};

// ---- order: ascending or descending, NaN last in both ----

// (x[, int64 numbers of its elements]) -> each line along `axis` sorted; of each as many elements as the output has.
// A second output: their numbers, without a second input the positions along `axis`. With numbers equal elements are in
// the order of these; without, -0 is before +0.
struct SortBlock {
  static constexpr std::string_view kName = "tilewise.sort_block";
  std::int64_t axis = 0, descending = 0;
};
// (x[, int64 numbers of its elements, from 0 up]), or (blocks of x that stand in a row along `axis`) without numbers -> as SortBlock,
// and each sorted line dealt to `columns` like cards, `card`
// elements at a time. Outputs have x's other dimensions, one for its block along `axis` and one for its columns, one behind the other
// and equally long; what is missing at the end of a line is filled with what comes last (numbers: the largest).
struct DealSorted {
  static constexpr std::string_view kName = "tilewise.deal_sorted";
  std::int64_t axis = 0, descending = 0, columns = 1, card = 1;
};
// Lines of `columns` * `length` elements, of which `columns` windows are cut by rank: the j-th has ranks [lo(j), lo(j) + width).
struct RankWindows {
  std::int64_t columns = 0, length = 0, before = 0, width = 0;

  // Negative: there are no such windows.
  std::int64_t lo(std::int64_t j) const {
    std::int64_t at = 0, all = 0;
    if (columns < 0 || length < 0 || before < 0 || __builtin_mul_overflow(columns, length, &all) ||
        width < 0 || width > all || j < 0 || __builtin_mul_overflow(j, length, &at))
      return -1;
    return std::clamp<std::int64_t>(at - before, 0, all - width);
  }
};
// (blocks of sorted runs[, as many of their numbers]) -> a window of their merge, unmerged: what is in it of each run, one behind the
// other. A run is a line along the last dimension of a block, and its last dimension but one counts runs of the same result; the
// dimensions before, and a last one, are the output's, which has one of extent one between. Block j of the output holds window j.
struct SplitRuns {
  static constexpr std::string_view kName = "tilewise.split_runs";
  std::int64_t descending = 0;
  RankWindows windows;
};
// (blocks of lines that consist of sorted runs[, as many of their numbers]) -> all in order; of that as many ranks as a line along
// `axis` of the output has. Blocks are as those of split_runs; the dimensions before their last two are the output's others. Numbers
// decide between equal elements.
struct MergeRuns {
  static constexpr std::string_view kName = "tilewise.merge_runs";
  std::int64_t axis = 0, descending = 0;
  // The output's block j, of `block` elements, is made of windows j of `columns` columns, over which all elements were dealt
  // (client/core/sorting.cc). No columns: the first ranks are wanted.
  RankWindows windows;
  std::int64_t block = 1;

  // How many ranks come before the first that is wanted: of an output that begins with element `first` of its array along `axis`.
  // Negative: these are not such windows.
  std::int64_t skipped(std::int64_t first) const {
    if (windows.columns == 0) return 0;
    const std::int64_t lo = block < 1 ? -1 : windows.lo(first / block);
    std::int64_t cut = 0;
    return lo < 0 || __builtin_mul_overflow(windows.columns, lo, &cut) ? -1 : first - cut;
  }
};

// ---- results whose size depends on data; both are vectors ----

// (mask) -> int64, one a block: how many are true.
struct CountTrue {
  static constexpr std::string_view kName = "tilewise.count_true";
};
// (mask, x) -> x's elements where the mask is true, in order. x may have further dimensions behind the mask's one. Without
// x: int64 positions.
struct Compress {
  static constexpr std::string_view kName = "tilewise.compress";
};

// ---- Fourier transforms and random numbers ----

// (lines along `axis`) -> their transforms of length n, times the float64 with scale_bits. Sums over j of
// x[j] * exp(-+2 pi i j k / n); real ones have the first n / 2 + 1 elements of what is conjugate symmetric.
struct Fft {
  static constexpr std::string_view kName = "tilewise.fft";
  enum Kind : std::int64_t { kForward, kInverse, kRealForward, kRealInverse };
  std::int64_t axis = 0, kind = kForward, n = 0, scale_bits = 0;
};
// () -> gamma numbers; alpha and scale as the bits of float64.
struct Gamma {
  static constexpr std::string_view kName = "tilewise.gamma";
  std::int64_t key = 0, alpha_bits = 0, scale_bits = 0;
};

}  // namespace tilewise::ir::builtin
