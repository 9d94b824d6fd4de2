// The cluster's shared secret. Who has it may do everything, so it has no way to be printed.
#pragma once
#include <tilewise/base/result.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tilewise::net {

class Token {
 public:
  static constexpr std::size_t kBytes = 32;
  using Mac = std::array<std::byte, 32>;

  // A fresh one from the operating system's randomness.
  static Result<Token> generate();
  // 64 hexadecimal digits (spaces and line ends around them are ignored), e.g. from an environment variable.
  // The error never quotes the text.
  static Result<Token> from_hex(std::string_view hex);
  // A regular file that we own and nobody else may read (no group or other bits), else kPermissionDenied;
  // kNotFound where there is none. Symbolic links are not followed.
  static Result<Token> load(const std::string& path);
  // A new file, mode 0600, that appears complete or not at all; kAlreadyExists where there is one.
  static Result<Token> create(const std::string& path);
  // What a daemon does at start; two that start at once end with the same token.
  static Result<Token> load_or_create(const std::string& path);

  Token(const Token&) = default;
  Token& operator=(const Token&) = default;
  ~Token();

  // HMAC-SHA256 with this token as the key over the pieces, each preceded by its length.
  Mac hmac(std::span<const std::span<const std::byte>> pieces) const;

  friend bool operator==(const Token& a, const Token& b);  // constant time

 private:
  Token() = default;
  std::array<std::byte, kBytes> secret_{};
};

// Constant time: tells nothing about where two proofs differ.
bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b);

// From the operating system's randomness; false if it has none (never seen after boot).
[[nodiscard]] bool fill_random(std::span<std::byte> bytes);

}  // namespace tilewise::net
