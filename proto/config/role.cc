#include <tilewise/config/role.h>

namespace tilewise::config {

std::string_view name_of(Role role) { return role == Role::kOperator ? "operator" : "reader"; }

std::optional<Role> role_of(std::string_view name) {
  for (const Role role : {Role::kReader, Role::kOperator}) {
    if (name == name_of(role)) return role;
  }
  return std::nullopt;
}

std::string role_token(const net::Token& token, Role role) {
  const std::string_view what = "tilewise dashboard token", who = name_of(role);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(what)), std::as_bytes(std::span(who))};
  return to_hex(token.hmac(pieces));
}

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<unsigned>(b) >> 4];
    out += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

}  // namespace tilewise::config
