// Zarr arrays, versions 2 and 3: a folder with a file of metadata and a file for each chunk (or, sharded, for each box of
// chunks). Format: zarr-specs.readthedocs.io, "Zarr storage specification version 2" and "Zarr core specification 3.0".
//
// Dtypes: those of ir but bfloat16, in both byte orders. Codecs: bytes, transpose, sharding_indexed (one level); gzip, zlib,
// zstd, blosc (one of them); crc32c. Others are kUnsupported, by name. Sizes are checked against the file's own before memory
// is taken for them, so that metadata from anywhere can do no harm.
//
// Blocks of any place are read; a chunk that has no file holds the fill value. Written are whole chunks (shards): each block has
// to start and to end where chunks do, or at the array's end. As with .npy files, all writers write into a temporary folder beside
// the final one, `.<name>.<token>.partial`, and commit_zarr() gives it its name: all of it appears, or nothing.
//
// Errors as in npy.h.
#pragma once
#include <tilewise/io/begun.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tilewise::io {

enum class Compression : std::uint8_t { kNone, kGzip, kZlib, kZstd, kBlosc };
struct Compressor {
  Compression kind = Compression::kNone;
  int level = 0;              // gzip, zlib 0..9, zstd -131072..22, blosc 0..9
  std::string cname = "lz4";  // blosc: its inner compressor
  int shuffle = 1;            // blosc: 0 none, 1 bytes, 2 bits
  bool checksum = false;      // zstd
  friend bool operator==(const Compressor&, const Compressor&) = default;
};

struct ZarrInfo {
  int version = 3;
  ir::DType dtype = ir::DType::kFloat64;
  bool big_endian = false;
  ir::Shape shape;
  ir::Shape chunk;        // of a file: a chunk, or a shard
  ir::Shape inner;        // sharded: extents of a chunk within; empty: not sharded
  ir::PerDim<int> order;  // dimensions of a chunk as stored, slowest first; empty: C order
  Compressor compressor;
  bool crc32c = false;       // each chunk ends with a checksum
  bool index_crc32c = true;  // so does the index of a shard
  bool index_at_start = false;
  std::array<std::byte, 16> fill{};  // one element, in our byte order
  char separator = '/';              // between the numbers of a chunk's key
  bool c_keys = true;                // keys start with "c" (version 3's default)
  friend bool operator==(const ZarrInfo&, const ZarrInfo&) = default;

  // Extents that are compressed as one.
  const ir::Shape& unit() const { return inner.empty() ? chunk : inner; }
};

constexpr std::size_t kMaxZarrMetadataBytes = 1 << 20;
constexpr std::int64_t kMaxZarrChunkBytes = std::int64_t{1}
                                            << 31;  // decoded: a worker has one in memory beside its arena

// ---- metadata ----

// The text of zarr.json or .zarray; `file` names it in errors.
Result<ZarrInfo> parse_zarr(std::string_view text, std::string_view file);
// As text that parse_zarr() reads: what is written, and what travels to workers.
std::string zarr_metadata(const ZarrInfo& info);
std::string zarr_metadata_file(const std::string& folder, const ZarrInfo& info);  // where it is
// Of the array in `folder`. kNotFound if it has neither file.
Result<ZarrInfo> read_zarr_info(const std::string& folder);
// That of a new array: kUnsupported or kInvalidArgument where it could not be written.
Status check_zarr(const ZarrInfo& info, std::string_view file);

// ---- blocks ----

Status read_zarr_block(const std::string& folder, const ZarrInfo& info, const ir::Box& box, void* out);

// Makes the temporary folder with its metadata and returns its path; any number of times. kAlreadyExists where something else
// than a Zarr array has the final name.
Result<std::string> create_zarr_temp(const std::string& final_path, std::string_view token,
                                     const ZarrInfo& info);
// `data`: C order, all of `box`. kInvalidArgument where the box cuts a chunk; kNotFound where the folder is gone. Again: the same bytes,
// and readers see no others meanwhile.
Status write_zarr_block(const std::string& temp_path, const ZarrInfo& info, const ir::Box& box,
                        const void* data);
// Durable, then named; what was there under that name goes. `parts`, and again after it has succeeded: as commit() of npy.h.
Status commit_zarr(const std::string& final_path, std::string_view token, const ZarrInfo& info,
                   std::span<const FileId> parts);
// Removes the temporary folder, if it is there; it is renamed before, so that nobody puts half of one in place.
Status discard_zarr(const std::string& final_path, std::string_view token);

}  // namespace tilewise::io
