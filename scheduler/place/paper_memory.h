// Private: the memory of one device while a plan runs on paper, where it is too small for all that the plan puts there. What is
// read last leaves for the tiers below, and comes back before it is read (docs/design/tiers.md has the workers' rules).
#pragma once
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

namespace tilewise::place {

class PaperMemory {
 public:
  using Block = std::int32_t;  // by its copy's number
  struct Tier {
    std::int64_t free_bytes = 0;
    double bytes_per_s = 0;
  };
  static constexpr std::int64_t kNever = INT64_MAX;  // of next uses: nobody will read it

  PaperMemory(std::int64_t limit_bytes, std::vector<Tier> below)
      : limit_(limit_bytes), below_(std::move(below)) {}

  // A block is here, and used; room was made for it, or is made by force.
  void add(Block block, std::int64_t bytes);
  // Nobody uses it at the moment; next is the task of that number.
  void rest(Block block, std::int64_t next_use);
  void use(Block block);              // it cannot leave
  void remove(Block block);           // wherever it is
  void rename(Block from, Block to);  // a result in the memory of what it was made from

  // What was there before and passes the bound is below already.
  void settle();

  bool is_below(Block block) const;
  // Memory for so many bytes beside `spare`, wanted by the task of that number: for it nothing leaves that is read before. False: it
  // cannot be had now, and nothing has changed. Else `now` becomes when it is there.
  bool make_room(std::int64_t bytes, std::int64_t spare, std::int64_t task, double& now);
  // There is room for it. It is used; `now` becomes when it is there.
  void bring_back(Block block, double& now);
  // Read from below by somebody else: when that is over.
  double read_below(Block block, double now);

  std::int64_t limit() const { return limit_; }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t spilled_bytes() const { return spilled_; }    // written so far
  std::int64_t returned_bytes() const { return returned_; }  // read back so far
  double spill_s() const { return spill_s_; }                // that the ways to and fro were busy

 private:
  struct State {
    std::int64_t bytes = 0, next_use = kNever;
    int tier = -1;  // has a place there
    bool here = true, rests = false;
  };
  void leave(Block block, State& state);
  // Gives it a place below. False: there is none.
  bool write(State& state, double& now);

  std::int64_t limit_;
  std::vector<Tier> below_;                             // the fastest first
  boost::unordered_flat_map<Block, State> blocks_;      // looked up, never walked
  std::set<std::pair<std::int64_t, Block>> may_leave_;  // by next use
  std::int64_t bytes_ = 0, spilled_ = 0, returned_ = 0;
  double writes_until_ = 0, reads_until_ = 0, spill_s_ = 0;
};

}  // namespace tilewise::place
