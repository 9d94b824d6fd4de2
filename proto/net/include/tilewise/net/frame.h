// Frames: a 16-byte little-endian header, the payload, and zeros up to a multiple of 8 so that the
// next frame is aligned where it lies in the receiver's buffer.
//
//   bytes 0-3   magic "TLW\1"
//         4-5   protocol version; frames of another version are refused
//         6-7   type; kFirstReservedType and above belong to the link itself
//         8-11  payload bytes, without the padding
//         12-13 flags, zero in this version
//         14    descriptors that travel with this frame (Unix sockets only)
//         15    zero
#pragma once
#include <tilewise/base/limits.h>
#include <tilewise/base/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace tilewise::net {

constexpr std::uint32_t kFrameMagic = 0x01574C54;
constexpr std::uint16_t kProtocolVersion = 1;
constexpr std::uint16_t kFirstReservedType = 0xFF00;
constexpr std::size_t kFrameHeaderBytes = 16;

constexpr std::size_t padded(std::size_t payload_bytes) { return (payload_bytes + 7) & ~std::size_t{7}; }

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t version = kProtocolVersion;
  std::uint16_t type = 0;
  std::uint32_t payload_bytes = 0;
  std::uint16_t flags = 0;
  std::uint8_t fds = 0;
  std::uint8_t zero = 0;

  std::array<std::byte, kFrameHeaderBytes> encode() const;
  // kCorruptData, kVersionMismatch (naming both versions) or kLimitExceeded. Nothing is allocated before
  // this.
  static Result<FrameHeader> decode(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                    std::uint16_t our_version, std::size_t max_payload_bytes);
};

// Cuts a stream of bytes into frames, whatever the chunks it arrives in; no I/O. Small frames are read many
// at a time and used where they lie; the rest of a large one goes directly into its final memory.
class FrameReader {
 public:
  explicit FrameReader(std::uint16_t our_version = kProtocolVersion,
                       std::size_t max_payload_bytes = limits::kMaxMessageBytes);

  struct View {
    FrameHeader header;
    std::span<const std::byte> payload;  // 8-byte aligned; until the next call of next() or space()
  };

  // Where the next bytes should be read to (never empty); then how many came. All frames must have been
  // taken before.
  std::span<std::byte> space();
  void commit(std::size_t bytes);
  // The next complete frame, if there is one. After an error the stream cannot be continued.
  Result<std::optional<View>> next();
  // In the middle of a frame: an end of the stream now is a truncation.
  bool mid_frame() const { return large_needed_ > 0 || begin_ != end_; }

 private:
  struct Words {  // aligned bytes, not cleared
    std::unique_ptr<std::uint64_t[]> words;
    std::size_t bytes = 0;
    std::byte* data() const { return reinterpret_cast<std::byte*>(words.get()); }
  };
  static Words make_words(std::size_t bytes);
  void begin_large(const FrameHeader& header);

  std::uint16_t our_version_;
  std::size_t max_payload_bytes_;
  Words buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what lies in buffer_ and was not taken
  Words large_;                      // the payload of a frame that does not fit buffer_
  std::size_t large_needed_ = 0, large_have_ = 0;
  FrameHeader large_header_;
};

}  // namespace tilewise::net
