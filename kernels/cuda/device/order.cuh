// Sorted lines. Generated before this text: Item (an array's element; 16-bit floats never come here) and kNumbered
// (elements have numbers, which decide between equal ones). kernels/sort/keys.h says what the order is.

template <class T> struct KeyOf { typedef u32 type; };
template <> struct KeyOf<i64> { typedef u64 type; };
template <> struct KeyOf<u64> { typedef u64 type; };
template <> struct KeyOf<double> { typedef u64 type; };
typedef typename KeyOf<Item>::type Key;
constexpr Key kSign = (Key)1 << (sizeof(Key) * 8 - 1);

// Unsigned, in the order of the numbers; NaN last in both orders. Templates: what does not fit a type drops out.
template <class T> __device__ __forceinline__ Key tw_key(T x, bool descending) {
  Key k;
  if constexpr (kIsFloat<T>) {
    if (x != x) return ~(Key)0;
    if constexpr (kSame<T, double>)
      k = (Key)__double_as_longlong(x);
    else
      k = __float_as_uint(x);
    k = k & kSign ? ~k : k | kSign;
  } else if constexpr (T(-1) < T(0)) {
    k = (Key)(typename KeyOf<T>::type)x ^ kSign;
  } else {
    k = (Key)x;
  }
  return descending ? ~k : k;
}
// Of numbers that are equal for ==: zeros of both signs have one key.
template <class T> __device__ __forceinline__ Key tw_equal_key(T x, bool descending) {
  return tw_key<T>(x == T(0) ? T(0) : x, descending);
}
__device__ __forceinline__ bool tw_before(Item a, i64 a_number, Item b, i64 b_number, bool descending) {
  if constexpr (kNumbered) {
    const Key x = tw_equal_key(a, descending), y = tw_equal_key(b, descending);
    return x < y || (x == y && a_number < b_number);
  } else {
    return tw_key(a, descending) < tw_key(b, descending);
  }
}

// ---- searchsorted ------------------------------------------------------------------------------------------------------

struct SearchParams {
  Walk walk;
  Place place[2];  // counts, values
  i64 sorted, stride, length;
  int right, add;
};
extern "C" __global__ void __launch_bounds__(kThreads) tw_search(const __grid_constant__ SearchParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) {
    i64 offset[2] = {};
    tw_offsets<2>(p.walk, p.place, i, offset);
    const Key key = tw_equal_key(((const Item*)p.place[1].base)[offset[1]], false);
    i64 lo = 0, hi = p.length;
    while (lo < hi) {
      const i64 middle = lo + (hi - lo) / 2;
      const Key other = tw_equal_key(((const Item*)p.sorted)[middle * p.stride], false);
      if (p.right ? other <= key : other < key)
        lo = middle + 1;
      else
        hi = middle;
    }
    i64& count = ((i64*)p.place[0].base)[offset[0]];
    count = p.add ? count + lo : lo;
  }
}

// ---- sort: tiles in shared memory, then merges of runs twice as long each time ------------------------------------------

constexpr int kEach = 8, kTile = kEach * kThreads;
constexpr int kNumbers = kNumbered ? kTile : 1;

// Lines in memory: elements and their numbers.
struct Lines {
  Place value, number;  // where each line starts; number.base 0: positions from `first` on
  i64 value_stride, number_stride, first;
};
struct SortParams {
  Walk lines;
  Lines in, out;
  i64 length;
  i64 run;           // 0: sort tiles; else merge pairs of runs of that length
  i64 from, kept;    // ranks that are written: [from, from + kept); from > 0: of a line's only pair
  i64 tiles, pairs;  // tiles of a pair, or of a line that has none; pairs of a line
  int descending, unused;
};

// One line.
struct Line {
  Item* value;
  i64* number;
  i64 value_stride, number_stride, first, count;
  __device__ __forceinline__ Item item(i64 i) const { return value[i * value_stride]; }
  __device__ __forceinline__ i64 numbered(i64 i) const {
    if constexpr (!kNumbered) return 0;
    return number == nullptr ? first + i : number[i * number_stride];
  }
};
__device__ __forceinline__ Line tw_line(const Walk& walk, const Lines& lines, i64 k, i64 count) {
  const Place places[2] = {lines.value, lines.number};
  i64 offset[2] = {};
  tw_offsets<2>(walk, places, k, offset);
  Line line;
  line.value = (Item*)lines.value.base + offset[0];
  line.number = lines.number.base == 0 ? nullptr : (i64*)lines.number.base + offset[1];
  line.value_stride = lines.value_stride;
  line.number_stride = lines.number_stride;
  line.first = lines.first;
  line.count = count;
  return line;
}
__device__ __forceinline__ Line tw_part(Line line, i64 begin, i64 end) {
  if (end > line.count) end = line.count;
  line.value += begin * line.value_stride;
  if (line.number != nullptr) line.number += begin * line.number_stride;
  line.first += begin;
  line.count = end > begin ? end - begin : 0;
  return line;
}
__device__ __forceinline__ void tw_store(const Line& line, i64 i, Item value, i64 number) {
  line.value[i * line.value_stride] = value;
  if constexpr (kNumbered) line.number[i * line.number_stride] = number;
}

// A NaN has one form, as on the host.
template <class T> __device__ __forceinline__ T tw_canonical(T x) {
  if constexpr (kIsFloat<T>) {
    if (x != x)
      return kSame<T, double> ? (T)__longlong_as_double(0x7ff8000000000000ll) : (T)__int_as_float(0x7fc00000);
  }
  return x;
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_sort_tiles(const __grid_constant__ SortParams p) {
  __shared__ Item value[kTile];
  __shared__ i64 number[kNumbers];
  const i64 k = blockIdx.x / p.tiles, begin = blockIdx.x % p.tiles * kTile;
  const Line in = tw_line(p.lines, p.in, k, p.length), out = tw_line(p.lines, p.out, k, p.kept);
  const int count = p.length - begin < kTile ? (int)(p.length - begin) : kTile, t = threadIdx.x;
  const bool descending = p.descending;
  for (int i = t; i < count; i += kThreads) {
    value[i] = tw_canonical(in.item(begin + i));
    if constexpr (kNumbered) number[i] = in.numbered(begin + i);
  }
  int size = 2;
  while (size < count) size *= 2;
  // A bitonic network whose comparisons all point up (K. E. Batcher, 1968), so that what is missing at the end stays there.
  const auto exchange = [&](int low, int high) {
    if (high >= count) return;
    const i64 n = kNumbered ? number[low] : 0, m = kNumbered ? number[high] : 0;
    const Item a = value[low], b = value[high];
    if (!tw_before(b, m, a, n, descending)) return;
    value[low] = b;
    value[high] = a;
    if constexpr (kNumbered) {
      number[low] = m;
      number[high] = n;
    }
  };
  for (int width = 2; width <= size; width *= 2) {
    __syncthreads();
    for (int pair = t; pair < size / 2; pair += kThreads) {
      const int start = pair / (width / 2) * width, at = pair % (width / 2);
      exchange(start + at, start + width - 1 - at);
    }
    for (int reach = width / 4; reach > 0; reach /= 2) {
      __syncthreads();
      for (int pair = t; pair < size / 2; pair += kThreads) {
        const int low = pair / reach * 2 * reach + pair % reach;
        exchange(low, low + reach);
      }
    }
  }
  __syncthreads();
  for (int i = t; i < count && begin + i < p.kept; i += kThreads)
    tw_store(out, begin + i, value[i], kNumbered ? number[i] : 0);
}

// How many of the first `rank` elements of the merge of two lines are a's.
template <class Get>
__device__ __forceinline__ i64 tw_co_rank(i64 rank, i64 a_count, i64 b_count, const Get& b_first) {
  i64 lo = rank > b_count ? rank - b_count : 0, hi = rank < a_count ? rank : a_count;
  while (lo < hi) {
    const i64 i = lo + (hi - lo) / 2;
    if (b_first(i, rank - i - 1))
      hi = i;
    else
      lo = i + 1;
  }
  return lo;
}

// Merge path (Green, McColl, Bader, ICS'12): a block finds its part of both lines, each thread its part of that.
extern "C" __global__ void __launch_bounds__(kThreads) tw_merge(const __grid_constant__ SortParams p) {
  __shared__ Item value[kTile];
  __shared__ i64 number[kNumbers];
  __shared__ i64 border[2];
  const int t = threadIdx.x;
  const i64 begin = blockIdx.x % p.tiles * kTile, which = blockIdx.x / p.tiles;
  const i64 k = which / p.pairs, pair = which % p.pairs * 2 * p.run;
  const bool descending = p.descending;
  const Line line = tw_line(p.lines, p.in, k, p.length), out = tw_line(p.lines, p.out, k, p.kept);
  const Line a = tw_part(line, pair, pair + p.run), b = tw_part(line, pair + p.run, pair + 2 * p.run);
  const i64 first = begin + p.from, written = pair + begin;
  i64 last = a.count + b.count < first + kTile ? a.count + b.count : first + kTile;
  if (written + (last - first) > p.kept) last = first + p.kept - written;
  if (last <= first) return;  // the whole block
  if (t < 2)
    border[t] = tw_co_rank(t == 0 ? first : last, a.count, b.count, [&](i64 i, i64 j) {
      return tw_before(b.item(j), b.numbered(j), a.item(i), a.numbered(i), descending);
    });
  __syncthreads();
  const int total = (int)(last - first);
  const i64 a_begin = border[0], b_begin = first - a_begin;
  // Lines that are not sorted have no such ranks: whatever is found, it stays inside of both.
  i64 a_end = border[1] < a_begin ? a_begin : border[1];
  if (a_end > a_begin + total) a_end = a_begin + total;
  const int a_count = (int)(a_end - a_begin), b_count = total - a_count;
  for (int i = t; i < total; i += kThreads) {
    const bool of_a = i < a_count;
    const i64 at = of_a ? a_begin + i : b_begin + (i - a_count);
    value[i] = of_a ? a.item(at) : b.item(at);
    if constexpr (kNumbered) number[i] = of_a ? a.numbered(at) : b.numbered(at);
  }
  __syncthreads();
  const auto number_at = [&](int i) { return kNumbered ? number[i] : (i64)0; };
  const auto b_first = [&](i64 i, i64 j) {
    const int x = (int)i, y = a_count + (int)j;
    return tw_before(value[y], number_at(y), value[x], number_at(x), descending);
  };
  const int rank = t * kEach < total ? t * kEach : total;
  int i = (int)tw_co_rank(rank, a_count, b_count, b_first), j = rank - i;
  Item own[kEach];
  i64 own_number[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (rank + e >= total) break;
    const bool of_b = j < b_count && (i >= a_count || b_first(i, j));
    const int at = of_b ? a_count + j : i;
    own[e] = value[at];
    own_number[e] = number_at(at);
    if (of_b)
      ++j;
    else
      ++i;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (rank + e >= total) break;
    value[rank + e] = own[e];
    if constexpr (kNumbered) number[rank + e] = own_number[e];
  }
  __syncthreads();
  for (int e = t; e < total; e += kThreads) tw_store(out, written + e, value[e], number_at(e));
}

// ---- sorted lines dealt to columns, like cards -------------------------------------------------------------------------

struct DealParams {
  Walk lines;
  Lines in, out;
  i64 length, all;  // elements of a sorted line; with what fills it up, which comes last
  i64 columns, card, tiles;
  int descending, unused;
};
template <class T> __device__ __forceinline__ T tw_last(bool descending) {
  if constexpr (kSame<T, double>)
    return (T)__longlong_as_double(0x7ff8000000000000ll);
  else if constexpr (kSame<T, float>)
    return (T)__int_as_float(0x7fc00000);
  const Key key = descending ? (Key)0 : ~(Key)0;
  if constexpr (T(-1) < T(0))
    return (T)(typename KeyOf<T>::type)(key ^ ((Key)1 << (sizeof(T) * 8 - 1)));
  else
    return (T)key;
}
extern "C" __global__ void __launch_bounds__(kThreads) tw_deal(const __grid_constant__ DealParams p) {
  const i64 k = blockIdx.x / p.tiles, begin = blockIdx.x % p.tiles * kTile;
  const Line in = tw_line(p.lines, p.in, k, p.length), out = tw_line(p.lines, p.out, k, p.all);
  const i64 rows = p.all / p.columns;
  for (i64 i = begin + threadIdx.x; i < begin + kTile && i < p.all; i += kThreads) {
    const i64 column = i / rows, row = i % rows;
    const i64 rank = (row / p.card * p.columns + column) * p.card + row % p.card;
    const bool there = rank < p.length;
    tw_store(out, i, there ? in.item(rank) : tw_last<Item>(p.descending),
             there ? in.numbered(rank) : 0x7fffffffffffffffll);
  }
}

// ---- a window of ranks of many sorted runs, unmerged -------------------------------------------------------------------

struct SplitParams {
  Walk lines;
  Lines in, out;  // runs stand one behind the other
  i64 runs, length, lo, width;
  i64 places;  // address: of each line, how many elements of each run come before the window, and then, before its end
  i64 tiles;
  int descending, unused;
};
// How many elements of a run, between two of its places, come before `x`; `most`: or are equal to it.
__device__ __forceinline__ i64 tw_bisect(const Line& line, i64 start, i64 lo, i64 hi, Item x, i64 number,
                                         bool most, bool descending) {
  while (lo < hi) {
    const i64 middle = lo + (hi - lo) / 2;
    const Item other = line.item(start + middle);
    const i64 its = line.numbered(start + middle);
    const bool before =
        most ? !tw_before(x, number, other, its, descending) : tw_before(other, its, x, number, descending);
    if (before)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo;
}
// A block finds one end of the window of one line: kernels/sort/split.cc says how. Threads share the runs.
extern "C" __global__ void __launch_bounds__(kThreads) tw_split_find(const __grid_constant__ SplitParams p) {
  __shared__ i64 width[kThreads], which[kThreads], before[kThreads], most[kThreads];
  const int t = threadIdx.x;
  const i64 k = blockIdx.x / 2, rank = p.lo + (blockIdx.x % 2 == 0 ? 0 : p.width);
  const Line line = tw_line(p.lines, p.in, k, p.runs * p.length);
  // Of each run: bounds, and between them what comes before the pivot, and what equals it too.
  i64* const lo = (i64*)p.places + (i64)blockIdx.x * 4 * p.runs;
  i64* const hi = lo + p.runs;
  i64* const less = hi + p.runs;
  i64* const equal = less + p.runs;
  for (i64 r = t; r < p.runs; r += kThreads) lo[r] = 0, hi[r] = p.length;
  __syncthreads();  // below threads look at each other's
  for (i64 turn = 0;; ++turn) {
    // Of runs that are equally wide now this one, now that: the first from here on.
    const i64 here = (turn * 40503 + p.runs / 2) % p.runs;
    width[t] = -1, which[t] = 0;
    for (i64 k = t; k < p.runs; k += kThreads) {
      const i64 r = (here + k) % p.runs;
      if (hi[r] - lo[r] > width[t]) width[t] = hi[r] - lo[r], which[t] = k;
    }
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (t < half &&
          (width[t + half] > width[t] || (width[t + half] == width[t] && which[t + half] < which[t]))) {
        width[t] = width[t + half];
        which[t] = which[t + half];
      }
      __syncthreads();
    }
    const i64 widest = (here + which[0]) % p.runs, wide = width[0];
    __syncthreads();
    if (wide <= 0) return;  // the whole block
    const i64 middle = lo[widest] + wide / 2, at = widest * p.length + middle;
    const Item pivot = line.item(at);
    const i64 number = line.numbered(at);
    __syncthreads();  // all have read the bounds that change below
    before[t] = most[t] = 0;
    for (i64 r = t; r < p.runs; r += kThreads) {
      i64 first = tw_bisect(line, r * p.length, lo[r], hi[r], pivot, number, false, p.descending);
      if (r == widest && first > middle) first = middle;
      i64 last = tw_bisect(line, r * p.length, first, hi[r], pivot, number, true, p.descending);
      if (r == widest && last <= middle) last = middle + 1;
      less[r] = first;
      equal[r] = last;
      before[t] += first;
      most[t] += last;
    }
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (t < half) before[t] += before[t + half], most[t] += most[t + half];
      __syncthreads();
    }
    const i64 all_before = before[0], all_most = most[0];
    __syncthreads();
    if (rank < all_before) {
      for (i64 r = t; r < p.runs; r += kThreads) hi[r] = less[r];
    } else if (rank > all_most) {
      for (i64 r = t; r < p.runs; r += kThreads) lo[r] = equal[r];
    } else {
      if (t == 0) {
        i64 missing = rank - all_before;
        for (i64 r = 0; r < p.runs; ++r) {
          const i64 there = equal[r] - less[r], more = there < missing ? there : missing;
          lo[r] = less[r] + more;
          missing -= more;
        }
      }
      return;
    }
    __syncthreads();
  }
}
// Copies what lies between both ends of each run.
extern "C" __global__ void __launch_bounds__(kThreads) tw_split_copy(const __grid_constant__ SplitParams p) {
  const i64 k = blockIdx.x / p.tiles, tile = blockIdx.x % p.tiles * kTile;
  const Line in = tw_line(p.lines, p.in, k, p.runs * p.length), out = tw_line(p.lines, p.out, k, p.width);
  const i64* const begin = (const i64*)p.places + 2 * k * 4 * p.runs;
  const i64* const end = begin + 4 * p.runs;
  i64 at = 0;  // of the run's first element in the window
  for (i64 r = 0; r < p.runs && at < tile + kTile; ++r) {
    i64 n = end[r] - begin[r];
    if (n < 0) n = 0;  // of runs that are not sorted
    if (n > p.width - at) n = p.width - at;
    const i64 from = at < tile ? tile : at, to = at + n < tile + kTile ? at + n : tile + kTile;
    for (i64 i = from + threadIdx.x; i < to; i += kThreads) {
      const i64 place = r * p.length + begin[r] + (i - at);
      tw_store(out, i, in.item(place), in.numbered(place));
    }
    at += n;
  }
}
