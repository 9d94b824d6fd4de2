#include <tilewise/base/text.h>
#include <tilewise/daemon/log.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

namespace tilewise::daemon {
namespace {

LogTap log_tap;                       // set once, as the next
std::atomic<bool> json_lines{false};  // set once by start_log, before other threads start

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// A text value is quoted where it would not read as one word.
std::string word(const std::string& value) {
  const bool plain = !value.empty() && value.find_first_of(" \t\n\r\"=\\") == std::string::npos;
  return plain ? value : json_quote(value);
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
  auto logger = std::make_shared<spdlog::logger>(std::string(program),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(at);
  logger->flush_on(spdlog::level::debug);
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
  std::string line;
  if (json_lines) {
    line = "\"event\":" + json_quote(event);
    for (const Field& f : fields) line += "," + json_quote(f.key) + ":" + json_quote(f.value);
  } else {
    line = std::string(event);
    for (const Field& f : fields) line += " " + std::string(f.key) + "=" + word(f.value);
  }
  logger->log(at, spdlog::string_view_t(line.data(), line.size()));
}

std::string to_string(const Error& error) { return std::string(name_of(error.code)) + ": " + error.message; }

}  // namespace tilewise::daemon
