#include "control.h"

#include <tilewise/base/check.h>
#include <tilewise/ir/cost.h>

#include <algorithm>
#include <chrono>

namespace tilewise::scale {
namespace {

constexpr double kReportEveryS = 0.01;
const scheduler::Conn kClient{1};

scheduler::Options options() {
  scheduler::Options out;
  out.max_peers = 20'000;
  out.silence_ns = out.ping_every_ns = 1'000'000 * kSecond;  // nobody dies here
  out.max_recompute_ns = 0;                                  // nor has second copies made of what takes long
  return out;
}

msg::Join join_of(const Layout& layout, int worker) {
  msg::Join join;
  join.name = "w" + std::to_string(worker);
  join.software_version = "1";
  join.host_id = "h" + std::to_string(worker / layout.workers_a_host);
  for (int d = 0; d < layout.devices_a_worker; ++d)
    join.devices.push_back(
        {"d" + std::to_string(d), layout.kind, "paper", "paper", std::int64_t{1} << 40, 1});
  for (const char* kernel : {"paper.stencil", "paper.row"}) join.plugins.push_back({kernel, "1", 1});
  return join;
}

}  // namespace

Control::Control(const Layout& layout) : layout_(layout), core_(options()) {
  msg::Join client;
  client.role = msg::Role::kClient;
  client.name = "client";
  client.software_version = "1";
  client.devices = {{"host:0"}};
  step(kClient, client);
  workers_.resize(static_cast<std::size_t>(layout.hosts * layout.workers_a_host));
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    step(scheduler::Conn{static_cast<std::uint32_t>(w + 2)}, join_of(layout, static_cast<int>(w)));
    for (int d = 0; d < layout.devices_a_worker; ++d) {
      // Ids are given in the order of joining; the client has the first.
      place::Device device{DeviceId{static_cast<std::uint32_t>(machine_.devices.size() + 2)}, layout.kind};
      device.host = static_cast<std::uint32_t>(w) / static_cast<std::uint32_t>(layout.workers_a_host);
      device.worker = WorkerId{static_cast<std::uint32_t>(w + 2)};
      machine_.devices.push_back(device);
    }
  }
  machine_.slower = layout.slower;
}

void Control::step(scheduler::Conn from, msg::Message message) {
  std::vector<scheduler::Event> events;
  events.push_back(scheduler::Received{from, std::move(message)});
  std::vector<scheduler::Action> actions;
  const auto before = std::chrono::steady_clock::now();
  core_.step(events, now_, actions);
  core_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  if (counts_) encode(actions);
  perform(actions);
}

void Control::encode(const std::vector<scheduler::Action>& actions) {
  const auto before = std::chrono::steady_clock::now();
  for (const scheduler::Action& action : actions) {
    const auto* sent = std::get_if<scheduler::Send>(&action);
    const auto* log = sent == nullptr ? nullptr : std::get_if<msg::Log>(&sent->message);
    if (log == nullptr || sent->to == kClient) continue;
    const Status fits = buffer_.encode(*log);
    TW_CHECK(fits.has_value(), "a plan does not fit a message: " + (fits ? "" : fits.error().message));
    ++wire_.messages;
    wire_.bytes += static_cast<std::int64_t>(buffer_.bytes().size());
  }
  buffer_.forget();
  wire_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

void Control::perform(std::vector<scheduler::Action>& actions) {
  for (scheduler::Action& action : actions) {
    auto* sent = std::get_if<scheduler::Send>(&action);
    if (sent == nullptr) continue;
    if (auto* reply = std::get_if<msg::SubmitReply>(&sent->message)) {
      TW_CHECK(reply->outcome.ok(), "the core refuses a program: " + reply->outcome.message);
      accepted_ = true;
    }
    if (auto* explanation = std::get_if<msg::Explanation>(&sent->message))
      explanation_ = std::move(*explanation);
    if (const auto* done = std::get_if<msg::GraphDone>(&sent->message)) graph_done_ = done->outcome.ok();
    if (const auto* refusal = std::get_if<msg::Refusal>(&sent->message))
      TW_CHECK(false, "the core refuses a message: " + refusal->why.message);
    auto* log = std::get_if<msg::Log>(&sent->message);
    if (log == nullptr || sent->to != scheduler::Conn{2}) continue;
    for (const msg::LogEntry& entry : log->entries) {
      if (const auto* plan = std::get_if<msg::Plan>(&entry)) {
        plan_ = *plan;
        if (plan_.keep_as != 0) kept_.emplace(plan_.keep_as, plan_);
      }
      if (const auto* replay = std::get_if<msg::Replay>(&entry))
        plan_ = msg::expand(kept_.at(replay->plan), *replay);
    }
  }
}

void Control::teach(const Program& program) {
  std::vector<std::string> families;
  for (const ir::Op& op : program.ops) families.push_back(ir::family_of(op));
  for (const char* lowered : {"reduce_blocks", "combine", "copy", "matmul_panels", "map"})
    families.emplace_back(lowered);
  std::sort(families.begin(), families.end());
  families.erase(std::unique(families.begin(), families.end()), families.end());
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    msg::Progress progress;
    for (int i = 0; i < layout_.devices_a_worker; ++i) {
      const std::size_t d =
          w * static_cast<std::size_t>(layout_.devices_a_worker) + static_cast<std::size_t>(i);
      for (const std::string& family : families)
        progress.families.push_back({machine_.devices[d].id, family, 1000,
                                     static_cast<std::int64_t>(1e9 * machine_.ratio(d)), 1'000'000'000});
    }
    step(scheduler::Conn{static_cast<std::uint32_t>(w + 2)}, std::move(progress));
  }
}

msg::Submit Control::request(const Program& program) {
  msg::Submit submit{++request_, 0, program.ops, program.holds};
  std::uint64_t highest = names_;  // programs name their arrays from 1
  for (ir::Op& op : submit.ops) {
    for (ir::Operand& operand : op.operands) operand.array += names_;
    for (ir::OutputSpec& output : op.outputs) highest = std::max(highest, output.array += names_);
  }
  for (std::uint64_t& held : submit.holds) held += names_;
  names_ = highest;
  return submit;
}

msg::Explanation Control::explain(const Program& program) {
  explanation_ = {};
  msg::Explain question;
  question.submit = request(program);
  step(kClient, std::move(question));
  TW_CHECK(explanation_.outcome.ok(), "the core explains nothing: " + explanation_.outcome.message);
  return std::move(explanation_);
}

const msg::Plan& Control::submit(const Program& program) {
  if (!layout_.slower.empty()) teach(program);
  take_core_s();
  accepted_ = graph_done_ = false;
  wire_ = {};
  counts_ = true;
  step(kClient, request(program));
  counts_ = false;
  TW_CHECK(accepted_ && !plan_.ops.empty(), "a submission brought no plan");
  return plan_;
}

Finished Control::reporter(const Unrolled& graph) {
  done_.assign(graph.ops.size(), std::vector<std::int64_t>(machine_.devices.size(), 0));
  for (Worker& worker : workers_) worker = {};
  for (const msg::PlannedOp& planned : plan_.ops) {
    if (planned.op.kind == ir::OpKind::kFetch) continue;
    for (std::size_t d = 0; d < machine_.devices.size(); ++d)
      workers_[d / static_cast<std::size_t>(layout_.devices_a_worker)].left +=
          planned.placement.owned_count(machine_.devices[d].id);
  }
  return [this, &graph](double now, std::uint32_t task, std::int32_t device) {
    const auto d = static_cast<std::size_t>(device);
    const std::size_t w = d / static_cast<std::size_t>(layout_.devices_a_worker), op = graph.op_of[task];
    Worker& worker = workers_[w];
    const std::int64_t done = ++done_[op][d];
    const DeviceId id = machine_.devices[d].id;
    const auto known = std::find_if(worker.dirty.begin(), worker.dirty.end(), [&](const msg::OpProgress& p) {
      return p.op == graph.ops[op].id && p.device == id;
    });
    if (known == worker.dirty.end())
      worker.dirty.push_back({graph.ops[op].id, id, done, 0});
    else
      known->completed = done;
    if (--worker.left == 0 || now - worker.reported_s >= kReportEveryS) report(w, now);
  };
}

void Control::report(std::size_t w, double now) {
  Worker& worker = workers_[w];
  Report& report = reports_.emplace_back(Report{now, w, {}});
  report.progress.ops = std::exchange(worker.dirty, {});
  worker.reported_s = now;
  const auto each = static_cast<std::size_t>(layout_.devices_a_worker);
  for (std::size_t d = w * each; d < (w + 1) * each; ++d) {
    msg::DeviceStats stats;
    stats.device = machine_.devices[d].id;
    report.progress.devices.push_back(stats);
  }
}

void Control::deliver() {
  const TimeNs start = now_;
  std::vector<scheduler::Event> events;
  std::vector<scheduler::Action> actions;
  const auto before = std::chrono::steady_clock::now();
  for (Report& report : reports_) {
    now_ = std::max(now_, start + static_cast<TimeNs>(report.at_s * 1e9));
    events.clear();
    events.push_back(scheduler::Received{scheduler::Conn{static_cast<std::uint32_t>(report.worker + 2)},
                                         std::move(report.progress)});
    core_.step(events, now_, actions);
  }
  core_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  reports_.clear();
  encode(actions);
  perform(actions);
}

Wire Control::take_wire() { return std::exchange(wire_, {}); }

double Control::take_core_s() { return std::exchange(core_s_, 0.0); }

}  // namespace tilewise::scale
