#include <tilewise/ir/builtin.h>
#include <tilewise/ir/checkpoint.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/saving.h>
#include <tilewise/kernels/plugin.h>

#include "call/builtin.h"
#include "call/call.h"
#include "draw/draw.h"
#include "fft/fft.h"
#include "file/file.h"
#include "index/index.h"
#include "linalg/linalg.h"
#include "sort/sort.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace tilewise::kernels {
namespace {

std::int64_t bytes_of(const tilewise_view_v1& view) {
  return builtin::volume(view) * static_cast<std::int64_t>(builtin::element_bytes(view));
}

int noop(const tilewise_call_v1*) { return 0; }

int zero(const tilewise_call_v1* call) {
  for (int i = 0; i < call->output_count && call->step == 0; ++i) {
    std::memset(call->outputs[i].data, 0, static_cast<std::size_t>(bytes_of(call->outputs[i])));
  }
  return 0;
}

// Task Bench's compute-bound kernel (Slaughter et al., SC 2020): A = A * A + A on 64 doubles, `iterations` times. The
// values start at 1.2345 and overflow to infinity; what matters is that no iteration can be skipped.
int compute(const tilewise_call_v1* call) {
  std::int64_t iterations = 0;
  if (call->params_bytes != sizeof(iterations)) {
    return builtin::refuse(call, builtin::kFailed, "wants 8 bytes of parameters: int64 iterations");
  }
  std::memcpy(&iterations, call->params, sizeof(iterations));
  alignas(64) double a[64];
  std::fill_n(a, 64, 1.2345);
  for (std::int64_t i = 0; i < iterations; ++i) {
    for (double& x : a) x = x * x + x;
  }
  if (call->output_count > 0) {
    const auto n = std::min<std::int64_t>(bytes_of(call->outputs[0]), sizeof(a));
    std::memcpy(call->outputs[0].data, a, static_cast<std::size_t>(n));
  }
  return 0;
}

using namespace ir::builtin;

template <class P> constexpr const char* name_of() { return P::kName.data(); }

// A kernel, and the plain version that a reference cluster runs. Null: files, and what has no arithmetic to get wrong.
struct Builtin {
  tilewise_kernel_v1 kernel;
  tilewise_kernel_fn reference;
};
constexpr Builtin kKernels[] = {
    {{"tilewise.noop", noop, nullptr, -1, -1, nullptr}, nullptr},
    {{"tilewise.zero", zero, nullptr, -1, -1, nullptr}, nullptr},
    {{"tilewise.compute", compute, nullptr, -1, -1, nullptr}, nullptr},
    {{name_of<Take>(), index::take, nullptr, 2, -1, nullptr}, index::reference::take},
    {{name_of<TakeAlong>(), index::take_along_axis, nullptr, 2, 1, nullptr},
     index::reference::take_along_axis},
    {{name_of<WrapIndex>(), index::wrap_index, nullptr, 1, 1, nullptr}, index::reference::wrap_index},
    {{name_of<Put>(), index::put, nullptr, 3, 1, nullptr}, index::reference::put},
    {{name_of<SearchSorted>(), index::searchsorted, nullptr, 2, 1, nullptr}, index::reference::searchsorted},
    {{name_of<SortBlock>(), sort::sort_block, nullptr, -1, -1, nullptr}, sort::reference::sort_block},
    {{name_of<DealSorted>(), sort::deal_sorted, nullptr, -1, -1, nullptr}, sort::reference::deal_sorted},
    {{name_of<SplitRuns>(), sort::split_runs, nullptr, -1, -1, nullptr}, sort::reference::split_runs},
    {{name_of<MergeRuns>(), sort::merge_runs, nullptr, -1, -1, nullptr}, sort::reference::merge_runs},
    {{name_of<Gamma>(), draw::gamma, nullptr, 0, 1, nullptr}, draw::reference::gamma},
#ifdef TILEWISE_KERNELS_FFT
    {{name_of<Fft>(), fft::transform, nullptr, 1, 1, nullptr}, fft::reference::transform},
#endif
    {{name_of<CountTrue>(), index::count_true, nullptr, 1, 1, nullptr}, index::reference::count_true},
    {{name_of<Compress>(), index::compress, nullptr, -1, 1, nullptr}, index::reference::compress},
#ifdef TILEWISE_KERNELS_IO
    {{ir::saving::kCreateNpy.data(), file::create_npy, nullptr, 0, 1, nullptr}, nullptr},
    {{ir::saving::kCommitNpy.data(), file::commit_npy, nullptr, 2, 1, nullptr}, nullptr},
    {{ir::saving::kDiscardNpy.data(), file::discard_npy, nullptr, 0, 1, nullptr}, nullptr},
    {{"tilewise.read_stored", file::read_stored, nullptr, 0, 1, nullptr}, nullptr},
    {{ir::saving::kCreateZarr.data(), file::create_zarr, nullptr, 0, 1, nullptr}, nullptr},
    {{ir::saving::kWriteZarr.data(), file::write_zarr, nullptr, 2, 1, nullptr}, nullptr},
    {{ir::saving::kCommitZarr.data(), file::commit_zarr, nullptr, 2, 1, nullptr}, nullptr},
    {{ir::saving::kDiscardZarr.data(), file::discard_zarr, nullptr, 0, 1, nullptr}, nullptr},
    {{ir::checkpoint::kTend.data(), file::tend_checkpoints, nullptr, 0, 1, nullptr}, nullptr},
    {{ir::checkpoint::kCreate.data(), file::create_checkpoint, nullptr, 0, 1, nullptr}, nullptr},
    {{ir::checkpoint::kWrite.data(), file::write_checkpoint, nullptr, 2, 1, nullptr}, nullptr},
    {{ir::checkpoint::kCommit.data(), file::commit_checkpoint, nullptr, 0, 1, nullptr}, nullptr},
    {{ir::checkpoint::kRestore.data(), file::restore_checkpoint, nullptr, 0, -1, nullptr}, nullptr},
#endif
};
struct Builtins {
  std::vector<tilewise_kernel_v1> kernels;
  tilewise_plugin_v1 plugin;

  Builtins() {
    for (const Builtin& builtin : kKernels) kernels.push_back(builtin.kernel);
    const auto more = linalg::host_kernels();
    kernels.insert(kernels.end(), more.begin(), more.end());
    plugin = {TILEWISE_PLUGIN_ABI, "tilewise", "1", static_cast<int32_t>(kernels.size()), kernels.data()};
  }
};

}  // namespace

const tilewise_plugin_v1& builtin_kernels() {
  static const Builtins builtins;
  return builtins.plugin;
}

tilewise_kernel_fn call::reference_of(const char* kernel) {
  for (const Builtin& builtin : kKernels)
    if (std::strcmp(builtin.kernel.name, kernel) == 0) return builtin.reference;
  return linalg::reference_of(kernel);
}

}  // namespace tilewise::kernels
