#include "conformance/harness.h"

#include <tilewise/kernels/plugin.h>

#include "map/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tilewise::kernels::conformance {

using ir::DType;

Array Array::contiguous(DType dtype, const ir::Shape& shape) {
  Array a;
  a.dtype = dtype;
  a.shape = shape;
  a.strides = ir::c_order_strides(shape);
  a.bytes.resize(static_cast<std::size_t>(ir::volume(shape)) * ir::size_of(dtype));
  return a;
}

std::int64_t Array::position(std::int64_t element) const {
  const ir::Index at = ir::unravel(element, shape);
  std::int64_t p = offset;
  for (std::size_t d = 0; d < at.size(); ++d) p += at[d] * strides[d];
  return p;
}

namespace {

// One element as a view, for the reference's way of reading and writing.
TensorView element_of(const Array& a, std::int64_t element) {
  const std::int64_t at = a.position(element) * static_cast<std::int64_t>(ir::size_of(a.dtype));
  return {const_cast<std::byte*>(a.bytes.data()) + at, a.dtype, {1}, {1}};
}

}  // namespace

double Array::as_double(std::int64_t e) const {
  const map::RefValue v = map::ref_load(element_of(*this, e), {0});
  if (ir::is_floating(dtype) || ir::is_complex(dtype)) return v.f;
  return dtype == DType::kUInt64 ? static_cast<double>(static_cast<std::uint64_t>(v.i))
                                 : static_cast<double>(v.i);
}

double Array::imaginary(std::int64_t e) const { return map::ref_load(element_of(*this, e), {0}).g; }

std::int64_t Array::as_int(std::int64_t e) const { return map::ref_load(element_of(*this, e), {0}).i; }

void Array::set(std::int64_t e, double f, std::int64_t i, double g) {
  map::RefValue v;
  v.f = f;
  v.g = g;
  v.i = dtype == DType::kBool ? i & 1 : i;
  map::ref_store(element_of(*this, e), 0, v);
}

Array random_layout(Prng& prng, DType dtype, const ir::Shape& shape, bool plain) {
  if (plain) return Array::contiguous(dtype, shape);
  Array a;
  a.dtype = dtype;
  a.shape = shape;
  a.strides.resize(shape.size());
  std::vector<int> order(shape.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(d);
  if (prng.chance(0.5))
    for (std::size_t d = order.size(); d > 1; --d) std::swap(order[d - 1], order[prng.below(d)]);
  std::int64_t stride = prng.chance(0.2) ? 2 : 1, size = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(order[i]);
    if (prng.chance(0.2)) {
      a.strides[d] = 0;
      continue;
    }
    const std::int64_t extent = std::max<std::int64_t>(1, shape[d]);
    size += (extent - 1) * stride;
    const bool reversed = prng.chance(0.2);
    a.strides[d] = reversed ? -stride : stride;
    if (reversed) a.offset += (extent - 1) * stride;
    stride *= extent + (prng.chance(0.3) ? prng.between(1, 3) : 0);
  }
  a.bytes.resize(static_cast<std::size_t>(size) * ir::size_of(dtype));
  return a;
}

void fill_random(Prng& prng, Array& a, bool edges) {
  const double infinity = std::numeric_limits<double>::infinity();
  const DType part = ir::real_dtype(a.dtype);
  const double big = part == DType::kFloat16                               ? 65000
                     : part == DType::kFloat32 || part == DType::kBFloat16 ? 3e38
                                                                           : 1.7e308;
  const double tiny = part == DType::kFloat16                               ? 1e-6
                      : part == DType::kFloat32 || part == DType::kBFloat16 ? 1e-40
                                                                            : 1e-310;
  const double special[] = {0.0,  -0.0, infinity, -infinity, std::nan(""), 1,     -1,  0.5,
                            -0.5, 2,    big,      -big,      tiny,         -tiny, 1.5, 2.5};
  const std::int64_t ints[] = {0,
                               1,
                               -1,
                               2,
                               -2,
                               std::numeric_limits<std::int64_t>::max(),
                               std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int32_t>::max(),
                               std::numeric_limits<std::int32_t>::min(),
                               63,
                               64,
                               31,
                               32};
  const std::int64_t n = a.volume();
  for (std::int64_t e = 0; e < n; ++e) {
    double f = (prng.uniform() - 0.5) * std::pow(10.0, static_cast<double>(prng.between(-3, 3)));
    std::int64_t i = prng.between(-1000, 1000);
    if (edges && prng.chance(0.2)) f = special[prng.below(std::size(special))];
    if (edges && prng.chance(0.3)) i = ints[prng.below(std::size(ints))];
    const double g =
        edges && prng.chance(0.1) ? special[prng.below(std::size(special))] : prng.uniform() - 0.5;
    a.set(e, f, i, g);
  }
}

ir::Shape random_shape(Prng& prng, int max_rank, std::int64_t max_volume) {
  ir::Shape shape;
  std::int64_t left = max_volume;
  const int rank = static_cast<int>(prng.between(0, max_rank));
  for (int d = 0; d < rank; ++d) {
    const std::int64_t most = prng.chance(0.5) ? std::min<std::int64_t>(left, 5) : left;
    shape.push_back(prng.chance(0.03) ? 0 : prng.between(1, std::max<std::int64_t>(1, most)));
    left /= std::max<std::int64_t>(1, shape.back());
  }
  for (std::size_t d = shape.size(); d > 1; --d) std::swap(shape[d - 1], shape[prng.below(d)]);
  return shape;
}

namespace {

// Slabs live as long as their device, so one is reused.
std::byte* arena(const Subject& subject, std::int64_t bytes) {
  if (subject.arena.bytes < bytes) {
    auto slab = subject.device.add_slab(std::max<std::int64_t>(bytes, std::int64_t{32} << 20));
    REQUIRE_MESSAGE(slab.has_value(), (slab ? std::string() : slab.error().message));
    subject.arena = *slab;
  }
  return subject.arena.data;
}

std::int64_t rounded(std::size_t bytes) { return static_cast<std::int64_t>((bytes + 511) / 256 * 256); }

KernelCall call_of(const Step& step) {
  KernelCall call;
  call.op = &step.op;
  call.box = step.box;
  call.space_shape = step.space;
  call.step = step.step;
  call.steps = step.steps;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    call.input_boxes.push_back(i < step.input_boxes.size() ? step.input_boxes[i]
                                                           : ir::box_of(step.inputs[i].shape));
  }
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    call.output_boxes.push_back(i < step.output_boxes.size() ? step.output_boxes[i]
                                                             : ir::box_of(step.outputs[i].shape));
  }
  return call;
}

TensorView view_of(const Array& a, std::byte* at) {
  TensorView view{at + a.offset * static_cast<std::int64_t>(ir::size_of(a.dtype)), a.dtype, a.shape,
                  a.strides};
  if (a.absent) view.data = nullptr;
  return view;
}

void must(const Status& status) {
  REQUIRE_MESSAGE(static_cast<bool>(status), (status ? std::string() : status.error().message));
}

}  // namespace

void run(const Subject& subject, Step& step) {
  must(subject.kernels.supports(step.op));
  must(subject.kernels.prepare(step.op));
  const std::int64_t scratch = subject.kernels.scratch_bytes(step.op);
  std::int64_t bytes = rounded(static_cast<std::size_t>(scratch));
  for (const auto* list : {&step.inputs, &step.outputs})
    for (const Array& a : *list) bytes += rounded(a.bytes.size());
  std::byte* at = arena(subject, bytes);
  device::Stream& stream = subject.device.compute_stream(0);
  KernelCall call = call_of(step);
  if (scratch > 0) {
    call.scratch = at;
    at += rounded(static_cast<std::size_t>(scratch));
  }
  const auto upload = [&](const Array& a) {
    std::byte* to = at;
    at += rounded(a.bytes.size());
    if (!a.bytes.empty()) must(stream.copy(to, a.bytes.data(), a.bytes.size()));
    return view_of(a, to);
  };
  for (const Array& a : step.inputs) call.inputs.push_back(upload(a));
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    const int taken = i < step.takes.size() ? step.takes[i] : -1;
    call.outputs.push_back(taken < 0 ? upload(step.outputs[i])
                                     : call.inputs[static_cast<std::size_t>(taken)]);
  }
  must(subject.kernels.launch(call, stream));
  for (std::size_t i = 0; i < step.outputs.size(); ++i) {
    Array& a = step.outputs[i];
    if (!a.bytes.empty()) must(stream.copy(a.bytes.data(), call.outputs[i].data, a.bytes.size()));
  }
  stream.record();
  subject.device.synchronize();
  std::vector<device::StepFailure> failures;
  stream.take_failures(failures);
  REQUIRE_MESSAGE(failures.empty(), (failures.empty() ? std::string() : failures[0].error.message));
}

void run_reference(Step& step) {
  static PluginTable table;
  static const std::unique_ptr<KernelSet> reference = [] {
    must(table.add(builtin_kernels()));
    return make_reference_kernels(&table);
  }();
  KernelCall call = call_of(step);
  for (Array& a : step.inputs) call.inputs.push_back(view_of(a, a.bytes.data()));
  for (Array& a : step.outputs) call.outputs.push_back(view_of(a, a.bytes.data()));
  must(reference->run(call));
}

ir::TapeInstr instr(ir::TapeOp op, DType dtype, int a, int b, int c, std::int64_t imm_i, double imm_f) {
  ir::TapeInstr in;
  in.op = op;
  in.dtype = dtype;
  in.a = static_cast<std::uint16_t>(a);
  in.b = static_cast<std::uint16_t>(b);
  in.c = static_cast<std::uint16_t>(c);
  in.imm_i = imm_i;
  in.imm_f = imm_f;
  return in;
}

Step map_step(ir::Tape tape, std::vector<Array> inputs, const ir::Box& box, const ir::Shape& space) {
  Step step;
  step.op.kind = ir::OpKind::kMap;
  for (std::size_t o = 0; o < tape.output_count(); ++o) {
    step.op.outputs.push_back({});
    step.op.outputs[o].dtype = tape.result(o);
    step.outputs.push_back(Array::contiguous(tape.result(o), box.shape()));
  }
  step.op.attrs = ir::MapAttrs{std::move(tape)};
  step.box = box;
  step.space = space;
  step.inputs = std::move(inputs);
  return step;
}

namespace {

template <class Same> void compare(const Array& got, const Array& want, const std::string& what, Same same) {
  REQUIRE(got.volume() == want.volume());
  const std::int64_t n = want.volume();
  for (std::int64_t e = 0; e < n; ++e) {
    if (same(e)) continue;
    std::string text = what + ": element " + std::to_string(e) + " of " + ir::to_string(want.shape);
    char values[192];
    if (ir::is_complex(want.dtype)) {
      std::snprintf(values, sizeof(values), " is %.17g%+.17gj, not %.17g%+.17gj", got.as_double(e),
                    got.imaginary(e), want.as_double(e), want.imaginary(e));
    } else if (ir::is_floating(want.dtype)) {
      std::snprintf(values, sizeof(values), " is %.17g, not %.17g", got.as_double(e), want.as_double(e));
    } else {
      std::snprintf(values, sizeof(values), " is %lld, not %lld", static_cast<long long>(got.as_int(e)),
                    static_cast<long long>(want.as_int(e)));
    }
    text += values;
    FAIL(text);
  }
}

bool inexact(DType t) { return ir::is_floating(t) || ir::is_complex(t); }

bool same_part(double g, double w, bool signs) {
  if (std::isnan(g) && std::isnan(w)) return true;
  return g == w && (!signs || std::signbit(g) == std::signbit(w));
}

bool same_element(const Array& got, const Array& want, std::int64_t e, bool signs) {
  if (!inexact(want.dtype)) return got.as_int(e) == want.as_int(e);
  if (!same_part(got.as_double(e), want.as_double(e), signs)) return false;
  return !ir::is_complex(want.dtype) || same_part(got.imaginary(e), want.imaginary(e), signs);
}

}  // namespace

void check_same(const Array& got, const Array& want, const std::string& what) {
  compare(got, want, what, [&](std::int64_t e) { return same_element(got, want, e, true); });
}

void check_equal(const Array& got, const Array& want, const std::string& what) {
  compare(got, want, what, [&](std::int64_t e) { return same_element(got, want, e, false); });
}

namespace {

// The distance between neighbouring numbers of a dtype at x >= 0.
double step_at(double x, DType t) {
  int digits = 53, lowest = -1022;
  switch (ir::real_dtype(t)) {
    case DType::kFloat16: digits = 11, lowest = -14; break;
    case DType::kBFloat16: digits = 8, lowest = -126; break;
    case DType::kFloat32: digits = 24, lowest = -126; break;
    default: break;
  }
  return std::ldexp(1.0, std::max(x == 0 ? lowest : std::ilogb(x), lowest) - (digits - 1));
}

double ulps(double got, double want, DType t) {
  if (std::isnan(got) && std::isnan(want)) return 0;
  if (got == want && (got != 0 || std::signbit(got) == std::signbit(want))) return 0;
  if (got == want || !std::isfinite(got) || !std::isfinite(want))
    return std::numeric_limits<double>::infinity();
  return std::fabs(got - want) / step_at(std::fabs(want), t);
}

double element_ulps(const Array& got, const Array& want, std::int64_t e) {
  if (!ir::is_complex(want.dtype)) return ulps(got.as_double(e), want.as_double(e), want.dtype);
  const double x = want.as_double(e), y = want.imaginary(e);
  const double re = got.as_double(e), im = got.imaginary(e);
  // Beside NaN standards leave most signs open; those they do not are in special_values_table.h.
  const double by_part = std::isnan(x) || std::isnan(y)
                             ? std::max(ulps(std::fabs(re), std::fabs(x), want.dtype),
                                        ulps(std::fabs(im), std::fabs(y), want.dtype))
                             : std::max(ulps(re, x, want.dtype), ulps(im, y, want.dtype));
  if (!std::isfinite(x) || !std::isfinite(y) || by_part == 0 || std::isinf(by_part)) return by_part;
  const double off = std::max(std::fabs(re - x), std::fabs(im - y));
  return off / step_at(std::max(std::fabs(x), std::fabs(y)), want.dtype);
}

}  // namespace

double max_ulps(const Array& got, const Array& want) {
  double most = 0;
  for (std::int64_t e = 0; e < want.volume(); ++e) most = std::max(most, element_ulps(got, want, e));
  return most;
}

void check_ulps(const Array& got, const Array& want, double limit, const std::string& what) {
  compare(got, want, what, [&](std::int64_t e) { return element_ulps(got, want, e) <= limit; });
}

}  // namespace tilewise::kernels::conformance
