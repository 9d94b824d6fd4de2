#include "control.h"

#include <tilewise/config/token.h>
#include <tilewise/config/version.h>

namespace tilewise::cli {

Control::~Control() = default;

Result<std::unique_ptr<Control>> Control::connect(const std::string& scheduler, const std::string& token_file,
                                                  TimeNs timeout_ns) {
  TW_ASSIGN(const net::Address address, net::Address::parse(scheduler));
  TW_ASSIGN(const config::FoundToken token, config::find_token(token_file, false));
  std::unique_ptr<Control> control(new Control);
  Control& c = *control;
  TW_ASSIGN(c.loop_, net::EventLoop::create());
  c.timeout_ns_ = timeout_ns;
  c.address_ = address.to_string();
  net::HandshakeOptions handshake{.token = token.token};
  handshake.deadline_ns = timeout_ns;
  std::optional<Result<std::unique_ptr<net::Link>>> connected;
  c.attempt_ = net::connect(
      *c.loop_, address, handshake,
      [&connected](Result<std::unique_ptr<net::Link>> link) { connected.emplace(std::move(link)); });
  if (!c.loop_->run_until([&] { return connected.has_value(); }, 2 * timeout_ns)) {
    return error(Errc::kTimeout, "no answer from " + c.address_);
  }
  if (!*connected)
    return error(connected->error().code, "scheduler " + c.address_ + ": " + connected->error().message);
  c.link_ = std::move(**connected);
  c.link_->start({[&c](net::Frame& frame) {
                    auto message = codec::decode(frame.payload);
                    if (!message) {
                      if (!c.closed_) c.closed_ = message.error();
                    } else if (const auto* ping = std::get_if<msg::Ping>(&*message)) {
                      (void)c.send(msg::Pong{ping->nonce});
                    } else {
                      c.inbox_.push_back(std::move(*message));
                    }
                  },
                  [&c](const Error& why) {
                    if (!c.closed_) c.closed_ = why;
                  },
                  {}});
  msg::Join join;
  join.role = msg::Role::kTool;
  join.name = config::process_name();
  join.software_version = config::software_version();
  join.host_id = config::host_id();
  TW_TRY(c.send(join));
  TW_ASSIGN(c.welcome_, c.receive<msg::Welcome>());
  if (!c.welcome_.refused.ok()) return error(c.welcome_.refused.code, c.welcome_.refused.message);
  return control;
}

Status Control::send(const msg::Message& message) {
  TW_TRY(codec::encode(message, buffer_));
  return link_->send(codec::frame_type(message), buffer_.bytes());
}

template <class T> Result<T> Control::receive() {
  std::optional<T> found;
  const auto look = [&] {
    if (found) return true;  // the loop asks once more at its end
    auto next = inbox_.begin();
    while (next != inbox_.end() && !std::holds_alternative<T>(*next)) ++next;
    if (next != inbox_.end()) {
      found = std::move(std::get<T>(*next));
      ++next;
    }
    inbox_.erase(inbox_.begin(), next);  // what came before it was for nobody
    return found.has_value() || closed_.has_value();
  };
  if (!loop_->run_until(look, timeout_ns_)) return error(Errc::kTimeout, "no answer from " + address_);
  if (found) return std::move(*found);
  return *closed_;
}

Result<msg::StatusReply> Control::status() {
  TW_TRY(send(msg::StatusRequest{}));
  return receive<msg::StatusReply>();
}

Result<std::vector<msg::TraceReply>> Control::trace() {
  TW_TRY(send(msg::TraceRequest{1, {}}));
  std::vector<msg::TraceReply> replies;
  do {
    TW_ASSIGN(auto reply, receive<msg::TraceReply>());
    if (!reply.refused.ok()) return error(reply.refused.code, reply.refused.message);
    replies.push_back(std::move(reply));
  } while (replies.size() < replies.front().of);
  return replies;
}

Result<msg::Explanation> Control::explain(GraphId graph) {
  msg::Explain explain;
  explain.graph = graph;
  TW_TRY(send(explain));
  return receive<msg::Explanation>();
}

Status Control::shutdown() {
  TW_TRY(send(msg::Shutdown{}));
  if (!loop_->run_until([&] { return closed_.has_value(); }, timeout_ns_)) {
    return error(Errc::kTimeout, "the scheduler at " + address_ + " did not end");
  }
  return {};
}

}  // namespace tilewise::cli
