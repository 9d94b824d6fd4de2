// What is asked of the scheduler: never twice in a period, one question at a time, with rests in between.
#include "server.h"

#include <algorithm>

namespace tilewise::dashboard {
namespace {

constexpr std::size_t kMaxQuestions = 24;  // whose answers are kept
constexpr TimeNs kLongestRest = 2 * kSecond;
constexpr TimeNs kForget = 5 * kSecond;  // an answer that nobody wanted for so long

// Waits for an answer that comes from another thread, or for the deadline.
template <class T> struct Pending {
  Pending(asio::io_context& io, TimeNs deadline) : timer(io, std::chrono::nanoseconds(deadline)) {}
  asio::steady_timer timer;
  std::optional<T> value;
};

template <class T>
std::function<void(T)> answer_to(const std::shared_ptr<Gate>& gate, std::shared_ptr<Pending<T>>& pending) {
  return [gate, weak = std::weak_ptr<Pending<T>>(pending)](T value) {
    gate->post([weak, value = std::move(value)]() mutable {
      if (const auto waiting = weak.lock()) waiting->value = std::move(value), waiting->timer.cancel();
    });
  };
}

template <class T> Task<std::optional<T>> wait_for(std::shared_ptr<Pending<T>> pending) {
  error_code ec;
  if (!pending->value) co_await pending->timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  co_return std::move(pending->value);
}

// `was`, with what changed of it.
scheduler::GraphView merged(const scheduler::GraphView& was, scheduler::GraphView&& news) {
  news.source = was.source;
  std::vector<scheduler::OpView> ops;
  ops.reserve(was.ops.size() + news.ops.size());
  auto old = was.ops.begin();
  for (scheduler::OpView& op : news.ops) {
    for (; old != was.ops.end() && old->position < op.position; ++old) ops.push_back(*old);
    if (old != was.ops.end() && old->position == op.position) ++old;
    ops.push_back(std::move(op));
  }
  ops.insert(ops.end(), old, was.ops.end());
  news.ops = std::move(ops);
  return std::move(news);
}

std::string key_of(const scheduler::ViewRequest& request) {
  if (const auto* graph = std::get_if<scheduler::GraphRequest>(&request))
    return "graph " + std::to_string(graph->graph.value) + " " + std::to_string(graph->first);
  if (const auto* arrays = std::get_if<scheduler::ArraysRequest>(&request))
    return "arrays " + std::to_string(arrays->session.value);
  if (const auto* array = std::get_if<scheduler::ArrayRequest>(&request))
    return "array " + std::to_string(array->array.value);
  if (std::holds_alternative<scheduler::LinksRequest>(request)) return "links";
  return "overview";
}

std::shared_ptr<Question> question(Dashboard::Impl& d, const scheduler::ViewRequest& request, TimeNs now) {
  std::erase_if(d.questions, [&](const auto& entry) {
    return !entry.second->asking && now - entry.second->used > kForget;
  });
  std::shared_ptr<Question>& found = d.questions[key_of(request)];
  if (!found) found = std::make_shared<Question>(d.io);
  found->used = now;
  const std::shared_ptr<Question> wanted = found;
  if (d.questions.size() > kMaxQuestions) {
    auto oldest = d.questions.end();
    for (auto it = d.questions.begin(); it != d.questions.end(); ++it) {
      if (it->second != wanted && (oldest == d.questions.end() || it->second->used < oldest->second->used))
        oldest = it;
    }
    d.questions.erase(oldest);
  }
  return wanted;
}

// As answered, and how long the scheduler's thread took for it.
using Timed = std::pair<scheduler::View, TimeNs>;
Task<std::optional<Timed>> ask(Dashboard::Impl& d, scheduler::ViewRequest request) {
  auto pending = std::make_shared<Pending<Timed>>(d.io, d.options.limits.answer_ns);
  const auto answer = answer_to(d.gate, pending);
  d.source.view(request,
                [answer](scheduler::View view, TimeNs took_ns) { answer(Timed(std::move(view), took_ns)); });
  co_return co_await wait_for(pending);
}

// Waits for its turn: after each question the scheduler rests. False: too many wait.
Task<bool> turn(Dashboard::Impl& d) {
  constexpr TimeNs kLookAgain = 5 * kMillisecond;
  const TimeNs until = monotonic_now() + d.options.limits.answer_ns;
  while (d.asking || monotonic_now() < d.rest_until) {
    const TimeNs now = monotonic_now();
    if (now >= until) co_return false;
    co_await d.sleep(d.asking ? kLookAgain : std::clamp<TimeNs>(d.rest_until - now, 1, until - now));
  }
  co_return true;
}

// Until when to rest after something that took so long.
TimeNs rest_after(const Dashboard::Impl& d, TimeNs took) {
  return monotonic_now() +
         static_cast<TimeNs>(static_cast<double>(took) * (1 / d.options.limits.scheduler_share - 1));
}

}  // namespace

Task<SharedView> Dashboard::Impl::view(scheduler::ViewRequest request) {
  const std::shared_ptr<Question> q = question(*this, request, monotonic_now());
  error_code ec;
  if (q->asking) {
    co_await q->answered.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    co_return q->view;
  }
  if (q->view && monotonic_now() - q->at < options.period_ns * 3 / 4) co_return q->view;
  q->asking = true;
  SharedView fresh;
  const bool mine = co_await turn(*this);
  if (mine) {
    auto* graph = std::get_if<scheduler::GraphRequest>(&request);
    const auto* known = q->view ? std::get_if<scheduler::GraphView>(&*q->view) : nullptr;
    // What is reported in the very same moment is told twice rather than not at all.
    if (graph != nullptr)
      graph->since = known != nullptr ? std::max<TimeNs>(0, known->now - 1) : scheduler::kNotYet;
    asking = true;
    std::optional<Timed> answer = co_await ask(*this, request);
    asking = false;
    if (answer) {
      rest_until = rest_after(*this, answer->second);
      auto* news = std::get_if<scheduler::GraphView>(&answer->first);
      if (news != nullptr && known != nullptr) answer->first = merged(*known, std::move(*news));
      fresh = std::make_shared<const scheduler::View>(std::move(answer->first));
      q->at = monotonic_now();
    }
  }
  q->view = fresh;
  q->asking = false;
  q->answered.cancel();
  co_return fresh;
}

Task<std::optional<msg::Explanation>> Dashboard::Impl::explain(GraphId graph) {
  const TimeNs now = monotonic_now();
  if (explain_at > now) co_await sleep(std::min(explain_at - now, options.limits.answer_ns));
  const TimeNs began = monotonic_now();
  auto pending = std::make_shared<Pending<msg::Explanation>>(io, options.limits.answer_ns);
  source.explain(graph, answer_to(gate, pending));
  std::optional<msg::Explanation> said = co_await wait_for(pending);
  explain_at = std::min(rest_after(*this, monotonic_now() - began), monotonic_now() + kLongestRest);
  co_return said;
}

Task<std::optional<Result<std::vector<msg::TraceReply>>>> Dashboard::Impl::trace(msg::TraceRequest request) {
  const TimeNs now = monotonic_now();
  if (trace_at > now) co_await sleep(std::min(trace_at - now, options.limits.answer_ns));
  const TimeNs began = monotonic_now();
  auto pending =
      std::make_shared<Pending<Result<std::vector<msg::TraceReply>>>>(io, options.limits.answer_ns);
  source.trace(request, answer_to(gate, pending));
  std::optional<Result<std::vector<msg::TraceReply>>> replies = co_await wait_for(pending);
  // Most of that time was others': the scheduler only passes answers on.
  trace_at = std::min(2 * monotonic_now() - began, monotonic_now() + kLongestRest);
  co_return replies;
}

// As other views: one at a time, with rests.
Task<std::optional<Result<std::vector<msg::BlocksReply>>>> Dashboard::Impl::blocks(
    msg::BlocksRequest request) {
  const bool mine = co_await turn(*this);
  if (!mine) co_return std::nullopt;
  asking = true;
  auto pending =
      std::make_shared<Pending<Result<std::vector<msg::BlocksReply>>>>(io, options.limits.answer_ns);
  source.blocks(request, answer_to(gate, pending));
  std::optional<Result<std::vector<msg::BlocksReply>>> replies = co_await wait_for(pending);
  asking = false;
  rest_until = monotonic_now() + 20 * kMillisecond;
  co_return replies;
}

Task<std::shared_ptr<const Look>> Dashboard::Impl::look() {
  if (last_look && monotonic_now() - last_look->at < options.period_ns * 3 / 4) co_return last_look;
  if (looking) {
    error_code ec;
    co_await looked.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    co_return last_look&& monotonic_now() - last_look->at < options.period_ns ? last_look : nullptr;
  }
  looking = true;
  std::optional<Timed> answer = co_await ask(*this, scheduler::OverviewRequest{});
  looking = false;
  auto* overview = answer ? std::get_if<scheduler::Overview>(&answer->first) : nullptr;
  if (overview == nullptr) {
    looked.cancel();
    co_return nullptr;
  }
  // Rates are judged over a second or more; a look from before a pause would say nothing about now.
  constexpr TimeNs kOldest = 10 * kSecond;
  if (older_look && overview->now - older_look->overview.now > kOldest) older_look = nullptr;
  if (!older_look && last_look && overview->now - last_look->overview.now < kOldest) older_look = last_look;
  auto fresh = std::make_shared<Look>();
  fresh->at = monotonic_now();
  fresh->warnings = warnings(*overview, older_look ? &older_look->overview : nullptr);
  json::object object = to_json(*overview, fresh->warnings);
  object["version"] = options.version;
  object["wall_ms"] = wall_seconds() * 1000;
  fresh->text = boost::json::serialize(object);
  fresh->overview = std::move(*overview);
  last_look = fresh;
  looked.cancel();
  co_return fresh;
}

}  // namespace tilewise::dashboard
