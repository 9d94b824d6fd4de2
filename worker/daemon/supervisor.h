// A parent that stays when the worker dies: it tells the scheduler what the worker was executing, ends one whose step or main thread
// does not come to an end, and starts another one where it is told to.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>

#include <functional>

namespace tilewise::worker {

struct SupervisorOptions {
  bool respawn = false;  // the worker is started again after any end but an orderly one
  // A step, a call to a disk below memory, or the worker's start that takes longer ends it; 0: may take for ever.
  TimeNs step_timeout_ns = 3'600 * kSecond;
  // A worker whose main thread has not come round for three times as long is ended.
  TimeNs silence_ns = 10 * kSecond;
  // Tells the scheduler once; may block for a while. For every end but an orderly one of a worker that had joined.
  std::function<Status(const msg::LastWords&)> tell;
  // Where that failed and the scheduler may be started again with its state: goes on telling it, in a process of its own, beside the next
  // worker. None: what could not be told once is lost.
  std::function<Status(const msg::LastWords&)> offer;
};

// Runs this very program with the same arguments and `--black-box` (black_box.h) as a child that cannot outlive us: whatever
// kills us, -9 too, kills it. Returns its exit code, or 128 + the number of the signal that killed it, for us to end with.
//
// Signals that ask a process to end or to do something (TERM, INT, QUIT, USR1, USR2) are passed on to it; a
// HUP only makes us say that it does nothing. With `respawn` it
// is started again unless it ended with 0 (the cluster was shut down, or somebody asked it to end), with 2 (bad options), or
// because of a signal that was passed on: at once, after repeated ends later and later, up to 5 s.
//
// A worker that is stopped (SIGSTOP, a debugger) is never overdue, nor one that was stopped, or suspended, together with us: time
// counts anew from when it goes on.
//
// While the scheduler is away, last words are kept for it: without `respawn` we end only when it has taken them, when `offer` gives up, or at
// the first signal. Another worker is started meanwhile as ever.
//
// Costs: a process that sleeps, and looks around once a second, in which nothing is started; no thread but the log's, no clock of the
// worker's. To be called before anything else starts a thread.
int supervise(int argc, char** argv, const SupervisorOptions& options);

}  // namespace tilewise::worker
