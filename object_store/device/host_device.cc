// The host device: slabs, one stream a thread, and a copy stream.
#include <tilewise/base/check.h>
#include <tilewise/device/device.h>

#include "host_cpu.h"
#include "host_memory.h"
#include "host_stream.h"

#include <algorithm>

namespace tilewise::device {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kHost: return "host";
    case Kind::kCuda: return "cuda";
  }
  return "unknown";
}

namespace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostOptions& options)
      : info_{.kind = Kind::kHost,
              .ordinal = options.ordinal,
              .name = "host:" + std::to_string(options.ordinal),
              .model = cpu_model(),
              .memory_bytes = options.memory_bytes,
              .numeric_class = "host/" + cpu_isa_level(),
              .compute_streams = std::max(1, options.threads)},
        memory_(info_.name, options.memory_bytes, options.huge_pages, options.prefault) {
    for (int i = 0; i < info_.compute_streams; ++i) {
      streams_.push_back(
          std::make_unique<HostStream>(info_.name + "/" + std::to_string(i), options.spin_ns, &notify_));
    }
    // Copies come in bursts, and its thread is one more than the cores this device was given: it polls less.
    streams_.push_back(std::make_unique<HostStream>(info_.name + "/copy", options.spin_ns / 4, &notify_));
  }

  ~HostDevice() override {
    // All at once: a stream may be waiting for another one's end.
    for (auto& stream : streams_) stream->stop();
    streams_.clear();
  }

  const Info& info() const override { return info_; }
  Result<Slab> add_slab(std::int64_t bytes) override { return memory_.add(bytes); }
  Stream& compute_stream(int i) override {
    TW_CHECK(i >= 0 && i < info_.compute_streams, info_.name + " has no stream " + std::to_string(i));
    return *streams_[static_cast<std::size_t>(i)];
  }
  Stream& copy_stream() override { return *streams_.back(); }
  void on_progress(std::function<void()> notify) override { notify_ = std::move(notify); }
  Status health() const override { return {}; }
  void synchronize() override {
    for (auto& stream : streams_) stream->synchronize();
  }

 private:
  const Info info_;
  HostMemory memory_;
  std::function<void()> notify_;
  std::vector<std::unique_ptr<HostStream>> streams_;  // compute streams, then the copy stream
};

}  // namespace

std::unique_ptr<Device> make_host_device(const HostOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace tilewise::device
