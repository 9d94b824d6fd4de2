// Blocks that lie where no stream reaches: their bytes pass through memory that it does, a chunk at a time. UcxEngine takes these in
// the place of an address, for peers whose bytes go over a stream.
//
// The loop's thread. Calls come from inside the engine's own, and none after the transfer's `done`; of its functions they may call
// resume() alone, which whoever had nothing to give, or no room, calls when that has changed.
#pragma once
#include <tilewise/base/result.h>

#include <cstddef>
#include <optional>
#include <span>

namespace tilewise::transfer {

class Source {
 public:
  // What comes next, and lies still until it is sent; none: it is not there yet. An error fails the transfer; in the middle of the
  // block it ends the whole stream, since the rest was promised.
  virtual Result<std::span<const std::byte>> next() = 0;
  // So many bytes of that are in the stream's hands: their memory is free.
  virtual void sent(std::size_t bytes) = 0;

 protected:
  ~Source() = default;
};

class Sink {
 public:
  // Where the next bytes go; empty: there is no room yet, and what comes behind it in the stream waits (not what lies in another process); nothing at all: the
  // rest of the block is not wanted, and goes nowhere.
  virtual std::optional<std::span<std::byte>> room() = 0;
  virtual void came(std::size_t bytes) = 0;  // so many lie there

 protected:
  ~Sink() = default;
};

}  // namespace tilewise::transfer
