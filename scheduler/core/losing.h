// For tests of recoveries: two workers, the first of which is lost, and a client.
#pragma once
#include "core_world.h"

namespace tilewise::scheduler::test {

// Two workers of one device, a client, and everything on the first worker unless said otherwise.
struct Losing : World {
  explicit Losing(Options options = {}) : World(std::move(options)) {
    w1 = add_worker(1, 1, "one");
    w2 = add_worker(2, 1, "two");
    join(10, client());
  }
  ir::Op on(ir::Op op, const msg::Welcome& where) const {
    op.hint.devices = {where.devices[0]};
    return op;
  }
  void lose_first() {
    workers.erase(workers.begin());
    drop(1);
  }
  // Whoever is asked has nothing.
  void answer(std::uint32_t conn, std::vector<msg::Held::Blocks> blocks = {}) {
    const msg::PeerLost lost = log<msg::PeerLost>(conn).back();
    msg::Held held;
    held.version = lost.version;
    held.blocks = std::move(blocks);
    receive(conn, held);
  }
  // The client, asked what it has of its fetches.
  void tell(std::vector<msg::Held::Fetch> fetches = {}) {
    const msg::PeerLost lost = log<msg::PeerLost>(10).back();
    CHECK(!lost.peer);
    receive(10, msg::Held{lost.version, {}, {}, false, std::move(fetches)});
  }
  void finish(const msg::Recover& recover) {
    for (const msg::Plan& plan : recover.plans) complete(plan);
  }
  msg::Welcome w1, w2;
};

inline std::int64_t points(const msg::PlannedOp& op) {
  std::int64_t all = 0;
  for (const ir::Run& run : op.placement.listed()->runs()) all += run.count;
  return all;
}

}  // namespace tilewise::scheduler::test
