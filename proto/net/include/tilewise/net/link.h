// A Link carries frames to and from one authenticated peer, in order, over any ByteStream.
//
// Made by Listener, connect() (endpoint.h) and Handshake; belongs to one loop and its thread. Callbacks
// come from the loop, never from inside a call of send(), flush() or start(), and may destroy the Link.
#pragma once
#include <tilewise/net/byte_stream.h>
#include <tilewise/net/frame.h>

#include <array>
#include <functional>
#include <span>

namespace tilewise::net {

// Both sides of one link share it and nobody else can compute it: data messages outside the link carry it.
using Cookie = std::array<std::byte, 16>;

struct LinkOptions {
  std::uint16_t version = kProtocolVersion;  // other than the usual one only in tests
  std::size_t max_frame_bytes = limits::kMaxMessageBytes;
  std::size_t max_outgoing_bytes = 2 * limits::kMaxMessageBytes;  // waiting to be written, headers included
};

struct Frame {
  std::uint16_t type = 0;
  std::span<const std::byte> payload;  // 8-byte aligned, valid during the callback
  std::vector<UniqueFd> fds;           // closed after the callback unless taken
};

struct LinkCounters {
  std::uint64_t frames_in = 0, frames_out = 0;
  std::uint64_t bytes_in = 0, bytes_out = 0;  // as on the wire; out: accepted by the transport
  std::uint64_t reads = 0, writes = 0;        // system calls that moved bytes
};

class Link {
 public:
  struct Handlers {
    std::function<void(Frame&)> on_frame;
    // Once, and nothing after it; not called when this side destroys or retires the Link. kUnavailable: the
    // peer closed or died; kCorruptData, kLimitExceeded, kVersionMismatch: it broke the protocol.
    std::function<void(const Error&)> on_close;
    // After a send() was refused with kLimitExceeded: the queue has fallen to half its limit.
    std::function<void()> on_drained;
  };

  // A link over a stream that needs no authentication, because it never leaves this process.
  static std::unique_ptr<Link> adopt(EventLoop& loop, std::unique_ptr<ByteStream> stream,
                                     const Cookie& cookie, LinkOptions options = {});
  // Closes at once; frames queued are tried once without waiting.
  ~Link();

  // Begins to read. Called once; sending is possible before.
  void start(Handlers handlers);

  // Copies the payload into the outgoing batch, written at the end of this turn of the loop. Errors, with
  // nothing queued: kLimitExceeded (frame too large, or the queue is full and on_drained will follow),
  // kUnavailable (closed), kUnsupported (descriptors over TCP). type < kFirstReservedType, a bug otherwise.
  // At most kMaxFdsPerFrame descriptors.
  Status send(std::uint16_t type, std::span<const std::byte> payload, std::vector<UniqueFd> fds = {});
  // The payload is the pieces one after another.
  Status send(std::uint16_t type, std::span<const std::span<const std::byte>> pieces,
              std::vector<UniqueFd> fds = {});
  // Write what the transport takes now, without waiting for the end of the turn.
  void flush();

  // Gives the link up: no more callbacks, incoming frames are dropped, queued ones are still written;
  // closed when the peer closes, at most linger_ns later. For a last word such as "rejected, because ...".
  static void retire(std::unique_ptr<Link> link, TimeNs linger_ns = kSecond);

  // Gives the bare stream to somebody with other bytes to send over it; no callback follows. Not from inside one of the
  // Link's own callbacks. kUnavailable: it is closed; kCorruptData: bytes wait to be written, or have come that are no frame yet.
  static Result<std::unique_ptr<ByteStream>> into_stream(std::unique_ptr<Link> link);

  bool is_open() const;
  std::size_t outgoing_bytes() const;
  TimeNs last_receive_ns() const;  // when bytes last came; whether to ping is the caller's policy
  const Cookie& cookie() const;
  const std::string& peer() const;  // for people
  bool can_pass_fds() const;
  bool is_shared_memory() const;         // its bytes take no system calls
  std::shared_ptr<Fence> fence() const;  // of a link through shared memory, else null; it outlives the link
  const LinkCounters& counters() const;

 private:
  class Core;  // outlives the Link while the loop is inside one of its callbacks
  explicit Link(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace tilewise::net
