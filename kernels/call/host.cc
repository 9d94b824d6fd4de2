// kCall: the plug-in's own code is both the host's version and the reference's, but for built-in kernels with a plain one.
#include <tilewise/kernels/plugin_call.h>

#include "call/call.h"

namespace tilewise::kernels::call {

Status supports(const ir::Op& op, const PluginTable* plugins) {
  const auto kernel = plugin_kernel(op, plugins, PluginTarget::kHost);
  if (!kernel) return kernel.error();
  return {};
}

Status host(const KernelCall& call, const PluginTable* plugins) {
  return run_plugin(call, plugins, PluginTarget::kHost, nullptr);
}

Status reference(const KernelCall& call, const PluginTable* plugins) {
  return run_plugin(call, plugins, PluginTarget::kReference, nullptr);
}

}  // namespace tilewise::kernels::call
