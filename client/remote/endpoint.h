// Private. Everything but the mailbox belongs to the thread that runs the loop: the endpoint's own, or a user's that
// waits (loop_role.h); before start, the connecting one.
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/courier/courier.h>
#include <tilewise/exchange/exchange.h>
#include <tilewise/net/endpoint.h>
#include <tilewise/remote/connect.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "loop_role.h"
#include "shared_buffers.h"

namespace tilewise::remote {

class RemoteEndpoint final : public client::Endpoint {
 public:
  explicit RemoteEndpoint(const Options& options) : options_(options) {}
  ~RemoteEndpoint() override;
  Status init();

  const msg::Welcome& welcome() const override { return welcome_; }
  void start(client::EndpointCallbacks callbacks) override;
  void stop() override;
  void send(msg::Message message) override;
  void send(WorkerId peer, msg::PeerBatch batch) override;
  bool drive(const std::function<bool()>& done, TimeNs timeout_ns) override;
  const std::byte* map(DeviceId device, std::uint32_t slab, std::int64_t offset, std::int64_t bytes) override;
  std::optional<WorkerId> fenced_by() const override { return exchange_->fenced_by(); }
  std::shared_ptr<const void> pin(DeviceId device, std::uint32_t slab) override;
  std::optional<Place> lend(const std::shared_ptr<const void>& owner, std::span<const std::byte> bytes,
                            bool adoptable) override;
  bool reads_in_place(WorkerId worker) const override { return !exchange_->inlines(worker); }
  Result<std::shared_ptr<std::byte>> allocate(std::int64_t bytes) override;
  void receive(DeviceId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
               std::function<void(Status)> done) override;
  void disarm(WorkerId from, std::uint64_t transfer) override;
  void transmit(DeviceId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                std::function<void(Status)> done) override;

 private:
  struct ToPeer {
    WorkerId peer;
    msg::PeerBatch batch;
  };
  struct Transfer {
    bool receive = false;
    DeviceId device;
    std::uint64_t transfer = 0;
    std::byte* bytes = nullptr;  // read only where it is not a receive
    std::int64_t size = 0;
    std::function<void(Status)> done;
  };
  struct Disarm {
    WorkerId from;
    std::uint64_t transfer = 0;
  };
  struct NewSlab {
    std::uint32_t number = 0;
    device::Slab slab;
  };
  // Calls of all threads in one order: a receive is armed before its Grant leaves, a release follows its submit.
  using Call = std::variant<msg::Message, ToPeer, Transfer, Disarm, NewSlab>;

  Result<std::unique_ptr<net::Link>> dial(TimeNs until);
  void call(Call call);
  bool turn();
  bool perform_calls();
  void perform(msg::Message& message);
  void perform(ToPeer& out);
  void perform(Transfer& transfer);
  void perform(Disarm& missing);
  void perform(NewSlab& added);
  void on_message(msg::Message message);
  void deliver(msg::Message message);
  void transfer_failed(WorkerId peer, const Error& why, std::function<void(Status)> done);
  void tell_failed();
  void follow(const msg::Log& log);
  void on_unreachable(WorkerId peer, const Error& why);
  void await_loss(WorkerId peer, const Error& why);
  void tell_unreachable();
  void forget(WorkerId peer);
  void lose(Error why);

  const Options options_;
  msg::Welcome welcome_;
  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<exchange::Exchange> exchange_;
  std::shared_ptr<SharedBuffers> buffers_ = std::make_shared<SharedBuffers>();
  std::unique_ptr<courier::Courier> courier_;
  codec::Buffer buffer_;
  client::EndpointCallbacks callbacks_;
  bool started_ = false;
  std::vector<msg::Message> early_;      // came before start()
  std::ptrdiff_t introduced_ = 0;        // peers that they tell of
  std::map<DeviceId, WorkerId> owners_;  // of the workers' devices
  std::set<WorkerId> workers_;           // there now
  struct Failed {
    WorkerId peer;
    Error why;
    std::function<void(Status)> done;
  };
  std::vector<Failed> failed_;  // transfers whose peer is out of reach, and not yet said to be lost
  std::map<WorkerId, TimeNs> unreachable_since_;
  std::map<WorkerId, Error> unreachable_;  // of these, those that the scheduler has had its time to lose
  bool telling_ = false;                   // tell_unreachable() will be called
  std::optional<Error> lost_;
  bool told_ = false;  // on_lost

  std::mutex mutex_;  // guards calls_
  std::vector<Call> calls_;
  std::vector<Call> calls_now_;
  std::optional<LoopRole> role_;  // once connected
  std::thread thread_;
};

}  // namespace tilewise::remote
