// Workers that an operator wants to leave. Each is made still, then everybody is asked what they have (a survey: a recovery in
// which nobody was lost), and what somebody needs and only the leaver has is copied to others. When a survey finds nothing
// left to copy, the leaver is treated as lost in the same step: all that is wanted of it is elsewhere, or was not begun.
// docs/design/drain.md says why nothing is lost.
#include "graphs.h"
#include "handlers.h"
#include "layers.h"
#include "outbox.h"

#include <tilewise/msg/ranges.h>

#include <algorithm>
#include <charconv>

namespace tilewise::scheduler {
namespace {

using Step = Leaving::Step;

constexpr TimeNs kAgainNs = 2 * kSecond;      // until what cannot leave is looked at again
constexpr TimeNs kPatienceNs = 10 * kSecond;  // with copies that do not come: there may be no room for them

void set_draining(State& s, WorkerId worker, bool on) {
  for (const DeviceId device : s.peer(worker).info.devices) s.device(device)->draining = on;
  s.copies_due |= !on;  // it may take copies again
}

bool somebody_else(const State& s, WorkerId leaver) {
  return std::any_of(s.live.begin(), s.live.end(), [&](WorkerId id) {
    const std::vector<DeviceId>& devices = s.peer(id).info.devices;
    return id != leaver && s.is_worker(id) &&
           std::any_of(devices.begin(), devices.end(),
                       [&](DeviceId device) { return !s.device(device)->draining; });
  });
}

std::int64_t block_bytes(const State& s, ArrayId id, std::int64_t block) {
  const ir::SourceArray& source = s.arrays.at(id).source;
  return source.grid.box(ir::unravel(block, source.grid.counts())).volume() *
         static_cast<std::int64_t>(ir::size_of(source.dtype));
}

// Chooses who takes what: contiguous pieces, as large as there is room. Devices of the same class if they have it (what was moved to
// another one is not made again there), else of the same kind, else any. False: there is no room.
bool choose(const State& s, WorkerId leaver, std::vector<MovedBlock>& blocks, std::string& why) {
  std::map<DeviceId, std::int64_t> promised;
  const auto left = [&](const Device& device) {
    const auto taken = promised.find(device.id);
    return std::max<std::int64_t>(0, room_of(device) - (taken == promised.end() ? 0 : taken->second));
  };
  std::vector<std::vector<MovedBlock*>> classes;
  for (MovedBlock& block : blocks) {
    if (block.to) continue;
    const auto found = std::find_if(classes.begin(), classes.end(), [&](const auto& mine) {
      return same_class(s, mine.front()->from, block.from);
    });
    (found == classes.end() ? classes.emplace_back() : *found).push_back(&block);
  }
  for (std::vector<MovedBlock*>& mine : classes) {
    const DeviceId from = mine.front()->from;
    std::int64_t bytes = 0, room = 0;
    for (const MovedBlock* block : mine) bytes += block_bytes(s, block->array, block->block);
    std::vector<const Device*> open;
    const auto open_if = [&](auto&& suits) {
      if (!open.empty() && room >= bytes) return;
      open.clear(), room = 0;
      for (const Device& device : s.devices.all()) {
        if (!device.alive || !s.is_worker(device.peer) || device.peer == leaver || device.draining) continue;
        if (suits(device)) open.push_back(&device), room += left(device);
      }
    };
    open_if([&](const Device& device) { return same_class(s, device.id, from); });
    open_if([&](const Device& device) { return device.kind == s.device(from)->kind; });
    open_if([](const Device&) { return true; });
    if (room < bytes) {
      why = "it holds " + std::to_string(bytes) + " bytes that are needed, and others have room for " +
            std::to_string(room);
      return false;
    }
    // Results of one task stay together: blocks of one number follow each other.
    std::stable_sort(mine.begin(), mine.end(),
                     [](const MovedBlock* a, const MovedBlock* b) { return a->block < b->block; });
    std::size_t at = 0;
    std::int64_t given = 0, limit = 0;
    std::vector<std::int64_t> shares;
    for (const Device* device : open)
      shares.push_back(static_cast<std::int64_t>(static_cast<__int128>(bytes) * left(*device) /
                                                 std::max<std::int64_t>(1, room)));
    limit = shares[0];
    std::int64_t last = -1;
    for (MovedBlock* block : mine) {
      while (block->block != last && given >= limit && at + 1 < open.size()) limit += shares[++at];
      last = block->block;
      block->to = open[at]->id;
      const std::int64_t size = block_bytes(s, block->array, block->block);
      given += size;
      promised[block->to] += size;
    }
  }
  return true;
}

void next_round(State& s, Leaving& leaving) {
  leaving.round = s.next_nonce++;
  leaving.news_at = s.now;
  leaving.waiting.clear();
  leaving.why.clear();
}

void begin(State& s, WorkerId leaver, Leaving& leaving) {
  next_round(s, leaving);
  leaving.step = Step::kStopping;
  leaving.waiting.emplace(leaver, 0);
  log_to_workers(s, msg::Drain{leaver, msg::DrainOrder::kStop, leaving.round, {}});
}

void undone(State& s, WorkerId leaver, Leaving& leaving) {
  log_to(s, leaver, msg::Drain{leaver, msg::DrainOrder::kGoOn, leaving.round, {}});
  if (leaving.stays) {
    set_draining(s, leaver, false);
    s.leaving.erase(leaver);
    return;
  }
  leaving.step = Step::kWaiting;
  leaving.again_at = s.now + kAgainNs;
}

// It goes on for now, or for good. First those who take copies stop, so that nothing is on its way when it does.
void undo(State& s, WorkerId leaver, Leaving& leaving, std::string why) {
  next_round(s, leaving);
  leaving.step = Step::kUndoing;
  leaving.why = std::move(why);
  for (const WorkerId id : s.live) {
    if (id == leaver || !s.is_worker(id)) continue;
    log_to(s, id, msg::Drain{leaver, msg::DrainOrder::kGoOn, leaving.round, {}});
    leaving.waiting.emplace(id, 0);
  }
  if (leaving.waiting.empty()) undone(s, leaver, leaving);
}

void move(State& s, WorkerId leaver, Leaving& leaving, const std::vector<MovedBlock>& blocks) {
  next_round(s, leaving);
  leaving.step = Step::kMoving;
  std::map<WorkerId, std::map<std::tuple<ArrayId, DeviceId, DeviceId>, std::vector<std::int64_t>>> by_taker;
  for (const MovedBlock& block : blocks)
    by_taker[s.device(block.to)->peer][{block.array, block.from, block.to}].push_back(block.block);
  for (auto& [taker, arrays] : by_taker) {
    msg::Drain drain{leaver, msg::DrainOrder::kMove, leaving.round, {}};
    std::int64_t count = 0;
    for (auto& [key, moved] : arrays) {
      std::sort(moved.begin(), moved.end());
      msg::Drain::Keep keep{std::get<0>(key), std::get<1>(key), std::get<2>(key), {}};
      for (const std::int64_t block : moved) msg::append(keep.blocks, block);
      count += static_cast<std::int64_t>(moved.size());
      drain.keeps.push_back(std::move(keep));
    }
    log_to(s, taker, std::move(drain));
    leaving.waiting.emplace(taker, count);
  }
}

// Nothing that anybody needs is there only: from now on it is one that was lost. It learns that nobody needs it, and goes when
// clients have what it is sending them.
void depart(State& s, WorkerId leaver) {
  Recovery& r = s.recovery;
  s.leaving.erase(leaver);
  log_to(s, leaver, msg::Drain{leaver, msg::DrainOrder::kLeave, 0, {}});
  let_go(s, leaver);
  r.lost.insert(leaver);
  ++r.version;
  const msg::PeerLost entry{leaver, r.version, pinned_ops(s)};
  log_to_workers(s, entry);
  settle_recovery(s, plan_recovery(s));
}

}  // namespace

void wish_drain(State& s, WorkerId worker, bool leave) {
  const auto known = s.leaving.find(worker);
  if (leave) {
    set_draining(s, worker, true);
    if (known == s.leaving.end())
      s.leaving[worker].again_at = s.now;
    else
      known->second.stays = false;
    return;
  }
  if (known == s.leaving.end()) return;
  Leaving& leaving = known->second;
  if (leaving.step == Step::kWaiting) {
    set_draining(s, worker, false);
    s.leaving.erase(known);
    return;
  }
  leaving.stays = true;
  if (leaving.step == Step::kAsked || leaving.step == Step::kUndoing) return;  // the survey ends first
  undo(s, worker, leaving, {});
}

void on_operator_drain(State& s, const OperatorDrain& drain) {
  const Peer* known = s.find_worker(drain.worker);
  if (known != nullptr && known->alive) wish_drain(s, drain.worker, drain.on);
}

void on_drained(State& s, const Peer& worker, const msg::Drained& report) {
  const auto found = s.leaving.find(report.peer);
  if (found == s.leaving.end() || found->second.round != report.round) return;
  Leaving& leaving = found->second;
  const auto waiting = leaving.waiting.find(worker.info.id);
  if (waiting == leaving.waiting.end() || report.left < 0) return;
  if (report.left != waiting->second) leaving.news_at = s.now;
  waiting->second = report.left;
  if (report.left > 0) return;
  leaving.waiting.erase(waiting);
  if (!leaving.waiting.empty()) return;
  if (leaving.step == Step::kStopping || leaving.step == Step::kMoving)
    leaving.step = Step::kReady;
  else if (leaving.step == Step::kUndoing)
    undone(s, report.peer, leaving);
}

void forget_drains(State& s, WorkerId lost) {
  if (s.recovery.leaver == lost) s.recovery.leaver = {};
  s.leaving.erase(lost);
  for (auto it = s.leaving.begin(); it != s.leaving.end();) {
    const auto at = it++;
    if (at->second.waiting.erase(lost) == 0 || !at->second.waiting.empty()) continue;
    if (at->second.step == Step::kMoving) at->second.step = Step::kReady;
    if (at->second.step == Step::kUndoing) undone(s, at->first, at->second);
  }
}

void check_drains(State& s) {
  const auto under_way = std::find_if(s.leaving.begin(), s.leaving.end(),
                                      [](const auto& entry) { return entry.second.step != Step::kWaiting; });
  if (under_way == s.leaving.end()) {
    // Whoever has waited longest.
    auto next = s.leaving.end();
    for (auto it = s.leaving.begin(); it != s.leaving.end(); ++it) {
      if (it->second.again_at <= s.now &&
          (next == s.leaving.end() || it->second.again_at < next->second.again_at))
        next = it;
    }
    if (next == s.leaving.end()) return;
    if (somebody_else(s, next->first)) return begin(s, next->first, next->second);
    next->second.why = "no other worker takes work";
    next->second.again_at = s.now + kAgainNs;
    return;
  }
  const auto& [leaver, leaving] = *under_way;
  Leaving& l = under_way->second;
  const bool may_end =
      leaving.step == Step::kStopping || leaving.step == Step::kReady || leaving.step == Step::kMoving;
  if (!may_end) return;
  if (!somebody_else(s, leaver)) return undo(s, leaver, l, "no other worker takes work");
  if (leaving.step == Step::kReady && !s.recovery.pending) {
    l.step = Step::kAsked;
    begin_survey(s, leaver);
  } else if (leaving.step == Step::kMoving && s.now - leaving.news_at >= kPatienceNs) {
    std::int64_t left = 0;
    for (const auto& [worker, blocks] : leaving.waiting) left += blocks;
    undo(s, leaver, l, std::to_string(left) + " blocks could not be copied in time: others may have no room");
  }
}

void conclude_survey(State& s) {
  const WorkerId leaver = s.recovery.leaver;
  Leaving& leaving = s.leaving.at(leaver);
  if (leaving.stays || !somebody_else(s, leaver)) {
    settle_recovery(s, {});
    return undo(s, leaver, leaving, leaving.stays ? "" : "no other worker takes work");
  }
  Departure departure = plan_departure(s, leaver);
  const bool copied = std::all_of(departure.blocks.begin(), departure.blocks.end(),
                                  [](const MovedBlock& block) { return bool(block.to); });
  std::string why = departure.why;
  if (why.empty() && copied) return depart(s, leaver);
  if (why.empty() && choose(s, leaver, departure.blocks, why))
    move(s, leaver, leaving, departure.blocks);
  else
    undo(s, leaver, leaving, why);
  settle_recovery(s, {});
}

TimeNs drains_deadline(const State& s) {
  TimeNs next = kNever;
  bool under_way = false;
  for (const auto& [worker, leaving] : s.leaving) {
    if (leaving.step == Step::kMoving) next = std::min(next, leaving.news_at + kPatienceNs);
    under_way = under_way || leaving.step != Step::kWaiting;
  }
  for (const auto& [worker, leaving] : s.leaving) {
    if (!under_way) next = std::min(next, leaving.again_at);
  }
  return next;
}

msg::DrainReply drain_status(const State& s, const Peer& worker) {
  msg::DrainReply reply;
  reply.worker = worker.info.id;
  reply.name = worker.info.name;
  const auto found = s.leaving.find(worker.info.id);
  if (!worker.alive) {
    reply.state = worker.left ? msg::DrainState::kGone : msg::DrainState::kLost;
    return reply;
  }
  for (const DeviceId device : worker.info.devices) {
    const msg::DeviceStats& stats = s.device(device)->stats;
    reply.bytes += stats.bytes_used + stats.pinned_bytes + stats.spilled_bytes;
  }
  if (found == s.leaving.end()) return reply;
  const Leaving& leaving = found->second;
  reply.why = leaving.why;
  switch (leaving.step) {
    case Step::kWaiting:
    case Step::kUndoing: reply.state = msg::DrainState::kWaiting; break;
    case Step::kStopping: reply.state = msg::DrainState::kStopping; break;
    case Step::kReady:
    case Step::kAsked:
    case Step::kMoving: reply.state = msg::DrainState::kMoving; break;
  }
  if (leaving.step == Step::kMoving)
    for (const auto& [taker, blocks] : leaving.waiting) reply.blocks_left += blocks;
  std::size_t budget = ViewLimits::kScannedOps;
  s.ops.for_each([&](const OpRecord& op) {
    if (budget == 0 || op.finished) return;
    --budget;
    for (const OpShare& share : op.shares)
      if (s.device(share.device)->peer == worker.info.id) reply.tasks_left += share.owned - share.completed;
  });
  return reply;
}

void on_drain_request(State& s, Peer& asker, const msg::DrainRequest& request) {
  msg::DrainReply reply;
  const Peer *found = nullptr, *numbered = nullptr;
  int alike = 0;
  const std::string& text = request.worker;
  const bool w = !text.empty() && text[0] == 'w';
  std::uint32_t number = 0;
  const auto [end, bad] = std::from_chars(text.data() + w, text.data() + text.size(), number);
  const bool is_number = bad == std::errc{} && end == text.data() + text.size();
  if (is_number) numbered = s.find_worker(WorkerId{number});
  for (const Peer& peer : s.peers.all()) {
    if (numbered != nullptr && !w) break;  // a number alone is one
    if (peer.info.role != msg::Role::kWorker || peer.info.name != text) continue;
    alike += peer.alive;
    if (found == nullptr || peer.alive || !found->alive) found = &peer;
  }
  // Who is called as another one is numbered may be meant as well. The dead do not count beside the living.
  if (numbered != nullptr && numbered != found && (found == nullptr || numbered->alive >= found->alive)) {
    alike += found != nullptr && found->alive && numbered->alive;
    found = numbered;
  }
  if (found == nullptr)
    reply.outcome = {Errc::kNotFound, "there is no worker '" + text.substr(0, limits::kMaxNameBytes) + "'"};
  else if (alike > 1)
    reply.outcome = {Errc::kInvalidArgument, std::to_string(alike) + " workers are called or numbered '" +
                                                 text + "'; say which by its number alone, as in " +
                                                 std::to_string(found->info.id.value)};
  if (!reply.outcome.ok()) return send(s, asker.conn, std::move(reply));
  if (found->alive && request.wish != msg::DrainWish::kAsk)
    wish_drain(s, found->info.id, request.wish == msg::DrainWish::kLeave);
  send(s, asker.conn, drain_status(s, *found));
}

}  // namespace tilewise::scheduler
