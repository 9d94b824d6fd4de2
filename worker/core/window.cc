#include "window.h"

#include <tilewise/base/check.h>

namespace tilewise::worker {

std::int64_t Window::bytes_of(WorkerId from) const {
  const auto it = bytes_of_.find(from);
  return it == bytes_of_.end() ? 0 : it->second;
}

bool Window::fits_peer(WorkerId from, std::int64_t bytes) const {
  const std::int64_t there = bytes_of(from);
  return there == 0 || there + bytes <= each_;
}

bool Window::admits(WorkerId from, std::int64_t bytes, const Turn& turn) const {
  if (!fits_peer(from, bytes) || !fits_all(bytes)) return false;
  for (const auto& [peer, queue] : waits_) {
    const Entry& head = *queue.begin();
    const bool waits_for_this = peer == from || fits_peer(peer, head.bytes);
    if (waits_for_this && head.turn < turn) return false;
  }
  return true;
}

void Window::begin(WorkerId from, std::int64_t bytes) {
  bytes_ += bytes;
  bytes_of_[from] += bytes;
  look();
}

void Window::end(WorkerId from, std::int64_t bytes) {
  const auto it = bytes_of_.find(from);
  TW_CHECK(it != bytes_of_.end() && it->second >= bytes && bytes_ >= bytes,
           "more bytes have come than were on their way");
  bytes_ -= bytes;
  if ((it->second -= bytes) == 0) bytes_of_.erase(it);
  news_ |= anyone_waits();
}

// Where the first of a peer's cannot go for that peer's own bytes, room that was kept for it is for others.
void Window::look() { news_ |= anyone_waits() && first() != waits_.end(); }

void Window::wait(Slot copy, WorkerId from, std::int64_t bytes, const Turn& turn) {
  const bool fresh = waiting_.try_emplace(copy, from, turn).second;
  TW_CHECK(fresh, "a block waits twice for its turn");
  waits_[from].insert({turn, copy, bytes});
  look();
}

void Window::leave(Slot copy) {
  const auto it = waiting_.find(copy);
  if (it == waiting_.end()) return;
  const auto queue = waits_.find(it->second.first);
  queue->second.erase({it->second.second, copy, 0});
  if (queue->second.empty()) waits_.erase(queue);
  waiting_.erase(it);
  news_ |= anyone_waits();
}

// A block of no bytes is never in the way, but takes its turn.
Window::Queues::const_iterator Window::first() const {
  auto best = waits_.end();
  for (auto it = waits_.begin(); it != waits_.end(); ++it) {
    if (fits_peer(it->first, it->second.begin()->bytes) &&
        (best == waits_.end() || *it->second.begin() < *best->second.begin()))
      best = it;
  }
  return best == waits_.end() || fits_all(best->second.begin()->bytes) ? best : waits_.end();
}

Slot Window::next() {
  const auto best = first();
  if (best == waits_.end()) return kNone;
  const Slot copy = best->second.begin()->copy;
  const bool news = news_;
  leave(copy);
  news_ = news;
  return copy;
}

}  // namespace tilewise::worker
