// How long the *past* of an op is: what would have to be run to make its results again, itself included, each op once, up to what is safe.
//
// That is a walk, and a loop would walk over the same ops at every step. So each op knows what its past has at most, and no walk is made for
// those of which that is not too much. It comes from two sides. A sum over what it reads: exact along a chain, but where paths meet again it grows like
// powers of two. And a *set*: some ops with all of their pasts, counted once by a walk; so none of them has a longer past. An op that
// reads one of a set becomes one of it, and the set is longer by that op, and by the pasts of what it reads besides. So after a walk
// that found the pasts of some ops, together, so many short of too long, as many ops may follow on them, whichever way they read each other, before
// there is another one.
//
// All of this decides nothing but whether a walk is made that would find a past not too long. So it is in no snapshot and no digest.
#pragma once
#include <tilewise/base/id.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilewise::scheduler {

struct OpRecord;
struct Options;
struct State;

struct Past {
  static constexpr std::int64_t kMost = std::int64_t{1} << 61;  // sums of sums stay finite
  std::int64_t ops = 0, ns = 0;

  Past& operator+=(const Past& more);
  bool too_long(const Past& limit) const { return ops > limit.ops || ns > limit.ns; }
};
Past limit_of(const Options& options);
Past half_of(const Options& options);

struct PastNote {  // in an op's record
  Past most;
  std::uint64_t set = 0;                // that it is one of; 0: none
  std::uint64_t walk = 0, reached = 0;  // the last walk that came here, and from which of those it began with
  bool chosen = false;                  // while it is decided what becomes an anchor (lineage.cc): this does
};

struct Pasts {
  static constexpr std::size_t kSets = 4096;  // the last ones; ops of earlier ones are of none
  bool known =
      false;  // else all is to be worked out: it is not in snapshots, or some pasts have become longer
  std::uint64_t next_set = 1, walks = 0;
  std::array<Past, kSets> sets;

  Past* set(std::uint64_t number) {
    return number != 0 && number + kSets >= next_set ? &sets[number % kSets] : nullptr;
  }
  std::uint64_t add(const Past& size) { return sets[next_set % kSets] = size, next_set++; }
};

// Of an op that is planned now, and takes about so long.
void note_past(State& s, OpRecord& op, double work_s);
// It was too long, and nothing could be done: from now on it counts as if there was none, for what is made from the op.
void forget_past(OpRecord& op);
// Walks over the pasts of some ops at once, as far as they are not too long, and finds for each whether it is.
class PastWalk {
 public:
  static constexpr std::size_t kMost = 64;
  enum class Limit : bool { kWhole, kHalf };  // of what is too long; with kHalf some ops may be chosen
  PastWalk(State& s, std::span<const OpId> of, Limit limit);

  bool too_long(std::size_t i) const { return (too_long_ >> i & 1) != 0; }
  const Past& length(std::size_t i) const { return lengths_[i]; }  // of one that is not
  // Those in whose pasts this op was counted: bit i for the i-th. Not those that are too long without it.
  std::uint64_t counts_for(const OpRecord& op) const;

 private:
  void reach(OpRecord& op, std::uint64_t by);
  void count(OpRecord& op);
  std::uint64_t counted(const OpRecord& op) const;
  void bind();

  State& s_;
  const std::span<const OpId> of_;
  const Past limit_;
  const std::uint64_t walk_;
  std::uint64_t too_long_ = 0;
  std::array<Past, kMost> lengths_{};
  std::vector<OpRecord*> open_;  // a heap: the last one planned first
  std::vector<OpRecord*> seen_;
};

void check_past(const State& s);  // of a few ops, against a walk

}  // namespace tilewise::scheduler
