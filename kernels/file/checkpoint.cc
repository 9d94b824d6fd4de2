// The kernels of checkpoints (tilewise/ir/checkpoint.h): what the scheduler has done so that long pasts need not be kept.
#include <tilewise/io/checkpoint.h>

#include <cstring>

#include "file/file.h"

namespace tilewise::kernels::file {
namespace {

namespace names = ir::checkpoint;

std::string_view params_of(const tilewise_call_v1* call) {
  return {static_cast<const char*>(call->params), call->params_bytes};
}

ir::Shape extents(const std::int64_t* from, std::int32_t rank) { return ir::Shape(from, from + rank); }

ir::Box block_of(const tilewise_call_v1* call) {
  return {extents(call->box_lo, call->rank), extents(call->box_hi, call->rank)};
}

// What is to be read is that it was done.
Status done(const tilewise_call_v1* call, std::int64_t number) {
  *static_cast<std::int64_t*>(call->outputs[0].data) = number;
  return {};
}

Status tend(const tilewise_call_v1* call) {
  TW_ASSIGN(const names::Folder folder, names::parse_folder(params_of(call)));
  TW_TRY(io::checkpoint::tend(folder));
  return done(call, 0);
}

Status create(const tilewise_call_v1* call) {
  TW_ASSIGN(const names::File file, names::parse_file(params_of(call)));
  TW_TRY(io::checkpoint::create(file));
  return done(call, file.bytes);
}

Status write(const tilewise_call_v1* call) {
  TW_ASSIGN(const names::File file, names::parse_file(params_of(call)));
  const tilewise_view_v1& in = call->inputs[0];
  const TensorView view{in.data, static_cast<ir::DType>(in.dtype), extents(in.shape, in.rank),
                        extents(in.strides, in.rank)};
  std::unique_ptr<std::byte[]> packed;
  const ir::Box block = block_of(call);
  TW_TRY(io::checkpoint::write(file, block, in_c_order(view, packed)));
  return done(call, block.volume() * static_cast<std::int64_t>(ir::size_of(view.dtype)));
}

Status commit(const tilewise_call_v1* call) {
  TW_ASSIGN(const names::File file, names::parse_file(params_of(call)));
  TW_TRY(io::checkpoint::commit(file));
  return done(call, file.bytes);
}

ir::Box region_of(const tilewise_view_v1& view) {
  ir::Box box{extents(view.lo, view.rank), extents(view.lo, view.rank)};
  for (std::int32_t d = 0; d < view.rank; ++d) box.hi[static_cast<std::size_t>(d)] += view.shape[d];
  return box;
}

Status restore(const tilewise_call_v1* call) {
  TW_ASSIGN(const names::Files files, names::parse_files(params_of(call)));
  if (files.size() != static_cast<std::size_t>(call->output_count))
    return error(Errc::kInvalidArgument, "checkpoints: " + std::to_string(files.size()) + " files for " +
                                             std::to_string(call->output_count) + " results");
  for (std::size_t i = 0; i < files.size(); ++i) {
    const tilewise_view_v1& out = call->outputs[i];
    if (!files[i]) {
      std::memset(
          out.data, 0,
          static_cast<std::size_t>(region_of(out).volume()) * ir::size_of(static_cast<ir::DType>(out.dtype)));
      continue;
    }
    const Status read = io::checkpoint::read(*files[i], region_of(out), out.data);
    if (!read)
      return error(
          Errc::kWorkerLost,
          "blocks of " + files[i]->array +
              " were lost with a worker, and cannot be read from their checkpoint: " + read.error().message);
  }
  return {};
}

}  // namespace

int tend_checkpoints(const tilewise_call_v1* call) { return answer(call, tend(call)); }
int create_checkpoint(const tilewise_call_v1* call) { return answer(call, create(call)); }
int write_checkpoint(const tilewise_call_v1* call) { return answer(call, write(call)); }
int commit_checkpoint(const tilewise_call_v1* call) { return answer(call, commit(call)); }
int restore_checkpoint(const tilewise_call_v1* call) { return answer(call, restore(call)); }

}  // namespace tilewise::kernels::file
