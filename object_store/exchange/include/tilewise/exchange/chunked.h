// Blocks of GPUs that cross hosts over a data connection, through host memory, a chunk at a time: while one is copied from or to the
// GPU, others are on their way, so a block takes the time of the slowest of the three and not of their sum; and host memory is
// bounded whatever is under way.
//
// A chunk holds one buffer and waits for nobody who holds another: what is sent waits for its peer, what is received for the GPU, so
// each way has buffers of its own. A peer that has none always gets one, beyond the bound too: one that has stopped reading, or stops in the
// middle of what it sends, keeps what its blocks hold, and stops nobody else.
#pragma once
#include <tilewise/device/copier.h>
#include <tilewise/exchange/exchange.h>
#include <tilewise/transfer/chunks.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace tilewise::exchange {

struct ChunkOptions {
  std::int64_t bytes = 2 << 20;         // of a chunk
  std::int64_t limit_bytes = 64 << 20;  // of all buffers of one way, but for one a peer
  std::size_t depth = 4;                // chunks of one block at once; of one that stands behind others one
  std::size_t ahead = 4;                // blocks to one peer that have begun
  // Makes memory that copies from and to GPUs are fast with. None, or null: there is none (any more), ordinary memory does.
  std::function<std::shared_ptr<std::byte>(std::size_t bytes)> pin = {};
};

// One thread. No copy touches its buffers any more when it ends.
class ChunkBuffers {
 public:
  explicit ChunkBuffers(const ChunkOptions& options) : options_(options) {}
  // Null: all are in use, or with `always`, the host has no memory.
  std::byte* take(bool always);
  void give(std::byte* buffer) { free_.push_back(buffer); }
  std::int64_t bytes() const { return made_; }  // in use or not

 private:
  bool grow();
  const ChunkOptions options_;
  std::vector<std::byte*> free_;
  std::vector<std::shared_ptr<std::byte>> memory_;
  bool plain_ = false;     // no pinned memory any more
  std::int64_t made_ = 0;  // bytes
};

// The loop's thread, as the next. All outlive it; devices have come to rest when it ends, and the exchange has let go.
class ChunkedSends {
 public:
  ChunkedSends(Exchange& exchange, device::Copier& copier, const ChunkOptions& options)
      : exchange_(exchange), copier_(copier), options_(options), buffers_(options) {}
  // As Exchange's, of CUDA memory. In order to one peer.
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                Exchange::Done done);
  std::int64_t buffer_bytes() const { return buffers_.bytes(); }

 private:
  class Block;
  using Blocks = std::deque<std::shared_ptr<Block>>;
  struct Peer {
    Blocks begun, waiting;
  };
  void serve();
  void serve_peers();
  void begin(const std::shared_ptr<Block>& block);
  void fetch(Block& block, bool always);
  void end(Block& block);

  Exchange& exchange_;
  device::Copier& copier_;
  const ChunkOptions options_;
  ChunkBuffers buffers_;
  std::map<WorkerId, Peer> peers_;  // with blocks
  bool serving_ = false,
       serve_again_ = false;  // serve() is on the stack; somebody else has called it meanwhile
};

class ChunkedReceives {
 public:
  ChunkedReceives(Exchange& exchange, device::Copier& copier, const ChunkOptions& options)
      : exchange_(exchange), copier_(copier), options_(options), buffers_(options) {}
  // As Exchange's, into CUDA memory; kOutOfMemory where the host has no buffer for a block.
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, Exchange::Done done);
  std::int64_t buffer_bytes() const { return buffers_.bytes(); }

 private:
  class Block;
  void copy_up(Block& block);
  void give_back(const Block& block, std::byte* buffer);
  void end(Block& block);

  Exchange& exchange_;
  device::Copier& copier_;
  const ChunkOptions options_;
  ChunkBuffers buffers_;
  std::map<WorkerId, int> held_;  // buffers of each peer's blocks; those without have no entry
};

}  // namespace tilewise::exchange
