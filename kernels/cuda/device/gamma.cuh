// Gamma numbers: kernels/draw/gamma.cc says how they come about. Generated before this text: Out.

struct GammaParams {
  Walk walk;
  Place place[2];  // result; the element's position in the whole array
  u64 key;
  double alpha, scale;
};

__device__ __forceinline__ spec::Words tw_gamma_draw(u64 key, u64 element, u32 attempt, u32 purpose) {
  return spec::philox(spec::Words{{(u32)element, (u32)(element >> 32), attempt, purpose}}, (u32)key,
                      (u32)(key >> 32));
}
// In (0, 1], so that it has a logarithm.
__device__ __forceinline__ double tw_unit(u32 low, u32 high) {
  return (double)(((u64)1 << 53) - ((low | (u64)high << 32) >> 11)) * 0x1.0p-53;
}

__device__ __forceinline__ double tw_gamma(u64 key, u64 element, double alpha) {
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
  for (u32 attempt = 0; attempt < 1000; ++attempt) {
    const spec::Words x = tw_gamma_draw(key, element, attempt, 1),
                      y = tw_gamma_draw(key, element, attempt, 2);
    const double normal =
        sqrt(-2 * log(tw_unit(x.w[0], x.w[1]))) * cos(spec::kTwoPi * tw_unit(x.w[2], x.w[3]));
    const double t = 1 + c * normal, v = t * t * t;
    if (v <= 0) continue;
    if (log(tw_unit(y.w[0], y.w[1])) >= 0.5 * normal * normal + d - d * v + d * log(v)) continue;
    return alpha < 1 ? d * v * pow(tw_unit(y.w[2], y.w[3]), 1 / alpha) : d * v;
  }
  return d;
}

extern "C" __global__ void __launch_bounds__(kThreads) tw_draw_gamma(const __grid_constant__ GammaParams p) {
  const i64 step = (i64)gridDim.x * kThreads;
  for (i64 i = (i64)blockIdx.x * kThreads + threadIdx.x; i < p.walk.count; i += step) {
    i64 offset[2] = {};
    tw_offsets<2>(p.walk, p.place, i, offset);
    ((Out*)p.place[0].base)[offset[0]] =
        (Out)(p.scale * tw_gamma(p.key, (u64)(p.place[1].base + offset[1]), p.alpha));
  }
}
