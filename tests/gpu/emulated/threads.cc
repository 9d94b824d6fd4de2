#include "threads.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <tilewise/ir/element_types.h>
#include <ucontext.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

EmulatedIndex tilewise_emulated_index;

namespace tilewise::emulated {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10, kGuardBytes = 4096;

// Made with a context, switched by _setjmp and _longjmp: those make no system call.
struct Fiber {
  ucontext_t context;
  jmp_buf at;
  bool finished = true;
};

struct Machine {
  std::mutex mutex;  // one kernel at a time
  std::vector<std::unique_ptr<Fiber>> fibers;
  ucontext_t maker;
  jmp_buf scheduler;
  Fiber* current = nullptr;
  const EmulatedEntry* entry = nullptr;
  const void* parameters = nullptr;
  std::uint64_t launches = 0;
};
Machine& machine() {
  static Machine* const one = new Machine;  // streams may outlive main()
  return *one;
}

// A fiber's whole life: a thread of a block, then another, ...
void fiber_main() {
  Fiber* const self = machine().current;
  if (_setjmp(self->at) == 0) swapcontext(&self->context, &machine().maker);
  for (;;) {
    machine().entry->call(machine().parameters);
    self->finished = true;
    if (_setjmp(self->at) == 0) _longjmp(machine().scheduler, 1);
  }
}

void make_fibers(std::size_t count) {
  Machine& m = machine();
  while (m.fibers.size() < count) {
    auto fiber = std::make_unique<Fiber>();
    void* const stack = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) {
      std::perror("emulated GPU: a thread's stack");
      std::abort();
    }
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = static_cast<char*>(stack) + kGuardBytes;
    fiber->context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber->context, fiber_main, 0);
    m.current = fiber.get();
    swapcontext(&m.maker, &fiber->context);
    m.fibers.push_back(std::move(fiber));
  }
}

__attribute__((noinline)) void resume(Fiber* fiber) {
  machine().current = fiber;
  if (_setjmp(machine().scheduler) == 0) _longjmp(fiber->at, 1);
}

// Positions 0 .. n-1 in one of three orders: forwards, backwards, in strides.
class Turns {
 public:
  Turns(std::uint64_t order, unsigned n) : n_(n) {
    if (order % 3 == 1) first_ = n - 1, step_ = n - 1;
    if (order % 3 == 2)
      for (step_ = n / 3 | 1u; std::gcd(step_, n) != 1;) step_ += 2;
    at_ = first_;
  }
  unsigned next() {
    const unsigned now = at_;
    const std::uint64_t then = std::uint64_t{at_} + step_;
    at_ = static_cast<unsigned>(then >= n_ ? then % n_ : then);
    return now;
  }

 private:
  unsigned n_, first_ = 0, step_ = 1, at_ = 0;
};

EmulatedIndex::Three unfold(unsigned i, const unsigned (&extent)[3]) {
  return {i % extent[0], i / extent[0] % extent[1], i / extent[0] / extent[1]};
}

void run_block(const Grid& grid, unsigned threads, bool has_barriers, std::uint64_t order) {
  Machine& m = machine();
  if (!has_barriers) {
    Turns turns(order, threads);
    for (unsigned i = 0; i < threads; ++i) {
      tilewise_emulated_index.thread = unfold(turns.next(), grid.threads);
      m.entry->call(m.parameters);
    }
    return;
  }
  for (unsigned i = 0; i < threads; ++i) m.fibers[i]->finished = false;
  for (bool running = true; running; ++order) {
    running = false;
    Turns turns(order, threads);
    for (unsigned i = 0; i < threads; ++i) {
      const unsigned t = turns.next();
      Fiber* const fiber = m.fibers[t].get();
      if (fiber->finished) continue;
      tilewise_emulated_index.thread = unfold(t, grid.threads);
      resume(fiber);
      running |= !fiber->finished;
    }
  }
}

}  // namespace

void run_grid(const EmulatedEntry& entry, bool has_barriers, const void* parameters, const Grid& grid) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const unsigned threads = grid.threads[0] * grid.threads[1] * grid.threads[2];
  const unsigned blocks = grid.blocks[0] * grid.blocks[1] * grid.blocks[2];
  if (has_barriers) make_fibers(threads);
  m.entry = &entry;
  m.parameters = parameters;
  tilewise_emulated_index.block_dim = {grid.threads[0], grid.threads[1], grid.threads[2]};
  tilewise_emulated_index.grid_dim = {grid.blocks[0], grid.blocks[1], grid.blocks[2]};
  const std::uint64_t order = m.launches++;
  Turns turns(order, blocks);
  for (unsigned b = 0; b < blocks; ++b) {
    tilewise_emulated_index.block = unfold(turns.next(), grid.blocks);
    run_block(grid, threads, has_barriers, order + b);
  }
}

}  // namespace tilewise::emulated

// Threads that have ended do not take part, as on a GPU.
void tilewise_emulated_barrier() {
  using namespace tilewise::emulated;
  if (_setjmp(machine().current->at) == 0) _longjmp(machine().scheduler, 1);
}

// cvt.f32.f16 and cvt.rn.f16.f32
float tilewise_emulated_from_f16(unsigned short bits) { return tilewise::ir::float16_value(bits); }
unsigned short tilewise_emulated_to_f16(float value) { return tilewise::ir::float16_bits(value); }
