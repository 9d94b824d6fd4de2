// The rules of special_values_table.h, on every real and complex dtype: subject and reference.
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <sstream>

#include "conformance/harness.h"
#include "conformance/special_values_table.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;
using ir::TapeOp;
using Doubles = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Number {  // expected: a value, whose sign may be left open
  double value = 0;
  bool any_sign = false;
};
struct Rule {
  std::string text;
  double a[2] = {};  // both arguments of a real function, both parts of a complex one
  Number want[2] = {};
};
using Rules = std::map<std::string, std::vector<Rule>>;  // by function

double angle_of(const std::string& word) {  // [-][3]pi[/n]
  const std::size_t pi = word.find("pi");
  const std::string before = word.substr(0, pi);
  const double times = before.empty() || before == "-" ? (before == "-" ? -1 : 1) : std::stod(before);
  const double over = word.size() > pi + 2 ? std::stod(word.substr(pi + 3)) : 1;
  return times * std::numbers::pi / over;
}
double number_of(const std::string& word) {
  return word.find("pi") != std::string::npos ? angle_of(word) : std::stod(word);  // reads inf and nan too
}

// What a word stands for as an argument. All values are numbers of every dtype.
Doubles values_of(const std::string& word) {
  const Doubles small = {0.25, 0.5}, large = {1.5, 2, 3, 100};
  const auto joined = [](Doubles a, const Doubles& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const auto negated = [](Doubles a) {
    for (double& v : a) v = -v;
    return a;
  };
  const Doubles pos = joined(joined(small, {1}), large), neg = negated(pos), zeros = {0.0, -0.0};
  const std::map<std::string, Doubles> classes = {
      {"~inf", {kInf, -kInf}},
      {"~0", zeros},
      {"pos", pos},
      {"neg", neg},
      {"nonzero", joined(pos, neg)},
      {"fin", joined(joined(pos, neg), zeros)},
      {"any", joined(joined(joined(pos, neg), zeros), {kInf, -kInf, kNan})},
      {">0", joined(pos, {kInf})},
      {"<0", joined(neg, {-kInf})},
      {">1", joined(large, {kInf})},
      {"<-1", joined(negated(large), {-kInf})},
      {"<1", joined(joined(joined(neg, zeros), small), {-kInf})},
      {"|<1|", joined(joined(small, negated(small)), zeros)},
      {"|>1|", joined(joined(large, negated(large)), {kInf, -kInf})},
      {"odd", {1, 3, 7}},
      {"even", {2, 4, 100}},
      {"half", {0.5, 1.5, 2.5}},
      {"-odd", {-1, -3, -7}},
      {"-even", {-2, -4, -100}},
      {"-half", {-0.5, -1.5, -2.5}}};
  const auto known = classes.find(word);
  return known != classes.end() ? known->second : Doubles{number_of(word)};
}

Number wanted(const std::string& word, double x, double y) {
  if (word == "true" || word == "false") return {word == "true" ? 1.0 : 0.0};
  if (word == "x") return {x};
  if (word == "y") return {y};
  if (word == "|x|") return {std::fabs(x)};
  if (word == "-|x|") return {-std::fabs(x)};
  if (word == "|y|") return {std::fabs(y)};
  if (word[0] == '~') return {number_of(word.substr(1)), true};
  return {number_of(word)};
}

Rules parsed(const char* table) {
  Rules rules;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, word;
    if (!(words >> name)) continue;
    std::vector<std::string> arguments, results;
    while (words >> word && word != "=") arguments.push_back(word);
    while (words >> word) results.push_back(word);
    REQUIRE_MESSAGE((!arguments.empty() && !results.empty()), line);
    for (const double x : values_of(arguments[0])) {
      for (const double y : arguments.size() > 1 ? values_of(arguments[1]) : Doubles{0}) {
        Rule rule{line, {x, y}, {}};
        for (std::size_t k = 0; k < results.size(); ++k) rule.want[k] = wanted(results[k], x, y);
        rules[name].push_back(rule);
      }
    }
  }
  return rules;
}

// ---- what follows from a rule ------------------------------------------------------------------------------------------

Number minus(Number n) { return {-n.value, n.any_sign}; }
Number times(Number n, double factor) { return {n.value * factor, n.any_sign}; }

void add_conjugates(std::vector<Rule>& rules) {
  const std::size_t n = rules.size();
  for (std::size_t i = 0; i < n; ++i) {
    Rule r = rules[i];
    r.text += ", conjugate";
    r.a[1] = -r.a[1];
    r.want[1] = minus(r.want[1]);
    rules.push_back(r);
  }
}
void add_negatives(std::vector<Rule>& rules, bool odd) {
  const std::size_t n = rules.size();
  for (std::size_t i = 0; i < n; ++i) {
    Rule r = rules[i];
    r.text += ", negative";
    for (double& part : r.a) part = -part;
    if (odd)
      for (Number& part : r.want) part = minus(part);
    rules.push_back(r);
  }
}
// Rules of -i f(i z) (or f(i z)) from those of f.
std::vector<Rule> turned(const std::vector<Rule>& rules, bool back) {
  std::vector<Rule> out;
  for (Rule r : rules) {
    r.text += ", times i";
    const double re = r.a[0];
    r.a[0] = r.a[1], r.a[1] = -re;
    if (back) {
      const Number part = r.want[0];
      r.want[0] = r.want[1], r.want[1] = minus(part);
    }
    out.push_back(r);
  }
  return out;
}

Rules complex_rules() {
  Rules rules = parsed(kComplexRules);
  for (auto& [name, list] : rules) add_conjugates(list);
  for (const char* odd : {"sinh", "tanh", "asinh", "atanh"}) add_negatives(rules[odd], true);
  add_negatives(rules["cosh"], false);
  for (const char* name : {"sin", "tan", "asin", "atan"})
    rules[name] = turned(rules[std::string(name) + "h"], true);
  rules["cos"] = turned(rules["cosh"], false);
  for (const auto& [name, factor] :
       {std::pair{"log2", std::numbers::log2e}, std::pair{"log10", std::numbers::log10e}}) {
    rules[name] = rules["log"];
    for (Rule& r : rules[name])
      for (Number& part : r.want) part = times(part, factor);
  }
  return rules;
}

// ---- running them ------------------------------------------------------------------------------------------------------

// Two units in the last place and a little: constants are rounded on their way.
bool same(double got, Number want, DType t) {
  if (std::isnan(want.value)) return std::isnan(got);
  const bool signs_fit = want.any_sign || std::signbit(got) == std::signbit(want.value);
  const double g = std::fabs(got), w = std::fabs(want.value);
  if (w == 0 || std::isinf(w)) return g == w && signs_fit;
  const double unit = t == DType::kFloat16                                           ? 0x1p-10
                      : t == DType::kBFloat16                                        ? 0x1p-7
                      : ir::real_dtype(t) == DType::kFloat32 || t == DType::kFloat32 ? 0x1p-23
                                                                                     : 0x1p-52;
  return signs_fit && std::fabs(g - w) <= 2.5 * unit * w;
}

void compare(const std::string& who, TapeOp op, const std::vector<Rule>& rules, const Array& got) {
  const bool is_complex = ir::is_complex(got.dtype);
  const bool truth = got.dtype == DType::kBool;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const auto e = static_cast<std::int64_t>(i);
    const double re = truth ? static_cast<double>(got.as_int(e)) : got.as_double(e);
    const double im = is_complex ? got.imaginary(e) : 0;
    const Rule& r = rules[i];
    const bool right = same(re, r.want[0], got.dtype) && (!is_complex || same(im, r.want[1], got.dtype));
    CHECK_MESSAGE(right, who, " ", std::string(ir::name_of(op)), ".", std::string(ir::name_of(got.dtype)),
                  " of ", r.a[0], " ", r.a[1], " is ", re, " ", im, "; rule: ", r.text);
  }
}

void check_rules(const Subject& subject, const std::string& name, const std::vector<Rule>& rules, DType t) {
  int op = 0;
  while (op < static_cast<int>(TapeOp::kCount) && ir::name_of(static_cast<TapeOp>(op)) != name) ++op;
  REQUIRE_MESSAGE(op < static_cast<int>(TapeOp::kCount), name);
  const auto which = static_cast<TapeOp>(op);
  const int arity = ir::arity_of(which);
  const std::vector<DType> types(static_cast<std::size_t>(arity), t);
  ir::Tape tape;
  for (int k = 0; k < arity; ++k) tape.code.push_back(instr(TapeOp::kLoad, t, 0, 0, 0, k));
  bool fits = false;
  for (const DType out : {t, ir::real_dtype(t), DType::kBool}) {
    tape.code.resize(static_cast<std::size_t>(arity));
    tape.code.push_back(instr(which, out, 0, arity > 1 ? 1 : 0, 0, 5));
    fits = static_cast<bool>(tape.verify(arity, types, 1));
    if (fits) break;
  }
  REQUIRE_MESSAGE(fits, name);
  const ir::Shape shape = {static_cast<std::int64_t>(rules.size())};
  std::vector<Array> inputs;
  for (int k = 0; k < arity; ++k) {
    Array a = Array::contiguous(t, shape);
    for (std::size_t i = 0; i < rules.size(); ++i)
      a.set(static_cast<std::int64_t>(i), rules[i].a[k], 0, rules[i].a[1]);
    inputs.push_back(std::move(a));
  }
  Step step = map_step(tape, std::move(inputs), ir::box_of(shape), shape);
  Step reference = step;
  run(subject, step);
  run_reference(reference);
  compare("subject:", which, rules, step.outputs[0]);
  compare("reference:", which, rules, reference.outputs[0]);
}

}  // namespace

void conform_special_values(const Subject& subject) {
  for (const auto& [name, rules] : parsed(kRealRules))
    for (const DType t : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64})
      check_rules(subject, name, rules, t);
  for (const auto& [name, rules] : complex_rules())
    for (const DType t : {DType::kComplex64, DType::kComplex128}) check_rules(subject, name, rules, t);
}

}  // namespace tilewise::kernels::conformance
