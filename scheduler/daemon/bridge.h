// Between the dashboard's thread and the scheduler's: questions are posted to the loop, answered there, and go back.
#pragma once
#include <tilewise/dashboard/dashboard.h>

#include "server.h"

#include <deque>

namespace tilewise::scheduler {

class Bridge final : public dashboard::Source {
 public:
  Bridge(net::EventLoop& loop, Server& server) : loop_(loop), server_(server) {}

  void view(ViewRequest request, std::function<void(View, TimeNs)> answer) override;
  void explain(GraphId graph, std::function<void(msg::Explanation)> answer) override;
  void trace(msg::TraceRequest request,
             std::function<void(Result<std::vector<msg::TraceReply>>)> answer) override;
  void blocks(msg::BlocksRequest request,
              std::function<void(Result<std::vector<msg::BlocksReply>>)> answer) override;
  void cancel(GraphId graph) override;
  void release(ArrayId array) override;
  void drain(WorkerId worker, bool on) override;

 private:
  struct Explaining {
    std::uint64_t request = 0;
    std::function<void(msg::Explanation)> answer;
  };
  // Answered by every worker.
  template <class Reply> struct Collecting {
    std::uint64_t nonce = 0;
    std::vector<Reply> replies;
    std::function<void(Result<std::vector<Reply>>)> answer;
  };
  static constexpr std::size_t kMaxWaiting = 8;  // of each kind; more are refused

  // What follows runs on the loop's thread.
  Conn conn();  // joins when it is needed first
  void receive(const msg::Message& message);
  template <class Reply, class Question>
  void collect(std::deque<Collecting<Reply>>& all, Question question,
               std::function<void(Result<std::vector<Reply>>)> answer);
  template <class Reply> void collected(std::deque<Collecting<Reply>>& all, const Reply& reply);

  net::EventLoop& loop_;
  Server& server_;
  Conn conn_;
  std::uint64_t last_ = 0;
  std::deque<Explaining> explaining_;
  std::deque<Collecting<msg::TraceReply>> tracing_;
  std::deque<Collecting<msg::BlocksReply>> locating_;
};

}  // namespace tilewise::scheduler
