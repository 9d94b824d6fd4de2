// Names from the engine that the public API shows.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/element_types.h>
#include <tilewise/ir/grid.h>
#include <tilewise/ir/op.h>
#include <tilewise/ir/shape.h>
#include <tilewise/ir/tape_builder.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace tilewise {

using ir::BFloat16;
using ir::DType;
using ir::Float16;
using ir::Grid;
using ir::Shape;

// One device of the cluster, as workers announced it.
struct Device {
  DeviceId id;
  std::string name;  // global: "w3/cuda:0"
  std::string model;
  std::string worker;  // the process's name, for people
  WorkerId worker_id;
  std::int64_t memory_bytes = 0;
};

// A number of the host language in an expression. It adopts the dtype of the array beside it where its kind permits
// (ir/tape_builder.h has the rules).
class Scalar {
 public:
  Scalar(bool value) : value_(value) {}
  template <std::integral T> Scalar(T value) : value_(whole(value)) {}
  template <std::floating_point T> Scalar(T value) : value_(static_cast<double>(value)) {}
  Scalar(Float16 value) : value_(static_cast<double>(value)) {}
  Scalar(BFloat16 value) : value_(static_cast<double>(value)) {}
  template <std::floating_point T>
  Scalar(std::complex<T> value)
      : value_(ir::Scalar::complex(static_cast<double>(value.real()), static_cast<double>(value.imag()))) {}

  const ir::Scalar& value() const { return value_; }
  bool is_float() const { return value_.kind == ir::ScalarKind::kFloat; }
  bool is_complex() const { return value_.kind == ir::ScalarKind::kComplex; }
  bool is_zero() const { return value_.i == 0 && value_.f == 0 && value_.g == 0; }
  double as_double() const {  // the real part
    if (is_float() || is_complex()) return value_.f;
    return value_.wide ? static_cast<double>(static_cast<std::uint64_t>(value_.i))
                       : static_cast<double>(value_.i);
  }

 private:
  template <std::integral T> static ir::Scalar whole(T value) {
    if constexpr (std::unsigned_integral<T>)
      return static_cast<std::uint64_t>(value);
    else
      return static_cast<std::int64_t>(value);
  }
  ir::Scalar value_;
};

// Which dimensions: all, one, or several; negative ones count from the end, as in NumPy.
class Axes {
 public:
  Axes() = default;  // all
  Axes(int axis) : axes_(std::vector<int>{axis}) {}
  // max(a, 0.0) is maximum(a, 0.0), and keepdims is the argument behind the axes.
  template <class T>
  requires(std::floating_point<T> || std::same_as<T, bool>) Axes(T)
  = delete;
  Axes(std::initializer_list<int> axes) : axes_(std::vector<int>(axes)) {}
  explicit Axes(std::vector<int> axes) : axes_(std::move(axes)) {}

  const std::optional<std::vector<int>>& list() const { return axes_; }  // nothing: all

 private:
  std::optional<std::vector<int>> axes_;
};

}  // namespace tilewise
