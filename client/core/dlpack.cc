#include <tilewise/dlpack.h>

#include <cstring>

#include "access.h"

namespace tilewise {
namespace dlpack {

DType dtype_of(const DataType& type) {
  if (type.lanes == 1) {
    const auto code = static_cast<int>(type.code);
    switch (code * 256 + type.bits) {
      case kBool * 256 + 8: return DType::kBool;
      case kInt * 256 + 8: return DType::kInt8;
      case kInt * 256 + 16: return DType::kInt16;
      case kInt * 256 + 32: return DType::kInt32;
      case kInt * 256 + 64: return DType::kInt64;
      case kUInt * 256 + 8: return DType::kUInt8;
      case kUInt * 256 + 16: return DType::kUInt16;
      case kUInt * 256 + 32: return DType::kUInt32;
      case kUInt * 256 + 64: return DType::kUInt64;
      case kFloat * 256 + 16: return DType::kFloat16;
      case kFloat * 256 + 32: return DType::kFloat32;
      case kFloat * 256 + 64: return DType::kFloat64;
      case kBfloat * 256 + 16: return DType::kBFloat16;
      case kComplex * 256 + 64: return DType::kComplex64;
      case kComplex * 256 + 128: return DType::kComplex128;
      default: break;
    }
  }
  throw ArrayError(Errc::kUnsupported, "DLPack's type code " + std::to_string(type.code) + " of " +
                                           std::to_string(type.bits) + " bits and " +
                                           std::to_string(type.lanes) + " lanes is no dtype here");
}

DataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(size_of(dtype) * 8);
  if (dtype == DType::kBool) return {kBool, bits, 1};
  if (dtype == DType::kBFloat16) return {kBfloat, bits, 1};
  if (is_complex(dtype)) return {kComplex, bits, 1};
  if (is_floating(dtype)) return {kFloat, bits, 1};
  const bool is_unsigned =
      dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
  return {is_unsigned ? kUInt : kInt, bits, 1};
}

namespace {

// What a tensor of ours keeps until its deleter is called.
template <class Managed> struct Kept {
  Managed tensor;
  std::shared_ptr<const void> owner;
  std::vector<std::int64_t> shape, strides;

  static Managed* make(std::shared_ptr<const void> owner, const void* data, DType dtype, const Shape& shape) {
    auto kept = std::make_unique<Kept>();
    kept->owner = std::move(owner);
    kept->shape.assign(shape.begin(), shape.end());
    const ir::Strides strides = ir::c_order_strides(shape);
    kept->strides.assign(strides.begin(), strides.end());
    Managed& managed = kept->tensor;
    Tensor& tensor = managed.dl_tensor;
    tensor.data = const_cast<void*>(data);
    tensor.ndim = static_cast<std::int32_t>(shape.size());
    tensor.dtype = type_of(dtype);
    tensor.shape = kept->shape.data();
    tensor.strides = kept->strides.data();
    managed.deleter = [](Managed* self) { delete static_cast<Kept*>(self->manager_ctx); };
    managed.manager_ctx = kept.get();
    return &kept.release()->tensor;
  }
};

// Calls the deleter with its last copy.
template <class Managed> std::shared_ptr<const void> take(Managed* tensor) {
  if (tensor == nullptr) throw ArrayError(Errc::kInvalidArgument, "from_dlpack of no tensor");
  return {static_cast<const void*>(tensor), [tensor](const void*) {
            if (tensor->deleter != nullptr) tensor->deleter(tensor);
          }};
}

Shape shape_of(const Tensor& tensor) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr))
    throw ArrayError(Errc::kInvalidArgument,
                     "a tensor of " + std::to_string(tensor.ndim) + " dimensions without a shape");
  if (tensor.ndim > limits::kMaxRank)
    throw ArrayError(Errc::kLimitExceeded, "a tensor of " + std::to_string(tensor.ndim) +
                                               " dimensions; the limit is " +
                                               std::to_string(limits::kMaxRank));
  Shape shape;
  for (std::int32_t d = 0; d < tensor.ndim; ++d) {
    if (tensor.shape[d] < 0)
      throw ArrayError(Errc::kInvalidArgument,
                       "a tensor with an extent of " + std::to_string(tensor.shape[d]));
    shape.push_back(tensor.shape[d]);
  }
  return shape;
}

std::vector<std::byte> packed(const MdSpan<const std::byte>& from, std::size_t element_bytes) {
  const std::int64_t count = from.size();
  std::vector<std::byte> out(static_cast<std::size_t>(count) * element_bytes);
  std::vector<std::int64_t> at(static_cast<std::size_t>(from.rank()), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(out.data() + static_cast<std::size_t>(i) * element_bytes, &from[at], element_bytes);
    for (int d = from.rank(); d-- > 0;) {
      const auto n = static_cast<std::size_t>(d);
      if (++at[n] < from.extent(d)) break;
      at[n] = 0;
    }
  }
  return out;
}

Array import(const Session& session, const Tensor& tensor, std::shared_ptr<const void> owner,
             const DlpackOptions& options) {
  if (tensor.device.device_type != kCpu && tensor.device.device_type != kCudaHost)
    throw ArrayError(Errc::kUnsupported, "a tensor on DLPack's device type " +
                                             std::to_string(tensor.device.device_type) +
                                             ": only host memory (1, 3) can be read; copy it there first");
  const DType dtype = dtype_of(tensor.dtype);
  const Shape shape = shape_of(tensor);
  const std::int64_t elements = client::value_or_throw(ir::checked_volume(shape));
  const std::size_t size = size_of(dtype);
  if (elements > 0 && tensor.data == nullptr)
    throw ArrayError(Errc::kInvalidArgument, "a tensor of shape " + ir::to_string(shape) + " without data");
  const std::byte* first = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  MdSpan<const std::byte> elements_at(first, shape);
  if (tensor.strides != nullptr)
    elements_at =
        MdSpan<const std::byte>(first, shape, ir::Strides(tensor.strides, tensor.strides + tensor.ndim));
  MemoryOptions memory{.block = options.block, .owner = std::move(owner), .adopt = options.adopt};
  const std::size_t bytes = static_cast<std::size_t>(elements) * size;
  if (elements_at.is_c_order()) return session.from_bytes({first, bytes}, dtype, shape, memory);

  ir::Strides in_bytes = elements_at.strides();
  for (std::int64_t& stride : in_bytes) stride *= static_cast<std::int64_t>(size);
  auto copy = std::make_shared<const std::vector<std::byte>>(
      packed(MdSpan<const std::byte>(first, shape, in_bytes), size));
  memory.owner = copy;
  return session.from_bytes(*copy, dtype, shape, memory);
}

}  // namespace

ManagedTensorVersioned* versioned(std::shared_ptr<void> owner, void* data, DType dtype, const Shape& shape) {
  return Kept<ManagedTensorVersioned>::make(std::move(owner), data, dtype, shape);
}

ManagedTensor* unversioned(std::shared_ptr<void> owner, void* data, DType dtype, const Shape& shape) {
  return Kept<ManagedTensor>::make(std::move(owner), data, dtype, shape);
}

}  // namespace dlpack

Array from_dlpack(const Session& session, dlpack::ManagedTensorVersioned* tensor,
                  const DlpackOptions& options) {
  std::shared_ptr<const void> owner = dlpack::take(tensor);
  if (tensor->version.major !=
      dlpack::kMajorVersion)  // then only the version and the deleter mean what they say
    throw ArrayError(Errc::kUnsupported, "a tensor of DLPack " + std::to_string(tensor->version.major) + "." +
                                             std::to_string(tensor->version.minor) + "; 1 is understood");
  return dlpack::import(session, tensor->dl_tensor, std::move(owner), options);
}

Array from_dlpack(const Session& session, dlpack::ManagedTensor* tensor, const DlpackOptions& options) {
  std::shared_ptr<const void> owner = dlpack::take(tensor);
  return dlpack::import(session, tensor->dl_tensor, std::move(owner), options);
}

dlpack::ManagedTensorVersioned* to_dlpack(const AddressableBlocks& blocks, std::size_t i) {
  if (i >= blocks.size())
    throw ArrayError(Errc::kOutOfRange, "block " + std::to_string(i) + " of " +
                                            std::to_string(blocks.size()) + " that are here");
  const AddressableBlock& block = blocks.blocks()[i];
  auto* tensor = dlpack::Kept<dlpack::ManagedTensorVersioned>::make(
      std::make_shared<AddressableBlocks>(blocks), block.bytes.data(), block.dtype, block.box.shape());
  tensor->flags = dlpack::kReadOnly;
  return tensor;
}

}  // namespace tilewise
