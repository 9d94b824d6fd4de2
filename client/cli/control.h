// The tool's link to a scheduler: joins as a tool, asks, and waits for the answer.
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/net/endpoint.h>

#include <memory>
#include <optional>
#include <string>

namespace tilewise::cli {

// A question that has no answer in time (kTimeout) is the end of the link: each one after it is kUnavailable.
class Control {
 public:
  // Everything within `timeout_ns`. The errors of net::connect, kTimeout, or the scheduler's refusal.
  static Result<std::unique_ptr<Control>> connect(const std::string& scheduler, const std::string& token_file,
                                                  TimeNs timeout_ns);
  ~Control();

  const msg::Welcome& welcome() const { return welcome_; }
  const std::string& address() const { return address_; }
  Result<msg::StatusReply> status();
  // All of the range, whatever its size: what is too much for one answer is asked for piece by piece, from the newest
  // back. A reply a worker; `cut` is 0 but where a worker makes records faster than they can be asked for.
  Result<std::vector<msg::TraceReply>> trace(const msg::TraceRequest& range);
  // `account`: all of it, as predicted when it was submitted, and as measured.
  Result<msg::Explanation> explain(GraphId graph, bool account = false);
  // The wish, or (kAsk) only how far it is. Errors: kNotFound, kInvalidArgument.
  Result<msg::DrainReply> drain(const std::string& worker, msg::DrainWish wish);
  // Returns when the scheduler has closed the link, which is how it says that it is ending.
  Status shutdown();

 private:
  Control() = default;
  Status send(const msg::Message& message);
  // Answers pings meanwhile; others' messages are dropped.
  template <class T> Result<T> receive();
  struct Told {
    msg::TraceReply reply;
    TimeNs came = 0;
  };
  Result<std::vector<Told>> ask(msg::TraceRequest request);

  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<net::ConnectAttempt> attempt_;
  std::unique_ptr<net::Link> link_;
  std::string address_;
  TimeNs timeout_ns_ = 0;
  codec::Buffer buffer_;
  msg::Welcome welcome_;
  std::uint64_t asked_ = 0;
  std::vector<msg::Message> inbox_;
  std::optional<Error> closed_;
};

}  // namespace tilewise::cli
