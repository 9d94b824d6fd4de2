// A view of elements in host memory by several indices, as std::mdspan (C++23) is with dynamic extents and strides; its rank is known
// at run time too. It owns nothing: whoever made it says for how long it is good.
//
//   for (const auto& block : session.addressable_blocks(x)) { auto v = block.view<double>(); use(v(i, j)); }
//   std::vector<float> values = y.get<float>();
//   tilewise::MdSpan<const float> all(values.data(), y.shape());
#pragma once
#include <tilewise/error.h>
#include <tilewise/types.h>

#include <array>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#if __has_include(<version>)
#include <version>
#endif
#ifdef __cpp_lib_mdspan
#include <mdspan>
#endif

namespace tilewise {

// Anything with the interface of std::mdspan, whoever wrote it: of elements of type T, without an accessor of its own.
template <class M, class T>
concept MdSpanLike = requires(const M& m) {
  { m.data_handle() } -> std::convertible_to<T*>;
  { M::rank() } -> std::convertible_to<std::size_t>;
  { m.extent(std::size_t{}) } -> std::convertible_to<std::int64_t>;
}
&&std::is_same_v<std::remove_cv_t<typename M::element_type>, std::remove_cv_t<T>>;

template <class T> class MdSpan {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using index_type = std::int64_t;

  MdSpan() = default;  // rank 0, of nothing
  // C order.
  MdSpan(T* data, const Shape& shape) : data_(data), extents_(shape), strides_(ir::c_order_strides(shape)) {}
  // Strides are in elements, and may be zero or negative. kShapeMismatch where there are not as many as extents.
  MdSpan(T* data, const Shape& shape, const ir::Strides& strides)
      : data_(data), extents_(shape), strides_(strides) {
    if (shape.size() != strides.size())
      throw ArrayError(
          Errc::kShapeMismatch,
          std::to_string(strides.size()) + " strides for a shape of rank " + std::to_string(shape.size()));
  }
  // Of const elements from those that are not.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>) MdSpan(const MdSpan<U>& other)
      : data_(other.data_handle()), extents_(other.extents()), strides_(other.strides()) {}
  template <MdSpanLike<T> M>
  requires(M::rank() <= static_cast<std::size_t>(limits::kMaxRank)) MdSpan(const M& other)
      : data_(other.data_handle()) {
    for (std::size_t r = 0; r < M::rank(); ++r) {
      extents_.push_back(static_cast<std::int64_t>(other.extent(r)));
      strides_.push_back(static_cast<std::int64_t>(other.stride(r)));
    }
  }

  int rank() const { return static_cast<int>(extents_.size()); }
  const Shape& extents() const { return extents_; }
  const ir::Strides& strides() const { return strides_; }
  std::int64_t extent(int r) const { return extents_[static_cast<std::size_t>(r)]; }
  std::int64_t stride(int r) const { return strides_[static_cast<std::size_t>(r)]; }
  std::int64_t size() const { return ir::volume(extents_); }
  bool empty() const { return size() == 0; }
  T* data_handle() const { return data_; }
  // Its elements are one run of memory in C order.
  bool is_c_order() const {
    std::int64_t run = 1;
    for (int r = rank(); r-- > 0;) {
      if (extent(r) == 0) return true;
      if (extent(r) > 1 && stride(r) != run) return false;
      run *= extent(r);
    }
    return true;
  }

  // As many indices as dimensions, each inside; neither is checked in release builds.
  template <std::convertible_to<std::int64_t>... I> T& operator()(I... indices) const {
    const std::array<std::int64_t, sizeof...(I)> at{static_cast<std::int64_t>(indices)...};
    return (*this)[std::span<const std::int64_t>(at)];
  }
  T& operator[](std::span<const std::int64_t> at) const {
    assert(at.size() == extents_.size());
    std::int64_t offset = 0;
    for (std::size_t r = 0; r < at.size(); ++r) {
      assert(at[r] >= 0 && at[r] < extents_[r]);
      offset += at[r] * strides_[r];
    }
    return data_[offset];
  }

#ifdef __cpp_lib_mdspan
  // kShapeMismatch for another rank.
  template <std::size_t Rank> auto to_mdspan() const {
    if (static_cast<std::size_t>(rank()) != Rank)
      throw ArrayError(Errc::kShapeMismatch, "a view of rank " + std::to_string(rank()) + " as one of rank " +
                                                 std::to_string(Rank));
    std::array<std::int64_t, Rank> extents{}, strides{};
    for (std::size_t r = 0; r < Rank; ++r) extents[r] = extents_[r], strides[r] = strides_[r];
    using Extents = std::dextents<std::int64_t, Rank>;
    return std::mdspan<T, Extents, std::layout_stride>(data_, {Extents(extents), strides});
  }
#endif

 private:
  T* data_ = nullptr;
  Shape extents_;
  ir::Strides strides_;
};

}  // namespace tilewise
