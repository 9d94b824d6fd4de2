// Who may come in, and as what. Pure but for randomness; the dashboard's thread only.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/config/role.h>

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tilewise::dashboard {

using config::Role;

// Browsers hold a signed cookie, so that they stay logged in when the scheduler is started again with the same token.
class Auth {
 public:
  static constexpr std::int64_t kCookieSeconds = 12 * 3600;
  static constexpr TimeNs kCodeNs = 120 * kSecond;
  static constexpr std::size_t kMaxCodes = 64, kMaxEnded = 1024;

  explicit Auth(const net::Token& token);

  // The token of a role, in constant time.
  std::optional<Role> from_token(std::string_view token) const;
  // "Bearer TOKEN"
  std::optional<Role> from_authorization(std::string_view header) const;

  // `unix_s`: the wall clock of this host, which made the cookie and alone judges it.
  std::string make_cookie(Role role, std::int64_t unix_s) const;
  std::optional<Role> from_cookie(std::string_view value, std::int64_t unix_s) const;
  // Somebody logged out: it is not believed any more, in this life of the scheduler.
  void end(std::string_view cookie);

  // Codes of login links: good once, for two minutes; the oldest goes where there are too many.
  std::string make_code(Role role, TimeNs now);
  std::optional<Role> take_code(std::string_view code, TimeNs now);

 private:
  struct Code {
    std::string text;
    Role role = Role::kReader;
    TimeNs until = 0;
  };
  std::string sign(std::string_view body) const;

  net::Token token_;
  std::string reader_, operator_;
  std::deque<Code> codes_;         // oldest first
  std::deque<std::string> ended_;  // likewise: signatures of cookies that would still be good
};

// One cookie's value from a Cookie header; nothing if it is not there.
std::optional<std::string_view> cookie_of(std::string_view header, std::string_view name);

// Names by which this server may be called, and the pages whose scripts may talk to it.
class Names {
 public:
  // Loopback names of `port`, the address listened on, and `hosts`.
  Names(const std::string& listen_host, std::uint16_t port, std::span<const std::string> hosts);
  bool host(std::string_view header) const;
  bool origin(std::string_view header) const;

 private:
  std::vector<std::string> hosts_;  // lower case, with the port where it is not the scheme's own
};

}  // namespace tilewise::dashboard
