// What a Session, its Arrays and its Futures share: the graph, the requests in flight, and the endpoint.
//
// One mutex guards the graph and the requests' ends; it is never held while bytes are copied or a user's function
// runs. Data moves in the endpoint's callbacks (Fetcher, Provider), which run one at a time and need no lock. Only
// users' handles keep this alive, never a callback: so the endpoint is never destroyed on its own thread.
#pragma once
#include <tilewise/account.h>
#include <tilewise/array.h>
#include <tilewise/base/time.h>
#include <tilewise/client/endpoint.h>
#include <tilewise/out_of_memory.h>
#include <tilewise/session.h>

#include <map>
#include <mutex>
#include <set>

#include "fetcher.h"
#include "graph.h"
#include "provider.h"
#include "request.h"

namespace tilewise::client {

class SessionState : public std::enable_shared_from_this<SessionState> {
 public:
  SessionState(std::unique_ptr<Endpoint> endpoint, SessionOptions options);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  const SessionOptions& options() const { return options_; }
  std::uint64_t next_stream();  // of random numbers, 1, 2, ...
  std::uint64_t next_token();   // names one written file's temporary, and no other's anywhere

  // Records an op; one array a output, whole.
  std::vector<Array> add(ir::Op op, std::shared_ptr<const Memory> memory = nullptr);
  Array add_one(ir::Op op, std::shared_ptr<const Memory> memory = nullptr) {
    return std::move(add(std::move(op), std::move(memory)).front());
  }
  // See Graph::place. Throws.
  bool place(Key key, const ir::DeviceHint& hint);
  void label(Key key, const std::string& label);
  void unpin(Key key);

  // One Submit. Throws ArrayError (kLimitExceeded, kOutOfMemory, kUnavailable).
  Future submit(const Wish& wish, const ComputeOptions& options);
  // How long to wait for other processes: as long as a call says, else as its session does, else 5 minutes.
  Duration patience(Duration own) const {
    if (own.count() != 0) return own;
    return options_.timeout.count() != 0 ? options_.timeout : Duration(std::chrono::minutes(5));
  }
  // False on timeout (0: for ever). Throws nothing.
  bool wait(Request& request, Duration timeout, const std::function<void(tilewise::Progress)>& on_progress);
  void cancel(Request& request);
  tilewise::Progress progress(const Request& request);
  // Throws the failure of a finished request.
  void check(const Request& request);
  Buffer take(Request& request, std::size_t result);

  // One Announce. Waits for the others; throws what became of it.
  Array announce(msg::Announce announce, std::vector<Provider::Piece> pieces);
  // Tells the others that this process cannot take part.
  void give_up(msg::Announce announce, const Error& why);
  static Request& request_of(const Future& future) { return *future.request_; }
  Device device(DeviceId id);  // as far as it is known

  // What submit() would do about arrays to be held; their numbers there. Throws; waits for the scheduler's answer.
  msg::Explanation explain(const std::vector<Key>& keys, std::uint32_t copies);

  // The workers' replies, of one graph or of all. Throws; waits for all of them.
  std::vector<msg::TraceReply> trace(const msg::TraceRequest& range = {});

  // Throws; waits for the scheduler's and the workers' answers.
  Account account(Request& request);

  std::vector<Device> devices();
  bool wait_for_devices(std::size_t count, Duration timeout);

  Result<std::shared_ptr<std::byte>> allocate(std::int64_t bytes) { return endpoint_.allocate(bytes); }
  Uploads uploads() const {
    return {provider_.bytes_in_place(), provider_.bytes_sent(), endpoint_.kept_bytes()};
  }

  std::size_t graph_size();  // nodes, for tests

 private:
  using Requests = std::map<std::uint64_t, std::shared_ptr<Request>>;

  void on_message(msg::Message message);
  void on_peer(WorkerId from, msg::PeerBatch batch);
  void on_lost(Error why);
  void on_unreachable(WorkerId worker, const Error& why, TimeNs since);
  // With the mutex held:
  bool advances(const Request& request, WorkerId without, TimeNs since) const;
  bool is_stranded(const Request& request, WorkerId worker, TimeNs since) const;
  void on_reply(msg::SubmitReply reply);
  void on_done(msg::GraphDone done);
  void on_log(msg::Log log);
  void tell_fetched(std::uint64_t version);    // to the scheduler, where a worker was lost
  void delivered(Request& request);            // all that it fetches is here
  void finish(Request& request, Error error);  // once; the second is ignored
  void finish_locked(Request& request, Error error);
  // Until what is outstanding is within look_ahead. Throws: kTimeout.
  void await_room(std::unique_lock<std::mutex>& lock, std::int32_t priority);
  void remove(std::uint64_t request);           // from those that have not ended; with the mutex held
  void abandon(Request& request, Error error);  // the scheduler is not to go on; with the mutex held
  void flush_releases(bool force);              // with the mutex held
  void send_all(Outbox& out);
  bool reply_due() const { return unreplied_.load(std::memory_order_acquire) > 0; }
  // Announcements are answered when all have come, which may take minutes. Only what they provide waits for that.
  bool subscribable() const { return reply_due() || announcing_.load(std::memory_order_acquire) > 0; }
  static bool fits(const Announced& announced, const msg::SubmitReply& reply);
  void adopt(Request& request, const msg::SubmitReply& reply);  // with the mutex held
  std::string device_name(DeviceId id) const;                   // with the mutex held

  const SessionOptions options_;
  std::unique_ptr<Endpoint> owner_;
  Endpoint& endpoint_;  // *owner_
  const std::shared_ptr<LoanBook> book_ = std::make_shared<LoanBook>(endpoint_);

  std::mutex mutex_;
  Graph graph_;
  Requests requests_;                  // that have not ended at the scheduler
  std::set<std::uint64_t> fetching_;   // of these, those with targets
  std::condition_variable heard_end_;  // of one of them
  std::size_t ahead_ = 0;              // of those that are not finished (Request::ahead)
  std::condition_variable fewer_ahead_;
  std::map<DeviceId, Device> devices_;
  std::condition_variable devices_changed_;
  Error lost_{Errc::kOk, {}};
  std::uint64_t next_request_ = 1, next_stream_ = 1;
  std::uint64_t next_token_ = 0;  // from a random one on, once there was one
  TimeNs last_release_ = 0;
  std::map<std::uint64_t, Error> refused_;  // arrays that the last refused requests were to hold, and why not
  msg::ReleaseArrays releases_;             // not sent yet

  // Questions to the scheduler, by their numbers.
  msg::Explanation ask(std::unique_lock<std::mutex>& lock, msg::Explain question);
  template <class Answered> bool await(std::unique_lock<std::mutex>& lock, const Answered& answered);
  std::map<std::uint64_t, std::optional<msg::Explanation>> explaining_;
  std::map<std::uint64_t, std::vector<msg::TraceReply>> tracing_;
  std::condition_variable answered_;
  // Why, with the mutex held; `refused`: what await() said.
  ArrayError unanswered(bool refused, const char* late) const;
  std::uint64_t refusals_ = 0;
  Error refusal_{Errc::kOk, {}};  // the last one
  std::uint64_t next_question_ = 1;

  std::atomic<int> unreplied_{0};
  std::atomic<int> announcing_{0};

  // Endpoint's callbacks only.
  Fetcher fetcher_;
  Provider provider_;
  std::set<WorkerId> fenced_;  // declared lost: if one lives all the same, what it has may be wrong by now
};

// Until it is answered, something is refused (a Refusal does not say what), the scheduler is lost, or the session's
// time is over. True: something was refused meanwhile.
template <class Answered>
bool SessionState::await(std::unique_lock<std::mutex>& lock, const Answered& answered) {
  const std::uint64_t before = refusals_;
  const auto over = [&] { return answered() || lost_.code != Errc::kOk || refusals_ != before; };
  if (options_.timeout.count() == 0)
    answered_.wait(lock, over);
  else
    answered_.wait_for(lock, options_.timeout, over);
  return refusals_ != before;
}

// The node of an array, alive while some Array names it.
struct Handle {
  std::shared_ptr<SessionState> session;
  Key key = 0;
  ir::SourceArray array;
  ~Handle() {
    if (session) session->unpin(key);
  }
};

}  // namespace tilewise::client
