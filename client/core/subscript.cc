// Array::index: x[terms], as views.
#include <tilewise/array.h>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::Access;
using client::extent;
using client::refuse;

// Terms put against the axes of an array.
struct Subscript {
  struct AxisTerm {
    int axis = 0;
    IndexTerm term;
  };
  std::vector<AxisTerm> terms;  // those of integers and ranges, axes in rising order
  std::vector<int> new_axes;    // in the result, in rising order
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
  }
}

Subscript subscript(const Array& x, std::span<const IndexTerm> terms) {
  int named = 0, ellipses = 0;
  for (const IndexTerm& t : terms) {
    const bool ellipsis = std::holds_alternative<Ellipsis>(t.value());
    ellipses += ellipsis;
    named += !ellipsis && !std::holds_alternative<NewAxis>(t.value());
  }
  if (ellipses > 1)
    refuse(Errc::kInvalidArgument, "an index with " + std::to_string(ellipses) + " ellipses", x);
  if (named > x.rank())
    refuse(Errc::kOutOfRange,
           "an index with terms for " + std::to_string(named) + " axes, not " + std::to_string(x.rank()), x);
  Subscript out;
  int axis = 0, dims = 0;  // of x, and of the result
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const IndexTerm::Value& value = terms[i].value();
    if (std::holds_alternative<Ellipsis>(value)) {
      axis += x.rank() - named, dims += x.rank() - named;
    } else if (std::holds_alternative<NewAxis>(value)) {
      out.new_axes.push_back(dims++);
    } else {
      check(x, axis, i, terms[i]);
      out.terms.push_back({axis++, terms[i]});
      dims += std::holds_alternative<Range>(value);
    }
  }
  return out;
}

}  // namespace

Array Array::index(std::span<const IndexTerm> terms) const {
  Access::handle(*this);
  const Subscript s = subscript(*this, terms);
  Array out = *this;
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

}  // namespace tilewise
