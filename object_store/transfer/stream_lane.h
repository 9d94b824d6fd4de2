// Private. Blocks over a stream of bytes: a header, its payload, the next header, each way by itself. The sender's memory is
// read in place and the receiver's written in place; the stream's own limits are all that lies between.
//
// Who dialled begins with a header that announces nothing; the other side is silent until that has come. So whoever hands
// the stream over can still take its last words from it.
#pragma once
#include <tilewise/net/byte_stream.h>
#include <tilewise/transfer/ucx_engine.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tilewise::transfer {

// In front of every block, in the sender's byte order (all supported hosts are little-endian).
struct BlockHeader {
  Cookie cookie{};
  std::uint64_t transfer = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const BlockHeader&, const BlockHeader&) = default;
};
static_assert(sizeof(BlockHeader) == 32);

class StreamLane {
 public:
  // They may come from inside send(), and must not destroy the lane.
  struct Handlers {
    // Where the payload goes. None: it is read and forgotten.
    std::function<std::optional<std::byte*>(const BlockHeader&)> on_header;
    std::function<void(const BlockHeader&)> on_received;  // all of it lies there
    std::function<void(const BlockHeader&)> on_sent;      // the memory is free: the transport has a copy
    // Once, and nothing after it. kUnavailable, kTimeout (the peer is silent), kCorruptData.
    std::function<void(const Error&)> on_broken;
  };

  StreamLane(std::unique_ptr<net::ByteStream> stream, bool dialled, Handlers handlers);
  ~StreamLane();  // memory that it was given is free at once
  StreamLane(const StreamLane&) = delete;
  StreamLane& operator=(const StreamLane&) = delete;

  // After what was sent before. The memory stays until on_sent, on_broken, or withdraw().
  void send(const BlockHeader& header, const std::byte* from);
  // Takes back what was not begun. False: some of it is on its way, and only the end of the lane stops that.
  bool withdraw(const BlockHeader& header);
  // When the stream took or brought something last, by monotonic_now().
  TimeNs wrote_at() const { return wrote_at_; }
  TimeNs read_at() const { return read_at_; }
  // The rest of what is being received goes nowhere.
  void drop_incoming() { to_.reset(); }

 private:
  struct Outgoing {
    BlockHeader header;
    const std::byte* from = nullptr;
    std::size_t written = 0;  // of header and payload
  };
  void read();
  void write();
  bool take_buffered();
  void consume(std::size_t bytes);
  void broke(const Error& why);

  std::unique_ptr<net::ByteStream> stream_;
  Handlers handlers_;
  std::deque<Outgoing> outgoing_;
  std::vector<std::byte> buffer_;  // headers, small blocks, and the beginnings of large ones
  std::size_t begin_ = 0, end_ = 0;
  std::optional<BlockHeader> incoming_;
  std::optional<std::byte*> to_;  // of incoming_
  std::uint64_t left_ = 0;        // likewise, bytes
  TimeNs wrote_at_ = 0, read_at_ = 0;
  bool may_write_ = false;  // the other side is ready for what is no frame
  bool write_waits_ = false, writing_ = false, broken_ = false;
};

}  // namespace tilewise::transfer
