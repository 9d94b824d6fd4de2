// Bytes to fewer bytes and back.
#pragma once
#include <tilewise/io/zarr.h>

#include <span>
#include <vector>

namespace tilewise::io {

// Exactly `to.size()` bytes, or kCorruptData; `what` names their place in errors.
Status decompress(const Compressor& compressor, std::span<const std::byte> from, std::span<std::byte> to,
                  const std::string& what);
// Appends to `to`. `item`: bytes of an element, for shuffling.
Status compress(const Compressor& compressor, std::span<const std::byte> from, std::size_t item,
                std::vector<std::byte>& to, const std::string& what);
// More than this cannot be the compressed form of so many bytes.
std::int64_t longest_compressed(std::int64_t bytes);
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace tilewise::io
