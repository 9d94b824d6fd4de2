// Results whose size depends on data (D14): the client asks for one count a block, waits for these few numbers, and then
// knows the result's cuts and which block each of its blocks is made from. What follows is planned as any other op.
#include <tilewise/functions.h>

#include "space_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::kDefaultBlockBytes;
using client::refuse;

template <class P> Kernel kernel_of(std::int64_t elements) {  // neither of the two has parameters
  return {.name = std::string(P::kName), .version = "1", .flops_per_point = static_cast<double>(elements)};
}

// What is true in a mask, counted.
struct Selection {
  Array mask;                         // a vector, whole
  ir::DimGrid cuts;                   // of the result: one block for each block that has something
  std::vector<std::int64_t> sources;  // that block
};

// `given` is a vector of bool. `beside` are computed and kept with it, for they will be asked next: views are replaced by
// what they show, and all, the mask too, are cut along dimension 0 as the first of them is.
Selection choose(const Array& given, std::span<Array> beside) {
  ir::DimGrid along = client::computed_cuts(beside.empty() ? given : beside[0]).dim(0);
  // Positions are larger than what a mask is made of.
  if (beside.empty() && along.max_size() > kDefaultBlockBytes / 8)
    along = client::value_or_throw(ir::DimGrid::uniform(along.extent(), kDefaultBlockBytes / 8));
  // The result's cuts are listed.
  if (along.count() > limits::kMaxExplicitCuts)
    along = client::value_or_throw(
        ir::DimGrid::uniform(along.extent(), ir::ceil_div(along.extent(), limits::kMaxExplicitCuts)));
  const auto cut = [&](const Array& a) {
    std::vector<ir::DimGrid> dims = client::computed_cuts(a).dims();
    dims[0] = along;
    return Access::plain(Access::record(a, infer_reblock(Access::source(a), Grid(std::move(dims)))));
  };
  for (Array& a : beside) a = cut(a);
  Selection s{cut(given), {}, {}};
  const Grid counters({client::value_or_throw(ir::DimGrid::uniform(along.count(), 1))});
  const Array counts =
      client::map_space(kernel_of<ir::builtin::CountTrue>(along.max_size()), std::span(&s.mask, 1),
                        {client::span_map(1)}, s.mask.grid(), {{DType::kInt64, counters}})
          .front();
  std::vector<client::Key> held = {Access::key(s.mask)};
  for (const Array& a : beside) held.push_back(Access::key(a));
  Future future = Access::state(given).submit({.fetch = {Access::key(counts)}, .hold = std::move(held)}, {});
  const std::vector<std::int64_t> found = future.get<std::int64_t>(0);
  std::int64_t total = 0;
  std::vector<std::int64_t> starts;
  for (std::size_t b = 0; b < found.size(); ++b) {
    if (found[b] == 0) continue;
    starts.push_back(total);
    s.sources.push_back(static_cast<std::int64_t>(b));
    total += found[b];
  }
  s.cuts = client::value_or_throw(ir::DimGrid::cuts(total, std::move(starts)));
  return s;
}

// Blocks of `a`, cut as the mask is along dimension 0, that block b of the result is made from.
std::vector<std::vector<std::int64_t>> sources_of(const Selection& s, const Grid& a, const Grid& result) {
  std::vector<std::vector<std::int64_t>> lists;
  const Shape from = a.counts(), to = result.counts();
  for (std::int64_t b = 0; b < result.block_count(); ++b) {
    ir::Index at = ir::unravel(b, to);
    at[0] = s.sources[static_cast<std::size_t>(at[0])];
    at.resize(from.size());
    lists.push_back({ir::ravel(at, from)});
  }
  return lists;
}

Array compress(const Selection& s, const Array& a) {
  std::vector<ir::DimGrid> dims = a.grid().dims();
  dims[0] = s.cuts;
  const Grid grid(std::move(dims));
  return map_blocks(kernel_of<ir::builtin::Compress>(client::block_volume(a.grid())),
                    {{s.mask, sources_of(s, s.mask.grid(), grid)}, {a, sources_of(s, a.grid(), grid)}},
                    {{a.dtype(), grid}})
      .front();
}

// Where it is true: int64 positions.
Array positions(const Selection& s) {
  const Grid grid({s.cuts});
  return map_blocks(kernel_of<ir::builtin::Compress>(s.mask.grid().dim(0).max_size()),
                    {{s.mask, sources_of(s, s.mask.grid(), grid)}}, {{DType::kInt64, grid}})
      .front();
}

Array flat(const Array& a) { return a.reshape({-1}); }

// A sorted vector, and where a value differs from the one before it. NaN differs from NaN.
Array firsts(const Array& sorted) {
  const Array head = sorted.slice(0, 0, 1), differs = sorted.slice(0, 1) != sorted.slice(0, {}, -1);
  return concat({(head == head) | true, differs});
}

// How long each run of equal values is.
Array run_lengths(const Selection& s) {
  const Array starts = positions(s);
  const Array behind = starts.slice(0, 0, 1) * 0 + s.mask.size();
  return starts.size() == 0 ? starts : concat({starts.slice(0, 1), behind}) - starts;
}

}  // namespace

Array boolean_index(const Array& x, const Array& mask) {
  client::check_mask(x, mask);
  if (mask.rank() == 0) return boolean_index(x.expand_dims(0), mask.expand_dims(0));  // all of x, or nothing
  Array from = x;
  if (mask.rank() > 1) {
    Shape shape = {mask.size()};
    shape.insert(shape.end(), x.shape().begin() + mask.rank(), x.shape().end());
    from = x.reshape(std::span<const std::int64_t>(shape.data(), shape.size()));
  }
  return compress(choose(flat(mask), std::span(&from, 1)), from);
}

std::vector<Array> nonzero(const Array& x) {
  if (x.rank() == 0) refuse(Errc::kInvalidArgument, "nonzero wants a dimension or more", x);
  const Array at = positions(choose(flat(x.dtype() == DType::kBool ? x : x != 0), {}));
  if (x.size() == 0) return std::vector<Array>(static_cast<std::size_t>(x.rank()), at);
  std::vector<Array> out;
  Array rest = at;  // within the dimensions from d on
  std::int64_t behind = x.size();
  for (int d = 0; d + 1 < x.rank(); ++d) {
    behind /= client::extent(x, d);
    out.push_back(behind == 1 ? rest : floor_divide(rest, behind));
    rest = rest - out.back() * behind;
  }
  out.push_back(rest);
  return out;
}

namespace {

// A vector in rising order, and where its elements were: equal ones in their order.
struct Ordered {
  Array values, numbers;
};
Ordered ordered(const Array& line) {
  Array numbers;
  if (is_complex(line.dtype())) {  // by imaginary parts first, and what they leave equal stays so
    const Array minor = argsort(imag(line), 0);
    numbers = take(minor, argsort(take(real(line), minor), 0));
  } else {
    numbers = argsort(line, 0);
  }
  return {take(line, numbers), numbers};
}
Array sorted(const Array& line) { return is_complex(line.dtype()) ? ordered(line).values : sort(line, 0); }

// Which of the different values each element of x is. `found`: where values of the line begin, in its order.
Array inverse(const Array& x, const Array& values, const Array& numbers, const Array& found) {
  if (!is_complex(x.dtype())) return searchsorted(values, x);
  // Complex numbers are not searched for; but how many begin up to each is known, and where it came from.
  const Array ranks = cumulative_sum(found) - 1;
  return put(ranks, numbers, ranks)
      .reshape(std::span<const std::int64_t>(x.shape().data(), x.shape().size()));
}

}  // namespace

Array unique_values(const Array& x) {
  Array in_order = sorted(flat(x));
  if (x.size() == 0) return in_order;
  const Selection s = choose(firsts(in_order), std::span(&in_order, 1));
  return compress(s, in_order);
}

UniqueCounts unique_counts(const Array& x) {
  Array in_order = sorted(flat(x));
  if (x.size() == 0) return {in_order, zeros_like(in_order, {.dtype = DType::kInt64})};
  const Selection s = choose(firsts(in_order), std::span(&in_order, 1));
  return {compress(s, in_order), run_lengths(s)};
}

UniqueInverse unique_inverse(const Array& x) {
  if (is_complex(x.dtype())) {
    UniqueAll all = unique_all(x);
    return {all.values, all.inverse_indices};
  }
  const Array values = unique_values(x);
  return {values, searchsorted(values, x)};
}

UniqueAll unique_all(const Array& x) {
  if (x.size() == 0) {
    const Array none = flat(x), numbers = zeros_like(none, {.dtype = DType::kInt64});
    return {none, numbers, zeros_like(x, {.dtype = DType::kInt64}), numbers};
  }
  // Stable, so that the first of equal values is the one that came first.
  const Ordered line = ordered(flat(x));
  Array kept[] = {line.values, line.numbers};
  const Selection s = choose(firsts(kept[0]), kept);
  const Array values = compress(s, kept[0]);
  return {values, compress(s, kept[1]), inverse(x, values, kept[1], s.mask), run_lengths(s)};
}

}  // namespace tilewise
