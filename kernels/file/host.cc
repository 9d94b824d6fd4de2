// kReadNpy and kWriteNpy: a block from or to its box of a file. Host memory only; the reference is the same code.
#include <tilewise/io/npy.h>

#include <memory>

#include "common/strided.h"
#include "file/file.h"
#include "map/evaluator_memory.h"

namespace tilewise::kernels::file {
namespace {

Status read(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::NpyAttrs>();
  const TensorView& out = call.outputs[0];
  io::NpyInfo info;
  info.dtype = out.dtype;
  info.shape = call.space_shape;
  info.fortran_order = attrs.fortran_order;
  info.data_offset = attrs.data_offset;
  info.data_bytes = ir::volume(info.shape) * static_cast<std::int64_t>(ir::size_of(out.dtype));
  return io::read_block(attrs.path, info, call.box, out.data, attrs.stamp);
}

// All blocks share the temporary file that the save has begun; whoever sees all of them done puts it in place.
Status write(const KernelCall& call) {
  const auto& attrs = call.op->get<ir::NpyAttrs>();
  const TensorView& in = call.inputs[0];
  TW_ASSIGN(const io::NpyInfo info, io::npy_info(in.dtype, call.space_shape));
  const auto begun = *static_cast<const io::FileId*>(call.inputs[1].data);
  const auto block = [&](const std::string& temporary) {
    std::unique_ptr<std::byte[]> packed;
    return io::write_block(temporary, info, call.box, in_c_order(in, packed));
  };
  return write_into(attrs.path, std::to_string(attrs.token), begun, block,
                    static_cast<std::int64_t*>(call.outputs[0].data));
}

}  // namespace

const void* in_c_order(const TensorView& view, std::unique_ptr<std::byte[]>& packed) {
  const auto size = static_cast<std::int64_t>(ir::size_of(view.dtype));
  const std::int64_t elements = ir::volume(view.shape);
  const Collapsed where = collapse(view.shape, view.strides);
  if (where.is_flat() && where.stride() == 1) return view.data;
  packed = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(elements * size));
  std::byte* to = packed.get();
  for_runs(where, 0, elements, [&](std::int64_t offset, std::int64_t count) {
    map::gather(to, static_cast<const std::byte*>(view.data) + offset * size, size, where.stride(), count);
    to += count * size;
  });
  return packed.get();
}

Status supports(const ir::Op&, const PluginTable*) { return {}; }

Status host(const KernelCall& call, const PluginTable*) {
  return call.op->kind == ir::OpKind::kReadNpy ? read(call) : write(call);
}

Status reference(const KernelCall& call, const PluginTable*) { return host(call, nullptr); }

}  // namespace tilewise::kernels::file
