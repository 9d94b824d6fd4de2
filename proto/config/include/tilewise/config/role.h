// What people are let in for at the dashboard, and the token that proves it. Both tokens follow from the cluster's own, so
// nothing more has to be kept or handed out; nothing about the cluster's token follows from them.
#pragma once
#include <tilewise/net/token.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tilewise::config {

enum class Role : std::uint8_t {
  kReader = 0,   // sees everything, changes nothing
  kOperator = 1  // may also cancel graphs and release arrays
};
std::string_view name_of(Role role);  // "reader", "operator"
std::optional<Role> role_of(std::string_view name);

std::string role_token(const net::Token& token, Role role);  // 64 hexadecimal digits

std::string to_hex(std::span<const std::byte> bytes);

}  // namespace tilewise::config
