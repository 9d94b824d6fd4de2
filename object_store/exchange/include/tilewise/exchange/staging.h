// Device memory that no transport takes crosses processes through host memory: the slow way, said at start, counted as
// Lane::kStaged by its receiver, refused in strict mode.
#pragma once
#include <tilewise/exchange/chunked.h>

#include <deque>
#include <set>
#include <utility>

namespace tilewise::exchange {

// The loop's thread. Over a data connection blocks go in chunks (chunked.h). Over UCX without CUDA, which connects processes of a
// host whose GPUs do not lend, and hosts with RDMA, they go whole: a transfer holds host memory of its size from here to its end. Sends past
// `limit_bytes` of that wait for their turn, in order. Receives do not: their sender has been told to begin, and what was granted at once
// is bounded by the device's memory.
class Staging {
 public:
  // All outlive this. Devices have come to rest when it ends, and the exchange has let go.
  Staging(Exchange& exchange, device::Copier& copier, const ChunkOptions& chunks = {},
          std::int64_t limit_bytes = std::int64_t{1} << 30)
      : exchange_(exchange),
        copier_(copier),
        limit_(limit_bytes),
        sends_(exchange, copier, chunks),
        receives_(exchange, copier, chunks) {}
  // As Exchange's, of CUDA memory. kLaneDenied for receives where lanes are strict; kOutOfMemory where the host has none to stage in. A
  // repeat of a send under way does nothing, its `done` is dropped.
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                Exchange::Done done);
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, Exchange::Done done);
  // Host memory for chunks, kept until this ends.
  std::int64_t buffer_bytes() const { return sends_.buffer_bytes() + receives_.buffer_bytes(); }

 private:
  Status allowed() const;
  struct Send {
    WorkerId to;
    std::uint64_t transfer = 0;
    const std::byte* from = nullptr;
    std::int64_t bytes = 0;
    Exchange::Done done;
  };
  void begin_sends();
  void begin(Send send);
  void end(const Send& send, const Status& status);

  Exchange& exchange_;
  device::Copier& copier_;
  const std::int64_t limit_;
  std::int64_t held_ = 0;  // bytes of whole sends that have begun
  std::deque<Send> waiting_;
  std::set<std::pair<WorkerId, std::uint64_t>> sending_;  // begun or waiting
  bool beginning_ = false;                                // begin_sends() is on the stack
  ChunkedSends sends_;
  ChunkedReceives receives_;
};

}  // namespace tilewise::exchange
