#include "last_words.h"

#include <tilewise/codec/codec.h>
#include <tilewise/config/version.h>
#include <tilewise/net/endpoint.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace tilewise::worker {
namespace {

// The last is well below the second that a scheduler waits for the words on a worker that it has missed before (`last_words_ns`).
constexpr TimeNs kFirstRetryNs = 50 * kMillisecond, kLastRetryNs = 400 * kMillisecond;

struct Told {
  Status outcome;
  bool refused = false;  // by a scheduler: it would be again
};

Status write(net::Link& link, const msg::Message& message) {
  codec::Buffer buffer;
  TW_TRY(codec::encode(message, buffer));
  return link.send(codec::frame_type(message), buffer.bytes());
}

Told attempt(const net::Address& scheduler, const net::Token& token, const msg::LastWords& words,
             TimeNs timeout_ns) {
  const auto created = net::EventLoop::create({});
  if (!created) return {created.error()};
  const auto& loop = *created;
  std::optional<Status> done;
  bool told = false, refused = false;
  std::unique_ptr<net::Link> link;
  const auto on_frame = [&](net::Frame& frame) {
    if (done) return;  // the first verdict counts
    const Result<msg::Message> message = codec::decode(frame.payload);
    if (!message) {
      done = message.error();
    } else if (const auto* welcome = std::get_if<msg::Welcome>(&*message); welcome != nullptr && !told) {
      if (!welcome->refused.ok()) {
        done = error(welcome->refused.code, welcome->refused.message);
        refused = true;
        return;
      }
      Status sent = write(*link, words);
      if (sent) sent = write(*link, msg::Ping{});  // answered after the words were taken
      if (!sent) done = sent;
      told = true;
    } else if (const auto* refusal = std::get_if<msg::Refusal>(&*message)) {
      done = error(refusal->why.code, refusal->why.message);
      refused = true;
    } else if (told && std::holds_alternative<msg::Pong>(*message)) {
      done.emplace();
    }
  };
  const auto connecting = net::connect(*loop, scheduler, {.token = token}, [&](auto connected) {
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
    return {error(Errc::kTimeout, "the scheduler has not answered")};
  return {*done, refused};
}

}  // namespace

Status tell_last_words(const net::Address& scheduler, const net::Token& token, const msg::LastWords& words,
                       TimeNs timeout_ns) {
  return attempt(scheduler, token, words, timeout_ns).outcome;
}

Status offer_last_words(const net::Address& scheduler, const net::Token& token, const msg::LastWords& words,
                        TimeNs timeout_ns, TimeNs patience_ns) {
  const TimeNs until = monotonic_now() + patience_ns;
  for (TimeNs wait = kFirstRetryNs;; wait = std::min(2 * wait, kLastRetryNs)) {
    const TimeNs left = std::max(until - monotonic_now(), kFirstRetryNs);
    Told told = attempt(scheduler, token, words, std::min(timeout_ns, left));
    if (told.outcome || told.refused || monotonic_now() + wait >= until) return std::move(told.outcome);
    std::this_thread::sleep_for(std::chrono::nanoseconds(wait));
  }
}

}  // namespace tilewise::worker
