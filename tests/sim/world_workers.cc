// Simulated workers: streams take virtual time, memory holds values, peers' messages come late, twice and out of order.
#include "generator.h"
#include "world_parts.h"

#include <tilewise/base/check.h>
#include <tilewise/ir/checkpoint.h>

namespace tilewise::sim {
namespace {

std::string not_read_back(std::uint64_t array, std::int64_t block) {
  return "block " + std::to_string(block) + " of array " + std::to_string(array) +
         " cannot be read back: injected";
}

}  // namespace

void World::Worker::begin(const Knobs& knobs, int index) {
  worker::Options options;
  options.self = welcome.you;
  options.term = welcome.term;
  options.window = knobs.window;
  options.releases_a_step = knobs.releases_a_step;
  options.queue_steps = knobs.queue_steps;
  options.untried_steps = knobs.untried_steps;
  if (knobs.moves > 0) options.report_ns = knobs.moves_every_ns / 2;
  options.map_peers = knobs.map_peers;
  options.task_tables = knobs.task_tables;
  options.spill_bytes = knobs.spill_bytes;
  options.pinned_bytes = knobs.pinned_bytes;
  options.host = "host-" + std::to_string(index % knobs.hosts);
  options.tree_bytes = knobs.tree_bytes;
  if (knobs.parts) options.parts_bytes = 1;
  if (knobs.chains) options.chain_bytes = 0;
  if (knobs.in_flight > 0) options.in_flight_bytes = knobs.in_flight;
  if (knobs.in_flight_peer > 0) options.in_flight_peer_bytes = knobs.in_flight_peer;
  options.max_held_ranges = knobs.held_ranges;
  options.stuck_ns = knobs.stuck_ns();
  for (DeviceId id : welcome.devices) {
    const int d = static_cast<int>(options.devices.size());
    const bool pins = knobs.pins(d);
    options.devices.push_back({id,
                               knobs.kind(d),
                               knobs.memory_of(d),
                               knobs.slab_bytes,
                               knobs.streams,
                               knobs.spill_bytes > 0 || pins,
                               pins,
                               {},
                               knobs.gpu(index, d)});
    for (int n = 0; knobs.neighbours && n < static_cast<int>(welcome.devices.size()); ++n)
      if (n != d) options.devices.back().neighbours.push_back(static_cast<std::uint16_t>(n));
  }
  streams.assign(options.devices.size(), std::vector<Stream>(static_cast<std::size_t>(knobs.streams)));
  slabs.assign(options.devices.size(), 0);
  core = std::make_unique<worker::Core>(std::move(options));
}

void World::start_worker(int index) {
  auto worker = std::make_unique<Worker>();
  worker->conn = scheduler::Conn{static_cast<std::uint32_t>(index + 1)};
  workers_.push_back(std::move(worker));
  msg::Join join;
  join.role = msg::Role::kWorker;
  join.name = "w" + std::to_string(index);
  join.software_version = "sim";
  join.host_id = "host-" + std::to_string(host_of(index));
  join.lease_ns = knobs_.lease_ns;
  for (const char* kernel : {kPairKernel, kListKernel}) join.plugins.push_back({kernel, "1", 1});
  if (knobs_.checkpoint_files) {
    for (const std::string_view kernel :
         {ir::checkpoint::kTend, ir::checkpoint::kCreate, ir::checkpoint::kWrite, ir::checkpoint::kCommit,
          ir::checkpoint::kRestore})
      join.plugins.push_back({std::string(kernel), "1", 1});
  }
  if (knobs_.poison > 0) join.black_box = static_cast<std::uint64_t>(index) + 1;
  for (int d = 0; d < knobs_.devices_each; ++d) {
    join.devices.push_back({"host:" + std::to_string(d), knobs_.kind(d), "simulated", numeric_class(index),
                            knobs_.memory_of(d), knobs_.streams, knobs_.spill_bytes / knobs_.devices_each,
                            knobs_.pins(d) ? knobs_.pinned_bytes / knobs_.devices_each : 0,
                            knobs_.gpu(index, d)});
  }
  to_scheduler(workers_.back()->conn, std::move(join), true);
  // Logs that came before the welcome was read.
  const auto flush = [this, index](auto&& self) -> void {
    Worker& w = *workers_[static_cast<std::size_t>(index)];
    if (w.core == nullptr) return at(knobs_.max_delay_ns, [self] { self(self); });
    for (msg::Log& log : std::exchange(w.early, {})) deliver_worker(index, std::move(log));
  };
  at(knobs_.max_delay_ns * 3, [flush] { flush(flush); });
}

// With what it has heard before.
void World::step_worker(int index, std::vector<worker::Event> then) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  note_spared(index);
  std::vector<worker::Event> events = std::exchange(worker.heard, {});
  std::ranges::move(then, std::back_inserter(events));
  worker::Actions actions;
  worker.core->step(events, now_, actions);
  worker.core->check_invariants();
  note_spared(index);
  perform(index, actions);
  arm_timer(index);
}

// Reports that wait for company, and the word "stuck", come by the clock.
void World::arm_timer(int index) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  const TimeNs wait = worker.core->next_deadline() - now_;
  const TimeNs due = now_ + std::max<TimeNs>(1, wait);
  if (wait > 1000 * kSecond || due >= worker.timer) return;
  worker.timer = due;
  const auto beat = [this, index, due](auto&& self) -> void {
    Worker& w = *workers_[static_cast<std::size_t>(index)];
    if (w.timer != due) return;  // there was an earlier one
    if (!w.alive) return;
    if (stands_still(w.welcome.you.value, [self] { self(self); })) return;
    w.timer = kNoTimer;
    step_worker(index);
  };
  at(due - now_, [beat] { beat(beat); });
}

void World::perform(int index, worker::Actions& actions) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  for (const msg::PeerInfo& peer : actions.joined) {
    if (peer.role != msg::Role::kWorker) continue;
    const bool here = peer.host_id == "host-" + std::to_string(host_of(index));
    at(jitter(), [this, index, id = peer.id, here] {
      if (knobs_.map_peers && here) open_slabs(index, id);
      deliver_worker(index, worker::PeerReady{id, knobs_.map_peers && here});
    });
  }
  for (WorkerId lost : actions.lost) {  // the transport lets go of what was to come from there
    std::erase_if(worker.armed, [&](const auto& entry) {
      if (entry.second.from != lost) return false;
      at(jitter(), [this, index, transfer = entry.first] {
        receive_failed(index, {transfer, {Errc::kUnavailable, "the sender died"}, msg::Lane::kTcp});
      });
      return true;
    });
    worker.lost.insert(lost);
    probes_lost(index, lost);
    shut_out(index, lost);
    for (const worker::Transmit& transmit : std::vector<worker::Transmit>(worker.telling)) {
      if (transmit.to == lost) at(jitter(), [this, index, transmit] { sent(index, transmit); });
    }
  }
  for (const worker::Disarm& d : actions.disarms) disarm(index, d);
  for (const worker::AddSlab& slab : actions.slabs) {
    at(jitter(), [this, index, slab] { slab_added(index, slab); });
  }
  for (const worker::Pull& pull : actions.pulls) begin_pull(index, pull);
  for (worker::Launch& launch : actions.launches) {
    check_numeric_class(index, launch);
    note_launch(index, launch);
    check_no_rubbish(index, launch);
    worker.streams[launch.device][launch.stream].queue.push_back(std::move(launch));
  }
  for (const worker::Receive& receive : actions.receives) {
    worker.armed[receive.transfer] = receive;
    write_cell(receive.to, receive.bytes, 0, 0);  // nothing there may be in use from now on
  }
  check_in_flight(worker);
  perform_probes(index, actions);
  for (const worker::TierIo& io : actions.ios) begin_io(index, io);
  for (const worker::Relocate& move : actions.relocations) begin_relocation(index, move);
  for (auto& [to, batch] : actions.batches) peer_send(worker.welcome.you, to, std::move(batch));
  for (const worker::Transmit& transmit : actions.transmits) {
    ++outcome_.covered["transfers"];
    const Way way{worker.welcome.you.value, transmit.to.value};
    if (transmit.tell) worker.telling.push_back(transmit);
    if (fails_to_send(index, transmit)) continue;
    at(delay(way), [this, way, index, transmit] {
      arrive(way, [this, index, transmit] { send_bytes(index, transmit); });
    });
  }
  for (const msg::Message& message : actions.to_scheduler) {
    if (const auto* told = std::get_if<msg::LinkProbed>(&message)) note_probed(*told);
    if (const auto* held = std::get_if<msg::Held>(&message); held != nullptr && knobs_.minimum)
      note_truth(index, held->version);
    to_scheduler(worker.conn, message, false);
  }
  TW_CHECK(!actions.broken, "a worker's log has a gap");
  if (actions.leave) return leave(index);
  run_streams(index);
}

// The transport has let go of what it read.
void World::sent(int index, const worker::Transmit& transmit) {
  std::vector<worker::Transmit>& telling = workers_[static_cast<std::size_t>(index)]->telling;
  const auto found = std::find_if(telling.begin(), telling.end(), [&](const worker::Transmit& t) {
    return t.to == transmit.to && t.transfer == transmit.transfer;
  });
  if (found == telling.end()) return;
  telling.erase(found);
  deliver_worker(index, worker::Sent{transmit.to, transmit.transfer});
}

// A receive whose sender has nothing, unless the bytes have come meanwhile.
void World::disarm(int index, const worker::Disarm& disarm) {
  at(jitter(), [this, index, disarm] {
    Worker& worker = *workers_[static_cast<std::size_t>(index)];
    if (const auto probe = worker.probes.find(disarm.transfer);
        probe != worker.probes.end() && probe->second.from == disarm.from)
      return end_probe(index, disarm.transfer, {Errc::kNotFound, "given up"});
    const auto armed = worker.armed.find(disarm.transfer);
    if (armed == worker.armed.end() || armed->second.from != disarm.from) return;
    worker.armed.erase(armed);
    receive_failed(index, {disarm.transfer, {Errc::kNotFound, "no such copy"}, msg::Lane::kTcp});
  });
}

void World::send_bytes(int index, const worker::Transmit& transmit) {
  const std::uint64_t self = workers_[static_cast<std::size_t>(index)]->welcome.you.value;
  if (stands_still(self, [this, index, transmit] { send_bytes(index, transmit); })) return;
  if (first_part(index, transmit) || still_comes(index, transmit)) return;
  if (transmit.tell) at(jitter(), [this, index, transmit] { sent(index, transmit); });
  if (!awaited(transmit)) return;  // a repeat: the bytes go nowhere
  // A link is shut before anything else takes the memory: what had not come by then never comes.
  if (workers_[static_cast<std::size_t>(index)]->lost.contains(transmit.to)) return;
  const Cell* source = cell_at(transmit.from);
  if (transmit.below >= 0) {
    ++outcome_.covered[transmit.tier == worker::Tier::kDisk ? Counted("sent from disk")
                                                            : Counted("sent from pinned memory")];
    const auto& below = workers_[static_cast<std::size_t>(index)]->in(transmit.tier);
    const auto found = below.find(transmit.below);
    source = found == below.end() ? nullptr : &found->second;
  }
  if (transmit.bytes > 0 && (source == nullptr || !source->complete))
    return violate("a transfer reads memory that holds no sealed block");
  const Cell value = source != nullptr ? *source : Cell{};
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& to = *workers_[w];
    if (to.welcome.you != transmit.to || !to.alive) continue;
    const auto armed = to.armed.find(transmit.transfer);
    if (armed == to.armed.end()) return;  // a repeat
    const worker::Receive receive = armed->second;
    to.armed.erase(armed);
    if (no_room("no memory for staging of transfers")) {
      inject("transfer of block " + std::to_string(value.block) + " of array " + std::to_string(value.array) +
                 ": injected",
             value.array, value.block);
      return receive_failed(static_cast<int>(w),
                            {transmit.transfer, {Errc::kOutOfMemory, "injected"}, msg::Lane::kStaged});
    }
    if (transmit.bytes > 0) {
      note_crossing(index, static_cast<int>(w), value);
      Cell& cell = write_cell(receive.to, receive.bytes, value.array, value.block);
      cell.value = value.value;
      cell.complete = true;
    }
    deliver_worker(static_cast<int>(w),
                   worker::TransferDone{transmit.transfer, {Errc::kOk, {}}, msg::Lane::kTcp});
    return;
  }
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    Client& client = *clients_[c];
    if (client.welcome.you != transmit.to) continue;
    const auto granted = client.granted.find(transmit.transfer);
    if (granted == client.granted.end()) return;
    const msg::Offer offer = granted->second;
    client.granted.erase(granted);
    if (offer.bytes > 0 && value.value != oracle_.value(offer.block.array.value, offer.block.block))
      violate("a client received " + std::to_string(value.array) + "/" + std::to_string(value.block) +
              " for " + std::to_string(offer.block.array.value) + "/" + std::to_string(offer.block.block) +
              ", or wrong bytes of it");
    client_took(static_cast<int>(c), offer);
  }
}

bool World::awaited(const worker::Transmit& transmit) const {
  for (const auto& w : workers_) {
    if (w->welcome.you == transmit.to) return w->alive && w->armed.contains(transmit.transfer);
  }
  for (const auto& c : clients_) {
    if (c->welcome.you == transmit.to) return c->granted.contains(transmit.transfer);
  }
  return false;
}

void World::peer_send(WorkerId from, WorkerId to, msg::PeerBatch batch) {
  const Way way{from.value, to.value};
  trace(from, to, batch);
  if (prng_.chance(knobs_.duplicate)) {
    ++outcome_.covered["duplicates between peers"];
    at(delay(way), [this, way, from, to, batch] {
      arrive(way, [this, from, to, batch] { deliver_peer(from, to, batch); });
    });
  }
  Order& order = between_peers_[way];
  at(delay(way), [this, way, from, to, &order, number = ++order.sent, batch = std::move(batch)] {
    arrive(way, [this, from, to, &order, number, batch] {
      note_order(order, number, "messages out of order between peers");
      deliver_peer(from, to, batch);
    });
  });
}

void World::deliver_peer(WorkerId from, WorkerId to, msg::PeerBatch batch) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w]->welcome.you != to) continue;
    if (workers_[w]->alive && workers_[w]->core == nullptr) {  // the link comes up when the other side does
      return at(jitter(), [this, from, to, batch = std::move(batch)] { deliver_peer(from, to, batch); });
    }
    return deliver_worker(static_cast<int>(w), worker::PeerBatchReceived{from, std::move(batch)});
  }
  for (std::size_t c = 0; c < clients_.size(); ++c) {
    if (clients_[c]->welcome.you == to) return client_batch(static_cast<int>(c), from, std::move(batch));
  }
}

void World::run_streams(int index) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  for (std::size_t d = 0; d < worker.streams.size(); ++d) {
    for (std::size_t s = 0; s < worker.streams[d].size(); ++s) {
      Worker::Stream& stream = worker.streams[d][s];
      if (stream.busy || stream.queue.empty()) continue;
      bool ready = true;
      for (const auto& [other, sequence] : stream.queue.front().waits) {
        ready &= worker.streams[d][other].completed >= sequence;
      }
      if (ready) begin_step(index, d, s);
    }
  }
}

World::Cell* World::cell_at(const worker::MemoryRef& ref) {
  for (auto& worker : workers_) {
    const auto memory = worker->memory.find({ref.device.value, ref.slab});
    if (memory == worker->memory.end()) continue;
    const auto cell = memory->second.find(ref.offset);
    return cell == memory->second.end() ? nullptr : &cell->second;
  }
  return nullptr;
}

// Whatever overlapped is gone: a later reader of it would find nothing.
World::Cell& World::write_cell(const worker::MemoryRef& ref, std::int64_t bytes, std::uint64_t array,
                               std::int64_t block) {
  for (auto& worker : workers_) {
    bool mine = false;
    for (DeviceId id : worker->welcome.devices) mine |= id == ref.device;
    if (!mine) continue;
    auto& cells = worker->memory[{ref.device.value, ref.slab}];
    auto it = cells.lower_bound(ref.offset);
    if (it != cells.begin() && std::prev(it)->first + std::prev(it)->second.bytes > ref.offset) --it;
    while (it != cells.end() && it->first < ref.offset + bytes) it = cells.erase(it);
    return cells[ref.offset] = Cell{bytes, array, block, 0, false};
  }
  TW_CHECK(false, "memory of nobody");
  static Cell none;
  return none;
}

// Each input is where the launch says, complete, and what the oracle says (invariants 2, 5, 12, 13).
// Who was declared lost may find anything; false: it did.
bool World::check_reads(int index, const worker::Launch& launch, bool at_end) {
  const auto expected = oracle_.reads(launch.run.id, launch.point, launch.step);
  if (expected.size() != launch.inputs.size()) {
    violate("a launch has another number of inputs than its step");
    return false;
  }
  if (launch.op->op.attrs != oracle_.attrs(launch.run.id)) {
    violate("a launch is of other constants than its op");
    return false;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [array, block] = expected[i];
    if (oracle_.bytes(array, block) == 0) continue;
    bool donated = false;
    for (const worker::MemoryRef& output : launch.outputs) donated |= output == launch.inputs[i];
    if (donated && at_end) continue;
    ++outcome_.blocks_checked;
    const std::string wrong = wrong_read(launch, i, array, block);
    if (wrong.empty()) continue;
    if (workers_[static_cast<std::size_t>(index)]->declared_lost) {
      ++outcome_.covered["wrong reads of who was declared lost"];
      return false;
    }
    violate("block " + std::to_string(block) + " of array " + std::to_string(array & 0xFFFFFF) +
            (at_end ? " at the end" : " at the start") + " of a step of " +
            std::string(name_of(launch.op->op.kind)) + ": " + wrong);
  }
  return true;
}

// What is wrong with what is found where an input should be; empty: nothing.
std::string World::wrong_read(const worker::Launch& launch, std::size_t input, std::uint64_t array,
                              std::int64_t block) {
  const Cell* cell = cell_at(launch.inputs[input]);
  if (cell == nullptr) return "memory was given to somebody else";
  if (cell->array != array || cell->block != block) return "another block is there";
  if (!cell->complete) return "not complete";
  const bool own = !launch.outputs.empty() && launch.outputs[0].device == launch.inputs[input].device;
  if (cell->rubbish && own) return "";  // it was enqueued before that was known
  return cell->value != oracle_.value(array, block) ? "wrong value" : "";
}

void World::begin_step(int index, std::size_t device, std::size_t s) {
  Worker::Stream& stream = workers_[static_cast<std::size_t>(index)]->streams[device][s];
  stream.busy = true;
  const worker::Launch& launch = stream.queue.front();
  if (launch.step == 0) stream.spoilt = false;
  stream.rubbish = reads_rubbish(launch);
  stream.spoilt |= !check_reads(index, launch, false);
  note_lent(index, launch);
  check_alone(*workers_[static_cast<std::size_t>(index)]);
  begin_on_file(index, launch);
  for (std::size_t i = 0; i < launch.outputs.size(); ++i) {
    bool donated = false;
    for (const worker::MemoryRef& input : launch.inputs) donated |= input == launch.outputs[i];
    const std::uint64_t array = oracle_.made(launch.run.id, i);
    const std::int64_t bytes = oracle_.bytes(array, launch.point);
    if (bytes == 0) continue;
    if (launch.step == 0 && !donated)
      write_cell(launch.outputs[i], bytes, array, launch.point);
    else if (launch.step > 0 && cell_at(launch.outputs[i]) == nullptr)
      return violate("an accumulator lost its memory");
  }
  if (poisonous(launch)) return at(prng_.between(200, 100'000), [this, index] { take_down(index); });
  at(step_time(index, device), [this, index, device, s] { end_step(index, device, s); });
}

void World::end_step(int index, std::size_t device, std::size_t s) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive) return;
  if (stands_still(worker.welcome.you.value, [this, index, device, s] { end_step(index, device, s); }))
    return;
  Worker::Stream& stream = worker.streams[device][s];
  const worker::Launch launch = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.busy = false;
  stream.spoilt |= !check_reads(index, launch, true);
  stream.completed = launch.sequence;
  const bool failed = prng_.chance(knobs_.fail_step);
  std::vector<std::optional<std::uint64_t>> restored;
  const std::string file_trouble = on_file(index, launch, restored);
  if (knobs_.minimum && launch.step + 1 == launch.steps)
    worker.ran[{launch.run.id.value, launch.point}].over = true;
  for (std::size_t i = 0; i < launch.outputs.size() && launch.step + 1 == launch.steps; ++i) {
    const std::uint64_t array = oracle_.made(launch.run.id, i);
    const std::int64_t bytes = oracle_.bytes(array, launch.point);
    if (bytes == 0) continue;
    Cell& cell = write_cell(launch.outputs[i], bytes, array, launch.point);
    const bool from_file = i < restored.size() && restored[i].has_value();
    cell.value = (from_file ? *restored[i] : oracle_.value(array, launch.point)) + (stream.spoilt ? 1 : 0);
    cell.complete = true;
    if (!oracle_.is_spare(launch.run.id, i)) note_made(array, launch.point);
  }
  if (ends_fenced(index)) return;
  const auto d = static_cast<std::uint16_t>(device);
  const auto n = static_cast<std::uint8_t>(s);
  std::optional<worker::StepFailed> failure;
  const auto inject_here = [&] {
    failed_graphs_.insert(launch.run.graph);
    if (launch.op->op.outputs.empty()) return;
    const ir::Op& op = launch.op->op;
    inject(ir::title_of(op) + ", block " + std::to_string(launch.point) + ": injected",
           oracle_.made(launch.run.id, 0), launch.point);
  };
  if (!file_trouble.empty()) {
    const bool reads = oracle_.restores(launch.run.id);
    failure =
        worker::StepFailed{d, n, launch.sequence, {reads ? Errc::kWorkerLost : Errc::kIo, file_trouble}};
  } else if (stream.rubbish && prng_.chance(0.5)) {
    ++outcome_.covered["steps that failed of what a failed one had left"];
    failure = worker::StepFailed{d, n, launch.sequence, {Errc::kTaskFailed, "rubbish"}};
  } else if (failed) {
    ++outcome_.covered["failed steps"];
    inject_here();
    failure = worker::StepFailed{d, n, launch.sequence, {Errc::kTaskFailed, "injected"}};
  } else if (no_room("no memory for scratch of steps")) {
    inject_here();
    failure = worker::StepFailed{d, n, launch.sequence, {Errc::kOutOfMemory, "injected"}};
  }
  if (failure || stream.rubbish) leave_rubbish(launch);
  say(index, {d, n, launch.sequence}, std::move(failure));
}

void World::kill_some() {
  std::vector<int> living;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w]->takes_part() && workers_[w]->core != nullptr) living.push_back(static_cast<int>(w));
  }
  if (living.empty()) return;
  if (living.size() == 1) ++outcome_.covered["the last worker killed"];
  kill(living[prng_.below(living.size())]);
  respawn();
}

// Where workers only leave as they are asked to, or give to each other what they have not begun, nothing is made twice; but for what
// tasks that were given up had read.
void World::note_made(std::uint64_t array, std::int64_t block) {
  const bool once = knobs_.drains > 0 || knobs_.moves > 0;
  if (!once || knobs_.workers_die()) return;
  for (const auto& worker : workers_) {
    if (worker->core != nullptr && worker->core->counters().impatient > 0) return;
  }
  if (++made_[{array, block}] > 1)
    violate("block " + std::to_string(block) + " of array " + std::to_string(array & 0xFFFFFF) +
            " was made again though no worker died");
}

// An operator's wish. It is taken back at some time, unless the worker has left by then: else it might be tried for ever.
void World::drain_some() {
  std::vector<WorkerId> living;
  for (const auto& worker : workers_) {
    if (worker->alive && worker->core != nullptr) living.push_back(worker->welcome.you);
  }
  if (living.empty()) return;
  const WorkerId id = living[prng_.below(living.size())];
  ++outcome_.covered["drains"];
  step_scheduler({scheduler::OperatorDrain{id, true}});
  const TimeNs soon = prng_.between(1, 30) * knobs_.max_delay_ns;
  at(prng_.chance(knobs_.undo) ? soon : 60 * kSecond, [this, id] {
    for (const auto& worker : workers_) {
      if (worker->alive && worker->welcome.you == id) ++outcome_.covered["drains taken back"];
    }
    step_scheduler({scheduler::OperatorDrain{id, false}});
  });
  if (!prng_.chance(knobs_.respawn)) return;
  at(prng_.between(1, 40) * knobs_.max_delay_ns, [this] { start_worker(static_cast<int>(workers_.size())); });
}

void World::leave(int index) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  worker.alive = false;
  ++outcome_.covered["drained workers"];
  ++gone_;
  at(jitter(), [this, conn = worker.conn] {
    step_scheduler(
        {scheduler::Received{conn, msg::Leave{}}, scheduler::Closed{conn, {Errc::kUnavailable, "left"}}});
  });
}

void World::kill(int index) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  if (!worker.alive || worker.core == nullptr) return;
  worker.alive = false;
  if (worker.core->counters().probing > 0) ++outcome_.covered["killed while measuring a link"];
  ++outcome_.covered["killed workers"];
  ++gone_, ++died_;
  note_death_on_file(worker);
  if (knobs_.poison > 0) tell_last_words(index);
  at(jitter(), [this, conn = worker.conn] {
    step_scheduler({scheduler::Closed{conn, {Errc::kUnavailable, "killed by the simulator"}}});
  });
}

}  // namespace tilewise::sim
