// kScan. How lines are cut into chunks is a function of the block's shape alone.
#include <algorithm>

#include "launch.h"

namespace tilewise::cuda {
namespace {

constexpr std::int64_t kScanTile = 4 * kThreads;  // elements that a thread block takes at once
constexpr std::int64_t kLeastScanChunk = 4 * kScanTile;
constexpr std::int64_t kMostScanChunks = 256;  // of a line
constexpr std::int64_t kShort = 64;

// As device/scan.cuh.
struct ScanParams {
  Walk lines;
  Place place[3];
  std::int64_t length = 0, in_stride = 0, out_stride = 0, scratch = 0, chunk = 0;
  std::int32_t chunks = 1, mode = 0, carried = 0, unused = 0;
};

std::int64_t chunk_of(std::int64_t length) {
  const std::int64_t even = (length + kMostScanChunks - 1) / kMostScanChunks;
  return std::max(kLeastScanChunk, (even + kScanTile - 1) / kScanTile * kScanTile);
}
std::int64_t chunks_of(std::int64_t length) {
  return std::max<std::int64_t>(1, (length + chunk_of(length) - 1) / chunk_of(length));
}

// Are lines side by side, or too short for a block of threads? Then a thread takes one each.
bool across(const ir::Shape& shape, std::size_t axis) {
  if (shape[axis] <= kShort) return true;
  std::int64_t behind = 1;
  for (std::size_t d = axis + 1; d < shape.size(); ++d) behind *= shape[d];
  return behind >= 32;
}

}  // namespace

std::int64_t scan_scratch_bytes(const ir::Op& op) {
  const auto axis = static_cast<std::size_t>(op.get<ir::ScanAttrs>().axis);
  const ir::Shape largest = op.space.max_block_shape();
  if (op.get<ir::ScanAttrs>().mode == ir::ScanMode::kExclusive) return 0;
  std::int64_t lines = 1;
  for (std::size_t d = 0; d < largest.size(); ++d) lines *= d == axis ? 1 : largest[d];
  // Not chunks_of(): a shorter line may be cut into more of them than a longer one.
  const std::int64_t chunks = std::max<std::int64_t>(
      1, std::min(kMostScanChunks, (largest[axis] + kLeastScanChunk - 1) / kLeastScanChunk));
  return lines * chunks * static_cast<std::int64_t>(ir::size_of(op.outputs.at(0).dtype));
}

Status launch_scan(const Environment& env, const KernelCall& call, CUstream stream) {
  const auto& attrs = call.op->get<ir::ScanAttrs>();
  const auto axis = static_cast<std::size_t>(attrs.axis);
  TW_TRY(null_operand(call, 0));
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  if (ir::volume(in.shape) == 0) return {};
  const bool carried = call.inputs.size() > 1 && call.inputs[1].data != nullptr;
  ir::Shape lines = in.shape;
  lines[axis] = 1;
  Strided places[3] = {strided(in, in.shape), contiguous(out.data, out.shape),
                       carried ? strided(call.inputs[1], lines) : strided(in, lines)};
  ScanParams params;
  params.length = in.shape[axis];
  params.in_stride = places[0].strides[axis];
  params.out_stride = places[1].strides[axis];
  params.lines = merge(lines, places, params.place);
  params.mode = static_cast<std::int32_t>(attrs.mode);
  params.carried = carried;
  TW_ASSIGN(const Program program, env.programs.scan(attrs.kind, out.dtype));
  TW_TRY(env.context.make_current());
  const std::int64_t line_blocks = (params.lines.count + kThreads - 1) / kThreads;
  const bool total = attrs.mode == ir::ScanMode::kTotal;
  if (attrs.mode == ir::ScanMode::kExclusive || across(in.shape, axis))
    return launch_kernel(env, program.entry[0], line_blocks, 1, &params, stream);
  params.chunk = chunk_of(params.length);
  params.chunks = static_cast<std::int32_t>(chunks_of(params.length));
  params.scratch = address(call.scratch);
  if (params.chunks > 1 || total) {
    if (call.scratch == nullptr) return error(Errc::kInternal, "a scan without scratch memory");
    TW_TRY(launch_kernel(env, program.entry[1], params.lines.count, params.chunks, &params, stream));
    TW_TRY(launch_kernel(env, program.entry[2], line_blocks, 1, &params, stream));
  }
  if (total) return {};
  return launch_kernel(env, program.entry[3], params.lines.count, params.chunks, &params, stream);
}

}  // namespace tilewise::cuda
