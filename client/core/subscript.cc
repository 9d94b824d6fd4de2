// x[terms]: views first, then what arrays pick out of them; and the same as an update.
#include <tilewise/functions.h>

#include <algorithm>
#include <numeric>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::extent;
using client::refuse;

Array reshaped(const Array& a, const Shape& shape) {
  return a.reshape(std::span<const std::int64_t>(shape.data(), shape.size()));
}

// Terms put against the axes of an array. `Picked` axes are those that arrays of indices choose from.
struct Subscript {
  struct AxisTerm {
    int axis = 0;
    IndexTerm term;
  };
  std::vector<AxisTerm> terms;  // those of integers and ranges, axes in rising order
  // Of the view that these and new axes make, in which picked axes are still whole:
  std::vector<int> new_axes, picked;  // positions, in rising order
  std::vector<Array> indices;         // one a picked axis: int64, counted from 0 unless there is one axis
  int place = 0;                      // where the indices' dimensions go among those that are not picked
};

// Checks what needs no data, in the words of the whole array: views that are made one after another would name axes and
// extents of those before them.
void check(const Array& x, int axis, std::size_t number, const IndexTerm& term) {
  const auto where = [&] {
    return " (term " + std::to_string(number) + ", axis " + std::to_string(axis) + ")";
  };
  if (const auto* const at = std::get_if<std::int64_t>(&term.value())) {
    const std::int64_t n = extent(x, axis);
    if (*at < -n || *at >= n)
      refuse(Errc::kOutOfRange,
             "index " + std::to_string(*at) + where() + " is out of bounds for " + std::to_string(n) +
                 " elements",
             x);
  } else if (const auto* const range = std::get_if<Range>(&term.value()); range && range->step == 0) {
    refuse(Errc::kInvalidArgument, "step 0 in a slice" + where(), x);
  } else if (const auto* const array = std::get_if<Array>(&term.value())) {
    if (!ir::is_integer(array->dtype()))
      refuse(Errc::kInvalidArgument, "indices of dtype " + std::string(name_of(array->dtype())) + where(), x);
  }
}

// Indices of x's axis, counted from 0; one out of bounds fails whoever computes them.
Array wrapped(const Array& indices, const Array& x, int axis) {
  const Array wide = client::as_positions(indices);
  const Grid grid = client::computed_cuts(wide);
  const auto kernel = client::builtin_kernel(ir::builtin::WrapIndex{axis, extent(x, axis)},
                                             2.0 * static_cast<double>(client::block_volume(grid)));
  return map_blocks(kernel, std::span(&wide, 1), {client::span_map(wide.rank())}, {{DType::kInt64, grid}})
      .front();
}

template <class T> bool is(const IndexTerm& term) { return std::holds_alternative<T>(term.value()); }
const Array* mask_in(const IndexTerm& term) {
  const Array* const array = std::get_if<Array>(&term.value());
  return array != nullptr && array->dtype() == DType::kBool ? array : nullptr;
}

void check_counts(const Array& x, std::span<const IndexTerm> terms, int& named) {
  int ellipses = 0;
  for (const IndexTerm& t : terms) {
    ellipses += is<Ellipsis>(t);
    const Array* const mask = mask_in(t);
    named += mask != nullptr ? mask->rank() : !is<Ellipsis>(t) && !is<NewAxis>(t);
  }
  if (ellipses > 1)
    refuse(Errc::kInvalidArgument, "an index with " + std::to_string(ellipses) + " ellipses", x);
  if (named > x.rank())
    refuse(Errc::kOutOfRange,
           "an index with terms for " + std::to_string(named) + " axes, not " + std::to_string(x.rank()), x);
}

// The terms with the indices of what is true in the place of each mask, one a dimension of it. Waits for their number, once all
// terms have been looked at.
std::vector<IndexTerm> unmasked(const Array& x, std::span<const IndexTerm> terms) {
  std::vector<IndexTerm> out(terms.begin(), terms.end());
  if (std::none_of(terms.begin(), terms.end(), mask_in)) return out;
  int named = 0, axis = 0;
  check_counts(x, terms, named);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Array* const mask = mask_in(terms[i]);
    if (mask == nullptr) {
      if (is<Ellipsis>(terms[i])) axis += x.rank() - named;
      if (is<Ellipsis>(terms[i]) || is<NewAxis>(terms[i])) continue;
      check(x, axis++, i, terms[i]);
      continue;
    }
    bool fits = true;
    for (int d = 0; fits && d < mask->rank(); ++d) fits = extent(*mask, d) == extent(x, axis + d);
    if (!fits)
      refuse(Errc::kShapeMismatch,
             "a mask of shape " + ir::to_string(mask->shape()) + " (term " + std::to_string(i) +
                 ", from axis " + std::to_string(axis) + ")",
             x);
    axis += mask->rank();
  }
  out.clear();
  for (const IndexTerm& term : terms) {
    const Array* const mask = mask_in(term);
    if (mask == nullptr)
      out.push_back(term);
    else
      for (const Array& indices : nonzero(*mask)) out.push_back(indices);
  }
  return out;
}

Array viewed(const Array& x, const Subscript& s) {
  Array out = x;
  // From the last axis on, so that those before it keep their numbers.
  for (std::size_t i = s.terms.size(); i-- > 0;) {
    const auto& [axis, term] = s.terms[i];
    if (const auto* const range = std::get_if<Range>(&term.value()))
      out = out.slice(axis, range->start, range->stop, range->step);
    else
      out = out.at(axis, std::get<std::int64_t>(term.value()));
  }
  for (const int axis : s.new_axes) out = out.expand_dims(axis);
  return out;
}

// All but the arrays themselves, which are recorded once the rest has been checked.
Subscript subscript(const Array& x, std::span<const IndexTerm> terms) {
  int named = 0;
  check_counts(x, terms, named);
  const bool picks = std::any_of(terms.begin(), terms.end(), is<Array>);
  Subscript out;
  std::vector<std::pair<int, Array>> given;  // axis of x, indices
  int axis = 0, dims = 0;                    // of x, and of the view
  // Integers and arrays side by side are one group, whose place in the result is its first one's; several stand in front.
  bool inside = false;
  int groups = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const IndexTerm& term = terms[i];
    const bool advanced = is<Array>(term) || (is<std::int64_t>(term) && picks);
    if (advanced && !inside && groups++ == 0) out.place = dims;
    inside = advanced;
    if (is<Ellipsis>(term)) {
      axis += x.rank() - named, dims += x.rank() - named;
    } else if (is<NewAxis>(term)) {
      out.new_axes.push_back(dims++);
    } else {
      check(x, axis, i, term);
      if (is<Array>(term))
        out.picked.push_back(dims++), given.emplace_back(axis, std::get<Array>(term.value()));
      else
        out.terms.push_back({axis, term}), dims += is<Range>(term);
      ++axis;
    }
  }
  if (groups > 1) out.place = 0;
  std::vector<Shape> shapes;
  Shape common;
  for (const auto& [at, indices] : given)
    common = client::value_or_throw(ir::broadcast(common, indices.shape()));
  // take() and put() look at the indices of one axis themselves, where they do anything, and name that axis.
  if (given.size() == 1 && out.picked.front() == given.front().first && viewed(x, out).size() > 0 &&
      (given.front().second.rank() == 1 || out.picked.front() == 0)) {
    out.indices.push_back(client::as_positions(given.front().second));
    return out;
  }
  for (const auto& [at, indices] : given) out.indices.push_back(wrapped(indices, x, at));
  return out;
}

std::vector<int> first(std::size_t count, int from = 0) {
  std::vector<int> out(count);
  std::iota(out.begin(), out.end(), from);
  return out;
}

// Several picked axes as one: positions in C order of their extents.
Array position(const Array& view, const Subscript& s) {
  Array out = s.indices.front();
  for (std::size_t i = 1; i < s.indices.size(); ++i)
    out = out * std::max<std::int64_t>(1, extent(view, s.picked[i])) + s.indices[i];
  return out;
}

// The view with its picked axes in front, made one.
Array joined(const Array& view, const Subscript& s) {
  const Array front = moveaxis(view, s.picked, first(s.picked.size()));
  if (s.picked.size() == 1) return front;
  Shape shape(front.shape().begin() + static_cast<std::ptrdiff_t>(s.picked.size()), front.shape().end());
  std::int64_t count = 1;
  for (const int axis : s.picked) count *= extent(view, axis);
  shape.insert(shape.begin(), count);
  return reshaped(front, shape);
}

// put, or put_add.
using Put = Array (*)(const Array&, const Array&, const Array&, std::optional<int>);

// `view` with values where its picked axes' indices are; values have the shape of what is read there.
Array written(Put put, const Array& view, const Subscript& s, const Array& values) {
  const Array at = position(view, s);
  const auto dims = static_cast<std::size_t>(at.rank());
  // A vector of indices needs no other order of dimensions; it is at the values' s.place.
  if (s.picked.size() == 1 && dims == 1)
    return put(view, at, moveaxis(values, s.place, s.picked.front()), s.picked.front());
  const Array front = moveaxis(values, first(dims, s.place), first(dims));
  Shape flat = {at.size()};
  flat.insert(flat.end(), front.shape().begin() + static_cast<std::ptrdiff_t>(dims), front.shape().end());
  const Array from = joined(view, s);
  const Array out = put(from, at.reshape({-1}), reshaped(front, flat), 0);
  const Shape shape = moveaxis(view, s.picked, first(s.picked.size())).shape();
  return moveaxis(reshaped(out, shape), first(s.picked.size()), s.picked);
}

// A mask without dimensions as one of a new dimension of x, which it says whether to keep; the numbers of those are `fresh`.
Array with_masked_axes(Array x, std::vector<IndexTerm>& terms, std::vector<int>& fresh) {
  int named = 0, axis = 0;
  check_counts(x, terms, named);
  for (IndexTerm& term : terms) {
    const Array* const mask = mask_in(term);
    if (mask != nullptr && mask->rank() == 0) {
      x = x.expand_dims(axis);
      fresh.push_back(axis++);
      term = mask->expand_dims(0);
    } else if (is<Ellipsis>(term)) {
      axis += x.rank() - static_cast<int>(fresh.size()) - named;
    } else if (!is<NewAxis>(term)) {
      axis += mask != nullptr ? mask->rank() : 1;
    }
  }
  return x;
}

bool has_bare_mask(std::span<const IndexTerm> terms) {
  return std::any_of(terms.begin(), terms.end(), [](const IndexTerm& term) {
    const Array* const mask = mask_in(term);
    return mask != nullptr && mask->rank() == 0;
  });
}

// The mask, where it is all of the index; else null.
const Array* mask_of(std::span<const IndexTerm> terms) {
  return terms.size() == 1 ? mask_in(terms.front()) : nullptr;
}

// How many are true; the mask is kept, for it will be asked next.
std::int64_t count_true(Array& mask) {
  mask = Access::plain(mask);
  const Array count = count_nonzero(mask);
  Future future =
      Access::state(mask).submit({.fetch = {Access::key(count)}, .hold = {Access::key(mask)}}, {});
  return future.get<std::int64_t>(0).front();
}

Array set_mask(const Array& x, const Array& given, const Array& value, bool add) {
  client::check_mask(x, given);
  Array mask = given;
  const int behind = x.rank() - mask.rank();
  const auto as_x = [&](const Array& m) {
    Array out = m;
    for (int d = 0; d < behind; ++d) out = out.expand_dims(-1);
    return out;
  };
  const auto there = [&](const Array& v) { return where(as_x(mask), add ? x + v : v, x); };
  const auto broadcast = [&](const Array& v) { return there(v.broadcast_to(x.shape())); };
  if (value.rank() <= behind) return broadcast(value);
  if (value.rank() == behind + 1 && extent(value, 0) == 1) return broadcast(value.at(0, 0));
  // An element for each that is true: those before it, counted, are its number.
  const std::int64_t count = count_true(mask);
  if (value.rank() > behind + 1 || extent(value, 0) != count)
    refuse(Errc::kShapeMismatch,
           "a value of shape " + ir::to_string(value.shape()) + " for " + std::to_string(count) +
               " true elements of a mask",
           x);
  if (count == 0) return x;
  Shape rest = {count};
  rest.insert(rest.end(), x.shape().begin() + mask.rank(), x.shape().end());
  const Array numbers = maximum(cumulative_sum(mask.reshape({-1})) - 1, 0);
  return there(take(value.broadcast_to(rest), reshaped(numbers, mask.shape()), 0));
}

// Without arrays: the slices and integers of an index, as ranges of x's axes, and the value in their shape.
Array set_view(const Array& x, const Subscript& s, const Array& value) {
  Array given = value.broadcast_to(viewed(x, s).shape());
  for (std::size_t i = s.new_axes.size(); i-- > 0;) given = given.at(s.new_axes[i], 0);
  std::vector<Slice> where;
  for (const auto& [axis, term] : s.terms) {
    if (const auto* const at = std::get_if<std::int64_t>(&term.value())) {
      const std::int64_t i = *at < 0 ? *at + extent(x, axis) : *at;
      where.push_back({axis, i, i + 1});
      given = given.expand_dims(axis);
    } else {
      const Range& range = std::get<Range>(term.value());
      where.push_back({axis, range.start, range.stop, range.step});
    }
  }
  return set(x, where, given);
}

}  // namespace

Array Array::index(std::span<const IndexTerm> terms) const {
  Access::handle(*this);
  if (const Array* const mask = mask_of(terms)) return boolean_index(*this, *mask);
  if (has_bare_mask(terms)) {
    std::vector<IndexTerm> others(terms.begin(), terms.end());
    std::vector<int> fresh;
    return with_masked_axes(*this, others, fresh).index(others);
  }
  const Subscript s = subscript(*this, unmasked(*this, terms));
  const Array view = viewed(*this, s);
  if (s.picked.empty()) return view;
  const Array at = position(view, s);
  const auto dims = static_cast<std::size_t>(at.rank());
  if (s.picked.size() == 1) {
    const int axis = s.picked.front();
    return moveaxis(take(view, at, axis), first(dims, axis), first(dims, s.place));
  }
  return moveaxis(take(joined(view, s), at, 0), first(dims), first(dims, s.place));
}

namespace {

// set_index, or add_at; the value has x's dtype.
Array updated(const Array& x, const std::vector<IndexTerm>& terms, const Array& given, bool add) {
  if (has_bare_mask(terms)) {
    std::vector<IndexTerm> others = terms;
    std::vector<int> fresh;
    Array out = updated(with_masked_axes(x, others, fresh), others, given, add);
    for (std::size_t i = fresh.size(); i-- > 0;) out = out.squeeze(fresh[i]);
    return out;
  }
  if (const Array* const mask = mask_of(terms)) return set_mask(x, *mask, given, add);
  Subscript s = subscript(x, unmasked(x, terms));
  const Array view = viewed(x, s);
  if (s.picked.empty()) return set_view(x, s, add ? view + given.broadcast_to(view.shape()) : given);
  // The shape of what is read there.
  Shape shape;
  for (const Array& i : s.indices) shape = client::value_or_throw(ir::broadcast(shape, i.shape()));
  Shape kept;
  for (int d = 0; d < view.rank(); ++d)
    if (std::find(s.picked.begin(), s.picked.end(), d) == s.picked.end()) kept.push_back(extent(view, d));
  kept.insert(kept.begin() + s.place, shape.begin(), shape.end());
  const Array out = written(add ? put_add : put, view, s, given.broadcast_to(kept));
  return s.terms.empty() && s.new_axes.empty() ? out : set_view(x, s, out);
}

Array number(const Array& x, const Scalar& value) {
  return Access::record(Access::state(x), nullptr,
                        ir::infer_generate({}, std::nullopt, [&](ir::TapeBuilder& t, auto) {
                          return client::filled(t, value, x.dtype());
                        }));
}

}  // namespace

Array set_index(const Array& x, const std::vector<IndexTerm>& terms, const Array& value) {
  Access::handle(x);
  return updated(x, terms, value.astype(x.dtype()), false);
}

Array set_index(const Array& x, const std::vector<IndexTerm>& terms, const Scalar& value) {
  return set_index(x, terms, number(x, value));
}

Array add_at(const Array& x, const std::vector<IndexTerm>& terms, const Array& value) {
  client::check_addable(x, "add_at");
  const DType wide = ir::is_half(x.dtype()) ? DType::kFloat32 : x.dtype();
  return updated(x.astype(wide), terms, value.astype(x.dtype()).astype(wide), true).astype(x.dtype());
}

Array add_at(const Array& x, const std::vector<IndexTerm>& terms, const Scalar& value) {
  return add_at(x, terms, number(x, value));
}

}  // namespace tilewise
