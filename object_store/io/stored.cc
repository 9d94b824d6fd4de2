#include <tilewise/io/npy.h>
#include <tilewise/io/stored.h>
#include <tilewise/io/zarr.h>

#include "hdf5_file.h"

#include <charconv>

namespace tilewise::io {

namespace {

// "zarr <bytes of the path>\n<path><metadata>", "hdf5 <bytes of the path>\n<path><dataset>": a path may hold any bytes.
std::string params_of(const std::string& format, const std::string& path, const std::string& rest) {
  return format + ' ' + std::to_string(path.size()) + '\n' + path + rest;
}

struct Params {
  std::string format, path, rest;
};
Result<Params> parse(std::string_view text) {
  const Error wrong = error(Errc::kInvalidArgument, "reading a file: malformed parameters");
  const std::size_t space = text.find(' '), line = text.find('\n');
  if (space == text.npos || line == text.npos || line < space) return wrong;
  std::size_t size = 0;
  const auto [end, ec] = std::from_chars(text.data() + space + 1, text.data() + line, size);
  if (ec != std::errc() || end != text.data() + line || size > text.size() - line - 1) return wrong;
  return Params{std::string(text.substr(0, space)), std::string(text.substr(line + 1, size)),
                std::string(text.substr(line + 1 + size))};
}

Status same(const std::string& path, ir::DType dtype, const ir::Shape& shape, ir::DType dtype_there,
            const ir::Shape& shape_there) {
  if (dtype == dtype_there && shape == shape_there) return {};
  return error(Errc::kInvalidArgument, path + ": is of shape " + ir::to_string(shape_there) + " and dtype " +
                                           std::string(ir::name_of(dtype_there)) + ", not " +
                                           ir::to_string(shape) + " and " + std::string(ir::name_of(dtype)));
}

}  // namespace

Result<ir::FileInfo> inspect(ir::FileFormat format, const std::string& path, const std::string& dataset) {
  ir::FileInfo out;
  switch (format) {
    case ir::FileFormat::kNpy: {
      TW_ASSIGN(const NpyInfo info, read_npy_header(path));
      out.dtype = info.dtype;
      out.shape = info.shape;
      out.data_offset = info.data_offset;
      out.fortran_order = info.fortran_order;
      return out;
    }
    case ir::FileFormat::kZarr: {
      TW_ASSIGN(const ZarrInfo info, read_zarr_info(path));
      out.dtype = info.dtype;
      out.shape = info.shape;
      out.chunk = info.chunk;
      out.params = params_of("zarr", path, zarr_metadata(info));
      return out;
    }
    case ir::FileFormat::kHdf5: {
      TW_ASSIGN(const Hdf5Info info, read_hdf5_info(path, dataset));
      out.dtype = info.dtype;
      out.shape = info.shape;
      out.chunk = info.chunk;
      out.params = params_of("hdf5", path, dataset);
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
    return read_zarr_block(p.path, info, box, out);
  }
  if (p.format == "hdf5") return read_hdf5_block(p.path, p.rest, dtype, shape, box, out);
  return error(Errc::kInvalidArgument, p.path + ": no such file format");
}

}  // namespace tilewise::io
