// What must be made again after a loss, and nothing else: worked out from who makes each block, what living workers really have and
// who wants it. Shares nothing with the scheduler's recovery but what a task reads (ir::Geometry, forwards).
//
// Copies that clients ask for are reckoned with: whoever has one has the block, and nobody reads for one what its client does not hold.
//
// Of several results of a task some may be wanted, and lie apart: it is run again where one of them is nowhere, and then only those that
// are nowhere are taken from it.
//
// A task that is to be run again, and whose results came to be there whole before it was launched, may be over without having read
// anything; and what is left of results of retired ops is on its way out, or has been found there. So there are two bounds here, which
// differ for such tasks only.
//
// Uploads are asked of their client while their graph runs, and nothing is made. After that a task that would have to read one cannot be run again: a
// pass of the recovery is given up then, and only then.
//
// Who leaves as it was told to is as one who was lost, in the step in which it is struck off; what it had has been moved, so that others have it.
//
// Not for:
//  - failures, and what cannot be had: they end what wants it, and then less is wanted (recoveries worked out again are not compared,
//    but for why the first of them was);
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
  bool spared = false;  // not launched, while all its results were there for another reason: may be over
  DeviceId device = {};
};

class Minimum {
 public:
  void learn(const msg::Plan& plan);
  void learn(const msg::Recover& recover);  // from now on that is how things are
  void learn(const msg::Retire& retire);    // what is left of them is on its way out

  struct Truth {
    std::set<DeviceId> living;
    std::set<DeviceId> left;                     // of whom all that is wanted should be elsewhere
    std::map<BlockId, std::set<DeviceId>> here;  // whole on some of all these
    std::set<BlockId> used_up;                   // in flight, and nothing will be left of it
    std::map<TaskId, Ran> ran;                   // on living ones
    std::vector<BlockId> wanted;                 // by clients: held, or fetched and not there yet
    std::set<GraphId> ended;                     // their clients have no uploads for them any more
  };
  enum class Bound { kLeast, kMost };
  struct Need {
    std::set<BlockId> again;                      // tasks, by their first results
    std::set<BlockId> missing;                    // results of these, that are wanted and nowhere
    std::map<BlockId, std::set<BlockId>> wanted;  // likewise: which of their results
    std::set<BlockId> asked, lost;  // uploads that those read: which clients have, and which nobody has
  };
  // Wanted are besides those what tasks on living devices have still to read; what of all that no living device has or is about to make is
  // made again, and what that reads is wanted too.
  Need needed(const Truth& truth, Bound bound, Oracle& oracle) const;

  std::set<BlockId> made_again(const msg::Recover& recover) const;  // results
  // Tasks that these devices were told to run again, and their results.
  std::map<TaskId, std::vector<BlockId>> again_on(const std::vector<DeviceId>& devices) const;
  const std::map<std::uint64_t, std::int64_t>& arrays() const { return arrays_; }  // and their blocks
  // Arrays that a graph's client is to get.
  const std::map<GraphId, std::set<std::uint64_t>>& fetches() const { return fetches_; }
  // Copies that workers know of, and of which array.
  const std::map<std::uint64_t, std::uint64_t>& keeps() const { return keeps_; }
  bool can_tell() const { return can_tell_; }  // false: something was planned that is left out here
  BlockId task_of(const BlockId& block) const { return {first_.at(block.first), block.second}; }
  DeviceId maker_of(const BlockId& block) const { return makers_.at(block).device; }
  std::size_t results_of(const BlockId& task) const { return results_.at(task.first).size(); }

 private:
  struct Maker {
    OpId op;  // or layer
    std::int64_t point = 0;
    DeviceId device;
    bool over = false;   // it was made when this became so
    bool again = false;  // by a layer
  };
  bool missing(const BlockId& block, const Truth& truth, Bound bound) const;
  static Ran ran(const Maker& maker, const Truth& truth);
  template <class F> void each_block(const msg::PlannedOp& layer, F&& visit) const;

  std::map<BlockId, Maker> makers_;
  std::set<BlockId> forgotten_;                                  // and not made again since
  std::map<std::uint64_t, std::uint64_t> makes_;                 // op or layer -> its first array
  std::map<std::uint64_t, std::uint64_t> first_;                 // array -> the first one of its op
  std::map<std::uint64_t, std::vector<std::uint64_t>> results_;  // of the op, by its first array
  std::map<std::uint64_t, GraphId> uploads_;                     // arrays
  std::map<std::uint64_t, std::int64_t> arrays_;
  std::map<std::uint64_t, std::uint64_t> keeps_;
  std::map<GraphId, std::set<std::uint64_t>> fetches_;
  bool can_tell_ = true;
};

}  // namespace tilewise::sim
