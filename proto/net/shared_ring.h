// Private: bytes from one process to another through memory that both have mapped, without system calls.
//
// A ring has one producer and one consumer. Positions count bytes since the beginning and only rise; a byte's
// place is its position modulo the capacity, a power of two. Each side keeps its own position to itself and
// only tells it: what the peer says is believed where
//
//   consumer:  tail - head <= capacity, and tail never falls      (else: kCorruptData)
//   producer:  told head <= tail, and head never falls            (else: kCorruptData)
//
// so whatever a broken peer writes, nothing outside the ring is touched; and the bytes are copied out before
// anybody looks at them, so they cannot change under a check.
//
// Sleeping: who is about to sleep raises its flag, fences, and looks again; who has moved a position fences, and
// looks at the flag. One of the two sees the other. Whoever takes a flag down owes its owner a wake-up by other
// means (ring_stream.cc: the socket).
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/net/fd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tilewise::net {

// Lies at the start of each ring. What different processes write is on lines of its own.
struct RingHeader {
  alignas(64) std::atomic<std::uint64_t> tail;  // the producer's
  std::atomic<std::uint64_t> descriptors;       // sets of descriptors sent so far, told before the tail
  std::atomic<std::uint32_t> ended;             // nothing more will be written
  std::atomic<std::uint32_t> disowned;          // fence.h: by the producer
  alignas(64) std::atomic<std::uint64_t> head;  // the consumer's
  std::atomic<std::uint32_t> gone;              // nobody will read any more
  alignas(64) std::atomic<std::uint32_t> consumer_sleeps;
  alignas(64) std::atomic<std::uint32_t> producer_sleeps;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "atomics in shared memory must need no lock");

// One ring as one of its ends knows it.
class RingEnd {
 public:
  RingEnd(RingHeader* header, std::byte* data, std::size_t capacity)
      : header_(header), data_(data), capacity_(capacity) {}

  RingHeader& header() const { return *header_; }
  std::size_t capacity() const { return capacity_; }
  std::uint64_t position() const { return position_; }  // this end's

  // Consumer.
  Result<std::size_t> available();
  void read(std::span<std::byte> into);  // at most what was available
  // Producer.
  Result<std::size_t> space();
  void write(std::span<const std::byte> bytes);  // at most the space; the peer sees it after publish()
  void publish() { header_->tail.store(position_, std::memory_order_release); }

 private:
  template <class Copy> void each_part(std::size_t bytes, const Copy& copy);

  RingHeader* header_;
  std::byte* data_;
  std::size_t capacity_;
  std::uint64_t position_ = 0;
  std::uint64_t other_ = 0;  // the peer's, as it last told us
};

// The peer sleeps, and whoever calls this has to wake it. After a position was moved.
inline bool must_wake(std::atomic<std::uint32_t>& sleeps) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return sleeps.load(std::memory_order_relaxed) != 0 && sleeps.exchange(0, std::memory_order_relaxed) != 0;
}

// Two rings, one in each direction, in a memfd that can neither shrink nor grow.
class SharedRings {
 public:
  static constexpr std::size_t kMinCapacity = 4 << 10, kMaxCapacity = 64 << 20;

  // kOutOfMemory, kIo. `capacity` is a power of two within the limits.
  static Result<SharedRings> create(std::size_t capacity);
  // What a peer handed over and said to be `capacity`: kCorruptData where it is no sealed memfd of that size.
  static Result<SharedRings> import(UniqueFd memfd, std::uint64_t capacity);

  SharedRings(SharedRings&& other) noexcept
      : memfd_(std::move(other.memfd_)),
        memory_(std::exchange(other.memory_, {})),
        capacity_(other.capacity_) {}
  SharedRings& operator=(SharedRings&&) = delete;
  ~SharedRings();

  int memfd() const { return memfd_.get(); }
  std::size_t capacity() const { return capacity_; }
  void close_memfd() { memfd_.reset(); }  // the mapping stays
  RingEnd ring(int number);               // 0: from the creator to the importer; 1: back

 private:
  SharedRings(UniqueFd memfd, std::span<std::byte> memory, std::size_t capacity)
      : memfd_(std::move(memfd)), memory_(memory), capacity_(capacity) {}
  static Result<SharedRings> map(UniqueFd memfd, std::size_t capacity);

  UniqueFd memfd_;
  std::span<std::byte> memory_;
  std::size_t capacity_;
};

}  // namespace tilewise::net
