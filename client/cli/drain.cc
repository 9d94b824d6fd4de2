// `tilewise drain`: a worker leaves without a loss.
#include <tilewise/base/text.h>
#include <tilewise/base/time.h>

#include <cstdio>
#include <thread>

#include "commands.h"
#include "control.h"

namespace tilewise::cli {
namespace {

constexpr TimeNs kLookNs = 100 * kMillisecond;

std::string words(const msg::DrainReply& reply) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  switch (reply.state) {
    case msg::DrainState::kStays: return "takes work";
    case msg::DrainState::kWaiting:
      return reply.why.empty() ? "waits for its turn to leave" : "cannot leave: " + reply.why;
    case msg::DrainState::kStopping: return "ends what it has begun";
    case msg::DrainState::kMoving: return "moves its blocks, " + number(reply.blocks_left) + " left";
    case msg::DrainState::kGone: return "gone";
    case msg::DrainState::kLost: return "lost";
  }
  return {};
}

void print(const msg::DrainReply& reply, Format format) {
  const std::string worker = "w" + std::to_string(reply.worker.value);
  if (format == Format::kText)
    return void(
        std::printf("%s (%s): %s\n", worker.c_str(), printable(reply.name).c_str(), words(reply).c_str()));
  std::printf(
      "{\"worker\":%s,\"name\":%s,\"state\":%s,\"why\":%s,\"tasks_left\":%lld,\"blocks_left\":%lld,\"bytes\":"
      "%lld}\n",
      json_quote(worker).c_str(), json_quote(reply.name).c_str(),
      json_quote(std::string(name_of(reply.state))).c_str(), json_quote(reply.why).c_str(),
      static_cast<long long>(reply.tasks_left), static_cast<long long>(reply.blocks_left),
      static_cast<long long>(reply.bytes));
}

}  // namespace

Status drain(Control& control, const DrainOptions& options) {
  const msg::DrainWish wish = options.ask    ? msg::DrainWish::kAsk
                              : options.undo ? msg::DrainWish::kStay
                                             : msg::DrainWish::kLeave;
  TW_ASSIGN(msg::DrainReply reply, control.drain(options.worker, wish));
  const std::string worker = "w" + std::to_string(reply.worker.value);  // names may come again
  const TimeNs until = monotonic_now() + static_cast<TimeNs>(options.wait_s * 1e9);
  std::string told;
  while (wish == msg::DrainWish::kLeave) {
    if (reply.state == msg::DrainState::kGone || reply.state == msg::DrainState::kLost) break;
    if (reply.state == msg::DrainState::kStays)
      return error(Errc::kCancelled, worker + " is not to leave any more: somebody took that back");
    if (monotonic_now() >= until)
      return error(Errc::kTimeout, worker + " has not left yet: it " + words(reply) +
                                       ". It still will, unless you take that back: tilewise drain --undo " +
                                       worker);
    if (std::string now = words(reply); now != told) {
      std::fprintf(stderr, "%s (%s) %s\n", worker.c_str(), printable(reply.name).c_str(), now.c_str());
      told = std::move(now);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLookNs));
    TW_ASSIGN(reply, control.drain(worker, msg::DrainWish::kAsk));
  }
  if (wish == msg::DrainWish::kLeave && reply.state == msg::DrainState::kLost)
    return error(Errc::kWorkerLost, worker + " died before it had left; what is needed of it is made again");
  print(reply, options.format);
  return {};
}

}  // namespace tilewise::cli
