#include <tilewise/config/token.h>

#include <sys/stat.h>
#include <cstdlib>
#include <filesystem>

namespace tilewise::config {

Result<std::string> default_token_path() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return std::string(config) + "/tilewise/token";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.config/tilewise/token";
  return error(Errc::kNotFound,
               "no place for the token: neither XDG_CONFIG_HOME nor HOME is set; use --token-file");
}

Result<FoundToken> find_token(const std::string& file, bool create) {
  const char* hex = std::getenv("TILEWISE_TOKEN");
  if (hex != nullptr && *hex != 0) {
    auto token = net::Token::from_hex(hex);
    if (!token) return error(token.error().code, "TILEWISE_TOKEN: " + token.error().message);
    return FoundToken{*token, true, "TILEWISE_TOKEN"};
  }
  std::string path = file;
  if (path.empty()) {
    TW_ASSIGN(path, default_token_path());
  }
  struct stat info {};
  const bool there = lstat(path.c_str(), &info) == 0;
  if (there || !create) {
    auto token = net::Token::load(path);
    if (token) return FoundToken{*token, true, path};
    if (token.error().code == Errc::kNotFound) {
      return error(Errc::kNotFound, "no token at " + path +
                                        ": start the scheduler once on this host, copy its token " +
                                        "here (mode 0600), or set TILEWISE_TOKEN");
    }
    return token.error();
  }
  std::error_code ignored;  // load_or_create reports what matters
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty() && std::filesystem::create_directories(parent, ignored)) {
    std::filesystem::permissions(parent, std::filesystem::perms::owner_all, ignored);
  }
  TW_ASSIGN(net::Token token, net::Token::load_or_create(path));
  return FoundToken{token, false, path};
}

}  // namespace tilewise::config
