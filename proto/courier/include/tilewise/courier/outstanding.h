// Messages that were sent and are not known to have arrived, in order: what has to be sent again over another link.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

namespace tilewise::courier {

// A receiver says how far it is after so many messages or bytes, whichever is first; so a sender keeps about as much.
constexpr std::uint64_t kAckMessages = 64;
constexpr std::size_t kAckBytes = std::size_t{1} << 20;

class Outstanding {
 public:
  static constexpr std::size_t kMaxMessages = 262'144;
  static constexpr std::size_t kMaxBytes = std::size_t{512} << 20;

  struct Message {
    std::uint16_t type = 0;
    std::string bytes;
  };

  // False where that would be more than may be kept: then nothing has changed, and the peer is to be given up.
  bool push(std::uint16_t type, std::span<const std::byte> bytes);
  // The receiver has had so many messages in all. Less than it said before is old news. False: more than were sent.
  bool acknowledge(std::uint64_t received);

  std::uint64_t sent() const { return first_ + messages_.size(); }  // in all
  std::uint64_t first() const { return first_; }                    // number of messages()[0], from 0
  const std::deque<Message>& messages() const { return messages_; }
  std::size_t bytes() const { return bytes_; }
  // As it was, from what was written down: push() the messages again afterwards.
  void restart(std::uint64_t first) { *this = {}, first_ = first; }

 private:
  std::uint64_t first_ = 0;
  std::deque<Message> messages_;
  std::size_t bytes_ = 0;
};

// The other side's part: when to say how far it is.
class Received {
 public:
  explicit Received(std::uint64_t total = 0) : total_(total) {}
  void add(std::size_t bytes) { ++total_, ++messages_, bytes_ += bytes; }
  bool due() const { return messages_ >= kAckMessages || bytes_ >= kAckBytes; }
  void told() { messages_ = 0, bytes_ = 0; }
  std::uint64_t total() const { return total_; }

 private:
  std::uint64_t total_ = 0, messages_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace tilewise::courier
