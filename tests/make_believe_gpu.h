// A device that says it is a GPU and whose memory and streams are the host's: for what is done about GPUs, not on them.
#pragma once
#include <tilewise/device/device.h>

#include <limits>

namespace tilewise::testing {

// Another stream, of whose copies one fails: as a GPU's does, when its turn has come.
class StreamWithFault final : public device::Stream {
 public:
  explicit StreamWithFault(device::Stream& real) : real_(real) {}
  void fail_copy_after(int copies) { left_ = copies; }

  device::Kind kind() const override { return real_.kind(); }
  void* native() const override { return real_.native(); }
  Status enqueue(HostWork work) override { return real_.enqueue(std::move(work)); }
  bool run_now(const HostWork& work) override { return real_.run_now(work); }
  Status call(std::function<void()> fn) override { return real_.call(std::move(fn)); }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    if (left_-- != 0) return real_.copy(to, from, bytes);
    return real_.enqueue([] { return error(Errc::kDeviceError, "a copy that is made to fail"); });
  }
  Status wait(device::Stream& other, std::uint64_t sequence) override { return real_.wait(other, sequence); }
  std::uint64_t record() override { return real_.record(); }
  std::uint64_t completed() const override { return real_.completed(); }
  void take_failures(std::vector<device::StepFailure>& out) override { real_.take_failures(out); }

 private:
  device::Stream& real_;
  int left_ = std::numeric_limits<int>::max();
};

class MakeBelieveGpu final : public device::Device {
 public:
  MakeBelieveGpu() { info_.kind = device::Kind::kCuda, info_.name = "cuda:0", info_.compute_streams = 2; }
  const device::Info& info() const override { return info_; }
  Result<device::Slab> add_slab(std::int64_t bytes) override { return host_->add_slab(bytes); }
  device::Stream& compute_stream(int i) override { return host_->compute_stream(i); }
  StreamWithFault& copy_stream() override { return copy_stream_; }
  void on_progress(std::function<void()> notify) override { host_->on_progress(std::move(notify)); }
  Status health() const override { return host_->health(); }
  void synchronize() override { host_->synchronize(); }

 private:
  device::Info info_;
  std::unique_ptr<device::Device> host_ = device::make_host_device({.threads = 2, .memory_bytes = 1 << 26});
  StreamWithFault copy_stream_{host_->copy_stream()};
};

}  // namespace tilewise::testing
