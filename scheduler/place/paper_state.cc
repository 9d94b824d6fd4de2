#include "paper_state.h"

#include <algorithm>
#include <utility>

namespace tilewise::place {

PaperState::PaperState(std::span<const SimOp> ops, std::span<const SimArray> arrays,
                       std::span<const Device> devices, const Speeds& speeds, const SimOptions& options,
                       bool bounded, Simulation& out)
    : ops_(ops), arrays_(arrays), speeds_(speeds), options_(options), out_(out), bounded_(bounded) {
  for (std::size_t d = 0; d < devices.size(); ++d) {
    Place& there = places_[static_cast<std::size_t>(add_place(devices[d], false))];
    if (!bounded || devices[d].memory_bytes == 0) continue;
    std::vector<PaperMemory::Tier> below;
    if (d < options.below.size())
      for (const SimTier& tier : options.below[d]) below.push_back({tier.bytes, tier.bytes_per_s});
    there.memory.emplace(devices[d].memory_bytes, std::move(below));
  }
  out_.ops.resize(ops.size());
  for (const Device& device : devices) {
    const std::int64_t bytes = device.load_bytes;
    out_.devices.push_back({device.id, 0, bytes, bytes, bytes, 0});
  }
}

Index PaperState::add_place(const Device& device, bool client) {
  places_.push_back({});
  places_.back().device = device;
  places_.back().client = client;
  places_.back().free_streams = std::max(1, device.streams);
  places_.back().queues.resize(options_.graphs.size());
  places_.back().bytes = device.load_bytes;
  place_of_[device.id] = static_cast<Index>(places_.size() - 1);
  return static_cast<Index>(places_.size() - 1);
}

Index PaperState::place(DeviceId id) {  // clients' endpoints and devices that left are added as they are met
  const auto it = place_of_.find(id);
  return it != place_of_.end() ? it->second : add_place({.id = id, .host = ~0u}, true);
}

Index PaperState::copy_at(std::size_t array, std::int64_t block, Index device) {
  const SimArray& source = arrays_[array];
  const auto [it, fresh] = first_.try_emplace(
      (static_cast<std::uint64_t>(array) << 32) | static_cast<std::uint64_t>(block), kNone);
  const ir::Index at = ir::unravel(block, source.source.grid.counts());
  if (fresh) {
    Copy home;
    home.array = array;
    home.bytes =
        source.source.grid.box(at).volume() * static_cast<std::int64_t>(ir::size_of(source.source.dtype));
    home.device = place(source.placement->owner(at));
    home.ready = home.in_memory = source.exists;
    it->second = add(std::move(home));
  }
  for (Index c = it->second; c != kNone; c = copies_[static_cast<std::size_t>(c)].next) {
    if (copies_[static_cast<std::size_t>(c)].device == device) return c;
  }
  Copy copy;
  copy.array = array;
  copy.bytes = at_(it->second).bytes;
  copy.device = device;
  copy.home = it->second;
  const Place& there = places_[static_cast<std::size_t>(device)];
  copy.mapped = !there.client && !owner(it->second).client && link(it->second, device).mapped;
  copy.keeps = source.held && source.placement->holds(at, there.device.id);
  copy.next = at_(it->second).next;
  const Index made = add(std::move(copy));
  at_(it->second).next = made;
  ++at_(it->second).uses;
  return made;
}

Index PaperState::add(Copy copy) {
  copy.asked = for_asked_;
  copy.reader = added_;
  copies_.push_back(std::move(copy));
  return static_cast<Index>(copies_.size() - 1);
}

LinkSpeed PaperState::link(Index home, Index device) {
  const Place &from = owner(home), &to = places_[static_cast<std::size_t>(device)];
  if (from.client || to.client) return {options_.client_bytes_per_s, 30e-6, false};
  return speeds_.link(from.device, to.device);
}

void PaperState::take(Index copy) {
  Copy& c = at_(copy);
  if (std::exchange(c.in_memory, true)) return;
  Place& p = owner(copy);
  p.bytes += rounded(c.bytes);
  if (p.memory) p.memory->add(copy, rounded(c.bytes));
  if (static_cast<std::size_t>(c.device) < out_.devices.size() && !p.memory) {
    SimDevice& device = out_.devices[static_cast<std::size_t>(c.device)];
    device.bytes_peak = std::max(device.bytes_peak, p.bytes);
  }
}

void PaperState::let_go(Index copy) {
  Copy& c = at_(copy);
  if (c.uses > 0 || !c.ready) return;
  if (c.home != kNone && c.mapped) discharge(c.home);
  if (arrays_[c.array].held && (c.home == kNone || c.keeps)) return rest(copy);
  if (!std::exchange(c.in_memory, false)) return;
  Place& p = owner(copy);
  p.bytes -= rounded(c.bytes);
  if (p.memory) p.memory->remove(copy), p.stirred = true;
}

void PaperState::discharge(Index copy) {
  if (--at_(copy).uses == 0) let_go(copy);
}

void PaperState::furnish() {
  std::vector<std::int64_t> others;
  for (const Place& here : places_) others.push_back(here.memory ? here.device.load_bytes : 0);
  for (Index c = 0; c < static_cast<Index>(copies_.size()); ++c) {
    if (!owner(c).memory || !at_(c).in_memory) continue;
    owner(c).memory->add(c, rounded(at_(c).bytes));
    others[static_cast<std::size_t>(at_(c).device)] -= rounded(at_(c).bytes);
    rest(c);
  }
  for (std::size_t p = 0; p < places_.size(); ++p) {
    if (!places_[p].memory) continue;
    PaperMemory& memory = *places_[p].memory;
    const std::int64_t piece = std::max<std::int64_t>(256, memory.limit() / 64);
    for (Index number = -2; others[p] > 0; --number, others[p] -= piece) {
      memory.add(number, std::min(piece, others[p]));
      memory.rest(number, PaperMemory::kNever);
    }
    memory.settle();
    out_.devices[p].bytes_peak = memory.bytes();
  }
}

bool PaperState::is_lowest(Place& here, Index t) {
  while (here.lowest < here.tasks.size()) {
    const Task& task = tasks_[static_cast<std::size_t>(here.tasks[here.lowest])];
    if (task.next < task.steps) break;
    ++here.lowest;
  }
  return here.lowest < here.tasks.size() && here.tasks[here.lowest] == t;
}

void PaperState::note_reader(Index copy, Index task) {
  for (Index c = copy; c != kNone; c = at_(c).home) {
    std::vector<Index>& readers = at_(c).readers;
    if (readers.empty() || readers.back() != task) readers.push_back(task);
  }
}

std::int64_t PaperState::next_use(Copy& c) const {
  while (c.read < c.readers.size()) {
    const Task& task = tasks_[static_cast<std::size_t>(c.readers[c.read])];
    if (task.next < task.steps) return c.readers[c.read];
    ++c.read;
  }
  return PaperMemory::kNever;
}

void PaperState::rest(Index copy) {
  Copy& c = at_(copy);
  Place& p = owner(copy);
  if (!p.memory || !c.in_memory || !c.ready || c.in_use > 0) return;
  p.memory->rest(copy, next_use(c));
}

void PaperState::use_memory(Index copy) {
  Copy& c = at_(copy);
  ++c.in_use;
  if (owner(copy).memory) owner(copy).memory->use(copy);
}

void PaperState::end_use(Index copy) {
  --at_(copy).in_use;
  rest(copy);
  owner(copy).stirred = true;
}

void PaperState::note_peak(Index p) {
  const Place& here = places_[static_cast<std::size_t>(p)];
  SimDevice& device = out_.devices[static_cast<std::size_t>(p)];
  device.bytes_peak = std::max(device.bytes_peak, here.memory->bytes());
}

PaperState::Wants PaperState::wants(const Task& task) {
  const SimOp& op = ops_[task.op];
  const PaperMemory& memory = *places_[static_cast<std::size_t>(task.device)].memory;
  Wants out;
  op.geometry->reads(op.geometry->point(task.point), task.next, reads_);
  for (const ir::Read& read : reads_) {
    const Index copy = copy_at(op.inputs[read.operand], read.block, task.device);
    if (at_(copy).mapped && at_(copy).home != kNone) continue;
    const std::int64_t bytes = rounded(at_(copy).bytes);
    out.inputs += bytes;
    if (memory.is_below(copy)) out.missing += bytes;
  }
  const ir::Donors donors = donors_of(task, op);
  for (std::size_t o = 0; o < task.outputs.size(); ++o) {
    const std::int64_t bytes = rounded(at_(task.outputs[o]).bytes);
    out.outputs += bytes;
    if (task.next == 0 && donors[o] < 0) out.missing += bytes;
  }
  return out;
}

bool PaperState::enter(Index t, double& at, bool force) {
  Task& task = tasks_[static_cast<std::size_t>(t)];
  Place& here = places_[static_cast<std::size_t>(task.device)];
  if (!here.memory) return true;
  const Wants w = wants(task);
  const SimOp& op = ops_[task.op];
  std::vector<Index> inputs;  // they stay while there is looked for room
  for (const ir::Read& read : reads_)
    inputs.push_back(copy_at(op.inputs[read.operand], read.block, task.device));
  for (const Index copy : inputs) use_memory(copy);
  const bool lowest = is_lowest(here, t);
  const bool room = w.missing == 0 || here.memory->make_room(w.missing, lowest ? 0 : here.reserve, t, at) ||
                    (lowest && here.memory->make_room(w.missing, 0, -1, at));
  if (!room && !force) {
    for (const Index copy : inputs) --at_(copy).in_use, rest(copy);
    return false;
  }
  for (const Index copy : inputs) {
    if (here.memory->is_below(copy)) here.memory->bring_back(copy, at);
    // What is read in place is read there.
    const Index home = at_(copy).home;
    if (home != kNone && at_(copy).mapped && owner(home).memory && owner(home).memory->is_below(home))
      at = owner(home).memory->read_below(home, at);
  }
  return true;
}

void PaperState::leave_step(const Task& task) {
  for (const ir::Read& read : reads_)
    end_use(copy_at(ops_[task.op].inputs[read.operand], read.block, task.device));
}

bool PaperState::make_room_for(Index copy) {
  Place& to = owner(copy);
  double at = now_;
  const std::int64_t task = next_use(at_(copy));
  if (!to.memory || to.memory->make_room(rounded(at_(copy).bytes), to.reserve, task, at)) return true;
  return task != PaperMemory::kNever && is_lowest(to, static_cast<Index>(task)) &&
         to.memory->make_room(rounded(at_(copy).bytes), 0, -1, at);
}

void PaperState::tell_need(std::size_t op, const Place& here, std::int64_t inputs, std::int64_t outputs,
                           std::int64_t missing) {
  out_.fits = false;
  const bool told = std::any_of(out_.needs.begin(), out_.needs.end(),
                                [&](const SimNeed& n) { return n.device == here.device.id; });
  if (told) return;
  const std::int64_t there = here.memory ? here.memory->bytes() : 0;
  out_.needs.push_back({op, here.device.id, there + missing, inputs, outputs});
}

ir::Donors PaperState::donors_of(const Task& task, const SimOp& op) {
  const std::size_t outputs =
      op.op->kind == ir::OpKind::kMap && task.steps == 1 && task.next == 0 ? task.outputs.size() : 0;
  return ir::match_donors(outputs, reads_.size(), [&](std::size_t o, std::size_t i) {
    const ir::Read& read = reads_[i];
    const SimArray& source = arrays_[op.inputs[read.operand]];
    const Copy& c = at_(copy_at(op.inputs[read.operand], read.block, task.device));
    return c.in_memory && c.uses == 1 && !source.held && c.bytes == at_(task.outputs[o]).bytes &&
           ir::may_overwrite(*op.op, o, read.operand, source.source.dtype, source.source.grid);
  });
}

}  // namespace tilewise::place
