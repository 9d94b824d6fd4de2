#include <tilewise/base/file.h>
#include <tilewise/io/npy.h>
#include <tilewise/io/stored.h>
#include <tilewise/io/zarr.h>

#include "hdf5_file.h"

#include <fcntl.h>

#include <charconv>

namespace tilewise::io {

namespace {

// "zarr <bytes of the path> <stamp>\n<path><metadata>", "hdf5 <bytes of the path> <stamp>\n<path><dataset>": a path may hold any bytes.
std::string params_of(const std::string& format, const std::string& path, const FileStamp& stamp,
                      const std::string& rest) {
  return format + ' ' + std::to_string(path.size()) + ' ' + std::to_string(stamp.bytes) + ' ' +
         std::to_string(stamp.changed_ns) + '\n' + path + rest;
}

struct Params {
  std::string format, path, rest;
  FileStamp stamp;
};
Result<Params> parse(std::string_view text) {
  const Error wrong = error(Errc::kInvalidArgument, "reading a file: malformed parameters");
  const std::size_t space = text.find(' '), line = text.find('\n');
  if (space == text.npos || line == text.npos || line < space) return wrong;
  std::int64_t numbers[3];  // of the path's bytes, of the stamp
  const char* at = text.data() + space;
  for (std::int64_t& number : numbers) {
    if (at == text.data() + line || *at != ' ') return wrong;
    const auto [end, ec] = std::from_chars(at + 1, text.data() + line, number);
    if (ec != std::errc()) return wrong;
    at = end;
  }
  if (at != text.data() + line || numbers[0] < 0 ||
      static_cast<std::size_t>(numbers[0]) > text.size() - line - 1)
    return wrong;
  const auto size = static_cast<std::size_t>(numbers[0]);
  return Params{std::string(text.substr(0, space)),
                std::string(text.substr(line + 1, size)),
                std::string(text.substr(line + 1 + size)),
                {numbers[1], numbers[2]}};
}

Status same(const std::string& path, ir::DType dtype, const ir::Shape& shape, ir::DType dtype_there,
            const ir::Shape& shape_there) {
  if (dtype == dtype_there && shape == shape_there) return {};
  return error(Errc::kInvalidArgument, path + ": is of shape " + ir::to_string(shape_there) + " and dtype " +
                                           std::string(ir::name_of(dtype_there)) + ", not " +
                                           ir::to_string(shape) + " and " + std::string(ir::name_of(dtype)));
}

// What `read` does with the version of a file that is meant: another one, before or after, is what an error is about.
template <class Read> Status of_version(const std::string& path, const FileStamp& stamp, Read&& read) {
  const auto check = [&]() -> Status {
    TW_ASSIGN(const File file, File::open(path, O_RDONLY));
    TW_ASSIGN(const FileStamp now, file.stamp());
    return check_stamp(path, now, stamp);
  };
  TW_TRY(check());
  const Status done = read();
  TW_TRY(check());
  return done;
}

}  // namespace

Result<ir::FileInfo> inspect(ir::FileFormat format, const std::string& path, const std::string& dataset) {
  ir::FileInfo out;
  switch (format) {
    case ir::FileFormat::kNpy: {
      TW_ASSIGN(out.stamp, stamp_of(path));
      TW_ASSIGN(const NpyInfo info, read_npy_header(path));
      out.dtype = info.dtype;
      out.shape = info.shape;
      out.data_offset = info.data_offset;
      out.fortran_order = info.fortran_order;
      return out;
    }
    case ir::FileFormat::kZarr: {
      // Which file says it is known when it has been read; another may have taken its place by the time its stamp is known.
      TW_ASSIGN(ZarrInfo info, read_zarr_info(path));
      FileStamp stamp;
      for (ZarrInfo before; before != info;) {
        before = info;
        TW_ASSIGN(stamp, stamp_of(zarr_metadata_file(path, info)));
        TW_ASSIGN(info, read_zarr_info(path));
      }
      out.dtype = info.dtype;
      out.shape = info.shape;
      out.chunk = info.chunk;
      out.params = params_of("zarr", path, stamp, zarr_metadata(info));
      return out;
    }
    case ir::FileFormat::kHdf5: {
      TW_ASSIGN(const FileStamp stamp, stamp_of(path));
      TW_ASSIGN(const Hdf5Info info, read_hdf5_info(path, dataset));
      out.dtype = info.dtype;
      out.shape = info.shape;
      out.chunk = info.chunk;
      out.params = params_of("hdf5", path, stamp, dataset);
      return out;
    }
    case ir::FileFormat::kRaw: {
      TW_ASSIGN(out.stamp, stamp_of(path));
      return out;
    }
  }
  return error(Errc::kInvalidArgument, path + ": no such file format");
}

Status read_stored(std::string_view params, ir::DType dtype, const ir::Shape& shape, const ir::Box& box,
                   void* out) {
  TW_ASSIGN(const Params p, parse(params));
  if (p.format == "zarr") {
    TW_ASSIGN(const ZarrInfo info, parse_zarr(p.rest, p.path));
    TW_TRY(same(p.path, dtype, shape, info.dtype, info.shape));
    return of_version(zarr_metadata_file(p.path, info), p.stamp,
                      [&] { return read_zarr_block(p.path, info, box, out); });
  }
  if (p.format == "hdf5") {
    return of_version(p.path, p.stamp,
                      [&] { return read_hdf5_block(p.path, p.rest, dtype, shape, box, out); });
  }
  return error(Errc::kInvalidArgument, p.path + ": no such file format");
}

}  // namespace tilewise::io
