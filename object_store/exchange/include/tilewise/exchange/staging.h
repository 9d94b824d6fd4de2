// Device memory that UCX cannot take crosses processes through host memory: the slow way, said at start, counted as
// Lane::kStaged by its receiver, refused in strict mode.
#pragma once
#include <tilewise/device/copier.h>
#include <tilewise/exchange/exchange.h>

#include <deque>
#include <functional>
#include <memory>

namespace tilewise::exchange {

// The loop's thread. A transfer holds host memory of its size from here to its end; past `limit_bytes` of that others wait
// for their turn, in order, sends and receives apart so that neither waits for the other.
class Staging {
 public:
  // Both outlive this, and it outlives what it has given them: they let go of that when they end.
  Staging(Exchange& exchange, device::Copier& copier, std::int64_t limit_bytes = std::int64_t{1} << 30)
      : exchange_(exchange), copier_(copier), limit_(limit_bytes) {}
  // As Exchange's, of CUDA memory, but for repeats, which are made again.
  void transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                Exchange::Done done);
  void receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes, Exchange::Done done);

 private:
  using Buffer = std::shared_ptr<std::byte[]>;
  struct Queue {
    std::int64_t bytes = 0;  // held now
    std::deque<std::function<void()>> waiting;
  };
  void enter(Queue& queue, std::int64_t bytes, std::function<void()> begin);
  void leave(Queue& queue, std::int64_t bytes);

  Exchange& exchange_;
  device::Copier& copier_;
  const std::int64_t limit_;
  Queue out_, in_;
};

}  // namespace tilewise::exchange
