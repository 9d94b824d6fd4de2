// The host and the reference kernel sets: both run a family's function inside the stream's thread.
#include "families.h"

namespace tilewise::kernels {
namespace {

using Step = Status (*)(const KernelCall&, const PluginTable*);

class CpuKernels final : public KernelSet {
 public:
  CpuKernels(const PluginTable* plugins, Step Family::*step) : plugins_(plugins), step_(step) {}

  Status supports(const ir::Op& op) const override {
    const Family* family = family_of(op.kind);
    if (family == nullptr)
      return error(Errc::kUnsupported, "no kernel for " + std::string(ir::name_of(op.kind)));
    return family->supports(op, plugins_);
  }

  std::int64_t scratch_bytes(const ir::Op& op) const override {
    const Family* family = family_of(op.kind);
    return family != nullptr && family->scratch_bytes != nullptr ? family->scratch_bytes(op) : 0;
  }

  Status launch(const KernelCall& call, device::Stream& stream) override {
    const Family* family = family_of(call.op->kind);
    if (family == nullptr) {
      return error(Errc::kUnsupported, "no kernel for " + std::string(ir::name_of(call.op->kind)));
    }
    return stream.enqueue([run = family->*step_, plugins = plugins_, call] { return run(call, plugins); });
  }

  Status run(const KernelCall& call) const override {
    const Family* family = family_of(call.op->kind);
    if (family == nullptr) {
      return error(Errc::kUnsupported, "no kernel for " + std::string(ir::name_of(call.op->kind)));
    }
    return (family->*step_)(call, plugins_);
  }

  Status prepare(const ir::Op&) override { return {}; }

 private:
  const PluginTable* plugins_;
  Step Family::*step_;
};

}  // namespace

Status KernelSet::run(const KernelCall& call) const {
  return error(Errc::kUnsupported,
               std::string(ir::name_of(call.op->kind)) + " cannot run on the calling thread here");
}

std::unique_ptr<KernelSet> make_host_kernels(const PluginTable* plugins) {
  return std::make_unique<CpuKernels>(plugins, &Family::host);
}

std::unique_ptr<KernelSet> make_reference_kernels(const PluginTable* plugins) {
  return std::make_unique<CpuKernels>(plugins, &Family::reference);
}

}  // namespace tilewise::kernels
