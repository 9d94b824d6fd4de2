// What is told of plans: explanations, accounts, and what does not fit.
#include "reader.h"

namespace tilewise::codec {

std::vector<msg::NeedAccount> Reader::needs(capnp::List<wire::NeedAccount>::Reader r) {
  return list<msg::NeedAccount>(r, msg::kMaxNeeds, "needs", [&](wire::NeedAccount::Reader n) {
    return msg::NeedAccount{numbers<DeviceId>(n.getDevices(), msg::kMaxNeeds, "devices of a need"),
                            n.getNeededBytes(),
                            n.getMemoryBytes(),
                            n.getBelowBytes(),
                            line(n.getOp()),
                            n.getInputBytes(),
                            n.getOutputBytes(),
                            n.getScratchBytes(),
                            n.getHeldBytes()};
  });
}

msg::Measured Reader::measured(wire::Measured::Reader r) {
  msg::Measured m;
  m.known = true;
  m.running = r.getRunning();
  m.alone = !r.getShared();
  m.outcome = outcome(r.getOutcome());
  m.seconds = r.getSeconds(), m.ago_s = r.getAgoS();
  m.tasks = r.getTasks(), m.tasks_done = r.getTasksDone();
  m.forgotten = r.getForgotten();
  m.ops = list<msg::MeasuredOp>(r.getOps(), [](wire::MeasuredOp::Reader o) {
    return msg::MeasuredOp{OpId(o.getId()), o.getOp(),   o.getTasks(), o.getFailed(),  o.getBytesMoved(),
                           o.getBeginS(),   o.getEndS(), o.getBusyS(), o.getBusiestS()};
  });
  m.devices = list<msg::MeasuredDevice>(r.getDevices(), [](wire::MeasuredDevice::Reader d) {
    return msg::MeasuredDevice{
        DeviceId(d.getDevice()), d.getTasks(),         d.getBytesBefore(), d.getBytesPeak(),
        d.getBytesSpilled(),     d.getBytesReturned(), d.getBusyS()};
  });
  m.links = list<msg::MeasuredLink>(r.getLinks(), [](wire::MeasuredLink::Reader l) {
    return msg::MeasuredLink{DeviceId(l.getFrom()),
                             DeviceId(l.getTo()),
                             enumerated<msg::Lane>(l.getLane(), msg::kLaneCount, "lane"),
                             l.getBlocks(),
                             l.getBytes(),
                             l.getBusyS()};
  });
  return m;
}

msg::OpAccount Reader::account(wire::OpAccount::Reader r) {
  msg::OpAccount op{line(r.getOp()),   r.getTasks(),  r.getSteps(), r.getFlops(), r.getBytesWritten(),
                    r.getBytesMoved(), r.getBeginS(), r.getEndS(),  r.getBusyS(), r.getCriticalS()};
  op.choices = list<msg::ChoiceAccount>(r.getChoices(), [](wire::ChoiceAccount::Reader c) {
    return msg::ChoiceAccount{line(c.getPolicy()), line(c.getPlacement()), c.getSeconds()};
  });
  return op;
}

msg::ArrayAccount Reader::account(wire::ArrayAccount::Reader r) {
  return {r.getArray(), dtype(r.getDtype()), grid(r.getGrid()), placement(r.getPlacement()), r.getPlanned()};
}

msg::Explanation Reader::explanation(wire::Explanation::Reader r) {
  msg::Explanation e;
  e.request = r.getRequest();
  e.outcome = outcome(r.getOutcome());
  e.simulated = r.getSimulated();
  e.tasks = r.getTasks(), e.steps = r.getSteps();
  e.flops = r.getFlops(), e.seconds = r.getSeconds(), e.bound_s = r.getBoundS();
  e.op_count = r.getOpCount();
  e.passes = list<msg::PassAccount>(r.getPasses(), [](wire::PassAccount::Reader p) {
    return msg::PassAccount{line(p.getName()), p.getOps(),
                            text(p.getDump(), limits::kMaxMessageBytes, "bytes of a dump")};
  });
  e.ops = list<msg::OpAccount>(r.getOps(), [&](auto o) { return account(o); });
  e.devices = list<msg::DeviceAccount>(r.getDevices(), [](wire::DeviceAccount::Reader d) {
    return msg::DeviceAccount{
        DeviceId(d.getDevice()), d.getTasks(),         d.getBytesBefore(), d.getBytesPeak(),
        d.getBytesAfter(),       d.getBytesMemory(),   d.getBusyS(),       d.getBytesBelow(),
        d.getBytesSpilled(),     d.getBytesReturned(), d.getSpillS()};
  });
  e.links = list<msg::LinkAccount>(r.getLinks(), [](wire::LinkAccount::Reader l) {
    return msg::LinkAccount{DeviceId(l.getFrom()), DeviceId(l.getTo()), l.getMapped(),    l.getBlocks(),
                            l.getBytes(),          l.getBusyS(),        l.getBytesPerS(), l.getMeasured()};
  });
  e.critical = list<msg::CriticalAccount>(r.getCritical(), [](wire::CriticalAccount::Reader c) {
    return msg::CriticalAccount{c.getOp(), DeviceId(c.getDevice()), line(c.getWhat()), c.getSeconds()};
  });
  e.arrays = list<msg::ArrayAccount>(r.getArrays(), [&](auto a) { return account(a); });
  e.fits = !r.getTight();
  e.needs = needs(r.getNeeds());
  e.unpredicted = line(r.getUnpredicted());
  if (r.hasMeasured()) e.measured = measured(r.getMeasured());
  return e;
}

}  // namespace tilewise::codec
