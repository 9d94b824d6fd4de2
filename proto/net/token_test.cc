#include <tilewise/net/token.h>

#include "net_test_util.h"
#include "temp_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

using namespace tilewise;
using namespace tilewise::net;
using tilewise::testing::TempFolder;

namespace {

Errc code_of(const Result<Token>& token) { return token ? Errc::kOk : token.error().code; }

const std::string kHex = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

}  // namespace

TEST_CASE("a token comes from hexadecimal text") {
  auto token = Token::from_hex(kHex);
  REQUIRE(token);
  CHECK(*token == Token::from_hex("\n " + kHex + "\r\n").value());
  std::string other = kHex;
  other[63] = 'e';
  CHECK(!(*token == Token::from_hex(other).value()));
  other[63] = 'g';
  for (const std::string& bad : {std::string(), kHex.substr(1), kHex + "0", other}) {
    auto refused = Token::from_hex(bad);
    CHECK(code_of(refused) == Errc::kInvalidArgument);
    if (!bad.empty()) CHECK(refused.error().message.find(bad.substr(0, 8)) == std::string::npos);
  }
}

TEST_CASE("the HMAC is HMAC-SHA256 and pieces do not run into each other") {
  // RFC 4231 test case 1 has another key length; so compared with libcrypto's own answer for
  // length-prefixed input: printf '\x02\0\0\0ab' | openssl dgst -sha256 -mac HMAC -macopt hexkey:$kHex
  auto mac = [](std::vector<std::string> texts) {
    std::vector<std::span<const std::byte>> pieces;
    for (const std::string& text : texts) pieces.push_back(std::as_bytes(std::span(text)));
    return Token::from_hex(kHex).value().hmac(pieces);
  };
  std::string hex;
  for (std::byte b : mac({"ab"})) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", std::to_integer<int>(b));
    hex += digits;
  }
  CHECK(hex == "d331f7cdcaf54d5fff614159e015814e69136e4a0b27bb5b6c56ccc0ca387a13");
  CHECK(mac({"ab", "c"}) != mac({"a", "bc"}));
  CHECK(mac({"ab", ""}) != mac({"ab"}));
}

TEST_CASE("a token file is created once, mode 0600, and read back") {
  TempFolder dir;
  const std::string path = dir.path() + "/token";
  CHECK(code_of(Token::load(path)) == Errc::kNotFound);
  auto made = Token::create(path);
  REQUIRE(made);
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(Token::load(path).value() == *made);
  CHECK(code_of(Token::create(path)) == Errc::kAlreadyExists);
  CHECK(Token::load(path).value() == *made);
  CHECK(Token::load_or_create(path).value() == *made);
  // No temporary file stays behind.
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
  CHECK(!(Token::create(dir.path() + "/other").value() == *made));
}

TEST_CASE("a token file that others could read, or that is no file, is refused") {
  TempFolder dir;
  const std::string path = dir.path() + "/token";
  REQUIRE(Token::create(path));
  for (mode_t mode : {0640, 0604, 0620, 0601}) {
    ::chmod(path.c_str(), mode);
    CHECK(code_of(Token::load(path)) == Errc::kPermissionDenied);
    CHECK(code_of(Token::load_or_create(path)) == Errc::kPermissionDenied);
  }
  ::chmod(path.c_str(), 0400);
  CHECK(Token::load(path));
  const std::string linked = dir.path() + "/link";
  REQUIRE(::symlink(path.c_str(), linked.c_str()) == 0);
  CHECK(!Token::load(linked));
  CHECK(code_of(Token::load(dir.path())) == Errc::kPermissionDenied);
  const std::string garbage = dir.path() + "/garbage";
  std::ofstream(garbage) << "not a token";
  ::chmod(garbage.c_str(), 0600);
  CHECK(code_of(Token::load(garbage)) == Errc::kInvalidArgument);
  CHECK(!Token::create(dir.path() + "/no/such/dir"));
}

TEST_CASE("daemons that start at once agree on the token") {
  TempFolder dir;
  for (int round = 0; round < 20; ++round) {
    const std::string path = dir.path() + "/token" + std::to_string(round);
    std::vector<Result<Token>> tokens(4, error(Errc::kInternal, "not run"));
    std::vector<std::thread> threads;
    for (auto& token : tokens) threads.emplace_back([&] { token = Token::load_or_create(path); });
    for (auto& thread : threads) thread.join();
    for (auto& token : tokens) {
      REQUIRE(token);
      CHECK(*token == *tokens[0]);
    }
  }
}
