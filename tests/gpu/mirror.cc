#include "mirror.h"

#include <tilewise/base/check.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tilewise::gpu {

using kernels::KernelCall;
using kernels::TensorView;

namespace {

double value_at(const std::byte* data, ir::DType dtype, std::int64_t i) {
  switch (dtype) {
    case ir::DType::kFloat32: return reinterpret_cast<const float*>(data)[i];
    case ir::DType::kFloat64: return reinterpret_cast<const double*>(data)[i];
    default: return 0;
  }
}

}  // namespace

std::byte* Mirror::add(std::int64_t bytes) {
  auto& buffer = buffers_.emplace_back();
  buffer.host.resize(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  buffer.device = gpu_.allocate(static_cast<std::int64_t>(buffer.host.size()));
  return buffer.host.data();
}

void fill_random(void* data, ir::DType dtype, std::int64_t count, Prng& prng, bool finite) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double special = finite ? 1 : prng.uniform();
    const double number = prng.uniform() * 8 - 4;
    const double value = special < 0.01   ? std::numeric_limits<double>::quiet_NaN()
                         : special < 0.02 ? std::numeric_limits<double>::infinity()
                         : special < 0.04 ? -0.0
                         : special < 0.06 ? 0.0
                         : special < 0.10 ? std::round(number)
                                          : number;
    const std::int64_t integer =
        prng.chance(0.02) ? static_cast<std::int64_t>(prng.next()) : prng.between(-9, 9);
    switch (dtype) {
      case ir::DType::kBool: static_cast<std::uint8_t*>(data)[i] = prng.chance(0.5); break;
      case ir::DType::kInt32: static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(integer); break;
      case ir::DType::kInt64: static_cast<std::int64_t*>(data)[i] = integer; break;
      case ir::DType::kFloat32: static_cast<float*>(data)[i] = static_cast<float>(value); break;
      case ir::DType::kFloat64: static_cast<double*>(data)[i] = value; break;
      default: TW_CHECK(false, "a dtype that the checks on GPUs do not fill yet");
    }
  }
}

ir::Shape random_shape(Prng& prng, int max_rank, std::int64_t max_volume) {
  ir::Shape shape;
  const auto rank = prng.between(0, max_rank);
  std::int64_t left = max_volume;
  for (std::int64_t d = 0; d < rank; ++d) {
    const std::int64_t most = std::min<std::int64_t>(left, prng.chance(0.3) ? 4 : left);
    shape.push_back(prng.chance(0.1) ? 1 : prng.between(1, most));
    left /= shape.back();
  }
  for (std::size_t d = shape.size(); d > 1; --d)
    std::swap(shape[d - 1], shape[static_cast<std::size_t>(prng.below(d))]);
  return shape;
}

TensorView Mirror::random_view(ir::DType dtype, const ir::Shape& shape, Prng& prng, bool plain) {
  TensorView view{nullptr, dtype, shape, ir::Strides(shape.size(), 0)};
  std::vector<std::size_t> order(shape.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (!plain)
    for (std::size_t d = order.size(); d > 1; --d)
      if (prng.chance(0.4)) std::swap(order[d - 1], order[static_cast<std::size_t>(prng.below(d))]);
  std::int64_t elements = 1, start = 0;
  for (std::size_t k = order.size(); k-- > 0;) {
    const std::size_t d = order[k];
    if (!plain && prng.chance(0.15)) continue;  // repeats
    const std::int64_t step = !plain && prng.chance(0.15) ? prng.between(2, 3) : 1;
    const std::int64_t pad = !plain && prng.chance(0.2) ? prng.between(1, 5) : 0;
    const bool back = !plain && prng.chance(0.1);
    view.strides[d] = back ? -elements * step : elements * step;
    if (back) start += (shape[d] - 1) * step * elements;
    elements *= shape[d] * step + pad;
  }
  const std::int64_t shift = !plain && prng.chance(0.3) ? prng.between(0, 3) : 0;
  const auto size = static_cast<std::int64_t>(ir::size_of(dtype));
  std::byte* data = add((elements + shift) * size);
  fill_random(data, dtype, elements + shift, prng, finite_);
  view.data = data + (start + shift) * size;
  return view;
}

TensorView Mirror::output(ir::DType dtype, const ir::Shape& shape) {
  const std::int64_t count = ir::volume(shape);
  std::byte* data = add(count * static_cast<std::int64_t>(ir::size_of(dtype)));
  std::memset(data, 0x5a, static_cast<std::size_t>(count) * ir::size_of(dtype));
  return dense(data, dtype, shape);
}

TensorView Mirror::random_output(ir::DType dtype, const ir::Shape& shape, Prng& prng) {
  TensorView view = output(dtype, shape);
  fill_random(view.data, dtype, ir::volume(shape), prng, finite_);
  return view;
}

const Mirror::Buffer& Mirror::find(const void* data) const {
  const auto* at = static_cast<const std::byte*>(data);
  for (const Buffer& buffer : buffers_)
    if (at >= buffer.host.data() && at <= buffer.host.data() + buffer.host.size()) return buffer;
  stop("a view of memory that is not mirrored");
}

void* Mirror::on_device(void* data) const {
  if (data == nullptr) return nullptr;
  const Buffer& buffer = find(data);
  return buffer.device + (static_cast<std::byte*>(data) - buffer.host.data());
}

const std::byte* Mirror::gpu_bytes(const void* host) const {
  const Buffer& buffer = find(host);
  return buffer.result.data() + (static_cast<const std::byte*>(host) - buffer.host.data());
}

Status Mirror::run_gpu(KernelCall call) {
  device::Stream& stream = gpu_.stream();
  for (Buffer& buffer : buffers_) TW_TRY(stream.copy(buffer.device, buffer.host.data(), buffer.host.size()));
  for (TensorView& view : call.inputs) view.data = on_device(view.data);
  for (TensorView& view : call.outputs) view.data = on_device(view.data);
  const std::int64_t scratch = gpu_.kernels().scratch_bytes(*call.op);
  call.scratch = scratch > 0 ? gpu_.allocate(scratch) : nullptr;
  TW_TRY(gpu_.kernels().supports(*call.op));
  TW_TRY(gpu_.kernels().prepare(*call.op));
  TW_TRY(gpu_.kernels().launch(call, stream));
  for (Buffer& buffer : buffers_) {
    buffer.result.resize(buffer.host.size());
    TW_TRY(stream.copy(buffer.result.data(), buffer.device, buffer.host.size()));
  }
  stream.record();
  gpu_.device().synchronize();
  return gpu_.device().health();
}

Status Mirror::run(KernelCall call, kernels::KernelSet& host) {
  TW_TRY(run_gpu(call));
  std::vector<std::byte> scratch(static_cast<std::size_t>(host.scratch_bytes(*call.op)) + 256);
  void* aligned = scratch.data();
  std::size_t space = scratch.size();
  call.scratch = static_cast<std::byte*>(std::align(256, scratch.size() - 256, aligned, space));
  static const auto host_device = device::make_host_device({.memory_bytes = 1 << 20});
  device::Stream& stream = host_device->compute_stream(0);
  TW_TRY(host.launch(call, stream));
  stream.record();
  host_device->synchronize();
  std::vector<device::StepFailure> failures;
  stream.take_failures(failures);
  if (!failures.empty()) return failures[0].error;
  return {};
}

double Mirror::difference(const TensorView& output, double tolerance) const {
  const auto* expected = static_cast<const std::byte*>(output.data);
  const std::byte* got = gpu_bytes(output.data);
  const std::int64_t count = ir::volume(output.shape);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!ir::is_floating(output.dtype))
    return std::memcmp(expected, got, static_cast<std::size_t>(count) * ir::size_of(output.dtype)) == 0
               ? 0
               : kInfinity;
  double worst = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = value_at(expected, output.dtype, i), y = value_at(got, output.dtype, i);
    if ((std::isnan(x) && std::isnan(y)) || x == y) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return kInfinity;
    worst = std::max(worst, std::abs(x - y) / (tolerance * (1 + std::abs(x))));
  }
  return worst;
}

}  // namespace tilewise::gpu
