// Device memory that UCX cannot take crosses processes through host memory: the slow way, said at start, counted as
// Lane::kStaged by its receiver, refused in strict mode.
#pragma once
#include <tilewise/device/copier.h>
#include <tilewise/exchange/exchange.h>

#include <deque>
#include <set>
#include <utility>

namespace tilewise::exchange {

// The loop's thread. A transfer holds host memory of its size from here to its end. Sends past `limit_bytes` of that wait for
// their turn, in order. Receives do not: their sender has been told to begin, and what was granted at once is bounded by
// the device's memory.
class Staging {
 public:
  // Both outlive this, and it outlives what it has given them: they let go of that when they end.
  Staging(Exchange& exchange, device::Copier& copier, std::int64_t limit_bytes = std::int64_t{1} << 30)
      : exchange_(exchange), copier_(copier), limit_(limit_bytes) {}
  // As Exchange's, of CUDA memory. kLaneDenied for receives where lanes are strict; kOutOfMemory where the host has none to stage in. A repeat of a send under way does
  // nothing, its `done` is dropped.
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                Exchange::Done done);
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, Exchange::Done done);

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
  std::int64_t held_ = 0;  // bytes of sends that have begun
  std::deque<Send> waiting_;
  std::set<std::pair<WorkerId, std::uint64_t>> sending_;  // begun or waiting
  bool beginning_ = false;                                // begin_sends() is on the stack
};

}  // namespace tilewise::exchange
