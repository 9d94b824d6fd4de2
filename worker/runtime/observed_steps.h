// When steps of a stream ran that nobody times: as seen from outside, by when they were enqueued and when they were found
// complete. Steps that are found complete together share the time between them by what the model expects of each.
#pragma once
#include <tilewise/worker/core.h>

#include <deque>

namespace tilewise::worker {

class ObservedSteps {
 public:
  struct Step {
    const OpEntry* op = nullptr;  // kept by the core until it hears of the step's end
    std::int64_t point = 0;
    std::uint64_t sequence = 0;
    TimeNs enqueued = 0;
    OpRun run;
  };
  bool empty() const { return steps_.empty(); }
  const std::deque<Step>& steps() const { return steps_; }
  void enqueued(const Step& step) { steps_.push_back(step); }
  // The last of them is on its stream only now.
  void launched(TimeNs now) { steps_.back().enqueued = now; }
  // Calls each(step, start, end) for those up to `sequence`, in order.
  template <class Fn> void completed(std::uint64_t sequence, TimeNs now, Fn&& each) {
    std::size_t n = 0;
    double model = 0;
    for (; n < steps_.size() && steps_[n].sequence <= sequence; ++n) model += weight(steps_[n]);
    if (n == 0) return;
    TimeNs start = std::min(now, std::max(last_end_, steps_.front().enqueued));
    for (; n > 0; --n) {
      const Step step = steps_.front();
      steps_.pop_front();
      const double share = weight(step) / model;
      const TimeNs end = n == 1 ? now : start + static_cast<TimeNs>(share * static_cast<double>(now - start));
      model -= weight(step);
      each(step, start, end);
      start = end;
    }
    last_end_ = now;
  }

 private:
  static double weight(const Step& step) {
    return static_cast<double>(std::max<std::int64_t>(1, step.op->model_ns));
  }
  std::deque<Step> steps_;
  TimeNs last_end_ = 0;
};

}  // namespace tilewise::worker
