#include "provider.h"

#include "strided.h"

#include <algorithm>

namespace tilewise::client {
namespace {

// What is read in place is at least so aligned, whatever it is of: kernels of plug-ins may rely on it.
constexpr std::uintptr_t kPlaceAlignment = 16;

}  // namespace

void Provider::provide(ArrayId array, Submission::Provided provided, std::uint64_t request) {
  const ir::Box whole = ir::box_of(provided.array.grid.shape());
  provide(array, std::move(provided.array), {{whole, std::move(provided.memory)}}, request);
}

void Provider::provide(ArrayId array, ir::SourceArray source, std::vector<Piece> pieces,
                       std::uint64_t request) {
  if (const auto known = arrays_.find(array); known != arrays_.end()) withdraw(known->second);
  Entry entry{std::move(source), std::move(pieces), {}, request, monotonic_now()};
  for (Piece& piece : entry.pieces) {
    const auto bytes = static_cast<std::size_t>(piece.box.volume()) * size_of(entry.array.dtype);
    piece.place = bytes == 0
                      ? std::nullopt
                      : endpoint_.lend(piece.memory, {piece.memory->data, bytes}, piece.memory->adoptable);
  }
  const ir::Grid& grid = entry.array.grid;
  const ir::Shape counts = grid.counts();
  const bool whole = entry.pieces.size() == 1 && entry.pieces[0].box == ir::box_of(grid.shape());
  for (std::uint32_t p = 0; p < entry.pieces.size() && !whole; ++p) {
    const ir::Box& box = entry.pieces[p].box;
    ir::Box blocks;
    for (int d = 0; d < grid.rank(); ++d) {
      blocks.lo.push_back(grid.dim(d).find(box.lo[d]));
      blocks.hi.push_back(grid.dim(d).find(box.hi[d] - 1) + 1);
    }
    for (auto at = ir::next_in(blocks, blocks.lo); at;) {
      entry.piece_of.emplace(ir::ravel(*at, counts), p);
      ir::Index after = *at;
      if (after.empty()) break;
      ++after.back();
      at = ir::next_in(blocks, after);
    }
  }
  arrays_[array] = std::move(entry);
}

void Provider::withdraw(const Entry& entry) {
  for (const Piece& piece : entry.pieces)
    if (piece.place) endpoint_.withdraw(piece.place->slab);
}

void Provider::retire(std::uint64_t request) {
  std::erase_if(arrays_, [&](const auto& entry) {
    if (entry.second.request != request) return false;
    withdraw(entry.second);
    return true;
  });
}

void Provider::retire_all() {
  for (const auto& [array, entry] : std::exchange(arrays_, {})) withdraw(entry);
  early_.clear();
}

Provider::Found Provider::find(msg::BlockRef block) const {
  const auto it = arrays_.find(block.array);
  if (it == arrays_.end()) return {};
  const Entry& entry = it->second;
  const ir::Grid& grid = entry.array.grid;
  if (block.block < 0 || block.block >= grid.block_count()) return {};
  const Piece* piece = entry.pieces.empty() ? nullptr : &entry.pieces.front();
  if (!entry.piece_of.empty() || piece == nullptr) {
    const auto at = entry.piece_of.find(block.block);
    if (at == entry.piece_of.end()) return {};
    piece = &entry.pieces[at->second];
  }
  Found found{piece->memory.get(),
              piece->memory,
              piece->place,
              piece->box.shape(),
              grid.box(ir::unravel(block.block, grid.counts())),
              size_of(entry.array.dtype)};
  for (int d = 0; d < found.box.rank(); ++d)
    found.box.lo[d] -= piece->box.lo[d], found.box.hi[d] -= piece->box.lo[d];
  return found;
}

std::int64_t Provider::Found::first() const {
  return first_element(shape, box) * static_cast<std::int64_t>(element_bytes);
}

void Provider::on_subscribe(WorkerId from, const msg::Subscribe& subscribe, bool reply_due, Outbox& out) {
  const Found found = find(subscribe.block);
  if (found.memory == nullptr) {
    if (reply_due && early_.size() < limits::kMaxParked) {
      early_.emplace_back(from, subscribe);
    } else {
      // Subscriptions are soft state: whoever still needs the block asks again.
      out[from].gones.push_back({subscribe.block, self_, subscribe.to});
    }
    return;
  }
  arrays_.at(subscribe.block.array).moved_at = monotonic_now();
  msg::Offer offer{subscribe.block, subscribe.op, self_, subscribe.to, kNoSlab};
  offer.bytes = found.bytes();
  const std::byte* at = found.memory->data + found.first();
  if (found.place && endpoint_.reads_in_place(from) && contiguous(found.shape, found.box) &&
      reinterpret_cast<std::uintptr_t>(at) % kPlaceAlignment == 0) {
    offer.slab = found.place->slab;
    offer.offset = found.place->offset + found.first();
    if (arrays_.at(subscribe.block.array).in_place.emplace(subscribe.block.block, subscribe.to).second)
      in_place_.fetch_add(offer.bytes, std::memory_order_relaxed);
  } else if (offer.bytes <= static_cast<std::int64_t>(limits::kMaxInlineBytes)) {
    offer.inlined = true;
    offer.data.resize(static_cast<std::size_t>(offer.bytes));
    gather(found.memory->data, found.shape, found.box, reinterpret_cast<std::byte*>(offer.data.data()),
           found.element_bytes);
    sent_.fetch_add(offer.bytes, std::memory_order_relaxed);
  }
  out[from].offers.push_back(std::move(offer));
}

void Provider::on_grant(WorkerId from, const msg::Grant& grant, Outbox& out) {
  const Found found = find(grant.block);
  if (found.memory == nullptr) {
    out[from].gones.push_back({grant.block, self_, grant.to});
    return;
  }
  Entry& entry = arrays_.at(grant.block.array);
  entry.moved_at = monotonic_now();
  entry.sending.insert(from);
  const std::int64_t bytes = found.bytes();
  sent_.fetch_add(bytes, std::memory_order_relaxed);
  if (entry.in_place.erase({grant.block.block, grant.to}) > 0)
    in_place_.fetch_sub(bytes, std::memory_order_relaxed);  // that device cannot: a GPU, say
  // Who waits for bytes that cannot be sent asks again, once it knows.
  const auto sent = [this, from, grant](const Status& status) {
    if (const auto known = arrays_.find(grant.block.array); known != arrays_.end()) {
      auto& sending = known->second.sending;
      if (const auto one = sending.find(from); one != sending.end()) sending.erase(one);
      known->second.moved_at = monotonic_now();
    }
    if (status) return;
    msg::PeerBatch batch;
    batch.relays.push_back({grant.block, grant.from, grant.to, msg::RelayWord::kMissing, grant.transfer});
    endpoint_.send(from, std::move(batch));
  };
  if (contiguous(found.shape, found.box)) {
    return endpoint_.transmit(grant.to, grant.transfer, found.memory->data + found.first(), bytes,
                              [sent, memory = found.owner](Status status) { sent(status); });
  }
  auto packed = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
  gather(found.memory->data, found.shape, found.box, packed->data(), found.element_bytes);
  endpoint_.transmit(grant.to, grant.transfer, packed->data(), bytes,
                     [sent, packed](Status status) { sent(status); });
}

TimeNs Provider::moved_at(std::uint64_t request) const {
  TimeNs latest = 0;
  for (const auto& [array, entry] : arrays_)
    if (entry.request == request) latest = std::max(latest, entry.moved_at);
  return latest;
}

bool Provider::sends(std::uint64_t request, WorkerId but_to) const {
  return std::ranges::any_of(arrays_, [&](const auto& array) {
    const auto& [id, entry] = array;
    return entry.request == request && entry.sending.size() > entry.sending.count(but_to);
  });
}

void Provider::on_replied(bool reply_due, Outbox& out) {
  for (auto& [from, subscribe] : std::exchange(early_, {})) on_subscribe(from, subscribe, reply_due, out);
}

}  // namespace tilewise::client
