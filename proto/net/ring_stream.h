// Private: a stream through a pair of shared rings, beside a connected Unix socket.
//
// Bytes go through memory. The socket carries three things: descriptors; a word for a peer that sleeps; and, by
// its end, the news that the peer is dead, however it died. A word on the socket has 8 bytes, little-endian:
//
//   0                       wake up and look at the rings
//   position << 8 | count   `count` (1-16) descriptors, beside this word, belong to the byte at `position`
//
// Two loops that poll see each other's bytes after a cache line has moved; a system call is paid for waking only.
#pragma once
#include <tilewise/net/byte_stream.h>

#include "shared_ring.h"

namespace tilewise::net {

// `socket` passes descriptors and carried nothing yet that was not read. `creator`: this side made the rings.
std::unique_ptr<ByteStream> make_ring_stream(EventLoop& loop, std::unique_ptr<ByteStream> socket,
                                             SharedRings rings, bool creator);

}  // namespace tilewise::net
