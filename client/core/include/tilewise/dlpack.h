// Arrays to and from other libraries of the same process, without a copy where possible: DLPack.
//
// The structs are those of the DLPack specification, version 1.1 (dmlc/dlpack, include/dlpack/dlpack.h), written down anew: the same
// layout in a namespace of ours, so that a program may include the original too and cast between the two.
#pragma once
#include <tilewise/session.h>

#include <cstdint>
#include <vector>

namespace tilewise {

namespace dlpack {

constexpr std::uint32_t kMajorVersion = 1,
                        kMinorVersion = 1;  // what we write; any minor version of 1 is read

enum DeviceType : std::int32_t {  // others exist, and are refused by number
  kCpu = 1,
  kCuda = 2,
  kCudaHost = 3,  // pinned host memory
  kCudaManaged = 13
};
struct Device {
  std::int32_t device_type = kCpu;
  std::int32_t device_id = 0;
};
enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kOpaque = 3,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6
};
struct DataType {
  std::uint8_t code = kFloat;
  std::uint8_t bits = 64;  // of one lane
  std::uint16_t lanes = 1;
};
struct Tensor {
  void* data = nullptr;
  Device device;
  std::int32_t ndim = 0;
  DataType dtype;
  std::int64_t* shape = nullptr;
  std::int64_t* strides = nullptr;  // in elements; null: C order
  std::uint64_t byte_offset = 0;    // of the first element, from `data`
};
struct ManagedTensor {  // from before version 1; still what most programs hand over
  Tensor dl_tensor;
  void* manager_ctx = nullptr;
  void (*deleter)(ManagedTensor*) = nullptr;  // may be null
};
struct Version {
  std::uint32_t major = kMajorVersion, minor = kMinorVersion;
};
constexpr std::uint64_t kReadOnly = 1, kIsCopied = 2, kSubbytePadded = 4;  // flags
struct ManagedTensorVersioned {
  Version version;
  void* manager_ctx = nullptr;
  void (*deleter)(ManagedTensorVersioned*) = nullptr;
  std::uint64_t flags = 0;
  Tensor dl_tensor;
};

// kUnsupported, naming it: a type that no dtype of ours is.
DType dtype_of(const DataType& type);
DataType type_of(DType dtype);

}  // namespace dlpack

struct DlpackOptions {
  Shape block = {};
  bool adopt = true;  // as in MemoryOptions
};

// An array of a tensor's values, which lie in host memory (pinned too). Takes the tensor: its deleter is called when nothing needs the
// memory any more, also where this throws, and as MemoryOptions::owner is let go: on a thread of the cluster's, perhaps. The
// values must not change until then. Strides may be any; those that are not C order are packed at the call, and the deleter
// is called before it returns. Errors: kUnsupported (device memory, a dtype that we do not have, several lanes, another major
// version), kLimitExceeded (more than 8 dimensions), kInvalidArgument (a negative extent, no data, null).
Array from_dlpack(const Session& session, dlpack::ManagedTensorVersioned* tensor,
                  const DlpackOptions& options = {});
Array from_dlpack(const Session& session, dlpack::ManagedTensor* tensor, const DlpackOptions& options = {});

// Block `i` of these, where it lies, read-only: the loan goes on until the deleter is called, by whoever takes the tensor. The older
// struct cannot say that it is read-only, so there is none. kOutOfRange for an index that is none.
dlpack::ManagedTensorVersioned* to_dlpack(const AddressableBlocks& blocks, std::size_t i);

namespace dlpack {
dlpack::ManagedTensorVersioned* versioned(std::shared_ptr<void> owner, void* data, DType dtype,
                                          const Shape& shape);
dlpack::ManagedTensor* unversioned(std::shared_ptr<void> owner, void* data, DType dtype, const Shape& shape);
template <class T> auto owned(std::vector<T>&& values, const Shape& shape) {
  if (ir::volume(shape) != static_cast<std::int64_t>(values.size()))
    throw ArrayError(Errc::kShapeMismatch,
                     std::to_string(values.size()) + " values for a tensor of shape " + ir::to_string(shape));
  if constexpr (std::is_same_v<T, bool>)  // packed as bits
    return std::make_shared<std::vector<std::uint8_t>>(values.begin(), values.end());
  else
    return std::make_shared<std::vector<T>>(std::move(values));
}
}  // namespace dlpack

// A fetched result as a tensor: to_dlpack(x.get<double>(), x.shape()). Its memory goes when the deleter is called; it may be written.
// Of bools a copy, since std::vector packs them. kShapeMismatch.
template <class T> dlpack::ManagedTensorVersioned* to_dlpack(std::vector<T>&& values, const Shape& shape) {
  auto owner = dlpack::owned(std::move(values), shape);
  return dlpack::versioned(owner, owner->data(), ir::dtype_of_v<T>, shape);
}
template <class T> dlpack::ManagedTensor* to_dlpack_unversioned(std::vector<T>&& values, const Shape& shape) {
  auto owner = dlpack::owned(std::move(values), shape);
  return dlpack::unversioned(owner, owner->data(), ir::dtype_of_v<T>, shape);
}

}  // namespace tilewise
