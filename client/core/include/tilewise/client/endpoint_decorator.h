// Passes every call on to another endpoint: the base of those that add something to one.
#pragma once
#include <tilewise/client/endpoint.h>

#include <utility>

namespace tilewise::client {

class EndpointDecorator : public Endpoint {
 public:
  explicit EndpointDecorator(std::unique_ptr<Endpoint> real) : real_(std::move(real)) {}

  const msg::Welcome& welcome() const override { return real_->welcome(); }
  void start(EndpointCallbacks callbacks) override { real_->start(std::move(callbacks)); }
  void stop() override { real_->stop(); }
  void send(msg::Message message) override { real_->send(std::move(message)); }
  void send(WorkerId peer, msg::PeerBatch batch) override { real_->send(peer, std::move(batch)); }
  bool drive(const std::function<bool()>& done, TimeNs timeout_ns) override {
    return real_->drive(done, timeout_ns);
  }
  const std::byte* map(DeviceId device, std::uint32_t slab, std::int64_t offset,
                       std::int64_t bytes) override {
    return real_->map(device, slab, offset, bytes);
  }
  std::shared_ptr<const void> pin(DeviceId device, std::uint32_t slab) override {
    return real_->pin(device, slab);
  }
  std::optional<Place> lend(const std::shared_ptr<const void>& owner, std::span<const std::byte> bytes,
                            bool adoptable) override {
    return real_->lend(owner, bytes, adoptable);
  }
  bool reads_in_place(WorkerId worker) const override { return real_->reads_in_place(worker); }
  std::int64_t kept_bytes() const override { return real_->kept_bytes(); }
  void withdraw(std::uint32_t slab) override { real_->withdraw(slab); }
  Result<std::shared_ptr<std::byte>> allocate(std::int64_t bytes) override { return real_->allocate(bytes); }
  std::optional<WorkerId> fenced_by() const override { return real_->fenced_by(); }
  void receive(DeviceId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
               std::function<void(Status)> done) override {
    real_->receive(from, transfer, to, bytes, std::move(done));
  }
  void disarm(WorkerId from, std::uint64_t transfer) override { real_->disarm(from, transfer); }
  void transmit(DeviceId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                std::function<void(Status)> done) override {
    real_->transmit(to, transfer, from, bytes, std::move(done));
  }

 protected:
  std::unique_ptr<Endpoint> real_;
};

}  // namespace tilewise::client
