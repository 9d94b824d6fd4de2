// A device that says it is a GPU and whose memory and streams are the host's: for what is done about GPUs, not on them.
#pragma once
#include <tilewise/device/device.h>

namespace tilewise::testing {

class MakeBelieveGpu final : public device::Device {
 public:
  MakeBelieveGpu() { info_.kind = device::Kind::kCuda, info_.name = "cuda:0", info_.compute_streams = 2; }
  const device::Info& info() const override { return info_; }
  Result<device::Slab> add_slab(std::int64_t bytes) override { return host_->add_slab(bytes); }
  device::Stream& compute_stream(int i) override { return host_->compute_stream(i); }
  device::Stream& copy_stream() override { return host_->copy_stream(); }
  void on_progress(std::function<void()> notify) override { host_->on_progress(std::move(notify)); }
  Status health() const override { return host_->health(); }
  void synchronize() override { host_->synchronize(); }

 private:
  device::Info info_;
  std::unique_ptr<device::Device> host_ = device::make_host_device({.threads = 2, .memory_bytes = 1 << 26});
};

}  // namespace tilewise::testing
