#include "bridge.h"

#include <tilewise/daemon/log.h>
#include <tilewise/msg/cases.h>

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr const char* kBusy = "others are asking; ask again";

}  // namespace

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
    const Conn to = conn();
    msg::Explain question;
    question.graph = graph;
    question.submit.request = ++last_;
    if (explaining_.size() == kMaxWaiting) {
      msg::Explanation none;
      none.outcome = {Errc::kUnavailable, kBusy};
      return answer(std::move(none));
    }
    explaining_.push_back({last_, answer});
    server_.push(Received{to, std::move(question)});
  });
}

void Bridge::drain(WorkerId worker, bool on) {
  loop_.post([this, worker, on] {
    daemon::log_info(on ? "operator drains a worker" : "operator lets a worker stay",
                     {{"worker", worker.value}});
    server_.push(OperatorDrain{worker, on});
  });
}

template <class Reply, class Question>
void Bridge::collect(std::deque<Collecting<Reply>>& all, Question question,
                     std::function<void(Result<std::vector<Reply>>)> answer) {
  const Conn to = conn();
  if (all.size() == kMaxWaiting) return answer(error(Errc::kUnavailable, kBusy));
  question.nonce = ++last_;
  all.push_back({last_, {}, std::move(answer)});
  server_.push(Received{to, std::move(question)});
}

void Bridge::trace(msg::TraceRequest request,
                   std::function<void(Result<std::vector<msg::TraceReply>>)> answer) {
  loop_.post([this, request, answer = std::move(answer)] { collect(tracing_, request, answer); });
}

void Bridge::blocks(msg::BlocksRequest request,
                    std::function<void(Result<std::vector<msg::BlocksReply>>)> answer) {
  loop_.post([this, request, answer = std::move(answer)] { collect(locating_, request, answer); });
}

Conn Bridge::conn() {
  if (conn_ && server_.has(conn_)) return conn_;
  // What was asked over one that was closed is not answered any more.
  explaining_.clear(), tracing_.clear(), locating_.clear();
  conn_ = server_.join_local("dashboard", [this](const msg::Message& m) { receive(m); });
  return conn_;
}

void Bridge::receive(const msg::Message& message) {
  std::visit(
      msg::Cases{
          [this](const msg::Ping& ping) {
            server_.push(Received{conn_, msg::Pong{ping.nonce}});
          },
          [this](const msg::TraceReply& reply) { collected(tracing_, reply); },
          [this](const msg::BlocksReply& reply) { collected(locating_, reply); },
          [this](const msg::Explanation& explanation) {
            const auto it = std::find_if(explaining_.begin(), explaining_.end(), [&](const Explaining& e) {
              return e.request == explanation.request;
            });
            if (it == explaining_.end()) return;
            it->answer(explanation);
            explaining_.erase(it);
          },
          // It has no devices and submits nothing; what operators wish has no answer.
          msg::Ignored<msg::Welcome, msg::Resumed, msg::Ack, msg::Pong, msg::Refusal, msg::Shutdown, msg::Log,
                       msg::LinkProbe, msg::TraceRequest, msg::BlocksRequest, msg::SubmitReply,
                       msg::GraphProgress, msg::GraphDone, msg::StatusReply, msg::DrainReply>{},
          msg::NeverOfScheduler{}},
      static_cast<const msg::Message::variant&>(message));
}

template <class Reply> void Bridge::collected(std::deque<Collecting<Reply>>& all, const Reply& reply) {
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const auto& waiting) { return waiting.nonce == reply.nonce; });
  if (it == all.end()) return;
  if (!reply.refused.ok()) {
    it->answer(error(reply.refused.code, reply.refused.message));
  } else {
    if (reply.of > 0) it->replies.push_back(reply);
    if (it->replies.size() < reply.of) return;
    it->answer(std::move(it->replies));
  }
  all.erase(it);
}

}  // namespace tilewise::scheduler
