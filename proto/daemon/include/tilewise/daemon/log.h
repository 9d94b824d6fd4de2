// What a daemon says: one line an event on stderr, with fields, for people (text) or machines (json). Through spdlog,
// which stays behind log.cc. Libraries do not log; they return values. Any thread.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tilewise::daemon {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError };

struct Field {
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  template <class T>
  requires std::is_arithmetic_v<T> Field(std::string_view k, T v) : key(k), value(std::to_string(v)) {}
  std::string_view key;
  std::string value;
};

// Once, in main(). `level`: debug, info, warn, error or off; `format`: text or json. kInvalidArgument for others.
Status start_log(std::string_view program, std::string_view level, std::string_view format);

// Every line that is logged goes here too, whoever logs it and on whatever thread. Once, before other threads start.
using LogTap = std::function<void(LogLevel, std::string_view event, std::initializer_list<Field> fields)>;
void set_log_tap(LogTap tap);

void log(LogLevel level, std::string_view event, std::initializer_list<Field> fields = {});

inline void log_debug(std::string_view event, std::initializer_list<Field> f = {}) {
  log(LogLevel::kDebug, event, f);
}
inline void log_info(std::string_view event, std::initializer_list<Field> f = {}) {
  log(LogLevel::kInfo, event, f);
}
inline void log_warn(std::string_view event, std::initializer_list<Field> f = {}) {
  log(LogLevel::kWarn, event, f);
}
inline void log_error(std::string_view event, std::initializer_list<Field> f = {}) {
  log(LogLevel::kError, event, f);
}

// For what may come again and again: one in 30 s is worth a line, and how many there were since the last one that was. One thread.
class Seldom {
 public:
  explicit Seldom(TimeNs every_ns = 30 * kSecond) : every_ns_(every_ns) {}
  // 0: say nothing of this one.
  std::int64_t count(TimeNs now) {
    ++since_;
    if (last_ && now - *last_ < every_ns_) return 0;
    last_ = now;
    return std::exchange(since_, 0);
  }

 private:
  TimeNs every_ns_;
  std::optional<TimeNs> last_;
  std::int64_t since_ = 0;
};

// "kind: text", for fields and for the last line of a program.
std::string to_string(const Error& error);

}  // namespace tilewise::daemon
