#include "foreign_memory.h"

#include <tilewise/worker/core.h>

#include <utility>

namespace tilewise::embedded {

using worker::is_foreign;
using worker::kAdoptableSlab;
using worker::kForeignSlab;

std::optional<ForeignMemory::Place> ForeignMemory::lend(std::uint32_t lender,
                                                        std::shared_ptr<const void> owner,
                                                        std::span<const std::byte> bytes, bool adoptable) {
  if (next_ >= kAdoptableSlab - 16) return std::nullopt;  // a thousand million of them: the rest is sent
  const std::uint32_t slab = kForeignSlab | (adoptable ? kAdoptableSlab : 0) | next_++;
  lent_[slab] = {lender, std::move(owner), bytes.data()};
  return Place{slab, 0};
}

const std::byte* ForeignMemory::find(std::uint32_t slab) const {
  const auto it = lent_.find(slab);
  return it == lent_.end() ? nullptr : it->second.data;
}

void ForeignMemory::withdraw(std::uint32_t slab) {
  const auto it = lent_.find(slab);
  if (it == lent_.end() || std::exchange(it->second.withdrawn, true)) return;
  kept_bytes_.fetch_add(it->second.bytes_on_loan, std::memory_order_relaxed);
  end_if_over(slab);
}

void ForeignMemory::lender_gone(std::uint32_t lender) {
  std::vector<std::uint32_t> slabs;
  for (const auto& [slab, lent] : lent_)
    if (lent.lender == lender) slabs.push_back(slab);
  for (const std::uint32_t slab : slabs) withdraw(slab);
}

void ForeignMemory::offered(const msg::Offer& offer) {
  if (!is_foreign(offer.slab)) return;
  const auto lent = lent_.find(offer.slab);
  if (lent == lent_.end()) return;
  Loan& loan = loans_[{offer.block, offer.to}];
  if (loan.over.contains(offer.op)) return;  // a repeat: its answer has come
  if (loan.open.empty()) {
    loan.slab = offer.slab;
    loan.bytes = offer.bytes;
    ++lent->second.loans;
    lent->second.bytes_on_loan += offer.bytes;
  }
  loan.open.insert(offer.op);
}

void ForeignMemory::given_back(const msg::Done& done) {
  const auto it = loans_.find({done.block, done.to});
  if (it == loans_.end()) return;
  Loan& loan = it->second;
  loan.over.insert(done.op);
  loan.open.erase(done.op);
  if (done.also.value != 0 && !loan.over.contains(done.also)) loan.open.insert(done.also);
  if (!loan.open.empty()) return;
  const auto [slab, bytes] = std::pair(loan.slab, loan.bytes);
  loans_.erase(it);
  Lent& lent = lent_.at(slab);
  --lent.loans;
  lent.bytes_on_loan -= bytes;
  if (lent.withdrawn) kept_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  end_if_over(slab);
}

// The owner's end may be anything of a user's: it comes last.
void ForeignMemory::end_if_over(std::uint32_t slab) {
  const auto it = lent_.find(slab);
  if (!it->second.withdrawn || it->second.loans > 0) return;
  const Lent gone = std::move(it->second);
  lent_.erase(it);
}

}  // namespace tilewise::embedded
