#include "loans.h"

#include <map>

namespace tilewise::client {

void LoanBook::give_back(WorkerId worker, msg::PeerBatch dones) {
  {
    const std::scoped_lock lock(mutex_);
    for (const msg::Done& done : dones.dones) lent_.erase({done.block, done.op, done.from});
  }
  const std::scoped_lock lock(way_back_);
  if (endpoint_ != nullptr) endpoint_->send(worker, std::move(dones));
}

bool Loans::take(WorkerId from, const msg::Offer& offer, const std::byte* bytes,
                 std::shared_ptr<const void> mapping) {
  const std::scoped_lock lock(mutex_);
  if (over_) return false;
  book_->enter(offer);
  mappings_.insert(std::move(mapping));
  taken_.push_back({from, offer, bytes});
  return true;
}

void Loans::give_back() {
  const std::scoped_lock lock(mutex_);
  over_ = true;
  std::map<WorkerId, msg::PeerBatch> batches;
  for (const Loan& loan : std::exchange(taken_, {}))
    batches[loan.from].dones.push_back({loan.offer.block, loan.offer.op, loan.offer.from, loan.offer.to});
  for (auto& [worker, batch] : batches) book_->give_back(worker, std::move(batch));
  mappings_.clear();
}

}  // namespace tilewise::client
