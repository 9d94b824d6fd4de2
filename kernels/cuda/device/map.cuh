// Elementwise kernels. Generated before this text: kOutputs, kPlaces, kWidth, Values (the outputs of an element), Value (the
// first's type), Element, and
//   tw_load(place, offset, element)             one element of every operand
//   tw_load_group(place, offset, elements)      kWidth neighbours of every operand, up to 16 bytes at a time
//   tw_evaluate(element, place, offset, constants) -> Values
//   tw_store(place, offset, values)             as memory holds them
//   tw_store_group(place, offset, values)       kWidth neighbours
// Outputs are the first kOutputs places, then come the operands, then numbers that follow from the position. Everything is
// loaded before anything is stored, since an output may be an operand's memory.

struct MapParams {
  Walk walk;
  i64 elements;
  Constants constants;
  Place place[kPlaces];
};

// The innermost dimension is visited in groups of kWidth: the walk counts groups, and place.inner is the element stride
// inside one: 1 or 0 for memory, whatever it is for positions. Groups are whole and aligned, except that the last one of a
// walk in one dimension may be short.
extern "C" __global__ void __launch_bounds__(kThreads) tw_map_groups(const __grid_constant__ MapParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 group = (i64)blockIdx.x * kThreads + threadIdx.x; group < p.walk.count; group += step) {
    i64 offset[kPlaces] = {};
    tw_offsets<kPlaces>(p.walk, p.place, group, offset);
    if ((group + 1) * kWidth <= p.elements) {
      Element element[kWidth];
      tw_load_group(p.place, offset, element);
      i64 begin[kOutputs];
#pragma unroll
      for (int s = 0; s < kOutputs; ++s) begin[s] = offset[s];
      Values values[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        values[j] = tw_evaluate(element[j], p.place, offset, p.constants);
#pragma unroll
        for (int s = 0; s < kPlaces; ++s) offset[s] += p.place[s].inner;
      }
      tw_store_group(p.place, begin, values);
    } else {
      for (int j = 0; group * kWidth + j < p.elements; ++j) {
        Element element;
        tw_load(p.place, offset, element);
        tw_store(p.place, offset, tw_evaluate(element, p.place, offset, p.constants));
#pragma unroll
        for (int s = 0; s < kPlaces; ++s) offset[s] += p.place[s].inner;
      }
    }
  }
}

__device__ __forceinline__ void tw_one(const MapParams& p, const i64 (&offset)[kPlaces]) {
  Element element;
  tw_load(p.place, offset, element);
  tw_store(p.place, offset, tw_evaluate(element, p.place, offset, p.constants));
}

// Any strides, outputs included.
extern "C" __global__ void __launch_bounds__(kThreads) tw_map_any(const __grid_constant__ MapParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) {
    i64 offset[kPlaces] = {};
    tw_offsets<kPlaces>(p.walk, p.place, p.walk.first + i, offset);
    tw_one(p, offset);
  }
}

// Two dimensions, some operand transposed: a thread block takes a square, so that what a warp reads of a transposed
// operand is used by the block's other warps while it is in the cache next to them.
constexpr int kSide = 32;
extern "C" __global__ void __launch_bounds__(kThreads) tw_map_squares(const __grid_constant__ MapParams p) {
  const i64 across = (p.walk.extent[1] + kSide - 1) / kSide;
  const i64 row = (i64)blockIdx.x / across * kSide + threadIdx.x / kSide;
  const i64 column = (i64)blockIdx.x % across * kSide + threadIdx.x % kSide;
  if (column >= p.walk.extent[1]) return;
#pragma unroll
  for (int k = 0; k < kSide; k += kThreads / kSide) {
    if (row + k >= p.walk.extent[0]) return;
    i64 offset[kPlaces];
#pragma unroll
    for (int s = 0; s < kPlaces; ++s)
      offset[s] = (row + k) * p.place[s].stride[0] + column * p.place[s].stride[1];
    tw_one(p, offset);
  }
}
