// Private. Blocks over a stream of bytes: a header, its payload, the next header, each way by itself. The sender's memory is
// read in place and the receiver's written in place; the stream's own limits are all that lies between. What comes in chunks
// (chunks.h) looks the same on the way: each end has its own reasons.
//
// Who dialled begins with a header that announces nothing; the other side is silent until that has come. So whoever hands
// the stream over can still take its last words from it.
#pragma once
#include <tilewise/net/byte_stream.h>
#include <tilewise/transfer/chunks.h>
#include <tilewise/transfer/ucx_engine.h>

#include <array>
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

// Where a block's bytes go.
struct Place {
  std::byte* memory = nullptr;
  Sink* sink = nullptr;  // instead
};

class StreamLane {
 public:
  // They may come from inside send(), and must not destroy the lane.
  struct Handlers {
    // Where the payload goes. None: it is read and forgotten.
    std::function<std::optional<Place>(const BlockHeader&)> on_header;
    std::function<void(const BlockHeader&)> on_received;  // all of it lies there
    std::function<void(const BlockHeader&)> on_sent;      // the memory is free: the transport has a copy
    // Its source has failed, and nothing of it was sent.
    std::function<void(const BlockHeader&, const Error&)> on_refused = {};
    // Once, and nothing after it. kUnavailable, kTimeout (the peer is silent), kCorruptData.
    std::function<void(const Error&)> on_broken;
  };

  StreamLane(std::unique_ptr<net::ByteStream> stream, bool dialled, Handlers handlers);
  ~StreamLane();  // memory that it was given is free at once
  StreamLane(const StreamLane&) = delete;
  StreamLane& operator=(const StreamLane&) = delete;

  // After what was sent before. The memory stays until on_sent, on_broken, or withdraw().
  void send(const BlockHeader& header, const std::byte* from) { add({header, from}); }
  // One whose first bytes are there may go before one whose are not.
  void send(const BlockHeader& header, Source& from) { add({header, nullptr, &from}); }
  // Takes back what was not begun. False: some of it is on its way, and only the end of the lane stops that.
  bool withdraw(const BlockHeader& header);
  // When the stream took or brought something last, by monotonic_now().
  TimeNs wrote_at() const { return wrote_at_; }
  TimeNs read_at() const { return read_at_; }
  // The rest of what is being received goes nowhere.
  void drop_incoming();
  // A source has more, or a sink has room.
  void resume();

 private:
  struct Outgoing {
    BlockHeader header;
    const std::byte* from = nullptr;
    Source* source = nullptr;  // instead
    std::size_t written = 0;   // of header and payload
  };
  // For one system call.
  struct Gathered {
    std::array<net::ByteStream::Piece, 32> pieces;
    std::size_t count = 0, bytes = 0;
  };
  void add(Outgoing out);
  void read();
  bool read_some();
  void write();
  bool take_buffered();
  bool take_payload();
  std::optional<std::span<std::byte>> room() const;
  void came(std::size_t bytes);
  Result<std::span<const std::byte>> rest_of(const Outgoing& out) const;
  void refuse_failed();
  void put_ready_first();
  Status gather(Gathered& out);
  void consume(std::size_t bytes);
  void broke(const Error& why);

  std::unique_ptr<net::ByteStream> stream_;
  Handlers handlers_;
  std::deque<Outgoing> outgoing_;
  std::vector<std::byte> buffer_;  // headers, small blocks, and the beginnings of large ones
  std::size_t begin_ = 0, end_ = 0;
  std::optional<BlockHeader> incoming_;
  std::optional<Place> to_;  // of incoming_
  std::uint64_t left_ = 0;   // likewise, bytes
  TimeNs wrote_at_ = 0, read_at_ = 0;
  bool may_write_ = false;  // the other side is ready for what is no frame
  bool write_waits_ = false, writing_ = false, broken_ = false;
  bool reading_ = false;   // read() is on the stack
  bool no_room_ = false;   // the sink had none: nothing is read
  bool unwanted_ = false;  // the sink wants no more of incoming_
  bool resumed_ = false;   // meanwhile: writing_ or reading_
};

}  // namespace tilewise::transfer
