#include "provider.h"

#include "strided.h"

namespace tilewise::client {

void Provider::provide(ArrayId array, Submission::Provided provided, std::uint64_t request) {
  const ir::Shape shape = provided.array.grid.shape();
  arrays_[array] = {std::move(provided.array), shape, std::move(provided.memory), request};
}

void Provider::retire(std::uint64_t request) {
  std::erase_if(arrays_, [&](const auto& entry) { return entry.second.request == request; });
}

const Provider::Entry* Provider::find(msg::BlockRef block) const {
  const auto it = arrays_.find(block.array);
  if (it == arrays_.end()) return nullptr;
  return block.block >= 0 && block.block < it->second.array.grid.block_count() ? &it->second : nullptr;
}

void Provider::on_subscribe(WorkerId from, const msg::Subscribe& subscribe, bool reply_due, Outbox& out) {
  const Entry* entry = find(subscribe.block);
  if (entry == nullptr) {
    if (reply_due && early_.size() < limits::kMaxParked) {
      early_.emplace_back(from, subscribe);
    } else {
      // Subscriptions are soft state: whoever still needs the block asks again.
      out[from].gones.push_back({subscribe.block, self_, subscribe.to});
    }
    return;
  }
  const ir::Box box = entry->array.grid.box(ir::unravel(subscribe.block.block, entry->array.grid.counts()));
  const std::size_t element = size_of(entry->array.dtype);
  msg::Offer offer{subscribe.block, subscribe.op, self_, subscribe.to, kNoSlab};
  offer.bytes = box.volume() * static_cast<std::int64_t>(element);
  if (offer.bytes <= static_cast<std::int64_t>(limits::kMaxInlineBytes)) {
    offer.inlined = true;
    offer.data.resize(static_cast<std::size_t>(offer.bytes));
    gather(entry->memory->data, entry->shape, box, reinterpret_cast<std::byte*>(offer.data.data()), element);
  }
  out[from].offers.push_back(std::move(offer));
}

void Provider::on_grant(WorkerId from, const msg::Grant& grant, Outbox& out) {
  const Entry* entry = find(grant.block);
  if (entry == nullptr) {
    out[from].gones.push_back({grant.block, self_, grant.to});
    return;
  }
  const ir::Box box = entry->array.grid.box(ir::unravel(grant.block.block, entry->array.grid.counts()));
  const std::size_t element = size_of(entry->array.dtype);
  const std::int64_t bytes = box.volume() * static_cast<std::int64_t>(element);
  // A failed transmission is the receiver's to notice: it has the deadline, and grants again.
  if (contiguous(entry->shape, box)) {
    const std::byte* at =
        entry->memory->data + first_element(entry->shape, box) * static_cast<std::int64_t>(element);
    return endpoint_.transmit(grant.to, grant.transfer, at, bytes, [memory = entry->memory](Status) {});
  }
  auto packed = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
  gather(entry->memory->data, entry->shape, box, packed->data(), element);
  endpoint_.transmit(grant.to, grant.transfer, packed->data(), bytes, [packed](Status) {});
}

void Provider::on_replied(bool reply_due, Outbox& out) {
  for (auto& [from, subscribe] : std::exchange(early_, {})) on_subscribe(from, subscribe, reply_due, out);
}

}  // namespace tilewise::client
