// An unbounded queue between one producer and one consumer, without locks.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace tilewise::device {

// Chunks in a linked list; the count of pushed items publishes items and links alike. One emptied chunk goes back to
// the producer, so that a queue whose length stays below a chunk allocates nothing.
template <class T> class SpscQueue {
 public:
  SpscQueue() : head_(new Chunk), tail_(head_) {}
  ~SpscQueue() {
    while (head_ != nullptr) delete std::exchange(head_, head_->next);
    delete spare_.load();
  }
  SpscQueue(const SpscQueue&) = delete;
  SpscQueue& operator=(const SpscQueue&) = delete;

  // Producer. The publishing store is sequentially consistent: a Parker's wake() may follow.
  void push(T&& item) {
    if (tail_index_ == kChunk) {
      Chunk* next = spare_.exchange(nullptr, std::memory_order_acquire);
      if (next == nullptr) next = new Chunk;
      next->next = nullptr;
      tail_->next = next;
      tail_ = next;
      tail_index_ = 0;
    }
    tail_->items[tail_index_++] = std::move(item);
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1);
  }

  // Consumer.
  bool empty() const { return popped_ == pushed_.load(); }
  T& front() {  // not empty; stays valid until pop()
    if (head_index_ == kChunk) {
      Chunk* done = std::exchange(head_, head_->next);
      head_index_ = 0;
      delete spare_.exchange(done, std::memory_order_acq_rel);
    }
    return head_->items[head_index_];
  }
  void pop() {  // the item's own state is the consumer's to clear
    ++head_index_;
    ++popped_;
  }

 private:
  static constexpr std::size_t kChunk = 256;
  struct Chunk {
    std::array<T, kChunk> items;
    Chunk* next = nullptr;
  };

  alignas(64) Chunk* head_;  // the consumer's line
  std::size_t head_index_ = 0;
  std::uint64_t popped_ = 0;
  alignas(64) Chunk* tail_;  // the producer's line
  std::size_t tail_index_ = 0;
  std::atomic<std::uint64_t> pushed_{0};
  alignas(64) std::atomic<Chunk*> spare_{nullptr};
};

}  // namespace tilewise::device
