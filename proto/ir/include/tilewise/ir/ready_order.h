// Which of a graph's tasks that could run on a device runs next. Workers keep one for each graph and device, and so does the
// scheduler's machine on paper: what is predicted is in the order in which it will be done.
//
//   1  who was under way already: the last one put back first
//   2  who lets go of as much memory as it takes, and what somebody elsewhere waits for: by level, what the longest path still
//      needs first (tails, as in Jackson's rule for one machine); of equal ones those that have just been given a large block, the
//      newest first, then the others, the oldest first, so that the end of a share stays to be given to others
//   3  who reads large blocks only to make more of them here: in the order of the plan, then as in 2
//   4  all others, in turn
//
// So the critical path goes first as long as that costs no memory here. While memory is short, those of 2 that take more than
// they let go come after the others of 2. Which of them gets memory is decided elsewhere, by the total order of tasks: this is about
// those that could have it.
#pragma once
#include <tilewise/base/block_deque.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewise::ir {

constexpr std::int64_t kLargeBytes = 64 << 10;  // of a block: worth letting go of soon

struct Runnable {
  std::uint32_t task = 0;
  std::int64_t level = 0;  // of the highest op that reads what it makes
  std::uint64_t op = 0;    // place in the plan
  bool came = false;       // something that it waited for has come, else it could run from the beginning
  bool awaited = false;    // somebody elsewhere reads what it makes
  bool reads_large = false;
  std::int64_t grows_bytes = 0;  // what it takes beyond what goes with it
};

class ReadyOrder {
 public:
  using Task = std::uint32_t;
  static constexpr Task kNone = 0xFFFFFFFFu;

  void push(const Runnable& task);
  void push_first(Task task);  // it was under way, or has been asked before
  void push_last(Task task);
  // The next one, or kNone; take() removes it. `short_of_memory`: on the device, now.
  Task next(bool short_of_memory) const;
  Task take(bool short_of_memory);
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  // Slow: of a few tasks, once in a while.
  void erase(Task task) {
    erase_if([&](Task other) { return other == task; });
  }
  template <class Predicate> void erase_if(Predicate&& is_it);
  template <class Visit> void for_each(Visit&& visit) const;

 private:
  struct Entry {
    std::uint64_t op = 0;
    std::int64_t level = 0, turn = 0;
    Task task = kNone;
  };
  static bool later(const Entry& a, const Entry& b) {
    if (a.op != b.op) return a.op > b.op;
    return a.level != b.level ? a.level < b.level : a.turn > b.turn;
  }
  using Heap = std::vector<Entry>;
  static void add(Heap& heap, const Entry& entry);
  const Heap* first_heap(bool short_of_memory) const;

  BlockDeque<Task> first_, in_turn_;
  Heap light_, awaited_, growing_;
  std::int64_t turns_ = 0;
  std::size_t size_ = 0;
};

template <class Predicate> void ReadyOrder::erase_if(Predicate&& is_it) {
  for (BlockDeque<Task>* list : {&first_, &in_turn_}) size_ -= tilewise::erase_if(*list, is_it);
  for (Heap* heap : {&light_, &awaited_, &growing_}) {
    Heap kept;
    for (const Entry& entry : *heap)
      if (!is_it(entry.task)) add(kept, entry);
    size_ -= heap->size() - kept.size();
    heap->swap(kept);
  }
}

template <class Visit> void ReadyOrder::for_each(Visit&& visit) const {
  for (const BlockDeque<Task>* list : {&first_, &in_turn_})
    for (const Task task : *list) visit(task);
  for (const Heap* heap : {&light_, &awaited_, &growing_})
    for (const Entry& entry : *heap) visit(entry.task);
}

}  // namespace tilewise::ir
