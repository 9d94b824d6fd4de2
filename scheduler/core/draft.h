// A submission on its way to becoming a graph. Nothing here changes the state: a refused submission leaves no trace.
#pragma once
#include "replay.h"
#include "state.h"

#include <tilewise/plan/plan.h>

#include <boost/unordered/unordered_flat_map.hpp>

namespace tilewise::scheduler {

struct Draft {
  plan::Graph graph;                                              // named by ArrayId
  boost::unordered_flat_map<std::uint64_t, std::uint64_t> names;  // session number -> ArrayId, of its outputs
  boost::unordered_flat_map<std::uint64_t, std::uint64_t> numbers;  // and back
  std::uint64_t own = 0;                                            // outputs: ids are given in a row
  std::uint64_t first_number =
      0;  // of a program that is kept: numbers are in a row too, and not listed above
  const SessionProgram* kept = nullptr;  // its session's
  std::vector<std::uint64_t> fetched;    // session numbers of the operands of kFetch, in order
  std::vector<std::pair<std::uint64_t, ArrayId>> provided;
  std::vector<std::pair<ArrayId, std::uint32_t>> copies;  // arrays that several workers are to have
  std::optional<ir::Placement> given;                     // of its one kProvide: where its pieces are
  std::uint64_t next_array = 0;
  // after planning and placing:
  std::vector<ir::Op> ops;
  std::vector<ir::Placement> placements;                 // parallel to ops
  std::vector<place::Decision> decisions;                // likewise: why there (without the placement itself)
  std::vector<std::int64_t> levels_ns;                   // likewise (place/levels.h)
  std::vector<std::pair<DeviceId, std::int64_t>> needs;  // bytes, at most at once, beside what was there
  std::vector<plan::PassReport> passes;                  // what happened before; "replayed" alone: nothing
  Cuts cuts;  // what was cut for ops of it; of a replay only where that is checked
  Program program;

  // The session's number of one of the outputs, or 0: of an array that a pass made.
  std::uint64_t number_of(std::uint64_t array) const {
    const auto it = numbers.find(array);
    if (it != numbers.end()) return it->second;
    return first_number != 0 && array - program.first < own ? array - program.first + first_number : 0;
  }
};

// translate.cc: checks names, devices and limits, and gives every array its id.
Result<Draft> translate(const State& s, const Session& session, msg::Submit& submit);
// The same for a program that the session keeps, where there is nothing to object to and no ops need be looked at; else none.
std::optional<Draft> translate_kept(const State& s, const Session& session, const msg::Submit& submit,
                                    const SessionProgram* kept);

// submit.cc: of all outputs together; cut off at 1e18, so that sums of loads do not overflow.
std::int64_t output_bytes(const ir::Op& op);

// submit.cc: all of it: translated, rewritten, placed. `kept`: what the session keeps of these ops, or of which there are none in
// `submit`. `dump`: keep the graph after each pass as text. `needs`: is told what does not fit, where that is the error.
Result<Draft> prepare(const State& s, const Session& session, msg::Submit& submit, const SessionProgram* kept,
                      bool dump, std::vector<msg::NeedAccount>& needs);
// submit.cc: which program it names; null: none.
Result<const SessionProgram*> program_of(const Session& session, const msg::Submit& submit);

// copies.cc: what makes the copies that it asks for (ir::OpKind::kKeep), as it would be placed now.
struct PlannedKeep {
  ir::Op op;
  ir::Placement placement;
};
std::vector<PlannedKeep> planned_keeps(const State& s, const Draft& draft);

// submit.cc, shared by all that become graphs.
Status room_for_a_graph(const State& s);
// Translated; rewritten, placed.
Result<Draft> planned(const State& s, Draft draft, bool dump, std::vector<msg::NeedAccount>& needs);
// Nothing can be refused any more. `reply` is told the graph and what arrays are called.
struct Request {
  SessionId session;
  std::uint64_t number = 0;
  std::int32_t priority = 0;
  std::uint32_t weight = msg::kDefaultWeight;
};
GraphRecord& commit(State& s, const Request& request, Draft draft, PastGraph past, msg::SubmitReply& reply);
// Fetches end with what they wait for; blocks that a client provides are there already; an empty op has nothing to do. Once it
// has been answered.
void finish_what_is_done(State& s, GraphId id);
// The request is an old one, and was answered again, if it is due.
bool answered_before(State& s, const Peer& client, std::uint64_t request);
Answer& new_answer(Session& session, std::uint64_t request);

// placing.cc: a rule for every op of draft.ops; refuses what can never fit.
Status place_ops(const State& s, Draft& draft, std::vector<msg::NeedAccount>& needs);

}  // namespace tilewise::scheduler
