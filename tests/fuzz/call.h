// One call of a script, and what the tables of ops are made of.
//
//   call NAME RESULTS OPERANDS KEY=VALUE...      call sum 3 1 axes=0,-1 keepdims=1
//
// Results and operands are numbers of arrays, with commas between them; "-" is none of them, operand 0 is an array that is left out.
// A key that is absent, or an accessor's default, is what the library does when it is not told.
#pragma once
#include <tilewise/tilewise.h>

#include <concepts>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewise::fuzz {

// The line cannot be read, or names what is not there: a mistake of the generator, never of the library.
struct ScriptError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::vector<std::string> split(std::string_view text, char separator);  // of "": nothing
std::int64_t to_integer(const std::string& text);
std::vector<std::int64_t> to_integers(const std::string& text);  // "3,-1"; "-": none

class Call {
 public:
  Call(const Session& session, std::vector<Array> operands, const std::vector<std::string>& named);

  const Session& session() const { return session_; }
  const std::vector<Array>& operands() const { return operands_; }
  std::size_t count() const { return operands_.size(); }
  const Array& operator[](std::size_t i) const { return operands_.at(i); }

  bool has(const std::string& key) const { return named_.contains(key); }
  const std::string& text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key) const { return has(key) && text(key) == "1"; }
  std::int64_t integer(const std::string& key) const { return to_integer(text(key)); }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const;
  std::optional<std::int64_t> integer_or_none(const std::string& key) const;
  std::optional<int> axis(const std::string& key = "axis") const;
  double number(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::optional<double> number_or_none(const std::string& key) const;
  Scalar scalar(const std::string& key = "scalar") const;  // "i:5", "u:5", "b:1", "f:0.5", "c:1:-2"
  DType dtype(const std::string& key = "dtype") const;
  std::optional<DType> dtype_or_none(const std::string& key = "dtype") const;
  std::vector<std::int64_t> integers(const std::string& key) const { return to_integers(text(key)); }
  std::vector<int> axis_list(const std::string& key) const;
  Axes axes(const std::string& key = "axes") const;
  Shape shape(const std::string& key = "shape") const;
  Shape block() const { return has("block") ? shape("block") : Shape{}; }
  // Of Array::index: "i:3", "r:START:STOP:STEP", "e" (ellipsis), "n" (new axis), "a" (the next operand, from `first_array` on), with
  // semicolons between them.
  std::vector<IndexTerm> terms(std::size_t first_array) const;
  std::vector<Slice> slices() const;  // of set(): "AXIS:START:STOP:STEP", with semicolons between them

 private:
  const Session& session_;
  std::vector<Array> operands_;
  std::map<std::string, std::string> named_;
};

// A function of a call that gives an array, or several.
class Op {
 public:
  template <std::invocable<const Call&> F>
  Op(F function)
      : run_([function](const Call& call) -> std::vector<Array> {
          if constexpr (std::same_as<std::invoke_result_t<F, const Call&>, Array>)
            return {function(call)};
          else
            return function(call);
        }) {}
  std::vector<Array> operator()(const Call& call) const { return run_(call); }

 private:
  std::function<std::vector<Array>(const Call&)> run_;
};

// By name; one table for each family of cases/, in the file ops_FAMILY.cc.
using Ops = std::map<std::string, Op>;
Ops elementwise_ops();
Ops movement_ops();
Ops reduction_ops();
Ops indexing_ops();
Ops counting_ops();
Ops linalg_ops();
Ops creation_ops();

}  // namespace tilewise::fuzz
