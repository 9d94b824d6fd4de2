// What a worker's devices are executing, in memory that outlives the process: written by whoever runs a step, a few stores
// each, and read by the supervisor when the process is dead, or to see whether a step has run for too long. Of a GPU's stream it is the step that has been launched first and is not
// known to be over, written by who launches; and when a GPU has broken all that were open, if there is still somebody to write them:
// the kernel that broke it is among these.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace tilewise::worker {

class BlackBox {
 public:
  // One stream's: of each only one step runs at a time.
  class alignas(64) Slot {
   public:
    // `number`: another one for each step, rising.
    void begin(OpId op, DeviceId device, std::int64_t point, std::uint64_t number) {
      device_.store(device.value, std::memory_order_relaxed);
      point_.store(point, std::memory_order_relaxed);
      number_.store(number, std::memory_order_relaxed);
      op_.store(op.value, std::memory_order_release);
    }
    void begin(OpId op, DeviceId device, std::int64_t point) {
      begin(op, device, point, number_.load(std::memory_order_relaxed) + 1);
    }
    void end() { op_.store(0, std::memory_order_release); }

   private:
    friend class BlackBox;
    std::atomic<std::uint64_t> op_;  // 0: nothing runs
    std::atomic<std::int64_t> point_;
    std::atomic<std::uint64_t> number_;
    std::atomic<std::uint32_t> device_;
  };

  // A fresh one, in a memfd that programs started from here inherit. Error: kIo.
  static Result<std::unique_ptr<BlackBox>> create();
  // The one behind an inherited descriptor, which is closed. Errors: kIo, kInvalidArgument where there is something else.
  static Result<std::unique_ptr<BlackBox>> open(int fd);
  ~BlackBox();
  BlackBox(const BlackBox&) = delete;
  BlackBox& operator=(const BlackBox&) = delete;

  int fd() const { return fd_; }  // of create()
  // Random, not 0: names the process that writes here.
  std::uint64_t number() const { return header().number; }
  // What the scheduler calls it, and whether that one may come back from its own end: it keeps its state.
  void set_worker(WorkerId id, bool scheduler_returns) {
    header().scheduler_returns.store(scheduler_returns, std::memory_order_relaxed);
    header().worker.store(id.value, std::memory_order_release);
  }
  // It is not waited for any more.
  void give_scheduler_up() { header().scheduler_returns.store(false, std::memory_order_release); }
  // The process ends of its own accord: what still runs is not the cause.
  void close() { header().closed.store(true, std::memory_order_release); }
  // A GPU has broken: what hosts execute is not the cause, whether the process ends of its own accord or not. Any thread.
  void gpu_broke() { header().gpu_broke.store(true, std::memory_order_release); }
  // A step that was launched on it and is not known to be over; beyond kOpenSteps they are forgotten. The runtime's thread.
  void add_open(OpId op, DeviceId device, std::int64_t point);
  // Of the n-th device's stream; null for devices beyond those that there is room for. A GPU has two: what the host does for it runs
  // beside its kernels.
  Slot* slot(std::size_t device, std::size_t stream);
  Slot* gpu_slot(std::size_t device, std::size_t stream);
  // The loop's thread has come round: to be said once in kBeatNs at least, by that thread.
  void beat() {
    std::atomic<std::uint64_t>& beats = header().beats;  // one writer
    beats.store(beats.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  static constexpr TimeNs kBeatNs = kSecond;
  // The loop's thread executes what it notes in this slot, until told null: should it never return, that is the cause.
  void loop_runs(const Slot* slot) {
    const auto at = slot == nullptr ? 0 : static_cast<std::uint32_t>(slot - memory_->slots) + 1;
    header().loop_slot.store(at, std::memory_order_release);
  }
  // Of a thread that reads and writes a disk below memory; null beyond kDiskSlots of them. What is begun there is no op's: any id.
  Slot* disk_slot(std::size_t thread);

  // After the process has ended. `worker` is none if it never joined.
  msg::LastWords words(std::string how) const;
  bool scheduler_returns() const { return header().scheduler_returns.load(std::memory_order_acquire); }
  // For the next process: all forgotten, another number.
  Status renew();

  struct Limits {
    TimeNs step =
        0;  // of a step, a read or write of a disk below memory, and of the start, up to the first beat; 0: none
    TimeNs loop = 0;  // between two beats; 0: none
  };
  // What has been under way for its limit at least.
  struct Overdue {
    std::vector<msg::LastWords::Running> steps;
    bool disk = false;  // a read or write of a disk below memory
    bool loop =
        false;  // its thread has not come round, and nothing else is overdue; `steps` is what it executes itself, if anything
    bool start = false;  // nor has it come round before
    bool any() const { return disk || loop || start || !steps.empty(); }
  };
  // For who made the box, to be asked again and again while the process lives: time counts from when a step was first seen to run,
  // so nothing is taken for late too early, and late by the time between two calls. No step where it has closed the box, but the loop
  // all the same: who ends of its own accord may hang in that. Steps that wait in a GPU's stream behind another are not under way.
  Overdue overdue(TimeNs now, const Limits& limits);
  // Who asks has not been running itself (the machine was suspended, the container paused), and no more was the process; or it is known
  // that the process has been stopped.
  void begin_anew() {
    seen_.clear();
    loop_seen_ = {};
  }

 private:
  static constexpr std::uint64_t kMagic = 0x786f626b63616c62;
  static constexpr std::size_t kHostSlots = 256, kOpenSteps = 512, kDiskSlots = 64;
  static constexpr std::size_t kSlots = 2 * kHostSlots + kOpenSteps;  // of steps; a disk's follow
  struct Header {
    std::uint64_t magic, number;
    std::atomic<std::uint32_t> worker;
    std::atomic<bool> closed, gpu_broke, scheduler_returns;
    std::atomic<std::uint32_t> open;  // steps
    alignas(64) std::atomic<std::uint64_t> beats;
    std::atomic<std::uint32_t> loop_slot;  // 1 + its index; 0: none
  };
  struct Memory {
    alignas(64) Header header;
    Slot slots[kSlots + kDiskSlots];
  };
  struct Seen {
    std::uint64_t number = 0;
    std::optional<TimeNs> since;  // none: nothing ran
  };

  BlackBox(int fd, Memory* memory) : fd_(fd), memory_(memory) {}
  static Result<Memory*> map(int fd);
  void look_at_loop(TimeNs now, const Limits& limits, Overdue& late);
  Header& header() const { return memory_->header; }

  int fd_;
  Memory* memory_;
  std::vector<Seen> seen_;  // by slot, once overdue() was asked
  Seen loop_seen_;          // number: of beats
};

}  // namespace tilewise::worker
