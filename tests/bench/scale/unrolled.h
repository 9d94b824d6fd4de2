// A planned graph with every task, step and read written out, so that any assignment of tasks to devices can be run on
// paper. About 30 bytes a task and 12 a read.
#pragma once
#include <tilewise/msg/msg.h>
#include <tilewise/place/speeds.h>

#include <span>
#include <string>
#include <vector>

namespace tilewise::scale {

// Tasks are numbered in plan order, then C order of points; every op has one output, so a task's number is also that of
// the block it makes.
struct Unrolled {
  struct Op {
    OpId id;
    std::string family;
    std::uint32_t first_task = 0, tasks = 0;
    bool held = false;
    ir::Shape counts;
  };
  std::vector<Op> ops;
  std::vector<std::uint32_t> op_of;       // by task
  std::vector<std::uint32_t> bytes;       // by task: of its block
  std::vector<float> step_s;              // by task: of each of its steps, on a device of ratio 1
  std::vector<std::uint32_t> first_step;  // by task, and one more
  std::vector<std::uint32_t> first_read;  // by step, and one more
  std::vector<std::uint32_t> reads;       // blocks

  std::uint32_t tasks() const { return static_cast<std::uint32_t>(op_of.size()); }
  std::uint32_t steps() const { return static_cast<std::uint32_t>(first_read.size()) - 1; }
  double work_s() const;   // of all steps
  double chain_s() const;  // of the longest chain of steps
};

// kFetch is left out. Fits 2^32 tasks, steps and reads; stops the program beyond.
Unrolled unroll(const msg::Plan& plan);

// Places in `devices` (sorted by id) of the owners that the plan's rules name.
std::vector<std::int32_t> owners(const Unrolled& graph, const msg::Plan& plan,
                                 std::span<const place::Device> devices);

}  // namespace tilewise::scale
