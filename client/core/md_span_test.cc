#include <tilewise/md_span.h>

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

namespace tilewise {
namespace {

// The interface of std::mdspan, as much as is used of it.
struct Like {
  using element_type = double;
  double* data = nullptr;
  static constexpr std::size_t rank() { return 2; }
  double* data_handle() const { return data; }
  std::size_t extent(std::size_t r) const { return r == 0 ? 2 : 3; }
  std::ptrdiff_t stride(std::size_t r) const { return r == 0 ? 1 : 2; }
};
static_assert(MdSpanLike<Like, const double>);
static_assert(!MdSpanLike<Like, float>);

TEST_CASE("elements by their indices, in C order and by any strides") {
  std::vector<int> values(24);
  std::iota(values.begin(), values.end(), 0);
  const MdSpan<int> v(values.data(), {2, 3, 4});
  CHECK(v.rank() == 3);
  CHECK(v.size() == 24);
  CHECK(v.extent(1) == 3);
  CHECK(v.stride(0) == 12);
  CHECK(v(1, 2, 3) == 23);
  CHECK(v(0, 1, 0) == 4);
  CHECK(v.is_c_order());
  v(0, 0, 1) = 100;
  CHECK(values[1] == 100);
  const MdSpan<const int> backwards(values.data() + 23, {4, 6}, {-1, -4});
  CHECK(backwards(0, 0) == 23);
  CHECK(backwards(3, 5) == 0);
  CHECK(!backwards.is_c_order());
  const std::int64_t at[] = {1, 1};
  CHECK(backwards[at] == 18);
}

TEST_CASE("extents of one have any stride in C order, and views of nothing are in it") {
  int value = 5;
  CHECK(MdSpan<int>(&value, {1, 1}, {77, -3}).is_c_order());
  CHECK(MdSpan<int>(&value, {3, 0}, {1, 1}).is_c_order());
  CHECK(MdSpan<int>(&value, {3, 0}).empty());
  const MdSpan<int> scalar(&value, {});
  CHECK(scalar() == 5);
  CHECK(scalar.size() == 1);
}

TEST_CASE("from what has the interface, and from what may be written") {
  std::vector<double> values{0, 1, 2, 3, 4, 5};
  const MdSpan<const double> from(Like{values.data()});
  CHECK(from.rank() == 2);
  CHECK(from(1, 2) == 5);
  CHECK(from(0, 1) == 2);
  const MdSpan<double> writable(values.data(), {6});
  const MdSpan<const double> read = writable;
  CHECK(read(3) == 3);
  CHECK_THROWS_AS(MdSpan<double>(values.data(), {2, 3}, {1}), ArrayError);
}

}  // namespace
}  // namespace tilewise
