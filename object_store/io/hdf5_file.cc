#include "hdf5_file.h"

#include "box_reader.h"

#include <hdf5.h>

#include <tilewise/base/file.h>

#include <fcntl.h>

#include <array>
#include <cstring>
#include <mutex>
#include <utility>

namespace tilewise::io {

namespace {

std::mutex& library() {  // the library keeps its state in the process, so its lock belongs there, too
  static std::mutex mutex;
  return mutex;
}

class Id {  // an HDF5 object
 public:
  using Close = herr_t (*)(hid_t);
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  Close close_;
};

// One call at a time; the library prints nothing meanwhile, and afterwards what its other users want.
class Turn {
 public:
  Turn() : lock_(library()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &to_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Turn() { H5Eset_auto2(H5E_DEFAULT, print_, to_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* to_ = nullptr;
};

// What the library says went wrong, innermost: memory that it was refused (zlib's, which it asks for nothing else when it begins,
// included), a file or a read that the system refused; else `otherwise`.
Error library_error(const std::string& what, Errc otherwise) {
  struct Said {
    bool any = false;
    hid_t major = -1, minor = -1;
    std::string text;
  } said;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* e, void* to) -> herr_t {
        auto& out = *static_cast<Said*>(to);
        if (std::exchange(out.any, true)) return 0;
        out.major = e->maj_num, out.minor = e->min_num;
        if (e->desc != nullptr) out.text = e->desc;
        return 0;
      },
      &said);
  if (said.any && (said.minor == H5E_NOSPACE || said.minor == H5E_CANTALLOC || said.major == H5E_RESOURCE ||
                   (said.major == H5E_PLINE && said.minor == H5E_CANTINIT)))
    otherwise = Errc::kOutOfMemory;
  else if (said.text.find("unable to lock file") != std::string::npos)  // somebody has it open for writing
    otherwise = Errc::kUnavailable;
  else if (said.any && ((said.major == H5E_IO && said.minor == H5E_READERROR) ||
                        (said.major == H5E_FILE && said.minor == H5E_CANTOPENFILE)))
    otherwise = Errc::kIo;
  return error(otherwise, what + ": " + (said.text.empty() ? "the HDF5 library refuses" : said.text));
}

struct Open {
  Id file, dataset;
  Hdf5Info info;
};

hid_t memory_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kUInt8: return H5T_NATIVE_UINT8;
    case ir::DType::kInt8: return H5T_NATIVE_INT8;
    case ir::DType::kInt16: return H5T_NATIVE_INT16;
    case ir::DType::kInt32: return H5T_NATIVE_INT32;
    case ir::DType::kInt64: return H5T_NATIVE_INT64;
    case ir::DType::kUInt16: return H5T_NATIVE_UINT16;
    case ir::DType::kUInt32: return H5T_NATIVE_UINT32;
    case ir::DType::kUInt64: return H5T_NATIVE_UINT64;
    case ir::DType::kFloat32: return H5T_NATIVE_FLOAT;
    default: return H5T_NATIVE_DOUBLE;
  }
}

// By class, size and sign: both byte orders, converted by the library.
Result<ir::DType> dtype_of(hid_t type, const std::string& what) {
  const H5T_class_t kind = H5Tget_class(type);
  const std::size_t size = H5Tget_size(type);
  const auto pick = [&](std::array<std::pair<std::size_t, ir::DType>, 4> sizes) -> Result<ir::DType> {
    for (const auto& [bytes, dtype] : sizes)
      if (bytes == size) return dtype;
    return error(Errc::kUnsupported, what + ": numbers of " + std::to_string(size) + " bytes");
  };
  using enum ir::DType;
  if (kind == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_NONE)
    return pick({{{1, kUInt8}, {2, kUInt16}, {4, kUInt32}, {8, kUInt64}}});
  if (kind == H5T_INTEGER) return pick({{{1, kInt8}, {2, kInt16}, {4, kInt32}, {8, kInt64}}});
  if (kind == H5T_FLOAT) return pick({{{4, kFloat32}, {8, kFloat64}, {4, kFloat32}, {8, kFloat64}}});
  if (kind == H5T_ENUM && size == 1 && H5Tget_nmembers(type) == 2) {  // as h5py writes bools
    std::int8_t low = -1, high = -1;
    if (H5Tget_member_value(type, 0, &low) >= 0 && H5Tget_member_value(type, 1, &high) >= 0 &&
        low + high == 1 && low * high == 0)
      return kBool;
  }
  return error(Errc::kUnsupported, what + ": a dataset of neither integers nor real numbers");
}

// Of who reads: clients, who only look, need not have them.
Status check_filters(hid_t layout, const std::string& what) {
  const int count = H5Pget_nfilters(layout);
  for (int i = 0; i < count; ++i) {
    std::array<char, 64> name{};
    unsigned flags = 0;
    std::size_t values = 0;
    const H5Z_filter_t filter = H5Pget_filter2(layout, static_cast<unsigned>(i), &flags, &values, nullptr,
                                               name.size() - 1, name.data(), nullptr);
    if (filter < 0) return library_error(what, Errc::kCorruptData);
    if ((flags & H5Z_FLAG_OPTIONAL) != 0 || H5Zfilter_avail(filter) > 0)
      continue;  // chunks may be without it
    return error(Errc::kUnsupported, what + ": it went through filter " + std::to_string(filter) +
                                         (name[0] == 0 ? "" : " ('" + std::string(name.data()) + "')") +
                                         ", which the HDF5 library here does not have");
  }
  return {};
}

Result<Open> open_dataset(const std::string& path, const std::string& name, bool reads) {
  const std::string what = path + ", dataset '" + name + "'";
  TW_ASSIGN(const File there, File::open(path, O_RDONLY));  // says what the system says
  TW_TRY(there.size());
  if (name.empty() || name.find('\0') != std::string::npos)
    return error(Errc::kInvalidArgument, path + ": a dataset needs a name");
  Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  if (file < 0) return library_error(path + ": cannot be opened as HDF5", Errc::kCorruptData);
  Id dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (dataset < 0) return library_error(what, Errc::kNotFound);
  const Id type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose),
      layout(H5Dget_create_plist(dataset), H5Pclose);
  if (type < 0 || space < 0 || layout < 0) return library_error(what, Errc::kCorruptData);
  if (reads) TW_TRY(check_filters(layout, what));
  Hdf5Info info;
  TW_ASSIGN(info.dtype, dtype_of(type, what));
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 0 || H5Sget_simple_extent_type(space) == H5S_NULL)
    return error(Errc::kUnsupported, what + ": has no shape");
  if (rank > static_cast<int>(limits::kMaxRank))
    return error(Errc::kLimitExceeded, what + ": " + std::to_string(rank) + " dimensions, at most " +
                                           std::to_string(limits::kMaxRank) + " are possible");
  std::array<hsize_t, limits::kMaxRank> extents{}, chunk{};
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  const bool chunked =
      rank > 0 && H5Pget_layout(layout) == H5D_CHUNKED && H5Pget_chunk(layout, rank, chunk.data()) == rank;
  for (int d = 0; d < rank; ++d) {
    info.shape.push_back(static_cast<std::int64_t>(extents[static_cast<std::size_t>(d)]));
    if (chunked) info.chunk.push_back(static_cast<std::int64_t>(chunk[static_cast<std::size_t>(d)]));
  }
  if (!ir::checked_volume(std::span(info.shape.data(), info.shape.size())))
    return error(Errc::kOutOfRange, what + ": shape " + ir::to_string(info.shape) + " cannot be");
  return Open{std::move(file), std::move(dataset), std::move(info)};
}

}  // namespace

Result<Hdf5Info> read_hdf5_info(const std::string& path, const std::string& dataset) {
  const Turn turn;
  TW_ASSIGN(Open open, open_dataset(path, dataset, false));
  return open.info;
}

Status read_hdf5_block(const std::string& path, const std::string& dataset, ir::DType dtype,
                       const ir::Shape& shape, const ir::Box& box, void* out) {
  const Turn turn;
  TW_ASSIGN(const Open open, open_dataset(path, dataset, true));
  const std::string what = path + ", dataset '" + dataset + "'";
  if (open.info.dtype != dtype || open.info.shape != shape)
    return error(Errc::kInvalidArgument, what + ": is of shape " + ir::to_string(open.info.shape) +
                                             " and dtype " + std::string(ir::name_of(open.info.dtype)) +
                                             ", not " + ir::to_string(shape) + " and " +
                                             std::string(ir::name_of(dtype)));
  std::array<hsize_t, limits::kMaxRank> start{}, count{};
  bool inside = box.lo.size() == shape.size() && box.hi.size() == shape.size();
  for (std::size_t d = 0; inside && d < shape.size(); ++d) {
    inside = box.lo[d] >= 0 && box.lo[d] <= box.hi[d] && box.hi[d] <= shape[d];
    start[d] = static_cast<hsize_t>(box.lo[d]);
    count[d] = static_cast<hsize_t>(box.hi[d] - box.lo[d]);
  }
  if (!inside)
    return error(Errc::kOutOfRange,
                 what + ": box " + ir::to_string(box) + " does not lie in shape " + ir::to_string(shape));
  if (box.volume() == 0) return {};
  const int rank = static_cast<int>(shape.size());
  const Id from(H5Dget_space(open.dataset), H5Sclose);
  const Id to(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, count.data(), nullptr), H5Sclose);
  const Id own(H5Dget_type(open.dataset), H5Tclose);
  if (from < 0 || to < 0 || own < 0 ||
      (rank > 0 &&
       H5Sselect_hyperslab(from, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) < 0) ||
      H5Dread(open.dataset, dtype == ir::DType::kBool ? hid_t(own) : memory_type(dtype), to, from,
              H5P_DEFAULT, out) < 0) {
    return library_error(what, Errc::kCorruptData);
  }
  if (dtype == ir::DType::kBool) normalise_bools(out, box.volume());
  return {};
}

}  // namespace tilewise::io
