// Copies of a held array on devices that do not own them, so that it outlives its owners. The scheduler says where by an op of
// kind kKeep: each of its tasks reads one block and runs nothing; it is over when the device has a whole copy of its own. Claims,
// memory, transfers, losses and cancellation are those of any op. While the array is held and the op is known the copies stay: they
// may be spilled, but are not spare. See docs/design/recovery.md.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {

bool Core::Impl::is_asked(const Copy& copy) const {
  const ArrayState& array = arrays[copy.array];
  if (array.keeps.empty() || !array.held) return false;
  const ir::Index point = ir::unravel(copy.block, array.counts);
  return std::any_of(array.keeps.begin(), array.keeps.end(), [&](Slot op) {
    return ops[op].cancelled == kNone &&
           ops[op].entry->placement.owner(point) == devices[copy.device].spec.id;
  });
}

// The task's block is usable here. False: only in place, at its owner; then a copy is asked for, and the task waits. (Kernels that
// read it in place run to their end.) Of an array that was released none is taken.
bool Core::Impl::take_copy(Slot t, Slot c) {
  if (copies[c].kind != CopyKind::kBorrowed || !is_asked(copies[c])) {
    copies[c].spare = false;
    return true;
  }
  orphan(c);
  subscribe(c, tasks[t].op);
  wait_for(t, c);
  return false;
}

// What stayed for its sake alone may go.
void Core::Impl::end_keep(Slot op) {
  for (const Slot a : ops[op].operands) {
    if (a != kNone) release_soon(a);
  }
}

}  // namespace tilewise::worker
