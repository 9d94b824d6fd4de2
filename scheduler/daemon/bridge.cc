#include "bridge.h"

#include <tilewise/daemon/log.h>

#include <algorithm>

namespace tilewise::scheduler {

void Bridge::view(ViewRequest request, std::function<void(View, TimeNs)> answer) {
  loop_.post([this, request, answer = std::move(answer)] {
    const TimeNs began = monotonic_now();
    View view = server_.view(request);
    answer(std::move(view), monotonic_now() - began);
  });
}

void Bridge::cancel(GraphId graph) {
  loop_.post([this, graph] {
    daemon::log_info("operator cancels a graph", {{"graph", graph.value}});
    server_.push(OperatorCancel{graph});
  });
}

void Bridge::release(ArrayId array) {
  loop_.post([this, array] {
    daemon::log_info("operator releases an array", {{"array", array.value}});
    server_.push(OperatorRelease{array});
  });
}

void Bridge::explain(GraphId graph, std::function<void(msg::Explanation)> answer) {
  loop_.post([this, graph, answer = std::move(answer)] {
    msg::Explain question;
    question.graph = graph;
    question.submit.request = ++last_;
    explaining_.push_back({last_, answer});
    if (explaining_.size() > kMaxWaiting) explaining_.pop_front();
    server_.push(Received{conn(), std::move(question)});
  });
}

void Bridge::trace(GraphId graph, std::function<void(Result<std::vector<msg::TraceReply>>)> answer) {
  loop_.post([this, graph, answer = std::move(answer)] {
    tracing_.push_back({++last_, {}, answer});
    if (tracing_.size() > kMaxWaiting) tracing_.pop_front();
    server_.push(Received{conn(), msg::TraceRequest{last_, graph, 0}});
  });
}

Conn Bridge::conn() {
  if (!conn_ || !server_.has(conn_))
    conn_ = server_.join_local("dashboard", [this](const msg::Message& m) { receive(m); });
  return conn_;
}

void Bridge::receive(const msg::Message& message) {
  if (const auto* ping = std::get_if<msg::Ping>(&message))
    return server_.push(Received{conn_, msg::Pong{ping->nonce}});
  if (const auto* reply = std::get_if<msg::TraceReply>(&message)) return on_trace(*reply);
  const auto* explanation = std::get_if<msg::Explanation>(&message);
  if (explanation == nullptr) return;
  const auto it = std::find_if(explaining_.begin(), explaining_.end(),
                               [&](const Explaining& e) { return e.request == explanation->request; });
  if (it == explaining_.end()) return;
  it->answer(*explanation);
  explaining_.erase(it);
}

void Bridge::on_trace(const msg::TraceReply& reply) {
  const auto it = std::find_if(tracing_.begin(), tracing_.end(),
                               [&](const Tracing& t) { return t.nonce == reply.nonce; });
  if (it == tracing_.end()) return;
  if (reply.of > 0) it->replies.push_back(reply);
  if (it->replies.size() < reply.of) return;
  it->answer(std::move(it->replies));
  tracing_.erase(it);
}

}  // namespace tilewise::scheduler
