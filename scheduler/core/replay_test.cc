// Programs that come again are planned and placed as before. World plans them again and compares (check_replays).
#include <tilewise/msg/program.h>

#include <set>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// One step of a loop: reads `from`, makes and holds `out`; two arrays in between.
struct Step {
  std::uint64_t from, out;
  ir::TapeOp what = ir::TapeOp::kAdd;
  std::vector<ir::Op> ops() const {
    return {map(out + 1, kFourByFour, {from}), map(out + 2, kFourByFour, {from, out + 1}, what),
            matmul(out, kFourByFour, out + 2, kFourByFour, from)};
  }
};

struct Loop : World {
  explicit Loop(Options options = {}, std::int64_t memory = 1 << 30) : World(std::move(options)) {
    workers.emplace_back(1, join(1, worker(2, "w", memory)));
    join(10, client());
    start(1000);
  }
  void start(std::uint64_t number) {
    REQUIRE(submit(10, next++, {random(number, kFourByFour)}, {number}).outcome.ok());
    settle();
  }
  msg::Plan step(const Step& s) {
    const auto reply = submit(10, next++, s.ops(), {s.out});
    REQUIRE_MESSAGE(reply.outcome.ok(), reply.outcome.message);
    const msg::Plan plan = log<msg::Plan>(1).back();
    settle();
    CHECK(last<msg::GraphDone>(10)->outcome.ok());
    return plan;
  }
  void settle() {
    complete(log<msg::Plan>(1).back());
    apply_logs();
  }
  std::uint64_t next = 1;
};

// The same but for names.
bool alike(const msg::Plan& a, const msg::Plan& b) {
  if (a.ops.size() != b.ops.size()) return false;
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    if (a.ops[i].op.kind != b.ops[i].op.kind || !(a.ops[i].placement == b.ops[i].placement)) return false;
  }
  return true;
}

TEST_CASE("a loop of small steps is planned a few times only, and every step does the same") {
  Loop w;
  std::uint64_t from = 1000;
  std::vector<msg::Plan> plans;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t out = 2000 + 10 * i;
    plans.push_back(w.step({from, out}));
    w.receive(10, msg::ReleaseArrays{{from}});
    from = out;
  }
  CHECK(w.core.replays() >=
        85);  // planned: once, to be kept, then after 1, 2, 4 ... replays, and for other inputs
  for (const msg::Plan& plan : plans) CHECK(alike(plan, plans[0]));
  std::set<std::uint64_t> names;
  for (const msg::Plan& plan : plans) {
    for (const msg::PlannedOp& op : plan.ops) {
      CHECK(names.insert(op.op.outputs[0].array).second);  // each has arrays of its own
    }
  }
  w.receive(10, msg::ReleaseArrays{{from}});
  w.apply_logs();
  w.receive(10, msg::StatusRequest{});
  CHECK(w.last<msg::StatusReply>(10)->arrays_live == 0);
}

// out = from * value
ir::Op scaled(std::uint64_t out, std::uint64_t from, double value) {
  ir::Op op = map(out, kFourByFour, {from});
  op.attrs = ir::MapAttrs{{{load(0), constant(value), instr(ir::TapeOp::kMul, 0, 1)}}};
  return op;
}

// Of a plan, in the order of its tapes.
std::vector<double> constants_of(const std::vector<msg::PlannedOp>& ops) {
  std::vector<double> values;
  for (const msg::PlannedOp& planned : ops) {
    const ir::Tape* tape = ir::tape_of(planned.op);
    for (std::size_t i = 0; tape != nullptr && i < tape->code.size(); ++i)
      if (tape->code[i].op == ir::TapeOp::kConst) values.push_back(tape->code[i].imm_f);
  }
  return values;
}

// A loop of which nothing but constants differs from step to step.
struct Rates : Loop {
  using Loop::Loop;
  msg::Plan step(double a, double b) {
    const std::uint64_t first = 2000 + 10 * next;
    const std::vector<ir::Op> ops{scaled(first, 1000, a), scaled(first + 1, first, b)};
    const msg::SubmitReply reply = submit(10, next++, ops, {first + 1});
    REQUIRE_MESSAGE(reply.outcome.ok(), reply.outcome.message);
    const msg::Plan plan = log<msg::Plan>(1).back();
    settle();
    return plan;
  }
};

TEST_CASE("a loop whose constants change is planned a few times only, and each step has its own") {
  Rates w;
  std::vector<msg::Plan> plans;
  for (int i = 0; i < 100; ++i) {
    plans.push_back(w.step(0.5 + i, -1.0 - i));
    CHECK(constants_of(plans.back().ops) == std::vector{0.5 + i, -1.0 - i});
  }
  CHECK(w.core.replays() >= 85);
  CHECK(w.replays_told == 98);  // made anew in between, and the same
  CHECK(plans.back().ops.size() == 1);
  // Who comes later gets plans whole, with the constants of the moment.
  w.workers.emplace_back(2, w.join(2, w.worker(1, "gpu", std::int64_t{1} << 30, 1)));
  w.step(7, 8);
  CHECK(constants_of(w.log<msg::Plan>(2).back().ops) == std::vector{7.0, 8.0});
}

TEST_CASE("constants that are equal are another program than those that differ") {
  Rates w;
  for (int i = 0; i < 4; ++i) w.step(1 + i, 10 + i);
  const auto before = w.core.replays();
  CHECK(constants_of(w.step(5, 5).ops) == std::vector{5.0});
  CHECK(w.core.replays() == before);
  CHECK(constants_of(w.step(6, 6).ops) == std::vector{6.0});
  CHECK(constants_of(w.step(7, 7).ops) == std::vector{7.0});
  CHECK(w.core.replays() == before + 1);
  CHECK(constants_of(w.step(1, 2).ops) == std::vector{1.0, 2.0});
}

TEST_CASE("what a lost worker made is made again with the constants of its step") {
  Rates w;
  w.workers.emplace_back(2, w.join(2, w.worker(2, "other")));
  std::map<OpId, ir::Op> made;
  for (int i = 0; i < 8; ++i) {
    for (const msg::PlannedOp& op : w.step(0.5 + i, -1.0 - i).ops) made.emplace(op.id, op.op);
  }
  REQUIRE(w.core.replays() > 0);
  w.workers.erase(w.workers.begin());
  w.drop(1);
  msg::Held held;  // the other one has nothing
  held.version = w.log<msg::PeerLost>(2).back().version;
  w.receive(2, held);
  REQUIRE(w.log<msg::Recover>(2).size() == 1);
  std::size_t again = 0;
  const msg::Recover recover = w.log<msg::Recover>(2)[0];
  for (const msg::Plan& plan : recover.plans) {
    for (const msg::PlannedOp& op : plan.ops) {
      if (!made.contains(op.of)) continue;
      CHECK(op.op == made.at(op.of));
      ++again;
    }
  }
  CHECK(again == 8);
}

TEST_CASE("a constant that does not fit its dtype is refused, also where the program was planned before") {
  Loop w;
  const auto send = [&](std::int64_t value) {
    const std::uint64_t out = 2000 + w.next;
    ir::Op op = fill(out, kFourByFour);
    op.outputs[0].dtype = ir::DType::kInt8;
    op.attrs = ir::MapAttrs{{{{ir::TapeOp::kConst, ir::DType::kInt8, 0, 0, 0, 0, value}}}};
    const msg::Outcome outcome = w.submit(10, w.next++, {op}, {out}).outcome;
    if (outcome.ok()) w.settle();
    return outcome.code;
  };
  for (std::int64_t i = 0; i < 3; ++i) CHECK(send(i) == Errc::kOk);
  REQUIRE(w.core.replays() == 1);
  CHECK(send(128) == Errc::kInvalidArgument);
  CHECK(send(127) == Errc::kOk);
  CHECK(w.core.replays() >= 1);
}

TEST_CASE("what is not the same program, or not on the same inputs, is planned") {
  Loop w;
  for (std::uint64_t i = 0; i < 3; ++i) w.step({1000, 2000 + 10 * i});
  REQUIRE(w.core.replays() == 1);
  SUBCASE("another operation") {
    w.step({1000, 3000, ir::TapeOp::kMul});
    CHECK(w.core.replays() == 1);
  }
  SUBCASE("something else is held") {
    const Step s{1000, 3000};
    const auto reply = w.submit(10, w.next++, s.ops(), {s.out, s.out + 2});
    REQUIRE(reply.outcome.ok());
    CHECK(w.core.replays() == 1);
    CHECK(w.log<msg::Plan>(1).back().holds.size() == 2);
  }
  SUBCASE("two inputs where one was named twice") {
    w.start(1001);
    const Step s{1000, 3000};
    auto ops = s.ops();
    ops[2].operands[1].array = 1001;
    REQUIRE(w.submit(10, w.next++, ops, {s.out}).outcome.ok());
    CHECK(w.core.replays() == 1);
  }
  SUBCASE("an input that lies elsewhere") {
    const DeviceId second = w.workers[0].second.devices[1];
    auto there = random(1001, kFourByFour);
    there.hint.devices = {second};
    REQUIRE(w.submit(10, w.next++, {there}, {1001}).outcome.ok());
    w.settle();
    const auto before = w.core.replays();
    const msg::Plan plan = w.step({1001, 3000});
    CHECK(w.core.replays() == before);
    for (const msg::PlannedOp& op : plan.ops) CHECK(op.placement.verify(op.op.space.counts()).has_value());
  }
  SUBCASE("an input of another grid") {
    const ir::Grid other = grid({8, 8}, {4, 4});
    REQUIRE(w.submit(10, w.next++, {random(1001, other)}, {1001}).outcome.ok());
    w.settle();
    REQUIRE(w.submit(10, w.next++, Step{1001, 3000}.ops(), {3000}).outcome.ok());  // gathers it first
    CHECK(w.core.replays() == 1);
  }
  SUBCASE("another device has come, and one has gone") {
    w.step({1000, 3000});
    w.add_worker(2, 2, "w2");
    const auto before = w.core.replays();
    const msg::Plan wider = w.step({1000, 3010});
    CHECK(w.core.replays() == before);
    CHECK(std::any_of(wider.ops.begin(), wider.ops.end(), [](const msg::PlannedOp& op) {
            return op.placement.devices().size() > 2;
          }) == (wider.ops[0].placement.devices().size() > 2));
    w.drop(2);
    w.workers.pop_back();
    for (const msg::PlannedOp& op : w.step({1000, 3020}).ops) {
      for (const DeviceId device : op.placement.devices()) CHECK(device.value <= 2);
    }
  }
}

TEST_CASE("refused and explained programs are not remembered; explain says what will be replayed") {
  Loop w;
  const auto explained = [&](std::uint64_t out) {
    msg::Explain explain;
    explain.submit.request = 1;
    explain.submit.ops = Step{1000, out}.ops();
    explain.submit.holds = {out};
    w.receive(10, std::move(explain));
    const auto* told = w.last<msg::Explanation>(10);
    REQUIRE(told != nullptr);
    REQUIRE_MESSAGE(told->outcome.ok(), told->outcome.message);
    return *told;
  };
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(explained(2000 + 10 * i).passes.front().name != "replayed");
  const auto fresh = explained(2000);
  w.step({1000, 2000}), w.step({1000, 2010});
  const auto again = explained(2020);
  REQUIRE(again.passes.size() == 1);
  CHECK(again.passes[0].name == "replayed");
  CHECK(again.passes[0].ops == again.ops.size());
  REQUIRE(again.ops.size() == fresh.ops.size());
  for (std::size_t i = 0; i < fresh.ops.size(); ++i)
    CHECK(again.ops[i].choices[0].placement == fresh.ops[i].choices[0].placement);
  CHECK(w.core.replays() == 0);  // told only
}

TEST_CASE("workers are told a plan once, then which one it is, unless they came later") {
  Loop w;
  w.step({1000, 2000});
  CHECK(w.kept.empty());
  w.step({1000, 2010});
  CHECK(w.kept.size() == 1);
  CHECK(w.replays_told == 0);
  for (std::uint64_t i = 2; i < 20; ++i) w.step({1000, 2000 + 10 * i});
  CHECK(w.replays_told == 18);  // made anew in between, and the same
  // A device that nothing new is put on changes no placement, but its worker must hear of all plans.
  msg::Join gpu = w.worker(1, "gpu", std::int64_t{1} << 30, 1);
  w.workers.emplace_back(2, w.join(2, gpu));
  const int before = w.replays_told;
  for (std::uint64_t i = 20; i < 30; ++i) w.step({1000, 2000 + 10 * i});
  CHECK(w.log<msg::Plan>(2).size() > 9);
  CHECK(w.replays_told > before);
}

TEST_CASE("a settled core has workers forget what they keep, and numbers are not used again") {
  Loop w;
  for (std::uint64_t i = 0; i < 4; ++i) w.step({1000, 2000 + 10 * i});
  REQUIRE(w.kept.size() == 1);
  const std::uint64_t first = w.kept.begin()->first.second;
  std::vector<Action> actions;
  w.core.settle(w.now, actions);
  w.core.check_invariants();
  for (const Action& action : actions) {
    const auto* sent = std::get_if<Send>(&action);
    const auto* log = sent == nullptr ? nullptr : std::get_if<msg::Log>(&sent->message);
    if (log == nullptr) continue;
    for (const msg::LogEntry& entry : log->entries) w.whole(sent->to, entry);
  }
  CHECK(w.kept.empty());
  for (std::uint64_t i = 4; i < 7; ++i) w.step({1000, 2000 + 10 * i});
  REQUIRE(w.kept.size() == 1);
  CHECK(w.kept.begin()->first.second > first);
}

TEST_CASE("plans are kept in bounded number, the least recently used goes") {
  Loop w;
  const auto program = [&](int kind) {  // as many different ones as wanted
    const std::uint64_t out = 10'000 + w.next;
    auto op = random(out, kFourByFour, kind);
    REQUIRE(w.submit(10, w.next++, {op}, {out}).outcome.ok());
    w.settle();
    w.receive(10, msg::ReleaseArrays{{out}});
  };
  program(0), program(0), program(0);
  CHECK(w.core.replays() == 1);
  for (int kind = 1; kind <= 70; ++kind) program(kind), program(kind);
  const auto before = w.core.replays();
  program(70);  // still there
  CHECK(w.core.replays() == before + 1);
  program(0);  // pushed out
  CHECK(w.core.replays() == before + 1);
  CHECK(w.kept.size() <= 64);  // by workers too
}

TEST_CASE("a plan is replayed where devices have room for it, and else made anew") {
  Loop w({}, 8 << 10);  // arrays of 512 bytes
  const auto step = [&](std::uint64_t out) {
    w.step({1000, out});
    w.receive(10, msg::ReleaseArrays{{out}});
    w.apply_logs();
  };
  for (std::uint64_t i = 0; i < 8; ++i) step(2000 + 10 * i);
  REQUIRE(w.core.replays() == 4);  // and the plan is good for three more
  const DeviceId first = w.workers[0].second.devices[0];
  auto large = random(1001, grid({768}, {768}));
  large.hint.devices = {first};
  REQUIRE(w.submit(10, w.next++, {large}, {1001}).outcome.ok());
  w.settle();
  for (std::uint64_t i = 0; i < 2; ++i) step(3000 + 10 * i);
  CHECK(w.core.replays() == 4);
  w.receive(10, msg::ReleaseArrays{{1001}});
  w.apply_logs();
  step(4000);
  CHECK(w.core.replays() == 5);
}

TEST_CASE("a large single block goes where there is least each time: such plans are not kept") {
  Loop w;
  const ir::Grid one = grid({128, 128}, {128, 128});
  std::set<std::uint32_t> used;
  for (std::uint64_t i = 0; i < 6; ++i) {
    REQUIRE(w.submit(10, w.next++, {random(5000 + i, one)}, {5000 + i}).outcome.ok());
    used.insert(w.log<msg::Plan>(1).back().ops[0].placement.devices()[0].value);
    w.settle();
  }
  CHECK(w.core.replays() == 0);
  CHECK(used.size() == 2);
}

// A loop whose programs number what they make in a row, as sessions do: sent each time, or kept with one request and named after.
struct Named : Loop {
  std::vector<ir::Op> ops(std::uint64_t from) const {
    return {scaled(number, from, static_cast<double>(next)), map(number + 1, kFourByFour, {from, number}),
            matmul(number + 2, kFourByFour, number + 1, kFourByFour, from), fetch(number + 2, kFourByFour)};
  }
  msg::Submit whole(std::uint64_t from) const {
    msg::Submit submit;
    submit.request = next;
    submit.ops = ops(from);
    submit.holds = {number + 2};
    return submit;
  }
  msg::Submit by_name(std::uint64_t from, std::uint64_t program) const {
    msg::Submit submit = whole(from);
    submit.ops.clear();
    submit.program = program, submit.first_output = number, submit.inputs = {from};
    submit.constants = {{static_cast<double>(next)}};
    return submit;
  }
  msg::Outcome send(const msg::Submit& submit) {
    ++next, number += 3;
    receive(10, submit);
    const msg::Outcome outcome = last<msg::SubmitReply>(10)->outcome;
    if (outcome.ok()) settle();
    return outcome;
  }
  std::uint64_t number = 2000;
};

TEST_CASE("a program that is named does what it does when it is sent") {
  Named sent, named;
  std::uint64_t from = 1000, kept_by = 0;
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t out = sent.number + 2;
    msg::Submit submit = kept_by == 0 ? named.whole(from) : named.by_name(from, kept_by);
    if (i == 3) submit.keep_as = 2, kept_by = submit.request;
    REQUIRE(sent.send(sent.whole(from)).ok());
    const msg::Outcome outcome = named.send(submit);
    REQUIRE_MESSAGE(outcome.ok(), outcome.message);
    CHECK(named.last<msg::SubmitReply>(10)->arrays == sent.last<msg::SubmitReply>(10)->arrays);
    from = out;
  }
  CHECK(named.log<msg::Plan>(1) == sent.log<msg::Plan>(1));
  CHECK(named.replays_told == sent.replays_told);
  CHECK(named.core.replays() == sent.core.replays());
  CHECK(named.core.replays() > 30);
}

TEST_CASE("what is wrong with a named program is said as of one that is sent") {
  Named w;
  msg::Submit first = w.whole(1000);
  first.keep_as = 1;
  REQUIRE(w.send(first).ok());
  for (int i = 0; i < 3; ++i) REQUIRE(w.send(w.by_name(1000, first.request)).ok());
  const auto before = w.core.replays();
  SUBCASE("inputs") {
    CHECK(w.send(w.by_name(77, first.request)).code == Errc::kNotFound);
    msg::Submit two = w.by_name(1000, first.request);
    two.inputs.push_back(1000);
    CHECK(w.send(two).code == Errc::kInvalidArgument);
  }
  SUBCASE("constants") {
    msg::Submit none = w.by_name(1000, first.request);
    none.constants.clear();
    CHECK(w.send(none).code == Errc::kInvalidArgument);
  }
  SUBCASE("names that are taken") {
    msg::Submit again = w.by_name(1000, first.request);
    again.first_output = 1000;  // held
    CHECK(w.send(again).code == Errc::kAlreadyExists);
  }
  SUBCASE("something else is held") {
    msg::Submit other = w.by_name(1000, first.request);
    other.holds = {5};
    CHECK(w.send(other).code == Errc::kNotFound);
  }
  SUBCASE("a weight") {
    msg::Submit heavy = w.by_name(1000, first.request);
    heavy.weight = 0;
    CHECK(w.send(heavy).code == Errc::kInvalidArgument);
  }
  SUBCASE("the program") {
    CHECK(w.send(w.by_name(1000, first.request + 1)).code == Errc::kNotFound);
    msg::Submit both = w.whole(1000);
    both.program = first.request;
    CHECK(w.send(both).code == Errc::kInvalidArgument);
  }
  SUBCASE("it was replaced") {
    msg::Submit other = w.whole(1000);
    other.ops.pop_back();
    other.keep_as = 1;
    REQUIRE(w.send(other).ok());
    const msg::Outcome gone = w.send(w.by_name(1000, first.request));
    CHECK(gone.code == Errc::kNotFound);
    CHECK(gone.message.find("program " + std::to_string(first.request)) != std::string::npos);
  }
  CHECK(w.core.replays() == before);
  CHECK(w.core.replays() > 0);
}

TEST_CASE("a named program is refused for a lost device also where only what nobody reads was to be there") {
  Named w;
  const msg::Welcome leaver = w.add_worker(2, 1, "leaver");
  w.World::step({OperatorDrain{leaver.you}});
  const auto whole = [&] {
    msg::Submit submit = w.whole(1000);
    submit.ops = {scaled(w.number, 1000, 2), map(w.number + 1, kFourByFour, {1000}),
                  matmul(w.number + 2, kFourByFour, w.number + 1, kFourByFour, 1000)};
    submit.ops[0].hint.devices = leaver.devices;
    return submit;
  };
  msg::Submit first = whole();
  first.keep_as = 1;
  REQUIRE(w.send(first).ok());
  for (int i = 0; i < 3; ++i) REQUIRE(w.send(w.by_name(1000, first.request)).ok());
  CHECK(w.core.replays() > 0);
  w.workers.pop_back();
  w.drop(2);
  const msg::Outcome sent = w.send(whole());
  CHECK(sent.code == Errc::kWorkerLost);
  CHECK(w.send(w.by_name(1000, first.request)) == sent);
}

TEST_CASE("programs that cannot be kept are refused, those of refused requests are kept") {
  Named w;
  msg::Submit submit = w.whole(1000);
  submit.keep_as = msg::kKeptPrograms + 1;
  CHECK(w.send(submit).code == Errc::kInvalidArgument);
  submit = w.whole(1000);
  submit.keep_as = 1;
  submit.ops[1].outputs[0].array += 10;  // not in a row
  submit.ops[2].operands[0].array += 10;
  CHECK(w.send(submit).code == Errc::kInvalidArgument);
  submit = w.whole(55);  // no such array
  submit.keep_as = 1;
  CHECK(w.send(submit).code == Errc::kNotFound);
  CHECK(w.send(w.by_name(1000, submit.request)).ok());
  const ir::Op small = fill(1, kFourByFour);
  std::vector<ir::Op> many(msg::kMaxKeptOps + 1, small);
  for (std::size_t i = 0; i < many.size(); ++i) many[i].outputs[0].array = i + 1;
  CHECK(msg::program_of(many).error().code == Errc::kLimitExceeded);
  many.resize(1);
  many[0].label.assign(msg::kMaxKeptBytes, 'x');
  CHECK(msg::program_of(many).error().code == Errc::kLimitExceeded);
}

}  // namespace
}  // namespace tilewise::scheduler::test
