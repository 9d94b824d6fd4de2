// Results on their way in: blocks that workers offer are copied into the arrays that futures wait for.
//
// A worker offers each block of a fetched array when it is sealed, perhaps more than once, perhaps before the
// scheduler's reply has said which array that is. Each offer is owed a Done. All functions run in the endpoint's
// callbacks, so nothing here is locked, and copying holds nobody up but the endpoint.
#pragma once
#include <tilewise/client/endpoint.h>

#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "request.h"

namespace tilewise::client {

class Fetcher {
 public:
  // delivered(request): its last block came. fail(request, error, known): one will not come, as the scheduler knows or does not. send():
  // empties an outbox.
  // Offers in `book` are on loan.
  Fetcher(Endpoint& endpoint, std::shared_ptr<const LoanBook> book, std::function<void(Request&)> delivered,
          std::function<void(Request&, Error, bool known)> fail, std::function<void(Outbox&)> send)
      : endpoint_(endpoint),
        book_(std::move(book)),
        delivered_(std::move(delivered)),
        fail_(std::move(fail)),
        send_(std::move(send)) {}

  // A reply came for what has ops up to this one.
  void answered(OpId last) { last_answered_ = std::max(last_answered_, last); }
  // The reply named the array of a target.
  void expect(ArrayId array, const std::shared_ptr<Request>& request, std::size_t target);
  // The request has ended at the scheduler too: nothing more comes for it.
  void forget(const Request& request);
  // `reply_due`: some submission has not been answered, so an unknown array may yet become known.
  void on_offer(WorkerId from, msg::Offer offer, bool reply_due, Outbox& out);
  void on_replied(bool reply_due, Outbox& out);  // looks at early offers again
  void on_worker_lost(WorkerId worker);
  // Who was granted to send, or has offered, what the request waits for.
  std::set<WorkerId> sources(const Request& request) const;

  std::size_t expecting() const { return targets_.size(); }

 private:
  struct Wanted {
    std::shared_ptr<Request> request;
    std::size_t index = 0;
    Target& target() const { return request->targets[index]; }
    BlockState& state(std::int64_t block) const { return target().blocks[static_cast<std::size_t>(block)]; }
    ir::Box box(std::int64_t block) const {
      return target().grid.box(ir::unravel(block, target().grid.counts()));
    }
  };
  struct Transfer {  // bytes that a worker was granted to send
    std::uint64_t nonce = 0;
    WorkerId from;
    msg::Offer offer;
    std::vector<std::pair<WorkerId, msg::Offer>> owed;  // this offer, and others of the same block meanwhile
    std::vector<std::byte> bytes;                       // unless `direct`
    Wanted direct;  // with a request: bytes go straight into this array, where they are one run
    int failures = 0, breaks = 0;
    bool lost = false;  // the worker is gone: the block may come from elsewhere
  };

  bool lend(WorkerId from, const msg::Offer& offer, std::vector<Wanted>& wanted);
  void place(const Wanted& wanted, std::int64_t block, const std::byte* bytes);
  void filled(const Wanted& wanted, std::int64_t block);
  void start_transfer(WorkerId from, msg::Offer offer, const std::vector<Wanted>& wanted, Outbox& out);
  static std::byte* destination(Transfer& transfer);
  void arm(Transfer& transfer, Outbox& out);
  void on_received(msg::BlockRef block, std::uint64_t nonce, Status status);
  void fail(const std::vector<Wanted>& wanted, const Error& error, bool known = false);
  // Targets of the array that still wait; forgets those of finished requests.
  std::vector<Wanted> waiting(ArrayId array);

  Endpoint& endpoint_;
  std::shared_ptr<const LoanBook> book_;
  std::function<void(Request&)> delivered_;
  std::function<void(Request&, Error, bool known)> fail_;
  std::function<void(Outbox&)> send_;
  std::unordered_map<ArrayId, std::vector<Wanted>> targets_;
  std::deque<std::pair<WorkerId, msg::Offer>> early_;
  std::deque<std::pair<WorkerId, msg::Offer>> postponed_;  // until some transfer ends
  std::map<msg::BlockRef, Transfer> transfers_;
  std::int64_t in_flight_ = 0;  // bytes of transfers_
  std::uint64_t next_transfer_ = 1;
  OpId last_answered_;
  bool overflowed_ = false;  // early offers were dropped: what is expected next may never be complete
};

}  // namespace tilewise::client
