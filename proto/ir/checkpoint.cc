#include <tilewise/ir/checkpoint.h>

#include <cstdio>
#include <sstream>

namespace tilewise::ir::checkpoint {

// Numbers on the first line, then one text a line; the last may be anything.

std::string name_of(std::uint64_t id) {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(id));
  return name;
}

std::string path_of(const File& file) { return file.folder + '/' + name_of(file.id); }

std::string text(const File& file) {
  return std::to_string(file.id) + ' ' + std::to_string(file.bytes) + '\n' + file.array + '\n' + file.folder;
}

std::string text(const Folder& folder) {
  std::string out = std::to_string(folder.cluster) + (folder.first ? " 1 " : " 0 ") +
                    std::to_string(folder.below) + ' ' + std::to_string(folder.keep.size());
  for (const std::uint64_t id : folder.keep) out += ' ' + std::to_string(id);
  return out + '\n' + folder.path;
}

Result<File> parse_file(std::string_view text) {
  std::istringstream in{std::string(text)};
  File file;
  if (!(in >> file.id >> file.bytes) || file.bytes < 0 || in.get() != '\n' || !std::getline(in, file.array) ||
      !std::getline(in, file.folder, '\0') || file.folder.empty())
    return error(Errc::kInvalidArgument, "a checkpoint: malformed parameters");
  return file;
}

Result<Folder> parse_folder(std::string_view text) {
  std::istringstream in{std::string(text)};
  Folder folder;
  std::size_t kept = 0;
  const auto wrong = error(Errc::kInvalidArgument, "a folder of checkpoints: malformed parameters");
  if (!(in >> folder.cluster >> folder.first >> folder.below >> kept) || kept > text.size()) return wrong;
  for (std::size_t i = 0; i < kept; ++i) {
    if (!(in >> folder.keep.emplace_back())) return wrong;
  }
  if (in.get() != '\n' || !std::getline(in, folder.path, '\0') || folder.path.empty()) return wrong;
  return folder;
}

}  // namespace tilewise::ir::checkpoint
