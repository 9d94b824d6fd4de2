// tilewise.read_stored: a block of an array in a file of any format but .npy, by what io::inspect() told the client.
// tilewise.create_zarr, write_zarr, commit_zarr, discard_zarr: as kWriteNpy and its three kernels (commit.cc), for Zarr arrays.
#include <tilewise/io/stored.h>
#include <tilewise/io/zarr.h>

#include <optional>
#include <sstream>

#include "file/file.h"

namespace tilewise::kernels::file {
namespace {

std::string_view params_of(const tilewise_call_v1* call) {
  return {static_cast<const char*>(call->params), call->params_bytes};
}

ir::Shape extents(const std::int64_t* from, std::int32_t rank) { return ir::Shape(from, from + rank); }

Status read(const tilewise_call_v1* call) {
  const tilewise_view_v1& out = call->outputs[0];
  const ir::Box box{extents(call->box_lo, call->rank), extents(call->box_hi, call->rank)};
  return io::read_stored(params_of(call), static_cast<ir::DType>(out.dtype), extents(call->space, call->rank),
                         box, out.data);
}

// Parameters of writing, as text: token, version, dtype, codec, level, rank, extents of array, chunk and shard (0: none),
// a newline, the path.
struct Writing {
  std::string token, path;
  io::ZarrInfo info;
};

std::optional<io::Compression> compression_named(const std::string& name) {
  if (name == "none") return io::Compression::kNone;
  if (name == "gzip") return io::Compression::kGzip;
  if (name == "zstd") return io::Compression::kZstd;
  if (name == "blosc") return io::Compression::kBlosc;
  return {};
}

Result<Writing> parse(std::string_view text) {
  const Error wrong = error(Errc::kInvalidArgument, "writing a Zarr array: malformed parameters");
  const std::size_t line = text.find('\n');
  if (line == text.npos) return wrong;
  std::istringstream in{std::string(text.substr(0, line))};
  in.exceptions(std::ios::badbit);  // what memory was refused for is not malformed
  Writing w;
  w.path = text.substr(line + 1);
  std::string codec;
  int dtype = -1, rank = -1;
  in >> w.token >> w.info.version >> dtype >> codec >> w.info.compressor.level >> rank;
  const auto kind = compression_named(codec);
  if (!in || !kind || dtype < 0 || dtype >= ir::kDTypeCount || rank < 0 || rank > limits::kMaxRank ||
      w.info.version < 2 || w.info.version > 3) {
    return wrong;
  }
  w.info.compressor.kind = *kind;
  if (*kind == io::Compression::kNone) w.info.compressor.level = 0;  // says nothing
  w.info.dtype = static_cast<ir::DType>(dtype);
  ir::Shape chunk, shard;
  for (ir::Shape* shape : {&w.info.shape, &chunk, &shard}) {
    for (int d = 0; d < rank; ++d) {
      std::int64_t extent = -1;
      if (!(in >> extent) || extent < 0) return wrong;
      shape->push_back(extent);
    }
  }
  const bool sharded = rank > 0 && shard[0] > 0;
  w.info.chunk = sharded ? shard : chunk;
  if (sharded) w.info.inner = chunk;
  if (w.info.version == 2) {
    w.info.separator = '.';
    w.info.c_keys = false;
  }
  TW_TRY(io::check_zarr(w.info, w.path));
  return w;
}

Status create(const tilewise_call_v1* call) {
  TW_ASSIGN(const Writing w, parse(params_of(call)));
  TW_ASSIGN(const std::string temporary, io::create_zarr_temp(w.path, w.token, w.info));
  TW_ASSIGN(const io::FileId id, io::id_of(temporary));
  *static_cast<std::int64_t*>(call->outputs[0].data) = id;
  return {};
}

Status write(const tilewise_call_v1* call) {
  TW_ASSIGN(const Writing w, parse(params_of(call)));
  const tilewise_view_v1& in = call->inputs[0];
  if (static_cast<ir::DType>(in.dtype) != w.info.dtype || extents(call->space, call->rank) != w.info.shape)
    return error(Errc::kInvalidArgument, w.path + ": writing another array than was announced");
  const ir::Box box{extents(call->box_lo, call->rank), extents(call->box_hi, call->rank)};
  const TensorView view{in.data, w.info.dtype, extents(in.shape, in.rank), extents(in.strides, in.rank)};
  const auto begun = *static_cast<const io::FileId*>(call->inputs[1].data);
  const auto block = [&](const std::string& temporary) {
    std::unique_ptr<std::byte[]> packed;
    return io::write_zarr_block(temporary, w.info, box, in_c_order(view, packed));
  };
  return write_into(w.path, w.token, begun, block, static_cast<std::int64_t*>(call->outputs[0].data));
}

Status commit(const tilewise_call_v1* call) {
  TW_ASSIGN(const Writing w, parse(params_of(call)));
  TW_TRY(io::commit_zarr(w.path, w.token, w.info, files_reported(call)));
  *static_cast<std::int64_t*>(call->outputs[0].data) =
      ir::volume(w.info.shape) * static_cast<std::int64_t>(ir::size_of(w.info.dtype));
  return {};
}

Status discard(const tilewise_call_v1* call) {
  TW_ASSIGN(const Writing w, parse(params_of(call)));
  TW_TRY(io::discard_zarr(w.path, w.token));
  *static_cast<std::int64_t*>(call->outputs[0].data) = 0;
  return {};
}

}  // namespace

int read_stored(const tilewise_call_v1* call) { return answer(call, read(call)); }
int create_zarr(const tilewise_call_v1* call) { return answer(call, create(call)); }
int write_zarr(const tilewise_call_v1* call) { return answer(call, write(call)); }
int commit_zarr(const tilewise_call_v1* call) { return answer(call, commit(call)); }
int discard_zarr(const tilewise_call_v1* call) { return answer(call, discard(call)); }

}  // namespace tilewise::kernels::file
