// Arrays in files, where no other worker can have a copy of them: what is kept of these, and the steps of their lives.
//
// A *checkpoint* is one file an array: all held results of an op are written at once, each to its own. Its life: it is written by two ops of a graph of the scheduler's own, one that makes the file and
// one whose task for each block puts it there; when all blocks are, a second graph makes it durable. From then on it is *there*, and
// once all results of its op are, that lets go of what it read (cut_past). It goes with the array's record. Files that nobody knows are removed by whoever
// *tends* the folder next, which is also how workers show that they see it.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/base/limits.h>
#include <tilewise/msg/msg.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tilewise::scheduler {

struct ArrayRecord;
struct OpRecord;
struct Peer;
struct State;

struct Checkpoints {
  static constexpr std::size_t kMaxFiles = 2048;  // all are named to who tends the folder
  static constexpr std::size_t kMaxUnderWay = limits::kMaxOutputs;
  enum class Step : std::uint8_t { kWriting, kCommitting, kThere };
  struct File {
    ArrayId array;
    Step step = Step::kWriting;
    OpId op;             // that ends the step; none: it is there
    std::string folder;  // of the scheduler's life in which it was begun
  };
  struct Ended {
    OpId op;
    bool ok = false;
    msg::Outcome why;
  };
  std::uint64_t next = 1;               // number of the next file in this term
  std::map<std::uint64_t, File> files;  // by id
  std::uint64_t marker = 0;             // of the folder, numbered like files; 0: nobody was asked to make it
  bool made = false;                    // somebody has seen the folder, so others must
  std::set<WorkerId> unseen;            // who are to look at the folder
  std::map<WorkerId, std::string> without;  // who cannot use it: why
  bool due = false;                         // there may be files that nobody knows
  OpId tending;                             // the op that looks at the folder; one at a time
  WorkerId tender;
  bool tends_before = false;  // that op is of the life before, whose folder may have been another one
  std::vector<Ended> ended;   // not looked at yet
  std::map<OpId, std::string> failing;   // first failures of ops that are under way
  std::string trouble;                   // why the last one that ended was not written; empty: it was
  std::int64_t written = 0, failed = 0;  // for people
};

// Begins to write the op's results that are held, each into a file of its own. False: not all of them can be written now, and none is.
bool write_unasked(State& s, const OpRecord& head, std::vector<msg::Plan>& plans);
// That could change soon: others are being written, or the folder is being looked at.
bool writes_later(const State& s);
bool on_disk(const State& s, const ArrayRecord& array);
// The op reads the file from now on, not what the array was made from. Only once it is there.
void turn_to_file(State& s, OpRecord& op);
bool is_from_file(const OpRecord& op);
// An op of a graph of the scheduler's own.
void own_op_failed(State& s, const OpRecord& op, const std::string& why);
void own_op_ended(State& s, const OpRecord& op);
void check_checkpoints(State& s);  // looks at what has ended
void tend_checkpoints(State& s);   // has somebody look at the folder, where there is cause to
void forget_checkpoint(State& s, const ArrayRecord& array);  // nobody can name it any more

void show_folder(State& s, const Peer& newcomer);
void hide_folder(State& s, WorkerId gone);
void reopen_folder(State& s);  // a new life

}  // namespace tilewise::scheduler
