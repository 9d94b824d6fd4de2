// Texts that may come from anybody, for terminals and for JSON.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tilewise {

// Bytes of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none (Unicode 15, table 3-7).
std::size_t utf8_sequence(std::string_view text);

// Well-formed UTF-8 without control characters (C0, DEL, C1).
bool is_printable(std::string_view text);

// What would move a terminal's cursor, or worse, and what is not UTF-8, becomes a question mark.
std::string printable(std::string_view text);

}  // namespace tilewise
