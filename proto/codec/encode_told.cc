// What workers tell when they are asked: steps, blocks, links.
#include "writers.h"

namespace tilewise::codec {

void write(wire::TraceReply::Builder t, const msg::TraceReply& m) {
  t.setNonce(m.nonce);
  t.setWorker(m.worker.value);
  t.setOf(m.of);
  t.setLost(m.lost);
  auto families = t.initFamilies(any_count(m.families.size()));
  unsigned i = 0;
  for (const std::string& family : m.families) families.set(i++, line(family));
  each(t.initSteps(any_count(m.steps.size())), m.steps,
       [](wire::TracedStep::Builder s, const msg::TracedStep& step) {
         s.setOp(step.op.value);
         s.setGraph(step.graph.value);
         s.setPoint(step.point);
         s.setFamily(step.family);
         s.setDevice(step.device.value);
         s.setStream(step.stream);
         s.setStartNs(step.start_ns);
         s.setEndNs(step.end_ns);
         s.setKind(static_cast<std::uint8_t>(step.kind));
         s.setLane(wire::Lane{wire_enum(step.lane)});
         s.setPeer(step.peer.value);
         s.setBytes(step.bytes);
         s.setUser(step.user.value);
       });
  write_outcome(m.refused, [&] { return t.initRefused(); });
  t.setNowNs(m.now_ns);
  t.setSinceNs(m.since_ns);
  t.setCut(m.cut);
}

void write(wire::BlocksReply::Builder r, const msg::BlocksReply& m) {
  r.setNonce(m.nonce);
  r.setWorker(m.worker.value);
  r.setOf(m.of);
  write_outcome(m.refused, [&] { return r.initRefused(); });
  each(r.initCopies(any_count(m.copies.size())), m.copies,
       [](wire::BlocksReply::Copy::Builder c, const msg::BlockCopy& copy) {
         c.setBlock(copy.block);
         c.setDevice(copy.device.value);
         c.setState(static_cast<std::uint8_t>(copy.state));
         c.setOwned(copy.owned);
         c.setBytes(copy.bytes);
         c.setFrom(copy.from.value);
       });
}

void write(wire::LinkProbed::Builder p, const msg::LinkProbed& m) {
  p.setNonce(m.nonce);
  p.setEnd(static_cast<std::uint8_t>(m.end));
  p.setMapped(m.mapped);
  each(p.initSizes(any_count(m.sizes.size())), m.sizes,
       [](wire::LinkProbed::Size::Builder s, const msg::ProbedSize& size) {
         s.setBytes(size.bytes);
         s.setTransfers(size.transfers);
         s.setTookNs(size.took_ns);
         s.setLane(wire::Lane{wire_enum(size.lane)});
       });
  p.setWhy(line(m.why));
}

}  // namespace tilewise::codec
