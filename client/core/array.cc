#include <tilewise/array.h>
#include <tilewise/kernel.h>

#include <algorithm>

#include "builtin_call.h"

namespace tilewise {
namespace client {

std::vector<ir::Source> Access::sources(const SessionState& session, std::span<const Array> arrays) {
  for (const Array& a : arrays)
    if (&state(a) != &session) throw ArrayError(Errc::kInvalidArgument, "an array of another session");
  return sources(arrays);
}

std::vector<ir::Source> Access::sources(std::span<const Array> arrays) {
  std::vector<ir::Source> out;
  for (const Array& a : arrays) {
    if (&state(a) != &state(arrays.front())) {
      throw ArrayError(Errc::kInvalidArgument, "arrays of different sessions in one operation");
    }
    out.push_back(source(a));
  }
  return out;
}

Array Access::whole(std::shared_ptr<const Handle> handle) {
  Array a;
  a.view_ = ir::View::identity(handle->array.grid.shape());
  a.handle_ = std::move(handle);
  return a;
}

Array Access::viewed(const Array& a, Result<ir::View> view) {
  Array out;
  out.handle_ = a.handle_;
  out.view_ = value_or_throw(std::move(view));
  return out;
}

Array Access::record(SessionState& state, const Array* operand, Result<ir::Inferred> result) {
  ir::Inferred inferred = value_or_throw(std::move(result));
  const Array base = inferred.op ? state.add_one(std::move(*inferred.op)) : *operand;
  return viewed(base, std::move(inferred.view));
}

ir::Op Access::copy_op(const Array& a) { return *value_or_throw(ir::infer_copy(source(a))).op; }

}  // namespace client

using client::Access;

DType Array::dtype() const { return Access::handle(*this).array.dtype; }

Grid Array::grid() const { return ir::induced_grid(view_, Access::handle(*this).array.grid); }

Array Array::permute(std::span<const int> axes) const {
  Access::handle(*this);
  return Access::viewed(*this, axes.empty() ? view_.transpose() : view_.permute(axes));
}

Array Array::slice(int axis, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                   std::int64_t step) const {
  Access::handle(*this);
  return Access::viewed(*this, view_.slice(axis, start, stop, step));
}

Array Array::at(int axis, std::int64_t index) const {
  Access::handle(*this);
  return Access::viewed(*this, view_.at(axis, index));
}

Array Array::expand_dims(int axis) const {
  Access::handle(*this);
  return Access::viewed(*this, view_.expand_dims(axis));
}

Array Array::squeeze(const Axes& axes) const {
  Access::handle(*this);
  std::vector<bool> dropped(static_cast<std::size_t>(rank()));
  if (!axes.list())
    for (std::size_t d = 0; d < dropped.size(); ++d) dropped[d] = shape()[d] == 1;
  else
    for (const int axis : *axes.list()) {
      const auto d = static_cast<std::size_t>(client::axis_of(*this, axis, "squeeze"));
      if (dropped[d])
        client::refuse(Errc::kInvalidArgument, "squeeze: axis " + std::to_string(axis) + " twice", *this);
      if (shape()[d] != 1)
        client::refuse(
            Errc::kInvalidArgument,
            "squeeze: axis " + std::to_string(axis) + " has an extent of " + std::to_string(shape()[d]),
            *this);
      dropped[d] = true;
    }
  Array out = *this;
  for (int d = rank(); d-- > 0;)
    if (dropped[static_cast<std::size_t>(d)]) out = Access::viewed(out, out.view_.squeeze(d));
  return out;
}

Array Array::broadcast_to(const Shape& shape) const {
  Access::handle(*this);
  return Access::viewed(*this, view_.broadcast_to(shape));
}

Array Array::astype(DType dtype) const {
  return Access::record(*this, infer_cast(Access::source(*this), dtype));
}

Array Array::reshape(std::span<const std::int64_t> shape) const {
  return Access::record(*this, infer_reshape(Access::source(*this), shape));
}

Array Array::reblock(const Shape& block) const {
  return Access::record(
      *this, infer_reblock(Access::source(*this), client::value_or_throw(Grid::uniform(shape(), block))));
}

Array Array::on(const std::vector<DeviceId>& devices) const {
  if (devices.empty()) throw ArrayError(Errc::kInvalidArgument, "a placement on no device");
  return placed({devices});
}

Array Array::on(const Mesh& mesh, const PartitionSpec& spec) const {
  const ir::DeviceHint hint = sharding(mesh, spec, rank());
  const Grid old = grid();
  std::vector<ir::DimGrid> dims;  // those with enough blocks stay as they are
  for (int d = 0; d < rank(); ++d) {
    const std::int64_t parts = hint.parts[static_cast<std::size_t>(d)], extent = shape()[d];
    const bool finer = old.dim(d).count() < std::min(parts, extent);
    dims.push_back(finer ? client::value_or_throw(ir::DimGrid::uniform(extent, (extent + parts - 1) / parts))
                         : old.dim(d));
  }
  const Grid cut(std::move(dims));
  if (cut == old) return placed(hint);
  return Access::record(*this, infer_reblock(Access::source(*this), cut)).placed(hint);
}

Array Array::placed(const ir::DeviceHint& hint) const {
  const client::Handle& handle = Access::handle(*this);
  if (view_.is_identity(handle.array.grid.shape()) && handle.session->place(handle.key, hint)) return *this;
  ir::Op op = Access::copy_op(*this);
  op.hint = hint;
  return handle.session->add_one(std::move(op));
}

Array Array::named(const std::string& label) const {
  Access::handle(*this).session->label(Access::key(*this), label);
  return *this;
}

// ---- computing -------------------------------------------------------------------------------------------------------

namespace {

// Get without anyone else who could wait for it: a timeout must not leave it running.
Future fetch(const Array& a) {
  const Array plain = Access::plain(a);
  return Access::state(a).submit({.fetch = {Access::key(plain)}}, {});
}

template <class T> void check_type(const Array& a) {
  if (a.dtype() == ir::dtype_of_v<T>) return;
  throw ArrayError(Errc::kInvalidArgument, "the array of shape " + ir::to_string(a.shape()) + " is " +
                                               std::string(name_of(a.dtype())) + ", not " +
                                               std::string(name_of(ir::dtype_of_v<T>)) + ": astype() first");
}

}  // namespace

template <class T> std::vector<T> Array::get(const WaitOptions& options) const {
  check_type<T>(*this);
  Future future = fetch(*this);
  try {
    return future.get<T>(0, options);
  } catch (const ArrayError&) {
    future.cancel();
    throw;
  }
}

template <class T> T Array::item(const WaitOptions& options) const {
  check_type<T>(*this);
  if (size() != 1) {
    throw ArrayError(Errc::kShapeMismatch,
                     "item() of an array of shape " + ir::to_string(shape()) + ": not one element");
  }
  return get<T>(options).front();
}

#define TILEWISE_INSTANTIATE(T) \
  template std::vector<T> Array::get<T>(const WaitOptions& options) const; \
  template T Array::item<T>(const WaitOptions& options) const;
TILEWISE_INSTANTIATE(bool)
TILEWISE_INSTANTIATE(std::int8_t)
TILEWISE_INSTANTIATE(std::int16_t)
TILEWISE_INSTANTIATE(std::int32_t)
TILEWISE_INSTANTIATE(std::int64_t)
TILEWISE_INSTANTIATE(std::uint8_t)
TILEWISE_INSTANTIATE(std::uint16_t)
TILEWISE_INSTANTIATE(std::uint32_t)
TILEWISE_INSTANTIATE(std::uint64_t)
TILEWISE_INSTANTIATE(Float16)
TILEWISE_INSTANTIATE(BFloat16)
TILEWISE_INSTANTIATE(float)
TILEWISE_INSTANTIATE(double)
TILEWISE_INSTANTIATE(std::complex<float>)
TILEWISE_INSTANTIATE(std::complex<double>)
#undef TILEWISE_INSTANTIATE

Future Array::persist(const ComputeOptions& options) {
  *this = Access::plain(*this);
  return Access::state(*this).submit({.hold = {Access::key(*this)}}, options);
}

}  // namespace tilewise
