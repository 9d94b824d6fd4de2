#include <tilewise/base/file.h>
#include <tilewise/io/npy.h>
#include <tilewise/io/zarr.h>

#include "box_reader.h"
#include "compressor.h"
#include "zarr_layout.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace tilewise::io {

namespace {

constexpr std::int64_t kMaxChunks = 1 << 20;  // of one block
constexpr std::uint64_t kMissing = ~std::uint64_t{0};

using Bytes = std::unique_ptr<std::byte[]>;
Bytes memory(std::int64_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
}

// Visits the places of a box in C order until one fails.
template <class Visit> Status each_place(const ir::Box& box, const Visit& visit) {
  const ir::Shape counts = box.shape();
  const std::int64_t n = box.volume();
  for (std::int64_t i = 0; i < n; ++i) {
    ir::Index at = ir::unravel(i, counts);
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += box.lo[d];
    TW_TRY(visit(at));
  }
  return {};
}

class BlockReader {
 public:
  BlockReader(const std::string& folder, const ZarrInfo& info, const ir::Box& box, void* out)
      : folder_(folder),
        info_(info),
        box_(box),
        out_(static_cast<std::byte*>(out)),
        item_(ir::size_of(info.dtype)),
        strides_(ir::c_order_strides(box.shape())) {}

  Status read() {
    const ir::Box chunks = chunks_of(info_.chunk, box_);
    TW_TRY(bounded(chunks));
    return each_place(chunks, [&](const ir::Index& at) { return file(at); });
  }

 private:
  Status bounded(const ir::Box& chunks) const {
    const ir::Shape counts = chunks.shape();
    const auto n = ir::checked_volume(std::span(counts.data(), counts.size()));
    if (n && *n <= kMaxChunks) return {};
    return error(Errc::kLimitExceeded, folder_ + ": the block " + ir::to_string(box_) +
                                           " touches more than " + std::to_string(kMaxChunks) +
                                           " chunks: read smaller blocks");
  }

  // One chunk's file, or one shard's.
  Status file(const ir::Index& at) {
    const ir::Box whole = chunk_box(info_.chunk, at);
    const std::string path = folder_ + "/" + chunk_key(info_, at);
    const auto opened = File::open(path, O_RDONLY);
    if (!opened) {
      if (opened.error().code != Errc::kNotFound) return opened.error();
      fill(ir::intersect(whole, box_));
      return {};
    }
    TW_ASSIGN(const std::int64_t size, opened->size());
    if (!info_.inner.empty()) return shard(*opened, size, whole);
    const bool plain = info_.compressor.kind == Compression::kNone && info_.order.empty() && !info_.crc32c;
    if (plain) return part(*opened, size, whole);
    return chunk(*opened, 0, size, whole);
  }

  // Only what is wanted of a chunk that lies in its file as in memory.
  Status part(const File& file, std::int64_t size, const ir::Box& whole) {
    NpyInfo as_npy;
    as_npy.dtype = info_.dtype;
    as_npy.shape = info_.chunk;
    as_npy.data_bytes = ir::volume(info_.chunk) * static_cast<std::int64_t>(item_);
    if (size != as_npy.data_bytes)
      return error(Errc::kCorruptData, file.path() + ": " + std::to_string(size) + " bytes, a chunk has " +
                                           std::to_string(as_npy.data_bytes));
    const ir::Box wanted = ir::intersect(whole, box_);
    ir::Box inside = wanted;
    for (std::size_t d = 0; d < inside.lo.size(); ++d)
      inside.lo[d] -= whole.lo[d], inside.hi[d] -= whole.lo[d];
    TW_ASSIGN(const FileBox where, file_box(file.path(), as_npy, inside));
    const std::int64_t bytes = wanted.volume() * static_cast<std::int64_t>(item_);
    std::byte* to = contiguous(wanted) ? place(wanted) : scratch(spare_, spare_bytes_, bytes);
    const auto reads = read_box(file, where, to, ReadTuning());
    if (!reads) return reads.error();
    if (info_.big_endian) swap_bytes(info_.dtype, to, static_cast<std::size_t>(bytes));
    if (to != place(wanted))
      copy_strided(wanted.shape(), item_, to, ir::c_order_strides(wanted.shape()), place(wanted), strides_);
    return {};
  }

  // A chunk of which `stored` bytes lie at `offset`.
  Status chunk(const File& file, std::int64_t offset, std::int64_t stored, const ir::Box& whole) {
    const ir::Box wanted = ir::intersect(whole, box_);
    const std::int64_t bytes = ir::volume(info_.unit()) * static_cast<std::int64_t>(item_);
    if (stored > longest_compressed(bytes))
      return error(Errc::kCorruptData, file.path() + ": " + std::to_string(stored) +
                                           " bytes for a chunk of " + std::to_string(bytes));
    std::byte* packed = scratch(packed_, packed_bytes_, stored);
    TW_TRY(file.read(packed, static_cast<std::size_t>(stored), offset));
    std::span<const std::byte> from(packed, static_cast<std::size_t>(stored));
    if (info_.crc32c) TW_TRY(checked(from, file.path()));
    const bool straight = info_.order.empty() && wanted == whole && contiguous(wanted);
    std::byte* to = straight ? place(wanted) : scratch(spare_, spare_bytes_, bytes);
    TW_TRY(decompress(info_.compressor, from, {to, static_cast<std::size_t>(bytes)}, file.path()));
    if (info_.big_endian) swap_bytes(info_.dtype, to, static_cast<std::size_t>(bytes));
    if (straight) return {};
    const ir::Strides strides = stored_strides(info_, info_.unit());
    std::int64_t first = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) first += (wanted.lo[d] - whole.lo[d]) * strides[d];
    copy_strided(wanted.shape(), item_, to + first * static_cast<std::int64_t>(item_), strides, place(wanted),
                 strides_);
    return {};
  }

  // The last four bytes are the checksum of the others.
  Status checked(std::span<const std::byte>& bytes, const std::string& path) const {
    std::uint32_t wanted = 0;
    if (bytes.size() < sizeof(wanted))
      return error(Errc::kCorruptData, path + ": too short for its checksum");
    std::memcpy(&wanted, bytes.data() + bytes.size() - sizeof(wanted), sizeof(wanted));
    bytes = bytes.first(bytes.size() - sizeof(wanted));
    if (crc32c(bytes) == wanted) return {};
    return error(Errc::kCorruptData, path + ": wrong checksum");
  }

  Status shard(const File& file, std::int64_t size, const ir::Box& whole) {
    ir::Shape counts;
    for (std::size_t d = 0; d < info_.inner.size(); ++d) counts.push_back(info_.chunk[d] / info_.inner[d]);
    const std::int64_t n = ir::volume(counts);
    // By the file's own size first: metadata may promise any number of chunks.
    if (n > size / 16)
      return error(Errc::kCorruptData,
                   file.path() + ": too short for the index of " + std::to_string(n) + " chunks");
    const std::int64_t index_bytes = 16 * n + (info_.index_crc32c ? 4 : 0);
    if (index_bytes > size) return error(Errc::kCorruptData, file.path() + ": too short for its index");
    const Bytes raw = memory(index_bytes);
    TW_TRY(file.read(raw.get(), static_cast<std::size_t>(index_bytes),
                     info_.index_at_start ? 0 : size - index_bytes));
    std::span<const std::byte> index(raw.get(), static_cast<std::size_t>(index_bytes));
    if (info_.index_crc32c) TW_TRY(checked(index, file.path()));
    ir::Box wanted = chunks_of(info_.inner, ir::intersect(whole, box_));
    TW_TRY(bounded(wanted));
    return each_place(wanted, [&](const ir::Index& at) -> Status {
      ir::Index inside = at;
      for (std::size_t d = 0; d < at.size(); ++d) inside[d] -= whole.lo[d] / info_.inner[d];
      std::uint64_t where[2];  // offset, bytes
      std::memcpy(where, index.data() + 16 * ir::ravel(inside, counts), sizeof(where));
      const ir::Box one = chunk_box(info_.inner, at);
      if (where[0] == kMissing && where[1] == kMissing) {
        fill(ir::intersect(one, box_));
        return {};
      }
      const auto end = static_cast<std::uint64_t>(size);
      if (where[1] > end || where[0] > end - where[1])
        return error(Errc::kCorruptData, file.path() + ": a chunk that ends behind its shard");
      return chunk(file, static_cast<std::int64_t>(where[0]), static_cast<std::int64_t>(where[1]), one);
    });
  }

  std::byte* place(const ir::Box& part) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < part.lo.size(); ++d) at += (part.lo[d] - box_.lo[d]) * strides_[d];
    return out_ + at * static_cast<std::int64_t>(item_);
  }
  // The part is one run of the block.
  bool contiguous(const ir::Box& part) const {
    std::size_t d = part.lo.size();
    while (d > 0 && part.extent(static_cast<int>(d - 1)) == box_.extent(static_cast<int>(d - 1))) --d;
    for (std::size_t outer = 0; outer + 1 < d; ++outer)
      if (part.extent(static_cast<int>(outer)) != 1) return false;
    return true;
  }
  void fill(const ir::Box& part) const {
    const ir::Strides none(part.lo.size(), 0);
    copy_strided(part.shape(), item_, info_.fill.data(), none, place(part), strides_);
  }
  static std::byte* scratch(Bytes& bytes, std::int64_t& there, std::int64_t wanted) {
    if (there < wanted || !bytes) {
      bytes.reset();
      bytes = memory(wanted);
      there = wanted;
    }
    return bytes.get();
  }

  const std::string& folder_;
  const ZarrInfo& info_;
  const ir::Box& box_;
  std::byte* out_;
  std::size_t item_;
  ir::Strides strides_;   // of the block, in elements
  Bytes packed_, spare_;  // as stored; decoded
  std::int64_t packed_bytes_ = 0, spare_bytes_ = 0;
};

}  // namespace

Result<ZarrInfo> read_zarr_info(const std::string& folder) {
  for (const char* name : {"zarr.json", ".zarray"}) {
    const std::string path = folder + "/" + name;
    const auto file = File::open(path, O_RDONLY);
    if (!file && file.error().code == Errc::kNotFound) continue;
    if (!file) return file.error();
    TW_ASSIGN(const std::int64_t size, file->size());
    if (size > static_cast<std::int64_t>(kMaxZarrMetadataBytes))
      return error(Errc::kLimitExceeded, path + ": metadata of " + std::to_string(size) + " bytes");
    std::string text(static_cast<std::size_t>(size), '\0');
    TW_TRY(file->read(text.data(), text.size(), 0));
    return parse_zarr(text, path);
  }
  return error(Errc::kNotFound, folder + ": no Zarr array: neither zarr.json nor .zarray is there");
}

Status read_zarr_block(const std::string& folder, const ZarrInfo& info, const ir::Box& box, void* out) {
  TW_TRY(check_zarr(info, folder));
  bool inside = box.lo.size() == info.shape.size() && box.hi.size() == info.shape.size();
  for (std::size_t d = 0; inside && d < info.shape.size(); ++d)
    inside = box.lo[d] >= 0 && box.lo[d] <= box.hi[d] && box.hi[d] <= info.shape[d];
  if (!inside)
    return error(Errc::kOutOfRange, folder + ": box " + ir::to_string(box) +
                                        " does not lie in an array of shape " + ir::to_string(info.shape));
  const std::int64_t elements = box.volume();
  if (elements == 0) return {};
  TW_TRY(BlockReader(folder, info, box, out).read());
  if (info.dtype == ir::DType::kBool) normalise_bools(out, elements);
  return {};
}

}  // namespace tilewise::io
