// Memory of clients that an embedded cluster reads where it lies, and keeps as blocks of its own. One thread, the cluster's.
//
// What is lent has an owner, who is let go when the lender has withdrawn it (or is gone) and no offer of it is unanswered. An offer
// is answered by given_back() for the op that it was made to, and for those that its answers name beside that (msg::Done::also); each once, repeats and
// answers to other offers do nothing.
#pragma once
#include <tilewise/client/endpoint.h>

#include <atomic>
#include <map>
#include <set>
#include <span>

namespace tilewise::embedded {

class ForeignMemory {
 public:
  using Place = client::Endpoint::Place;

  // `lender` is a number of the caller's.
  std::optional<Place> lend(std::uint32_t lender, std::shared_ptr<const void> owner,
                            std::span<const std::byte> bytes, bool adoptable);
  void withdraw(std::uint32_t slab);
  void lender_gone(std::uint32_t lender);
  // Null: nothing is lent under that number.
  const std::byte* find(std::uint32_t slab) const;

  // Goes to a worker, whose answer is waited for from now on. Of another kind of slab: nothing.
  void offered(const msg::Offer& offer);
  void given_back(const msg::Done& done);

  std::size_t lent() const { return lent_.size(); }
  // Bytes of blocks that are still kept although their lender had withdrawn them, of all lenders: arrays now. Any thread.
  std::int64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Lent {
    std::uint32_t lender = 0;
    std::shared_ptr<const void> owner;
    const std::byte* data = nullptr;
    std::int64_t loans = 0, bytes_on_loan = 0;
    bool withdrawn = false;
  };
  struct Loan {
    std::uint32_t slab = 0;
    std::int64_t bytes = 0;
    std::set<OpId> open, over;
  };
  using Key = std::pair<msg::BlockRef, DeviceId>;  // the block, and who reads it

  void end_if_over(std::uint32_t slab);

  std::map<std::uint32_t, Lent> lent_;
  std::map<Key, Loan> loans_;
  std::uint32_t next_ = 0;
  std::atomic<std::int64_t> kept_bytes_{0};
};

}  // namespace tilewise::embedded
