// The files of the page, as they were bundled.
#pragma once
#include <span>
#include <string_view>

namespace tilewise::dashboard {

struct PageFile {
  std::string_view path;  // "/app.js"
  std::string_view bytes;
};
std::span<const PageFile> page_files();

}  // namespace tilewise::dashboard
