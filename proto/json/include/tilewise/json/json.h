// JSON for the dashboard and the tool: Boost.JSON's own types, and text that may come from anybody.
#pragma once
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewise::json {

using boost::json::array;
using boost::json::object;
using boost::json::value;

// What is not UTF-8 becomes U+FFFD: a name may hold any bytes, a JSON text may not.
std::string utf8(std::string_view text);

// As boost::json::parse(), with each number's nearest double.
value parse_exactly(std::string_view text, boost::system::error_code& ec);

// Ids of 64 bits do not fit a number of JavaScript.
inline std::string id_text(std::uint64_t id) { return std::to_string(id); }

}  // namespace tilewise::json
