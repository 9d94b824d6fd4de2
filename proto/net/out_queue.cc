#include <algorithm>
#include <cstring>
#include <utility>

#include "out_queue.h"

namespace tilewise::net {

namespace {
constexpr std::size_t kChunkBytes = 64 << 10;
}

OutQueue::Chunk& OutQueue::chunk_for(std::size_t frame_bytes, bool own) {
  if (!own && !chunks_.empty() && chunks_.back().capacity - chunks_.back().end >= frame_bytes)
    return chunks_.back();
  if (frame_bytes <= kChunkBytes && spare_.data) {
    chunks_.push_back(std::exchange(spare_, {}));
  } else {
    std::size_t capacity = std::max(frame_bytes, kChunkBytes);
    chunks_.push_back({std::make_unique_for_overwrite<std::byte[]>(capacity), capacity});
  }
  return chunks_.back();
}

void OutQueue::append(const FrameHeader& header, std::span<const Piece> payload, std::vector<UniqueFd> fds) {
  const std::size_t frame_bytes = kFrameHeaderBytes + padded(header.payload_bytes);
  Chunk& chunk = chunk_for(frame_bytes, !fds.empty());
  if (!fds.empty()) chunk.fds = std::move(fds);
  std::byte* out = chunk.data.get() + chunk.end;
  auto encoded = header.encode();
  std::memcpy(out, encoded.data(), encoded.size());
  out += encoded.size();
  for (Piece piece : payload) {
    if (!piece.empty()) std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
  std::memset(out, 0, padded(header.payload_bytes) - header.payload_bytes);
  chunk.end += frame_bytes;
  bytes_ += frame_bytes;
}

OutQueue::Batch OutQueue::batch() const {
  Batch batch;
  for (const Chunk& chunk : chunks_) {
    if (batch.count == kMaxPieces || (batch.count > 0 && !chunk.fds.empty())) break;
    if (batch.count == 0) batch.fds = chunk.fds;
    batch.pieces[batch.count++] = {chunk.data.get() + chunk.begin, chunk.end - chunk.begin};
    batch.bytes += chunk.end - chunk.begin;
  }
  return batch;
}

void OutQueue::consume(std::size_t bytes) {
  bytes_ -= bytes;
  while (bytes > 0) {
    Chunk& chunk = chunks_.front();
    chunk.fds.clear();
    std::size_t n = std::min(bytes, chunk.end - chunk.begin);
    chunk.begin += n;
    bytes -= n;
    if (chunk.begin < chunk.end) break;
    if (chunk.capacity == kChunkBytes) {
      spare_ = std::move(chunk);
      spare_.begin = spare_.end = 0;
    }
    chunks_.pop_front();
  }
}

void OutQueue::clear() {
  chunks_.clear();
  bytes_ = 0;
}

}  // namespace tilewise::net
