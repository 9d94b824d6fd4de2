// Reads and writes at indices, and what a mask selects. Generated before this text: Item, an integer as large as an element.

// ---- take, take_along_axis: out[..., j, ...] = x[..., index, ...] for what lies in x's block --------------------------

struct TakeParams {
  Walk walk;       // of the result
  Place place[3];  // result; array, without its axis; indices
  i64 extent, lo,
      count;  // of the array along the axis: whole, where the block starts, how many it has (0: none is read)
  i64 stride, axis;
  FaultTo fault;
  int check, unused;
};

// Where an index lies in the block; below zero from the end. Outside of the block: a number >= `count`.
__device__ __forceinline__ u64 tw_local(i64 index, i64 extent, i64 lo) {
  return (u64)((index < 0 ? index + extent : index) - lo);
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_take(const __grid_constant__ TakeParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) {
    i64 offset[3] = {};
    tw_offsets<3>(p.walk, p.place, i, offset);
    const i64 index = ((const i64*)p.place[2].base)[offset[2]];
    if (index < -p.extent || index >= p.extent) {
      if (p.check) tw_raise(p.fault, index, p.axis, p.extent);
      continue;
    }
    const u64 at = tw_local(index, p.extent, p.lo);
    if (at < (u64)p.count)
      ((Item*)p.place[0].base)[offset[0]] = ((const Item*)p.place[1].base)[offset[1] + (i64)at * p.stride];
  }
}

// ---- wrap_index: out = index, counted from 0 ------------------------------------------------------------------------

// `place`: result, nothing, indices; of the rest extent, axis and fault count.
extern "C" __global__ void __launch_bounds__(kThreads) tw_wrap_index(const __grid_constant__ TakeParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) {
    i64 offset[3] = {};
    tw_offsets<3>(p.walk, p.place, i, offset);
    const i64 index = ((const i64*)p.place[2].base)[offset[2]];
    if (index < -p.extent || index >= p.extent)
      tw_raise(p.fault, index, p.axis, p.extent);
    else
      ((i64*)p.place[0].base)[offset[0]] = index < 0 ? index + p.extent : index;
  }
}

// ---- put: out[..., index, ...] = values[..., j, ...]; of equal indices the last one counts ----------------------------

struct PutParams {
  Walk walk;       // of the values
  Place place[4];  // result, without its axis; values; indices; j
  i64 extent, lo, count, stride, axis;
  i64 winner;  // scratch: for each position along the result's axis the greatest j, or -1
  i64 index, indices, index_stride;  // the vector itself
  FaultTo fault;
};

extern "C" __global__ void __launch_bounds__(kThreads) tw_put_mark(const __grid_constant__ PutParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 j = (i64)blockIdx.x * kThreads + threadIdx.x; j < p.indices; j += step) {
    const i64 index = ((const i64*)p.index)[j * p.index_stride];
    if (index < -p.extent || index >= p.extent) {
      tw_raise(p.fault, index, p.axis, p.extent);
      continue;
    }
    const u64 at = tw_local(index, p.extent, p.lo);
    if (at < (u64)p.count) atomicMax((i64*)p.winner + at, j);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_put_write(const __grid_constant__ PutParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) {
    i64 offset[4] = {};
    tw_offsets<4>(p.walk, p.place, i, offset);
    const i64 index = ((const i64*)p.place[2].base)[offset[2]];
    if (index < -p.extent || index >= p.extent) continue;
    const u64 at = tw_local(index, p.extent, p.lo);
    if (at < (u64)p.count && ((const i64*)p.winner)[at] == p.place[3].base + offset[3])
      ((Item*)p.place[0].base)[offset[0] + (i64)at * p.stride] = ((const Item*)p.place[1].base)[offset[1]];
  }
}

// ---- put that adds: out[..., index, ...] += values[..., j, ...], for rising j -----------------------------------------

// A block of threads has some positions of one line, a thread every kThreads-th of them: so what comes to a position is added by one
// thread, in the order of j. All blocks read all indices.
constexpr i64 kAddedPositions = 16 * kThreads;

struct PutAddParams {
  Walk lines;      // of the result: what lies beside one position
  Place place[2];  // result, values
  i64 extent, lo, count, stride, values_stride, axis;
  i64 index, indices, index_stride;
  FaultTo fault;
  int kind, unused;  // 0: integers, 1: floats, 2: complex numbers
};

// Elements of `kParts` numbers.
template <class T, int kParts>
__device__ __forceinline__ void tw_add_parts(const PutAddParams& p, i64 to, i64 from) {
  T* const sum = (T*)p.place[0].base + to * kParts;
  const T* const more = (const T*)p.place[1].base + from * kParts;
  for (int i = 0; i < kParts; ++i) sum[i] = (T)(sum[i] + more[i]);
}
template <int kBytes>
__device__ __forceinline__ void tw_add_element(const PutAddParams& p, i64 to, i64 from) {
  if constexpr (kBytes == 16) {
    tw_add_parts<double, 2>(p, to, from);
  } else if constexpr (kBytes == 8) {
    if (p.kind == 0)
      tw_add_parts<u64, 1>(p, to, from);
    else if (p.kind == 1)
      tw_add_parts<double, 1>(p, to, from);
    else
      tw_add_parts<float, 2>(p, to, from);
  } else if constexpr (kBytes == 4) {
    if (p.kind == 0)
      tw_add_parts<u32, 1>(p, to, from);
    else
      tw_add_parts<float, 1>(p, to, from);
  } else {
    tw_add_parts<Item, 1>(p, to, from);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_put_add(const __grid_constant__ PutAddParams p) {
  __shared__ int rank[2][kThreads];
  __shared__ int found[kThreads];  // of this round's indices those that fall to this block of threads, ...
  __shared__ i64 place[kThreads];  // ... and their positions
  const int t = threadIdx.x;
  const i64 groups = (p.count + kAddedPositions - 1) / kAddedPositions, work = p.lines.count * groups;
  // Where there is nothing to add to, indices are looked at all the same.
  for (i64 b = blockIdx.x; b < work || b == 0; b += gridDim.x) {
    i64 offset[2] = {}, first = 0, end = 0;
    if (b < work) {
      tw_offsets<2>(p.lines, p.place, b / groups, offset);
      first = b % groups * kAddedPositions;
      end = first + kAddedPositions < p.count ? first + kAddedPositions : p.count;
    }
    for (i64 at = 0; at < p.indices; at += kThreads) {
      bool mine = false;
      i64 position = 0;
      if (at + t < p.indices) {
        const i64 index = ((const i64*)p.index)[(at + t) * p.index_stride];
        const bool outside = index < -p.extent || index >= p.extent;
        if (outside && b == 0) tw_raise(p.fault, index, p.axis, p.extent);
        position = (i64)tw_local(index, p.extent, p.lo);
        mine = !outside && position >= first && position < end;
      }
      int from = 0;
      rank[0][t] = mine;
      for (int reach = 1; reach < kThreads; reach *= 2) {
        __syncthreads();
        rank[1 - from][t] = rank[from][t] + (t >= reach ? rank[from][t - reach] : 0);
        from = 1 - from;
      }
      if (mine) {
        found[rank[from][t] - 1] = t;
        place[rank[from][t] - 1] = position;
      }
      __syncthreads();
      const int n = rank[from][kThreads - 1];
      for (int k = 0; k < n; ++k)
        if (place[k] % kThreads == t)
          tw_add_element<sizeof(Item)>(p, offset[0] + place[k] * p.stride,
                                       offset[1] + (at + found[k]) * p.values_stride);
      __syncthreads();
    }
  }
}

// ---- count_true, compress --------------------------------------------------------------------------------------------

// A mask is cut into `chunks` pieces, each taken by one block of threads; `starts` says where the true ones of a
// piece begin in the result.
struct SelectParams {
  Walk slab;       // what lies behind one element of the mask
  Place place[2];  // result, array: within such a slab
  i64 mask, mask_stride, length, chunk;
  i64 lo;  // the mask's first position
  i64 out_row, row;
  i64 starts, kept;
  FaultTo fault;
  int chunks, positions;
};

__device__ __forceinline__ bool tw_is_true(const SelectParams& p, i64 i) {
  return i < p.length && ((const u8*)p.mask)[i * p.mask_stride] != 0;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    tw_select_count(const __grid_constant__ SelectParams p) {
  __shared__ i64 shared[kThreads];
  const int t = threadIdx.x;
  const i64 begin = blockIdx.x * p.chunk, end = begin + p.chunk < p.length ? begin + p.chunk : p.length;
  i64 n = 0;
  for (i64 i = begin + t; i < end; i += kThreads) n += tw_is_true(p, i);
  shared[t] = n;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) shared[t] += shared[t + half];
  }
  if (t == 0) ((i64*)p.starts)[blockIdx.x] = shared[0];
}

// One thread. Of a count alone: the sum.
extern "C" __global__ void __launch_bounds__(kThreads)
    tw_select_starts(const __grid_constant__ SelectParams p) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  i64 n = 0;
  for (int c = 0; c < p.chunks; ++c) {
    const i64 own = ((i64*)p.starts)[c];
    ((i64*)p.starts)[c] = n;
    n += own;
  }
  if (p.kept < 0)
    *(i64*)p.place[0].base = n;
  else if (n != p.kept)
    tw_raise(p.fault, n, p.kept, 0);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    tw_select_write(const __grid_constant__ SelectParams p) {
  __shared__ int rank[2][kThreads];
  __shared__ i64 found[kThreads];  // positions of this round's true ones
  const int t = threadIdx.x;
  const i64 begin = blockIdx.x * p.chunk, end = begin + p.chunk < p.length ? begin + p.chunk : p.length;
  i64 start = ((const i64*)p.starts)[blockIdx.x];
  for (i64 at = begin; at < end; at += kThreads) {
    const bool mine = at + t < end && tw_is_true(p, at + t);
    int from = 0;
    rank[0][t] = mine;
    for (int reach = 1; reach < kThreads; reach *= 2) {
      __syncthreads();
      rank[1 - from][t] = rank[from][t] + (t >= reach ? rank[from][t - reach] : 0);
      from = 1 - from;
    }
    if (mine) found[rank[from][t] - 1] = at + t;
    __syncthreads();
    const int n = rank[from][kThreads - 1];
    const i64 items = p.slab.count;
    for (i64 e = t; e < n * items; e += kThreads) {
      const i64 k = e / items;
      if (start + k >= p.kept) continue;
      i64 offset[2] = {};
      tw_offsets<2>(p.slab, p.place, e - k * items, offset);
      const i64 out = (start + k) * p.out_row + offset[0];
      if (p.positions)
        ((i64*)p.place[0].base)[out] = p.lo + found[k];
      else
        ((Item*)p.place[0].base)[out] = ((const Item*)p.place[1].base)[found[k] * p.row + offset[1]];
    }
    start += n;
    __syncthreads();
  }
}
