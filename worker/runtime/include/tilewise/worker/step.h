// One launch, ready to be turned into a KernelCall on whatever thread runs it: addresses are resolved, the rest follows
// from the op's geometry.
#pragma once
#include <tilewise/kernels/kernels.h>
#include <tilewise/worker/black_box.h>
#include <tilewise/worker/core.h>
#include <tilewise/worker/meter.h>
#include <tilewise/worker/step_log.h>

#include <atomic>
#include <new>

namespace tilewise::worker {

struct ResolvedStep {
  const OpEntry* op = nullptr;  // kept by the core until the step is complete
  OpRun run;                    // likewise
  std::int64_t point = 0, step = 0, steps = 1;
  boost::container::small_vector<std::byte*, 4> inputs;  // block starts, in the order of Geometry::reads
  boost::container::static_vector<std::byte*, limits::kMaxOutputs> outputs;
};

// Where a step's time is written down.
struct StepSink {
  Meter* meter = nullptr;
  StepLog* log = nullptr;                        // may be null
  std::atomic<std::int64_t>* busy_ns = nullptr;  // of the stream, in all; never null where a step runs
  DeviceId id;
  std::uint8_t stream = 0;
  BlackBox::Slot* slot = nullptr;  // of the stream; may be null
};

// Whether it may be begun once more after it has been refused memory in the middle: it reads nothing that it writes, and does nothing
// but write its results.
bool can_repeat(const ResolvedStep& step);
// How long to wait after the n-th try (from 0) to run a step; 0: there is no other.
TimeNs patience(const ResolvedStep& step, int tries);
void sleep_for(TimeNs time);

// What `run` gives, which builds a step's call and runs it. Where the process has no memory for that, and it may be begun once more, it
// is for a tenth of a second, since a machine is short of memory for a moment; for ten seconds where it makes what was lost, which is
// lost for good otherwise. No try is overdue (--step-timeout) for the time between them.
template <class Run> Status run_patiently(const ResolvedStep& step, const Run& run) {
  for (int tries = 0;; ++tries) {
    const TimeNs wait = patience(step, tries);
    if (wait == 0) return run();
    try {
      Status done = run();
      if (done || done.error().code != Errc::kOutOfMemory) return done;
    } catch (const std::bad_alloc&) {
    }
    sleep_for(wait);
  }
}

// Fills `call`. Thread-safe; `reads` is scratch.
void build_call(const ResolvedStep& step, std::vector<ir::Read>& reads, kernels::KernelCall& call);

// Runs a step whose call is built, on this thread, with scratch that the thread keeps. `ended`: when, if given. Thread-safe.
Status run_on_host(const kernels::KernelSet& kernels, kernels::KernelCall& call, const ResolvedStep& step,
                   const StepSink& sink, TimeNs* ended = nullptr);

}  // namespace tilewise::worker
