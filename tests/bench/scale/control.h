// The real scheduler core with workers that exist on paper: they join, take plans and report progress as workers do.
#pragma once
#include "machine.h"
#include "programs.h"

#include <tilewise/codec/codec.h>
#include <tilewise/scheduler/core.h>

#include <map>

namespace tilewise::scale {

struct Layout {
  int hosts = 1, workers_a_host = 1, devices_a_worker = 1;
  std::uint8_t kind = place::kHostKind;
  std::vector<double> slower;  // by device, as in Machine
  int devices() const { return hosts * workers_a_host * devices_a_worker; }
};

// Encoding what the core sends to workers about graphs: logs. As the daemon does: entries once, where workers share them.
struct Wire {
  std::int64_t messages = 0, bytes = 0;
  double seconds = 0;
};

class Control {
 public:
  explicit Control(const Layout& layout);

  // As the core's devices are; its speeds are told before the first submission.
  const Machine& machine() const { return machine_; }

  // What the core says of the program beforehand.
  msg::Explanation explain(const Program& program);
  // The plan that workers were sent. Stops the program where it is refused.
  const msg::Plan& submit(const Program& program);
  // To be given to run(): counts what has finished and writes reports, every 10 ms and when a worker has done its share.
  Finished reporter(const Unrolled& graph);
  // Gives the core all reports, each in a step of its own, in their order. (Not while the graph runs on paper: that
  // would empty the processor's caches in between, which no cluster does.)
  void deliver();
  bool graph_done() const { return graph_done_; }
  // Spent in the core since it has been asked last: everything from decoded messages in to messages out.
  double take_core_s();
  // The same of encoding messages. Of many alike (one a worker) some are encoded, and the others taken for as long.
  Wire take_wire();
  const scheduler::Core& core() const { return core_; }

 private:
  struct Worker {
    std::vector<msg::OpProgress> dirty;  // one an op and device
    double reported_s = 0;
    std::int64_t left = 0;  // tasks
  };
  struct Report {
    double at_s = 0;
    std::size_t worker = 0;
    msg::Progress progress;
  };
  msg::Submit request(const Program& program);
  void step(scheduler::Conn from, msg::Message message);
  void perform(std::vector<scheduler::Action>& actions);
  void encode(const std::vector<scheduler::Action>& actions);
  void teach(const Program& program);
  void report(std::size_t worker, double now);

  Layout layout_;
  Machine machine_;
  scheduler::Core core_;
  TimeNs now_ = kSecond;
  double core_s_ = 0;
  Wire wire_;
  codec::LogBuffer buffer_;
  std::uint64_t request_ = 0, names_ = 0;  // names: of arrays, so far
  msg::Plan plan_;
  msg::Explanation explanation_;
  std::map<std::uint64_t, msg::Plan> kept_;                      // by Plan::keep_as
  bool graph_done_ = false, accepted_ = false, counts_ = false;  // counts: what is sent is encoded
  std::vector<Report> reports_;
  std::vector<Worker> workers_;
  std::vector<std::vector<std::int64_t>> done_;  // by op, device: tasks
};

}  // namespace tilewise::scale
