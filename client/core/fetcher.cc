#include "fetcher.h"

#include "strided.h"

namespace tilewise::client {
namespace {

constexpr int kTries = 3;                         // of one transfer
constexpr int kMaxBreaks = 100;                   // of the link meanwhile, beside these
constexpr std::int64_t kMaxInFlight = 256 << 20;  // bytes granted and not here; one block always may

msg::Done done_for(const msg::Offer& offer) { return {offer.block, offer.op, offer.from, offer.to}; }

}  // namespace

void Fetcher::expect(ArrayId array, const std::shared_ptr<Request>& request, std::size_t target) {
  if (request->targets[target].left == 0) return;
  if (overflowed_) {
    return fail_(*request, {Errc::kLimitExceeded, "too many blocks arrived before the scheduler's reply"},
                 false);
  }
  request->targets[target].array = array;
  targets_[array].push_back({request, target});
}

void Fetcher::forget(const Request& request) {
  for (const Target& target : request.targets) {
    const auto it = targets_.find(target.array);
    if (it == targets_.end()) continue;
    std::erase_if(it->second, [&](const Wanted& w) { return w.request.get() == &request; });
    if (it->second.empty()) targets_.erase(it);
  }
}

std::vector<Fetcher::Wanted> Fetcher::waiting(ArrayId array) {
  const auto it = targets_.find(array);
  if (it == targets_.end()) return {};
  std::erase_if(it->second, [](const Wanted& w) {
    return w.request->finished.load(std::memory_order_acquire) || w.target().left == 0;
  });
  std::vector<Wanted> wanted = it->second;
  if (wanted.empty()) targets_.erase(it);
  return wanted;
}

void Fetcher::on_offer(WorkerId from, msg::Offer offer, bool reply_due, Outbox& out) {
  if (book_->has(offer)) return;  // its Done comes when the loan ends
  std::vector<Wanted> wanted = waiting(offer.block.array);
  // Also where others wait for the array: it is the only offer to a request that the reply will tell of.
  const bool early = reply_due && offer.op > last_answered_;
  if (early && early_.size() < limits::kMaxParked) {
    early_.emplace_back(from, std::move(offer));
    return;
  }
  overflowed_ |= early;
  if (wanted.empty()) {  // of a request that has ended, or a repeat
    out[from].dones.push_back(done_for(offer));
    return;
  }
  if (!offer.failed.ok()) {
    out[from].dones.push_back(done_for(offer));
    return fail(wanted, {offer.failed.code, offer.failed.message}, true);
  }
  const std::int64_t block = offer.block.block;
  const Target& first = wanted.front().target();
  const bool known = block >= 0 && block < static_cast<std::int64_t>(first.blocks.size());
  const std::int64_t bytes =
      known ? wanted.front().box(block).volume() * static_cast<std::int64_t>(size_of(first.dtype)) : -1;
  if (offer.bytes != bytes || (offer.inlined && offer.data.size() != static_cast<std::size_t>(bytes))) {
    out[from].dones.push_back(done_for(offer));
    return fail(wanted,
                {Errc::kCorruptData, "a worker offers " + std::to_string(offer.bytes) + " bytes for block " +
                                         std::to_string(block) + " of " + std::to_string(bytes) + " bytes"});
  }
  if (lend(from, offer, wanted)) return;
  if (const auto it = transfers_.find(offer.block); it != transfers_.end() && !wanted.empty()) {
    if (it->second.lost) {  // until the transport has let go of where those bytes were to be put
      postponed_.emplace_back(from, std::move(offer));
      return;
    }
    // The bytes are coming already: they serve everyone, and this offer's Done comes with theirs.
    it->second.owed.emplace_back(from, std::move(offer));
    for (const Wanted& w : wanted) {
      if (w.state(block) == BlockState::kWanted) w.state(block) = BlockState::kReceiving;
    }
    return;
  }
  std::erase_if(wanted, [&](const Wanted& w) { return w.state(block) == BlockState::kFilled; });
  const std::byte* data = nullptr;
  if (offer.inlined) {
    data = reinterpret_cast<const std::byte*>(offer.data.data());
  } else if (!wanted.empty() && bytes > 0 && offer.slab != kNoSlab) {
    data = endpoint_.map(offer.from, offer.slab, offer.offset, offer.bytes);
  }
  if (data == nullptr && bytes > 0 && !wanted.empty()) {
    if (in_flight_ > 0 && in_flight_ + bytes > kMaxInFlight) {
      postponed_.emplace_back(from, std::move(offer));
    } else {
      start_transfer(from, std::move(offer), wanted, out);
    }
    return;
  }
  for (const Wanted& w : wanted) place(w, block, data);
  out[from].dones.push_back(done_for(offer));
}

// Takes those who want to read the block where it lies out of `wanted`. True: one of them has it now, and everybody else is served.
bool Fetcher::lend(WorkerId from, const msg::Offer& offer, std::vector<Wanted>& wanted) {
  const std::int64_t block = offer.block.block;
  std::vector<Wanted> borrowers;
  std::erase_if(wanted, [&](const Wanted& w) {
    const bool borrows = w.target().loans != nullptr;
    if (borrows && w.state(block) == BlockState::kWanted) borrowers.push_back(w);
    return borrows;
  });
  if (borrowers.empty()) return false;
  const std::byte* data = nullptr;
  if (!offer.inlined && offer.slab != kNoSlab)
    data = endpoint_.map(offer.from, offer.slab, offer.offset, offer.bytes);
  // Workers align blocks; whoever reads elements must not have to believe that.
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(borrowers.front().target().dtype) != 0) data = nullptr;
  if (data == nullptr) {
    for (const Wanted& w : borrowers) w.target().loans->elsewhere(), filled(w, block);
    return false;
  }
  // Each request has an offer of its own: the others' are still to come.
  const Wanted& borrower = borrowers.front();
  if (!borrower.target().loans->take(from, offer, data, endpoint_.pin(offer.from, offer.slab))) return false;
  for (const Wanted& w : wanted) {
    if (w.state(block) == BlockState::kWanted) place(w, block, data);
  }
  filled(borrower, block);
  return true;
}

void Fetcher::place(const Wanted& wanted, std::int64_t block, const std::byte* bytes) {
  Target& target = wanted.target();
  scatter(bytes_of(target.buffer), target.shape, wanted.box(block), bytes, size_of(target.dtype));
  filled(wanted, block);
}

// Whatever way its bytes came: they were right if nobody had given their memory away by now.
void Fetcher::filled(const Wanted& wanted, std::int64_t block) {
  if (const auto by = endpoint_.fenced_by()) {
    return fail_(*wanted.request,
                 {Errc::kUnavailable, "this client was taken for lost: worker " + std::to_string(by->value) +
                                          " gives to others the memory that was being read"},
                 false);
  }
  wanted.request->moved_at = monotonic_now();
  wanted.state(block) = BlockState::kFilled;
  if (--wanted.target().left > 0) return;
  if (--wanted.request->targets_left == 0) delivered_(*wanted.request);
}

void Fetcher::start_transfer(WorkerId from, msg::Offer offer, const std::vector<Wanted>& wanted,
                             Outbox& out) {
  Transfer transfer{.from = from};
  transfer.owed.emplace_back(from, offer);
  if (contiguous(wanted.front().target().shape, wanted.front().box(offer.block.block))) {
    transfer.direct = wanted.front();
  } else {
    transfer.bytes.resize(static_cast<std::size_t>(offer.bytes));
  }
  for (const Wanted& w : wanted) w.state(offer.block.block) = BlockState::kReceiving;
  const msg::BlockRef block = offer.block;
  in_flight_ += offer.bytes;
  transfer.offer = std::move(offer);
  arm(transfers_[block] = std::move(transfer), out);
}

std::byte* Fetcher::destination(Transfer& transfer) {
  if (!transfer.direct.request) return transfer.bytes.data();
  Target& target = transfer.direct.target();
  return bytes_of(target.buffer) +
         first_element(target.shape, transfer.direct.box(transfer.offer.block.block)) *
             static_cast<std::int64_t>(size_of(target.dtype));
}

void Fetcher::arm(Transfer& t, Outbox& out) {
  t.nonce = next_transfer_++;
  endpoint_.receive(t.offer.from, t.nonce, destination(t), t.offer.bytes,
                    [this, block = t.offer.block, nonce = t.nonce](Status status) {
                      on_received(block, nonce, std::move(status));
                    });
  out[t.from].grants.push_back({t.offer.block, t.offer.from, t.offer.to, t.nonce});
}

void Fetcher::on_received(msg::BlockRef ref, std::uint64_t nonce, Status status) {
  const auto it = transfers_.find(ref);
  if (it == transfers_.end() || it->second.nonce != nonce) return;
  Outbox out;
  std::vector<Wanted> wanted = waiting(ref.array);
  std::erase_if(wanted, [&](const Wanted& w) { return w.state(ref.block) != BlockState::kReceiving; });
  if (!status && !it->second.lost && !wanted.empty()) {
    const bool broke = status.error().code == Errc::kUnavailable && ++it->second.breaks < kMaxBreaks;
    if (broke || ++it->second.failures < kTries) {
      arm(it->second, out);
      return send_(out);
    }
  }
  Transfer transfer = std::move(it->second);
  transfers_.erase(it);
  in_flight_ -= transfer.offer.bytes;
  for (auto& [worker, owed] : transfer.owed) {
    if (transfer.lost && worker != transfer.from)  // it came before the news: the block is to be had there
      postponed_.emplace_back(worker, std::move(owed));
    else
      out[worker].dones.push_back(done_for(owed));
  }
  if (status) {
    // Others first: with its last block the request's buffer belongs to whoever waits for it.
    const auto there = [&](const Wanted& w) {
      return w.request == transfer.direct.request && w.index == transfer.direct.index;
    };
    for (const Wanted& w : wanted) {
      if (!there(w)) place(w, ref.block, destination(transfer));
    }
    for (const Wanted& w : wanted) {
      if (there(w)) filled(w, ref.block);
    }
  } else if (transfer.lost) {
    for (const Wanted& w : wanted) w.state(ref.block) = BlockState::kWanted;
  } else {
    fail(wanted, status.error());
  }
  // Room again, or a place let go: those that cannot go yet come back to the list.
  for (auto& [from, offer] : std::exchange(postponed_, {})) on_offer(from, std::move(offer), false, out);
  send_(out);
}

void Fetcher::on_replied(bool reply_due, Outbox& out) {
  if (!reply_due) overflowed_ = false;
  for (auto& [from, offer] : std::exchange(early_, {})) on_offer(from, std::move(offer), reply_due, out);
}

void Fetcher::on_worker_lost(WorkerId worker) {
  std::erase_if(early_, [&](const auto& offer) { return offer.first == worker; });
  std::erase_if(postponed_, [&](const auto& offer) { return offer.first == worker; });
  for (auto& [block, transfer] : transfers_) {
    transfer.lost |= transfer.from == worker;
    std::erase_if(transfer.owed,
                  [&](const auto& offer) { return offer.first == worker && worker != transfer.from; });
  }
}

std::set<WorkerId> Fetcher::sources(const Request& request) const {
  const auto waits = [&](const msg::BlockRef& block, BlockState state) {
    return std::ranges::any_of(request.targets, [&](const Target& target) {
      return target.array == block.array && target.blocks[static_cast<std::size_t>(block.block)] == state;
    });
  };
  std::set<WorkerId> from;
  for (const auto& [block, transfer] : transfers_)
    if (!transfer.lost && waits(block, BlockState::kReceiving)) from.insert(transfer.from);
  for (const auto& [worker, offer] : postponed_)
    if (waits(offer.block, BlockState::kWanted)) from.insert(worker);
  return from;
}

void Fetcher::fail(const std::vector<Wanted>& wanted, const Error& error, bool known) {
  for (const Wanted& w : wanted) fail_(*w.request, error, known);
}

}  // namespace tilewise::client
