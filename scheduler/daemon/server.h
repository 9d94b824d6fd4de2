// The shell around a scheduler core: links in, events to the core once a batch, its actions out. One thread, the loop's.
//
// With a state directory the events of each step are written down before anybody sees what came of them; the next process
// takes the same steps and is where this one was (docs/design/scheduler-loss.md; server_state.cc).
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/courier/outstanding.h>
#include <tilewise/journal/journal.h>
#include <tilewise/net/endpoint.h>
#include <tilewise/scheduler/core.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "disk_watch.h"

namespace tilewise::scheduler {

struct ServerOptions {
  net::Address listen;
  net::Token token;
  Options core;
  std::string state_dir;    // empty: nothing is kept
  bool state_sync = false;  // journal::Journal::Options
  std::string
      checkpoint_dir;  // of many clusters, if need be: this one has a folder in it. Only with state_dir
  DiskWatch* disk_watch = nullptr;  // of state_dir's waits; outlives the server. Null: nobody watches
  TimeNs join_ns = 5 * kSecond;     // a link on which nobody joins or resumes for about so long is closed
};

class Server {
 public:
  // A step ends with the request that makes up so many ops, however much has come. Planning took 0.4 ms an op where a busy machine was
  // slowest, so a step stays near a second, a tenth of what a link may be silent; below, steps' records and logs would cost more than they hold.
  static constexpr std::size_t kStepOps = 2048;

  // `on_end` is called once, when an operator's Shutdown or end() has been carried out.
  static Result<std::unique_ptr<Server>> open(net::EventLoop& loop, ServerOptions options,
                                              std::function<void()> on_end);
  ~Server();

  // For the dashboard, on the loop's thread. What happens to events is seen by looking again.
  View view(const ViewRequest& request) const { return core_->view(request, clock()); }
  void push(Event event);
  // A tool of this process, without a link: what it sends is pushed, what it is sent goes to `receive`.
  // It may be closed like any other peer: see has().
  Conn join_local(const std::string& name, std::function<void(const msg::Message&)> receive);

  bool has(Conn conn) const { return peers_.contains(conn); }

  const net::Address& address() const { return listener_->address(); }
  std::uint32_t term() const { return core_->term(); }
  // Why on_end was called early, if what happens could not be written down any more.
  const Status& failure() const { return failure_; }
  // Stops listening, lets what is queued be written, waits shortly for workers to close, then on_end.
  void end();

 private:
  struct Peer {
    std::unique_ptr<net::Link> link;
    std::string name;    // "worker host/123", for logs
    bool spoke = false;  // something came on its link
    bool joined = false;
    std::function<void(const msg::Message&)> receive;  // instead of a link
    std::shared_ptr<Conn> self;                        // for the link's callbacks: another one after a Resume
    // Of those that outlive their link (lasts()):
    WorkerId id;  // once welcomed
    msg::Role role = msg::Role::kTool;
    TimeNs lease_ns = 0;
    courier::Outstanding sent;
    std::uint64_t inherited = 0;  // so many were sent by earlier lives of the scheduler
    courier::Received received;
  };

  Server(net::EventLoop& loop, const ServerOptions& options, std::function<void()> on_end);
  void accept(std::unique_ptr<net::Link> link);
  void await_strangers();
  void look_at_strangers();
  void on_frame(Conn conn, const net::Frame& frame);
  void log_words(const msg::LastWords& words) const;
  static void greet(Peer& peer, const msg::Join& join);
  void on_close(Conn conn, const Error& why);
  bool turn();
  void end_step_if_full();
  void arm_timer(TimeNs now);
  void perform(Action& action);
  void log_end(const GraphEnded& ended);
  void send(Conn to, const msg::Message& message);
  void send_halves(Conn to, const msg::Log& log);
  // Says why, closes this link alone, and tells the core.
  void reject(Conn conn, const Error& why);
  void drop(Conn conn, const Error& why);
  void finish_if_quiet();
  TimeNs clock() const { return monotonic_now() + clock_offset_; }

  // server_state.cc
  Status open_state(const ServerOptions& options);
  Status replay(std::uint32_t kind, std::string_view bytes);
  Status restore(std::string_view snapshot);
  Status replay_step(std::string_view bytes);
  Result<std::string> snapshot() const;
  Status begin_generation();
  void note(const Event& event);  // into the next step's record
  void note_message(Conn from, std::span<const std::byte> bytes);
  void note_ack(Conn from, std::uint64_t received);
  void note_step(TimeNs now);
  bool keep();                              // what was noted is safe; else everything ends
  bool may_return(const Peer& peer) const;  // its link may break, for the time of its lease
  bool lasts(const Peer& peer) const;       // its messages are counted and kept, and it may resume
  void acknowledge_peers();
  void compact_if_due();
  void fail(Status why);
  std::optional<DiskWatch::Wait> waiting_for_disk(const char* doing) const;
  void resume(Conn fresh, const msg::Resume& resume);
  void count_in(Conn conn, Peer& peer, std::size_t bytes);

  net::EventLoop& loop_;
  std::function<void()> on_end_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<net::Listener> listener_;
  std::map<Conn, Peer> peers_;
  std::uint32_t last_conn_ = 0;
  codec::Buffer buffer_;
  codec::LogBuffer log_buffer_;
  std::vector<Event> events_;
  std::size_t ops_waiting_ = 0;  // in the requests among them
  std::vector<Action> actions_;
  net::TimerId timer_ = 0;
  TimeNs timer_at_ = 0;
  // Links on which nobody has joined yet, and how often they were looked at.
  const TimeNs join_ns_;
  std::map<Conn, int> strangers_;
  net::TimerId strangers_timer_ = 0;
  bool ending_ = false;

  std::unique_ptr<journal::Journal> journal_;  // null: nothing is kept
  DiskWatch* const disk_watch_;                // may be null
  journal::Header header_;
  bool replaying_ = false;
  TimeNs clock_offset_ = 0;  // the state's time goes on where it ended, whatever the machine's says
  std::string entries_;      // events since the last step, as written down
  std::uint64_t state_ = 0;  // Welcome::state
  std::map<WorkerId, Conn> by_id_;
  std::vector<Conn> to_acknowledge_;
  std::uint64_t snapshot_bytes_ = 0;
  TimeNs spent_ns_ = 0, snapshot_ns_ = 0;  // in steps since the snapshot; what that took
  Status failure_;
};

}  // namespace tilewise::scheduler
