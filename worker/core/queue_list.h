// Some of a device's queues, in the device's order: by priority, and by age. What a worker does at an event walks lists of those that
// have something to do (queues.cc), never all: a client may ask for thousands of graphs before the first is over, and all but a
// few wait for what earlier ones make.
#pragma once
#include "pool.h"

#include <tilewise/base/check.h>
#include <tilewise/base/id.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tilewise::worker {

// Where a queue stands among its device's. Graphs that were asked for earlier have lower ids.
struct QueuePlace {
  GraphId graph;
  std::int32_t priority = 0;
  friend bool operator==(const QueuePlace&, const QueuePlace&) = default;
  friend bool operator<(const QueuePlace& a, const QueuePlace& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.graph < b.graph;
  }
};
constexpr QueuePlace kBeforeAllQueues{{}, INT32_MAX};

struct QueueEntry {
  QueuePlace place;
  Slot queue = kNone;
};

class QueueList {
 public:
  using Iterator = std::vector<QueueEntry>::const_iterator;

  // It is not there; it is.
  void add(const QueuePlace& place, Slot queue) { entries_.insert(find(place), {place, queue}); }
  void remove(const QueuePlace& place) {
    const auto at = find(place);
    TW_CHECK(at != entries_.end() && at->place == place, "a queue is not where it is looked for");
    entries_.erase(at);
  }

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  Iterator begin() const { return entries_.begin(); }
  Iterator end() const { return entries_.end(); }
  const QueueEntry& front() const { return entries_.front(); }
  Slot operator[](std::size_t position) const { return entries_[position].queue; }
  std::size_t position(const QueuePlace& place) const {
    return static_cast<std::size_t>(find(place) - entries_.begin());
  }

  // Of a list that is not empty: whose turn it is after somebody's, all in turn; of those of the highest priority only.
  const QueueEntry& after(const QueuePlace& place) const {
    const auto next = std::upper_bound(entries_.begin(), entries_.end(), place, comes_first);
    return next == entries_.end() ? entries_.front() : *next;
  }
  const QueueEntry& highest_after(const QueuePlace& place) const {
    const QueueEntry& next = after(place);
    return next.place.priority == entries_.front().place.priority ? next : entries_.front();
  }

 private:
  static bool comes_first(const QueuePlace& place, const QueueEntry& entry) { return place < entry.place; }
  Iterator find(const QueuePlace& place) const {
    return std::lower_bound(entries_.begin(), entries_.end(), place,
                            [](const QueueEntry& entry, const QueuePlace& at) { return entry.place < at; });
  }
  std::vector<QueueEntry> entries_;
};

}  // namespace tilewise::worker
