// The clock, the scheduler's side, and the life of a world. Workers: world_workers.cc; clients: world_clients.cc.
#include "last_words.h"
#include "world_parts.h"

#include <sstream>

namespace tilewise::sim {

Knobs Knobs::from_seed(std::uint64_t seed) {
  Prng p(seed * 0x9E37 + 7);
  Knobs k;
  k.seed = seed;
  k.workers = static_cast<int>(p.between(1, 4));
  k.devices_each = static_cast<int>(p.between(1, 3));
  k.streams = static_cast<int>(p.between(1, 2));
  k.clients = static_cast<int>(p.between(1, 2));
  k.requests = static_cast<int>(p.between(1, 5));
  k.map_peers = p.chance(0.5);
  k.duplicate = p.chance(0.3) ? 0 : p.uniform() * 0.5;
  k.max_delay_ns = p.chance(0.3) ? 1'000 : p.between(10'000, 5'000'000);
  k.window = static_cast<int>(p.between(2, 64));
  if (p.chance(0.25)) k.fail_step = 0.02;
  if (p.chance(0.25)) k.cancel = 0.3;
  if (p.chance(0.2) && k.workers > 1) k.kill_worker = 0.5;
  // Most worlds have plenty of memory; some are so small that the order of grants matters.
  k.memory_bytes = p.chance(0.3) ? p.between(16, 64) * 1024 : 4 << 20;
  k.slab_bytes = std::min<std::int64_t>(k.memory_bytes, p.chance(0.5) ? 32 * 1024 : 1 << 20);
  if (p.chance(0.7)) k.lazy_ns = p.between(0, 10) * k.max_delay_ns;
  if (p.chance(0.5)) k.releases_a_step = static_cast<int>(p.between(1, 6));
  k.add_hosts(seed);
  k.add_delays(seed);
  k.add_windows(seed);
  k.add_turns(seed);
  Prng gpus(seed * 0x6B05 + 29);
  if (gpus.chance(0.4)) k.gpu_every = static_cast<int>(gpus.between(1, 2));
  if (gpus.chance(0.2)) k.classes = 2;
  return k;
}

Knobs Knobs::storm(std::uint64_t seed) {
  Knobs k = from_seed(seed);
  Prng p(seed * 0x5EED + 3);
  k.fail_step = k.cancel = k.kill_worker = 0;
  k.workers = static_cast<int>(p.between(2, 4));
  k.requests = static_cast<int>(p.between(2, 6));
  if (p.chance(0.9)) k.memory_bytes = 4 << 20;
  k.kills = static_cast<int>(p.between(1, p.chance(0.3) ? 6 : 2));
  k.respawn = p.chance(0.5) ? 1 : p.uniform();
  k.kill_span_ns = p.between(2, 200) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  k.recovery_wait_ns = p.chance(0.5) ? 30 * kSecond : k.max_delay_ns;
  k.pairs = p.chance(0.4) ? 0.5 : 0;
  return k;
}

Knobs Knobs::spilling(std::uint64_t seed) {
  Knobs k = from_seed(seed);
  Prng p(seed * 0xD15C + 5);
  if (p.chance(0.7)) k.fail_step = k.cancel = k.kill_worker = 0;
  k.workers = static_cast<int>(p.between(1, 3));
  k.devices_each = static_cast<int>(p.between(1, 2));
  k.requests = static_cast<int>(p.between(3, 10));
  k.memory_bytes = (p.chance(0.5) ? p.between(12, 40) : 128) * 1024;
  k.slab_bytes = std::min<std::int64_t>(k.memory_bytes, p.chance(0.3) ? 32 * 1024 : 1 << 20);
  k.spill_bytes = p.chance(0.7) ? 16 << 20 : p.between(4, 200) * 1024;
  k.disk_ns = p.chance(0.5) ? 20'000 : p.between(1, 20) * kMillisecond;
  k.pairs = 0.25;
  if (p.chance(0.2)) k.disk_full = p.uniform() * 0.5;
  if (p.chance(0.15)) k.disk_fails = 0.05 + p.uniform() * 0.2;
  if (p.chance(0.3) && k.workers > 1) {
    k.kills = static_cast<int>(p.between(1, 2));
    k.respawn = 1;
    k.kill_span_ns = p.between(2, 200) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  }
  return k;
}

Knobs Knobs::pinning(std::uint64_t seed) {
  Knobs k = spilling(seed);
  Prng p(seed * 0x9199 + 17);
  k.pinned_bytes = p.chance(0.4) ? 16 << 20 : p.between(4, 100) * 1024;
  k.pin_every = p.chance(0.7) ? 1 : 2;
  if (p.chance(0.4)) k.spill_bytes = 0, k.disk_full = 0;
  k.gpus = p.chance(0.5);
  k.gpu_every = 0;
  if (p.chance(0.25)) k.disk_fails = std::max(k.disk_fails, 0.02 + p.uniform() * 0.2);
  if (k.spill_bytes == 0 && p.chance(0.3)) k.pinned_bytes = p.between(4, 12) * 1024;  // not enough for all
  if (p.chance(0.5)) k.add_neighbours(p);
  return k;
}

void Knobs::add_neighbours(Prng& p) {
  neighbours = true;
  uneven = p.chance(0.5);
  if (p.chance(0.7)) devices_each = static_cast<int>(p.between(2, 4));
}

Knobs Knobs::crowding(std::uint64_t seed) {
  Knobs k = spilling(seed);
  Prng p(seed * 0xC20D + 19);
  k.workers = static_cast<int>(p.between(1, 2));
  k.clients = static_cast<int>(p.between(2, 5));
  k.requests = static_cast<int>(p.between(2, 6));
  k.memory_bytes = p.between(16, 96) * 1024;
  k.slab_bytes = std::min<std::int64_t>(k.slab_bytes, k.memory_bytes);
  if (p.chance(0.3)) k.spill_bytes = 0, k.disk_full = k.disk_fails = k.pairs = 0;
  if (k.spill_bytes > 0 && p.chance(0.3)) k.add_neighbours(p);
  return k;
}

Knobs Knobs::draining(std::uint64_t seed) {
  Knobs k = seed % 3 == 0 ? spilling(seed) : storm(seed);
  Prng p(seed * 0xD7A1 + 11);
  k.fail_step = k.cancel = k.kill_worker = k.disk_full = k.disk_fails = 0;
  k.workers = static_cast<int>(p.between(2, 4));
  k.drains = static_cast<int>(p.between(1, 3));
  k.undo = p.chance(0.5) ? 0 : p.uniform();
  k.kills = p.chance(0.7) ? 0 : 1;
  k.respawn = p.uniform();
  k.scheduler_crashes = p.chance(0.8) ? 0 : 1;
  k.kill_span_ns = p.between(2, 200) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  if (k.spill_bytes > 0 && p.chance(0.4)) k.add_neighbours(p);
  return k;
}

std::string Knobs::describe() const {
  std::ostringstream s;
  s << "seed " << seed << ": " << workers << " workers x " << devices_each << " devices x " << streams
    << " streams, " << clients << " clients x " << requests << " requests, " << memory_bytes
    << " bytes a device, " << (map_peers ? "mapped" : "copied") << ", duplicates " << duplicate
    << ", delay <= " << max_delay_ns << " ns, lazy " << lazy_ns << " ns, window " << window << ", releases "
    << releases_a_step << ", failing steps " << fail_step << " unheard for " << unheard_ns << " ns"
    << ", cancels " << cancel << ", kill " << kill_worker << ", kills " << kills << " in " << kill_span_ns
    << " ns, respawn " << respawn << ", drains " << drains << ", undone " << undo << ", scheduler crashes "
    << scheduler_crashes << ", checkpoints " << checkpoint << ", breaks " << breaks << ", vanish " << vanish
    << ", lease " << lease_ns << ", copies " << copies << ", past " << recompute_ops << ", poison " << poison
    << ", mute " << mute << ", spill " << spill_bytes << " on disk, " << pinned_bytes << " pinned of every "
    << pin_every << (neighbours ? ", neighbours" : "") << (uneven ? ", uneven" : "") << ", a GPU of every "
    << gpu_every << ", classes " << classes << (gpus ? ". GPU, in " : ". device, in ") << disk_ns
    << " ns, full " << disk_full << ", failing " << disk_fails << ", clogs " << clogs << ", relinks "
    << relinks << ", loss " << loss << ", slow links " << slow_links << ", slow devices " << slow_devices
    << ", failing slabs " << slab_fails << ", hosts " << hosts << ", trees from " << tree_bytes << " bytes"
    << ", in flight " << in_flight << ", of a peer " << in_flight_peer << ", not sent " << send_fails
    << ", turns of up to " << turn_ns << " ns"
    << ", partitions " << partitions << ", cut off " << zombies << ", silence " << silence_ns
    << " ns, announces " << announces << ", moves " << moves << " every " << moves_every_ns << " ns, late "
    << late << ", silent for " << hush_ns << " ns, pauses " << pauses << ", one-way losses " << one_ways
    << ", closes " << closes << ", acts " << acts << ", held ranges " << held_ranges << ", allocation "
    << alloc_fails_at << (alloc_lasts ? " and all after it fail" : " fails") << ", wrong " << wrong
    << ", lends " << lends << ", pairs " << pairs << ", lists " << lists << ", empty " << empty
    << (uploads ? "" : ", no uploads") << (minimum ? ", minimum" : "")
    << (checkpoint_files ? ", checkpoints in files" : "") << (own_folders ? " of each host" : "")
    << ", file steps failing " << file_fails << ", files lost " << file_losses << ", new folders "
    << new_folder << ", link probes " << link_probes << ", dies of " << dies;
  return s.str();
}

World::World(Knobs knobs) : knobs_(knobs), prng_(knobs.seed) {
  scheduler::Options options;
  options.seed = knobs.seed;
  options.ping_every_ns = 3600 * kSecond;  // liveness is the daemons' test; here a lost link is an event
  options.silence_ns = 7200 * kSecond;
  if (knobs.hush_ns > 0) options.silence_ns = knobs.hush_ns, options.ping_every_ns = knobs.hush_ns / 4;
  options.lazy_ns = knobs.lazy_ns;
  options.check_replays = true;
  options.link_probes = knobs.link_probes;
  options.history_graphs = 3;
  options.recovery_wait_ns = knobs.recovery_wait_ns;
  options.client_answer_ns = 8 * knobs.max_delay_ns;
  if (knobs.hush_ns > 0) options.stuck_again_ns = knobs.stuck_ns();
  if (knobs.recompute_ops > 0) options.max_recompute_ops = static_cast<std::size_t>(knobs.recompute_ops);
  set_moves(options);
  if (knobs.checkpoint_files) options.checkpoint_dir = "/shared/1", options.state = knobs.seed + 1;
  scheduler_ = std::make_unique<scheduler::Core>(options);
  scheduler_options_ = std::move(options);
}
World::~World() = default;

void World::at(TimeNs delay, std::function<void()> what, bool idle) {
  events_.push({now_ + delay, order_++, std::move(what), idle});
  pending_ += !idle;
}
TimeNs World::jitter() { return prng_.between(100, knobs_.max_delay_ns); }

void World::violate(std::string what) {
  if (outcome_.violation.empty())
    outcome_.violation = "t=" + std::to_string(now_) + " ns: " + std::move(what);
}

Outcome World::run() {
  for (int w = 0; w < knobs_.workers; ++w) start_worker(w);
  for (int c = 0; c < knobs_.clients; ++c) at(knobs_.max_delay_ns * 4, [this, c] { start_client(c); });
  if (prng_.chance(knobs_.kill_worker)) {
    at(prng_.between(1, 40) * knobs_.max_delay_ns,
       [this] { kill(static_cast<int>(prng_.below(workers_.size()))); });
  }
  for (int i = 0; i < knobs_.kills; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, knobs_.kill_span_ns), [this] { kill_some(); });
  for (int i = 0; i < knobs_.drains; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, knobs_.kill_span_ns), [this] { drain_some(); });
  for (int i = 0; i < knobs_.scheduler_crashes; ++i)
    at(prng_.between(1, knobs_.max_delay_ns * 8 + knobs_.kill_span_ns), [this] { crash_scheduler(); });
  for (int i = 0; i < knobs_.breaks; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, knobs_.kill_span_ns), [this] { break_some(); });
  for (int i = 0; i < knobs_.late; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, knobs_.kill_span_ns), [this] { come_late(); });
  const TimeNs span = std::max(knobs_.kill_span_ns, 60 * knobs_.max_delay_ns);
  for (int i = 0; i < knobs_.clogs; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, span), [this] { clog_some(); });
  for (int i = 0; i < knobs_.relinks; ++i)
    at(knobs_.max_delay_ns * 4 + prng_.between(1, span), [this] { relink_some(20); });
  for (int i = 0; i < knobs_.partitions; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, knobs_.kill_span_ns), [this] { partition_some(); });
  for (int i = 0; i < knobs_.zombies; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, knobs_.kill_span_ns), [this] { cut_off_some(); });
  for (int i = 0; i < knobs_.pauses; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, span), [this] { pause_some(); });
  for (int i = 0; i < knobs_.one_ways; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, span), [this] { lose_one_way(); });
  for (int i = 0; i < knobs_.file_losses; ++i)
    at(knobs_.max_delay_ns * 8 + prng_.between(1, span), [this] { lose_file(); });
  for (int i = 0; i < knobs_.acts; ++i)
    at(knobs_.max_delay_ns * prng_.between(6, 20 + 60 * i), [this] { break_everything(); });
  for (int c = 0; c < knobs_.clients; ++c) {
    if (prng_.chance(knobs_.vanish))
      at(knobs_.max_delay_ns * 8 + prng_.between(1, knobs_.kill_span_ns), [this, c] { vanish(c); });
  }
  if (knobs_.dies != 0) at(knobs_.max_delay_ns * 8, [this] { die_of(knobs_.dies); });
  constexpr std::int64_t kMaxEvents = 2'000'000;
  while (!events_.empty() && outcome_.violation.empty()) {
    if (++outcome_.events > kMaxEvents) violate("no end after 2e6 events");
    Event event = events_.top();
    events_.pop();
    now_ = event.time;
    if (!event.idle) busy_at_ = now_, --pending_;
    if (knobs_.hush_ns > 0 && pending_ == 0 && now_ - busy_at_ > rest_ns() && !awaits_demanded())
      break;  // nothing but pings
    event.what();
  }
  if (!outcome_.violation.empty()) return outcome_;
  // Rest: everything answered, nothing left (invariants 6, 8, 14).
  for (std::size_t c = 0; c < clients_.size(); ++c) client_finish(static_cast<int>(c));
  if (!outcome_.violation.empty()) {
    for (const auto& worker : workers_) {
      if (worker->alive) outcome_.violation += "\n" + worker->core->describe();
    }
    return outcome_;
  }
  check_crossings();
  check_probes();
  check_files();
  note_counts();
  Digest h;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = *workers_[w];
    if (!worker.alive) continue;
    h.mix(worker.core->digest());
    const worker::Counters counts = worker.core->counters();
    if (counts.copies_live != 0) {
      violate("worker " + std::to_string(w) + " kept " + std::to_string(counts.copies_live) +
              " copies after the last release\n" + worker.core->describe());
    }
    if (counts.below_bytes != 0)
      violate("worker " + std::to_string(w) + " kept " + std::to_string(counts.below_bytes) +
              " bytes below memory");
    if (counts.ops_known != 0)
      violate("worker " + std::to_string(w) + " remembers " + std::to_string(counts.ops_known) + " ops\n" +
              worker.core->describe());
    if (counts.tasks_live != 0)
      violate("worker " + std::to_string(w) + " kept " + std::to_string(counts.tasks_live) + " tasks");
    for (const msg::DeviceStats& stats : worker.core->device_stats())
      h.mix(static_cast<std::uint64_t>(stats.bytes_peak));
    outcome_.covered["donations"] += counts.donated;
    outcome_.covered["put off for another session"] += counts.put_off;
    outcome_.covered["left for another session"] += counts.gave_way;
    outcome_.covered["blocks moved"] += counts.moved;
    outcome_.covered["blocks to neighbours"] += counts.lodged;
    outcome_.covered["guests dismissed"] += counts.dismissed;
    outcome_.covered["clean blocks dropped"] += counts.dropped;
    outcome_.covered["eager tasks"] += counts.eager;
    outcome_.covered["replicas kept"] += counts.kept;
    outcome_.covered["replicas evicted"] += counts.evicted;
    outcome_.covered["stale messages"] += counts.stale;
    outcome_.covered["blocks passed on"] += counts.relayed;
    outcome_.covered["tasks taken back"] += counts.taken_back;
    outcome_.covered["results made again beside others of their task"] += counts.made_in_part;
    outcome_.covered["points given away"] += counts.given_away;
    outcome_.covered["blocks held up"] += counts.held_up;
    outcome_.covered["blocks asked for elsewhere"] += counts.detours;
    outcome_.covered["words of what is not sent"] += counts.not_sent;
    if (counts.in_flight_bytes != 0 || counts.wait_their_turn != 0)
      violate("worker " + std::to_string(w) + " waits for " + std::to_string(counts.in_flight_bytes) +
              " bytes at rest");
    outcome_.covered["relays declined"] += counts.declined;
    outcome_.covered["relays missing"] += counts.missing;
    if (counts.relays != 0)
      violate("worker " + std::to_string(w) + " kept copies for others who need them no more");
  }
  outcome_.covered["plans replayed"] += static_cast<std::int64_t>(scheduler_->replays());
  h.mix(scheduler_->digest());
  h.mix(static_cast<std::uint64_t>(outcome_.events));
  outcome_.digest = h.value();
  return outcome_;
}

void World::to_scheduler(scheduler::Conn from, msg::Message message, bool ordered) {
  if (const auto* failed = std::get_if<msg::TaskFailed>(&message);
      failed != nullptr && failed->why.code == Errc::kInternal)
    violate("a plan that cannot be taken: " + failed->why.message);
  TimeNs late = delay(way_of(from));
  if (ordered) {
    TimeNs& until = ordered_until_[from.value];
    late = std::max(late, until + 1 - now_);
    until = now_ + late;
  } else if (prng_.chance(knobs_.duplicate)) {
    at(jitter(), [this, from, message] {
      arrive(way_of(from), [this, from, message] { reach_scheduler(from, message); });
    });
    ++outcome_.covered["duplicates to the scheduler"];
  }
  Order& order = to_scheduler_[from.value];
  at(late, [this, from, &order, number = ++order.sent, message = std::move(message)] {
    arrive(way_of(from), [this, from, &order, number, message] {
      note_order(order, number, "messages out of order to the scheduler");
      reach_scheduler(from, message);
    });
  });
}

void World::note_order(Order& order, std::uint64_t number, Counted late) {
  if (number < order.latest) ++outcome_.covered[late];
  order.latest = std::max(order.latest, number);
}

World::Way World::way_of(scheduler::Conn conn) const {
  if (conn.value >= kSupervisors) return {kScheduler, kScheduler};
  if (conn.value > 1000) return {clients_[conn.value - 1001]->welcome.you.value, kScheduler};
  return {workers_[conn.value - 1]->welcome.you.value, kScheduler};
}

// With what it has heard before.
void World::step_scheduler(std::vector<scheduler::Event> then) {
  std::vector<scheduler::Event> events = std::exchange(scheduler_heard_, {});
  std::ranges::move(then, std::back_inserter(events));
  if (stands_still(kScheduler, [this, events] { step_scheduler(events); })) return;
  if (down_) return postponed_.push_back(std::move(events));
  write_down(events);
  outcome_.covered["steps of the scheduler of more than one event"] += events.size() > 1;
  std::vector<scheduler::Action> actions;
  for (const scheduler::Event& event : events) {
    if (const auto* received = std::get_if<scheduler::Received>(&event))
      trace(received->from, "<-", received->message);
  }
  if (knobs_.minimum) note_held();
  for (const scheduler::Event& event : events) {
    const auto* closed = std::get_if<scheduler::Closed>(&event);
    if (closed != nullptr && closed->conn.value <= workers_.size())
      workers_[closed->conn.value - 1]->closed = true;
  }
  scheduler_->step(events, now_, actions);
  scheduler_->check_invariants();
  if (knobs_.minimum) note_ends(actions);
  perform_scheduler(actions);
  maybe_checkpoint();
  const TimeNs wait = scheduler_->next_deadline() - now_;
  const TimeNs due = now_ + std::max<TimeNs>(1, wait);
  if (wait > 1000 * kSecond || due >= scheduler_timer_) return;
  scheduler_timer_ = due;
  const auto beat = [this, due] {
    if (scheduler_timer_ != due) return;  // there was an earlier one
    scheduler_timer_ = kNoTimer;
    step_scheduler({});
  };
  at(due - now_, beat, true);
}

void World::perform_scheduler(std::vector<scheduler::Action>& actions) {
  for (scheduler::Action& action : actions) {
    if (auto* send = std::get_if<scheduler::Send>(&action)) {
      trace(send->to, "->", send->message);
      from_scheduler(send->to, std::move(send->message));
    } else if (auto* close = std::get_if<scheduler::Close>(&action)) {
      ++outcome_.covered["closed by the scheduler"];
      closed_by_scheduler(close->conn);
    }
  }
}

void World::from_scheduler(scheduler::Conn to, msg::Message message) {
  if (to.value >= kSupervisors) return;
  if (const auto* ping = std::get_if<msg::Ping>(&message)) return answer_ping(to, *ping);
  if (to.value > 1000) {
    const int client = static_cast<int>(to.value - 1001);
    if (const auto* reply = std::get_if<msg::SubmitReply>(&message); reply != nullptr && !staffed_)
      clients_[static_cast<std::size_t>(client)]->requests[reply->request].early = true;
    TimeNs& until = ordered_until_[to.value + 1'000'000];
    const TimeNs late = std::max(delay({kScheduler, way_of(to).first}), until + 1 - now_);
    until = now_ + late;
    at(late, [this, to, client, message = std::move(message)] {
      const auto take = [this, to, client, message] {
        const auto read = [this, client, message] { client_message(client, message); };
        if (!held_back(to, read)) read();
      };
      arrive({kScheduler, way_of(to).first}, take);
    });
    return;
  }
  const int index = static_cast<int>(to.value - 1);
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (auto* welcome = std::get_if<msg::Welcome>(&message)) {
    staffed_ = true;
    if (worker.core == nullptr) {
      worker.welcome = *welcome;
      at(jitter(), [this, index] { workers_[static_cast<std::size_t>(index)]->begin(knobs_, index); });
    }
    return;
  }
  if (const auto* probe = std::get_if<msg::LinkProbe>(&message)) return ask_for_probe(index, *probe);
  auto* log = std::get_if<msg::Log>(&message);
  if (log == nullptr) return;
  for (const msg::LogEntry& entry : log->entries) {
    if (const auto* plan = std::get_if<msg::Plan>(&entry)) {
      oracle_.learn(*plan);
      for (const msg::PlannedOp& planned : plan->ops)
        if (planned.op.kind == ir::OpKind::kMap && planned.op.outputs.size() > 1)
          ++outcome_.covered["maps of several outputs"];
      if (knobs_.minimum) minimum_.learn(*plan);
    } else if (const auto* replay = std::get_if<msg::Replay>(&entry)) {
      oracle_.learn(*replay);
      if (knobs_.minimum) minimum_.learn(oracle_.plan_of(*replay));
    } else if (const auto* recover = std::get_if<msg::Recover>(&entry)) {
      oracle_.learn(*recover);
      check_minimum(*recover);
    } else if (const auto* retire = std::get_if<msg::Retire>(&entry)) {
      minimum_.learn(*retire);
    }
  }
  const auto deliver = [this, index, to](const msg::Log& copy, auto&& self) -> void {
    if (held_back(to, [copy, self] { self(copy, self); })) return;
    Worker& w = *workers_[static_cast<std::size_t>(index)];
    if (!w.alive) return;
    if (w.core == nullptr) return w.early.push_back(copy);
    deliver_worker(index, copy);
  };
  // The log may arrive in any order, in pieces, and more than once: its numbers put it right.
  std::uint64_t number = log->first;
  for (const msg::LogEntry& entry : log->entries) {
    msg::Log piece{log->term, number++, {entry}};
    const auto send = [this, to, deliver, piece = std::move(piece)](Order* order, std::uint64_t place) {
      arrive({kScheduler, way_of(to).first}, [this, deliver, piece, order, place] {
        if (order != nullptr) note_order(*order, place, "log entries out of order");
        deliver(piece, deliver);
      });
    };
    if (prng_.chance(knobs_.duplicate)) at(jitter(), [send] { send(nullptr, 0); });
    Order& order = logs_[to.value];
    at(delay({kScheduler, way_of(to).first}), [send, &order, place = ++order.sent] { send(&order, place); });
  }
}

}  // namespace tilewise::sim
