#include "last_words.h"

#include <tilewise/codec/codec.h>
#include <tilewise/config/version.h>
#include <tilewise/net/endpoint.h>

#include <optional>
#include <utility>

namespace tilewise::worker {
namespace {

Status write(net::Link& link, const msg::Message& message) {
  codec::Buffer buffer;
  TW_TRY(codec::encode(message, buffer));
  return link.send(codec::frame_type(message), buffer.bytes());
}

}  // namespace

Status tell_last_words(const net::Address& scheduler, const net::Token& token, const msg::LastWords& words,
                       TimeNs timeout_ns) {
  TW_ASSIGN(const auto loop, net::EventLoop::create({}));
  std::optional<Status> done;
  bool told = false;
  std::unique_ptr<net::Link> link;
  const auto on_frame = [&](net::Frame& frame) {
    if (done) return;  // the first verdict counts
    const Result<msg::Message> message = codec::decode(frame.payload);
    if (!message) {
      done = message.error();
    } else if (const auto* welcome = std::get_if<msg::Welcome>(&*message); welcome != nullptr && !told) {
      if (!welcome->refused.ok()) {
        done = error(welcome->refused.code, welcome->refused.message);
        return;
      }
      Status sent = write(*link, words);
      if (sent) sent = write(*link, msg::Ping{});  // answered after the words were taken
      if (!sent) done = sent;
      told = true;
    } else if (const auto* refusal = std::get_if<msg::Refusal>(&*message)) {
      done = error(refusal->why.code, refusal->why.message);
    } else if (told && std::holds_alternative<msg::Pong>(*message)) {
      done.emplace();
    }
  };
  const auto attempt = net::connect(*loop, scheduler, {.token = token}, [&](auto connected) {
    if (!connected) {
      done = connected.error();
      return;
    }
    link = std::move(*connected);
    const auto on_end = [&](const Error& why) {
      if (!done) done = why;
    };
    link->start({on_frame, on_end, {}});
    msg::Join join;
    join.role = msg::Role::kTool;
    join.name = "supervisor";
    join.software_version = config::software_version();
    if (Status sent = write(*link, join); !sent) done = sent;
  });
  if (!loop->run_until([&] { return done.has_value(); }, timeout_ns))
    return error(Errc::kTimeout, "the scheduler has not answered");
  return *done;
}

}  // namespace tilewise::worker
