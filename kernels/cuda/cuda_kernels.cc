#include "cuda_kernels.h"

#include <tilewise/ir/verify.h>

#include "nvtx_range.h"

namespace tilewise::cuda {

Result<std::unique_ptr<CudaKernels>> CudaKernels::make(device::Device& device,
                                                       const kernels::PluginTable* plugins) {
  TW_ASSIGN(const Context* const context, context_of(device));
  TW_ASSIGN(auto nvrtc, Nvrtc::open(context->driver->version / 1000));
  // Without the others everything else still runs; supports() names what is missing.
  auto cublas = Cublas::open(*context);
  auto cusolver = Cusolver::open(*context);
  auto cufft = Cufft::open(*context);
  return std::unique_ptr<CudaKernels>(new CudaKernels(
      device, *context, std::move(nvrtc), cublas ? std::move(*cublas) : nullptr,
      cusolver ? std::move(*cusolver) : nullptr, cufft ? std::move(*cufft) : nullptr, plugins));
}

Status CudaKernels::supports(const ir::Op& op) const {
  const auto refuse = [&](const std::string& why) {
    return error(Errc::kUnsupported, std::string(name_of(op.kind)) + " on CUDA: " + why);
  };
  const auto reduces = [&](ir::ReduceKind kind, ir::DType dtype) -> Status {
    if (ir::reduced_dtype(kind, dtype)) return {};
    return refuse(std::string(name_of(kind)) + " of " + std::string(name_of(dtype)));
  };
  switch (op.kind) {
    case ir::OpKind::kMap:
    case ir::OpKind::kCopy:
    case ir::OpKind::kReshape: return {};
    case ir::OpKind::kReduceBlocks: {
      const auto& attrs = op.get<ir::ReduceAttrs>();
      return reduces(attrs.kind, attrs.tape.result());
    }
    case ir::OpKind::kCombine: return reduces(op.get<ir::CombineAttrs>().kind, op.outputs.at(0).dtype);
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels: {
      const ir::DType dtype = op.outputs.at(0).dtype;
      if (!ir::multiplies(dtype)) return refuse("no products of " + std::string(name_of(dtype)));
      if (uses_blas(dtype) && cublas_ == nullptr)
        return refuse("products of " + std::string(name_of(dtype)) +
                      " need cuBLAS, which was not found (TILEWISE_CUBLAS_PATH)");
      return {};
    }
    case ir::OpKind::kScan: return reduces(op.get<ir::ScanAttrs>().kind, op.outputs.at(0).dtype);
    case ir::OpKind::kCall: return call_supports(env_, op);
    case ir::OpKind::kReadNpy:
    case ir::OpKind::kWriteNpy: return refuse("no kernel; the host reads and writes files");
    case ir::OpKind::kReduce:
    case ir::OpKind::kFetch:
    case ir::OpKind::kKeep:
    case ir::OpKind::kProvide: break;
  }
  return refuse("not a kernel");
}

std::int64_t CudaKernels::scratch_bytes(const ir::Op& op) const {
  switch (op.kind) {
    case ir::OpKind::kReduceBlocks: return reduce_scratch_bytes(op);
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels: return matmul_scratch_bytes(op);
    case ir::OpKind::kScan: return scan_scratch_bytes(op);
    case ir::OpKind::kCall: return call_scratch_bytes(env_, op);
    default: return 0;
  }
}

Status CudaKernels::launch(const KernelCall& call, device::Stream& stream) {
  if (stream.kind() != device::Kind::kCuda)
    return error(Errc::kInvalidArgument, "a CUDA kernel on a host stream");
  auto* const native = static_cast<CUstream>(stream.native());
  const NvtxRange range(*call.op);
  switch (call.op->kind) {
    case ir::OpKind::kMap: return launch_map(env_, call, native);
    case ir::OpKind::kCopy: return launch_copy(env_, call, native);
    case ir::OpKind::kReshape: return launch_reshape(env_, call, native);
    case ir::OpKind::kReduceBlocks: return launch_reduce(env_, call, native);
    case ir::OpKind::kCombine: return launch_combine(env_, call, native);
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels: return launch_matmul(env_, call, native);
    case ir::OpKind::kScan: return launch_scan(env_, call, native);
    case ir::OpKind::kCall: return launch_call(env_, call, native, data_fault_of(stream));
    default: return supports(*call.op);
  }
}

Status CudaKernels::prepare(const ir::Op& op) {
  const auto built = [](const Result<Program>& program) -> Status {
    if (!program) return program.error();
    return {};
  };
  switch (op.kind) {
    case ir::OpKind::kMap: return built(programs_.map(op.get<ir::MapAttrs>().tape));
    case ir::OpKind::kCopy:
    case ir::OpKind::kReshape: return built(programs_.map(copy_tape(op.outputs.at(0).dtype)));
    case ir::OpKind::kReduceBlocks: {
      const auto& attrs = op.get<ir::ReduceAttrs>();
      return built(programs_.reduce(attrs.tape, attrs.kind));
    }
    case ir::OpKind::kCombine: return prepare_combine(env_, op);
    case ir::OpKind::kScan:
      return built(programs_.scan(op.get<ir::ScanAttrs>().kind, op.outputs.at(0).dtype));
    case ir::OpKind::kCall: {
      std::vector<CUstream> streams;
      for (int i = 0; i < device_.info().compute_streams; ++i)
        streams.push_back(static_cast<CUstream>(device_.compute_stream(i).native()));
      return prepare_call(env_, op, streams);
    }
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels: break;
    default: return {};
  }
  const ir::DType dtype = op.outputs.at(0).dtype;
  if (!uses_blas(dtype)) return built(programs_.matmul(dtype));
  if (matmul_scratch_bytes(op) > 0) TW_TRY(built(programs_.map(copy_tape(dtype))));
  for (int i = 0; cublas_ != nullptr && i < device_.info().compute_streams; ++i)
    TW_TRY(cublas_->prepare(static_cast<CUstream>(device_.compute_stream(i).native())));
  return {};
}

}  // namespace tilewise::cuda

namespace tilewise::kernels {

Result<std::unique_ptr<KernelSet>> make_cuda_kernels(device::Device& device, const PluginTable* plugins) {
  TW_ASSIGN(auto made, cuda::CudaKernels::make(device, plugins));
  return std::unique_ptr<KernelSet>(std::move(made));
}

}  // namespace tilewise::kernels
