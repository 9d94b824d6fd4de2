// A FIFO of host work with a thread of its own.
#pragma once
#include <tilewise/device/device.h>

#include "parker.h"
#include "progress.h"
#include "spsc_queue.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <variant>

namespace tilewise::device {

// Calls come from one thread (see Stream); the executor is the other side of the queue. Work of a failed step does not
// stop the stream; the step's first failure is kept.
class HostStream final : public Stream {
 public:
  // `notify` points at the device's callback, which is set before work is enqueued; it outlives the stream.
  HostStream(std::string name, TimeNs spin_ns, const std::function<void()>* notify);
  ~HostStream() override;  // runs what is queued, then joins

  // Lets the executor end once its queue is empty. Nothing may be enqueued afterwards.
  void stop();

  Kind kind() const override { return Kind::kHost; }
  void* native() const override { return nullptr; }
  Status enqueue(HostWork work) override;
  bool run_now(const HostWork& work) override;
  Status call(std::function<void()> fn) override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  // The other stream may be destroyed while this one waits: the step then fails unless the sequence was reached. A
  // stream of another kind is polled every 50 us and must outlive the wait.
  Status wait(Stream& other, std::uint64_t sequence) override;
  std::uint64_t record() override;
  std::uint64_t completed() const override { return progress_->observe(); }
  void take_failures(std::vector<StepFailure>& out) override;

  void synchronize();

 private:
  struct Record {};
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  struct WaitHost {
    std::shared_ptr<Progress> progress;
    std::uint64_t sequence;
  };
  struct WaitForeign {
    Stream* stream;
    std::uint64_t sequence;
  };
  using Item = std::variant<Record, HostWork, Copy, WaitHost, WaitForeign>;

  void push(Item&& item);
  void run();
  void execute(Item& item);
  template <class Work> void perform_guarded(Work&& work);
  Status perform(Record&);
  Status perform(HostWork& work);
  Status perform(Copy& copy);
  Status perform(WaitHost& wait);
  Status perform(WaitForeign& wait);
  void keep_failure();
  void finish_step();

  const std::string name_;
  const TimeNs spin_ns_;
  const std::function<void()>* const notify_;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  SpscQueue<Item> queue_;
  Parker parker_;       // sleeps while the queue is empty
  Parker wait_parker_;  // sleeps in a wait: pushes must not stir it
  std::atomic<bool> stopping_{false};
  // The caller's:
  std::uint64_t recorded_ = 0;
  bool step_open_ = false;  // work was pushed since the last record
  // The executor's; the caller's while all recorded steps are complete and none is open:
  std::uint64_t current_ = 1;  // the step that runs
  bool step_failed_ = false;
  Error step_error_;  // of the current step
  std::atomic<bool> has_failures_{false};
  std::mutex failures_mutex_;
  std::vector<StepFailure> failures_;
  std::thread thread_;
};

}  // namespace tilewise::device
