// Shapes, indices and boxes: short inline vectors of 64-bit integers.
#pragma once
#include <tilewise/base/limits.h>
#include <tilewise/base/result.h>

#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace tilewise::ir {

[[noreturn]] void too_many_dims(std::size_t dims);  // ArrayError, kLimitExceeded

// One of something for each dimension. Where it grows past limits::kMaxRank, which only users' calls make it do, that is an
// ArrayError.
template <class T> class PerDim : public boost::container::static_vector<T, limits::kMaxRank> {
  using Base = boost::container::static_vector<T, limits::kMaxRank>;

 public:
  PerDim() = default;
  explicit PerDim(std::size_t dims) : Base(checked(dims)) {}
  PerDim(std::size_t dims, const T& value) : Base(checked(dims), value) {}
  PerDim(std::initializer_list<T> values) : PerDim(values.begin(), values.end()) {}
  template <std::forward_iterator It> PerDim(It first, It last) { assign(first, last); }
  template <std::forward_iterator It> void assign(It first, It last) {
    checked(static_cast<std::size_t>(std::distance(first, last)));
    Base::assign(first, last);
  }
  void assign(std::size_t dims, const T& value) { Base::assign(checked(dims), value); }
  template <class... How>
  void resize(std::size_t dims, How&&... how) {  // as Base's: a value, or default_init
    Base::resize(checked(dims), std::forward<How>(how)...);
  }
  void push_back(const T& value) {
    checked(this->size() + 1);
    Base::push_back(value);
  }
  template <class... Args> T& emplace_back(Args&&... args) {
    checked(this->size() + 1);
    return Base::emplace_back(std::forward<Args>(args)...);
  }
  template <class Place> auto insert(Place at, const T& value) {
    checked(this->size() + 1);
    return Base::insert(at, value);
  }
  template <class Place, std::forward_iterator It> auto insert(Place at, It first, It last) {
    checked(this->size() + static_cast<std::size_t>(std::distance(first, last)));
    return Base::insert(at, first, last);
  }

 private:
  static std::size_t checked(std::size_t dims) {
    if (dims > static_cast<std::size_t>(limits::kMaxRank)) too_many_dims(dims);
    return dims;
  }
};

using Shape = PerDim<std::int64_t>;    // extents, in elements
using Index = PerDim<std::int64_t>;    // a position (of an element, or of a block in its grid)
using Strides = PerDim<std::int64_t>;  // in elements, signed; 0 repeats

// Half-open box [lo, hi) per dimension. Empty when some lo >= hi. Rank 0 has one point.
struct Box {
  Index lo, hi;

  int rank() const { return static_cast<int>(lo.size()); }
  std::int64_t extent(int d) const { return hi[d] > lo[d] ? hi[d] - lo[d] : 0; }
  Shape shape() const;
  std::int64_t volume() const;
  bool contains(const Index& p) const;
  friend bool operator==(const Box&, const Box&) = default;
};

Box box_of(const Shape& shape);
Box intersect(const Box& a, const Box& b);
// The first point of `box` in C order that is `at` or comes after it; none if there is no such point.
std::optional<Index> next_in(const Box& box, const Index& at);

// Product of extents, or kOutOfRange past 2^63 - 1, or kInvalidArgument for a negative extent.
Result<std::int64_t> checked_volume(std::span<const std::int64_t> shape);
// The same without the check, for shapes that have passed it.
std::int64_t volume(const Shape& shape);
Strides c_order_strides(const Shape& shape);

// C-order position of `index` in `counts`, and back.
std::int64_t ravel(const Index& index, const Shape& counts);
Index unravel(std::int64_t position, const Shape& counts);

// NumPy broadcasting of two shapes, or kShapeMismatch with both shapes in the text.
Result<Shape> broadcast(const Shape& a, const Shape& b);

std::string to_string(const Shape& shape);  // "(3, 4)"
std::string to_string(const Box& box);      // "[0:3, 4:8]"

}  // namespace tilewise::ir
