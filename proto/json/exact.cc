// Boost.JSON 1.81 reads a number's digits into a double as it goes, and may be off by a few units of the last place.
#include <tilewise/json/json.h>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>

namespace tilewise::json {

namespace {

using Text = boost::json::string_view;
using Ec = boost::json::error_code;

// What boost::json::parse() does, but for numbers with a fraction or an exponent.
struct Builder {
  static constexpr std::size_t max_object_size = boost::json::object::max_size();
  static constexpr std::size_t max_array_size = boost::json::array::max_size();
  static constexpr std::size_t max_key_size = boost::json::string::max_size();
  static constexpr std::size_t max_string_size = boost::json::string::max_size();

  bool on_document_begin(Ec&) { return true; }
  bool on_document_end(Ec&) { return true; }
  bool on_object_begin(Ec&) { return true; }
  bool on_object_end(std::size_t n, Ec&) { return stack.push_object(n), true; }
  bool on_array_begin(Ec&) { return true; }
  bool on_array_end(std::size_t n, Ec&) { return stack.push_array(n), true; }
  bool on_key_part(Text part, std::size_t, Ec&) { return stack.push_chars(part), true; }
  bool on_key(Text last, std::size_t, Ec&) { return stack.push_key(last), true; }
  bool on_string_part(Text part, std::size_t, Ec&) { return stack.push_chars(part), true; }
  bool on_string(Text last, std::size_t, Ec&) { return stack.push_string(last), true; }
  bool on_number_part(Text part, Ec&) { return number.append(part.data(), part.size()), true; }
  bool on_int64(std::int64_t i, Text, Ec&) { return number.clear(), stack.push_int64(i), true; }
  bool on_uint64(std::uint64_t u, Text, Ec&) { return number.clear(), stack.push_uint64(u), true; }
  bool on_double(double near, Text last, Ec&) {
    number.append(last.data(), last.size());
    double exact = near;  // and what has no double: infinity, or 0
    const auto read = std::from_chars(number.data(), number.data() + number.size(), exact);
    stack.push_double(read.ec == std::errc() ? exact : near);
    number.clear();
    return true;
  }
  bool on_bool(bool b, Ec&) { return stack.push_bool(b), true; }
  bool on_null(Ec&) { return stack.push_null(), true; }
  bool on_comment_part(Text, Ec&) { return true; }
  bool on_comment(Text, Ec&) { return true; }

  boost::json::value_stack stack;
  std::string number;
};

}  // namespace

value parse_exactly(std::string_view text, boost::system::error_code& ec) {
  boost::json::basic_parser<Builder> parser(boost::json::parse_options{});
  parser.handler().stack.reset();
  const std::size_t read = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && read < text.size()) ec = boost::json::error::extra_data;
  return ec ? value() : parser.handler().stack.release();
}

}  // namespace tilewise::json
