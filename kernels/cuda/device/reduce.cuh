// Reductions of a tape's values. Generated before this text: what map.cuh names, and
//   kKind (as ir::ReduceKind)   Acc: the type sums are kept in   Result: the output's
//
// Output k is the reduction over r = 0 .. R-1. `lanes` threads share an output: lane l takes r = l, l + lanes, ... of its
// chunk into four interleaved accumulators, which are then added pairwise, then a tree over lanes, then (tw_finish) the
// chunks in the same manner. All of it is a function of the shape alone: the same bits on every GPU of one kind.

enum Kind { kSum, kProd, kMin, kMax, kAny, kAll, kArgMin, kArgMax, kMoments };
constexpr bool kIsArg = kKind == kArgMin || kKind == kArgMax;
constexpr bool kIsMoments = kKind == kMoments;

struct ReduceParams {
  Walk kept, reduced;
  i64 out, out_position;       // moments: sum, count
  i64 out_shift, out_squares;  // moments only
  i64 scratch;
  i64 chunk;  // elements of R per chunk
  int chunks, lanes;
  int columns;  // neighbouring threads take neighbouring outputs (the innermost dimension is kept)
  int unused;
  Constants constants;
  Place kept_place[kPlaces];  // place 0: the position that argmin and argmax report
  Place reduced_place[kPlaces];
};

struct Positioned {
  Value value;
  i64 position;  // negative: nothing yet
};
// The mean is at + shift; `at` is an element, so that no digits are lost to a large mean. The sum is kept as sums are.
struct Moments {
  double count, sum, at, shift, squares;
};
template <bool, bool> struct Carried { typedef Acc type; };
template <> struct Carried<true, false> { typedef Positioned type; };
template <> struct Carried<false, true> { typedef Moments type; };
typedef typename Carried<kIsArg, kIsMoments>::type Partial;

template <class T> __device__ __forceinline__ T tw_lowest() {
  if constexpr (kSame<T, double>)
    return __longlong_as_double(0xfff0000000000000ll);
  else if constexpr (kSame<T, float>)
    return __int_as_float(0xff800000);
  else if constexpr (kSame<T, u64>)
    return 0;
  else
    return (T)((T)1 << (sizeof(T) * 8 - 1));
}
template <class T> __device__ __forceinline__ T tw_highest() {
  if constexpr (kIsFloat<T>)
    return -tw_lowest<T>();
  else
    return ~tw_lowest<T>();
}

// Templates, for `if constexpr` drops what does not fit a type only there. T is always Partial.
template <class T> __device__ __forceinline__ T tw_nothing() {
  if constexpr (kIsArg)
    return {Value(0), -1};
  else if constexpr (kIsMoments)
    return {0, -0.0, 0, 0, 0};
  else if constexpr (kKind == kSum && kIsComplex<T>)
    return T(-0.0, -0.0);
  else if constexpr (kKind == kSum && kIsFloat<T>)
    return T(-0.0);  // 0 would turn a sum of -0 into +0
  else if constexpr (kKind == kSum || kKind == kAny)
    return T(0);
  else if constexpr (kKind == kProd || kKind == kAll)
    return T(1);
  else if constexpr (kKind == kMin)
    return tw_highest<T>();
  else
    return tw_lowest<T>();
}

// Of equals, and of NaNs, the first; a NaN comes before every number.
// A template, for complex numbers have no order and never get here.
template <class P> __device__ __forceinline__ P tw_first(P a, P b) {
  if (a.position < 0) return b;
  if (b.position < 0) return a;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool earlier = a.position < b.position;
  if (a_nan || b_nan) return a_nan && (!b_nan || earlier) ? a : b;
  if (a.value == b.value) return earlier ? a : b;
  return (kKind == kArgMin ? a.value < b.value : a.value > b.value) ? a : b;
}

// Chan, Golub and LeVeque 1979. The sum is added where one side is empty too: -0 changes nothing.
template <class P> __device__ __forceinline__ P tw_join_moments(P a, P b) {
  const double sum = a.sum + b.sum;
  if (a.count == 0) return {b.count, sum, b.at, b.shift, b.squares};
  if (b.count == 0) return {a.count, sum, a.at, a.shift, a.squares};
  const double n = a.count + b.count, part = b.count / n;
  const double off = (b.at - a.at) + (b.shift - a.shift);
  return {n, sum, a.at, a.shift + off * part, (a.squares + b.squares) + (off * off) * (a.count * part)};
}

template <class T> __device__ __forceinline__ T tw_join(T a, T b) {
  if constexpr (kIsArg)
    return tw_first(a, b);
  else if constexpr (kIsMoments)
    return tw_join_moments(a, b);
  else if constexpr (kKind == kSum)
    return tw_add(a, b);
  else if constexpr (kKind == kProd)
    return tw_mul(a, b);
  else if constexpr (kKind == kMin)
    return tw_min<T>(a, b);
  else if constexpr (kKind == kMax)
    return tw_max<T>(a, b);
  else if constexpr (kKind == kAny)
    return a || b;
  else
    return a && b;
}

// Moments of one element. Templates of all that they touch, for complex numbers are no doubles.
template <class T, class V> __device__ __forceinline__ T tw_alone(V value) {
  return {1, (double)value, (double)value, 0, 0};
}

template <class T>
__device__ __forceinline__ T tw_value(const ReduceParams& p, const i64 (&kept)[kPlaces], i64 r) {
  i64 offset[kPlaces];
#pragma unroll
  for (int s = 0; s < kPlaces; ++s) offset[s] = kept[s];
  tw_offsets<kPlaces>(p.reduced, p.reduced_place, r, offset);
  Element element;
  tw_load(p.kept_place, offset, element);
  const Value value = tw_evaluate(element, p.kept_place, offset, p.constants).v0;
  if constexpr (kIsArg)
    return {value, p.kept_place[0].base + offset[0]};
  else if constexpr (kIsMoments)
    return tw_alone<T>(value);
  else
    return (T)value;
}

// One element into a partial; `part` is 1 / its number of elements afterwards (Welford 1962).
template <class T> __device__ __forceinline__ void tw_include(T& to, T next, double part) {
  if constexpr (kIsMoments) {
    const bool first = to.count == 0;
    to.count += 1;
    to.sum = to.sum + next.sum;
    to.at = first ? next.at : to.at;
    const double d = next.at - to.at, off = d - to.shift;
    to.shift += off * part;
    to.squares += off * (d - to.shift);
  } else {
    to = tw_join(to, next);
  }
}
template <class T> __device__ __forceinline__ double tw_part_after(const T& partial) {
  if constexpr (kIsMoments)
    return 1.0 / (partial.count + 1);
  else
    return 0;
}

// Joins the lanes of each output of this block; the result is lane 0's.
__device__ __forceinline__ Partial tw_join_lanes(Partial mine, int column, int lane, int lanes) {
  __shared__ Partial shared[kThreads];
  const int width = kThreads / lanes;
  shared[lane * width + column] = mine;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
      shared[lane * width + column] =
          tw_join(shared[lane * width + column], shared[(lane + half) * width + column]);
  }
  return shared[lane * width + column];
}

template <class T, class R>
__device__ __forceinline__ void tw_write_moments(const ReduceParams& p, i64 k, T value) {
  const R sum = (R)value.sum;
  const double mean = value.count == 0 ? 0 : (double)sum / value.count;
  ((double*)p.out_position)[k] = value.count;
  ((R*)p.out)[k] = sum;
  ((double*)p.out_shift)[k] = (value.at - mean) + value.shift;
  ((double*)p.out_squares)[k] = value.squares;
}

template <class T> __device__ __forceinline__ void tw_write(const ReduceParams& p, i64 k, T value) {
  if constexpr (kIsArg) {
    ((Result*)p.out)[k] = value.value;
    ((i64*)p.out_position)[k] = value.position;
  } else if constexpr (kIsMoments) {
    tw_write_moments<T, Result>(p, k, value);
  } else {
    ((Result*)p.out)[k] = (Result)value;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_reduce(const __grid_constant__ ReduceParams p) {
  const int lanes = p.lanes, width = kThreads / lanes, t = threadIdx.x;
  const int column = p.columns ? t % width : t / lanes;
  const int lane = p.columns ? t / width : t % lanes;
  const i64 k = (i64)blockIdx.x * width + column;
  Partial part[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) part[j] = tw_nothing<Partial>();
  if (k < p.kept.count) {
    i64 kept[kPlaces] = {};
    tw_offsets<kPlaces>(p.kept, p.kept_place, k, kept);
    const i64 begin = blockIdx.y * p.chunk;
    const i64 end = begin + p.chunk < p.reduced.count ? begin + p.chunk : p.reduced.count;
    i64 r = begin + lane;
    for (; r + 3 * (i64)lanes < end; r += 4 * (i64)lanes) {
      Partial next[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) next[j] = tw_value<Partial>(p, kept, r + j * (i64)lanes);
      const double share = tw_part_after(part[0]);  // all four have as many
#pragma unroll
      for (int j = 0; j < 4; ++j) tw_include(part[j], next[j], share);
    }
    for (; r < end; r += lanes) tw_include(part[0], tw_value<Partial>(p, kept, r), tw_part_after(part[0]));
  }
  Partial all = tw_join(tw_join(part[0], part[1]), tw_join(part[2], part[3]));
  all = tw_join_lanes(all, column, lane, lanes);
  if (lane != 0 || k >= p.kept.count) return;
  if (p.chunks == 1)
    tw_write(p, k, all);
  else
    ((Partial*)p.scratch)[k * p.chunks + blockIdx.y] = all;
}

// One block of 256 lanes per output joins its chunks.
extern "C" __global__ void __launch_bounds__(kThreads) tw_finish(const __grid_constant__ ReduceParams p) {
  const i64 k = blockIdx.x;
  const Partial* const chunks = (const Partial*)p.scratch + k * p.chunks;
  Partial all = tw_nothing<Partial>();
  for (int c = threadIdx.x; c < p.chunks; c += kThreads) all = tw_join(all, chunks[c]);
  all = tw_join_lanes(all, 0, threadIdx.x, kThreads);
  if (threadIdx.x == 0) tw_write(p, k, all);
}

#ifdef TW_COMBINE
// One level of the tree for what has several arrays: those of the first places = or = these joined with those of the last.
constexpr int kParts = kIsMoments ? 4 : 2;
struct CombineParams {
  Walk walk;
  Place place[2 * kParts];
  int initialise, unused;
};

// (out, out_position): the earlier of itself and (in, in_position).
template <class P>
__device__ __forceinline__ void tw_combine_positions(const P& p, const i64 (&offset)[2 * kParts]) {
  Value& out = ((Value*)p.place[0].base)[offset[0]];
  i64& out_position = ((i64*)p.place[1].base)[offset[1]];
  Positioned best{((const Value*)p.place[2].base)[offset[2]], ((const i64*)p.place[3].base)[offset[3]]};
  if (!p.initialise) best = tw_first(Positioned{out, out_position}, best);
  out = best.value;
  out_position = best.position;
}

// Count, sum, shift and squares, as on hosts: kernels/reduce/moments_fold.cc.
template <class P>
__device__ __forceinline__ void tw_combine_moments(const P& p, const i64 (&offset)[2 * kParts]) {
  double& count = ((double*)p.place[0].base)[offset[0]];
  Value& sum = ((Value*)p.place[1].base)[offset[1]];
  double& shift = ((double*)p.place[2].base)[offset[2]];
  double& squares = ((double*)p.place[3].base)[offset[3]];
  const double nb = ((const double*)p.place[kParts].base)[offset[kParts]];
  const Value sb = ((const Value*)p.place[kParts + 1].base)[offset[kParts + 1]];
  const double tb = ((const double*)p.place[2 * kParts - 2].base)[offset[2 * kParts - 2]];
  const double qb = ((const double*)p.place[2 * kParts - 1].base)[offset[2 * kParts - 1]];
  if (p.initialise || count == 0) {
    count = nb, sum = sb, shift = tb, squares = qb;
    return;
  }
  if (nb == 0) return;
  const double na = count, n = na + nb, part = nb / n;
  const Value both = sum + sb;
  const double mean_a = (double)sum / na, mean_b = (double)sb / nb;
  const double off = (mean_b - mean_a) + (tb - shift);
  squares = (squares + qb) + (off * off) * (na * part);
  shift = (mean_a - (double)both / n) + (shift + off * part);
  sum = both;
  count = n;
}

template <class P>
__device__ __forceinline__ void tw_combine_one(const P& p, const i64 (&offset)[2 * kParts]) {
  if constexpr (kIsMoments)
    tw_combine_moments<P>(p, offset);
  else
    tw_combine_positions<P>(p, offset);
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_combine(const __grid_constant__ CombineParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) {
    i64 offset[2 * kParts] = {};
    tw_offsets<2 * kParts>(p.walk, p.place, i, offset);
    tw_combine_one(p, offset);
  }
}
#endif
