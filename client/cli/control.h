// The tool's link to a scheduler: joins as a tool, asks, and waits for the answer.
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/net/endpoint.h>

#include <memory>
#include <optional>
#include <string>

namespace tilewise::cli {

class Control {
 public:
  // Everything within `timeout_ns`. The errors of net::connect, kTimeout, or the scheduler's refusal.
  static Result<std::unique_ptr<Control>> connect(const std::string& scheduler, const std::string& token_file,
                                                  TimeNs timeout_ns);
  ~Control();

  const msg::Welcome& welcome() const { return welcome_; }
  const std::string& address() const { return address_; }
  Result<msg::StatusReply> status();
  Result<std::vector<msg::TraceReply>> trace();
  Result<msg::Explanation> explain(GraphId graph);
  // Returns when the scheduler has closed the link, which is how it says that it is ending.
  Status shutdown();

 private:
  Control() = default;
  Status send(const msg::Message& message);
  // Answers pings meanwhile; others' messages are dropped.
  template <class T> Result<T> receive();

  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<net::ConnectAttempt> attempt_;
  std::unique_ptr<net::Link> link_;
  std::string address_;
  TimeNs timeout_ns_ = 0;
  codec::Buffer buffer_;
  msg::Welcome welcome_;
  std::vector<msg::Message> inbox_;
  std::optional<Error> closed_;
};

}  // namespace tilewise::cli
