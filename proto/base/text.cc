#include <tilewise/base/text.h>
#include <tilewise/base/utf8.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace tilewise {

std::string json_quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t size = 0; !text.empty(); text.remove_prefix(size == 0 ? 1 : size)) {
    size = utf8_sequence(text);
    const auto last = static_cast<unsigned char>(text[size == 2 ? 1 : 0]);
    if (size == 0)
      out += "\xEF\xBF\xBD";
    else if (text[0] == '"' || text[0] == '\\')
      (out += '\\') += text[0];
    else if (text[0] == '\n')
      out += "\\n";
    else if (last < 0x20 || last == 0x7F || (text[0] == '\xC2' && last < 0xA0))
      ((out += "\\u00") += kHex[last >> 4]) += kHex[last & 15];
    else
      out += text.substr(0, size);
  }
  return out + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string seconds_text(double seconds) {
  if (seconds == 0) return "0 s";
  static constexpr const char* kUnits[] = {"s", "ms", "us", "ns"};
  int unit = 0;
  for (; std::fabs(seconds) < 0.9995 && unit < 3; ++unit) seconds *= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %s", seconds, kUnits[unit]);
  return text;
}

void append(std::string& out, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  out += text;
}

}  // namespace tilewise
