// Checkpoints: arrays in files of the scheduler's own, from which lost blocks are read again (docs/design/recovery.md). Which kernels
// make and read them and what their parameters say, for the scheduler that plans them and the workers that run them.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/ir/grid.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::ir::checkpoint {

// () -> one number. Makes sure that the folder is there, is the one that the whole cluster sees, and has no files that nobody knows.
constexpr std::string_view kTend = "tilewise.tend_checkpoints";
// () -> one number: the file is there, as large as it will be.
constexpr std::string_view kCreate = "tilewise.create_checkpoint";
// (array, what kCreate made) -> a number a block: it is in the file.
constexpr std::string_view kWrite = "tilewise.write_checkpoint";
// () -> one number: what is in the file outlives the host.
constexpr std::string_view kCommit = "tilewise.commit_checkpoint";
// () -> all results of an op whose past was cut, each from its own file.
constexpr std::string_view kRestore = "tilewise.restore_checkpoint";

// They may sleep, and run on hosts.
constexpr bool is_kernel(std::string_view kernel) {
  return kernel.starts_with("tilewise.") &&
         (kernel.ends_with("_checkpoint") || kernel.ends_with("_checkpoints"));
}

// Parameters of those that make a file.
struct File {
  std::uint64_t id = 0;    // rises from one file of a cluster to the next, and is never used again
  std::int64_t bytes = 0;  // of the array
  Grid grid;               // its blocks
  std::string array;       // what its user calls it, for errors
  std::string folder;
  friend bool operator==(const File&, const File&) = default;
};
// Parameters of kRestore: the file of each result; none: that result has been let go of, and is zeros.
using Files = std::vector<std::optional<File>>;
// Parameters of kTend.
struct Folder {
  // Its marker, which tells it from a folder of that name elsewhere: the cluster's number is in it, and its own, which was no file's
  // before, is its name. So a folder that was this cluster's in an earlier life is not taken for this one.
  std::uint64_t cluster = 0, marker = 0;
  bool first = false;               // nobody has seen it yet: it is made
  std::uint64_t below = 0;          // files of smaller ids go ...
  std::vector<std::uint64_t> keep;  // ... but these
  std::string path;
  friend bool operator==(const Folder&, const Folder&) = default;
};

std::string name_of(std::uint64_t id);  // of a file in its folder
std::string path_of(const File& file);

// As they travel. Errors: kInvalidArgument.
std::string text(const File& file);
std::string text(const Files& files);
std::string text(const Folder& folder);
Result<File> parse_file(std::string_view text);
Result<Files> parse_files(std::string_view text);
Result<Folder> parse_folder(std::string_view text);

}  // namespace tilewise::ir::checkpoint
