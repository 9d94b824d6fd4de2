#include "temp_path.h"

#include <algorithm>

namespace tilewise::io {

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

Result<std::string> temp_path(const std::string& final_path, std::string_view token) {
  const auto fine = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  };
  if (token.empty() || token.size() > 64 || !std::all_of(token.begin(), token.end(), fine)) {
    return error(Errc::kInvalidArgument, final_path +
                                             ": a token is 1 to 64 letters, digits, '_' or '-', not " +
                                             std::to_string(token.size()) + " characters of something else");
  }
  const auto slash = final_path.rfind('/');
  const std::size_t start = slash == std::string::npos ? 0 : slash + 1;
  const std::string name = final_path.substr(start);
  if (name.empty() || name == "." || name == ".." || name.find('\0') != std::string::npos) {
    return error(Errc::kInvalidArgument, final_path + ": names no file");
  }
  return final_path.substr(0, start) + "." + name + "." + std::string(token) + ".partial";
}

}  // namespace tilewise::io
