// What the tool reads of a dashboard's JSON. Members that are missing, or something else than expected, read as nothing: another
// version may be at the other end.
#pragma once
#include <tilewise/base/text.h>
#include <tilewise/base/utf8.h>
#include <tilewise/json/json.h>

#include <string>
#include <string_view>

namespace tilewise::cli {

inline const json::value* member(const json::value& v, const char* key) {
  const auto* object = v.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}
inline double number(const json::value& v, const char* key) {
  const json::value* found = member(v, key);
  return found != nullptr && found->is_number() ? found->to_number<double>() : 0;
}
inline long long whole(const json::value& v, const char* key) {
  return static_cast<long long>(number(v, key));
}
inline std::string text(const json::value& v, const char* key) {
  const json::value* found = member(v, key);
  return found != nullptr && found->is_string() ? printable(std::string_view(found->get_string()))
                                                : std::string();
}
inline const json::array& list(const json::value& v, const char* key) {
  static const json::array kNone;
  const json::value* found = member(v, key);
  return found != nullptr && found->is_array() ? found->get_array() : kNone;
}

}  // namespace tilewise::cli
