// For tests: a core with its links, driven by lists of events; every step is followed by a full check.
#pragma once
#include <tilewise/ir/geometry.h>
#include <tilewise/scheduler/core.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>

namespace tilewise::scheduler::test {

inline ir::Grid grid(const ir::Shape& shape, const ir::Shape& block) {
  return *ir::Grid::uniform(shape, block);
}
// Of most tests: blocks of 80, 64, 32 and 512 bytes.
inline const ir::Grid kFourBlocks = grid({40}, {10}), kEightBlocks = grid({64}, {8}),
                      kFourByFour = grid({8, 8}, {2, 2}), kEightByEight = grid({64, 64}, {8, 8});

inline bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline ir::TapeInstr constant(double value) {
  ir::TapeInstr i;
  i.op = ir::TapeOp::kConst;
  i.imm_f = value;
  return i;
}
inline ir::TapeInstr load(int operand) {
  ir::TapeInstr i;
  i.op = ir::TapeOp::kLoad;
  i.imm_i = operand;
  return i;
}
inline ir::TapeInstr instr(ir::TapeOp op, int a, int b = 0) {
  ir::TapeInstr i;
  i.op = op;
  i.a = static_cast<std::uint16_t>(a);
  i.b = static_cast<std::uint16_t>(b);
  return i;
}

inline ir::Op fill(std::uint64_t out, const ir::Grid& g, double value = 1) {
  ir::Op op;
  op.kind = ir::OpKind::kMap;
  op.outputs = {{out, ir::DType::kFloat64, g}};
  op.space = g;
  op.attrs = ir::MapAttrs{{{constant(value)}}};
  return op;
}
inline ir::Op random(std::uint64_t out, const ir::Grid& g, std::int64_t key = 7) {
  ir::Op op = fill(out, g);
  ir::TapeInstr i;
  i.op = ir::TapeOp::kUniform;
  i.imm_i = key;
  op.attrs = ir::MapAttrs{{{i}}};
  return op;
}
// out = tape op over whole arrays of one grid
inline ir::Op map(std::uint64_t out, const ir::Grid& g, std::vector<std::uint64_t> in,
                  ir::TapeOp what = ir::TapeOp::kAdd) {
  ir::Op op = fill(out, g);
  ir::Tape tape;
  for (std::size_t i = 0; i < in.size(); ++i) {
    op.operands.push_back({in[i], ir::View::identity(g.shape())});
    tape.code.push_back(load(static_cast<int>(i)));
  }
  tape.code.push_back(in.size() == 1 ? instr(ir::TapeOp::kNeg, 0) : instr(what, 0, 1));
  op.attrs = ir::MapAttrs{tape};
  return op;
}
// A kernel that makes two arrays of one, block by block; workers have it that say so (kPair).
inline const msg::PluginDesc kPair{"pair", "1", 42};
inline ir::Op pair_call(std::uint64_t first, std::uint64_t second, const ir::Grid& g, std::uint64_t in) {
  ir::Op op = map(first, g, {in});
  op.kind = ir::OpKind::kCall;
  op.outputs.push_back({second, ir::DType::kFloat64, g});
  ir::CallAttrs attrs{.kernel = kPair.kernel, .version = kPair.version};
  attrs.maps.emplace_back(static_cast<std::size_t>(g.rank()), ir::DimMap{});
  op.attrs = std::move(attrs);
  return op;
}
inline ir::Op matmul(std::uint64_t out, const ir::Grid& a_grid, std::uint64_t a, const ir::Grid& b_grid,
                     std::uint64_t b) {
  ir::Op op;
  op.kind = ir::OpKind::kMatmul;
  op.operands = {{a, ir::View::identity(a_grid.shape())}, {b, ir::View::identity(b_grid.shape())}};
  op.space = ir::Grid({a_grid.dim(0), b_grid.dim(1)});
  op.outputs = {{out, ir::DType::kFloat64, op.space}};
  op.attrs = ir::MatmulAttrs{};
  return op;
}
inline ir::Op fetch(std::uint64_t array, const ir::Grid& g, DeviceId to = DeviceId{99}) {
  ir::Op op;
  op.kind = ir::OpKind::kFetch;
  op.operands = {{array, ir::View::identity(g.shape())}};
  op.space = g;
  op.attrs = ir::FetchAttrs{to};
  return op;
}
inline ir::Op provide(std::uint64_t out, const ir::Grid& g) {
  ir::Op op;
  op.kind = ir::OpKind::kProvide;
  op.outputs = {{out, ir::DType::kFloat64, g}};
  op.space = g;
  op.attrs = ir::FetchAttrs{DeviceId{99}};
  return op;
}

class World {
 public:
  // Log entries go at once unless a test is about those that need not.
  explicit World(Options options = {}, TimeNs lazy_ns = 0)
      : core((options.lazy_ns = lazy_ns, options.check_replays = true, std::move(options))) {}

  // ---- events --------------------------------------------------------------------------------------------------
  void receive(std::uint32_t conn, msg::Message message) {
    const auto* submit = std::get_if<msg::Submit>(&message);
    const auto is_fetch = [](const ir::Op& op) { return op.kind == ir::OpKind::kFetch; };
    const bool fetches =
        delivers && submit != nullptr &&
        (submit->program != 0 || std::any_of(submit->ops.begin(), submit->ops.end(), is_fetch));
    const std::uint64_t request = fetches ? submit->request : 0;
    step({Received{Conn{conn}, std::move(message)}});
    if (fetches) deliver(conn, request);
  }
  void deliver(std::uint32_t conn, std::uint64_t request) {  // as a client says that it has everything
    step({Received{Conn{conn}, msg::ReleaseArrays{{}, {request}}}});
  }
  void drop(std::uint32_t conn) { step({Closed{Conn{conn}, error(Errc::kIo, "reset")}}); }
  void wait(TimeNs ns) { now += ns, step({}); }
  void step(std::vector<Event> events) {
    actions.clear();
    core.step(events, now, actions);
    core.check_invariants();
    for (const Action& action : actions) {
      const auto* sent = std::get_if<Send>(&action);
      if (sent == nullptr) continue;
      inbox.push_back(*sent);
      const auto* log = std::get_if<msg::Log>(&sent->message);
      if (log == nullptr) continue;
      for (const msg::LogEntry& entry : log->entries) logs.emplace_back(sent->to, whole(sent->to, entry));
    }
  }
  // A plan, where only which one it is was told: those of whom it is asked have kept it.
  msg::LogEntry whole(Conn to, const msg::LogEntry& entry) {
    if (const auto* plan = std::get_if<msg::Plan>(&entry); plan != nullptr && plan->keep_as != 0)
      kept[{to, plan->keep_as}] = *plan;
    if (const auto* gone = std::get_if<msg::ForgetPlans>(&entry)) {
      for (const std::uint64_t plan : gone->plans) kept.erase({to, plan});
    }
    const auto* replay = std::get_if<msg::Replay>(&entry);
    if (replay == nullptr) return entry;
    ++replays_told;
    REQUIRE(kept.contains({to, replay->plan}));
    return msg::expand(kept.at({to, replay->plan}), *replay);
  }

  msg::Join worker(int devices, std::string name = "w", std::int64_t memory = std::int64_t{1} << 30,
                   int kind = 0) {
    msg::Join join;
    join.name = std::move(name);
    join.software_version = "1";
    join.host_id = join.name;
    join.addresses = {"tcp://127.0.0.1:1"};
    for (int i = 0; i < devices; ++i) {
      join.devices.push_back({(kind == 0 ? "host:" : "cuda:") + std::to_string(i),
                              static_cast<std::uint8_t>(kind), "cpu", "x", memory, 1});
    }
    return join;
  }
  msg::Join client() {
    msg::Join join;
    join.role = msg::Role::kClient;
    join.name = "client";
    join.software_version = "1";
    join.devices = {{"host:0"}};
    return join;
  }
  msg::Welcome join(std::uint32_t conn, msg::Join message) {
    receive(conn, std::move(message));
    return *last<msg::Welcome>(conn);
  }
  msg::SubmitReply submit(std::uint32_t conn, std::uint64_t request, std::vector<ir::Op> ops,
                          std::vector<std::uint64_t> holds = {}, std::int32_t priority = 0) {
    receive(conn, msg::Submit{request, priority, std::move(ops), std::move(holds)});
    return *last<msg::SubmitReply>(conn);
  }
  // Every worker device reports all its points of every op of the plan; the log is applied.
  void complete(const msg::Plan& plan, std::int64_t failed = 0) {
    for (const auto& [conn, welcome] : workers) {
      msg::Progress progress;
      for (const msg::PlannedOp& op : plan.ops) {
        for (const DeviceId device : welcome.devices) {
          const std::int64_t owned = op.placement.owned_count(device);
          if (owned > 0) progress.ops.push_back({op.id, device, owned, std::min(failed, owned)});
        }
      }
      receive(conn, progress);
    }
  }
  msg::Welcome add_worker(std::uint32_t conn, int devices, std::string name = "w") {
    const msg::Welcome welcome = join(conn, worker(devices, std::move(name)));
    workers.emplace_back(conn, welcome);
    return welcome;
  }
  void apply_logs() {  // every worker says that it has applied all it was sent
    for (const auto& [conn, welcome] : workers) {
      msg::Progress progress;
      for (const Send& sent : inbox) {
        const auto* log = std::get_if<msg::Log>(&sent.message);
        if (log != nullptr && sent.to == Conn{conn})
          progress.log_applied = log->first + log->entries.size() - 1;
      }
      receive(conn, progress);
    }
  }

  // ---- what came out ---------------------------------------------------------------------------------------------
  template <class M> const M* last(std::uint32_t conn) const {
    for (auto it = inbox.rbegin(); it != inbox.rend(); ++it) {
      if (it->to == Conn{conn})
        if (const auto* m = std::get_if<M>(&it->message)) return m;
    }
    return nullptr;
  }
  template <class M> int count(std::uint32_t conn) const {
    return static_cast<int>(std::count_if(inbox.begin(), inbox.end(), [&](const Send& sent) {
      return sent.to == Conn{conn} && std::holds_alternative<M>(sent.message);
    }));
  }
  template <class E> std::vector<E> log(std::uint32_t conn) const {
    std::vector<E> out;
    for (const auto& [to, entry] : logs) {
      if (to == Conn{conn})
        if (const auto* e = std::get_if<E>(&entry)) out.push_back(*e);
    }
    return out;
  }
  bool closed(std::uint32_t conn) const {  // in the last step
    return std::any_of(actions.begin(), actions.end(), [&](const Action& a) {
      const auto* c = std::get_if<Close>(&a);
      return c != nullptr && c->conn == Conn{conn};
    });
  }
  bool quiet() const { return actions.empty(); }

  Core core;
  TimeNs now = kSecond;
  bool delivers = true;  // clients have all that they fetch when they ask for it
  std::vector<Action> actions;
  std::deque<Send> inbox;
  std::vector<std::pair<Conn, msg::LogEntry>> logs;          // replays as the plans that they stand for
  std::map<std::pair<Conn, std::uint64_t>, msg::Plan> kept;  // by workers
  int replays_told = 0;
  std::vector<std::pair<std::uint32_t, msg::Welcome>> workers;
};

}  // namespace tilewise::scheduler::test
