#include <hdf5.h>

#include <tilewise/io/stored.h>

#include <functional>
#include <numeric>
#include <vector>

#include "hdf5_file.h"
#include "io_test_util.h"

using namespace tilewise;
using namespace tilewise::io;
using namespace tilewise::io::test;

namespace {

// A file with int32 0, 1, 2 ... of 6 x 10: contiguous, big-endian, and in compressed chunks; and what is not ours.
void write_file(const std::string& path) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(file >= 0);
  const hsize_t extents[] = {6, 10}, chunk[] = {4, 3};
  const hid_t space = H5Screate_simple(2, extents, nullptr), point = H5Screate(H5S_SCALAR);
  const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE),
              group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Pset_chunk(chunked, 2, chunk);
  H5Pset_shuffle(chunked);
  H5Pset_deflate(chunked, 4);
  std::vector<int> values(60);
  std::iota(values.begin(), values.end(), 0);
  const auto write = [&](hid_t where, const char* name, hid_t type, hid_t shape, hid_t layout) {
    const hid_t set = H5Dcreate2(where, name, type, shape, H5P_DEFAULT, layout, H5P_DEFAULT);
    REQUIRE(set >= 0);
    if (type != H5T_C_S1)
      REQUIRE(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Dclose(set);
  };
  write(file, "plain", H5T_STD_I32LE, space, H5P_DEFAULT);
  write(group, "big", H5T_STD_I32BE, space, H5P_DEFAULT);
  write(group, "packed", H5T_STD_I32LE, space, chunked);
  write(file, "point", H5T_IEEE_F64LE, point, H5P_DEFAULT);
  write(file, "words", H5T_C_S1, space, H5P_DEFAULT);
  for (const hid_t id : {space, point}) H5Sclose(id);
  H5Pclose(chunked);
  H5Gclose(group);
  H5Fclose(file);
}

}  // namespace

TEST_CASE("datasets of HDF5 files are read box by box") {
  const TempFolder folder;
  const std::string path = folder / "a.h5";
  write_file(path);
  for (const char* name : {"plain", "/g/big", "g/packed"}) {
    INFO(name);
    const auto info = inspect(ir::FileFormat::kHdf5, path, name);
    REQUIRE(info);
    CHECK(info->dtype == ir::DType::kInt32);
    CHECK(info->shape == ir::Shape{6, 10});
    CHECK(info->chunk == (std::string(name) == "g/packed" ? ir::Shape{4, 3} : ir::Shape{}));
    std::vector<std::int32_t> out(7, -1);
    REQUIRE(read_stored(info->params, info->dtype, info->shape, {{2, 5}, {5, 7}}, out.data()));
    CHECK(out == std::vector<std::int32_t>{25, 26, 35, 36, 45, 46, -1});
  }
  const auto point = read_hdf5_info(path, "point");
  REQUIRE(point);
  double value = -1;
  REQUIRE(read_hdf5_block(path, "point", point->dtype, point->shape, {}, &value));
  CHECK(value == 0);
}

TEST_CASE("what is no dataset of ours is a typed error") {
  const TempFolder folder;
  const std::string path = folder / "a.h5";
  write_file(path);
  CHECK(read_hdf5_info(folder / "none.h5", "a").error().code == Errc::kNotFound);
  CHECK(read_hdf5_info(folder.path(), "a").error().code == Errc::kInvalidArgument);
  put(folder / "junk.h5", std::string(5'000, 'x'));
  const auto junk = read_hdf5_info(folder / "junk.h5", "a");
  CHECK(junk.error().code == Errc::kCorruptData);
  CHECK(mentions(junk.error(), "junk.h5"));
  const auto missing = read_hdf5_info(path, "g/none");
  CHECK(missing.error().code == Errc::kNotFound);
  CHECK(mentions(missing.error(), "'g/none'"));
  CHECK(read_hdf5_info(path, "g").error().code == Errc::kNotFound);
  CHECK(read_hdf5_info(path, "").error().code == Errc::kInvalidArgument);
  CHECK(read_hdf5_info(path, "words").error().code == Errc::kUnsupported);
  std::vector<std::int32_t> out(60);
  CHECK(
      read_hdf5_block(path, "plain", ir::DType::kInt64, {6, 10}, {{0, 0}, {1, 1}}, out.data()).error().code ==
      Errc::kInvalidArgument);
  CHECK(
      read_hdf5_block(path, "plain", ir::DType::kInt32, {6, 10}, {{0, 0}, {7, 1}}, out.data()).error().code ==
      Errc::kOutOfRange);
  // Truncated behind its header, or with bytes turned: an error or other values, never worse.
  const std::string good = get(path);
  for (std::size_t i = 0; i < good.size(); i += 37) {
    std::string bad = good;
    bad[i] = static_cast<char>(~bad[i]);
    put(folder / "bad.h5", bad);
    if (read_hdf5_info(folder / "bad.h5", "g/packed"))
      (void)read_hdf5_block(folder / "bad.h5", "g/packed", ir::DType::kInt32, {6, 10}, {{0, 0}, {6, 10}},
                            out.data());
  }
}
