#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <tilewise/base/check.h>
#include <tilewise/net/fd.h>
#include <tilewise/net/token.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "os_error.h"

namespace tilewise::net {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

Error not_found_or(std::string_view what, int err) {
  if (err == ENOENT) return error(Errc::kNotFound, std::string(what) + ": no such file");
  return os_error(what, err);
}

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("write token file", errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(fd) != 0) return os_error("sync token file", errno);
  return {};
}

// Before any other call of it: a program may call exit() while links are being made on another thread, and the clean-up that libcrypto
// registers with its first use would take away what that uses.
void keep_libcrypto() {
  [[maybe_unused]] static const int kept = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

}  // namespace

bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool fill_random(std::span<std::byte> bytes) {
  keep_libcrypto();
  return RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) == 1;
}

Token::~Token() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

bool operator==(const Token& a, const Token& b) { return equal_secrets(a.secret_, b.secret_); }

Result<Token> Token::generate() {
  Token token;
  if (!fill_random(token.secret_)) return error(Errc::kInternal, "no randomness for a token");
  return token;
}

Result<Token> Token::from_hex(std::string_view hex) {
  hex = trim(hex);
  if (hex.size() != 2 * kBytes) {
    return error(Errc::kInvalidArgument, "a token is 64 hexadecimal digits, this text has " +
                                             std::to_string(hex.size()) + " characters");
  }
  Token token;
  for (std::size_t i = 0; i < kBytes; ++i) {
    int high = digit_of(hex[2 * i]);
    int low = digit_of(hex[2 * i + 1]);
    if (high < 0 || low < 0) return error(Errc::kInvalidArgument, "a token is 64 hexadecimal digits");
    token.secret_[i] = static_cast<std::byte>(high * 16 + low);
  }
  return token;
}

Result<Token> Token::load(const std::string& path) {
  const std::string what = "token file " + path;
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return not_found_or(what, errno);
  // Checked on the open file, not on the name, which could change between the two.
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return os_error(what, errno);
  if (!S_ISREG(info.st_mode)) return error(Errc::kPermissionDenied, what + " is not a regular file");
  if (info.st_uid != ::geteuid()) return error(Errc::kPermissionDenied, what + " belongs to another user");
  if ((info.st_mode & 077) != 0) {
    return error(Errc::kPermissionDenied, what + " may be used by others: its mode must be 0600");
  }
  char text[256];
  ssize_t n = ::read(fd.get(), text, sizeof(text));
  if (n < 0) return os_error(what, errno);
  Result<Token> token = from_hex({text, static_cast<std::size_t>(n)});
  OPENSSL_cleanse(text, sizeof(text));
  if (!token) return error(token.error().code, what + ": " + token.error().message);
  return token;
}

Result<Token> Token::create(const std::string& path) {
  const std::string what = "token file " + path;
  TW_ASSIGN(Token token, generate());
  // Written under a private name and linked into place: link() does not replace, and a daemon that
  // starts at the same moment never reads half a token.
  std::uint64_t nonce = 0;
  if (!fill_random(std::as_writable_bytes(std::span(&nonce, 1))))
    return error(Errc::kInternal, "no randomness");
  const std::string temporary = path + ".new" + std::to_string(nonce);
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return not_found_or(what, errno);
  std::string text;
  for (std::byte b : token.secret_) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<int>(b) >> 4];
    text += kDigits[std::to_integer<int>(b) & 15];
  }
  text += '\n';
  Status written = write_all(fd.get(), text);
  OPENSSL_cleanse(text.data(), text.size());
  int linked = written ? ::link(temporary.c_str(), path.c_str()) : 0;
  int link_error = errno;
  ::unlink(temporary.c_str());
  TW_TRY(written);
  if (linked != 0 && link_error == EEXIST) return error(Errc::kAlreadyExists, what + " is there already");
  if (linked != 0) return os_error(what, link_error);
  return token;
}

Result<Token> Token::load_or_create(const std::string& path) {
  Result<Token> token = load(path);
  if (token || token.error().code != Errc::kNotFound) return token;
  token = create(path);
  if (token || token.error().code != Errc::kAlreadyExists) return token;
  return load(path);
}

Token::Mac Token::hmac(std::span<const std::span<const std::byte>> pieces) const {
  // Lengths go in too, so that no two lists of pieces give the same input.
  std::vector<std::byte> input;
  for (std::span<const std::byte> piece : pieces) {
    std::uint32_t size = static_cast<std::uint32_t>(piece.size());
    auto size_bytes = std::as_bytes(std::span(&size, 1));
    input.insert(input.end(), size_bytes.begin(), size_bytes.end());
    input.insert(input.end(), piece.begin(), piece.end());
  }
  keep_libcrypto();
  Mac mac{};
  unsigned int mac_bytes = 0;
  auto* out = HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
                   reinterpret_cast<const unsigned char*>(input.data()), input.size(),
                   reinterpret_cast<unsigned char*>(mac.data()), &mac_bytes);
  TW_CHECK(out != nullptr && mac_bytes == mac.size(), "libcrypto has no HMAC-SHA256");
  return mac;
}

}  // namespace tilewise::net
