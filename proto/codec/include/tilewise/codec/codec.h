// Messages as bytes, and back. Cap'n Proto's encoding (schema/*.capnp) without its RPC, behind plain structs, so that
// nothing else in Tilewise sees it.
//
// Safe against any bytes: sizes are checked against base/limits.h before memory is taken, traversal is bounded by
// four times the message, nesting by sixteen levels, and the memory of the decoded message by a multiple of the
// bytes that arrived. Structure is checked here (ranks, grids, enumerants, attributes that belong to their op); whether
// an expression means something is the business of ir's verifier.
#pragma once
#include <tilewise/msg/msg.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilewise::codec {

// The bytes of one message and the scratch to build it in: keep one a link or thread, memory is taken only while it
// grows. Not thread-safe.
class Buffer {
 public:
  // The last encoded message; 8-byte aligned, a multiple of 8 long. Valid until the next encode() or destruction.
  std::span<const std::byte> bytes() const;
  // Gives up what is more than most messages need, with the message in it.
  void shrink();

 private:
  friend Status encode(const msg::Message& message, Buffer& buffer);
  friend class LogBuffer;
  std::vector<std::uint64_t> words_;  // beyond used_: zeros
  std::size_t used_ = 0;
};

// kLimitExceeded for what decode() would not take: names, lists or the whole message past their limits;
// kInvalidArgument for an op whose attributes are not those of its kind. The buffer is empty after an error.
// Texts of Outcomes are cut at 4096 bytes, never refused.
Status encode(const msg::Message& message, Buffer& buffer);

// Logs, of which several peers get the same entries one after the other: encoded for the first, numbered for each. Not thread-safe.
class LogBuffer {
 public:
  // As encode(). Keeps the entries, which are shared, until it has others or forgets them.
  Status encode(const msg::Log& log);
  std::span<const std::byte> bytes() const { return buffer_.bytes(); }
  // Lets go of the entries, and of what is more than most messages need.
  void forget();

 private:
  void renumber(std::uint64_t first);
  Buffer buffer_;
  msg::Log held_;  // what is in it, but for the number of its first entry; without entries: nothing
};

// `bytes` may be unaligned (then they are copied first). kCorruptData: not a message. kLimitExceeded: more than the
// limits allow. kInvalidArgument: an unknown enumerant or a grid that cannot be, named in the text. Thread-safe.
Result<msg::Message> decode(std::span<const std::byte> bytes);

// The type that a frame carries beside the payload.
inline std::uint16_t frame_type(const msg::Message& message) {
  return static_cast<std::uint16_t>(message.index());
}

}  // namespace tilewise::codec
