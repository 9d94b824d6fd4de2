// The tool's way to a dashboard: HTTP with the token of a role. What the page shows and what the tool prints is the same
// JSON.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/config/role.h>
#include <tilewise/json/json.h>
#include <tilewise/net/address.h>

#include <string>

namespace tilewise::cli {

struct WebOptions {
  std::string dashboard;  // HOST:PORT; empty: the scheduler's host and the usual port
  std::string scheduler, token_file;
  TimeNs timeout_ns = 10 * kSecond;
};

class Web {
 public:
  static constexpr const char* kUsual = "127.0.0.1:7421";
  static constexpr std::uint16_t kUsualSchedulerPort = 7420;  // the dashboard beside it is at kUsual

  static Result<Web> open(const WebOptions& options, config::Role role);
  std::string origin() const;  // "http://127.0.0.1:7421"
  // The body of an answer. Errors: kUnavailable (nobody there), kTimeout, or what the dashboard says.
  Result<std::string> get(const std::string& path) const { return ask("GET", path, {}); }
  Result<std::string> post(const std::string& path, const json::object& body) const;
  Result<json::value> get_json(const std::string& path) const;

 private:
  Web(net::Address address, std::string token, std::string source, TimeNs timeout_ns)
      : address_(std::move(address)),
        token_(std::move(token)),
        source_(std::move(source)),
        timeout_ns_(timeout_ns) {}
  Result<std::string> ask(const std::string& method, const std::string& path, const std::string& body) const;

  net::Address address_;
  std::string token_, source_;  // the latter for people
  TimeNs timeout_ns_;
};

}  // namespace tilewise::cli
