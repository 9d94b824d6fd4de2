// Clients of this process lend memory under numbers of slabs that are no slab's (is_foreign). Its blocks are read in place like those
// of any peer that maps; and where a task would only copy a whole one, and its lender allows it, there is no copy: the task's result
// is that block from then on, *adopted*. It takes nothing of the arena, never leaves for a tier below and is donated to nobody, since
// it must not be written; it is lent to others as blocks of ours are. Its lender hears of the end of every loan through
// Actions::given_back, also when it is lost by then: its memory is this process's, so somebody still has to let go of it.
#include "state.h"

namespace tilewise::worker {

bool Core::Impl::lent_by_client(const Copy& copy) const {
  // Not by where it lies: who copies what it was offered has memory of its own by now.
  if (!options.adopts || copy.kind == CopyKind::kProduced) return false;
  const auto lender = remote.find(copy.source.value);
  return lender != remote.end() && lender->second.client;
}

void Core::Impl::tell_done(const msg::Done& done, bool foreign) {
  if (foreign) return out->given_back.push_back(done);
  if (!remote[done.from.value].lost) batch_to(done.from).dones.push_back(done);
}

namespace {

bool copies_as_it_is(const ir::Op& op) {
  const auto& maps = op.get<ir::CopyAttrs>().maps;
  if (maps.size() != 1) return false;
  for (std::size_t d = 0; d < maps[0].size(); ++d)
    if (maps[0][d] != ir::DimMap{ir::DimMap::Kind::kSpan, static_cast<std::int8_t>(d)}) return false;
  return true;
}

}  // namespace

// True: the task is over.
bool Core::Impl::adopt(Slot t, const std::vector<Slot>& in, std::span<const BlockRead> read) {
  Task& task = tasks[t];
  OpState& op = ops[task.op];
  const ir::Op& copying = op.entry->op;
  if (!options.adopts || copying.kind != ir::OpKind::kCopy || task.admitted || task.steps != 1) return false;
  const Slot result = task.outputs[0];
  if (in.size() != 1 || copying.outputs.size() != 1 || result == kNone) return false;
  Copy& lent = copies[in[0]];
  Copy& output = copies[result];
  const ArrayState& source = arrays[lent.array];
  if (lent.kind != CopyKind::kBorrowed || !lent_by_client(lent) || !is_foreign(lent.at.slab) ||
      (lent.at.slab & kAdoptableSlab) == 0)
    return false;
  if (output.state != CopyState::kExpected || output.has_memory || lent.bytes != output.bytes ||
      lent.bytes == 0)
    return false;
  if (read[0].block != task.point || !copies_as_it_is(copying)) return false;
  if (source.dtype != copying.outputs[0].dtype || source.grid != arrays[output.array].grid) return false;
  if (!copying.operands[read[0].operand].view.is_identity(source.grid.shape())) return false;

  output.at = lent.at;
  output.adopted = true;
  adopted[result] = done_of(lent, op.run.id);
  ++counts.adopted;
  handing_over = in[0];
  discharge_read(in[0], task.op);
  handing_over = kNone;
  task.next = task.steps;
  task.state = TaskState::kRunning;
  usable(result);
  finish_task(t);
  return true;
}

// It goes, but kernels that read it may still be in flight.
void Core::Impl::give_back(Slot slot) {
  Copy& copy = copies[slot];
  DeviceState& device = devices[copy.device];
  copy.adopted = false;
  const auto owed = adopted.extract(slot);
  TW_CHECK(!owed.empty(), "nobody is owed an adopted block");
  bool busy = false;
  for (std::size_t s = 0; s < device.streams.size(); ++s)
    busy |= copy.readers[s] > device.streams[s].completed;
  if (busy)
    device.pending_dones.push_back({copy.readers, owed.mapped(), true});
  else
    tell_done(owed.mapped(), true);
  device.last_change = now;
}

}  // namespace tilewise::worker
