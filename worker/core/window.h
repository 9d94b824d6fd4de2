// Bytes that peers have been granted and that are not here yet. They are bounded for each peer and in all, so that a slow peer cannot
// have all of what may be on its way, and so that what is needed soon does not stand behind all that was offered before it. One block
// may always be on its way, however large.
//
// What does not fit waits, in the order of *turns*: where in the total order of tasks a block is read first. Room is kept for whoever
// is needed sooner: nobody overtakes within a peer, nor those whom only the bound in all keeps waiting. Every block on its way comes or
// fails within its deadline, so whoever waits here waits for something that ends (D6).
#pragma once
#include "pool.h"

#include <tilewise/base/id.h>

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace tilewise::worker {

// The place of the first task that reads a block, comparable between devices of one worker.
struct Turn {
  std::int64_t rank = INT64_MAX;  // of the graph: its priority, negated
  GraphId graph;
  std::uint64_t op = 0;
  std::int64_t ordinal = 0;  // in the op's share
  friend auto operator<=>(const Turn&, const Turn&) = default;
};

class Window {
 public:
  Window(std::int64_t total, std::int64_t each) : total_(total), each_(each) {}

  bool anyone_waits() const { return !waiting_.empty(); }
  // There is room, and nobody waits for it who is needed sooner. Without anybody waiting `turn` does not count.
  bool admits(WorkerId from, std::int64_t bytes, const Turn& turn) const;
  void begin(WorkerId from, std::int64_t bytes);
  void end(WorkerId from, std::int64_t bytes);

  void wait(Slot copy, WorkerId from, std::int64_t bytes, const Turn& turn);
  void leave(Slot copy);
  // next() may have somebody, since something has ended or left, or somebody stands elsewhere. Until asked again.
  bool take_news() { return std::exchange(news_, false); }
  bool has_news() const { return news_; }
  // Whoever of those that fit is needed first, taken off; or kNone.
  Slot next();

  std::int64_t bytes() const { return bytes_; }
  std::int64_t bytes_of(WorkerId from) const;
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  // Of those that wait somebody may begin: never at rest.
  bool stalls() const { return !news_ && first() != waits_.end(); }

 private:
  struct Entry {
    Turn turn;
    Slot copy = kNone;
    std::int64_t bytes = 0;
    auto operator<=>(const Entry& o) const { return std::tie(turn, copy) <=> std::tie(o.turn, o.copy); }
    bool operator==(const Entry& o) const { return copy == o.copy; }
  };
  using Queues = std::map<WorkerId, std::set<Entry>>;  // none is empty
  bool fits_peer(WorkerId from, std::int64_t bytes) const;
  bool fits_all(std::int64_t bytes) const { return bytes_ == 0 || bytes_ + bytes <= total_; }
  void look();
  Queues::const_iterator first() const;  // whose first may begin now, or the end

  const std::int64_t total_, each_;
  std::int64_t bytes_ = 0;
  std::map<WorkerId, std::int64_t> bytes_of_;  // of those with any
  Queues waits_;
  std::map<Slot, std::pair<WorkerId, Turn>> waiting_;
  bool news_ = false;
};

}  // namespace tilewise::worker
