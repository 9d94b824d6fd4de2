// A connected two-way stream of bytes, of which TCP, Unix sockets, rings in shared memory and pairs in one
// process's memory are implementations; fault_stream.h wraps one for tests, TLS would be another. "Try, then wait": no buffer is handed over, so
// nothing can outlive its owner.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/net/event_loop.h>
#include <tilewise/net/fd.h>
#include <tilewise/net/fence.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tilewise::net {

class ByteStream {
 public:
  using Piece = std::span<const std::byte>;

  virtual ~ByteStream() = default;  // closes; allowed inside its own callbacks

  // Bytes read, 0 if there are none now (`into` is not empty). The peer's close is kUnavailable with
  // the message kEndOfStream. Descriptors that came along are appended to `fds`.
  virtual Result<std::size_t> try_read(std::span<std::byte> into, std::vector<UniqueFd>& fds) = 0;
  // Bytes of the concatenated pieces written, 0 if none fit now. The descriptors (at most kMaxFdsPerFrame)
  // travel with the first byte: sent if the result is above 0.
  virtual Result<std::size_t> try_write(std::span<const Piece> pieces, std::span<const UniqueFd> fds) = 0;

  // One later call of fn, from the loop and never from inside the call, once trying again may help (also
  // when the stream has ended or failed). One of each outstanding. Never called after close().
  virtual void wait_readable(EventLoop::Fn fn) = 0;
  virtual void wait_writable(EventLoop::Fn fn) = 0;

  // The peer reads what was written and then the end; this side may go on reading.
  virtual void shutdown_write() = 0;
  virtual void close() = 0;

  virtual bool can_pass_fds() const = 0;
  virtual bool is_shared_memory() const { return false; }     // between processes, without system calls
  virtual std::shared_ptr<Fence> fence() { return nullptr; }  // of streams through shared memory
  // The process at the other end, as the kernel knows it and this process may name it; none where it is not of this host, or in a PID
  // namespace that cannot be seen from here. That of a listener is the process that began to listen.
  virtual std::optional<pid_t> peer_process() const { return {}; }
  // The other side has closed, even if there are bytes of it still to be read. What it did with its memory after close() is seen later
  // than this. Of streams with a peer_process().
  virtual bool peer_closed() const { return false; }
  virtual std::string peer() const = 0;  // for messages to people, and for TCP "address:port"

  static constexpr const char* kEndOfStream = "the peer closed the connection";
};

struct StreamPair {
  std::unique_ptr<ByteStream> first, second;
};

// The two ends of a pipe in memory, for an embedded cluster and for tests. The loops may run in different
// threads; each end belongs to its loop's. At most `capacity_bytes` wait in each direction. Passes no
// descriptors.
StreamPair make_memory_pair(EventLoop& first, EventLoop& second, std::size_t capacity_bytes = 256 << 10);

// A connected pair of Unix sockets, which does pass descriptors.
Result<StreamPair> make_socket_pair(EventLoop& first, EventLoop& second);

// One end of such a pair, from another process.
Result<std::unique_ptr<ByteStream>> adopt_socket(EventLoop& loop, UniqueFd connected);

// The same with rings in shared memory beside it, through which the bytes go. A power of two from 4 KiB on.
Result<StreamPair> make_ring_pair(EventLoop& first, EventLoop& second,
                                  std::size_t capacity_bytes = 256 << 10);

}  // namespace tilewise::net
