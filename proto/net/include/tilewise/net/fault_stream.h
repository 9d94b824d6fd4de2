// A stream with a fault injected, for tests and drills: what the peer sent is cut into small reads,
// flipped, late, lost or ended. Seeded, so that a failure can be repeated.
#pragma once
#include <tilewise/net/byte_stream.h>

#include <cstdint>
#include <limits>

namespace tilewise::net {

constexpr std::uint64_t kNeverAt = std::numeric_limits<std::uint64_t>::max();

// Positions count the bytes received through this stream.
struct Faults {
  std::uint64_t seed = 1;
  std::size_t max_read_bytes = std::numeric_limits<std::size_t>::max();   // each read: 1 .. this, at random
  std::size_t max_write_bytes = std::numeric_limits<std::size_t>::max();  // each write: 1 .. this, at random
  double flip_chance = 0;                                                 // per read, of one flipped bit
  std::uint64_t flip_at = kNeverAt;                                       // flips one bit of this byte
  std::uint64_t end_at = kNeverAt;    // the stream ends after so many bytes, as if the peer had died
  std::uint64_t stall_at = kNeverAt;  // nothing arrives after so many bytes, and no end either
  TimeNs delay_ns = 0;                // readability is told so much later
};

// `faults` may be changed while the stream is in use (by its thread).
std::unique_ptr<ByteStream> inject_faults(EventLoop& loop, std::unique_ptr<ByteStream> inner,
                                          std::shared_ptr<Faults> faults);

}  // namespace tilewise::net
