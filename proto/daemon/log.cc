#include <tilewise/base/text.h>
#include <tilewise/base/utf8.h>
#include <tilewise/daemon/log.h>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <pthread.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>

#include "log_writer.h"

namespace tilewise::daemon {
namespace {

LogTap log_tap;                           // set once, as the next
std::atomic<bool> json_lines{false};      // set once by start_log, before other threads start
std::atomic<bool> given_up{false};        // at the end of the process: whoever reads was waited for, once
std::atomic<LogWriter*> writer{nullptr};  // set by start_log, and in a child

class Sink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override { writer.load()->put(line(message)); }
  std::string line(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t text;
    const std::lock_guard lock(mutex_);
    formatter_->format(message, text);
    return {text.data(), text.size()};
  }
  void flush() override {}
  void set_pattern(const std::string& pattern) override {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    const std::lock_guard lock(mutex_);
    formatter_ = std::move(formatter);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_ = std::make_unique<spdlog::pattern_formatter>();
};

Sink* sink = nullptr;  // set once by start_log

std::string body_of(std::string_view event, std::initializer_list<Field> fields);

// The same for whoever logs and for what is said past the logger's level.
std::string line_of(Sink& sink, const std::string& program, spdlog::level::level_enum level,
                    const std::string& body) {
  return sink.line(
      spdlog::details::log_msg(spdlog::string_view_t(program), level, spdlog::string_view_t(body)));
}

std::string dropped_line(Sink& sink, const std::string& program, std::uint64_t lines) {
  return line_of(
      sink, program, spdlog::level::warn,
      body_of("lines of the log are missing here: they could not be written in time", {{"lines", lines}}));
}

void before_fork() { writer.load()->lock(); }
void after_fork() { writer.load()->unlock(); }
// What is queued is the parent's to write.
void in_child() {
  writer = new LogWriter(writer.load()->options());
  given_up = false;
}

// A bug (TW_CHECK), or an exception that nobody catches: what was logged before is the story.
void on_abort(int signal) {
  flush_log();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Both last as long as the process, whatever of it has been taken down: the writer's thread uses them.
void start_writer(const std::string& program) {
  sink = new Sink();
  writer = new LogWriter({.fd = STDERR_FILENO, .note = [program](std::uint64_t lines) {
                            return dropped_line(*sink, program, lines);
                          }});
  pthread_atfork(before_fork, after_fork, in_child);
  std::atexit([] { flush_log(); });
  std::signal(SIGABRT, on_abort);
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// As JSON has it, but bytes that are no UTF-8 stay what they are: \xFF.
std::string quoted(std::string_view value) {
  std::string out = "\"";
  for (std::size_t size = 0; !value.empty(); value.remove_prefix(size == 0 ? 1 : size)) {
    size = utf8_sequence(value);
    if (size == 0) {
      append(out, "\\x%02X", static_cast<unsigned>(static_cast<unsigned char>(value[0])));
    } else {
      const std::string json = json_quote(value.substr(0, size));
      out.append(json, 1, json.size() - 2);
    }
  }
  return out + '"';
}

// A text value is quoted where it would not read as one word.
std::string word(const std::string& value) {
  const bool plain =
      !value.empty() && is_printable(value) && value.find_first_of(" \t\n\r\"=\\") == std::string::npos;
  return plain ? value : quoted(value);
}

std::string body_of(std::string_view event, std::initializer_list<Field> fields) {
  std::string line;
  if (json_lines) {
    line = "\"event\":" + json_quote(event);
    for (const Field& f : fields) line += "," + json_quote(f.key) + ":" + json_quote(f.value);
  } else {
    line = std::string(event);
    for (const Field& f : fields) line += " " + std::string(f.key) + "=" + word(f.value);
  }
  return line;
}

}  // namespace

Status start_log(std::string_view program, std::string_view level, std::string_view format) {
  if (format != "text" && format != "json") {
    return error(Errc::kInvalidArgument, "log format '" + std::string(format) + "' is neither text nor json");
  }
  spdlog::level::level_enum at = spdlog::level::info;
  if (level == "debug")
    at = spdlog::level::debug;
  else if (level == "info")
    at = spdlog::level::info;
  else if (level == "warn")
    at = spdlog::level::warn;
  else if (level == "error")
    at = spdlog::level::err;
  else if (level == "off")
    at = spdlog::level::off;
  else
    return error(Errc::kInvalidArgument,
                 "log level '" + std::string(level) + "' is none of debug, info, warn, error, off");
  const std::string name(program);
  if (sink == nullptr) start_writer(name);
  auto logger = std::make_shared<spdlog::logger>(name, std::shared_ptr<Sink>(sink, [](Sink*) {}));
  logger->set_level(at);
  json_lines = format == "json";
  if (json_lines)
    logger->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","program":"%n","pid":%P,"level":"%l",%v})");
  else
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n[%P] %l: %v");
  spdlog::set_default_logger(std::move(logger));
  return {};
}

void set_log_tap(LogTap tap) { log_tap = std::move(tap); }

void log(LogLevel level, std::string_view event, std::initializer_list<Field> fields) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  const auto at = level_of(level);
  if (!logger->should_log(at)) return;
  if (log_tap) log_tap(level, event, fields);
  const std::string line = body_of(event, fields);
  logger->log(at, spdlog::string_view_t(line.data(), line.size()));
}

void flush_log(std::chrono::milliseconds patience) noexcept {
  const LogWriter* const there = writer.load();
  if (there != nullptr && !given_up) given_up = !there->drain(patience);
}

void log_end(const std::string& program, const Error& why) {
  std::string text = to_string(why);
  std::replace(text.begin(), text.end(), '\n', ' ');
  text = printable(text);
  LogWriter* const there = writer.load();
  if (there == nullptr) return write_in_time(STDERR_FILENO, program + ": " + text + "\n", kLastPatience);
  if (json_lines)
    there->put(line_of(*sink, program, spdlog::level::err,
                       body_of("ending", {{"cause", name_of(why.code)}, {"why", why.message}})));
  else
    there->put(program + ": " + text + "\n");
  flush_log();
}

void log_last_word(const char* program, const char* text, std::chrono::milliseconds patience) noexcept {
  flush_log(patience);
  std::array<char, 1024> line{};
  int size = 0;
  if (json_lines) {
    const std::time_t now = std::time(nullptr);
    std::tm at{};
    gmtime_r(&now, &at);  // localtime_r() takes a lock
    size = std::snprintf(
        line.data(), line.size(),
        R"({"time":"%04d-%02d-%02dT%02d:%02d:%02d.000+00:00","program":"%s","pid":%d,"level":"error","event":"ending","why":"%s"})"
        "\n",
        at.tm_year + 1900, at.tm_mon + 1, at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec, program, getpid(),
        text);
  } else {
    size = std::snprintf(line.data(), line.size(), "%s: %s\n", program, text);
  }
  const auto whole = std::min(static_cast<std::size_t>(std::max(size, 0)), line.size() - 1);
  write_in_time(STDERR_FILENO, {line.data(), whole}, patience);
}

std::string to_string(const Error& error) { return std::string(name_of(error.code)) + ": " + error.message; }

}  // namespace tilewise::daemon
