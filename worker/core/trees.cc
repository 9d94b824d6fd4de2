// A block that several devices of other hosts read crosses each host boundary once: of each host one device, its *leader*, gets
// it from the owner, or from the leader of a host that has it, and passes it on. See docs/design/trees.md.
//
// Lifetime stays with the owner, where every reader has its claims as ever; only bytes take the tree. A device that is to wait
// for a leader's copy waits for an answer that does not depend on anybody's memory (a leader takes memory at once or declines)
// and then for one transfer, which has a deadline: so D6 holds. Whatever goes wrong on the way, the owner still has the block.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

using State = Leader::State;

std::size_t number_of(const Tree& tree, std::uint32_t host) {
  const auto found = std::find_if(tree.leaders.begin(), tree.leaders.end(),
                                  [&](const Leader& leader) { return leader.host == host; });
  return static_cast<std::size_t>(found - tree.leaders.begin());
}

Leader* with_device(Tree& tree, DeviceId device) {
  const auto found = std::find_if(tree.leaders.begin(), tree.leaders.end(),
                                  [&](const Leader& leader) { return leader.device == device; });
  return found == tree.leaders.end() ? nullptr : &*found;
}

bool pending(const Leader& leader) {
  return leader.state == State::kWaiting || leader.state == State::kAsked;
}

}  // namespace

// Numbers hosts as they are met; this one is 0.
std::uint32_t Core::Impl::number_of_host(const std::string& id) {
  if (id.empty()) return ++last_host;  // it shares nothing with anybody
  if (id == options.host) return 0;
  const auto [it, fresh] = hosts.try_emplace(id, last_host + 1);
  last_host += fresh;
  return it->second;
}

bool Core::Impl::is_far(DeviceId device) const {
  const auto it = remote.find(device.value);
  return it != remote.end() && !it->second.client && !it->second.lost && it->second.host != 0;
}

void Core::Impl::say(DeviceId from, DeviceId to, const msg::BlockRef& block, msg::RelayWord word,
                     std::uint64_t transfer) {
  const auto it = remote.find(to.value);
  if (it == remote.end() || it->second.lost) return;
  batch_to(to).relays.push_back({block, from, to, word, transfer});
}

// ---- the owner -----------------------------------------------------------------------------------------------------

// To how many other hosts each sends a block. One that takes long is passed on while it comes, so a chain takes hardly longer than its
// first link, and a second branch would take as long again; of a short one what counts is how many stand one behind the other.
std::size_t Core::Impl::fan_out_of(const Copy& copy) const {
  return copy.bytes >= options.chain_bytes ? 1 : 2;
}

// Whether leader number `i`, once it has the block, has somebody to give it to.
bool Core::Impl::passes_on(const Copy& copy, std::size_t i) const {
  const Tree& tree = trees[copy.tree];
  const std::size_t fan_out = fan_out_of(copy);
  boost::container::small_vector<std::uint32_t, 8> to_come;  // hosts without a leader yet
  for (Slot u = copy.uses; u != kNone; u = uses[u].next) {
    if (uses[u].device == tree.leaders[i].device || !is_far(uses[u].device)) continue;
    const std::uint32_t host = remote.at(uses[u].device.value).host;
    const std::size_t theirs = number_of(tree, host);
    if (theirs == i) return true;
    if (theirs == tree.leaders.size()) {
      if (std::find(to_come.begin(), to_come.end(), host) == to_come.end()) to_come.push_back(host);
    } else if (Tree::parent_of(theirs, fan_out) == i && tree.leaders[theirs].state != State::kHas) {
      return true;
    }
  }
  const std::size_t next = tree.leaders.size(), end = next + to_come.size();
  return std::max(next, fan_out * (i + 1)) <
         std::min(end, fan_out * (i + 2));  // one of them will be its child
}

// Where the use's device gets the block from; it becomes its host's leader where there is none. Only who waits for its first
// answer waits for a leader: who asks again was not served by one, and who has not asked is only to say that it has done.
Core::Impl::Route Core::Impl::route(Slot slot, const Use& use) {
  Copy& copy = copies[slot];
  if (copy.bytes <= options.tree_bytes || copy.kind != CopyKind::kProduced || !is_far(use.device)) return {};
  if (copy.tree == kNone) {
    bool others = false;
    for (Slot u = copy.uses; u != kNone && !others; u = uses[u].next)
      others = uses[u].device != use.device && is_far(uses[u].device);
    if (!others) return {};
    copy.tree = trees.add();
  }
  Tree& tree = trees[copy.tree];
  const std::uint32_t host = remote.at(use.device.value).host;
  const std::size_t i = number_of(tree, host);
  if (i == tree.leaders.size()) tree.leaders.push_back({{}, host, State::kOut});
  const bool may_wait = use.subscribed && !use.answered;
  Leader& mine = tree.leaders[i];
  if (mine.device != use.device) {
    if (mine.state == State::kHas) return {.via = mine.device};
    if (pending(mine) && may_wait) return {.wait = true};
    mine = {use.device, host, State::kOut};
  }
  const std::optional<std::size_t> above = may_wait ? Tree::parent_of(i, fan_out_of(copy)) : std::nullopt;
  const Leader* parent = above ? &tree.leaders[*above] : nullptr;
  if (parent != nullptr && pending(*parent)) {
    mine.state = State::kWaiting;
    return {.wait = true};
  }
  Route route;
  if (parent != nullptr && parent->state == State::kHas) route.via = parent->device;
  route.relays = passes_on(copy, i);
  if (route.relays)
    mine.state = State::kAsked;
  else
    dismiss(copy, mine);
  return route;
}

// Nobody is sent there any more.
void Core::Impl::dismiss(const Copy& copy, Leader& leader) {
  if (std::exchange(leader.state, State::kOut) == State::kHas)
    say(devices[copy.device].spec.id, leader.device, {arrays[copy.array].id, copy.block},
        msg::RelayWord::kOver);
}

void Core::Impl::end_tree(Copy& copy) {
  if (copy.tree == kNone) return;
  for (Leader& leader : trees[copy.tree].leaders) dismiss(copy, leader);
  trees[copy.tree] = {};
  trees.drop(std::exchange(copy.tree, kNone));
}

// A claim of the device has ended.
void Core::Impl::claim_dropped(Slot slot, DeviceId device) {
  Copy& copy = copies[slot];
  const auto it = remote.find(device.value);
  if (copy.tree == kNone || it == remote.end()) return;
  Tree& tree = trees[copy.tree];
  const std::size_t i = number_of(tree, it->second.host);
  bool moved = false;
  if (i < tree.leaders.size() && tree.leaders[i].device == device &&
      tree.leaders[i].state == State::kWaiting) {
    bool wanted = false;
    for (Slot u = copy.uses; u != kNone; u = uses[u].next)
      wanted |= uses[u].device == device && uses[u].subscribed;
    if (!wanted) tree.leaders[i].state = State::kOut, moved = true;
  }
  for (std::size_t j = 0; j < tree.leaders.size(); ++j) {
    const bool concerned = i == tree.leaders.size() || j == i || j == Tree::parent_of(i, fan_out_of(copy));
    if (concerned && tree.leaders[j].state == State::kHas && !passes_on(copy, j))
      dismiss(copy, tree.leaders[j]);
  }
  if (moved && !it->second.lost) offer_wanted(slot);
}

// The leader's process is gone.
void Core::Impl::leaders_lost(Slot slot, const std::vector<DeviceId>& dead) {
  Copy& copy = copies[slot];
  if (copy.tree == kNone) return;
  for (Leader& leader : trees[copy.tree].leaders)
    if (std::find(dead.begin(), dead.end(), leader.device) != dead.end()) leader.state = State::kOut;
  if (whole(copy) || copy.state == CopyState::kFailed) offer_wanted(slot);
}

void Core::Impl::on_relay(const msg::Relay& m) {
  const int d = local(m.to);
  const auto array = array_by_id.find(m.block.array.value);
  const Slot slot = d < 0 || array == array_by_id.end() || !valid_block(m.block, array->second)
                        ? kNone
                        : find_copy(array->second, m.block.block, static_cast<std::uint16_t>(d));
  Leader* leader = nullptr;
  if (slot != kNone && copies[slot].tree != kNone) leader = with_device(trees[copies[slot].tree], m.from);
  switch (m.word) {
    case msg::RelayWord::kHas: {
      if (d < 0) return void(++counts.stale);
      if (leader == nullptr || leader->state == State::kOut || leader->state == State::kWaiting) {
        ++counts.stale;
        return say(m.to, m.from, m.block, msg::RelayWord::kOver);
      }
      if (std::exchange(leader->state, State::kHas) == State::kHas) return void(++counts.stale);
      auto& leaders = trees[copies[slot].tree].leaders;
      const auto i = static_cast<std::size_t>(leader - leaders.data());
      if (!passes_on(copies[slot], i)) dismiss(copies[slot], *leader);
      // It may have been the last one that its own leader was kept for.
      const auto above = Tree::parent_of(i, fan_out_of(copies[slot]));
      if (above && leaders[*above].state == State::kHas && !passes_on(copies[slot], *above))
        dismiss(copies[slot], leaders[*above]);
      return offer_wanted(slot);
    }
    case msg::RelayWord::kDeclined:
      if (leader == nullptr || (leader->state != State::kAsked && leader->state != State::kHas))
        return void(++counts.stale);
      ++counts.declined;
      dismiss(copies[slot], *leader);
      return offer_wanted(slot);
    case msg::RelayWord::kOver:
      // Before it has said `kHas` this is about an earlier copy.
      if (slot == kNone || !has_some(copies[slot]) || copies[slot].source != m.from || !copies[slot].relays)
        return void(++counts.stale);
      set_relays(slot, false);
      return maybe_release(slot);
    case msg::RelayWord::kMissing: {
      const auto sender = remote.find(m.from.value);
      if (!transfers.contains(m.transfer) && !abandoned.contains(m.transfer)) return void(++counts.stale);
      ++counts.missing;
      out->disarms.push_back({sender->second.worker, m.transfer});
      return;
    }
  }
}

// ---- who passes it on ----------------------------------------------------------------------------------------------

// Every offer that asks for it is answered: now, or when the bytes are here or will not come. Memory is not waited for, but for a
// slab that the arena has just asked for.
void Core::Impl::answer_relays(const msg::Offer& m) {
  const int d = local(m.to);
  const auto array = array_by_id.find(m.block.array.value);
  const Slot slot = d < 0 || array == array_by_id.end() || !valid_block(m.block, array->second)
                        ? kNone
                        : find_copy(array->second, m.block.block, static_cast<std::uint16_t>(d));
  const bool taken = slot != kNone && copies[slot].relays && copies[slot].source == m.from;
  if (taken && !has_some(copies[slot])) return;
  say(m.to, m.from, m.block, taken ? msg::RelayWord::kHas : msg::RelayWord::kDeclined);
}

// The first part of a block: others may have it from here from now on, part by part.
void Core::Impl::on_part(const PartArrived& event) {
  const auto it = transfers.find(event.transfer);
  if (it == transfers.end()) return void(++counts.stale);
  Copy& copy = copies[it->second];
  if (!copy.in_parts || std::exchange(copy.begun, true)) return void(++counts.stale);
  if (copy.relays)
    say(devices[copy.device].spec.id, copy.source, {arrays[copy.array].id, copy.block}, msg::RelayWord::kHas);
}

bool Core::Impl::is_followed(std::uint64_t transfer) const {
  return std::any_of(relaying.begin(), relaying.end(),
                     [transfer](const auto& relay) { return relay.second.follows == transfer; });
}

// Nothing comes any more. Its memory is free when nobody is sent it any more, either.
void Core::Impl::abandoned_over(std::uint64_t transfer) {
  const auto gone = abandoned.find(transfer);
  if (const WorkerId peer = std::exchange(gone->second.in_window, {})) window.end(peer, gone->second.bytes);
  gone->second.over = is_followed(transfer);
  if (gone->second.over) return;
  devices[gone->second.device].arena.free(gone->second.extent, alloc::Fence{});
  devices[gone->second.device].memory_freed = true;
  abandoned.erase(gone);
}

// Of what others are sent.
bool Core::Impl::has_some(const Copy& copy) {
  return whole(copy) || (copy.state == CopyState::kReceiving && copy.begun);
}

// The copy passes nothing on, or no longer.
void Core::Impl::stop_relaying(Slot slot) {
  const Copy& copy = copies[slot];
  if (!copy.relays) return;
  set_relays(slot, false);
  say(devices[copy.device].spec.id, copy.source, {arrays[copy.array].id, copy.block},
      msg::RelayWord::kDeclined);
}

// The slab has come, or will not come: what got no memory from it passes nothing on.
void Core::Impl::decline_ungranted(std::uint16_t d) {
  if (devices[d].slab_pending) return;
  for (const Ungranted& entry : devices[d].ungranted) stop_relaying(entry.copy);
}

void Core::Impl::set_relays(Slot slot, bool relays) {
  relays_live += relays - copies[slot].relays;
  copies[slot].relays = relays;
}

// Everybody has finished with the array: what an owner forgot to end ends here.
void Core::Impl::end_relays(Slot array) {
  for (Slot c = arrays[array].copies; c != kNone;) {
    const Slot next = copies[c].next;
    if (copies[c].relays) {
      set_relays(c, false);
      maybe_release(c);
    }
    c = next;
  }
}

// Somebody has memory for what is to come from here.
void Core::Impl::on_relayed_grant(const msg::Grant& m) {
  const int d = local(m.via);
  const auto array = array_by_id.find(m.block.array.value);
  const auto to = remote.find(m.to.value);
  if (d < 0 || to == remote.end()) return void(++counts.stale);
  const std::pair key(to->second.worker, m.transfer);
  if (relaying.contains(key)) return void(++counts.stale);
  const Slot slot = array == array_by_id.end() || !valid_block(m.block, array->second)
                        ? kNone
                        : find_copy(array->second, m.block.block, static_cast<std::uint16_t>(d));
  const bool comes =
      slot != kNone && copies[slot].state == CopyState::kReceiving && copies[slot].begun && m.in_parts;
  if (slot == kNone || !(comes || copies[slot].state == CopyState::kSealed) || !copies[slot].has_memory)
    return say(m.via, m.to, m.block, msg::RelayWord::kMissing, m.transfer);
  Copy& copy = copies[slot];
  relaying[key] = {slot, comes ? copy.transfer : 0};
  ++copy.relayed;
  ++counts.relayed;
  refix(slot);
  out->transmits.push_back({key.first, m.transfer, copy.at, copy.bytes, -1, Tier::kDisk, true, m.block, m.via,
                            m.to, m.in_parts, comes ? copy.transfer : 0});
}

void Core::Impl::on_sent(const Sent& event) {
  const auto it = relaying.find({event.to, event.transfer});
  if (it == relaying.end()) return void(++counts.stale);
  const auto [slot, follows] = it->second;
  relaying.erase(it);
  if (const auto gone = abandoned.find(follows); gone != abandoned.end() && gone->second.over)
    abandoned_over(follows);
  --copies[slot].relayed;
  refix(slot);
  DeviceState& device = devices[copies[slot].device];
  device.memory_freed = true;  // it may be evicted again
  device.last_change = now;
  maybe_release(slot);
}

// ---- who gets it from there ----------------------------------------------------------------------------------------

DeviceId Core::Impl::sender_of(const Copy& copy) const { return copy.via ? copy.via : copy.source; }

// Whoever was to send the offered block will not: the owner is to.
void Core::Impl::turn_to_owner(Slot slot) {
  Copy& copy = copies[slot];
  if (copy.state != CopyState::kOffered) return;
  stop_relaying(slot);
  const DeviceId via = std::exchange(copy.via, {});
  if (copy.uses == kNone) return;
  end_offer(slot);
  copy.state = CopyState::kExpected;
  subscribe(slot, uses[copy.uses].op, via);
}

}  // namespace tilewise::worker
