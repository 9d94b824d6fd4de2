#include "auth.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tilewise::dashboard {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
bool equal(std::string_view a, std::string_view b) { return net::equal_secrets(bytes(a), bytes(b)); }

std::string random_hex() {
  std::array<std::byte, 32> random{};
  // Without randomness nobody is let in: an empty code or nonce is never taken.
  return net::fill_random(random) ? config::to_hex(random) : std::string();
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool is_space(char c) { return c == ' ' || c == '\t'; }

}  // namespace

Auth::Auth(const net::Token& token)
    : token_(token),
      reader_(config::role_token(token, Role::kReader)),
      operator_(config::role_token(token, Role::kOperator)) {}

std::optional<Role> Auth::from_token(std::string_view token) const {
  const bool is_operator = equal(token, operator_), is_reader = equal(token, reader_);
  if (is_operator) return Role::kOperator;
  if (is_reader) return Role::kReader;
  return std::nullopt;
}

std::optional<Role> Auth::from_authorization(std::string_view header) const {
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() <= kScheme.size() || lower(header.substr(0, kScheme.size())) != kScheme)
    return std::nullopt;
  header.remove_prefix(kScheme.size());
  while (!header.empty() && is_space(header.front())) header.remove_prefix(1);
  return from_token(header);
}

std::string Auth::sign(std::string_view body) const {
  const std::span<const std::byte> pieces[] = {bytes("tilewise dashboard session"), bytes(body)};
  return config::to_hex(token_.hmac(pieces));
}

std::string Auth::make_cookie(Role role, std::int64_t unix_s) const {
  const std::string body = std::string(config::name_of(role)) + "." +
                           std::to_string(unix_s + kCookieSeconds) + "." + random_hex().substr(0, 16);
  return body + "." + sign(body);
}

std::optional<Role> Auth::from_cookie(std::string_view value, std::int64_t unix_s) const {
  const std::size_t dot = value.rfind('.');
  if (dot == std::string_view::npos || !equal(value.substr(dot + 1), sign(value.substr(0, dot))))
    return std::nullopt;
  if (std::find(ended_.begin(), ended_.end(), value.substr(dot + 1)) != ended_.end()) return std::nullopt;
  // Signed by us, so it has the form that make_cookie gives it.
  const std::size_t first = value.find('.');
  std::int64_t until = 0;
  std::from_chars(value.data() + first + 1, value.data() + dot, until);
  if (unix_s >= until || until - unix_s > kCookieSeconds) return std::nullopt;
  return config::role_of(value.substr(0, first));
}

void Auth::end(std::string_view cookie) {
  const std::size_t dot = cookie.rfind('.');
  if (dot == std::string_view::npos || !equal(cookie.substr(dot + 1), sign(cookie.substr(0, dot)))) return;
  ended_.emplace_back(cookie.substr(dot + 1));
  if (ended_.size() > kMaxEnded) ended_.pop_front();
}

std::string Auth::make_code(Role role, TimeNs now) {
  codes_.push_back({random_hex(), role, now + kCodeNs});
  if (codes_.size() > kMaxCodes) codes_.pop_front();
  return codes_.back().text;
}

std::optional<Role> Auth::take_code(std::string_view code, TimeNs now) {
  std::erase_if(codes_, [&](const Code& c) { return now >= c.until; });
  // All are looked at: how long it takes says nothing about which was near.
  auto found = codes_.end();
  for (auto it = codes_.begin(); it != codes_.end(); ++it) {
    if (!it->text.empty() && equal(it->text, code)) found = it;
  }
  if (found == codes_.end()) return std::nullopt;
  const Role role = found->role;
  codes_.erase(found);
  return role;
}

std::optional<std::string_view> cookie_of(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    const std::size_t end = std::min(header.find(';'), header.size());
    std::string_view pair = header.substr(0, end);
    header.remove_prefix(std::min(end + 1, header.size()));
    while (!pair.empty() && is_space(pair.front())) pair.remove_prefix(1);
    while (!pair.empty() && is_space(pair.back())) pair.remove_suffix(1);
    const std::size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) return pair.substr(equals + 1);
  }
  return std::nullopt;
}

Names::Names(const std::string& listen_host, std::uint16_t port, std::span<const std::string> hosts) {
  const std::string suffix = ":" + std::to_string(port);
  for (const std::string& name :
       {std::string("127.0.0.1"), std::string("localhost"), std::string("[::1]"),
        listen_host.find(':') != std::string::npos ? "[" + listen_host + "]" : listen_host}) {
    hosts_.push_back(lower(name) + suffix);
    if (port == 80) hosts_.push_back(lower(name));
  }
  for (const std::string& host : hosts) {
    hosts_.push_back(lower(host));
    const bool has_port = host.find(':') != std::string::npos && host.back() != ']';
    if (!has_port) hosts_.push_back(lower(host) + suffix);
  }
}

bool Names::host(std::string_view header) const {
  return std::find(hosts_.begin(), hosts_.end(), lower(header)) != hosts_.end();
}

bool Names::origin(std::string_view header) const {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (header.starts_with(scheme)) return host(header.substr(scheme.size()));
  }
  return false;
}

}  // namespace tilewise::dashboard
