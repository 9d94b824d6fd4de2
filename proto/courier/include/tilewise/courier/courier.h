// A peer's link to the scheduler. For a peer with a lease, and where the scheduler keeps its state on disk (Welcome), a
// break is followed by new attempts, and what one side had not received is sent again. What is above sees one stream
// of messages each way, in order, each once.
//
// Belongs to a loop and its thread, like the links it is made of. Callbacks come from the loop, never from inside a call.
#pragma once
#include <tilewise/courier/outstanding.h>
#include <tilewise/msg/msg.h>
#include <tilewise/net/endpoint.h>

#include <functional>
#include <memory>

namespace tilewise::courier {

struct Options {
  net::Address scheduler;
  net::Token token;
  TimeNs reconnect_ns = 60 * kSecond;  // how long a scheduler that keeps its state on disk may be away
  TimeNs lease_ns = 0;                 // as in our Join: how long the way to another one may be broken
  // Of the link (net::HandshakeOptions). A scheduler that says nothing for three times as long, though it is asked, is gone too: its
  // process may be stopped.
  TimeNs silence_ns = 10 * kSecond;
};

struct Handlers {
  std::function<void(msg::Message)> on_message;  // Resumed and Ack stay in here
  // Once, and nothing after it: the link is gone and cannot be had again, or the scheduler broke the protocol.
  std::function<void(const Error&)> on_lost;
  std::function<void(const Error& why)> on_down = {};    // a break; attempts follow
  std::function<void(std::uint32_t term)> on_back = {};  // and what came of them
};

class Courier {
 public:
  // `link`: connected, not started.
  Courier(net::EventLoop& loop, Options options, Handlers handlers, std::unique_ptr<net::Link> link);
  ~Courier();  // what is queued is tried once; no callbacks afterwards

  // `bytes`: an encoded message. While there is no link it waits. An error: nothing was sent or kept, for good.
  Status send(std::uint16_t type, std::span<const std::byte> bytes);
  void flush();

  // Of `patience_ns` for the scheduler to say what it knows of something that was noticed at `since`: how much is left at
  // `now`. Not above 0: it has had its time. While it is away, and for so long after its return, all of it is left.
  TimeNs patience_left(TimeNs since, TimeNs patience_ns, TimeNs now) const;

 private:
  void start(std::unique_ptr<net::Link> link);
  void on_frame(const net::Frame& frame);
  void on_resumed(const msg::Resumed& resumed);
  void on_close(const Error& why);
  void down(const Error& why);
  void attempt();
  void on_connected(Result<std::unique_ptr<net::Link>> link);
  void retry(const Error& why);
  void beat();
  void lose(Error why);
  void later(std::function<void()> what);
  Status write(const msg::Message& message);

  net::EventLoop& loop_;
  const Options options_;
  const Handlers handlers_;
  std::unique_ptr<net::Link> link_;
  std::unique_ptr<net::ConnectAttempt> attempt_;
  net::TimerId timer_ = 0, beat_ = 0;
  const TimeNs beat_ns_;  // how often silence is looked at
  TimeNs up_since_;       // of the link; without one the distant future
  TimeNs give_up_at_ = 0, retry_ns_ = 0;
  bool resuming_ = false;  // on a new link, before Resumed
  TimeNs resumed_by_ = 0;  // which is not waited for any longer
  bool lost_ = false;
  TimeNs beat_at_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // ends with this

  std::uint64_t state_ = 0;  // 0: the scheduler keeps nothing, or has not said yet
  bool durable_ = false;     // it keeps that on disk
  TimeNs patience_ns_ = 0;   // for what is under way
  bool keeps_ = true;        // what is sent; until Welcome says that it is no use
  WorkerId me_;
  std::uint32_t term_ = 0;
  Outstanding sent_;
  Received received_;
};

}  // namespace tilewise::courier
