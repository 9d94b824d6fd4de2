#include "call.h"

#include <cstdlib>

namespace tilewise::fuzz {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto end = text.find(separator);
    out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) out.emplace_back();
  }
  return out;
}

std::int64_t to_integer(const std::string& text) {
  std::size_t used = 0;
  try {
    const std::int64_t value = std::stoll(text, &used);
    if (used == text.size()) return value;
  } catch (const std::logic_error&) {
  }
  throw ScriptError("no integer: '" + text + "'");
}

std::vector<std::int64_t> to_integers(const std::string& text) {
  std::vector<std::int64_t> out;
  if (text == "-") return out;
  for (const std::string& part : split(text, ',')) out.push_back(to_integer(part));
  return out;
}

namespace {

double to_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);  // "nan" and "inf" too
  if (text.empty() || *end != '\0') throw ScriptError("no number: '" + text + "'");
  return value;
}

std::optional<std::int64_t> to_bound(const std::string& text) {
  if (text.empty()) return {};
  return to_integer(text);
}

std::vector<int> narrowed(const std::vector<std::int64_t>& wide) { return {wide.begin(), wide.end()}; }

}  // namespace

Call::Call(const Session& session, std::vector<Array> operands, const std::vector<std::string>& named)
    : session_(session), operands_(std::move(operands)) {
  for (const std::string& word : named) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) throw ScriptError("not KEY=VALUE: '" + word + "'");
    named_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

const std::string& Call::text(const std::string& key) const {
  const auto found = named_.find(key);
  if (found == named_.end()) throw ScriptError("the argument '" + key + "' is missing");
  return found->second;
}

std::string Call::text(const std::string& key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

std::int64_t Call::integer(const std::string& key, std::int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}

std::optional<std::int64_t> Call::integer_or_none(const std::string& key) const {
  if (!has(key)) return {};
  return integer(key);
}

std::optional<int> Call::axis(const std::string& key) const {
  if (!has(key)) return {};
  return static_cast<int>(integer(key));
}

double Call::number(const std::string& key) const { return to_number(text(key)); }

std::vector<double> Call::numbers(const std::string& key) const {
  std::vector<double> out;
  for (const std::string& part : split(text(key), ',')) out.push_back(to_number(part));
  return out;
}

std::optional<double> Call::number_or_none(const std::string& key) const {
  if (!has(key)) return {};
  return number(key);
}

Scalar Call::scalar(const std::string& key) const {
  const std::vector<std::string> parts = split(text(key), ':');
  if (parts.size() == 2 && parts[0] == "b") return parts[1] == "1";
  if (parts.size() == 2 && parts[0] == "i") return to_integer(parts[1]);
  if (parts.size() == 2 && parts[0] == "u") return static_cast<std::uint64_t>(std::stoull(parts[1]));
  if (parts.size() == 2 && parts[0] == "f") return to_number(parts[1]);
  if (parts.size() == 3 && parts[0] == "c")
    return std::complex<double>(to_number(parts[1]), to_number(parts[2]));
  throw ScriptError("no scalar: '" + text(key) + "'");
}

DType Call::dtype(const std::string& key) const {
  const auto known = ir::dtype_named(text(key));
  if (!known) throw ScriptError("what dtype is '" + text(key) + "'");
  return *known;
}

std::optional<DType> Call::dtype_or_none(const std::string& key) const {
  if (!has(key)) return {};
  return dtype(key);
}

std::vector<int> Call::axis_list(const std::string& key) const { return narrowed(integers(key)); }

Axes Call::axes(const std::string& key) const { return has(key) ? Axes(axis_list(key)) : Axes(); }

Shape Call::shape(const std::string& key) const {
  Shape out;
  for (const std::int64_t extent : integers(key)) out.push_back(extent);
  return out;
}

std::vector<IndexTerm> Call::terms(std::size_t first_array) const {
  std::vector<IndexTerm> out;
  for (const std::string& term : split(text("terms"), ';')) {
    const std::vector<std::string> parts = split(term, ':');
    if (term == "e") {
      out.emplace_back(kEllipsis);
    } else if (term == "n") {
      out.emplace_back(kNewAxis);
    } else if (term == "a") {
      out.emplace_back((*this)[first_array++]);
    } else if (parts.size() == 2 && parts[0] == "i") {
      out.emplace_back(to_integer(parts[1]));
    } else if (parts.size() == 4 && parts[0] == "r") {
      out.emplace_back(Range{to_bound(parts[1]), to_bound(parts[2]), to_integer(parts[3])});
    } else {
      throw ScriptError("no term of an index: '" + term + "'");
    }
  }
  return out;
}

std::vector<Slice> Call::slices() const {
  std::vector<Slice> out;
  for (const std::string& slice : split(text("slices"), ';')) {
    const std::vector<std::string> parts = split(slice, ':');
    if (parts.size() != 4) throw ScriptError("no slice: '" + slice + "'");
    out.push_back({static_cast<int>(to_integer(parts[0])), to_bound(parts[1]), to_bound(parts[2]),
                   to_integer(parts[3])});
  }
  return out;
}

}  // namespace tilewise::fuzz
