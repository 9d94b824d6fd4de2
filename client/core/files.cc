// Arrays from files and to files: ops that workers run on their own blocks.
#include <tilewise/array.h>
#include <tilewise/ir/saving.h>
#include <tilewise/kernel.h>
#include <tilewise/session.h>

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>

#include "access.h"
#include "session_state.h"

namespace tilewise {

using client::Access;

namespace {

std::string text_of(const Shape& shape) {
  std::string out;
  for (const std::int64_t extent : shape) out += ' ' + std::to_string(extent);
  return out;
}

// The file or folder is begun by one small task, under a temporary name.
Array begin(const Array& saved, std::string_view create, const std::string& params) {
  const ir::Grid one({ir::DimGrid::whole(1)});
  ir::CallAttrs attrs{.kernel = std::string(create), .version = "1", .params = params};
  return Access::record(saved, infer_call({}, std::move(attrs), one, {{0, DType::kInt64, one}}));
}

// All blocks are written by `written`; the array gets its name when every one has reported: one small task reads all the
// reports. What a failed save leaves is removed by the scheduler.
Future save(const Array& begun, const Array& written, std::string_view commit, std::string params,
            const ComputeOptions& options) {
  ir::OperandMap all;
  for (int d = 0; d < written.rank(); ++d) all.push_back({.kind = ir::DimMap::Kind::kWhole});
  const Kernel kernel{.name = std::string(commit), .version = "1", .params = std::move(params)};
  const std::vector<Array> committed =
      map_blocks(kernel, std::vector{written, begun}, {all, {{.kind = ir::DimMap::Kind::kWhole}}},
                 {{DType::kInt64, ir::Grid({ir::DimGrid::whole(1)})}});
  return Access::state(written).submit({.run = {Access::key(committed[0])}}, options);
}

// What the file's header says, or ArrayError. A file system that has stopped answering holds a thread, which may outlive the
// session, and not the caller: kTimeout after as long as the session waits for other processes.
ir::FileInfo look_at(client::SessionState& state, ir::FileFormat format, const std::string& path,
                     const std::string& dataset, const std::string& what) {
  const auto& inspect = state.options().inspect;
  if (!inspect)
    throw ArrayError(
        Errc::kUnsupported,
        what + ": this session has nothing that looks at files (SessionOptions::inspect = io::inspect)");
  std::packaged_task<Result<ir::FileInfo>()> task(
      [inspect, format, path, dataset] { return inspect(format, path, dataset); });
  std::future<Result<ir::FileInfo>> answer = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error& e) {
    throw ArrayError(Errc::kLimitExceeded, what + ": no thread that looks at it: " + e.what());
  }
  const Duration patience = state.patience(Duration(0));
  if (answer.wait_for(patience) != std::future_status::ready)
    throw ArrayError(Errc::kTimeout,
                     what + ": no answer from the file system in " +
                         std::to_string(std::chrono::ceil<std::chrono::milliseconds>(patience).count()) +
                         " ms");
  Result<ir::FileInfo> info = answer.get();
  if (!info) throw ArrayError(info.error().code, what + ": " + info.error().message);
  return std::move(*info);
}

// The default cut, each extent made a multiple of the chunk's.
std::optional<Grid> cut_along_chunks(const ir::FileInfo& info, const Shape& block, const std::string& what) {
  if (!block.empty() && block.size() != info.shape.size())
    throw ArrayError(Errc::kShapeMismatch, what + ": blocks of " + ir::to_string(block) +
                                               " for an array of shape " + ir::to_string(info.shape));
  Shape cut = block;
  if (cut.empty()) {
    const auto usual = Grid::by_default(info.shape, ir::size_of(info.dtype));
    if (!usual) throw ArrayError(usual.error().code, what + ": " + usual.error().message);
    cut = usual->max_block_shape();
    for (std::int64_t& extent : cut) extent = std::max<std::int64_t>(extent, 1);  // of nothing: 0
    for (std::size_t d = 0; d < info.chunk.size(); ++d) {
      const std::int64_t chunk = std::min(info.chunk[d], std::max<std::int64_t>(info.shape[d], 1));
      cut[d] = std::max<std::int64_t>((cut[d] + chunk - 1) / chunk, 1) * chunk;
    }
  }
  auto grid = Grid::uniform(info.shape, cut);
  if (!grid) throw ArrayError(grid.error().code, what + ": " + grid.error().message);
  return std::move(*grid);
}

}  // namespace

Array Session::load_npy(const std::string& path, const BlockOptions& options) const {
  const std::string what = "load_npy('" + path + "')";
  const ir::FileInfo info = look_at(*state_, ir::FileFormat::kNpy, path, "", what);
  const std::optional<Grid> grid =
      options.block.empty() ? std::nullopt : cut_along_chunks(info, options.block, what);
  return Access::record(
      *state_, nullptr,
      infer_read_npy(path, info.dtype, info.shape, info.data_offset, info.fortran_order, grid, info.stamp));
}

Array Session::read_raw(const std::string& path, DType dtype, const Shape& shape,
                        const RawOptions& options) const {
  ir::FileInfo info;
  info.dtype = dtype;
  info.shape = shape;
  const std::string what = "read_raw('" + path + "')";
  if (options.offset < 0)
    throw ArrayError(Errc::kOutOfRange, what + ": offset " + std::to_string(options.offset));
  try {
    if (!options.any_version && state_->options().inspect)
      info.stamp = look_at(*state_, ir::FileFormat::kRaw, path, "", what).stamp;
  } catch (const ArrayError& e) {
    if (e.code() == Errc::kTimeout)
      throw;  // who does not see it leaves it to workers, whichever version they find
  }
  return Access::record(*state_, nullptr,
                        infer_read_npy(path, dtype, shape, options.offset, false,
                                       cut_along_chunks(info, options.block, what), info.stamp));
}

Array Session::read_zarr(const std::string& path, const BlockOptions& options) const {
  return read_stored(ir::FileFormat::kZarr, "read_zarr", path, "", options);
}

Array Session::read_hdf5(const std::string& path, const std::string& dataset,
                         const BlockOptions& options) const {
  return read_stored(ir::FileFormat::kHdf5, "read_hdf5", path, dataset, options);
}

Array Session::read_stored(ir::FileFormat format, const char* name, const std::string& path,
                           const std::string& dataset, const BlockOptions& options) const {
  const std::string what = std::string(name) + "('" + path + "')";
  const ir::FileInfo info = look_at(*state_, format, path, dataset, what);
  const Grid grid = *cut_along_chunks(info, options.block, what);
  ir::CallAttrs attrs{.kernel = "tilewise.read_stored", .version = "1", .params = info.params};
  return Access::record(*state_, nullptr, infer_call({}, std::move(attrs), grid, {{0, info.dtype, grid}}));
}

namespace {

// Workers write beside it first, under a name made of its own (io/temp_path.h).
void check_target(const std::string& path, const std::string& what) {
  if (path.empty() || path.size() > limits::kMaxPathBytes || path.find('\0') != std::string::npos)
    throw ArrayError(Errc::kInvalidArgument, what + ": a path of " + std::to_string(path.size()) + " bytes");
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (name.empty() || name == "." || name == "..")
    throw ArrayError(Errc::kInvalidArgument, what + ": names no file");
}

}  // namespace

Future Array::save_npy(const std::string& path, const ComputeOptions& options) const {
  if (ir::npy_code(dtype()).empty()) {
    throw ArrayError(Errc::kUnsupported,
                     "save_npy('" + path + "') of " + std::string(name_of(dtype())) +
                         ": .npy files have no such dtype; astype(float32) keeps every value");
  }
  check_target(path, "save_npy('" + path + "')");
  const std::uint64_t token = Access::state(*this).next_token();
  // Where data begins is said by the header, which workers write.
  std::string params = std::to_string(token) + ' ' + std::to_string(static_cast<int>(dtype())) + ' ' +
                       std::to_string(rank()) + text_of(shape()) + '\n' + path;
  const Array begun = begin(*this, ir::saving::kCreateNpy, params);
  const Array written =
      Access::record(*this, infer_write_npy(Access::source(*this), Access::source(begun), path, token));
  return save(begun, written, ir::saving::kCommitNpy, std::move(params), options);
}

Future Array::write_zarr(const std::string& given, const ZarrOptions& zarr,
                         const ComputeOptions& options) const {
  const std::string what = "write_zarr('" + given + "')";
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);  // it is a folder
  const auto wrong = [&](Errc code, const std::string& why) { return ArrayError(code, what + ": " + why); };
  static const std::string_view kCodecs[] = {"none", "gzip", "zstd", "blosc"};
  if (ir::npy_code(dtype()).empty())
    throw wrong(Errc::kUnsupported,
                "Zarr has no dtype " + std::string(name_of(dtype())) + "; astype(float32) keeps every value");
  check_target(path, what);
  if (zarr.version != 2 && zarr.version != 3)
    throw wrong(Errc::kInvalidArgument, "version " + std::to_string(zarr.version) + ": there are 2 and 3");
  if (std::find(std::begin(kCodecs), std::end(kCodecs), zarr.codec) == std::end(kCodecs))
    throw wrong(Errc::kInvalidArgument, "codec '" + zarr.codec + "': there are none, gzip, zstd and blosc");
  const bool by_zstd = zarr.codec == "zstd";
  if (zarr.codec != "none" && (zarr.level > (by_zstd ? 22 : 9) || (!by_zstd && zarr.level < 0)))
    throw wrong(Errc::kInvalidArgument, "level " + std::to_string(zarr.level) + " of " + zarr.codec +
                                            (by_zstd ? ": up to 22 are possible" : ": 0 to 9 are possible"));
  if (!zarr.shard.empty() && zarr.version == 2)
    throw wrong(Errc::kInvalidArgument, "version 2 has no shards");
  const Grid grid = this->grid();
  Shape chunk = zarr.chunk;
  if (chunk.empty()) {
    chunk = grid.max_block_shape();
    for (std::int64_t& extent : chunk) extent = std::max<std::int64_t>(extent, 1);
  }
  const Shape& file = zarr.shard.empty() ? chunk : zarr.shard;
  for (const Shape& extents : {chunk, file}) {
    if (extents.size() != shape().size() ||
        std::any_of(extents.begin(), extents.end(), [](auto e) { return e < 1; }))
      throw wrong(Errc::kInvalidArgument,
                  "chunks of " + ir::to_string(extents) + " for an array of shape " + ir::to_string(shape()));
  }
  for (std::size_t d = 0; d < chunk.size(); ++d) {
    if (file[d] % chunk[d] != 0)
      throw wrong(Errc::kInvalidArgument,
                  "shards of " + ir::to_string(file) + " are not whole chunks of " + ir::to_string(chunk));
    const ir::DimGrid& dim = grid.dim(static_cast<int>(d));
    bool aligned = !dim.is_uniform() || dim.count() <= 1 || (dim.block() % file[d] == 0 && dim.phase() == 0);
    for (const std::int64_t start : dim.starts()) aligned = aligned && start % file[d] == 0;
    if (aligned) continue;
    Shape block = grid.max_block_shape();
    for (std::size_t i = 0; i < block.size(); ++i)
      block[i] = (std::max<std::int64_t>(block[i], 1) + file[i] - 1) / file[i] * file[i];
    throw wrong(Errc::kInvalidArgument, "blocks (" + ir::to_string(grid) + ") do not start where " +
                                            (zarr.shard.empty() ? "chunks" : "shards") + " of " +
                                            ir::to_string(file) + " do: reblock(" + ir::to_string(block) +
                                            ") first");
  }
  const std::uint64_t token = Access::state(*this).next_token();
  std::string params = std::to_string(token) + ' ' + std::to_string(zarr.version) + ' ' +
                       std::to_string(static_cast<int>(dtype())) + ' ' + zarr.codec + ' ' +
                       std::to_string(zarr.level) + ' ' + std::to_string(rank()) + text_of(shape()) +
                       text_of(chunk) + text_of(zarr.shard.empty() ? Shape(chunk.size(), 0) : zarr.shard) +
                       '\n' + path;
  ir::CallAttrs attrs{.kernel = std::string(ir::saving::kWriteZarr), .version = "1", .params = params};
  ir::OperandMap map;
  std::vector<ir::DimGrid> counts;
  for (int d = 0; d < rank(); ++d) {
    map.push_back({ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d)});
    counts.push_back(*ir::DimGrid::uniform(grid.dim(d).count(), 1));
  }
  attrs.maps = {map, {{.kind = ir::DimMap::Kind::kWhole}}};
  const Array begun = begin(*this, ir::saving::kCreateZarr, params);
  const ir::Source sources[] = {Access::source(*this), Access::source(begun)};
  const Array written = Access::record(
      *this, infer_call(sources, std::move(attrs), grid, {{0, DType::kInt64, Grid(std::move(counts))}}));
  return save(begun, written, ir::saving::kCommitZarr, std::move(params), options);
}

}  // namespace tilewise
