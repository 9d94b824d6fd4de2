// The dashboard: a small HTTP and WebSocket server on a thread of its own, which asks the scheduler only while somebody
// looks. docs/dashboard.md has the addresses, the roles and what each view shows.
#pragma once
#include <tilewise/config/role.h>
#include <tilewise/dashboard/log_ring.h>
#include <tilewise/net/address.h>
#include <tilewise/scheduler/view.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewise::dashboard {

// The scheduler, as the dashboard sees it. Called on the dashboard's thread; an answer comes once, on any thread, or never.
class Source {
 public:
  virtual ~Source() = default;
  // `took_ns`: how long the scheduler's thread was busy with it.
  virtual void view(scheduler::ViewRequest request,
                    std::function<void(scheduler::View, TimeNs took_ns)> answer) = 0;
  virtual void explain(GraphId graph, std::function<void(msg::Explanation)> answer) = 0;
  // One reply a worker, when all are there. Of the request the graph and the range count.
  virtual void trace(msg::TraceRequest request,
                     std::function<void(Result<std::vector<msg::TraceReply>>)> answer) = 0;
  virtual void blocks(msg::BlocksRequest request,
                      std::function<void(Result<std::vector<msg::BlocksReply>>)> answer) = 0;
  virtual void cancel(GraphId graph) = 0;
  virtual void release(ArrayId array) = 0;
  virtual void drain(WorkerId worker, bool on) = 0;
};

struct Limits {
  // One more pushes out the one that has been silent about who it is for longest; if all have said so, it is closed.
  std::size_t connections = 64;
  std::size_t sockets = 16;  // WebSockets among them
  std::size_t header_bytes = 8 * 1024, body_bytes = 8 * 1024, message_bytes = 4 * 1024;
  double messages_per_s = 20, message_burst = 40;  // of one WebSocket
  TimeNs read_ns = 10 * kSecond;                   // a request, from its first byte
  TimeNs write_ns = 15 * kSecond;                  // an answer, or one message
  TimeNs idle_ns = 60 * kSecond;                   // between requests of a connection
  TimeNs answer_ns = 10 * kSecond;                 // for the scheduler to answer
  double scheduler_share = 0.1;                    // of its thread's time, for views other than the overview
};

struct Options {
  net::Address listen;  // TCP
  std::vector<std::string>
      hosts;         // other names by which browsers reach it: "dash.example.org", "10.0.0.7:7421"
  net::Token token;  // the cluster's
  std::string version;
  TimeNs period_ns = 500 * kMillisecond;  // between snapshots while somebody watches
  TimeNs history_ns = 0;  // between looks that are kept for an hour, also while nobody watches; 0: none
  Limits limits;
};

class Dashboard {
 public:
  // `source` and `log` outlive it. kIo where the address cannot be had.
  static Result<std::unique_ptr<Dashboard>> open(Options options, Source& source, LogRing& log);
  ~Dashboard();  // ends the thread; answers that come later are dropped

  const net::Address& address() const;

  struct Impl;

 private:
  explicit Dashboard(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace tilewise::dashboard
