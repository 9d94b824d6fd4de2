#include "provider.h"

#include "strided.h"

namespace tilewise::client {

void Provider::provide(ArrayId array, Submission::Provided provided, std::uint64_t request) {
  const ir::Box whole = ir::box_of(provided.array.grid.shape());
  provide(array, std::move(provided.array), {{whole, std::move(provided.memory)}}, request);
}

void Provider::provide(ArrayId array, ir::SourceArray source, std::vector<Piece> pieces,
                       std::uint64_t request) {
  Entry entry{std::move(source), std::move(pieces), {}, request};
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

void Provider::retire(std::uint64_t request) {
  std::erase_if(arrays_, [&](const auto& entry) { return entry.second.request == request; });
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
  Found found{piece->memory.get(), piece->memory, piece->box.shape(),
              grid.box(ir::unravel(block.block, grid.counts())), size_of(entry.array.dtype)};
  for (int d = 0; d < found.box.rank(); ++d)
    found.box.lo[d] -= piece->box.lo[d], found.box.hi[d] -= piece->box.lo[d];
  return found;
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
  msg::Offer offer{subscribe.block, subscribe.op, self_, subscribe.to, kNoSlab};
  offer.bytes = found.bytes();
  if (offer.bytes <= static_cast<std::int64_t>(limits::kMaxInlineBytes)) {
    offer.inlined = true;
    offer.data.resize(static_cast<std::size_t>(offer.bytes));
    gather(found.memory->data, found.shape, found.box, reinterpret_cast<std::byte*>(offer.data.data()),
           found.element_bytes);
  }
  out[from].offers.push_back(std::move(offer));
}

void Provider::on_grant(WorkerId from, const msg::Grant& grant, Outbox& out) {
  const Found found = find(grant.block);
  if (found.memory == nullptr) {
    out[from].gones.push_back({grant.block, self_, grant.to});
    return;
  }
  const std::int64_t bytes = found.bytes();
  // Who waits for bytes that cannot be sent asks again, once it knows.
  const auto sent = [&endpoint = endpoint_, from, grant](const Status& status) {
    if (status) return;
    msg::PeerBatch batch;
    batch.relays.push_back({grant.block, grant.from, grant.to, msg::RelayWord::kMissing, grant.transfer});
    endpoint.send(from, std::move(batch));
  };
  if (contiguous(found.shape, found.box)) {
    const std::byte* at = found.memory->data + first_element(found.shape, found.box) *
                                                   static_cast<std::int64_t>(found.element_bytes);
    return endpoint_.transmit(grant.to, grant.transfer, at, bytes,
                              [sent, memory = found.owner](Status status) { sent(status); });
  }
  auto packed = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
  gather(found.memory->data, found.shape, found.box, packed->data(), found.element_bytes);
  endpoint_.transmit(grant.to, grant.transfer, packed->data(), bytes,
                     [sent, packed](Status status) { sent(status); });
}

void Provider::on_replied(bool reply_due, Outbox& out) {
  for (auto& [from, subscribe] : std::exchange(early_, {})) on_subscribe(from, subscribe, reply_due, out);
}

}  // namespace tilewise::client
