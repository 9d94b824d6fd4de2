// What the scheduler hears and says, in lines, for those who look into a failing seed (TILEWISE_SIM_TRACE=1).
#include <cstdlib>
#include <iostream>

#include "world_parts.h"

namespace tilewise::sim {
namespace {

std::string text(const msg::Plan& plan) {
  std::string out = "graph " + std::to_string(plan.graph.value & 0xFFFFFF);
  for (const msg::PlannedOp& op : plan.ops) {
    out += "; " + std::to_string(op.id.value & 0xFFFFFF) + " " + std::string(ir::name_of(op.op.kind));
    if (op.of) out += " again " + std::to_string(op.of.value & 0xFFFFFF);
    for (const ir::Operand& operand : op.op.operands) out += " a" + std::to_string(operand.array & 0xFFFFFF);
    out += " ->";
    for (const ir::OutputSpec& output : op.op.outputs) out += " a" + std::to_string(output.array & 0xFFFFFF);
    out += " on";
    if (const ir::RunMap* listed = op.placement.listed(); listed != nullptr) {
      for (const ir::Run& run : listed->runs()) {
        out += " d" + std::to_string(run.device.value) + ':' + std::to_string(run.first);
        if (run.count > 1) out += '-' + std::to_string(run.first + run.count - 1);
      }
      continue;
    }
    for (const DeviceId device : op.placement.devices())
      out += " d" + std::to_string(device.value) + "*" + std::to_string(op.placement.owned_count(device));
  }
  return out;
}

struct Text {
  std::string operator()(const msg::Plan& plan) const { return "Plan " + text(plan); }
  std::string operator()(const msg::PeerLost& lost) const {
    return "PeerLost p" + std::to_string(lost.peer.value) + " version " + std::to_string(lost.version);
  }
  std::string operator()(const msg::Recover& recover) const {
    std::string out = "Recover version " + std::to_string(recover.version);
    for (const msg::Plan& plan : recover.plans) out += " [" + text(plan) + "]";
    return out;
  }
  std::string operator()(const msg::PeerJoined& joined) const {
    return "PeerJoined p" + std::to_string(joined.peer.id.value);
  }
  template <class Other> std::string operator()(const Other&) const { return {}; }
};

std::string text(const msg::Message& message) {
  std::string out(msg::name_of(message));
  if (const auto* log = std::get_if<msg::Log>(&message)) {
    for (const msg::LogEntry& entry : log->entries) {
      const std::string line = std::visit(Text{}, entry);
      out += line.empty() ? " #" + std::to_string(entry.index()) : "\n    " + line;
    }
  } else if (const auto* failed = std::get_if<msg::TaskFailed>(&message)) {
    out += " " + std::to_string(failed->op.value & 0xFFFFFF) + " on d" +
           std::to_string(failed->device.value) + ", point " + std::to_string(failed->point) + ": " +
           failed->why.message;
  } else if (const auto* done = std::get_if<msg::GraphDone>(&message)) {
    out += " request " + std::to_string(done->request) + ": " + std::string(name_of(done->outcome.code));
  } else if (const auto* progress = std::get_if<msg::Progress>(&message)) {
    for (const auto& op : progress->ops) {
      out += " " + std::to_string(op.op.value & 0xFFFFFF) + " on d" + std::to_string(op.device.value) + ": " +
             std::to_string(op.completed);
    }
  } else if (const auto* submit = std::get_if<msg::Submit>(&message)) {
    out += " request " + std::to_string(submit->request) + ", " + std::to_string(submit->ops.size()) + " ops";
  }
  return out;
}

std::string text(const msg::BlockRef& block) {
  return "a" + std::to_string(block.array.value & 0xFFFFFF) + '/' + std::to_string(block.block);
}

std::string way(DeviceId from, DeviceId to) {
  return " d" + std::to_string(from.value) + " > d" + std::to_string(to.value);
}

std::string user(OpId op) { return " for " + std::to_string(op.value & 0xFFFFFF); }

bool tracing(char what) {
  static const char* on = std::getenv("TILEWISE_SIM_TRACE");
  return on != nullptr && (what == '1' || *on == what);
}

}  // namespace

// Only with TILEWISE_SIM_TRACE=2: what peers say of blocks, when it is sent.
void World::trace(WorkerId from, WorkerId to, const msg::PeerBatch& batch) const {
  if (!tracing('2')) return;
  const auto line = [&](const std::string& said) {
    std::cerr << now_ << " p" << from.value << " to p" << to.value << ' ' << said << '\n';
  };
  for (const msg::Subscribe& s : batch.subscribes)
    line("subscribe " + text(s.block) + way(s.from, s.to) + user(s.op));
  for (const msg::Offer& o : batch.offers)
    line("offer " + text(o.block) + way(o.from, o.to) + user(o.op) +
         (o.failed.ok() ? "" : " failed: " + std::string(name_of(o.failed.code))));
  for (const msg::Grant& g : batch.grants) line("grant " + text(g.block) + way(g.from, g.to));
  for (const msg::Relay& r : batch.relays) line("relay " + text(r.block) + way(r.from, r.to));
  for (const msg::Done& d : batch.dones) line("done " + text(d.block) + way(d.from, d.to) + user(d.op));
  for (const msg::Gone& g : batch.gones) line("gone " + text(g.block) + way(g.from, g.to));
  for (const msg::Probe& p : batch.probes) line("probe" + way(p.from, p.to));
}

// Only with TILEWISE_SIM_TRACE=3: what goes to tiers below memory, and comes back.
void World::trace(int worker, const worker::TierIo& io) const {
  if (!tracing('3')) return;
  const bool disk = io.tier == worker::Tier::kDisk;
  std::cerr << now_ << " worker " << worker << " device " << io.device << ' '
            << (io.from >= 0 ? "demotes"
                : io.write   ? "writes"
                             : "reads")
            << ' ' << io.bytes << " bytes, ";
  if (io.tier == worker::Tier::kNeighbour)
    std::cerr << "neighbour " << io.lodging.device.value << ' ' << io.lodging.slab << ':'
              << io.lodging.offset;
  else
    std::cerr << (disk ? "disk " : "pinned ") << io.at;
  if (io.from >= 0)
    std::cerr << ", pinned " << io.from << '\n';
  else
    std::cerr << ", memory " << io.memory.slab << ':' << io.memory.offset << '\n';
}

void World::trace(int worker, const worker::Relocate& move) const {
  if (!tracing('3')) return;
  std::cerr << now_ << " worker " << worker << " device " << move.device << " moves " << move.bytes
            << " bytes, memory " << move.from.slab << ':' << move.from.offset << " to " << move.to.slab << ':'
            << move.to.offset << '\n';
}

void World::trace(scheduler::Conn conn, const char* way, const msg::Message& message) const {
  if (tracing('1'))
    std::cerr << now_ << " scheduler " << way << ' ' << conn.value << ' ' << text(message) << '\n';
}

}  // namespace tilewise::sim
