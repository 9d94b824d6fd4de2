// Clients that announce pieces of the same arrays: in the same requests of all of them, tiled and dealt as the seed says. Now and
// then one is wrong, cancels, or vanishes.
#include "world_parts.h"

namespace tilewise::sim {

Knobs Knobs::gathering(std::uint64_t seed) {
  Knobs k = seed % 3 == 0 ? flapping(seed) : seed % 3 == 1 ? restarts(seed) : storm(seed);
  Prng p(seed * 0x6A7E + 17);
  k.clients = static_cast<int>(p.between(2, 4));
  k.requests = static_cast<int>(p.between(2, 8));
  k.announces = p.uniform();
  if (p.chance(0.3)) k.wrong = 0.2;
  if (p.chance(0.2)) k.cancel = 0.2;
  if (p.chance(0.4)) {
    k.vanish = 0.4;
    k.lease_ns = p.between(20, 60) * k.max_delay_ns;
  }
  if (k.kill_span_ns == 0) k.kill_span_ns = p.between(2, 60) * std::max<TimeNs>(k.max_delay_ns, 100'000);
  return k;
}

bool World::announces(std::uint64_t request) const {
  return knobs_.announces > 0 && Prng(knobs_.seed * 0xA110 + request).chance(knobs_.announces);
}

World::Tiling World::tiling_of(std::uint64_t request) const {
  Prng p(knobs_.seed * 0x711E + request);
  Tiling out;
  out.pieces.resize(static_cast<std::size_t>(knobs_.clients));
  for (auto rank = p.between(0, 3); rank > 0; --rank)
    out.shape.push_back(p.between(p.chance(0.05) ? 0 : 1, 20));
  if (ir::volume(out.shape) == 0) return out;
  std::vector<ir::Box> tiles{ir::box_of(out.shape)};
  for (auto cuts = p.between(0, 12); cuts > 0 && !out.shape.empty(); --cuts) {
    ir::Box& tile = tiles[p.below(tiles.size())];
    const int d = static_cast<int>(p.below(out.shape.size()));
    if (tile.extent(d) < 2) continue;
    ir::Box rest = tile;
    tile.hi[d] = rest.lo[d] = p.between(tile.lo[d] + 1, tile.hi[d] - 1);
    tiles.push_back(rest);
  }
  for (const ir::Box& tile : tiles) out.pieces[p.below(out.pieces.size())].push_back(tile);
  return out;
}

void World::announce(int index) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  msg::Announce m;
  m.request = client.next_request++;
  m.name = "array " + std::to_string(m.request);
  Tiling tiling = tiling_of(m.request);
  m.shape = tiling.shape;
  m.processes = static_cast<std::uint32_t>(knobs_.clients);
  m.array = client.next_array++;
  m.pieces = std::move(tiling.pieces[static_cast<std::size_t>(index)]);
  // The others come when they have done what was before; who is cancelled or gone is said by the scheduler.
  m.timeout_ns = knobs_.vanish > 0 || knobs_.wrong > 0 || knobs_.cancel > 0 ? 600 * kSecond : 0;
  if (prng_.chance(knobs_.wrong)) {
    ++outcome_.covered["wrong announcements"];
    switch (prng_.below(4)) {
      case 0: m.failed = {Errc::kInvalidArgument, "it is wrong"}; break;
      case 1: m.shape.push_back(3); break;
      case 2: m.pieces.clear(); break;
      default: m.pieces.push_back(ir::box_of(m.shape));
    }
  }
  Client::Request& request = client.requests[m.request];
  request.number = m.request;
  request.announced = m.array;
  request.pieces = m.pieces;
  request.living = living();
  request.gone = gone_;
  ++outcome_.covered["announcements"];
  to_scheduler(client.conn, m, true);
  if (prng_.chance(knobs_.duplicate)) {
    ++outcome_.covered["repeated announcements"];
    to_scheduler(client.conn, m, true);
  }
  if (prng_.chance(knobs_.cancel)) {
    ++outcome_.covered["cancels"];
    request.cancelled = true;
    at(prng_.between(0, 30) * knobs_.max_delay_ns, [this, index, number = m.request] {
      to_scheduler(clients_[static_cast<std::size_t>(index)]->conn, msg::CancelRequest{number}, true);
    });
  }
  if (prng_.chance(0.3)) at(jitter() * 3, [this, index] { client_next(index); });
}

void World::announced(int index, const msg::SubmitReply& reply) {
  Client& client = *clients_[static_cast<std::size_t>(index)];
  const Client::Request& request = client.requests.at(reply.request);
  if (!reply.outcome.ok()) {
    ++outcome_.covered["gatherings refused"];
    outcome_.covered["gatherings given up for the lost"] += reply.outcome.code == Errc::kWorkerLost;
    const bool alone = knobs_.kills > 0 && reply.outcome.message.find("no worker") != std::string::npos;
    const bool allowed = knobs_.wrong > 0 || knobs_.cancel > 0 || knobs_.vanish > 0 || alone ||
                         reply.outcome.code == Errc::kOutOfMemory;
    if (!allowed) violate("an array could not be gathered without cause: " + reply.outcome.message);
    return;
  }
  ++outcome_.covered["arrays gathered"];
  if (reply.arrays.size() != 1 || reply.arrays[0].first != request.announced)
    return violate("an announcement's reply does not name its array");
  const std::uint64_t provided = reply.arrays[0].second.value;
  if (reply.grid.shape() != tiling_of(reply.request).shape)
    return violate("a gathered array has another shape");
  for (const auto& other : clients_) {
    const auto same = other->gathered.find(provided);
    if (same != other->gathered.end() && !(same->second.grid == reply.grid))
      return violate("a gathered array is cut otherwise for another client");
  }
  client.gathered[provided] = {reply.grid, request.pieces};
  client.held.push_back({request.announced, ir::DType::kFloat64, reply.grid});
}

// Nobody was asked for a block that it does not have.
void World::check_asked(const Client& client) {
  for (const auto& [array, block] : client.asked) {
    const auto found = client.gathered.find(array);
    if (found == client.gathered.end()) continue;  // it has all of its own arrays
    ++outcome_.covered["pieces asked for"];
    const ir::Grid& grid = found->second.grid;
    const ir::Box box = grid.box(ir::unravel(block, grid.counts()));
    const bool has = std::any_of(found->second.pieces.begin(), found->second.pieces.end(),
                                 [&](const ir::Box& piece) { return ir::intersect(piece, box) == box; });
    if (!has) return violate("a client was asked for a block that another one has");
  }
}

}  // namespace tilewise::sim
