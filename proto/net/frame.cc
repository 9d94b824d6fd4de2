#include <tilewise/base/check.h>
#include <tilewise/net/fd.h>
#include <tilewise/net/frame.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tilewise::net {

static_assert(std::endian::native == std::endian::little, "headers are copied as they are");
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes);

namespace {
constexpr std::size_t kBufferBytes = 64 << 10;
constexpr std::size_t kMaxKeptBytes = 1 << 20;  // of a large frame's memory, for the next one
}  // namespace

std::array<std::byte, kFrameHeaderBytes> FrameHeader::encode() const {
  return std::bit_cast<std::array<std::byte, kFrameHeaderBytes>>(*this);
}

Result<FrameHeader> FrameHeader::decode(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                        std::uint16_t our_version, std::size_t max_payload_bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kFrameMagic) return error(Errc::kCorruptData, "not a Tilewise frame (bad magic)");
  if (header.version != our_version) {
    return error(Errc::kVersionMismatch, "the peer speaks protocol version " +
                                             std::to_string(header.version) + ", this side version " +
                                             std::to_string(our_version));
  }
  if (header.payload_bytes > max_payload_bytes) {
    return error(Errc::kLimitExceeded, "a frame of " + std::to_string(header.payload_bytes) +
                                           " bytes, above the limit of " + std::to_string(max_payload_bytes));
  }
  if (header.fds > kMaxFdsPerFrame) {
    return error(Errc::kLimitExceeded, "a frame with " + std::to_string(header.fds) + " descriptors");
  }
  if (header.flags != 0 || header.zero != 0)
    return error(Errc::kCorruptData, "a frame header with unknown flags");
  return header;
}

FrameReader::Words FrameReader::make_words(std::size_t bytes) {
  return {std::make_unique_for_overwrite<std::uint64_t[]>(bytes / 8), bytes};
}

FrameReader::FrameReader(std::uint16_t our_version, std::size_t max_payload_bytes)
    : our_version_(our_version), max_payload_bytes_(max_payload_bytes), buffer_(make_words(kBufferBytes)) {}

std::span<std::byte> FrameReader::space() {
  if (large_needed_ > large_have_) return {large_.data() + large_have_, large_needed_ - large_have_};
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0 && buffer_.bytes - end_ < buffer_.bytes / 2) {
    // Frames are multiples of 8 bytes, so what is moved to the front stays aligned.
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  TW_CHECK(end_ < buffer_.bytes, "space() called before all frames were taken");
  return {buffer_.data() + end_, buffer_.bytes - end_};
}

void FrameReader::commit(std::size_t bytes) {
  std::size_t& have = large_needed_ > large_have_ ? large_have_ : end_;
  have += bytes;
  TW_CHECK(large_have_ <= large_needed_ && end_ <= buffer_.bytes, "more bytes than space");
}

void FrameReader::begin_large(const FrameHeader& header) {
  large_header_ = header;
  large_needed_ = padded(header.payload_bytes);
  if (large_.bytes < large_needed_) large_ = make_words(large_needed_);
  large_have_ = end_ - begin_ - kFrameHeaderBytes;
  std::memcpy(large_.data(), buffer_.data() + begin_ + kFrameHeaderBytes, large_have_);
  begin_ = end_ = 0;
}

Result<std::optional<FrameReader::View>> FrameReader::next() {
  using Next = std::optional<View>;
  if (large_needed_ > 0) {
    if (large_have_ < large_needed_) return Next{};
    large_needed_ = large_have_ = 0;
    return Next{{large_header_, {large_.data(), large_header_.payload_bytes}}};
  }
  if (large_.bytes > kMaxKeptBytes) large_ = {};
  std::size_t available = end_ - begin_;
  if (available < kFrameHeaderBytes) return Next{};
  const std::byte* at = buffer_.data() + begin_;
  auto header = FrameHeader::decode(std::span<const std::byte, kFrameHeaderBytes>(at, kFrameHeaderBytes),
                                    our_version_, max_payload_bytes_);
  if (!header) return header.error();
  std::size_t frame_bytes = kFrameHeaderBytes + padded(header->payload_bytes);
  if (available >= frame_bytes) {
    begin_ += frame_bytes;
    return Next{{*header, {at + kFrameHeaderBytes, header->payload_bytes}}};
  }
  if (frame_bytes > buffer_.bytes) begin_large(*header);
  return Next{};
}

}  // namespace tilewise::net
