// The shell around a scheduler core: links in, events to the core once a batch, its actions out. One thread, the loop's.
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/net/endpoint.h>
#include <tilewise/scheduler/core.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace tilewise::scheduler {

struct ServerOptions {
  net::Address listen;
  net::Token token;
  Options core;
};

class Server {
 public:
  // `on_end` is called once, when an operator's Shutdown or end() has been carried out.
  static Result<std::unique_ptr<Server>> open(net::EventLoop& loop, const ServerOptions& options,
                                              std::function<void()> on_end);
  ~Server();

  // For the dashboard, on the loop's thread. What happens to events is seen by looking again.
  View view(const ViewRequest& request) const { return core_.view(request, monotonic_now()); }
  void push(Event event) { events_.push_back(std::move(event)); }
  // A tool of this process, without a link: what it sends is pushed, what it is sent goes to `receive`.
  // It may be closed like any other peer: see has().
  Conn join_local(const std::string& name, std::function<void(const msg::Message&)> receive);

  bool has(Conn conn) const { return peers_.contains(conn); }

  const net::Address& address() const { return listener_->address(); }
  // Stops listening, lets what is queued be written, waits shortly for workers to close, then on_end.
  void end();

 private:
  struct Peer {
    std::unique_ptr<net::Link> link;
    std::string name;  // "worker host/123", for logs
    bool worker = false;
    std::function<void(const msg::Message&)> receive;  // instead of a link
  };

  Server(net::EventLoop& loop, const ServerOptions& options, std::function<void()> on_end);
  void accept(std::unique_ptr<net::Link> link);
  void on_frame(Conn conn, const net::Frame& frame);
  void on_close(Conn conn, const Error& why);
  bool turn();
  void arm_timer(TimeNs now);
  void perform(Action& action);
  void log_end(const GraphEnded& ended);
  void send(Conn to, const msg::Message& message);
  // Says why, closes this link alone, and tells the core.
  void reject(Conn conn, const Error& why);
  void drop(Conn conn, const Error& why);
  void finish_if_quiet();

  net::EventLoop& loop_;
  std::function<void()> on_end_;
  Core core_;
  std::unique_ptr<net::Listener> listener_;
  std::map<Conn, Peer> peers_;
  std::uint32_t last_conn_ = 0;
  codec::Buffer buffer_;
  std::vector<Event> events_;
  std::vector<Action> actions_;
  net::TimerId timer_ = 0;
  TimeNs timer_at_ = 0;
  bool ending_ = false;
};

}  // namespace tilewise::scheduler
