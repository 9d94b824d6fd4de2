// What must be made again after a loss, and nothing else: worked out from who makes each block, what living workers really have and
// who wants it. Shares nothing with the scheduler's recovery but what a task reads (ir::Geometry, forwards).
//
// Copies that clients ask for are reckoned with: whoever has one has the block, and nobody reads for one what its client does not hold.
//
// Not for:
//  - ops of several results: a task is run again for the one that is lost, or not because another device has all that are wanted, so
//    what is needed depends on where they lie together; an oracle of that would be the scheduler's own rule once more;
//  - uploads: what is lost is asked of its client while that has it, else it is an error, so nothing is made again;
//  - failures, and what cannot be had: they end what wants it, and then less is wanted (recoveries worked out again are not compared);
//  - workers that are to leave: what they have is moved, not made, and which of it they make themselves meanwhile is a matter of when they
//    were asked; that nothing is made twice where nobody dies is checked in drains (note_made);
//  - arrays of no bytes.
#pragma once
#include "oracle.h"

#include <tilewise/base/id.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tilewise::sim {

using BlockId = std::pair<std::uint64_t, std::int64_t>;  // ArrayId, block
using TaskId = std::pair<std::uint64_t, std::int64_t>;   // OpId, point

struct Ran {               // of a task
  std::int64_t steps = 0;  // that were launched: what they read they need no more
  bool over = false;
};

class Minimum {
 public:
  void learn(const msg::Plan& plan);
  void learn(const msg::Recover& recover);  // from now on that is how things are
  void learn(const msg::Retire& retire);    // what is left of them is on its way out

  struct Truth {
    std::set<DeviceId> living;
    std::set<BlockId> here;       // whole on some of them
    std::set<TaskId> used_up;     // in flight, and nothing will be left of what they make
    std::map<TaskId, Ran> ran;    // on them
    std::vector<BlockId> wanted;  // by clients: held, or fetched and not there yet
  };
  // Wanted are besides those what tasks on living devices have still to read; what of all that no living device has or is about to make is
  // made again, and what that reads is wanted too.
  std::set<BlockId> needed(const Truth& truth, Oracle& oracle) const;

  static std::set<BlockId> made_again(const msg::Recover& recover, const Oracle& oracle);
  const std::map<std::uint64_t, std::int64_t>& arrays() const { return arrays_; }  // and their blocks
  // Arrays that a graph's client is to get.
  const std::map<GraphId, std::set<std::uint64_t>>& fetches() const { return fetches_; }
  // Copies that workers know of, and of which array.
  const std::map<std::uint64_t, std::uint64_t>& keeps() const { return keeps_; }
  bool can_tell() const { return can_tell_; }  // false: something was planned that is left out here
  DeviceId maker_of(const BlockId& block) const { return makers_.at(block).device; }

 private:
  struct Maker {
    OpId op;  // or layer
    std::int64_t point = 0;
    DeviceId device;
    bool over = false;  // it was made when this became so
  };
  std::map<BlockId, Maker> makers_;
  std::set<BlockId> forgotten_;                   // and not made again since
  std::map<std::uint64_t, std::uint64_t> makes_;  // op or layer -> array
  std::map<std::uint64_t, std::int64_t> arrays_;
  std::map<std::uint64_t, std::uint64_t> keeps_;
  std::map<GraphId, std::set<std::uint64_t>> fetches_;
  bool can_tell_ = true;
};

}  // namespace tilewise::sim
