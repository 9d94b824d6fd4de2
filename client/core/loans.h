// Blocks that this client reads where they lie. A worker keeps a block for each offer that has no Done yet; so a loan is an offer
// whose Done is sent later, and a mapping that is kept.
#pragma once
#include <tilewise/client/endpoint.h>

#include <mutex>
#include <set>
#include <tuple>
#include <vector>

namespace tilewise::client {

// Which offers are on loan, so that a repeated one is not answered with a Done; and the way back, as long as there is one. Thread-safe.
class LoanBook {
 public:
  explicit LoanBook(Endpoint& endpoint) : endpoint_(&endpoint) {}
  void close() {  // the endpoint ends, and with it all that workers have lent
    const std::scoped_lock lock(way_back_);
    endpoint_ = nullptr;
  }
  // Strikes them out, so that later repeats are answered, and sends the Done of each.
  void give_back(WorkerId worker, msg::PeerBatch dones);
  void enter(const msg::Offer& offer) {
    const std::scoped_lock lock(mutex_);
    lent_.insert({offer.block, offer.op, offer.from});
  }
  bool has(const msg::Offer& offer) const {
    const std::scoped_lock lock(mutex_);
    return lent_.contains({offer.block, offer.op, offer.from});
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::tuple<msg::BlockRef, OpId, DeviceId>> lent_;
  std::mutex
      way_back_;  // its own: callbacks ask has(), and an endpoint may have a lock of its own around them and send()
  Endpoint* endpoint_;
};

// The loans of one request. Taken in the endpoint's callbacks; whoever waited for the request has them when it has ended well, and
// gives them back when it has not. Thread-safe but for taken() and left_out(), which are for when no more are taken.
class Loans {
 public:
  struct Loan {
    WorkerId from;
    msg::Offer offer;
    const std::byte* bytes = nullptr;
  };

  explicit Loans(std::shared_ptr<LoanBook> book) : book_(std::move(book)) {}
  ~Loans() { give_back(); }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // `mapping`: keeps the bytes readable. False: all were given back, and this offer is owed its Done now.
  bool take(WorkerId from, const msg::Offer& offer, const std::byte* bytes,
            std::shared_ptr<const void> mapping);
  void elsewhere() { ++elsewhere_; }
  // All that were taken; nothing is, from then on.
  void give_back();

  const std::vector<Loan>& taken() const { return taken_; }
  std::int64_t left_out() const { return elsewhere_; }

 private:
  const std::shared_ptr<LoanBook> book_;
  std::mutex mutex_;
  bool over_ = false;
  std::vector<Loan> taken_;
  std::set<std::shared_ptr<const void>> mappings_;  // compared as addresses; never walked
  std::int64_t elsewhere_ = 0;
};

}  // namespace tilewise::client
