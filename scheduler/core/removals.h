// What a save that came to no good end leaves under a temporary name: it is removed, and before that nobody is told of the end, but for a
// silence time-out at most: a disk that does not answer withholds no error. It is the
// scheduler that has it done, so it does not matter whether the client lives; and it waits until no worker is at that save any more, so
// that nothing is made anew behind it.
#pragma once
#include "checkpoints.h"

#include <tilewise/base/id.h>
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>

#include <string>
#include <vector>

namespace tilewise::scheduler {

struct Asker;
struct GraphRecord;
struct State;

// A task that removes what another one was to put in place.
struct Undo {
  std::string kernel, params;
  DeviceId near;  // where that other one was to run: its worker sees the place
};

struct Removal {
  static constexpr std::size_t kMax = 4096;  // that wait for a worker; beyond, the oldest are given up
  static constexpr std::uint32_t kTries = 3;
  static constexpr TimeNs kAgainNs = kSecond;  // before the second try; before each next one twice as long
  std::vector<Undo> left;                      // the last one is next, or under way
  std::uint32_t tries = 0;                     // of that one, that failed
  TimeNs again_at = 0;                         // not before
  OpId op;                                     // that does it; none: not begun
  std::vector<Asker> askers;                   // of the request; empty: they have been told
  TimeNs tell_at = 0;                          // they wait no longer
  msg::GraphDone done;                         // what they are told, but for the number of their request
};

// Of a request that is planned: what is to be removed if it fails.
void note_saves(const State& s, GraphRecord& graph);
// It has ended. True: its askers are told later, by check_removals().
bool begin_removal(State& s, const GraphRecord& graph);
void check_removals(State& s);
// An op of the scheduler's own has ended; false: it removes nothing.
bool removal_ended(State& s, const Checkpoints::Ended& ended);
TimeNs removals_deadline(const State& s);

}  // namespace tilewise::scheduler
