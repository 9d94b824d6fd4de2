// Sums of products named by letters. Each operand is first made one without an axis twice and without what only it has and nobody wants;
// then two at a time become one, the cheapest pair first, by a product of matrices where something is summed over.
#include <tilewise/functions.h>
#include <tilewise/linalg.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "builtin_call.h"

namespace tilewise {
namespace {

using client::extent;
using client::refuse;

// Letters; the axes that "..." stands for are digits, '0' the last one.
using Labels = std::string;

bool has(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
Labels dots(int count) {
  Labels out;
  for (int i = count; i > 0; --i) out.push_back(static_cast<char>('0' + i - 1));
  return out;
}

struct Term {
  Array array;
  Labels labels;  // one an axis
};

struct Extents {
  std::array<std::int64_t, 128> of{};
  std::int64_t operator[](char label) const { return of[static_cast<std::size_t>(label)]; }
  std::int64_t& operator[](char label) { return of[static_cast<std::size_t>(label)]; }
  double volume(const Labels& labels) const {
    return std::accumulate(labels.begin(), labels.end(), 1.0,
                           [&](double all, char label) { return all * static_cast<double>((*this)[label]); });
  }
  Shape shape(const Labels& labels) const {
    Shape out;
    for (const char label : labels) out.push_back((*this)[label]);
    return out;
  }
};

// ---- the subscripts ----

class Subscripts {
 public:
  Subscripts(std::string_view given, std::span<const Array> operands) : given_(given) {
    Labels text;
    for (const char c : given)
      if (c != ' ') text.push_back(c);
    const std::size_t arrow = text.find("->");
    for (const char c : text.substr(0, arrow))
      if (c == ',')
        terms_.emplace_back();
      else
        terms_.back().push_back(c);
    if (terms_.size() != operands.size())
      fail(Errc::kInvalidArgument,
           std::to_string(terms_.size()) + " terms for " + std::to_string(operands.size()) + " operands");
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      const Labels named = checked(terms_[i], where(i));
      const bool open = named.size() != terms_[i].size();
      const int rank = operands[i].rank(), letters = static_cast<int>(named.size());
      if (open ? letters > rank : letters != rank)
        fail(Errc::kShapeMismatch, where(i) + " has letters for " + std::to_string(letters) + " axes",
             operands[i]);
      most_dots_ = std::max(most_dots_, rank - letters);
      inputs_.push_back(expanded(terms_[i], rank - letters));
    }
    output_ = arrow == Labels::npos ? implied() : told(text.substr(arrow + 2));
  }

  const std::vector<Labels>& inputs() const { return inputs_; }
  const Labels& output() const { return output_; }
  std::string where(std::size_t i) const { return "term " + std::to_string(i) + ", '" + terms_[i] + "',"; }
  [[noreturn]] void fail(Errc code, const std::string& what) const {
    throw ArrayError(code, "einsum '" + given_ + "': " + what);
  }
  [[noreturn]] void fail(Errc code, const std::string& what, const Array& operand) const {
    refuse(code, "einsum '" + given_ + "': " + what, operand);
  }

 private:
  // Its letters, without the dots.
  Labels checked(const Labels& term, const std::string& name) const {
    const std::size_t at = term.find("...");
    Labels letters = term;
    if (at != Labels::npos) letters.erase(at, 3);
    for (const char c : letters)
      if (!is_letter(c)) fail(Errc::kInvalidArgument, name + " has '" + c + "', which is no letter");
    return letters;
  }
  static Labels expanded(Labels term, int count) {
    if (const std::size_t at = term.find("..."); at != Labels::npos) term.replace(at, 3, dots(count));
    return term;
  }
  // In the order of the alphabet what comes once, behind what "..." stands for.
  Labels implied() const {
    Labels all, once;
    for (const Labels& term : inputs_) all += term;
    for (const char c : all)
      if (is_letter(c) && std::count(all.begin(), all.end(), c) == 1) once.push_back(c);
    std::sort(once.begin(), once.end());
    return dots(most_dots_) + once;
  }
  Labels told(const Labels& text) const {
    const std::string name = "the result, '" + text + "',";
    const Labels letters = checked(text, name);
    for (const char c : letters) {
      if (std::count(letters.begin(), letters.end(), c) > 1)
        fail(Errc::kInvalidArgument, name + " has '" + c + "' twice");
      if (std::none_of(inputs_.begin(), inputs_.end(), [&](const Labels& term) { return has(term, c); }))
        fail(Errc::kInvalidArgument, name + " has '" + c + "', which no term has");
    }
    if (letters.size() == text.size() && most_dots_ > 0)
      fail(Errc::kInvalidArgument, name + " leaves out the axes of '...'");
    return expanded(text, most_dots_);
  }

  std::string given_;
  std::vector<Labels> terms_ = {{}};  // as given
  std::vector<Labels> inputs_;
  Labels output_;
  int most_dots_ = 0;
};

// ---- one term ----

Term without(const Term& term, const std::vector<int>& axes, const Array& less) {
  Term out{less, {}};
  for (int d = 0; d < term.array.rank(); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end())
      out.labels.push_back(term.labels[static_cast<std::size_t>(d)]);
  return out;
}

Term permuted(const Term& term, const Labels& order) {
  if (term.labels == order) return term;
  std::vector<int> axes;
  for (const char label : order) axes.push_back(static_cast<int>(term.labels.find(label)));
  return {term.array.permute(axes), order};
}

// Of an axis that comes twice the diagonal, behind the others.
Term with_diagonals(Term term) {
  for (std::size_t i = 0; i < term.labels.size();) {
    const char label = term.labels[i];
    const std::size_t other = term.labels.find(label, i + 1);
    if (other == Labels::npos) {
      ++i;
      continue;
    }
    const std::vector<int> both = {static_cast<int>(i), static_cast<int>(other)};
    term = without(term, both, diagonal(moveaxis(term.array, both, {-2, -1})));
    term.labels.push_back(label);
    i = 0;
  }
  return term;
}

// Extents of 1 beside longer ones broadcast: such a term does not have that axis.
Term without_ones(const Term& term, const Extents& extents) {
  std::vector<int> ones;
  for (int d = 0; d < term.array.rank(); ++d)
    if (extent(term.array, d) != extents[term.labels[static_cast<std::size_t>(d)]]) ones.push_back(d);
  return ones.empty() ? term : without(term, ones, term.array.squeeze(Axes(ones)));
}

// Summed over what is not wanted.
Term summed_over(const Term& term, const Labels& wanted) {
  std::vector<int> axes;
  for (int d = 0; d < term.array.rank(); ++d)
    if (!has(wanted, term.labels[static_cast<std::size_t>(d)])) axes.push_back(d);
  if (axes.empty()) return term;
  return without(term, axes, sum(term.array, Axes(axes), false, term.array.dtype()));
}

// ---- two terms ----

// What becomes of the axes of two terms of which neither has one alone that is not wanted.
struct Pair {
  Labels stacked, summed, left, right;

  Pair(const Labels& a, const Labels& b, const Labels& wanted) {
    for (const char label : a)
      if (!has(b, label))
        left.push_back(label);
      else if (has(wanted, label))
        stacked.push_back(label);
      else
        summed.push_back(label);
    for (const char label : b)
      if (!has(a, label)) right.push_back(label);
  }
  Labels result() const { return stacked + left + right; }
};

Array reshaped_to(const Array& a, const Shape& shape) {
  return a.shape() == shape ? a : a.reshape(std::span<const std::int64_t>(shape.data(), shape.size()));
}

Term product(const Term& a, const Term& b, const Pair& pair, const Extents& extents) {
  if (pair.summed.empty()) {
    Array left = permuted(a, pair.stacked + pair.left).array,
          right = permuted(b, pair.stacked + pair.right).array;
    for (std::size_t i = 0; i < pair.right.size(); ++i) left = left.expand_dims(-1);
    const int stacked = static_cast<int>(pair.stacked.size());
    for (std::size_t i = 0; i < pair.left.size(); ++i) right = right.expand_dims(stacked);
    return {left * right, pair.result()};
  }
  if (pair.stacked.empty()) {
    std::vector<int> axes_a, axes_b;
    for (const char label : pair.summed) {
      axes_a.push_back(static_cast<int>(a.labels.find(label)));
      axes_b.push_back(static_cast<int>(b.labels.find(label)));
    }
    return {tensordot(a.array, b.array, axes_a, axes_b), pair.result()};
  }
  const auto volume = [&](const Labels& labels) {
    return client::value_or_throw(ir::checked_volume(extents.shape(labels)));
  };
  const std::int64_t rows = volume(pair.left), inner = volume(pair.summed), columns = volume(pair.right);
  Shape stack = extents.shape(pair.stacked);
  if (stack.size() + 2 > static_cast<std::size_t>(limits::kMaxRank)) stack = {volume(pair.stacked)};
  const auto matrices = [&](const Term& term, const Labels& order, std::int64_t m, std::int64_t n) {
    Shape shape = stack;
    shape.push_back(m), shape.push_back(n);
    return reshaped_to(permuted(term, order).array, shape);
  };
  const Array out = matmul(matrices(a, pair.stacked + pair.left + pair.summed, rows, inner),
                           matrices(b, pair.stacked + pair.summed + pair.right, inner, columns));
  return {reshaped_to(out, extents.shape(pair.result())), pair.result()};
}

// ---- all terms ----

// What the result or another than these two terms has.
Labels wanted_beside(const std::vector<Term>& terms, std::size_t i, std::size_t j, const Labels& output) {
  Labels wanted = output;
  for (std::size_t k = 0; k < terms.size(); ++k)
    if (k != i && k != j) wanted += terms[k].labels;
  return wanted;
}

// The pair that takes the fewest products, of such the one with the smallest result, and that fits the library's dimensions.
std::pair<std::size_t, std::size_t> cheapest(const std::vector<Term>& terms, const Labels& output,
                                             const Extents& extents) {
  std::pair<std::size_t, std::size_t> best{};
  std::pair<double, double> least{};
  for (std::size_t j = 1; j < terms.size(); ++j)
    for (std::size_t i = 0; i < j; ++i) {
      const Pair pair(terms[i].labels, terms[j].labels, wanted_beside(terms, i, j, output));
      if (pair.result().size() > static_cast<std::size_t>(limits::kMaxRank)) continue;
      const std::pair cost{extents.volume(pair.result() + pair.summed), extents.volume(pair.result())};
      if (best.second == 0 || cost < least) best = {i, j}, least = cost;
    }
  return best;
}

Extents extents_of(const Subscripts& subscripts, std::span<const Array> operands) {
  Extents extents;
  extents.of.fill(1);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Labels& term = subscripts.inputs()[i];
    for (std::size_t d = 0; d < term.size(); ++d) {
      const char label = term[d];
      const std::int64_t n = extent(operands[i], static_cast<int>(d));
      // An axis of the same term has to be as long; one of another term may be 1.
      const std::int64_t first = extent(operands[i], static_cast<int>(term.find(label)));
      const std::int64_t other = first != n ? first : extents[label];
      if (first != n || (n != 1 && other != 1 && other != n))
        subscripts.fail(Errc::kShapeMismatch,
                        subscripts.where(i) + " has " + std::to_string(n) + " elements along '" +
                            (is_letter(label) ? Labels(1, label) : "...") + "', beside " +
                            std::to_string(other),
                        operands[i]);
      if (n != 1) extents[label] = n;
    }
  }
  return extents;
}

}  // namespace

Array einsum(std::string_view subscripts, const std::vector<Array>& operands) {
  if (operands.empty()) throw ArrayError(Errc::kInvalidArgument, "einsum of no operands");
  const Subscripts read(subscripts, operands);
  const Extents extents = extents_of(read, operands);
  DType common = operands.front().dtype();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].dtype() == DType::kBool)
      read.fail(Errc::kInvalidArgument,
                "operand " + std::to_string(i) + " is of bool: cast to a number first", operands[i]);
    common = ir::common_dtype(common, operands[i].dtype());
  }
  // Of two 16-bit floats a product of matrices is rounded once as it is.
  const DType wide = ir::is_half(common) && operands.size() > 2 ? DType::kFloat32 : common;
  std::vector<Term> terms;
  for (std::size_t i = 0; i < operands.size(); ++i)
    terms.push_back(without_ones(with_diagonals({operands[i].astype(wide), read.inputs()[i]}), extents));
  for (std::size_t i = 0; i < terms.size(); ++i)
    terms[i] = summed_over(terms[i], wanted_beside(terms, i, i, read.output()));
  while (terms.size() > 1) {
    const auto [i, j] = cheapest(terms, read.output(), extents);
    if (j == 0)
      read.fail(Errc::kLimitExceeded, "more than " + std::to_string(limits::kMaxRank) + " axes on the way");
    const Pair pair(terms[i].labels, terms[j].labels, wanted_beside(terms, i, j, read.output()));
    terms[i] = product(terms[i], terms[j], pair, extents);
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
  }
  return permuted(terms.front(), read.output()).array.astype(common);
}

}  // namespace tilewise
