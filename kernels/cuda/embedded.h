// Device source as text, embedded by the build from device/*.cuh and random_spec.h.
#pragma once

namespace tilewise::cuda {

extern const char* const kRandomSource;   // namespace tilewise::kernels::random_spec
extern const char* const kPreludeSource;  // types, arithmetic with Tilewise's rules, index walks
extern const char* const kComplexSource;  // complex numbers, where a tape has any
extern const char* const kMapSource;      // elementwise kernels around a generated `evaluate`
extern const char* const kReduceSource;   // reductions around a generated `evaluate`
extern const char* const kMatmulSource;   // integer products
extern const char* const kScanSource;     // running sums and products
extern const char* const kFaultSource;    // telling the host what is wrong with data
extern const char* const kIndexSource;    // reads and writes at indices, selection by masks
extern const char* const kOrderSource;    // sorting, merging, searching
extern const char* const kGammaSource;    // gamma numbers
extern const char* const kLinalgSource;   // beside cuSOLVER: codes, finiteness, determinants

// What complex.cuh wants before it on a device.
constexpr const char* kComplexMacros =
    "#define TW_DEVICE __device__ __forceinline__\n#define TW_FUNCTION __device__ __noinline__\n";

}  // namespace tilewise::cuda
