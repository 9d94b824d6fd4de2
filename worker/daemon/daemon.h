// The shell of one worker process: a link to the scheduler, an exchange with peers, and the runtime between them. One
// thread, the loop's; executors are the devices' own.
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/courier/courier.h>
#include <tilewise/exchange/exchange.h>
#include <tilewise/net/endpoint.h>
#include <tilewise/store/spill_file.h>
#include <tilewise/worker/runtime.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewise::worker {

struct DaemonOptions {
  net::Address scheduler;
  net::Token token;
  std::string name;
  std::vector<std::string> listen;  // for peers
  std::string advertise;            // host of our TCP addresses
  bool map_peers = true;
  bool strict_lanes = false;
  bool reference_kernels = false;
  bool one_core = false;  // RuntimeOptions, as is the next
  std::uint64_t trace_records = StepLog::kUsual;
  store::SpillOptions spill;
  std::int64_t pinned_bytes = 0;      // of host memory, for blocks of GPUs; 0: none
  TimeNs silence_ns = 10 * kSecond;   // a host that answers nothing for so long is taken for gone
  TimeNs transfer_ns = 30 * kSecond;  // a transfer that has made no headway for so long has failed
  std::int64_t in_flight_bytes = Options{}.in_flight_bytes;  // Options of the core, as is the next
  std::int64_t in_flight_peer_bytes = Options{}.in_flight_peer_bytes;
  BlackBox* black_box = nullptr;  // for a supervisor; outlives the daemon
  TimeNs connect_timeout_ns = 30 * kSecond;
  TimeNs reconnect_timeout_ns = 60 * kSecond;  // how long a scheduler that keeps its state may be away
  TimeNs lease_ns = 0;                         // how long the way to a scheduler that lives may be broken
  // RuntimeOptions. Besides, on_end is called with the story as soon as the loop comes to it.
  std::function<void(const Error&)> on_broken;
};

class Daemon {
 public:
  // Opens the peer addresses and begins to connect. `plugins` outlives it. on_ready once, with our addresses, when the
  // scheduler has accepted us; on_end once: ok for a Shutdown, else the story. Neither from inside this call.
  static Result<std::unique_ptr<Daemon>> start(net::EventLoop& loop, DaemonOptions options,
                                               std::vector<std::unique_ptr<device::Device>> devices,
                                               const kernels::PluginTable& plugins,
                                               std::function<void(const std::vector<std::string>&)> on_ready,
                                               std::function<void(Status)> on_end);
  ~Daemon();  // waits for what the devices are doing

 private:
  class Service;

  Daemon(net::EventLoop& loop, DaemonOptions options);
  Status check_lanes() const;
  void connect();
  void on_connected(Result<std::unique_ptr<net::Link>> link);
  void on_message(msg::Message message);
  void on_welcome(const msg::Welcome& welcome);
  void on_unreachable(WorkerId peer, const Error& why);
  void leave_if_unreachable(WorkerId peer, const Error& why, TimeNs since);
  void send(const msg::Message& message);
  bool turn();
  bool apply_some();
  void arm_timer(TimeNs now);
  void end(Status why);

  net::EventLoop& loop_;
  DaemonOptions options_;
  std::function<void(const std::vector<std::string>&)> on_ready_;
  std::function<void(Status)> on_end_;
  std::vector<device::Device*> devices_;  // the runtime's
  std::vector<msg::PluginDesc> plugins_;
  std::vector<std::string> addresses_;
  device::Copier copier_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<exchange::Exchange> exchange_;
  std::unique_ptr<net::ConnectAttempt> attempt_;
  std::unique_ptr<courier::Courier> courier_;
  codec::Buffer buffer_;
  WorkerId self_;
  std::deque<msg::Log> logs_;    // not applied yet
  std::size_t log_applied_ = 0;  // entries of the first
  TimeNs give_up_at_ = 0;
  net::TimerId retry_ = 0, timer_ = 0;
  bool refused_ = false;  // by the scheduler, as if the token were another one, at the attempt before
  TimeNs timer_at_ = 0;
  bool ended_ = false;
};

}  // namespace tilewise::worker
