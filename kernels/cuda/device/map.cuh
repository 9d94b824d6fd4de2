// Elementwise kernels. Generated before this text: kPlaces, kWidth, Out, Value, Element, and
//   tw_load(place, offset, element)             one element of every operand
//   tw_load_group(place, i, elements)           kWidth neighbours of every operand, 16 bytes at a time
//   tw_evaluate(element, place, offset) -> Out
// Place 0 is the output, then come the operands, then numbers that follow from the position.

struct MapParams {
  Walk walk;
  Place place[kPlaces];
};

// Everything in one dimension; operands contiguous or constant, pointers aligned to kWidth elements.
extern "C" __global__ void __launch_bounds__(kThreads) tw_map_flat(const __grid_constant__ MapParams p) {
  const i64 i = ((i64)blockIdx.x * kThreads + threadIdx.x) * kWidth;
  Out* const out = (Out*)p.place[0].base;
  if (i + kWidth <= p.walk.count) {
    Element element[kWidth];
    tw_load_group(p.place, i, element);
    Pack<Out, kWidth> result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      i64 offset[kPlaces];
#pragma unroll
      for (int s = 0; s < kPlaces; ++s) offset[s] = (i + j) * p.place[s].stride[0];
      result.v[j] = tw_evaluate(element[j], p.place, offset);
    }
    *(Pack<Out, kWidth>*)(out + i) = result;
  } else {
    for (i64 k = i; k < p.walk.count; ++k) {
      i64 offset[kPlaces];
#pragma unroll
      for (int s = 0; s < kPlaces; ++s) offset[s] = k * p.place[s].stride[0];
      Element element;
      tw_load(p.place, offset, element);
      out[k] = tw_evaluate(element, p.place, offset);
    }
  }
}

__device__ __forceinline__ void tw_one(const MapParams& p, i64 i) {
  i64 offset[kPlaces] = {};
  tw_offsets<kPlaces>(p.walk, p.place, i, offset);
  Element element;
  tw_load(p.place, offset, element);
  ((Out*)p.place[0].base)[offset[0]] = tw_evaluate(element, p.place, offset);
}

// Any strides, output included.
extern "C" __global__ void __launch_bounds__(kThreads) tw_map_any(const __grid_constant__ MapParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) tw_one(p, p.walk.first + i);
}
