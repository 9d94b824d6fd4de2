// The launchers of all op kinds: each turns one step into kernel launches on a stream and returns.
#pragma once
#include <tilewise/cuda/data_fault.h>
#include <tilewise/cuda/driver.h>
#include <tilewise/kernels/kernels.h>

#include "cublas.h"
#include "cufft.h"
#include "cusolver.h"
#include "params.h"
#include "programs.h"

namespace tilewise::cuda {

using kernels::KernelCall;
using kernels::TensorView;

struct Environment {
  const Context& context;
  Programs& programs;
  Cublas* cublas;                       // null: no float matmul here
  Cusolver* cusolver;                   // null: no factorisations here
  Cufft* cufft;                         // null: no Fourier transforms here
  const kernels::PluginTable* plugins;  // may be null
};

// ---- elementwise.cc: kMap, kCopy, kReshape, kCombine

// outs[..][i] = tape(inputs[i]), any strides. `box` and `space_shape` give positions their meaning.
struct Elementwise {
  ir::Tape tape;
  ir::Shape shape;
  Strided out;
  std::span<const TensorView> inputs;
  const ir::Box* box = nullptr;
  const ir::Shape* space_shape = nullptr;
  std::int64_t first = 0, count = -1;     // C-order positions of `shape` to compute; -1: all
  std::span<const Strided> further = {};  // outputs behind `out`
};
Status elementwise(const Environment& env, const Elementwise& work, CUstream stream);
// A number that follows from the position, as a place: its value at the box's corner, and its steps.
Strided position_place(const TapeSources::Position& which, const ir::Box& box, const ir::Shape& space_shape);
// A region of `from` to strided memory of the same dtype.
Status copy_region(const Environment& env, const TensorView& from, const Strided& to, CUstream stream);
// Zeros in a contiguous output.
Status clear(const Environment& env, const TensorView& out, CUstream stream);
ir::Tape copy_tape(ir::DType dtype);

Status launch_map(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_copy(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_reshape(const Environment& env, const KernelCall& call, CUstream stream);

// ---- reduce.cc

std::int64_t reduce_scratch_bytes(const ir::Op& op);
Status launch_reduce(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_combine(const Environment& env, const KernelCall& call, CUstream stream);
Status prepare_combine(const Environment& env, const ir::Op& op);

// ---- scan.cc

std::int64_t scan_scratch_bytes(const ir::Op& op);
Status launch_scan(const Environment& env, const KernelCall& call, CUstream stream);

// ---- matmul.cc: kMatmul, kMatmulPanels

// Products by cuBLAS; integers have a kernel of their own.
inline bool uses_blas(ir::DType t) { return ir::is_floating(t) || ir::is_complex(t); }
std::int64_t matmul_scratch_bytes(const ir::Op& op);
Status launch_matmul(const Environment& env, const KernelCall& call, CUstream stream);

// ---- call.cc

Status call_supports(const Environment& env, const ir::Op& op);
std::int64_t call_scratch_bytes(const Environment& env, const ir::Op& op);
// `streams`: whose library handles are made now.
Status prepare_call(const Environment& env, const ir::Op& op, std::span<const CUstream> streams);
// `fault`: where kernels say what is wrong with data.
Status launch_call(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault);

// ---- index.cc: built-in kernels that read and write where data says. What they take: tilewise/ir/builtin.h

// As on the device: where to write what is wrong, as what.
struct FaultTo {
  std::int64_t fault = 0, format = 0;
  std::int32_t code = 0, unused = 0;
};
Status launch_take(const Environment& env, const KernelCall& call, CUstream stream,
                   DataFault* fault);  // both
Status launch_wrap_index(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault);
Status launch_put(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault);
Status launch_count_true(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_compress(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault);
std::int64_t put_scratch_bytes(const ir::Op& op);
std::int64_t select_scratch_bytes();

// ---- order.cc: sort_block, deal_sorted, split_runs, merge_runs, searchsorted

bool has_order(ir::DType dtype);
Status launch_sort(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_deal(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_split(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_merge(const Environment& env, const KernelCall& call, CUstream stream);
Status launch_search(const Environment& env, const KernelCall& call, CUstream stream);
std::int64_t sort_scratch_bytes(const ir::Op& op);
std::int64_t deal_scratch_bytes(const ir::Op& op);
std::int64_t split_scratch_bytes(const ir::Op& op);
std::int64_t merge_scratch_bytes(const ir::Op& op);

// ---- draw.cc

Status launch_gamma(const Environment& env, const KernelCall& call, CUstream stream);

// ---- linalg.cc: tilewise.cholesky, solve, det, qr, geqrf, ormqr, eigh, svd, trsm, update, lu_panel, lu_update

bool is_linalg(const ir::Op& op);
// kUnsupported: a library is missing, or it would keep the launching thread too long. kLimitExceeded: the library's limits.
Status linalg_supports(const Environment& env, const ir::Op& op);
std::int64_t linalg_scratch_bytes(const Environment& env, const ir::Op& op);
Status prepare_linalg(const Environment& env, const ir::Op& op, std::span<const CUstream> streams);
Status launch_linalg(const Environment& env, const KernelCall& call, CUstream stream, DataFault* fault);

// ---- fft.cc

Status fft_supports(const Environment& env, const ir::Op& op);
std::int64_t fft_scratch_bytes(const Environment& env, const ir::Op& op);
Status prepare_fft(const Environment& env, const ir::Op& op, std::span<const CUstream> streams);
Status launch_fft(const Environment& env, const KernelCall& call, CUstream stream);

// ---- launch.cc

// One generated kernel; `params` is laid out as its single parameter.
Status launch_kernel(const Environment& env, CUfunction function, std::int64_t blocks_x,
                     std::int64_t blocks_y, void* params, CUstream stream);
// Blocks for a grid-stride loop over `count` elements.
std::int64_t blocks_for(std::int64_t count);
// The strides of a view as those of a box of `shape`: extents of one where the box is longer repeat.
Strided strided(const TensorView& view, const ir::Shape& shape);
Status null_operand(const KernelCall& call, std::size_t operand);

}  // namespace tilewise::cuda
