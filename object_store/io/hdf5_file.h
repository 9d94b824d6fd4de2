// Datasets of HDF5 files, read through the HDF5 library: contiguous, chunked and compressed ones, as far as the library has
// their filters. Errors as in npy.h; kUnsupported for dtypes and ranks that are not ours.
#pragma once
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>

#include <string>

namespace tilewise::io {

struct Hdf5Info {
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape, chunk;  // chunk: empty where the dataset is contiguous
};

// Any thread; calls take turns within a process, since the library does not promise more.
Result<Hdf5Info> read_hdf5_info(const std::string& path, const std::string& dataset);
// kInvalidArgument where the dataset is of another dtype or shape by now.
Status read_hdf5_block(const std::string& path, const std::string& dataset, ir::DType dtype,
                       const ir::Shape& shape, const ir::Box& box, void* out);

}  // namespace tilewise::io
