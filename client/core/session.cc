#include <tilewise/session.h>

#include <cmath>
#include <cstring>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::grid_of;
using client::SessionState;
using client::value_or_throw;
using ir::TapeBuilder;
using ir::TapeOp;
using ir::TapeValue;

Array generate(SessionState& state, const Shape& shape, const Shape& block,
               const std::function<TapeValue(TapeBuilder&)>& build) {
  return Access::record(
      state, nullptr,
      infer_generate(shape, grid_of(shape, block), [&](TapeBuilder& t, auto) { return build(t); }));
}

}  // namespace

Session::Session(std::shared_ptr<client::SessionState> state) : state_(std::move(state)) {
  random.state_ = state_;
}

Session make_session(std::unique_ptr<client::Endpoint> endpoint, SessionOptions options) {
  return Session(std::make_shared<client::SessionState>(std::move(endpoint), std::move(options)));
}

namespace {

// The standard's default dtype of its kind; of what int64 does not hold uint64.
DType dtype_of(const Scalar& value) {
  switch (value.value().kind) {
    case ir::ScalarKind::kBool: return DType::kBool;
    case ir::ScalarKind::kInt: return value.value().wide ? DType::kUInt64 : DType::kInt64;
    case ir::ScalarKind::kFloat: return DType::kFloat64;
    case ir::ScalarKind::kComplex: return DType::kComplex128;
  }
  return DType::kFloat64;
}

}  // namespace

// ---- new arrays ------------------------------------------------------------------------------------------------------

Array Session::zeros(const Shape& shape, const CreateOptions& options) const {
  return full(shape, 0, {options.dtype, options.block});
}

Array Session::ones(const Shape& shape, const CreateOptions& options) const {
  return full(shape, 1, {options.dtype, options.block});
}

Array Session::full(const Shape& shape, Scalar value, const FullOptions& options) const {
  const DType dtype = options.dtype.value_or(dtype_of(value));
  return generate(*state_, shape, options.block,
                  [&](TapeBuilder& t) { return client::filled(t, value, dtype); });
}

Array Session::from_memory(const std::vector<bool>& values, const Shape& shape,
                           const MemoryOptions& options) const {
  const auto copy = std::make_unique<bool[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  return from_memory(std::span<const bool>(copy.get(), values.size()), shape, {.block = options.block});
}

Array Session::arange(Scalar start, Scalar stop, Scalar step, const ArangeOptions& options) const {
  if (options.dtype == DType::kBool) throw ArrayError(Errc::kInvalidArgument, "arange of bool");
  if (start.is_complex() || stop.is_complex() || step.is_complex())
    throw ArrayError(Errc::kInvalidArgument, "arange of complex numbers: they have no order");
  const bool floating = start.is_float() || stop.is_float() || step.is_float();
  if (step.as_double() == 0) throw ArrayError(Errc::kInvalidArgument, "arange with step 0");
  double exact = std::ceil((stop.as_double() - start.as_double()) / step.as_double());
  if (!(exact < 9.2e18))
    throw ArrayError(Errc::kOutOfRange, "arange of " + std::to_string(exact) + " elements");
  std::int64_t count = exact > 0 ? static_cast<std::int64_t>(exact) : 0;
  if (!floating) {  // doubles do not hold every int64
    const __int128 span = static_cast<__int128>(stop.value().i) - start.value().i, by = step.value().i;
    const __int128 whole = span / by + (span % by != 0 && (span > 0) == (by > 0));
    count = whole > 0 ? static_cast<std::int64_t>(whole) : 0;
  }
  return generate(*state_, {count}, options.block, [&](TapeBuilder& t) {
    const TapeValue i = floating ? t.cast(t.iota(0), DType::kFloat64) : t.iota(0);
    const TapeValue v = t.binary(TapeOp::kAdd, t.binary(TapeOp::kMul, i, step.value()), start.value());
    return options.dtype ? t.cast(v, *options.dtype) : v;
  });
}

namespace {

// start + i * step as float64; of several the last one is `last` itself, if given, not what rounding makes of it.
TapeValue line(TapeBuilder& t, double start, double step, std::optional<double> last, std::int64_t count) {
  const TapeValue i = t.iota(0);
  TapeValue v = t.binary(TapeOp::kMul, t.cast(i, DType::kFloat64), ir::Scalar(step));
  v = t.binary(TapeOp::kAdd, v, ir::Scalar(start));
  if (!last || count < 2) return v;
  const TapeValue end = t.binary(TapeOp::kEq, i, ir::Scalar(count - 1));
  return t.where(end, t.constant(ir::Scalar(*last), DType::kFloat64), v);
}

}  // namespace

Array Session::linspace(Scalar start, Scalar stop, std::int64_t count, const LinspaceOptions& options) const {
  const bool complex = start.is_complex() || stop.is_complex();
  const DType dtype = options.dtype.value_or(complex ? DType::kComplex128 : DType::kFloat64);
  if (!is_complex(dtype) && (complex || !is_floating(dtype))) {
    throw ArrayError(Errc::kInvalidArgument,
                     "linspace of " + std::string(name_of(dtype)) +
                         (complex ? " between complex numbers" : ": only floating dtypes"));
  }
  if (count < 0) throw ArrayError(Errc::kInvalidArgument, "linspace of " + std::to_string(count) + " values");
  const std::int64_t steps = options.endpoint ? count - 1 : count;
  return generate(*state_, {count}, options.block, [&](TapeBuilder& t) {
    const auto part = [&](double from, double to) {
      const double step = steps > 0 ? (to - from) / static_cast<double>(steps) : 0;
      return line(t, from, step, options.endpoint ? std::optional(to) : std::nullopt, count);
    };
    const TapeValue re = part(start.as_double(), stop.as_double());
    if (!complex) return t.cast(re, dtype);
    return t.cast(t.binary(TapeOp::kComplex, re, part(start.value().g, stop.value().g)), dtype);
  });
}

Array Session::eye(std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t k,
                   const CreateOptions& options) const {
  return generate(*state_, {rows, columns.value_or(rows)}, options.block, [&](TapeBuilder& t) {
    const TapeValue off = t.binary(TapeOp::kSub, t.iota(1), t.iota(0));
    return t.cast(t.binary(TapeOp::kEq, off, ir::Scalar(k)), options.dtype);
  });
}

namespace {

// A single value is a constant of the op that reads it: no memory, no transfer.
TapeValue value_of(TapeBuilder& t, std::span<const std::byte> bytes, DType dtype) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  const auto whole = [&]<class T>(T value) {
    return t.constant(static_cast<std::int64_t>(as(value)), dtype);
  };
  const auto real = [&]<class T>(T value) { return t.constant(static_cast<double>(as(value)), dtype); };
  const auto parts = [&]<class T>(T value) {
    const T c = as(value);
    return t.constant(ir::Scalar::complex(static_cast<double>(c.real()), static_cast<double>(c.imag())),
                      dtype);
  };
  switch (dtype) {
    case DType::kBool: return t.constant(as(std::uint8_t{}) != 0, dtype);
    case DType::kInt8: return whole(std::int8_t{});
    case DType::kInt16: return whole(std::int16_t{});
    case DType::kInt32: return whole(std::int32_t{});
    case DType::kInt64: return whole(std::int64_t{});
    case DType::kUInt8: return whole(std::uint8_t{});
    case DType::kUInt16: return whole(std::uint16_t{});
    case DType::kUInt32: return whole(std::uint32_t{});
    case DType::kUInt64: return t.constant(as(std::uint64_t{}), dtype);
    case DType::kFloat16: return real(Float16{});
    case DType::kBFloat16: return real(BFloat16{});
    case DType::kFloat32: return real(float{});
    case DType::kFloat64: return real(double{});
    case DType::kComplex64: return parts(std::complex<float>{});
    case DType::kComplex128: return parts(std::complex<double>{});
  }
  return {};
}

}  // namespace

Array Session::from_bytes(std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                          const MemoryOptions& options) const {
  const std::int64_t elements = value_or_throw(ir::checked_volume(shape));
  if (static_cast<std::size_t>(elements) != bytes.size() / size_of(dtype)) {
    throw ArrayError(Errc::kShapeMismatch, std::to_string(bytes.size() / size_of(dtype)) +
                                               " values for an array of shape " + ir::to_string(shape));
  }
  const std::optional<Grid> given = grid_of(shape, options.block);
  if (elements == 1)
    return generate(*state_, shape, options.block, [&](TapeBuilder& t) { return value_of(t, bytes, dtype); });
  const Grid grid = given ? *given : value_or_throw(Grid::by_default(shape, size_of(dtype)));
  auto memory = std::make_shared<client::Memory>();
  if (options.owner) {
    memory->owner = options.owner;
    memory->data = bytes.data();
    memory->adoptable = options.adopt;
  } else {
    auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    memory->data = copy->data();
    memory->owner = std::move(copy);
  }
  ir::Inferred provide = value_or_throw(infer_provide(dtype, grid));
  const Array provided = state_->add_one(std::move(*provide.op), std::move(memory));
  // Workers take it from here: the copy is placed like any op, and all further reads are theirs.
  return state_->add_one(Access::copy_op(provided));
}

std::shared_ptr<std::byte> Session::allocate_bytes(DType dtype, const Shape& shape) const {
  const std::int64_t elements = value_or_throw(ir::checked_volume(shape));
  return value_or_throw(state_->allocate(elements * static_cast<std::int64_t>(size_of(dtype))));
}

Uploads Session::uploads() const { return state_->uploads(); }

// ---- computing -------------------------------------------------------------------------------------------------------

Future Session::compute(std::span<const Array> arrays, const ComputeOptions& options) const {
  Access::sources(*state_, arrays);
  std::vector<Array> plain;  // alive until the request is sent
  client::Wish wish;
  for (const Array& a : arrays) {
    plain.push_back(Access::plain(a));
    wish.fetch.push_back(Access::key(plain.back()));
  }
  return state_->submit(wish, options);
}

namespace {

// All that it is a view of, in whatever order: a result whose dimensions of one element were dropped, a transpose.
bool shows_each_once(const ir::Source& s) {
  bool repeats = false;
  for (int d = 0; d < s.view.rank(); ++d)
    repeats |= s.view.shape[static_cast<std::size_t>(d)] != 1 && !s.view.source_of(d);
  return !repeats && ir::volume(s.view.shape) == ir::volume(s.grid.shape());
}

}  // namespace

Future Session::persist(std::span<const Array> arrays, const ComputeOptions& options) const {
  client::Wish wish;
  for (const ir::Source& s : Access::sources(*state_, arrays)) {
    if (!shows_each_once(s)) {
      throw ArrayError(Errc::kUnsupported, "persist of a view of shape " + ir::to_string(s.shape()) +
                                               " on an array of shape " + ir::to_string(s.grid.shape()) +
                                               ": call its own persist(), which copies it");
    }
    wish.hold.push_back(s.array);
  }
  return state_->submit(wish, options);
}

Explanation Session::explain(std::span<const Array> arrays, const ComputeOptions& options) const {
  std::vector<Array> plain;  // alive until the answer is there
  std::vector<client::Key> keys;
  Access::sources(*state_, arrays);
  for (const Array& a : arrays) {
    plain.push_back(Access::plain(a));
    keys.push_back(Access::key(plain.back()));
  }
  return Explanation(state_->explain(keys, options.copies), devices());
}

Trace Session::trace() const { return make_trace(state_->trace(), devices()); }

std::string Session::visualize(const Array& array) const { return explain(array).drawing(); }

std::vector<Device> Session::devices() const { return state_->devices(); }

Device Session::device(const std::string& name) const {
  std::string known;
  for (const Device& d : devices()) {
    if (d.name == name) return d;
    known += (known.empty() ? "" : ", ") + d.name;
  }
  throw ArrayError(Errc::kNotFound,
                   "no device '" + name + "'; there are: " + (known.empty() ? "none" : known));
}

bool Session::wait_for_devices(std::size_t count, Duration timeout) const {
  return state_->wait_for_devices(count, timeout);
}

}  // namespace tilewise
