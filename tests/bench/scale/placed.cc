#include "placed.h"

#include <tilewise/place/place.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace tilewise::scale {

Placed place_and_run(Control& control, const Program& program) {
  Placed out;
  const msg::Plan& plan = control.submit(program);
  if (std::getenv("BENCH_VERBOSE") != nullptr) {
    for (const msg::PlannedOp& op : plan.ops)
      std::printf("    %s %s: %s\n", std::string(ir::name_of(op.op.kind)).c_str(),
                  to_string(op.op.space).c_str(), place::describe(op.placement).c_str());
  }
  out.graph = unroll(plan);
  out.owners = owners(out.graph, plan, control.machine().devices);
  out.outcome = run(out.graph, control.machine(), out.owners, control.reporter(out.graph));
  control.deliver();
  if (!control.graph_done())
    throw std::runtime_error(program.name + ": the core does not think that it is done");
  out.core_s = control.take_core_s();
  out.wire = control.take_wire();
  return out;
}

}  // namespace tilewise::scale
