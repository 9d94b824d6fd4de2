// Event dispatch: one mutator, events first, then everything that has become possible.
#include "state.h"

namespace tilewise::worker {
namespace {
constexpr int kMaxRounds = 1'000'000;  // of one step: each launches, ends or frees something
}

void Actions::clear() {
  launches.clear();
  batches.clear();
  to_scheduler.clear();
  transmits.clear();
  receives.clear();
  disarms.clear();
  stores.clear();
  vacated.clear();
  ios.clear();
  relocations.clear();
  slabs.clear();
  pulls.clear();
  probe_receives.clear();
  probe_sends.clear();
  joined.clear();
  given_back.clear();
  lost.clear();
  leave = false;
  broken.reset();
  notes.clear();
}

Core::Core(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Core::~Core() = default;
void Core::step(std::vector<Event>& events, TimeNs now, Actions& actions) {
  impl_->step(events, now, actions);
}
TimeNs Core::next_deadline() const { return impl_->next_deadline(); }
void Core::check_invariants() const { impl_->check_invariants(); }
std::uint64_t Core::digest() const { return impl_->digest(); }
std::string Core::describe() const { return impl_->describe(); }
std::vector<msg::DeviceStats> Core::device_stats() const { return impl_->device_stats(); }

const std::vector<std::string>& Core::families() const { return impl_->families; }

bool Core::has_tasks() const { return impl_->tasks.live() > 0; }
bool Core::is_still() const { return impl_->stage >= Stage::kStill; }

Counters Core::counters() const {
  Counters c = impl_->counts;
  c.copies_live = impl_->copies.live();
  c.tasks_live = impl_->tasks.live();
  c.ops_known = impl_->ops.live();
  c.parked = static_cast<std::int64_t>(impl_->words_parked);
  for (const Impl::Store& store : impl_->stores) c.below_bytes += store.places.bytes_in_use();
  c.relays = impl_->relays_live;
  c.probing = impl_->probing.has_value();
  c.in_flight_bytes = impl_->window.bytes();
  c.wait_their_turn = impl_->window.waiting();
  c.queues_looked_at = impl_->queues_looked_at;
  return c;
}

bool Core::holds(msg::BlockRef block) const {
  const auto a = impl_->array_by_id.find(block.array.value);
  if (a == impl_->array_by_id.end()) return false;
  for (std::uint16_t d = 0; d < impl_->devices.size(); ++d) {
    const Slot c = impl_->find_copy(a->second, block.block, d);
    if (c == kNone) continue;
    const Copy& copy = impl_->copies[c];
    if (Impl::whole(copy) && (copy.has_memory || copy.stored || copy.adopted)) return true;
  }
  return false;
}

Core::Impl::Impl(Options o)
    : options(std::move(o)),
      window(options.in_flight_bytes, options.in_flight_peer_bytes),
      stores{Store(options.spill_bytes), Store(options.pinned_bytes), Store(0)} {
  for (const DeviceSpec& spec : options.devices) {
    TW_CHECK(spec.streams >= 1 && spec.streams <= kMaxStreams,
             "a device needs 1 to kMaxStreams compute streams");
    devices.emplace_back(spec);
    remote[spec.id.value] = {options.self, spec.kind, false, false, 0};
  }
  for (int lane = 0; lane < msg::kLaneCount; ++lane)
    lanes[static_cast<std::size_t>(lane)].lane = msg::Lane(lane);
}

int Core::Impl::local(DeviceId id) const {
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (devices[d].spec.id == id) return static_cast<int>(d);
  }
  return -1;
}

std::vector<DeviceId> Core::Impl::local_ids() const {
  std::vector<DeviceId> ids;
  for (const DeviceState& device : devices) ids.push_back(device.spec.id);
  return ids;
}

Slot Core::Impl::outcome(msg::Outcome why) {
  if (!outcomes.empty() && outcomes.back() == why) return static_cast<Slot>(outcomes.size() - 1);
  outcomes.push_back(std::move(why));
  return static_cast<Slot>(outcomes.size() - 1);
}

// Where messages for the owner of `device` gather during this step. For a device of this worker: the loopback batch,
// handled before the step ends.
msg::PeerBatch& Core::Impl::batch_to(DeviceId device) {
  const auto it = remote.find(device.value);
  TW_CHECK(it != remote.end(), "message to a device nobody announced");
  if (it->second.worker == options.self) return loopback;
  return outgoing[it->second.worker.value];
}

void Core::Impl::drain_loopback() {
  for (int rounds = 0; !loopback.empty(); ++rounds) {
    TW_CHECK(rounds < kMaxRounds, "devices of one worker do not stop talking to each other");
    msg::PeerBatch batch;
    std::swap(batch, loopback);
    batch.recovery = recovery;
    on_batch(options.self, batch);
  }
}

void Core::Impl::step(std::vector<Event>& events, TimeNs at, Actions& actions) {
  now = at;
  actions.clear();
  out = &actions;
  ++step_number;
  if (!events.empty()) stuck_again_at = 0;
  for (Event& event : events) {
    std::visit(
        [&](auto& e) {
          using E = std::decay_t<decltype(e)>;
          if constexpr (std::is_same_v<E, msg::Log>)
            on_log(e);
          else if constexpr (std::is_same_v<E, PeerBatchReceived>)
            on_batch(e.from, e.batch);
          else if constexpr (std::is_same_v<E, PeerReady>) {
            const auto peer = peers.find(e.peer.value);
            if (peer == peers.end()) return;
            peer->second.mapped = e.mapped && options.map_peers;
            peer->second.ready = true;
            if (probing && !probing->begun && probing->peer == e.peer) begin_probe();
          } else if constexpr (std::is_same_v<E, StreamCompleted>)
            on_completed(e);
          else if constexpr (std::is_same_v<E, StepFailed>)
            on_step_failed(e);
          else if constexpr (std::is_same_v<E, TransferDone>)
            on_transfer(e);
          else if constexpr (std::is_same_v<E, SlabReached>)
            on_slab_reached(e);
          else if constexpr (std::is_same_v<E, IoDone>)
            on_io(e);
          else if constexpr (std::is_same_v<E, DiskTaken>)
            disk_taken = e.bytes, tiers_dirty = true;
          else if constexpr (std::is_same_v<E, PartArrived>)
            on_part(e);
          else if constexpr (std::is_same_v<E, Sent>)
            on_sent(e);
          else if constexpr (std::is_same_v<E, NotSent>)
            on_not_sent(e);
          else if constexpr (std::is_same_v<E, msg::LinkProbe>)
            on_link_probe(e);
          else if constexpr (std::is_same_v<E, SlabAdded>) {
            DeviceState& device = devices[e.device];
            device.slab_pending = false;
            if (e.ok) device.lends = e.lent && (device.lends || device.arena.bytes_resident() == 0);
            device.full = !e.ok;
            device.refusal = e.ok ? Error{} : e.why;
            if (e.ok) device.arena.add_slab(e.bytes);
            if (e.ok) device.slab_tries = 0;
            device.last_change = now;
            device.memory_freed = true;
          }
        },
        event);
    drain_loopback();
  }
  events.clear();

  grant_fresh();
  retry_disk();
  retry_slabs();
  release_some();
  // Until nothing moves: expanding may subscribe to a sibling device, which may offer at once.
  int rounds = 0;
  for (bool again = true; again; ++rounds) {
    TW_CHECK(rounds < kMaxRounds, "a step of the worker does not come to rest: " + describe());
    again = false;
    open_window();
    expand_all();
    drain_loopback();
    const std::size_t launched = actions.launches.size();
    launch_alone();
    again |= actions.launches.size() != launched;
    for (std::uint16_t d = 0; d < devices.size(); ++d) {
      DeviceState& device = devices[d];
      const bool round = std::exchange(device.memory_freed, false);
      if (round) {
        device.no_range.fill(INT64_MAX);
        device.shares.begin_round();
        device.short_before = std::exchange(device.short_now, {});
        restore_reserve(d);
        retry_blocked(d);
        try_grants(d);
        decline_ungranted(d);
        device.returns_due = device.spec.spills;
      }
      if (std::exchange(device.returns_due, false)) try_returns(d);
      const std::size_t before = actions.launches.size();
      const std::int64_t tasks_before = counts.tasks_done;
      advance(d);
      if (round) device.shares.end_round([&](SessionId session) { return still_asks(device, session); });
      device.memory_freed |= device.shares.may_go_on();
      again |= actions.launches.size() != before || counts.tasks_done != tasks_before ||
               device.memory_freed || device.returns_due;
    }
    again |= !loopback.empty() || window.has_news();
    drain_loopback();
  }
  for (DeviceState& device : devices) device.memory_freed |= open_cleared(device);
  check_stuck();
  watch_leaving();
  check_probe();
  note_waits();
  report();
  forget_retired();  // some wait for their last report only
  for (auto& [worker, batch] : outgoing) {
    if (batch.empty()) continue;
    batch.recovery = recovery;
    actions.batches.emplace_back(WorkerId{worker}, std::move(batch));
    batch = {};
  }
  out = nullptr;
}

TimeNs Core::Impl::next_deadline() const {
  if (!releasing.empty() || window.has_news()) return now;
  for (const DeviceState& device : devices)
    if (device.memory_freed) return now;  // when the last step had come to rest: by queues that have ended
  TimeNs next = leaving_deadline();
  if (probing) next = std::min(next, probing->until);
  if (has_news()) next = std::min(next, last_report + options.report_ns);
  if (stage == Stage::kWorks) {
    for (const DeviceState& device : devices) {
      if (stuck_task(device) == kNone) continue;  // or something will happen: then is the time to look again
      if (stuck_again_at != 0) {
        next = std::min(next, stuck_again_at);
        continue;
      }
      const bool again = asks_disk_again() || asks_slab_again(device);
      next = std::min(next, last_hope(device) + (again ? options.stuck_ns / 4 : options.stuck_ns));
    }
  }
  return next;
}

}  // namespace tilewise::worker
