#include <tilewise/base/text.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace tilewise {

std::string json_quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else if (byte < 0x20)
      ((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
    else
      out += c;
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
