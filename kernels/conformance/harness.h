// Arrays on the host, steps described once and run by both the subject and the reference, and comparisons.
#pragma once
#include <doctest/doctest.h>
#include <tilewise/base/prng.h>

#include <string>
#include <vector>

#include "conformance/kernel_conformance.h"

namespace tilewise::kernels::conformance {

// Memory with a strided view on it.
struct Array {
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;
  ir::Strides strides;
  std::int64_t offset = 0;  // of element (0, ..., 0) in `bytes`, in elements
  std::vector<std::byte> bytes;
  bool absent = false;  // an operand not read in this step

  static Array contiguous(ir::DType dtype, const ir::Shape& shape);
  std::int64_t volume() const { return ir::volume(shape); }
  std::int64_t position(std::int64_t element) const;  // in `bytes`, of a C-order element number
  double as_double(std::int64_t element) const;       // the real part
  double imaginary(std::int64_t element) const;
  std::int64_t as_int(std::int64_t element) const;
  void set(std::int64_t element, double f, std::int64_t i, double g = 0);
};

// Random layout: permuted, stepped, reversed, padded and repeated dimensions.
Array random_layout(Prng& prng, ir::DType dtype, const ir::Shape& shape, bool plain);
// Values of every magnitude; `edges` mixes in NaN, infinities, zeros of both signs, extremes.
void fill_random(Prng& prng, Array& array, bool edges);
ir::Shape random_shape(Prng& prng, int max_rank, std::int64_t max_volume);

// A step of a task with its memory.
struct Step {
  ir::Op op;
  ir::Box box;
  ir::Shape space;
  std::int64_t step = 0, steps = 1;
  std::vector<Array> inputs;
  std::vector<ir::Box> input_boxes;  // default: from zero
  std::vector<Array> outputs;        // contents before; after run() contents after
  std::vector<ir::Box> output_boxes;
  std::vector<int>
      takes;  // of each output the input whose memory run() gives it, -1: its own. Default: its own
};

// Runs it with the subject or the reference, in place on step.outputs. Fails the test on an error.
void run(const Subject& subject, Step& step);
void run_reference(Step& step);

ir::TapeInstr instr(ir::TapeOp op, ir::DType dtype, int a = 0, int b = 0, int c = 0, std::int64_t imm_i = 0,
                    double imm_f = 0);
Step map_step(ir::Tape tape, std::vector<Array> inputs, const ir::Box& box, const ir::Shape& space);

// Bit for bit, NaNs alike. On a mismatch fails with `what`, the element and both values.
void check_same(const Array& got, const Array& want, const std::string& what);
// Equal numbers: zeros of either sign are equal, NaNs alike.
void check_equal(const Array& got, const Array& want, const std::string& what);
// Greatest distance in units of want's last place: infinite if one is NaN or infinite and the other is not, and between
// zeros of different signs. Of complex numbers: each part's distance in units of the larger part's last place, or of its own
// where the other is NaN (then signs are not compared) or infinite.
double max_ulps(const Array& got, const Array& want);
void check_ulps(const Array& got, const Array& want, double limit, const std::string& what);

}  // namespace tilewise::kernels::conformance
