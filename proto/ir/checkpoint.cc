#include <tilewise/base/limits.h>
#include <tilewise/ir/checkpoint.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace tilewise::ir::checkpoint {

// Numbers on the first line, then one text a line; the last may be anything.

std::string name_of(std::uint64_t id) {
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(id));
  return name;
}

namespace {

// Extent, number of starts and those; or, where they are uniform, 0, their distance and phase.
std::string text(const Grid& grid) {
  std::string out = ' ' + std::to_string(grid.rank());
  const auto add = [&](std::int64_t number) { out += ' ' + std::to_string(number); };
  for (const DimGrid& dim : grid.dims()) {
    add(dim.extent());
    add(static_cast<std::int64_t>(dim.starts().size()));
    if (dim.is_uniform())
      add(dim.block()), add(dim.phase());
    else
      std::for_each(dim.starts().begin(), dim.starts().end(), add);
  }
  return out;
}

Result<DimGrid> parse_dim(std::istream& in) {
  const auto wrong = error(Errc::kInvalidArgument, "a checkpoint: malformed blocks");
  std::int64_t extent = -1, count = -1;
  if (!(in >> extent >> count) || count < 0 || count > limits::kMaxExplicitCuts) return wrong;
  std::vector<std::int64_t> numbers(count > 0 ? static_cast<std::size_t>(count) : 2);
  for (std::int64_t& number : numbers) {
    if (!(in >> number)) return wrong;
  }
  return count > 0 ? DimGrid::cuts(extent, std::move(numbers))
                   : DimGrid::uniform(extent, numbers[0], numbers[1]);
}

Result<Grid> parse_grid(std::istream& in) {
  int rank = -1;
  if (!(in >> rank) || rank < 0 || rank > limits::kMaxRank)
    return error(Errc::kInvalidArgument, "a checkpoint: malformed blocks");
  std::vector<DimGrid> dims;
  for (int d = 0; d < rank; ++d) {
    TW_ASSIGN(DimGrid dim, parse_dim(in));
    dims.push_back(std::move(dim));
  }
  Grid grid(std::move(dims));
  TW_TRY(grid.verify());
  return grid;
}

}  // namespace

std::string path_of(const File& file) { return file.folder + '/' + name_of(file.id); }

std::string text(const File& file) {
  std::string out = std::to_string(file.id) + ' ' + std::to_string(file.bytes) + text(file.grid);
  return out + '\n' + file.array + '\n' + file.folder;
}

// How many, and how long the text of each is (0: none); then these.
std::string text(const Files& files) {
  std::string lengths = std::to_string(files.size()), texts;
  for (const std::optional<File>& file : files) {
    const std::string one = file ? text(*file) : std::string();
    lengths += ' ' + std::to_string(one.size());
    texts += one;
  }
  return lengths + '\n' + texts;
}

std::string text(const Folder& folder) {
  std::string out = std::to_string(folder.cluster) + ' ' + std::to_string(folder.marker) +
                    (folder.first ? " 1 " : " 0 ") + std::to_string(folder.below) + ' ' +
                    std::to_string(folder.keep.size());
  for (const std::uint64_t id : folder.keep) out += ' ' + std::to_string(id);
  return out + '\n' + folder.path;
}

Result<File> parse_file(std::string_view text) {
  std::istringstream in{std::string(text)};
  in.exceptions(std::ios::badbit);  // what memory was refused for is not malformed
  File file;
  const auto wrong = error(Errc::kInvalidArgument, "a checkpoint: malformed parameters");
  if (!(in >> file.id >> file.bytes) || file.bytes < 0) return wrong;
  TW_ASSIGN(file.grid, parse_grid(in));
  if (in.get() != '\n' || !std::getline(in, file.array) || !std::getline(in, file.folder, '\0') ||
      file.folder.empty())
    return wrong;
  return file;
}

Result<Files> parse_files(std::string_view text) {
  const auto wrong = error(Errc::kInvalidArgument, "checkpoints: malformed parameters");
  const std::size_t line = std::min(text.find('\n'), text.size());
  std::istringstream in{std::string(text.substr(0, line))};
  in.exceptions(std::ios::badbit);
  std::size_t count = 0;
  if (!(in >> count) || count > limits::kMaxOutputs) return wrong;
  text.remove_prefix(std::min(line + 1, text.size()));
  Files files(count);
  for (std::optional<File>& file : files) {
    std::size_t length = 0;
    if (!(in >> length) || length > text.size()) return wrong;
    if (length > 0) {
      TW_ASSIGN(file, parse_file(text.substr(0, length)));
    }
    text.remove_prefix(length);
  }
  return text.empty() ? Result<Files>(std::move(files)) : wrong;
}

Result<Folder> parse_folder(std::string_view text) {
  std::istringstream in{std::string(text)};
  in.exceptions(std::ios::badbit);  // what memory was refused for is not malformed
  Folder folder;
  std::size_t kept = 0;
  const auto wrong = error(Errc::kInvalidArgument, "a folder of checkpoints: malformed parameters");
  if (!(in >> folder.cluster >> folder.marker >> folder.first >> folder.below >> kept) || kept > text.size())
    return wrong;
  for (std::size_t i = 0; i < kept; ++i) {
    if (!(in >> folder.keep.emplace_back())) return wrong;
  }
  if (in.get() != '\n' || !std::getline(in, folder.path, '\0') || folder.path.empty()) return wrong;
  return folder;
}

}  // namespace tilewise::ir::checkpoint
