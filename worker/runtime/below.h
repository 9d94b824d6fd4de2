// What lies below devices' memory, as the shell sees it: a spill file, a slab of pinned host memory, and the way of blocks
// there and back, and within memory. Where things go is the core's choice (TierIo).
//
// Host memory and the file have the file's threads between them. A GPU's blocks are copied to pinned memory on streams of the
// device's own; to the file they go through a ring of pinned buffers, a piece of a block in each: while one is copied,
// others are on their way from or to the disk. A piece holds one buffer and waits for nobody who holds another.
#pragma once
#include <tilewise/device/copier.h>
#include <tilewise/device/cuda_pinned.h>
#include <tilewise/store/spill_file.h>

#include <deque>
#include <functional>
#include <list>
#include <memory>

namespace tilewise::worker {

// Moves blocks of GPUs to and from a file. One thread, but for `later`.
class StagingRing {
 public:
  using Done = std::function<void(Status)>;
  struct Options {
    std::int64_t piece_bytes = 8 << 20;  // a multiple of SpillFile::kPage
    int pieces = 4;                      // under way at once
  };
  // `memory` holds all pieces, aligned to a page; it, the copier and the file outlive the ring's copies. `later` runs a function
  // on the ring's thread, soon; it is called from any.
  StagingRing(std::byte* memory, const Options& options, device::Copier& copier, store::SpillFile& file,
              std::function<void(std::function<void()>)> later);

  // To or from [at, at + bytes) of the file. What comes back does not wait behind what leaves. `done` on the ring's thread,
  // when neither the memory nor the part of the file is touched any more: kDiskFull, kIo, kDeviceError.
  void write(device::Device& device, const std::byte* from, std::int64_t at, std::int64_t bytes, Done done);
  void read(device::Device& device, std::byte* to, std::int64_t at, std::int64_t bytes, Done done);

 private:
  struct Job {
    bool write = false;
    device::Device* device = nullptr;
    std::byte* memory = nullptr;
    std::int64_t at = 0, bytes = 0;
    std::int64_t begun = 0;  // bytes of pieces that have begun
    int under_way = 0;       // pieces
    Status status;           // of the first piece that failed: none is begun after it
    Done done;
    bool waits() const { return status && begun < bytes; }
  };
  using Jobs = std::list<Job>;
  void add(Job job);
  void begin_pieces();
  void begin_piece(Jobs::iterator job, std::byte* buffer);
  void end_piece(Jobs::iterator job, std::byte* buffer, const Status& status);

  const std::int64_t piece_bytes_;
  device::Copier& copier_;
  store::SpillFile& file_;
  std::function<void(std::function<void()>)> later_;
  std::vector<std::byte*> free_;  // buffers
  Jobs leaving_, returning_;
  bool beginning_ = false;  // begin_pieces() is on the stack
};

// All of a worker's tiers. One thread.
class Below {
 public:
  using Done = StagingRing::Done;
  Below(device::Copier& copier, std::function<void(std::function<void()>)> later);
  ~Below();  // what a thread of the file's has begun has ended; devices have come to rest before

  // `gpu`: one of the worker's, if it has any: then a ring is made beside the file. kOutOfMemory.
  Status use_disk(std::unique_ptr<store::SpillFile> file, device::Device* gpu);
  // At once and as a whole: whether the host has so much is known before any work is. kOutOfMemory.
  Status use_pinned(device::Device& gpu, std::int64_t bytes);
  // The file's threads end; nothing that was to be read or written there is told any more.
  void stop() { disk_.reset(); }

  std::int64_t disk_bytes() const { return disk_ ? disk_->limit_bytes() : 0; }
  std::int64_t pinned_bytes() const { return pinned_ ? static_cast<std::int64_t>(pinned_->size()) : 0; }
  store::SpillFile* disk() const { return disk_.get(); }
  // Where in pinned memory what lies at this offset is.
  std::byte* pinned(std::int64_t at) const { return pinned_->data() + at; }

  // Between a device's memory and the file. Both are the call's alone until `done`, which comes once: on this thread, or on one of the
  // file's. So with the next.
  void move_disk(device::Device& device, bool write, std::byte* memory, std::int64_t at, std::int64_t bytes,
                 Done done);
  // Between a device's memory and other memory in its reach: pinned memory, a neighbour's, its own. `out`: to there.
  void move_memory(device::Device& device, bool out, std::byte* memory, std::byte* there, std::int64_t bytes,
                   Done done);
  // From pinned memory to the file, by one of its threads, where `done` comes.
  void demote(std::int64_t from, std::int64_t at, std::int64_t bytes, Done done);

 private:
  device::Copier& copier_;
  std::function<void(std::function<void()>)> later_;
  std::unique_ptr<device::PinnedBuffer> pinned_, buffers_;  // the tier; the ring's
  std::unique_ptr<StagingRing> ring_;
  std::unique_ptr<store::SpillFile>
      disk_;  // first to go: its threads touch the ring's memory and the devices'
};

}  // namespace tilewise::worker
