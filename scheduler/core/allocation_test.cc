// The price of planning must not depend on the number of blocks: everything allocated in a step is counted.
#include "core_world.h"

#include <tilewise/ir/infer.h>

#include <cstdlib>
#include <new>

namespace {
std::size_t allocated_bytes = 0, allocations = 0;
}

void* operator new(std::size_t bytes) {
  allocated_bytes += bytes, ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes,
                   const std::nothrow_t&) noexcept {  // stable_sort asks for its buffer this way
  allocated_bytes += bytes, ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace tilewise::scheduler::test {
namespace {

struct Cost {
  std::size_t bytes = 0, count = 0;
};

Cost cost_of_submitting(World& w, std::uint64_t request, std::vector<ir::Op> ops,
                        std::vector<std::uint64_t> holds) {
  std::vector<Event> events;
  events.push_back(Received{Conn{10}, msg::Submit{request, 0, std::move(ops), std::move(holds)}});
  std::vector<Action> actions;
  const std::size_t bytes = allocated_bytes, count = allocations;
  w.core.step(events, w.now, actions);
  const Cost cost{allocated_bytes - bytes, allocations - count};
  for (const Action& action : actions) {
    const auto* sent = std::get_if<Send>(&action);
    const auto* reply = sent == nullptr ? nullptr : std::get_if<msg::SubmitReply>(&sent->message);
    if (reply != nullptr) REQUIRE_MESSAGE(reply->outcome.ok(), reply->outcome.message);
  }
  w.core.check_invariants();
  return cost;
}

// Elementwise, a transposed reader, a matrix product and a full reduction over n x n blocks.
std::vector<ir::Op> program(std::int64_t n, std::uint64_t first) {
  const ir::Grid g = grid({4 * n, 4 * n}, {4, 4});
  ir::Op turned = map(first + 1, g, {first, first});
  turned.operands[1].view = *ir::View::identity(g.shape()).transpose();
  ir::Op sum;
  sum.kind = ir::OpKind::kReduce;
  sum.operands = {{first + 2, ir::View::identity(g.shape())}};
  sum.space = g;
  sum.outputs = {{first + 3, ir::DType::kFloat64, ir::Grid({ir::DimGrid::whole(1), ir::DimGrid::whole(1)})}};
  sum.attrs = ir::ReduceAttrs{{{load(0)}}, ir::ReduceKind::kSum, 3};
  return {random(first, g), turned, matmul(first + 2, g, first + 1, g, first), sum};
}

TEST_CASE("planning 10^7 blocks costs no more than planning 10^4") {
  World w;
  for (std::uint32_t i = 1; i <= 4; ++i) w.add_worker(i, 4, "w" + std::to_string(i));
  w.join(10, w.client());
  cost_of_submitting(w, 1, program(100, 100), {103});  // tables grow to their first sizes
  const Cost small = cost_of_submitting(w, 2, program(100, 200), {203});
  const Cost large = cost_of_submitting(w, 3, program(3200, 300), {303});
  MESSAGE("10^4 blocks: " << small.bytes << " bytes in " << small.count
                          << " allocations; 10^7 blocks: " << large.bytes << " in " << large.count);
  CHECK(large.bytes < (4u << 20));  // policies that search look at a bounded number of points
  CHECK(large.count < 2 * small.count);
}

}  // namespace
}  // namespace tilewise::scheduler::test
