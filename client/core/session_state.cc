#include "session_state.h"

#include <tilewise/base/time.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "access.h"

namespace tilewise::client {
namespace {

// A waiting thread yields for so long before it parks. It takes nothing from others, but keeps a processor from sleeping:
// in a virtual machine the answer would otherwise have to wait for it to come back.
constexpr TimeNs kPollNs = 250 * kMicrosecond;
constexpr TimeNs kForeverNs = 100'000 * kSecond;
constexpr TimeNs kReleaseEveryNs = 1 * kMillisecond;  // releases in between share a message
constexpr std::size_t kReleaseBatch = 64;
constexpr std::chrono::milliseconds kLastReports{100};  // they are sent every ten
constexpr std::size_t kRememberedRefusals = 1024;
// Of SessionOptions::look_ahead: what a request takes beside its ops, and the most that one counts for, so that those behind a large one
// need not wait for its end.
constexpr std::size_t kOpsOfRequest = 16, kMostOpsOfOne = 1024;

Error error_of(const msg::Outcome& outcome) { return {outcome.code, outcome.message}; }

}  // namespace

SessionState::SessionState(std::unique_ptr<Endpoint> endpoint, SessionOptions options)
    : options_(std::move(options)),
      owner_(std::move(endpoint)),
      endpoint_(*owner_),
      fetcher_(
          endpoint_, book_, [this](Request& r) { delivered(r); },
          [this](Request& r, Error e, bool known) {
            const std::scoped_lock lock(mutex_);
            known ? finish_locked(r, std::move(e)) : abandon(r, std::move(e));
          },
          [this](Outbox& out) { send_all(out); }),
      provider_(endpoint_,
                endpoint_.welcome().devices.empty() ? DeviceId() : endpoint_.welcome().devices[0]) {
  const msg::Welcome& welcome = endpoint_.welcome();
  if (!welcome.refused.ok()) throw ArrayError(error_of(welcome.refused));
  if (welcome.devices.empty())
    throw ArrayError(Errc::kInternal, "the scheduler's welcome names no data endpoint");
  endpoint_.start(
      {[this](msg::Message m) { on_message(std::move(m)); },
       [this](WorkerId from, msg::PeerBatch batch) { on_peer(from, std::move(batch)); },
       [this](Error why) { on_lost(std::move(why)); },
       [this](WorkerId worker, const Error& why, TimeNs since) { on_unreachable(worker, why, since); }});
}

SessionState::~SessionState() {
  {
    std::unique_lock lock(mutex_);
    flush_releases(true);  // or the last results would count as never delivered
    // Results come straight from workers, sooner than the scheduler hears that their tasks are over: graphs whose client leaves before
    // would end as cancelled.
    const auto unheard = [this] {
      return lost_.code == Errc::kOk && std::ranges::any_of(requests_, [](const auto& entry) {
               return entry.second->finished && entry.second->error.code == Errc::kOk;
             });
    };
    heard_end_.wait_for(lock, kLastReports, [&] { return !unheard(); });
  }
  book_->close();
  endpoint_.stop();  // first: until it returns, callbacks use everything else, the whole endpoint too
  owner_.reset();
}

std::uint64_t SessionState::next_stream() {
  const std::scoped_lock lock(mutex_);
  return next_stream_++;
}

// Neither of this cluster, nor of another one that writes to the same place or died while it did: chance says so, since numbers of
// terms and sessions begin anew with each cluster.
std::uint64_t SessionState::next_token() {
  const std::scoped_lock lock(mutex_);
  if (next_token_ == 0) {
    std::random_device chance;
    next_token_ = std::uint64_t{chance()} << 32 | chance();
  }
  return next_token_++;
}

// ---- the graph -------------------------------------------------------------------------------------------------------

std::vector<Array> SessionState::add(ir::Op op, std::shared_ptr<const Memory> memory) {
  std::vector<std::shared_ptr<Handle>> handles;
  for (const ir::OutputSpec& output : op.outputs) {
    handles.push_back(std::make_shared<Handle>());
    handles.back()->array = {output.dtype, output.grid};
  }
  {
    const std::scoped_lock lock(mutex_);
    const Key first = graph_.add(std::move(op), std::move(memory));
    for (std::size_t o = 0; o < handles.size(); ++o) handles[o]->key = first + o;
  }
  std::vector<Array> arrays;
  for (auto& handle : handles) {
    handle->session = shared_from_this();
    arrays.push_back(Access::whole(std::move(handle)));
  }
  return arrays;
}

bool SessionState::place(Key key, const ir::DeviceHint& hint) {
  const std::scoped_lock lock(mutex_);
  return value_or_throw(graph_.place(key, hint, [&](DeviceId id) { return device_name(id); }));
}

void SessionState::label(Key key, const std::string& label) {
  if (label.size() > limits::kMaxNameBytes) {
    throw ArrayError(Errc::kLimitExceeded, "a label of " + std::to_string(label.size()) + " bytes");
  }
  const std::scoped_lock lock(mutex_);
  graph_.label(key, label);
}

void SessionState::unpin(Key key) {
  const std::scoped_lock lock(mutex_);
  graph_.unpin(key);
  flush_releases(false);
}

std::size_t SessionState::graph_size() {
  const std::scoped_lock lock(mutex_);
  return graph_.size();
}

// The first news after a pause go at once; those close behind share a message, sent with whatever happens
// next: more of them, a request, or a message from the scheduler, which pings at the least.
void SessionState::flush_releases(bool force) {
  for (const std::uint64_t number : graph_.take_released()) releases_.arrays.push_back(number);
  const std::size_t count = releases_.arrays.size() + releases_.delivered.size();
  if (count == 0 || lost_.code != Errc::kOk) return;
  const TimeNs now = monotonic_now();
  if (!force && count < kReleaseBatch && now - last_release_ < kReleaseEveryNs) return;
  last_release_ = now;
  endpoint_.send(std::exchange(releases_, {}));
}

// ---- requests --------------------------------------------------------------------------------------------------------

void SessionState::await_room(std::unique_lock<std::mutex>& lock, std::int32_t priority) {
  const auto room = [&] {
    if (options_.look_ahead == 0 || ahead_ < options_.look_ahead || lost_.code != Errc::kOk) return true;
    std::size_t before_it = 0;  // what is less urgent is not waited for
    for (const auto& [number, request] : requests_) {
      if (request->priority >= priority && !request->finished.load(std::memory_order_relaxed))
        before_it += request->ahead;
    }
    return before_it < options_.look_ahead;
  };
  if (room()) return;
  // They would go with the next request, and what they release may be what the others wait for.
  flush_releases(true);
  if (options_.timeout.count() == 0) return fewer_ahead_.wait(lock, room);
  if (!fewer_ahead_.wait_for(lock, options_.timeout, room))
    throw ArrayError(Errc::kTimeout, std::to_string(requests_.size()) +
                                         " requests are outstanding, as many as look_ahead allows, and none "
                                         "has ended in time");
}

Future SessionState::submit(const Wish& wish, const ComputeOptions& options) {
  auto request = std::make_shared<Request>();
  request->needs_done = !wish.hold.empty() || !wish.run.empty();
  std::vector<Key> keys = wish.fetch;
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<ir::SourceArray> arrays;
  {
    std::unique_lock lock(mutex_);
    await_room(lock, options.priority);
    for (const Key key : keys) arrays.push_back(graph_.source(key));
  }
  // Memory first, and without the lock: whoever names what this request holds must be sent after it.
  for (ir::SourceArray& array : arrays) {
    Target& target = request->targets.emplace_back();
    target.dtype = array.dtype;
    target.grid = std::move(array.grid);
    target.shape = target.grid.shape();
    target.left = target.grid.block_count();
    if (wish.lend) {
      target.loans = std::make_shared<Loans>(book_);
    } else {
      target.buffer = make_buffer(target.dtype, ir::volume(target.shape));
    }
    target.blocks.assign(static_cast<std::size_t>(target.left), BlockState::kWanted);
    request->targets_left += target.left > 0;
  }
  for (const Key key : wish.fetch) {
    const auto at = static_cast<std::size_t>(std::lower_bound(keys.begin(), keys.end(), key) - keys.begin());
    request->results.push_back(at);
    ++request->targets[at].takers;
  }
  request->taken.resize(request->results.size());

  const std::scoped_lock lock(mutex_);
  if (lost_.code != Errc::kOk) throw ArrayError(lost_);
  flush_releases(true);
  if (wish.fetch.empty() && wish.run.empty() && wish.hold.size() == 1 && options.copies == 1 &&
      graph_.remote(wish.hold[0])) {
    // Being persisted already: the same end, not an empty request that would end before it.
    for (const auto& [number, running] : requests_) {
      const auto& holds = running->submission.holds;
      const bool same =
          std::any_of(holds.begin(), holds.end(), [&](const auto& h) { return h.key == wish.hold[0]; });
      if (same && !running->finished.load(std::memory_order_relaxed)) {
        return Future(shared_from_this(), running);
      }
    }
  }
  Submission submission = value_or_throw(graph_.submit(wish, next_request_));
  for (std::size_t i = 0; i < submission.fetches.size(); ++i) {
    request->targets[request->results[i]].number = submission.fetches[i].number;
  }
  request->number = next_request_++;
  request->priority = options.priority;
  request->ahead = std::min(submission.op_count, kMostOpsOfOne) + kOpsOfRequest;
  ahead_ += request->ahead;
  request->computes = submission.program || std::ranges::any_of(submission.ops, [](const ir::Op& op) {
                        return op.kind != ir::OpKind::kFetch && op.kind != ir::OpKind::kProvide;
                      });
  request->moved_at = monotonic_now();
  msg::Submit submit{
      request->number, options.priority, std::exchange(submission.ops, {}), {}, options_.weight};
  submit.keep_as = submission.keep_as, submit.program = submission.program;
  submit.first_output = submission.first_output, submit.inputs = std::move(submission.inputs);
  submit.constants = std::move(submission.constants);
  submit.account = options.account;
  for (const auto& [key, number] : submission.holds) submit.holds.push_back(number);
  for (const Key key : wish.hold) {
    if (options.copies != 1) submit.keeps.push_back({graph_.remote_number(key), options.copies});
  }
  request->submission = std::move(submission);
  requests_.emplace(request->number, request);
  if (!request->targets.empty()) fetching_.insert(request->number);
  unreplied_.fetch_add(1, std::memory_order_release);
  endpoint_.send(std::move(submit));
  return Future(shared_from_this(), std::move(request));
}

msg::Explanation SessionState::explain(const std::vector<Key>& keys, std::uint32_t copies) {
  std::unique_lock lock(mutex_);
  if (lost_.code != Errc::kOk) throw ArrayError(lost_);
  flush_releases(true);
  Wish wish;
  wish.hold = keys;
  Submission submission = value_or_throw(graph_.submit(wish, 0, true));
  msg::Explain explain;
  explain.submit.ops = std::move(submission.ops);
  for (const auto& [key, number] : submission.holds) explain.submit.holds.push_back(number);
  for (const Key key : keys) {
    const auto hold = std::find_if(submission.holds.begin(), submission.holds.end(),
                                   [&](const auto& h) { return h.key == key; });
    explain.arrays.push_back(hold != submission.holds.end() ? hold->number : graph_.remote_number(key));
    if (copies != 1) explain.submit.keeps.push_back({explain.arrays.back(), copies});
  }
  return ask(lock, std::move(explain));
}

msg::Explanation SessionState::ask(std::unique_lock<std::mutex>& lock, msg::Explain question) {
  const std::uint64_t number = question.submit.request = next_question_++;
  std::optional<msg::Explanation>& answer = explaining_[number];
  endpoint_.send(std::move(question));
  const bool refused = await(lock, [&] { return answer.has_value(); });
  const std::optional<msg::Explanation> came = std::move(answer);
  explaining_.erase(number);
  if (!came) throw unanswered(refused, "the scheduler did not explain in time");
  return *came;
}

std::vector<msg::TraceReply> SessionState::trace(const msg::TraceRequest& range) {
  std::unique_lock lock(mutex_);
  if (lost_.code != Errc::kOk) throw ArrayError(lost_);
  const std::uint64_t number = next_question_++;
  std::vector<msg::TraceReply>& replies = tracing_[number];
  msg::TraceRequest question = range;
  question.nonce = number;
  endpoint_.send(question);
  const auto complete = [&] { return !replies.empty() && replies.size() >= replies.front().of; };
  const bool refused = await(lock, complete);
  const bool all = complete();
  std::vector<msg::TraceReply> came = std::move(replies);
  tracing_.erase(number);
  if (!all) throw unanswered(refused, "not all workers told what they ran in time");
  if (!came.front().refused.ok()) throw ArrayError(error_of(came.front().refused));
  return came;
}

ArrayError SessionState::unanswered(bool refused, const char* late) const {
  if (lost_.code != Errc::kOk) return ArrayError(lost_);
  if (refused) return ArrayError(refusal_);
  return ArrayError(Errc::kTimeout, late);
}

bool SessionState::wait(Request& request, Duration timeout,
                        const std::function<void(tilewise::Progress)>& on_progress) {
  const auto over = [&] { return request.finished.load(std::memory_order_acquire); };
  if (timeout.count() == 0) timeout = options_.timeout;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  if (!on_progress) {
    const TimeNs time = timeout.count() == 0 ? kForeverNs : std::chrono::nanoseconds(timeout).count();
    const TimeNs start = monotonic_now();
    if (!endpoint_.drive(over, time)) {
      while (!over() && monotonic_now() - start < kPollNs) std::this_thread::yield();
    }
  }
  if (over()) return true;
  std::unique_lock lock(mutex_);
  tilewise::Progress shown;
  while (!over()) {
    if (on_progress && !(request.progress == shown)) {
      shown = request.progress;
      lock.unlock();
      on_progress(shown);
      lock.lock();
      continue;
    }
    if (timeout.count() == 0) {
      request.changed.wait(lock);
    } else if (request.changed.wait_until(lock, deadline) == std::cv_status::timeout && !over()) {
      return false;
    }
  }
  const tilewise::Progress last = request.progress;
  const bool ok = request.error.code == Errc::kOk;
  lock.unlock();
  if (on_progress && ok && !(last == shown && last.done == last.total)) on_progress({last.total, last.total});
  return true;
}

void SessionState::cancel(Request& request) {
  const std::scoped_lock lock(mutex_);
  abandon(request, {Errc::kCancelled, "request " + std::to_string(request.number) + " was cancelled"});
}

tilewise::Progress SessionState::progress(const Request& request) {
  const std::scoped_lock lock(mutex_);
  return request.progress;
}

void SessionState::check(const Request& request) {
  if (request.error.code == Errc::kOk) return;
  if (request.needs.empty()) throw ArrayError(request.error);
  const std::scoped_lock lock(mutex_);
  throw OutOfMemoryError(request.error, request.needs, [&](DeviceId id) { return device_name(id); });
}

Buffer SessionState::take(Request& request, std::size_t result) {
  const std::scoped_lock lock(mutex_);
  if (request.taken[result]) {
    throw ArrayError(Errc::kNotFound,
                     "result " + std::to_string(result) + " of this future was taken already");
  }
  request.taken[result] = true;
  Target& target = request.targets[request.results[result]];
  return --target.takers > 0 ? target.buffer : std::move(target.buffer);
}

void SessionState::delivered(Request& request) {
  const std::scoped_lock lock(mutex_);
  if (request.graph_done) return finish_locked(request, {Errc::kOk, {}});
  releases_.delivered.push_back(request.number);
  if (!request.needs_done) finish_locked(request, {Errc::kOk, {}});
  flush_releases(request.needs_done);
}

void SessionState::finish(Request& request, Error error) {
  const std::scoped_lock lock(mutex_);
  finish_locked(request, std::move(error));
}

void SessionState::finish_locked(Request& request, Error error) {
  if (request.finished.load(std::memory_order_relaxed)) return;
  if (error.code != Errc::kOk && !request.graph_done && !request.targets.empty())
    releases_.delivered.push_back(request.number);
  request.error = std::move(error);
  request.finished.store(true, std::memory_order_release);
  request.changed.notify_all();
  ahead_ -= request.ahead;
  fewer_ahead_.notify_all();
  // Otherwise the scheduler's last word, or the loss of it, removes it: what it holds is settled then.
  if (request.graph_done) remove(request.number);
}

void SessionState::remove(std::uint64_t request) {
  requests_.erase(request);
  fetching_.erase(request);
}

void SessionState::abandon(Request& request, Error error) {
  if (request.finished.load(std::memory_order_relaxed)) return;
  if (lost_.code == Errc::kOk && !request.graph_done) endpoint_.send(msg::CancelRequest{request.number});
  finish_locked(request, std::move(error));
}

// ---- callbacks -------------------------------------------------------------------------------------------------------

void SessionState::send_all(Outbox& out) {
  for (auto& [worker, batch] : out) {
    if (!batch.empty()) endpoint_.send(worker, std::move(batch));
  }
  out.clear();
}

void SessionState::on_message(msg::Message message) {
  if (auto* reply = std::get_if<msg::SubmitReply>(&message)) on_reply(std::move(*reply));
  if (auto* done = std::get_if<msg::GraphDone>(&message)) on_done(std::move(*done));
  if (auto* log = std::get_if<msg::Log>(&message)) on_log(std::move(*log));
  const std::scoped_lock lock(mutex_);
  if (const auto* progress = std::get_if<msg::GraphProgress>(&message)) {
    if (const auto it = requests_.find(progress->request); it != requests_.end()) {
      it->second->progress = {progress->done, progress->total};
      it->second->moved_at = monotonic_now();
      it->second->changed.notify_all();
    }
  }
  if (auto* explanation = std::get_if<msg::Explanation>(&message)) {
    const auto it = explaining_.find(explanation->request);
    if (it != explaining_.end()) it->second = std::move(*explanation);
    answered_.notify_all();
  }
  if (auto* reply = std::get_if<msg::TraceReply>(&message)) {
    const auto it = tracing_.find(reply->nonce);
    if (it != tracing_.end()) it->second.push_back(std::move(*reply));
    answered_.notify_all();
  }
  if (const auto* refusal = std::get_if<msg::Refusal>(&message)) {
    refusal_ = error_of(refusal->why);
    ++refusals_;
    answered_.notify_all();
    // It does not say of what: nothing that still waits for its reply can be trusted to get one.
    for (const auto& [number, request] : Requests(requests_)) {
      if (!request->replied) finish_locked(*request, error_of(refusal->why));
    }
  }
  flush_releases(true);
}

void SessionState::on_reply(msg::SubmitReply reply) {
  std::shared_ptr<Request> request;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = requests_.find(reply.request);
    if (it == requests_.end() || it->second->replied) return;  // a repeat
    request = it->second;
    request->replied = true;
    request->graph = reply.graph;
    answered_.notify_all();
    if (request->announced && reply.outcome.ok() && !fits(*request->announced, reply))
      reply.outcome = {Errc::kInternal, "the scheduler's answer does not fit what was announced"};
    if (!reply.outcome.ok()) {
      // Who names an array of a refused request, before that is known here, is told what was wrong with that one.
      Error why = error_of(reply.outcome);
      for (const std::uint64_t number : request->submission.named) {
        if (why.code != Errc::kNotFound) break;
        if (const auto refused = refused_.find(number); refused != refused_.end()) why = refused->second;
      }
      for (const auto& [key, number] : request->submission.holds) refused_[number] = why;
      while (refused_.size() > kRememberedRefusals) refused_.erase(refused_.begin());
      graph_.refused(request->submission);
      request->graph_done = true;
      request->needs = std::move(reply.needs);
      finish_locked(*request, std::move(why));
      remove(reply.request);
    } else if (request->announced) {
      adopt(*request, reply);
    }
  }
  (request->announced ? announcing_ : unreplied_).fetch_sub(1, std::memory_order_release);
  if (reply.outcome.ok()) {
    fetcher_.answered(reply.last_op);
    std::map<std::uint64_t, ArrayId> arrays(reply.arrays.begin(), reply.arrays.end());
    for (std::size_t i = 0; i < request->targets.size(); ++i) {
      const auto it = arrays.find(request->targets[i].number);
      if (it != arrays.end()) {
        fetcher_.expect(it->second, request, i);
      } else {
        finish(*request, {Errc::kInternal, "the scheduler's reply does not name a fetched array"});
      }
    }
    if (auto& announced = request->announced; announced && !announced->pieces.empty()) {
      provider_.provide(arrays.at(announced->number), {announced->dtype, reply.grid},
                        std::exchange(announced->pieces, {}), request->number);
    }
    for (Submission::Provided& provided : request->submission.provided) {
      const auto it = arrays.find(provided.number);
      if (it != arrays.end()) provider_.provide(it->second, std::move(provided), request->number);
    }
    if (request->targets_left == 0 && !request->targets.empty()) delivered(*request);  // they have no blocks
    if (request->targets_left == 0 && !request->needs_done) finish(*request, {Errc::kOk, {}});
  }
  Outbox out;
  fetcher_.on_replied(reply_due(), out);
  provider_.on_replied(subscribable(), out);
  send_all(out);
}

void SessionState::on_done(msg::GraphDone done) {
  provider_.retire(done.request);
  const std::scoped_lock lock(mutex_);
  const auto it = requests_.find(done.request);
  if (it == requests_.end() || it->second->graph_done) return;
  const std::shared_ptr<Request> request = it->second;
  if (!request->replied) {  // its reply was lost on the way; the end says all that counts
    request->replied = true;
    (request->announced ? announcing_ : unreplied_).fetch_sub(1, std::memory_order_release);
    if (request->announced && done.outcome.ok())
      done.outcome = {Errc::kInternal, "an announcement ended without an answer"};
  }
  request->graph_done = true;
  if (!request->submission.holds.empty()) {
    // What later ones fetch of it is there only now.
    for (auto later = fetching_.upper_bound(done.request); later != fetching_.end(); ++later) {
      Request& fetch = *requests_.at(*later);
      if (fetch.fetches_from(*request)) fetch.moved_at = monotonic_now();
    }
  }
  // Once it is finished, who waited for it reads without the lock (check).
  if (!request->finished.load(std::memory_order_relaxed)) request->needs = std::move(done.needs);
  if (!done.outcome.ok() || request->targets_left == 0) fetcher_.forget(*request);
  if (request->announced && !done.outcome.ok())
    graph_.fail(request->announced->key, error_of(done.outcome));
  else
    graph_.held(request->submission, done.outcome.ok());
  if (!done.outcome.ok()) {
    finish_locked(*request, error_of(done.outcome));
  } else {
    request->progress = {done.tasks, done.tasks};
  }
  if (done.outcome.ok() && request->targets_left == 0) finish_locked(*request, {Errc::kOk, {}});
  if (request->finished.load(std::memory_order_relaxed)) remove(done.request);
  heard_end_.notify_all();
}

// Blocks that are here need not be made again for us. What is not said may be missing: requests without a reply, and too many pieces.
void SessionState::tell_fetched(std::uint64_t version) {
  constexpr std::size_t kMaxPieces = 1'000'000;  // of one answer: a frame's worth
  msg::Held held;
  held.version = version;
  std::size_t pieces = 0;
  const std::scoped_lock lock(mutex_);
  for (const auto& [number, request] : requests_) {
    if (!request->replied) continue;
    const bool over = request->finished.load(std::memory_order_relaxed);
    for (const Target& target : request->targets) {
      std::vector<msg::Range> missing;
      if (!over && target.left > 0) missing = target.missing();
      pieces += missing.size();
      if (pieces > kMaxPieces) break;
      held.fetches.push_back({number, target.array, std::move(missing)});
    }
  }
  endpoint_.send(std::move(held));
}

void SessionState::on_log(msg::Log log) {
  for (const msg::LogEntry& entry : log.entries) {
    const auto* left = std::get_if<msg::Drain>(&entry);  // drained: we have what it was sending us
    if (left != nullptr) fetcher_.on_worker_lost(left->peer);
    if (const auto* lost = std::get_if<msg::PeerLost>(&entry)) {
      if (lost->version != 0) tell_fetched(lost->version);
      if (!lost->peer) continue;  // that was all that it asked
      fetcher_.on_worker_lost(lost->peer);
      fenced_.insert(lost->peer);
    }
    const std::scoped_lock lock(mutex_);
    if (left != nullptr)
      std::erase_if(devices_, [&](const auto& d) { return d.second.worker_id == left->peer; });
    if (const auto* lost = std::get_if<msg::PeerLost>(&entry)) {
      std::erase_if(devices_, [&](const auto& d) { return d.second.worker_id == lost->peer; });
    } else if (const auto* joined = std::get_if<msg::PeerJoined>(&entry)) {
      const msg::PeerInfo& peer = joined->peer;
      if (peer.role != msg::Role::kWorker || fenced_.contains(peer.id)) continue;
      for (std::size_t i = 0; i < peer.devices.size(); ++i) {
        const msg::DeviceDesc desc = i < peer.descriptions.size() ? peer.descriptions[i] : msg::DeviceDesc{};
        devices_[peer.devices[i]] = {peer.devices[i], desc.name, desc.model,
                                     peer.name,       peer.id,   desc.memory_bytes};
      }
    }
    devices_changed_.notify_all();
  }
}

void SessionState::on_peer(WorkerId from, msg::PeerBatch batch) {
  if (fenced_.contains(from)) return;
  Outbox out;
  for (const msg::Subscribe& subscribe : batch.subscribes) {
    provider_.on_subscribe(from, subscribe, subscribable(), out);
  }
  for (msg::Offer& offer : batch.offers) fetcher_.on_offer(from, std::move(offer), reply_due(), out);
  for (const msg::Grant& grant : batch.grants) provider_.on_grant(from, grant, out);
  // What was granted and cannot be sent: the receive ends, and is tried again like any that fails.
  for (const msg::Relay& relay : batch.relays)
    if (relay.word == msg::RelayWord::kMissing) endpoint_.disarm(from, relay.transfer);
  // Dones need no answer: provided blocks live until their graph is done. Gones neither: the block's failure, or
  // its copy made elsewhere, is announced by an offer.
  send_all(out);
}

void SessionState::on_lost(Error why) {
  provider_.retire_all();
  std::vector<std::vector<Provider::Piece>> lent;  // let go without the lock
  const std::scoped_lock lock(mutex_);
  const bool given_up = why.message.starts_with("it does not take us back");
  lost_ = {
      Errc::kUnavailable,
      (given_up ? "the scheduler has given this session up: " : "the scheduler is gone: ") + why.message};
  answered_.notify_all();
  for (const auto& [number, request] : Requests(requests_)) {
    if (request->announced) lent.push_back(std::exchange(request->announced->pieces, {}));
    finish_locked(*request, lost_);
  }
  devices_changed_.notify_all();
  heard_end_.notify_all();
  fewer_ahead_.notify_all();
}

// Something of it goes on without that worker, or has gone on since then.
bool SessionState::advances(const Request& request, WorkerId without, TimeNs since) const {
  if (request.moved_at > since || !fetcher_.sources(request).empty()) return true;
  if (provider_.sends(request.number, without)) return true;
  if (const TimeNs moved = provider_.moved_at(request.number); moved != 0) return moved > since;
  const tilewise::Progress& p = request.progress;
  return p.total > 0 ? p.done < p.total : request.computes;
}

// A worker computes what it can, and waits for what it cannot get from here; what it has made for us waits there. So a request that still
// has work that goes on elsewhere, its own or of one that makes what it fetches, is not concerned, and one that has nothing to fetch or
// provide never is.
bool SessionState::is_stranded(const Request& request, WorkerId worker, TimeNs since) const {
  if (request.finished.load(std::memory_order_relaxed)) return false;
  if (fetcher_.sources(request).contains(worker)) return true;
  if (request.graph_done || !request.replied || advances(request, worker, since)) return false;
  if (request.targets_left == 0 && provider_.moved_at(request.number) == 0) return false;
  return std::ranges::none_of(requests_, [&](const auto& entry) {
    const Request& maker = *entry.second;
    return !maker.graph_done && request.fetches_from(maker) && advances(maker, worker, since);
  });
}

void SessionState::on_unreachable(WorkerId worker, const Error& why, TimeNs since) {
  const Error failure{Errc::kUnavailable,
                      "worker " + std::to_string(worker.value) + " cannot be reached: " + why.message};
  const std::scoped_lock lock(mutex_);
  for (const auto& [number, request] : Requests(requests_))
    if (is_stranded(*request, worker, since)) abandon(*request, failure);
  flush_releases(true);
}

// ---- devices ---------------------------------------------------------------------------------------------------------

std::string SessionState::device_name(DeviceId id) const {
  const auto it = devices_.find(id);
  return it != devices_.end() ? it->second.name : "device " + std::to_string(id.value);
}

std::vector<Device> SessionState::devices() {
  const std::scoped_lock lock(mutex_);
  std::vector<Device> all;
  for (const auto& [id, device] : devices_) all.push_back(device);
  return all;
}

bool SessionState::wait_for_devices(std::size_t count, Duration timeout) {
  std::unique_lock lock(mutex_);
  return devices_changed_.wait_for(lock, timeout, [&] {
    return devices_.size() >= count || lost_.code != Errc::kOk;
  }) && devices_.size() >= count;
}

}  // namespace tilewise::client
