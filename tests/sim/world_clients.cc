// Simulated clients: they submit random programs, check what comes back, hold and release, cancel, and vanish.
#include "generator.h"
#include "world_parts.h"

#include <tilewise/msg/ranges.h>

#include <tilewise/msg/program.h>

namespace tilewise::sim {

void World::start_client(int index) {
  auto client = std::make_unique<Client>();
  client->conn = scheduler::Conn{static_cast<std::uint32_t>(1001 + index)};
  while (clients_.size() <= static_cast<std::size_t>(index)) clients_.push_back(std::make_unique<Client>());
  clients_[static_cast<std::size_t>(index)] = std::move(client);
  msg::Join join;
  join.role = msg::Role::kClient;
  join.name = "c" + std::to_string(index);
  join.software_version = "sim";
  join.host_id = "host-0";
  join.devices.push_back({"client", 0, "", "", 0, 1});
  join.lease_ns = knobs_.lease_ns;
  to_scheduler(clients_[static_cast<std::size_t>(index)]->conn, std::move(join), true);
}

// Now and then users say where: on a device, over some, or over a mesh with copies on the rest of it.
void World::hint_some(const Client& client, std::vector<ir::Op>& ops) {
  if (client.places.empty() || !prng_.chance(0.4)) return;
  for (ir::Op& op : ops) {
    if (op.kind == ir::OpKind::kFetch || op.kind == ir::OpKind::kProvide || !prng_.chance(0.4)) continue;
    std::vector<DeviceId> places = client.places;
    for (std::size_t i = places.size(); i-- > 1;) std::swap(places[i], places[prng_.below(i + 1)]);
    const auto rank = static_cast<std::size_t>(op.outputs.empty() ? 0 : op.outputs[0].grid.rank());
    op.hint.devices = {places.begin(),
                       places.begin() + static_cast<std::ptrdiff_t>(1 + prng_.below(places.size()))};
    if (rank == 0 || op.hint.devices.size() < 2 || prng_.chance(0.3)) continue;
    // All devices of the mesh along one dimension, or half of them, each with a holder.
    const auto count = static_cast<std::int32_t>(op.hint.devices.size() / 2 * 2);
    op.hint.devices.resize(static_cast<std::size_t>(count));
    op.hint.copies = prng_.chance(0.3) ? 1 : prng_.chance(0.5) ? 2 : count;
    op.hint.parts.assign(rank, 1);
    op.hint.parts[prng_.below(rank)] = count / op.hint.copies;
    ++outcome_.covered["meshes"];
    if (op.hint.copies > 1) ++outcome_.covered["replicated"];
  }
}

void World::note_listed(const std::vector<ir::Op>& ops) {
  for (const ir::Op& op : ops) {
    if (op.kind != ir::OpKind::kCall || op.get<ir::CallAttrs>().explicit_maps.empty()) continue;
    ++outcome_.covered["calls on listed blocks"];
    std::set<std::uint64_t> arrays;
    for (const ir::Operand& operand : op.operands) arrays.insert(operand.array);
    if (arrays.size() < op.operands.size()) ++outcome_.covered["arrays listed by two operands"];
    const auto& maps = op.get<ir::CallAttrs>().explicit_maps;
    for (std::size_t p = 0; p + 1 < maps[0].offsets.size(); ++p) {
      std::set<std::pair<std::uint64_t, std::int64_t>> blocks;
      std::size_t reads = 0;
      for (std::size_t o = 0; o < maps.size(); ++o) {
        for (std::size_t k = maps[o].offsets[p]; k < maps[o].offsets[p + 1]; ++k, ++reads)
          blocks.emplace(op.operands[o].array, maps[o].blocks[k]);
      }
      if (reads == 0) ++outcome_.covered["tasks that list nothing"];
      if (blocks.size() < reads) ++outcome_.covered["tasks that list a block twice"];
    }
  }
}

void World::new_program(Client& client, msg::Submit& submit, std::vector<std::uint64_t>& fetches) {
  std::vector<Named> known;
  for (const Client::Held& held : client.held) known.push_back({held.number, held.dtype, held.grid});
  Client::Last& last = client.last.emplace();
  last.first = client.next_array;
  Program program = knobs_.blocks > 0
                        ? plain_program(knobs_.blocks, client.next_array)
                        : random_program(prng_, known, client.next_array,
                                         {knobs_.pairs, knobs_.lists, knobs_.empty, knobs_.uploads});
  last.next = client.next_array;
  note_listed(program.ops);
  if (knobs_.blocks == 0) hint_some(client, program.ops);
  for (const Client::Held& held : client.held) {
    const bool read = std::any_of(program.ops.begin(), program.ops.end(), [&](const ir::Op& op) {
      return std::any_of(op.operands.begin(), op.operands.end(),
                         [&](const ir::Operand& operand) { return operand.array == held.number; });
    });
    if (read) last.read.push_back(held);
  }
  for (const Named& made : program.made) {
    if (std::find(program.holds.begin(), program.holds.end(), made.number) != program.holds.end())
      last.made.push_back({made.number, made.dtype, made.grid});
  }
  client.held.insert(client.held.end(), last.made.begin(), last.made.end());
  submit.ops = last.ops = std::move(program.ops);
  submit.holds = last.holds = std::move(program.holds);
  fetches = last.fetches = std::move(program.fetches);
}

// The last program again, as in a client's loop: what it makes has new numbers, constants are others, and what it reads may be other
// arrays of the same form. Not if something that it reads is not held any more.
bool World::repeat_last(Client& client, msg::Submit& submit, std::vector<std::uint64_t>& fetches) {
  if (!client.last || !prng_.chance(client.last->repeats > 0 ? 0.75 : 0.15))
    return false;  // few, but long loops
  Client::Last& last = *client.last;
  std::map<std::uint64_t, std::uint64_t> names;
  for (Client::Held& read : last.read) {
    std::vector<std::uint64_t> alike;
    for (const Client::Held& held : client.held) {
      if (held.dtype == read.dtype && held.grid == read.grid) alike.push_back(held.number);
    }
    if (alike.empty()) return false;
    names[read.number] = alike[prng_.below(alike.size())];
  }
  const auto name = [&](std::uint64_t number) {
    return number >= last.first ? number - last.first + client.next_array : names.at(number);
  };
  submit.ops = last.ops;
  ir::Constants constants = ir::take_constants(submit.ops);
  ++last.repeats;
  for (ir::Constant& constant : constants) constant.f += last.repeats;
  ir::put_constants(submit.ops, constants);
  for (ir::Op& op : submit.ops) {
    for (ir::Operand& operand : op.operands) operand.array = name(operand.array);
    for (ir::OutputSpec& output : op.outputs) output.array = name(output.array);
  }
  for (const std::uint64_t number : last.holds) submit.holds.push_back(name(number));
  for (const std::uint64_t number : last.fetches) fetches.push_back(name(number));
  for (const Client::Held& made : last.made)
    client.held.push_back({name(made.number), made.dtype, made.grid});
  client.next_array += last.next - last.first;
  ++outcome_.covered["programs again"];
  return true;
}

// Now and then the scheduler is to keep the program, and then it is named instead of sent.
void World::keep_or_name(Client& client, msg::Submit& submit) {
  if (!client.last || submit.ops.empty() || !prng_.chance(0.6)) return;
  Client::Last& last = *client.last;
  const Result<msg::Program> program = msg::program_of(last.ops);
  if (!program) return;  // its outputs are not in a row
  if (last.kept_by == 0) {
    if (msg::program_of(submit.ops)->inputs != program->inputs)
      return;  // this time two of them are one array
    submit.keep_as = static_cast<std::uint32_t>(prng_.between(1, msg::kKeptPrograms));
    last.kept_by = submit.request;
    return;
  }
  ++outcome_.covered["programs by name"];
  submit.program = last.kept_by;
  submit.first_output = client.next_array - program->outputs;
  submit.inputs.resize(program->inputs);
  submit.constants = ir::take_constants(submit.ops);
  for (std::size_t i = 0; i < submit.ops.size(); ++i) {
    for (std::size_t o = 0; o < submit.ops[i].operands.size(); ++o) {
      const std::uint64_t place = program->ops[i].operands[o].array;
      if (place >= msg::kInputPlace)
        submit.inputs[place - msg::kInputPlace] = submit.ops[i].operands[o].array;
    }
  }
  submit.ops.clear();
}

// An operator takes away what a session holds, which the session may be taking back itself just now.
void World::operator_releases(SessionId session) {
  const std::uint64_t before = scheduler_->digest();
  const scheduler::View view = scheduler_->view(scheduler::ArraysRequest{session}, now_);
  scheduler_->view(scheduler::OverviewRequest{}, now_);
  if (scheduler_->digest() != before) return violate("looking at the scheduler changed it");
  std::vector<scheduler::Event> wishes;
  for (const scheduler::ArrayView& array : std::get<scheduler::ArrayList>(view).arrays) {
    if (!array.held) continue;
    ++outcome_.covered["released by an operator"];
    wishes.emplace_back(scheduler::OperatorRelease{array.id});
  }
  step_scheduler(std::move(wishes));
}

void World::client_next(int index) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  if (client.dead) return;
  if (stands_still(client.welcome.you.value, [this, index] { client_next(index); })) return;
  if (client.next_request > static_cast<std::uint64_t>(knobs_.requests)) {
    if (knobs_.copies > 0 && !client.rested) {
      if (!std::exchange(client.resting, true)) rest(index, gone_);
      return;
    }
    // The end: release everything, twice for good measure.
    msg::ReleaseArrays release;
    for (const Client::Held& held : client.held) release.arrays.push_back(held.number);
    client.held.clear();
    if (release.arrays.empty()) return;
    if (prng_.chance(0.5)) operator_releases(client.welcome.session);
    to_scheduler(client.conn, release, true);
    to_scheduler(client.conn, release, true);
    return;
  }
  if (announces(client.next_request)) return announce(index);
  msg::Submit submit;
  submit.request = client.next_request++;
  std::vector<std::uint64_t> fetches;
  if (!repeat_last(client, submit, fetches)) new_program(client, submit, fetches);
  keep_or_name(client, submit);
  if (prng_.chance(0.3)) submit.priority = static_cast<std::int32_t>(prng_.between(-1, 1));
  if (prng_.chance(0.3)) submit.weight = static_cast<std::uint32_t>(prng_.between(1, msg::kMaxWeight));
  Client::Request& request = client.requests[submit.request];
  request.number = submit.request;
  request.sent = now_;
  request.fetched = std::move(fetches);
  request.living = living();
  request.gone = gone_;
  if (knobs_.copies > 0) ask_for_copies(client, submit);
  request.keeps = submit.keeps;
  ++outcome_.covered["submits"];
  to_scheduler(client.conn, submit, true);
  if (prng_.chance(knobs_.duplicate)) to_scheduler(client.conn, submit, true);
  if (healed_) demand(index, submit.request);
  if (prng_.chance(knobs_.cancel)) {
    ++outcome_.covered["cancels"];
    request.cancelled = true;
    at(prng_.between(0, 30) * knobs_.max_delay_ns, [this, index, number = submit.request] {
      to_scheduler(clients_[static_cast<std::size_t>(index)]->conn, msg::CancelRequest{number}, true);
    });
  }
  // Some clients do not wait for the answer before they go on, and drop arrays meanwhile.
  if (prng_.chance(0.3)) at(jitter() * 3, [this, index] { client_next(index); });
}

void World::client_message(int index, msg::Message message) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  if (client.dead) return;
  const std::uint64_t self = client.welcome.you.value;
  if (client.welcomed && stands_still(self, [this, index, message] { client_message(index, message); }))
    return;
  if (auto* welcome = std::get_if<msg::Welcome>(&message)) {
    client.welcome = *welcome;
    client.welcomed = true;
    if (!welcome->refused.ok()) return violate("a client was refused: " + welcome->refused.message);
    at(knobs_.max_delay_ns * 2, [this, index] { client_next(index); });
  } else if (auto* log = std::get_if<msg::Log>(&message)) {
    for (const msg::LogEntry& entry : log->entries) {
      if (const auto* joined = std::get_if<msg::PeerJoined>(&entry)) {
        for (DeviceId d : joined->peer.devices) {
          client.owner_of[d.value] = joined->peer.id;
          if (joined->peer.role == msg::Role::kWorker) client.places.push_back(d);
        }
      } else if (const auto* left = std::get_if<msg::Drain>(&entry)) {
        client.lost.insert(left->peer);
        for (const auto& [transfer, offer] : client.granted) {
          if (client.owner_of[offer.from.value] == left->peer)
            violate("a worker left before a client had what it was sending");
        }
      } else if (const auto* lost = std::get_if<msg::PeerLost>(&entry)) {
        if (lost->version != 0) tell_fetched(client, lost->version);
        if (!lost->peer) continue;
        client.lost.insert(lost->peer);
        // What was to come from there comes from elsewhere; offers of that may be here already.
        std::erase_if(client.granted, [&](const auto& granted) {
          if (client.owner_of[granted.second.from.value] != lost->peer) return false;
          client.taking.erase({granted.second.block, granted.second.op.value});
          return true;
        });
        for (auto& [from, offer] : std::exchange(client.again, {})) {
          if (from == lost->peer) continue;
          msg::PeerBatch batch;
          batch.offers.push_back(offer);
          client_batch(index, from, std::move(batch));
        }
      }
    }
  } else if (auto* reply = std::get_if<msg::SubmitReply>(&message)) {
    Client::Request& request = client.requests[reply->request];
    if (request.replied) return;
    // The oracle reads the log, where a plan that no worker has a part in comes later.
    const bool known = std::all_of(reply->arrays.begin(), reply->arrays.end(),
                                   [&](const auto& array) { return oracle_.knows(array.second.value); });
    if (!known && !request.failed)  // never, where it has ended because nobody was left to be told
      return at(knobs_.lazy_ns + 1, [this, index, message] { client_message(index, message); });
    request.replied = true;
    request.graph = reply->graph;
    if (request.announced != 0) announced(index, *reply);
    if (!reply->outcome.ok()) {
      request.refused = request.done = true;
      request.why = reply->outcome.message;
      ++outcome_.requests_refused;
      const std::string wrong =
          request.announced != 0 ? "" : unexcused(client, reply->request, reply->outcome);
      if (!wrong.empty())
        return violate("a request was refused without cause (" + std::string(name_of(reply->outcome.code)) +
                       ", " + wrong + "): " + reply->outcome.message);
      ++outcome_.covered[Counted::named("refused: " + std::string(name_of(reply->outcome.code)))];
      at(jitter(), [this, index] { client_next(index); });
      return;
    }
    if (prng_.chance(knobs_.cancel / 4)) {
      request.cancelled = true;
      ++outcome_.covered["cancelled by an operator"];
      at(prng_.between(0, 30) * knobs_.max_delay_ns,
         [this, graph = reply->graph] { step_scheduler({scheduler::OperatorCancel{graph}}); });
    }
    for (const auto& [number, id] : reply->arrays) client.ids[number] = id.value;
    for (std::uint64_t number : request.fetched) {
      const auto id = client.ids.find(number);
      if (id == client.ids.end()) return violate("a fetched array was not named in the reply");
      if (!known) continue;
      for (std::int64_t b = 0; b < oracle_.blocks(id->second); ++b) request.wanted[id->second].insert(b);
    }
    if (!request.fetched.empty()) say_delivered(client, reply->request);    // of no blocks
    if (request.done) at(jitter(), [this, index] { client_next(index); });  // what it named is held, too
    for (auto& [from, offer] : std::exchange(client.early, {})) {
      msg::PeerBatch again;
      again.offers.push_back(offer);
      client_batch(index, from, std::move(again));
    }
  } else if (auto* done = std::get_if<msg::GraphDone>(&message)) {
    client_ended(index, *done);
  }
}

void World::client_ended(int index, const msg::GraphDone& done) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  Client::Request& request = client.requests[done.request];
  if (request.done) return;  // a repeat after a repeated submit
  request.done = true;
  request.failed = !done.outcome.ok();
  request.why = done.outcome.message;
  request.failed ? ++outcome_.requests_failed : ++outcome_.requests_done;
  outcome_.last_done_ns = now_;
  if (const auto since = demanded_.find({index, done.request}); since != demanded_.end() && healed_)
    outcome_.patience_used = std::max(outcome_.patience_used, (now_ - since->second) * 100 / patience());
  if (!request.failed) check_copies(client, done.request);
  if (request.failed) {
    ++outcome_.covered[Counted::named("failed: " + std::string(name_of(done.outcome.code)))];
    if (request.announced != 0) ++outcome_.covered["gathered arrays failed"];
    const std::string wrong = unexcused(client, done.request, done.outcome);
    if (!wrong.empty())
      return violate("a graph failed without cause (" + std::string(name_of(done.outcome.code)) + ", " +
                     wrong + "): " + done.outcome.message);
  }
  at(jitter(), [this, index] { client_next(index); });
}

void World::client_batch(int index, WorkerId from, msg::PeerBatch batch) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  if (client.dead || client.lost.contains(from)) return;
  const std::uint64_t self = client.welcome.you.value;
  if (stands_still(self, [this, index, from, batch] { client_batch(index, from, batch); })) return;
  // Clients connect to workers of which they have been told, never the other way.
  const bool told = std::any_of(client.owner_of.begin(), client.owner_of.end(),
                                [&](const auto& owner) { return owner.second == from; });
  if (!told) {
    ++outcome_.covered["before a client knew the worker"];
    return at(std::max<TimeNs>(jitter(), 50'000),
              [this, index, from, batch = std::move(batch)] { client_batch(index, from, batch); });
  }
  for (const msg::Offer& offer : batch.offers) {
    const bool wrong =
        offer.failed.ok() && offer.bytes != oracle_.bytes(offer.block.array.value, offer.block.block);
    if (wrong) return violate("an offer of the wrong size");
    if (client.lent.contains({offer.block, offer.op.value, offer.from})) {
      ++outcome_.covered["offers of what is on loan"];  // an answer would end the loan
      continue;
    }
    // One hand-over a wish: repeats are answered when it is over, and ignored while it is on.
    if (client.took.contains({offer.block, offer.op.value})) {
      client_took(index, offer);
      continue;
    }
    // It may overtake the reply that says what it is for.
    bool wanted = false, reply_due = false;
    for (const auto& [number, request] : client.requests) {
      const auto w = request.wanted.find(offer.block.array.value);
      wanted |= w != request.wanted.end() && w->second.contains(offer.block.block);
      reply_due |= !request.replied;
    }
    if (!wanted && reply_due) {
      ++outcome_.covered["offers before their reply"];
      client.early.emplace_back(from, offer);
      continue;
    }
    if (!client.taking.insert({offer.block, offer.op.value}).second) {
      // What failed after it had been offered does not come any more.
      const bool gone = !offer.failed.ok() && std::erase_if(client.granted, [&](const auto& granted) {
                                                return granted.second.block == offer.block &&
                                                       granted.second.op == offer.op &&
                                                       granted.second.from == offer.from;
                                              }) > 0;
      if (gone) {
        ++outcome_.covered["blocks that failed on their way"];
        client_took(index, offer);
        continue;
      }
      client.again.emplace_back(from, offer);
      continue;
    }
    if (offer.failed.ok() && offer.bytes > 0 &&
        (offer.slab == msg::kNoSlab || prng_.chance(0.5))) {  // through the copying lane
      const std::uint64_t transfer = client.next_transfer++;
      client.granted[transfer] = offer;
      msg::PeerBatch grant;
      grant.grants.push_back({offer.block, offer.from, offer.to, transfer});
      peer_send(client.welcome.you, from, std::move(grant));
    } else {
      at(jitter(), [this, index, offer] { client_reads(index, offer); });
    }
  }
  for (const msg::Subscribe& s : batch.subscribes) {  // our own memory is wanted
    client.asked.insert({s.block.array.value, s.block.block});
    msg::Offer offer;
    offer.block = s.block, offer.op = s.op, offer.from = s.from, offer.to = s.to;
    offer.slab = msg::kNoSlab;
    offer.bytes = oracle_.bytes(s.block.array.value, s.block.block);
    msg::PeerBatch answer;
    answer.offers.push_back(std::move(offer));
    peer_send(client.welcome.you, from, std::move(answer));
  }
  for (const msg::Grant& g : batch.grants) {
    ++outcome_.covered["uploads"];
    const Way way{client.welcome.you.value, from.value};
    const auto give = [this, way, g](auto&& self) -> void {
      if (!stands_still(way.first, [self] { self(self); })) upload(g);
    };
    at(delay(way), [this, way, give] { arrive(way, [give] { give(give); }); });
  }
}

// Where the block lies.
void World::client_reads(int index, const msg::Offer& offer) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  const std::uint64_t self = client.welcome.you.value;
  if (client.dead || stands_still(self, [this, index, offer] { client_reads(index, offer); })) return;
  if (!offer.failed.ok() || offer.bytes == 0) return client_took(index, offer);
  if (!reads_right(client, offer)) return violate("a client read wrong bytes");
  if (client.dead) return;
  ++outcome_.blocks_checked;
  if (knobs_.lends > 0 && prng_.chance(knobs_.lends)) return client_borrows(index, offer);
  client_took(index, offer);
}

// Who was given up finds its fence before it tells anybody (net/fence.h), and ends.
bool World::reads_right(Client& client, const msg::Offer& offer) {
  const Cell* cell = cell_at({offer.from, offer.slab, offer.offset});
  if (cell != nullptr && cell->complete &&
      cell->value == oracle_.value(offer.block.array.value, offer.block.block))
    return true;
  if (!client.declared_lost) return false;
  ++outcome_.covered["clients that found themselves fenced"];
  return client.dead = true;
}

void World::upload(const msg::Grant& g) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& to = *workers_[w];
    bool mine = false;
    for (DeviceId d : to.welcome.devices) mine |= d == g.to;
    const auto armed = to.armed.find(g.transfer);
    if (!mine || !to.alive || armed == to.armed.end()) continue;
    const worker::Receive receive = armed->second;
    to.armed.erase(armed);
    if (receive.bytes > 0) {
      Cell& cell = write_cell(receive.to, receive.bytes, g.block.array.value, g.block.block);
      cell.value = oracle_.value(g.block.array.value, g.block.block);
      cell.complete = true;
    }
    deliver_worker(static_cast<int>(w), worker::TransferDone{g.transfer, {Errc::kOk, {}}, msg::Lane::kTcp});
    return;
  }
}

// What a loss has taken need not be made again for it where it has it.
void World::tell_fetched(Client& client, std::uint64_t version) {
  if (prng_.chance(0.1)) return;  // nobody has to answer
  client.told = {version, {}};
  msg::Held held;
  held.version = version;
  for (const auto& [number, request] : client.requests) {
    if (!request.replied || request.refused || request.done) continue;
    for (const std::uint64_t fetched : request.fetched) {
      const std::uint64_t array = client.ids.at(fetched);
      std::set<std::int64_t>& missing = client.told.missing[number][array];
      if (const auto wanted = request.wanted.find(array); wanted != request.wanted.end())
        missing = wanted->second;
      msg::Held::Fetch told{number, ArrayId{array}, {}};
      for (const std::int64_t block : missing) msg::append(told.missing, block);
      const std::int64_t got = oracle_.blocks(array) - static_cast<std::int64_t>(missing.size());
      if (got > 0) ++outcome_.covered["clients that had some of what was lost"];
      held.fetches.push_back(std::move(told));
    }
  }
  const bool again = prng_.chance(knobs_.duplicate);
  if (again) to_scheduler(client.conn, held, true);
  to_scheduler(client.conn, std::move(held), true);
}

// Until then what is lost of it is made again.
void World::say_delivered(Client& client, std::uint64_t number) {
  Client::Request& request = client.requests[number];
  const bool all = std::all_of(request.wanted.begin(), request.wanted.end(),
                               [](const auto& wanted) { return wanted.second.empty(); });
  if (request.delivered || request.done || !all) return;
  request.delivered = true;
  to_scheduler(client.conn, msg::ReleaseArrays{{}, {number}}, true);
  if (prng_.chance(knobs_.duplicate)) to_scheduler(client.conn, msg::ReleaseArrays{{}, {number}}, true);
}

// As a client that reads blocks where they lie: it has the block now, and says so much later. Until then the bytes stay as they are,
// whatever becomes of the array, its graph and the worker.
void World::client_borrows(int index, const msg::Offer& offer) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  ++outcome_.covered["blocks on loan"];
  for (auto& [number, request] : client.requests) {
    const auto w = request.wanted.find(offer.block.array.value);
    if (w == request.wanted.end()) continue;
    w->second.erase(offer.block.block);
    say_delivered(client, number);
  }
  client.took.insert({offer.block, offer.op.value});
  client.lent.insert({offer.block, offer.op.value, offer.from});
  for (auto& [from, other] :
       std::exchange(client.again, {})) {  // those of this block are answered, or ignored
    msg::PeerBatch batch;
    batch.offers.push_back(std::move(other));
    client_batch(index, from, std::move(batch));
  }
  at(prng_.between(1, Knobs::kLongestLoan) * knobs_.max_delay_ns, [this, index, offer] {
    Client& borrower = *clients_[static_cast<std::size_t>(index)];
    if (borrower.dead) return;
    if (!reads_right(borrower, offer)) return violate("a block changed while a client had it on loan");
    if (borrower.dead) return;
    const bool orphan = borrower.lost.contains(borrower.owner_of.at(offer.from.value));
    ++outcome_.covered[orphan ? Counted("loans that outlived their worker") : Counted("loans given back")];
    borrower.lent.erase({offer.block, offer.op.value, offer.from});
    client_took(index, offer);
  });
}

void World::client_took(int index, const msg::Offer& offer) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  for (auto& [number, request] : client.requests) {
    const auto w = request.wanted.find(offer.block.array.value);
    if (w == request.wanted.end()) continue;
    w->second.erase(offer.block.block);
    if (!offer.failed.ok()) ++outcome_.covered["failed blocks delivered"];
    say_delivered(client, number);
  }
  const auto owner = client.owner_of.find(offer.from.value);
  if (owner == client.owner_of.end()) return violate("an offer from a device nobody announced");
  msg::PeerBatch done;
  done.dones.push_back({offer.block, offer.op, offer.from, offer.to});
  client.took.insert({offer.block, offer.op.value});
  for (const auto& [from, other] : std::exchange(client.again, {})) {  // those of this block get their Done
    if (other.block != offer.block || other.op != offer.op)
      client.again.emplace_back(from, other);
    else
      client_took(index, other);
  }
  peer_send(client.welcome.you, owner->second, std::move(done));
}

std::string World::missing(int index, std::uint64_t number) const {
  const Client& client = *clients_[static_cast<std::size_t>(index)];
  std::string out;
  for (const auto& [array, blocks] : client.requests.at(number).wanted) {
    for (const std::int64_t block : blocks) {
      out += (out.empty() ? ", waiting for" : ",") + (" block " + std::to_string(block)) + " of a" +
             std::to_string(array & 0xFFFFFF);
      for (const auto& [taken, op] : client.taking) {
        if (taken.array.value == array && taken.block == block) out += " (being taken)";
      }
      for (const auto& [from, offer] : client.again) {
        if (offer.block.array.value == array && offer.block.block == block)
          out += " (offered again by p" + std::to_string(from.value) + ")";
      }
    }
  }
  return out;
}

// What must be true when nothing is left to happen.
void World::client_finish(int index) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  if (client.dead) return;
  if (!client.welcomed) return violate("a client was never welcomed");
  for (const auto& [number, request] : client.requests) {
    const std::string name = "request " + std::to_string(number) + " of client " + std::to_string(index);
    if (!request.replied) return violate(name + " was never answered");
    if (!request.done) return violate(name + " never ended" + missing(index, number));
    if (request.failed || request.refused) continue;
    for (const auto& [array, blocks] : request.wanted) {
      if (!blocks.empty())
        return violate(name + " ended well, yet " + std::to_string(blocks.size()) + " blocks never came");
    }
  }
  check_asked(client);
  if (client.next_request <= static_cast<std::uint64_t>(knobs_.requests))
    violate("a client did not get to its end");
}

}  // namespace tilewise::sim
