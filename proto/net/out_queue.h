// Frames waiting to be written, packed so that a batch of small ones goes out in one system call.
#pragma once
#include <tilewise/net/byte_stream.h>
#include <tilewise/net/frame.h>

#include <deque>

namespace tilewise::net {

class OutQueue {
 public:
  using Piece = ByteStream::Piece;
  static constexpr std::size_t kMaxPieces = 64;

  // Copies the payload pieces; header.payload_bytes is their sum.
  void append(const FrameHeader& header, std::span<const Piece> payload, std::vector<UniqueFd> fds);

  struct Batch {
    std::array<Piece, kMaxPieces> pieces;
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::span<const UniqueFd> fds;  // to go with the first byte
  };
  // What to write next; stops before a frame with descriptors, which must begin its own write.
  Batch batch() const;
  // So many bytes of the batch were written.
  void consume(std::size_t bytes);

  std::size_t bytes() const { return bytes_; }
  void clear();

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> data;
    std::size_t capacity = 0, begin = 0, end = 0;
    std::vector<UniqueFd> fds;  // go with the byte at begin; gone once it is
  };
  Chunk& chunk_for(std::size_t frame_bytes, bool own);

  std::deque<Chunk> chunks_;
  Chunk spare_;  // the last emptied chunk of the usual size: a quiet link allocates nothing
  std::size_t bytes_ = 0;
};

}  // namespace tilewise::net
