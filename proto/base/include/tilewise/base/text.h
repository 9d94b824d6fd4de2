// Numbers and strings as text, for people and for JSON.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tilewise {

// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

// A JSON number; null for what is none.
std::string json_number(double value);

// "1.5 GiB"; "0 B".
std::string bytes_text(std::int64_t bytes);

// "1.24 ms"; "0 s".
std::string seconds_text(double seconds);

// As printf, onto the end of `out`; what is longer than 511 bytes is cut there.
[[gnu::format(printf, 2, 3)]] void append(std::string& out, const char* format, ...);

}  // namespace tilewise
