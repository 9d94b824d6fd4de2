// Future::account: the scheduler's side of it, then the workers'.
#include <thread>

#include "session_state.h"

namespace tilewise::client {
namespace {

constexpr int kAsks = 100;
constexpr auto kBetweenAsks = std::chrono::milliseconds(5);  // workers report every 10 ms

}  // namespace

Account SessionState::account(Request& request) {
  msg::Explain question;
  {
    std::unique_lock lock(mutex_);
    (void)await(lock, [&] { return request.replied || request.finished.load(std::memory_order_acquire); });
    if (!request.graph) {
      if (lost_.code != Errc::kOk) throw ArrayError(lost_);
      check(request);
      throw ArrayError(Errc::kNotFound, "request " + std::to_string(request.number) + " has no graph");
    }
    question.graph = request.graph;
    question.account = true;
  }
  msg::Explanation told;
  for (int i = 0; i < kAsks; ++i) {
    const bool over = request.finished.load(std::memory_order_acquire);
    {
      std::unique_lock lock(mutex_);
      if (lost_.code != Errc::kOk) throw ArrayError(lost_);
      flush_releases(true);  // a request that fetches ends there when its results are said to be here
      told = ask(lock, question);
    }
    if (!told.outcome.ok()) throw ArrayError(told.outcome.code, told.outcome.message);
    if (!over || !told.measured.running) break;
    std::this_thread::sleep_for(kBetweenAsks);
  }
  msg::TraceRequest range;
  range.graph = request.graph;
  std::vector<msg::TraceReply> traces = trace(range);
  std::map<WorkerId, std::string> hosts;
  for (const Device& device : devices()) hosts.emplace(device.worker_id, device.worker);
  msg::align_clocks(traces, hosts);
  return Account(std::move(told), traces, devices());
}

}  // namespace tilewise::client
