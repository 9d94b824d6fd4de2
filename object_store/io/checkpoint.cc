#include <tilewise/base/file.h>
#include <tilewise/io/checkpoint.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace tilewise::io::checkpoint {
namespace {

using ir::checkpoint::Folder;
using ir::checkpoint::path_of;
using CheckpointFile = ir::checkpoint::File;

constexpr char kMagic[16] = "tilewise check2";
constexpr std::string_view kMarker = ".cluster";  // behind the number of its folder's marker

struct Header {
  char magic[sizeof kMagic] = {};
  std::uint64_t id = 0;
  std::int64_t bytes = 0, blocks = 0;
};
constexpr std::int64_t kDataOffset = 4096;

// Of each block, behind all of them.
struct Sum {
  std::uint32_t crc = 0;
  std::uint32_t written = 0;  // kWritten: what a file is made of that nobody wrote to is zero
};
constexpr std::uint32_t kWritten = 0x6b636f6c;

std::int64_t sums_offset(const CheckpointFile& file) {
  const std::int64_t end = kDataOffset + file.bytes;
  return (end + 7) & -8;
}
std::int64_t size_of(const CheckpointFile& file) {
  return sums_offset(file) + file.grid.block_count() * static_cast<std::int64_t>(sizeof(Sum));
}

Header header_of(const CheckpointFile& file) {
  Header header{{}, file.id, file.bytes, file.grid.block_count()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  return header;
}

// Of this checkpoint and no other.
Result<File> open(const CheckpointFile& file, int flags) {
  TW_ASSIGN(File opened, File::open(path_of(file), flags | O_NOFOLLOW));
  Header there;
  const Header wanted = header_of(file);
  TW_TRY(opened.read(&there, sizeof there, 0));
  TW_ASSIGN(const std::int64_t size, opened.size());
  if (std::memcmp(&there, &wanted, sizeof there) != 0 || size != size_of(file))
    return error(Errc::kCorruptData, opened.path() + ": not the checkpoint that was written there");
  return opened;
}

// A block of the file: which one, and where its bytes are.
struct Piece {
  std::int64_t number = 0, offset = 0;
  std::size_t bytes = 0;
};
Result<Piece> piece_of(const CheckpointFile& file, const ir::Box& block) {
  const std::int64_t elements = ir::volume(file.grid.shape());
  ir::Index at;
  bool inside = block.rank() == file.grid.rank() && elements > 0;
  for (int d = 0; inside && d < block.rank(); ++d) {
    const ir::DimGrid& dim = file.grid.dim(d);
    inside = block.lo[d] >= 0 && block.lo[d] < dim.extent();
    if (inside) at.push_back(dim.find(block.lo[d]));
  }
  if (!inside || file.grid.box(at) != block || file.bytes % elements != 0)
    return error(Errc::kOutOfRange,
                 path_of(file) + ": " + ir::to_string(block) + " is no block of " + ir::to_string(file.grid));
  const std::int64_t item = file.bytes / elements;
  return Piece{ir::ravel(at, file.grid.counts()), kDataOffset + offset_of(file.grid.shape(), block) * item,
               static_cast<std::size_t>(block.volume() * item)};
}

Sum sum_of(const void* bytes, std::size_t count) {
  return {
      static_cast<std::uint32_t>(crc32_z(crc32_z(0, nullptr, 0), static_cast<const Bytef*>(bytes), count)),
      kWritten};
}

std::int64_t place_of_sum(const CheckpointFile& file, const Piece& piece) {
  return sums_offset(file) + piece.number * static_cast<std::int64_t>(sizeof(Sum));
}

std::optional<std::uint64_t> id_of(const std::string& name) {
  std::uint64_t id = 0;
  const char* end = name.data() + name.size();
  const auto [at, failed] = std::from_chars(name.data(), end, id, 16);
  if (failed != std::errc{} || at != end || ir::checkpoint::name_of(id) != name) return {};
  return id;
}

Status make(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return file_error(errno, path, "cannot make the folder");
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return file_error(errno, path, "cannot look at the folder");
  if (!S_ISDIR(info.st_mode)) return file_error(ENOTDIR, path, "no place for checkpoints");
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return error(Errc::kPermissionDenied, path + ": others may look into it");
  return {};
}

Status mark(const Folder& folder) {
  const std::string path = folder.path + '/' + ir::checkpoint::name_of(folder.marker).append(kMarker),
                    text = ir::checkpoint::name_of(folder.cluster);
  if (folder.first) {
    TW_ASSIGN(const File file, File::open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600));
    return file.write(text.data(), text.size(), 0);
  }
  const auto file = File::open(path, O_RDONLY | O_NOFOLLOW);
  std::string there(text.size(), '\0');
  if (file) TW_TRY(file->read_some(there.data(), there.size(), 0));
  if (!file && file.error().code != Errc::kNotFound) return file.error();
  if (there == text) return {};
  return error(Errc::kNotFound, folder.path + ": not the folder that other workers see");
}

}  // namespace

std::int64_t offset_of(const ir::Shape& array, const ir::Box& block) {
  // Before it, in C order, come the blocks that agree with it in dimensions before d and lie before it in d, for each d.
  std::int64_t offset = 0;
  for (int d = 0; d < block.rank(); ++d) {
    std::int64_t elements = block.lo[d];
    for (int e = 0; e < block.rank(); ++e) {
      if (e < d) elements *= block.hi[e] - block.lo[e];
      if (e > d) elements *= array[static_cast<std::size_t>(e)];
    }
    offset += elements;
  }
  return offset;
}

Status create(const CheckpointFile& file) {
  TW_ASSIGN(const File made, File::open(path_of(file), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  TW_TRY(made.reserve(size_of(file)));
  const Header header = header_of(file);
  return made.write(&header, sizeof header, 0);
}

Status write(const CheckpointFile& file, const ir::Box& block, const void* from) {
  TW_ASSIGN(const Piece piece, piece_of(file, block));
  TW_ASSIGN(const File opened, open(file, O_RDWR));
  const Sum sum = sum_of(from, piece.bytes);
  TW_TRY(opened.write(from, piece.bytes, piece.offset));
  return opened.write(&sum, sizeof sum, place_of_sum(file, piece));
}

Status commit(const CheckpointFile& file) {
  TW_ASSIGN(const File opened, open(file, O_RDWR));
  TW_TRY(opened.sync());
  TW_ASSIGN(const File folder, File::open(file.folder, O_RDONLY | O_DIRECTORY));
  return folder.sync();
}

Status read(const CheckpointFile& file, const ir::Box& block, void* to) {
  TW_ASSIGN(const Piece piece, piece_of(file, block));
  TW_ASSIGN(const File opened, open(file, O_RDONLY));
  TW_TRY(opened.read(to, piece.bytes, piece.offset));
  Sum written;
  TW_TRY(opened.read(&written, sizeof written, place_of_sum(file, piece)));
  const Sum there = sum_of(to, piece.bytes);
  if (written.crc == there.crc && written.written == kWritten) return {};
  return error(Errc::kCorruptData, opened.path() + ": block " + std::to_string(piece.number) + ", " +
                                       ir::to_string(block) +
                                       ", is not what was written there: its checksum differs");
}

Status tend(const Folder& folder) {
  if (folder.first) TW_TRY(make(folder.path));
  TW_TRY(mark(folder));
  if (::access(folder.path.c_str(), R_OK | W_OK | X_OK) != 0)
    return file_error(errno, folder.path, "cannot be written to");
  // Not std::filesystem's iterator: the library's own ends the process where it is refused memory for one.
  const std::unique_ptr<DIR, int (*)(DIR*)> files(::opendir(folder.path.c_str()), ::closedir);
  if (files == nullptr) return file_error(errno, folder.path, "cannot list");
  for (;;) {
    errno = 0;
    const dirent* at = ::readdir(files.get());
    if (at == nullptr) break;
    std::string name = at->d_name;
    if (name.ends_with(kMarker)) name.resize(name.size() - kMarker.size());
    const auto id = id_of(name);
    if (!id || *id >= folder.below || *id == folder.marker ||
        std::find(folder.keep.begin(), folder.keep.end(), *id) != folder.keep.end())
      continue;
    const std::string path = folder.path + '/' + at->d_name;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return file_error(errno, path, "cannot remove");
  }
  if (errno != 0) return file_error(errno, folder.path, "cannot list");
  return {};
}

}  // namespace tilewise::io::checkpoint
