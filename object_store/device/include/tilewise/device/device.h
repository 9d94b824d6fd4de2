// Devices, slabs and streams: one meaning for the host and for CUDA. A host device has a bounded arena and FIFO queues
// that return at once; a conformance suite holds both kinds to the contract below.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/base/time.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewise::device {

enum class Kind : std::uint8_t { kHost = 0, kCuda = 1 };
std::string_view name_of(Kind kind);

struct Info {
  Kind kind = Kind::kHost;
  int ordinal = 0;                // cuda:2 -> 2
  std::string name;               // "host:0", "cuda:0"
  std::string model;              // "AMD EPYC ...", "NVIDIA H200"
  std::int64_t memory_bytes = 0;  // what the arena may grow to
  std::string numeric_class;      // what the last bits depend on: kind, ISA or arch, library versions
  int compute_streams = 1;
  std::string gpu;  // cuda: its UUID, "GPU-..."; the same in every process
};

// A piece of device memory that is registered and mapped as a whole; never moved, never shrunk, freed with the device.
struct Slab {
  std::byte* data = nullptr;  // device address (host: usable by the CPU)
  std::int64_t bytes = 0;
  int memfd = -1;          // host: owned by the device; hand a dup to peers
  std::string ipc_handle;  // cuda: bytes of cudaIpcMemHandle_t
};

struct StepFailure {
  std::uint64_t sequence = 0;
  Error error;
};

// A FIFO of work. Everything enqueued since the last record() is one step; steps are numbered 1, 2, 3 ... per stream
// and complete in order. No call waits for device work. One thread (the one that drives the device) makes all calls
// except completed(), which any thread may make.
class Stream {
 public:
  // What a host stream runs. A returned error is attached to the step; the stream goes on.
  using HostWork = std::function<Status()>;

  virtual ~Stream() = default;
  virtual Kind kind() const = 0;
  virtual void* native() const = 0;  // cudaStream_t / CUstream; null on the host

  // Host: appends work, run in order by the device's threads. CUDA: kUnsupported; kernels launch on native().
  virtual Status enqueue(HostWork work) = 0;
  // Runs `work` on the calling thread as a step of its own, complete on return, if nothing is queued or running here;
  // false, and nothing is done, otherwise. Saves waking a thread for less than waking costs. on_progress() is not
  // called. CUDA: always false.
  virtual bool run_now(const HostWork& work) = 0;
  // Appends a call that a thread of the device makes when the stream has come there. It must neither block nor call the
  // device's driver. A stream that breaks before destroys it uncalled.
  virtual Status call(std::function<void()> fn) = 0;
  // Appends a copy of contiguous bytes between any two addresses this device can reach (its own slabs, host memory,
  // mapped or peer slabs).
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;
  // Later work of this stream starts only when `other` (of any device of this process) has completed `sequence`.
  virtual Status wait(Stream& other, std::uint64_t sequence) = 0;
  // Closes a step and returns its number.
  virtual std::uint64_t record() = 0;
  // All steps up to this number are complete. Any thread; never goes back.
  virtual std::uint64_t completed() const = 0;
  // Moves out the failures not yet taken: of all completed steps, and of all that a completed step of *any* stream of the
  // device waited for; maybe of others that are about to complete. A device failure that outlives a step (sticky) shows in
  // Device::health().
  virtual void take_failures(std::vector<StepFailure>& out) = 0;
};

class Device {
 public:
  virtual ~Device() = default;  // waits for its streams, then frees its slabs
  virtual const Info& info() const = 0;
  // Grows the arena. kOutOfMemory names the device, the bytes asked for and those left; kLimitExceeded: no file descriptor for it.
  virtual Result<Slab> add_slab(std::int64_t bytes) = 0;
  // Streams 0 .. info().compute_streams-1 are for kernels; copy_stream() for transfers.
  virtual Stream& compute_stream(int i) = 0;
  virtual Stream& copy_stream() = 0;
  // For blocks that leave memory for a tier below, and for those that come back: of their own where the device has engines that
  // copy both ways at once, so that neither waits for the other nor for transfers.
  virtual Stream& spill_stream() { return copy_stream(); }
  virtual Stream& return_stream() { return copy_stream(); }
  // Called from any thread after completed() of some stream has advanced, or health() become an error; must not block.
  // Coalesced: a stream that has called need not call again until its completed() has been read, so read it after each call.
  // Set once, before work is enqueued.
  virtual void on_progress(std::function<void()> notify) = 0;
  // The failure after which nothing works here any more (sticky), naming the device. Any thread; costs a load. It is there before
  // take_failures() gives any failure that came of it, and before the record() behind a call that was refused for it has returned.
  virtual Status health() const = 0;
  // Blocks until everything enqueued so far is complete. For tests and shutdown only.
  virtual void synchronize() = 0;
};

struct HostOptions {
  int ordinal = 0;
  int threads = 1;  // = compute streams; the executor threads of this device
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  bool huge_pages = true;   // where the system allows; never required
  bool prefault = false;    // touch new slabs (and collapse into huge pages) in the background
  TimeNs spin_ns = 20'000;  // an idle executor polls this long before it parks
};
std::unique_ptr<Device> make_host_device(const HostOptions& options);

}  // namespace tilewise::device
