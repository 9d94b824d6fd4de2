// What a daemon says: one line an event on stderr, with fields, for people (text) or machines (json). Through spdlog,
// which stays behind log.cc. Libraries do not log; they return values. Any thread.
//
// Nobody waits for whoever reads stderr: lines queue (1 MiB) for a thread that writes them. What finds no room, or cannot be written, is
// counted, and a line says how many are missing. A process that ends waits for the queue for up to kLastPatience; what ends it without
// asking (SIGKILL, SIGSEGV, _exit) may take the last lines with it. A child made by fork() has an empty queue and a thread of its own.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>

#include <chrono>
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

constexpr std::chrono::milliseconds kLastPatience{1'000};

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

// Until what was logged is written, or for so long: before _exit(), which asks nobody. No lock, no memory; in signal handlers too.
// Once that was in vain, nobody waits again.
void flush_log(std::chrono::milliseconds patience = kLastPatience) noexcept;

// Why the program ends, whatever the level: "program: kind: text", or a line of level error where lines are JSON. Written when it
// returns, if the reader takes it.
void log_end(const std::string& program, const Error& why);

// Likewise, with no lock and no memory asked for, and no longer than twice `patience`. `text` needs no quotes in JSON.
void log_last_word(const char* program, const char* text,
                   std::chrono::milliseconds patience = kLastPatience) noexcept;

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
