#include "index/pick.h"

#include <bit>
#include <cstring>
#include <numeric>

namespace tilewise::kernels::index {

std::int64_t IndexLine::first_outside(std::int64_t extent) const {
  std::int64_t found = -1;
  stretches([&](const std::int64_t* index, std::int64_t first, std::int64_t n) {
    if (pick_fns().all_valid(index, n, extent)) return true;
    const auto* const at =
        std::find_if(index, index + n, [extent](std::int64_t i) { return i < -extent || i >= extent; });
    found = first + (at - index);
    return false;
  });
  return found;
}

int Buckets::bits_of(std::int64_t count) {
  return count <= 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(count - 1));
}
bool Buckets::fit(std::int64_t count, std::int64_t extent) { return bits_of(count) + bits_of(extent) < 64; }

Buckets::Buckets(std::int64_t* entries, std::int64_t count, std::int64_t extent)
    : entries_(entries),
      count_(count),
      extent_(extent),
      number_bits_(bits_of(count)),
      part_bits_(std::max(0, bits_of(extent) - kPartBits)) {}

void Buckets::fill(const IndexLine& line) const {
  std::array<std::int64_t, (std::size_t{1} << kPartBits) + 1> next{};  // where the next of each part goes
  const auto each = [&](auto&& visit) {
    line.stretches([&](const std::int64_t* index, std::int64_t first, std::int64_t n) {
      for (std::int64_t j = 0; j < n; ++j) visit(index[j] < 0 ? index[j] + extent_ : index[j], first + j);
      return true;
    });
  };
  each([&](std::int64_t i, std::int64_t) { ++next[static_cast<std::size_t>(part(i) + 1)]; });
  std::partial_sum(next.begin(), next.end(), next.begin());
  each([&](std::int64_t i, std::int64_t j) {
    entries_[next[static_cast<std::size_t>(part(i))]++] = i << number_bits_ | j;
  });
}

const std::int64_t* Buckets::first_of(std::int64_t part) const {
  return std::partition_point(entries_, entries_ + count_,
                              [&](std::int64_t entry) { return this->part(entry >> number_bits_) < part; });
}

namespace {

// Of an extent that is known when this is compiled a copy is one or two instructions.
template <class Copy>
void each(std::byte* to, std::int64_t to_step, const std::int64_t* to_at, const std::byte* from,
          std::int64_t from_step, const std::int64_t* from_at, std::int64_t count, const Copy& copy) {
  for (std::int64_t k = 0; k < count; ++k) copy(to + to_at[k] * to_step, from + from_at[k] * from_step);
}

// Bytes behind the axis, where each view has them in C order without gaps, or 0.
std::size_t side_by_side(const tilewise_view_v1& to, const tilewise_view_v1& from, int axis) {
  std::int64_t n = 1;
  for (int d = to.rank - 1; d > axis; --d) {
    if (to.shape[d] != 1 && (to.strides[d] != n || from.strides[d] != n)) return 0;
    n *= to.shape[d];
  }
  return static_cast<std::size_t>(n) * builtin::element_bytes(to);
}

move::StridedCopy copy_behind(const tilewise_view_v1& to, const tilewise_view_v1& from, int axis) {
  const auto behind = [axis](const auto& all) {
    return std::decay_t<decltype(all)>(all.begin() + axis + 1, all.end());
  };
  return {behind(builtin::strides_of(to)), behind(builtin::strides_of(from)), behind(builtin::shape_of(to)),
          builtin::element_bytes(to)};
}

}  // namespace

PickedCopy::PickedCopy(const tilewise_view_v1& to, const tilewise_view_v1& from, int axis)
    : to_(to),
      from_(from),
      element_bytes_(static_cast<std::int64_t>(builtin::element_bytes(to))),
      side_by_side_(side_by_side(to, from, axis)),
      behind_(copy_behind(to, from, axis)) {
  to_step_ = to.strides[axis] * element_bytes_;
  from_step_ = from.strides[axis] * element_bytes_;
  to_.rank = from_.rank = axis;
}

void PickedCopy::operator()(const std::int64_t* to_at, const std::int64_t* from_at,
                            std::int64_t count) const {
  builtin::for_lines<2>({&to_, &from_}, -1, [&](const auto& start) {
    std::byte* const to = static_cast<std::byte*>(to_.data) + start[0] * element_bytes_;
    const std::byte* const from = static_cast<const std::byte*>(from_.data) + start[1] * element_bytes_;
    const auto all = [&](const auto& copy) {
      each(to, to_step_, to_at, from, from_step_, from_at, count, copy);
    };
    const auto all_of = [&]<std::size_t Bytes>() {
      all([](std::byte* t, const std::byte* f) { std::memcpy(t, f, Bytes); });
    };
    switch (side_by_side_) {
      case 0: return all(behind_);
      case 1: return all_of.template operator()<1>();
      case 2: return all_of.template operator()<2>();
      case 4: return all_of.template operator()<4>();
      case 8: return all_of.template operator()<8>();
      case 12: return all_of.template operator()<12>();
      case 16: return all_of.template operator()<16>();
      case 24: return all_of.template operator()<24>();
      case 32: return all_of.template operator()<32>();
      default: return all([n = side_by_side_](std::byte* t, const std::byte* f) { std::memcpy(t, f, n); });
    }
  });
}

}  // namespace tilewise::kernels::index
