// Where a file or folder is while it is written.
#pragma once
#include <tilewise/base/result.h>

#include <string>
#include <string_view>

namespace tilewise::io {

// "/folder/.name.token.partial". kInvalidArgument for a token that is not 1 to 64 letters, digits, '_' or '-'.
Result<std::string> temp_path(const std::string& final_path, std::string_view token);
// The folder that `path` lies in.
std::string folder_of(const std::string& path);

}  // namespace tilewise::io
