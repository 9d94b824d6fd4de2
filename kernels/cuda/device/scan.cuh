// Scans along one axis of a block. Generated before this text: Value, and kProduct.
//
// A line is cut into chunks of `chunk` elements. tw_scan_totals reduces each chunk but the last, tw_scan_carries turns the
// totals of a line into what precedes each chunk, tw_scan_chunks scans each chunk from there on. Inside a chunk 256 threads
// take four neighbours each. tw_scan_lines is one thread a line: where neighbouring lines are neighbours in memory, and
// for kExclusive. All of it follows from the block's shape alone.

struct ScanParams {
  Walk lines;
  Place place[3];  // input, output, carry: where each line begins
  i64 length, in_stride, out_stride;
  i64 scratch, chunk;
  int chunks, mode;  // 0 inclusive, 1 exclusive, 2 total
  int carried, unused;
};

template <class T> __device__ __forceinline__ T tw_neutral() {
  if constexpr (kProduct && kIsComplex<T>)
    return T(1, 0);
  else if constexpr (kProduct)
    return T(1);
  else if constexpr (kIsComplex<T>)
    return T(-0.0, -0.0);
  else if constexpr (kIsFloat<T>)
    return T(-0.0);
  else
    return T(0);
}

template <class T> __device__ __forceinline__ T tw_join(T a, T b) {
  if constexpr (!kProduct)
    return tw_add(a, b);
  else if constexpr (kIsComplex<T>)
    // One is neutral, beside infinities too.
    return a.re == 1 && a.im == 0 ? b : b.re == 1 && b.im == 0 ? a : tw_mul(a, b);
  else
    return tw_mul(a, b);
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_scan_lines(const __grid_constant__ ScanParams p) {
  const i64 line = (i64)blockIdx.x * kThreads + threadIdx.x;
  if (line >= p.lines.count) return;
  i64 offset[3] = {};
  tw_offsets<3>(p.lines, p.place, line, offset);
  const Value* const in = (const Value*)p.place[0].base + offset[0];
  Value* const out = (Value*)p.place[1].base + offset[1];
  const Value carry = p.carried ? ((const Value*)p.place[2].base)[offset[2]] : tw_neutral<Value>();
  if (p.mode == 1) {
    Value now = carry;
    for (i64 i = 0; i < p.length; ++i) {
      out[i * p.out_stride] = now;
      now = tw_join(now, in[i * p.in_stride]);
    }
    return;
  }
  // Groups of four, as the host has them.
  Value run = tw_neutral<Value>(), pair = run, third = run;
  for (i64 i = 0; i < p.length; ++i) {
    const Value x = in[i * p.in_stride];
    const int place = (int)(i % 4);
    if (place == 2) third = x;
    const Value local = place == 0 ? x : place == 3 ? tw_join(pair, tw_join(third, x)) : tw_join(pair, x);
    if (place < 2) pair = local;
    const Value sum = tw_join(run, local);
    if (place == 3 || i + 1 == p.length) run = sum;
    if (p.mode == 0) out[i * p.out_stride] = p.carried ? tw_join(carry, sum) : sum;
  }
  if (p.mode == 2) *out = run;
}

// Scans elements [begin, end) of a line after `run`; returns the last value. All threads of the block, together.
template <bool kWrite>
__device__ __forceinline__ Value tw_scan_piece(const Value* in, Value* out, const ScanParams& p, i64 begin,
                                               i64 end, Value run, Value carry) {
  __shared__ Value shared[2][kThreads];
  const int t = threadIdx.x;
  for (i64 at = begin; at < end; at += 4 * kThreads) {
    Value v[4], mine = tw_neutral<Value>();
    const i64 first = at + 4 * t;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j < end) mine = tw_join(mine, in[(first + j) * p.in_stride]);
      v[j] = mine;
    }
    // Sums of neighbouring threads, then of neighbouring pairs, ...: after each round a thread has twice as many behind it.
    int from = 0;
    shared[0][t] = mine;
    for (int reach = 1; reach < kThreads; reach *= 2) {
      __syncthreads();
      const Value own = shared[from][t];
      shared[1 - from][t] = t >= reach ? tw_join(shared[from][t - reach], own) : own;
      from = 1 - from;
    }
    __syncthreads();
    const Value before = t > 0 ? tw_join(run, shared[from][t - 1]) : run;
    if constexpr (kWrite) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (first + j < end) {
          const Value sum = tw_join(before, v[j]);
          out[(first + j) * p.out_stride] = p.carried ? tw_join(carry, sum) : sum;
        }
    }
    run = tw_join(run, shared[from][kThreads - 1]);
    __syncthreads();
  }
  return run;
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_scan_totals(const __grid_constant__ ScanParams p) {
  const i64 line = blockIdx.x, begin = (i64)blockIdx.y * p.chunk;
  const i64 end = begin + p.chunk < p.length ? begin + p.chunk : p.length;
  i64 offset[3] = {};
  tw_offsets<3>(p.lines, p.place, line, offset);
  const Value neutral = tw_neutral<Value>();
  const Value total = tw_scan_piece<false>((const Value*)p.place[0].base + offset[0], nullptr, p, begin, end,
                                           neutral, neutral);
  if (threadIdx.x == 0) ((Value*)p.scratch)[line * p.chunks + blockIdx.y] = total;
}

// Of kTotal, the line's total too.
extern "C" __global__ void __launch_bounds__(kThreads) tw_scan_carries(const __grid_constant__ ScanParams p) {
  const i64 line = (i64)blockIdx.x * kThreads + threadIdx.x;
  if (line >= p.lines.count) return;
  Value* const chunks = (Value*)p.scratch + line * p.chunks;
  Value now = tw_neutral<Value>();
  for (int c = 0; c < p.chunks; ++c) {
    const Value total = chunks[c];
    chunks[c] = now;
    now = tw_join(now, total);
  }
  if (p.mode != 2) return;
  i64 offset[3] = {};
  tw_offsets<3>(p.lines, p.place, line, offset);
  ((Value*)p.place[1].base)[offset[1]] = now;
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_scan_chunks(const __grid_constant__ ScanParams p) {
  const i64 line = blockIdx.x, begin = (i64)blockIdx.y * p.chunk;
  const i64 end = begin + p.chunk < p.length ? begin + p.chunk : p.length;
  i64 offset[3] = {};
  tw_offsets<3>(p.lines, p.place, line, offset);
  const Value run =
      p.chunks > 1 ? ((const Value*)p.scratch)[line * p.chunks + blockIdx.y] : tw_neutral<Value>();
  const Value carry = p.carried ? ((const Value*)p.place[2].base)[offset[2]] : tw_neutral<Value>();
  tw_scan_piece<true>((const Value*)p.place[0].base + offset[0], (Value*)p.place[1].base + offset[1], p,
                      begin, end, run, carry);
}
