// kCall: built-in kernels that have a CUDA version, and plug-ins' own CUDA launches.
#include <tilewise/ir/builtin.h>
#include <tilewise/kernels/plugin_call.h>

#include "launch.h"

namespace tilewise::cuda {
namespace {

// They need driver calls, sources and scratch of their own, so they are here and not behind the plug-in interface.
enum class Builtin {
  kNone,
  kNoop,
  kZero,
  kTake,
  kWrapIndex,
  kPut,
  kCountTrue,
  kCompress,
  kSort,
  kDeal,
  kSplit,
  kMerge,
  kSearch,
  kGamma,
  kFft
};

Builtin builtin(const ir::Op& op) {
  using namespace ir::builtin;
  struct Named {
    std::string_view name;
    Builtin kernel;
  };
  static constexpr Named kNames[] = {{"tilewise.noop", Builtin::kNoop},
                                     {"tilewise.zero", Builtin::kZero},
                                     {Take::kName, Builtin::kTake},
                                     {TakeAlong::kName, Builtin::kTake},
                                     {WrapIndex::kName, Builtin::kWrapIndex},
                                     {Put::kName, Builtin::kPut},
                                     {CountTrue::kName, Builtin::kCountTrue},
                                     {Compress::kName, Builtin::kCompress},
                                     {SortBlock::kName, Builtin::kSort},
                                     {DealSorted::kName, Builtin::kDeal},
                                     {SplitRuns::kName, Builtin::kSplit},
                                     {MergeRuns::kName, Builtin::kMerge},
                                     {SearchSorted::kName, Builtin::kSearch},
                                     {Gamma::kName, Builtin::kGamma},
                                     {Fft::kName, Builtin::kFft}};
  const std::string& name = op.get<ir::CallAttrs>().kernel;
  if (!name.starts_with("tilewise.")) return Builtin::kNone;
  for (const Named& named : kNames)
    if (named.name == name) return named.kernel;
  return Builtin::kNone;
}

// Blocks that a kernel takes at least.
std::size_t operands_of(Builtin kernel) {
  switch (kernel) {
    case Builtin::kTake:
    case Builtin::kSearch: return 2;
    case Builtin::kPut: return 3;
    case Builtin::kWrapIndex:
    case Builtin::kCountTrue:
    case Builtin::kCompress:
    case Builtin::kSort:
    case Builtin::kDeal:
    case Builtin::kSplit:
    case Builtin::kFft:
    case Builtin::kMerge: return 1;
    default: return 0;
  }
}

Status zero(const Environment& env, const KernelCall& call, CUstream stream) {
  if (call.step > 0) return {};
  for (const TensorView& out : call.outputs) TW_TRY(clear(env, out, stream));
  return {};
}

}  // namespace

Status call_supports(const Environment& env, const ir::Op& op) {
  if (builtin(op) == Builtin::kFft) return fft_supports(env, op);
  if (builtin(op) != Builtin::kNone) return {};
  if (is_linalg(op)) return linalg_supports(env, op);
  TW_TRY(kernels::plugin_kernel(op, env.plugins, kernels::PluginTarget::kCuda));
  return {};
}

std::int64_t call_scratch_bytes(const Environment& env, const ir::Op& op) {
  if (is_linalg(op)) return linalg_scratch_bytes(env, op);
  switch (builtin(op)) {
    case Builtin::kNone: return op.get<ir::CallAttrs>().scratch_bytes;
    case Builtin::kPut: return put_scratch_bytes(op);
    case Builtin::kCountTrue:
    case Builtin::kCompress: return select_scratch_bytes();
    case Builtin::kSort: return sort_scratch_bytes(op);
    case Builtin::kDeal: return deal_scratch_bytes(op);
    case Builtin::kSplit: return split_scratch_bytes(op);
    case Builtin::kMerge: return merge_scratch_bytes(op);
    case Builtin::kFft: return fft_scratch_bytes(env, op);
    default: return 0;
  }
}

Status prepare_call(const Environment& env, const ir::Op& op, std::span<const CUstream> streams) {
  if (is_linalg(op)) return prepare_linalg(env, op, streams);
  const auto built = [](const Result<Program>& program) -> Status {
    if (!program) return program.error();
    return {};
  };
  const ir::DType dtype = op.outputs.at(0).dtype;
  switch (builtin(op)) {
    case Builtin::kTake:
    case Builtin::kWrapIndex:
    case Builtin::kPut:
    case Builtin::kCountTrue:
    case Builtin::kCompress: return built(env.programs.index(ir::size_of(dtype)));
    case Builtin::kSort:
    case Builtin::kDeal:
    case Builtin::kSplit:
    case Builtin::kMerge:
      return has_order(dtype) ? built(env.programs.order(dtype, op.outputs.size() > 1)) : Status{};
    case Builtin::kGamma: return built(env.programs.gamma(dtype));
    case Builtin::kFft: return prepare_fft(env, op, streams);
    default: return {};
  }
}

Status launch_call(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault) {
  TW_TRY(env.context.make_current());
  if (is_linalg(*call.op)) return launch_linalg(env, call, stream, fault);
  const Builtin kernel = builtin(*call.op);
  if (kernel != Builtin::kNone && kernel != Builtin::kNoop && kernel != Builtin::kZero &&
      (call.inputs.size() < operands_of(kernel) || call.outputs.empty()))
    return error(Errc::kTaskFailed, call.op->get<ir::CallAttrs>().kernel + ": operands are missing");
  switch (kernel) {
    case Builtin::kNoop: return {};
    case Builtin::kZero: return zero(env, call, stream);
    case Builtin::kTake: return launch_take(env, call, stream, fault);
    case Builtin::kWrapIndex: return launch_wrap_index(env, call, stream, fault);
    case Builtin::kPut: return launch_put(env, call, stream, fault);
    case Builtin::kCountTrue: return launch_count_true(env, call, stream);
    case Builtin::kCompress: return launch_compress(env, call, stream, fault);
    case Builtin::kSort: return launch_sort(env, call, stream);
    case Builtin::kDeal: return launch_deal(env, call, stream);
    case Builtin::kSplit: return launch_split(env, call, stream);
    case Builtin::kMerge: return launch_merge(env, call, stream);
    case Builtin::kSearch: return launch_search(env, call, stream);
    case Builtin::kGamma: return launch_gamma(env, call, stream);
    case Builtin::kFft: return launch_fft(env, call, stream);
    case Builtin::kNone: break;
  }
  return kernels::run_plugin(call, env.plugins, kernels::PluginTarget::kCuda, stream);
}

}  // namespace tilewise::cuda
