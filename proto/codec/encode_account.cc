// What is told of plans: explanations, accounts, and what does not fit.
#include "writers.h"

namespace tilewise::codec {
namespace {

void write(wire::OpAccount::Builder b, const msg::OpAccount& op) {
  b.setOp(line(op.op));
  b.setTasks(op.tasks);
  b.setSteps(op.steps);
  b.setFlops(op.flops);
  b.setBytesWritten(op.bytes_written);
  b.setBytesMoved(op.bytes_moved);
  b.setBeginS(op.begin_s);
  b.setEndS(op.end_s);
  b.setBusyS(op.busy_s);
  b.setCriticalS(op.critical_s);
  each(b.initChoices(any_count(op.choices.size())), op.choices,
       [](wire::ChoiceAccount::Builder c, const msg::ChoiceAccount& choice) {
         c.setPolicy(line(choice.policy));
         c.setPlacement(line(choice.placement));
         c.setSeconds(choice.seconds);
       });
}

void write(wire::Measured::Builder b, const msg::Measured& m) {
  b.setRunning(m.running);
  b.setShared(!m.alone);
  write_outcome(m.outcome, [&] { return b.initOutcome(); });
  b.setSeconds(m.seconds);
  b.setAgoS(m.ago_s);
  b.setTasks(m.tasks);
  b.setTasksDone(m.tasks_done);
  b.setForgotten(m.forgotten);
  each(b.initOps(any_count(m.ops.size())), m.ops, [](wire::MeasuredOp::Builder o, const msg::MeasuredOp& op) {
    o.setId(op.id.value);
    o.setOp(op.op);
    o.setTasks(op.tasks);
    o.setFailed(op.failed);
    o.setBytesMoved(op.bytes_moved);
    o.setBeginS(op.begin_s);
    o.setEndS(op.end_s);
    o.setBusyS(op.busy_s);
    o.setBusiestS(op.busiest_s);
  });
  each(b.initDevices(any_count(m.devices.size())), m.devices,
       [](wire::MeasuredDevice::Builder d, const msg::MeasuredDevice& device) {
         d.setDevice(device.device.value);
         d.setTasks(device.tasks);
         d.setBytesBefore(device.bytes_before);
         d.setBytesPeak(device.bytes_peak);
         d.setBytesSpilled(device.bytes_spilled);
         d.setBytesReturned(device.bytes_returned);
         d.setBusyS(device.busy_s);
       });
  each(b.initLinks(any_count(m.links.size())), m.links,
       [](wire::MeasuredLink::Builder l, const msg::MeasuredLink& link) {
         l.setFrom(link.from.value);
         l.setTo(link.to.value);
         l.setLane(wire::Lane{wire_enum(link.lane)});
         l.setBlocks(link.blocks);
         l.setBytes(link.bytes);
         l.setBusyS(link.busy_s);
       });
}

}  // namespace

void write(capnp::List<wire::NeedAccount>::Builder b, const std::vector<msg::NeedAccount>& needs) {
  each(b, needs, [](wire::NeedAccount::Builder n, const msg::NeedAccount& need) {
    auto devices = n.initDevices(count(need.devices.size(), msg::kMaxNeeds, "devices of a need"));
    unsigned i = 0;
    for (const DeviceId device : need.devices) devices.set(i++, device.value);
    n.setNeededBytes(need.needed_bytes);
    n.setMemoryBytes(need.memory_bytes);
    n.setBelowBytes(need.below_bytes);
    n.setOp(line(need.op));
    n.setInputBytes(need.input_bytes);
    n.setOutputBytes(need.output_bytes);
    n.setScratchBytes(need.scratch_bytes);
    n.setHeldBytes(need.held_bytes);
  });
}

void write(wire::Explanation::Builder b, const msg::Explanation& m) {
  b.setRequest(m.request);
  write_outcome(m.outcome, [&] { return b.initOutcome(); });
  b.setSimulated(m.simulated);
  b.setTasks(m.tasks);
  b.setSteps(m.steps);
  b.setFlops(m.flops);
  b.setSeconds(m.seconds);
  b.setBoundS(m.bound_s);
  b.setOpCount(m.op_count);
  each(b.initPasses(any_count(m.passes.size())), m.passes,
       [](wire::PassAccount::Builder p, const msg::PassAccount& pass) {
         p.setName(line(pass.name));
         p.setOps(pass.ops);
         p.setDump(text(pass.dump, limits::kMaxMessageBytes, "bytes of a dump"));
       });
  each(b.initOps(any_count(m.ops.size())), m.ops,
       [](wire::OpAccount::Builder o, const msg::OpAccount& op) { write(o, op); });
  each(b.initDevices(any_count(m.devices.size())), m.devices,
       [](wire::DeviceAccount::Builder d, const msg::DeviceAccount& device) {
         d.setDevice(device.device.value);
         d.setTasks(device.tasks);
         d.setBytesBefore(device.bytes_before);
         d.setBytesPeak(device.bytes_peak);
         d.setBytesAfter(device.bytes_after);
         d.setBytesMemory(device.bytes_memory);
         d.setBusyS(device.busy_s);
         d.setBytesBelow(device.bytes_below);
         d.setBytesSpilled(device.bytes_spilled);
         d.setBytesReturned(device.bytes_returned);
         d.setSpillS(device.spill_s);
       });
  each(b.initLinks(any_count(m.links.size())), m.links,
       [](wire::LinkAccount::Builder l, const msg::LinkAccount& link) {
         l.setFrom(link.from.value);
         l.setTo(link.to.value);
         l.setMapped(link.mapped);
         l.setBlocks(link.blocks);
         l.setBytes(link.bytes);
         l.setBusyS(link.busy_s);
         l.setBytesPerS(link.bytes_per_s);
         l.setMeasured(link.measured);
       });
  each(b.initCritical(any_count(m.critical.size())), m.critical,
       [](wire::CriticalAccount::Builder c, const msg::CriticalAccount& step) {
         c.setOp(step.op);
         c.setDevice(step.device.value);
         c.setWhat(line(step.what));
         c.setSeconds(step.seconds);
       });
  each(b.initArrays(any_count(m.arrays.size())), m.arrays,
       [](wire::ArrayAccount::Builder a, const msg::ArrayAccount& array) {
         a.setArray(array.array);
         a.setDtype(wire::DType{wire_enum(array.dtype)});
         write(a.initGrid(), array.grid);
         write(
             a.initPlacement(count(array.placement.pieces().size(), ir::kMaxPieces, "pieces of a placement")),
             array.placement);
         a.setPlanned(array.planned);
       });
  b.setTight(!m.fits);
  if (!m.needs.empty()) write(b.initNeeds(count(m.needs.size(), msg::kMaxNeeds, "needs")), m.needs);
  b.setUnpredicted(line(m.unpredicted));
  if (m.measured.known) write(b.initMeasured(), m.measured);
}

}  // namespace tilewise::codec
