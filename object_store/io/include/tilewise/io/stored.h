// Arrays in files that are more than an .npy file: one way in for clients and one for workers, whatever the format.
//
// A client asks inspect(); `params` of the answer goes with the op, and workers read blocks by it with read_stored().
// All functions may be called from any thread and block on the disk. Errors name the file; see npy.h and zarr.h.
#pragma once
#include <tilewise/ir/file_info.h>

#include <string>
#include <string_view>

namespace tilewise::io {

// `dataset`: path of the dataset inside an HDF5 file; other formats do not look at it.
Result<ir::FileInfo> inspect(ir::FileFormat format, const std::string& path, const std::string& dataset);

// Reads `box` into `out`, C order, box.volume() elements of `dtype`, host memory. kInvalidArgument where dtype or shape are
// not those that `params` tells of.
Status read_stored(std::string_view params, ir::DType dtype, const ir::Shape& shape, const ir::Box& box,
                   void* out);

}  // namespace tilewise::io
