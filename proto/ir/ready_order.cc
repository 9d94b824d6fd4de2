#include <tilewise/ir/ready_order.h>

#include <algorithm>

namespace tilewise::ir {

void ReadyOrder::add(Heap& heap, const Entry& entry) {
  heap.push_back(entry);
  std::push_heap(heap.begin(), heap.end(), later);
}

void ReadyOrder::push(const Runnable& r) {
  const bool ahead = r.awaited || (r.came && r.reads_large);
  if (!ahead) return push_last(r.task);
  ++size_;
  ++turns_;
  Entry entry{0, r.level, r.came && r.reads_large ? -turns_ : turns_, r.task};
  if (r.grows_bytes <= kLargeBytes) return add(light_, entry);
  if (r.awaited) return add(awaited_, entry);
  entry.op = r.op;
  add(growing_, entry);
}

void ReadyOrder::push_first(Task task) {
  ++size_;
  first_.push_front(task);
}

void ReadyOrder::push_last(Task task) {
  ++size_;
  in_turn_.push_back(task);
}

const ReadyOrder::Heap* ReadyOrder::first_heap(bool short_of_memory) const {
  if (!light_.empty() && !awaited_.empty())
    return short_of_memory || later(awaited_.front(), light_.front()) ? &light_ : &awaited_;
  for (const Heap* heap : {&light_, &awaited_, &growing_})
    if (!heap->empty()) return heap;
  return nullptr;
}

ReadyOrder::Task ReadyOrder::next(bool short_of_memory) const {
  if (!first_.empty()) return first_.front();
  if (const Heap* heap = first_heap(short_of_memory)) return heap->front().task;
  return in_turn_.empty() ? kNone : in_turn_.front();
}

ReadyOrder::Task ReadyOrder::take(bool short_of_memory) {
  const Task task = next(short_of_memory);
  if (task == kNone) return kNone;
  --size_;
  if (!first_.empty()) {
    first_.pop_front();
  } else if (const Heap* found = first_heap(short_of_memory)) {
    Heap& heap = found == &light_ ? light_ : found == &awaited_ ? awaited_ : growing_;
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
  } else {
    in_turn_.pop_front();
  }
  return task;
}

}  // namespace tilewise::ir
