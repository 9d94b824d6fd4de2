#include <tilewise/kernels/plugin_call.h>

#include <algorithm>
#include <array>

#include "call/call.h"

namespace tilewise::kernels {

tilewise_view_v1 call::view_of(const TensorView& from, const ir::Box& box) {
  tilewise_view_v1 view{};
  view.data = from.data;
  view.dtype = static_cast<std::int32_t>(from.dtype);
  view.rank = static_cast<std::int32_t>(from.shape.size());
  std::copy(from.shape.begin(), from.shape.end(), view.shape);
  std::copy(from.strides.begin(), from.strides.end(), view.strides);
  std::copy(box.lo.begin(), box.lo.end(), view.lo);
  return view;
}

namespace {

static_assert(limits::kMaxRank == TILEWISE_MAX_RANK);
constexpr std::size_t kMessageBytes = 512;

Status failed(const std::string& kernel, int code, std::array<char, kMessageBytes>& message) {
  message.back() = '\0';
  // Those built in say which error it is.
  if (kernel.starts_with("tilewise.") && code > 0 && code <= static_cast<int>(Errc::kSingular))
    return error(static_cast<Errc>(code), message.data());
  return error(
      code == TILEWISE_UNDEFINED ? Errc::kSingular : Errc::kTaskFailed,
      "kernel " + kernel + ": " + (message[0] != '\0' ? message.data() : "error " + std::to_string(code)));
}

// A kernel that declares -1 takes any number.
Status check_count(const std::string& kernel, const char* what, std::int32_t takes, std::size_t given) {
  if (takes < 0 || static_cast<std::size_t>(takes) == given) return {};
  return error(Errc::kShapeMismatch, "kernel " + kernel + " takes " + std::to_string(takes) + " " + what +
                                         ", and is given " + std::to_string(given));
}

Status check_dtypes(const tilewise_kernel_v1& kernel, const tilewise_call_v1& call, const std::string& name) {
  if (kernel.check == nullptr) return {};
  std::array<std::int32_t, limits::kMaxOperands> in{}, out{};
  for (int i = 0; i < call.input_count; ++i) in[static_cast<std::size_t>(i)] = call.inputs[i].dtype;
  for (int i = 0; i < call.output_count; ++i) out[static_cast<std::size_t>(i)] = call.outputs[i].dtype;
  std::array<char, kMessageBytes> message{};
  const int code = kernel.check(in.data(), call.input_count, out.data(), call.output_count, message.data(),
                                message.size());
  return code == 0 ? Status{} : failed(name, code, message);
}

}  // namespace

Result<const tilewise_kernel_v1*> plugin_kernel(const ir::Op& op, const PluginTable* plugins,
                                                PluginTarget target) {
  const auto& attrs = op.get<ir::CallAttrs>();
  const tilewise_kernel_v1* kernel = plugins == nullptr ? nullptr : plugins->find(attrs.kernel);
  if (kernel == nullptr) return error(Errc::kNotFound, "no plug-in brings kernel " + attrs.kernel);
  const std::string version = plugins->version_of(attrs.kernel);
  if (!attrs.version.empty() && attrs.version != version) {
    return error(Errc::kVersionMismatch,
                 "kernel " + attrs.kernel + " has version " + version + ", not " + attrs.version);
  }
  const bool host = target != PluginTarget::kCuda;
  if ((host ? kernel->host : kernel->cuda) == nullptr) {
    return error(Errc::kUnsupported,
                 "kernel " + attrs.kernel + " has no version for " + (host ? "the host" : "CUDA"));
  }
  if (attrs.explicit_maps.empty())
    TW_TRY(check_count(attrs.kernel, "inputs", kernel->input_count, op.operands.size()));
  TW_TRY(check_count(attrs.kernel, "outputs", kernel->output_count, op.outputs.size()));
  return kernel;
}

Status run_plugin(const KernelCall& call, const PluginTable* plugins, PluginTarget target, void* stream) {
  TW_ASSIGN(const tilewise_kernel_v1* kernel, plugin_kernel(*call.op, plugins, target));
  const auto& attrs = call.op->get<ir::CallAttrs>();
  if (!attrs.explicit_maps.empty())  // their number may differ from call to call
    TW_TRY(check_count(attrs.kernel, "inputs", kernel->input_count, call.inputs.size()));
  boost::container::small_vector<tilewise_view_v1, 8> inputs, outputs;
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    inputs.push_back(call::view_of(call.inputs[i], call.input_boxes[i]));
  for (std::size_t i = 0; i < call.outputs.size(); ++i)
    outputs.push_back(call::view_of(call.outputs[i], call.output_boxes[i]));
  std::array<char, kMessageBytes> message{};
  tilewise_call_v1 c{};
  c.params = attrs.params.data();
  c.params_bytes = attrs.params.size();
  c.rank = call.box.rank();
  std::copy(call.box.lo.begin(), call.box.lo.end(), c.box_lo);
  std::copy(call.box.hi.begin(), call.box.hi.end(), c.box_hi);
  std::copy(call.space_shape.begin(), call.space_shape.end(), c.space);
  c.step = call.step;
  c.steps = call.steps;
  c.input_count = static_cast<std::int32_t>(inputs.size());
  c.output_count = static_cast<std::int32_t>(outputs.size());
  c.inputs = inputs.data();
  c.outputs = outputs.data();
  c.scratch = call.scratch;
  c.stream = stream;
  c.message = message.data();
  c.message_bytes = message.size();
  TW_TRY(check_dtypes(*kernel, c, attrs.kernel));
  tilewise_kernel_fn run = target == PluginTarget::kCuda ? kernel->cuda : kernel->host;
  if (target == PluginTarget::kReference)
    if (const tilewise_kernel_fn plain = call::reference_of(kernel->name)) run = plain;
  const int code = run(&c);
  return code == 0 ? Status{} : failed(attrs.kernel, code, message);
}

}  // namespace tilewise::kernels
