#include <tilewise/base/utf8.h>
#include <tilewise/json/json.h>

namespace tilewise::json {
std::string utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = utf8_sequence(text);
    if (size == 0)
      out += "\xEF\xBF\xBD";
    else
      out += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

}  // namespace tilewise::json
