#include <tilewise/worker/black_box.h>

#include <tilewise/worker/core.h>

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace tilewise::worker {
namespace {

Error system_error(const std::string& what) {
  return error(Errc::kIo, "black box: " + what + ": " + std::strerror(errno));
}

}  // namespace

Result<BlackBox::Memory*> BlackBox::map(int fd) {
  void* at = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return system_error("cannot map it");
  return static_cast<Memory*>(at);
}

Result<std::unique_ptr<BlackBox>> BlackBox::create() {
  const int fd = memfd_create("tilewise-black-box", 0);
  if (fd < 0) return system_error("no memory for it");
  if (ftruncate(fd, sizeof(Memory)) != 0) {
    const Error why = system_error("no memory for it");
    ::close(fd);
    return why;
  }
  auto memory = map(fd);
  if (!memory) {
    ::close(fd);
    return memory.error();
  }
  std::unique_ptr<BlackBox> box(new BlackBox(fd, *memory));
  TW_TRY(box->renew());
  return box;
}

Result<std::unique_ptr<BlackBox>> BlackBox::open(int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0) return system_error("descriptor " + std::to_string(fd));
  if (!S_ISREG(found.st_mode) || found.st_size != sizeof(Memory))
    return error(Errc::kInvalidArgument, "descriptor " + std::to_string(fd) + " is no black box");
  TW_ASSIGN(Memory * memory, map(fd));
  ::close(fd);
  std::unique_ptr<BlackBox> box(new BlackBox(-1, memory));
  if (memory->header.magic != kMagic)
    return error(Errc::kInvalidArgument, "descriptor " + std::to_string(fd) + " is no black box");
  return box;
}

BlackBox::~BlackBox() {
  munmap(memory_, sizeof(Memory));
  if (fd_ >= 0) ::close(fd_);
}

Status BlackBox::renew() {
  std::uint64_t number = 0;
  while (number == 0) {
    if (getrandom(&number, sizeof number, 0) != sizeof number) return system_error("no random number");
  }
  new (memory_) Memory();  // all zero
  memory_->header.magic = kMagic;
  memory_->header.number = number;
  begin_anew();
  return {};
}

BlackBox::Slot* BlackBox::slot(std::size_t device, std::size_t stream) {
  const std::size_t at = device * kMaxStreams + stream;
  return at < kHostSlots ? &memory_->slots[at] : nullptr;
}

BlackBox::Slot* BlackBox::gpu_slot(std::size_t device, std::size_t stream) {
  Slot* const host = slot(device, stream);
  return host == nullptr ? nullptr : host + kHostSlots;
}

BlackBox::Slot* BlackBox::disk_slot(std::size_t thread) {
  return thread < kDiskSlots ? &memory_->slots[kSlots + thread] : nullptr;
}

void BlackBox::add_open(OpId op, DeviceId device, std::int64_t point) {
  const std::uint32_t at = header().open.load(std::memory_order_relaxed);
  if (at == kOpenSteps) return;
  memory_->slots[2 * kHostSlots + at].begin(op, device, point);
  header().open.store(at + 1, std::memory_order_relaxed);
}

msg::LastWords BlackBox::words(std::string how) const {
  msg::LastWords words{
      WorkerId{header().worker.load(std::memory_order_acquire)}, number(), std::move(how), {}};
  const bool gpus_only = header().gpu_broke.load(std::memory_order_acquire);
  if (!gpus_only && header().closed.load(std::memory_order_acquire)) return words;
  for (std::size_t i = gpus_only ? kHostSlots : 0; i < kSlots; ++i) {
    const Slot& slot = memory_->slots[i];
    const std::uint64_t op = slot.op_.load(std::memory_order_acquire);
    if (op == 0) continue;
    const msg::LastWords::Running step{OpId{op}, DeviceId{slot.device_.load(std::memory_order_relaxed)},
                                       slot.point_.load(std::memory_order_relaxed)};
    if (std::find(words.running.begin(), words.running.end(), step) == words.running.end())
      words.running.push_back(step);
  }
  return words;
}

void BlackBox::look_at_loop(TimeNs now, const Limits& limits, Overdue& late) {
  const std::uint64_t beats = header().beats.load(std::memory_order_acquire);
  const TimeNs limit = beats == 0 ? limits.step : limits.loop;
  if (!loop_seen_.since || loop_seen_.number != beats) {
    loop_seen_ = {beats, now};
    return;
  }
  if (limit == 0 || now - *loop_seen_.since < limit) return;
  (beats == 0 ? late.start : late.loop) = true;
  const std::uint32_t at = header().loop_slot.load(std::memory_order_acquire);
  if (at == 0 || at > kSlots) return;
  const Slot& slot = memory_->slots[at - 1];
  if (const std::uint64_t op = slot.op_.load(std::memory_order_acquire); op != 0)
    late.steps.push_back({OpId{op}, DeviceId{slot.device_.load(std::memory_order_relaxed)},
                          slot.point_.load(std::memory_order_relaxed)});
}

BlackBox::Overdue BlackBox::overdue(TimeNs now, const Limits& limits) {
  Overdue late;
  const bool ends =
      header().closed.load(std::memory_order_acquire) || header().gpu_broke.load(std::memory_order_acquire);
  seen_.resize(limits.step == 0 || ends ? 0 : kSlots + kDiskSlots);
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const Slot& slot = memory_->slots[i];
    Seen& seen = seen_[i];
    // In the order opposite to begin()'s: the number is that of the step whose op is read, or of a later one.
    const std::uint64_t op = slot.op_.load(std::memory_order_acquire);
    const std::uint64_t number = slot.number_.load(std::memory_order_relaxed);
    if (op == 0) {
      seen.since.reset();
    } else if (!seen.since || seen.number != number) {
      seen = {number, now};
    } else if (now - *seen.since >= limits.step) {
      if (i >= kSlots)
        late.disk = true;
      else
        late.steps.push_back({OpId{op}, DeviceId{slot.device_.load(std::memory_order_relaxed)},
                              slot.point_.load(std::memory_order_relaxed)});
    }
  }
  Overdue loop;
  look_at_loop(now, limits, loop);  // also where something else is late: what it sees counts for later
  return late.any() ? late : loop;
}

}  // namespace tilewise::worker
