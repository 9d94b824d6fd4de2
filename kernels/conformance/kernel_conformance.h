// What every kernel set must compute: each family compared with the reference on random and awkward inputs. One suite,
// instantiated in a few lines per kind of device:
//
//   TEST_CASE("host kernels") { kernels::conformance::run_all({.kernels = *set, .device = *device}); }
//
// Everything but transcendental functions and float sums is compared bit for bit (any NaN equals any NaN); ulps of the
// former are measured and reported, as is the seed, through doctest messages.
#pragma once
#include <tilewise/kernels/kernels.h>

#include <algorithm>
#include <cstdint>

namespace tilewise::kernels::conformance {

struct Subject {
  KernelSet& kernels;
  device::Device& device;
  std::uint64_t seed = 1;
  double ulps64 = 4, ulps32 = 4;  // of transcendental functions
  double pow_ulps = 4;            // kPow, kAtan2, kTan
  double complex_ulps = 16;       // of functions of complex numbers, in units of the larger part's last place
  double complex_pow_ulps = 16;
  bool complex_pow_by_exp = false;  // of b log a, in float64
  bool logaddexp_cancels =
      false;                // of float64: ulps of the largest argument, where that is larger than the result
  double normal_ulps = 16;  // of kNormal, relative to the larger of the value and 1
  bool integer_matmul = true;
  double random_share = 1;  // of the random steps and values; awkward ones are always all there
  bool order = true;        // run_all: lines are sorted too. Highway's sort has no version without vectors
  bool scan_order_is_reference = true;  // floats too are compared bit for bit
  mutable device::Slab arena;           // filled by the suite; freed with the device

  int share_of(int steps) const { return std::max(1, static_cast<int>(steps * random_share)); }
};

void conform_elementwise(const Subject&);     // each op on each dtype it accepts, edge values
void conform_special_values(const Subject&);  // NaN, infinities, zeros: the Array API standard's table
void conform_tapes(
    const Subject&);  // random tapes, shapes and strides; fused equals unfused; sizes around limits
void conform_random(const Subject&);  // known answers; numbers do not depend on the grid
void conform_reductions(const Subject&);
void conform_moments(const Subject&);
void conform_scans(const Subject&);
void conform_products(const Subject&);
void conform_moves(const Subject&);
// Built-in kernels, of a set that has them (for hosts: made with a table of builtin_kernels()).
void conform_indices(const Subject&);
void conform_order(const Subject&);
void conform_numbers(const Subject&);  // gamma numbers, Fourier transforms where they are there
void run_all(const Subject&);

}  // namespace tilewise::kernels::conformance
