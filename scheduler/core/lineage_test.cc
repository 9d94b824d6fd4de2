// Lineage of long loops: bounded, because a held array gets a second copy and its past is cut.
#include <doctest/doctest.h>

#include "looping.h"

namespace tilewise::scheduler::test {
namespace {

// ThreadSanitizer would take half an hour for it, and has one thread to watch.
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kTurns = 10'000;
#else
constexpr std::size_t kTurns = 100'000;
#endif

TEST_CASE("a loop of 10^5 steps on one array keeps bounded lineage") {
  std::size_t turns = kTurns;
  int ahead = 1, workers = 2;
  std::string folder;
  SUBCASE("waited for step by step") {}
  SUBCASE("with requests ahead of what is done") { ahead = 64, turns = 10'000; }
  SUBCASE("with one worker, on disk") { workers = 1, folder = "/checkpoints"; }
  SUBCASE("likewise, with requests ahead") {
    ahead = 64, turns = 10'000, workers = 1, folder = "/checkpoints";
  }
  Looping w(workers, 50, folder);
  std::int64_t most = 0, anchors = 0;
  for (std::size_t i = 0; i < turns; i += static_cast<std::size_t>(ahead)) {
    for (int j = 0; j < ahead; ++j) w.turn();
    most = std::max(most, w.seen().lineage);
    w.finish();
    anchors = std::max(anchors, w.seen().anchors);
    w.logs.erase(w.logs.begin(), w.logs.begin() + static_cast<std::ptrdiff_t>(std::exchange(w.done, 0)));
  }
  CHECK(most <= 2 * 50 + 2 * ahead + 4);
  CHECK(anchors >= 1);
  CHECK(anchors <= 2 + ahead / 50);
  w.receive(10, msg::ReleaseArrays{{w.number}});
  w.finish();
  w.finish();
  CHECK(w.seen().status.arrays_live == 0);
  CHECK(w.seen().lineage == 0);
  CHECK(w.seen().anchors == 0);
  CHECK(w.seen().checkpoints == 0);
}

TEST_CASE("a loop on both results of a kernel keeps bounded lineage") {
  constexpr std::size_t kTurnsOfBoth = 1024;
  std::size_t ahead = 1;
  bool more = false;
  SUBCASE("waited for step by step") {}
  SUBCASE("with requests ahead of what is done") { ahead = 64; }
  SUBCASE("with a third result that is read and not kept") { more = true; }
  SUBCASE("likewise, with requests ahead") { ahead = 64, more = true; }
  Looping w(3);
  std::int64_t most = 0, anchors = 0;
  for (std::size_t i = 0; i < kTurnsOfBoth; i += ahead) {
    for (std::size_t j = 0; j < ahead; ++j) w.turn_both(more);
    most = std::max(most, w.seen().lineage);
    w.finish();
    anchors = std::max(anchors, w.seen().anchors);
    w.logs.erase(w.logs.begin(), w.logs.begin() + static_cast<std::ptrdiff_t>(std::exchange(w.done, 0)));
  }
  const auto slack = static_cast<std::int64_t>(ahead);
  CHECK(most <= 2 * 50 + 2 * slack + 4);
  CHECK(anchors >= 2);
  CHECK(anchors <= (more ? 3 : 2) * (2 + slack / 50));
  w.receive(10, msg::ReleaseArrays{{w.number, w.number + 1, 1'000'000'000 + w.number + 1}});
  w.finish();
  w.finish();
  CHECK(w.seen().status.arrays_live == 0);
  CHECK(w.seen().lineage == 0);
  CHECK(w.seen().anchors == 0);
}

TEST_CASE("of both results of a kernel no more is made again than was since they were anchors") {
  Looping w(3);
  for (int i = 0; i < 52; ++i) w.turn_both(), w.finish();
  REQUIRE(w.seen().anchors == 2);
  CHECK(w.seen().lineage <= 4);
  std::map<ArrayId, ir::Placement> made, kept;
  std::vector<ArrayId> anchors;
  for (const auto& [to, entry] : w.logs) {
    const auto* plan = std::get_if<msg::Plan>(&entry);
    if (plan == nullptr || to != Conn{1}) continue;
    for (const msg::PlannedOp& op : plan->ops) {
      for (const ir::OutputSpec& output : op.op.outputs) made[ArrayId{output.array}] = op.placement;
      if (op.op.kind != ir::OpKind::kKeep) continue;
      anchors.push_back(ArrayId{op.op.operands[0].array});
      kept[anchors.back()] = op.placement;
    }
  }
  REQUIRE(anchors.size() == 2);
  CHECK(kept[anchors[0]] == kept[anchors[1]]);
  std::vector<msg::Held::Blocks> held;
  for (const ArrayId id : anchors) {
    std::map<DeviceId, msg::Held::Blocks> by_device;
    for (std::int64_t b = 0; b < 4; ++b) {
      for (const ir::Placement* on : {&made[id], &kept[id]}) {
        const DeviceId device = on->owner(ir::Index{b});
        by_device.try_emplace(device, msg::Held::Blocks{id, device, {}, {}})
            .first->second.sealed.push_back({b, 1});
      }
    }
    for (auto& [device, of] : by_device) held.push_back(std::move(of));
  }
  const DeviceId first = made[anchors[0]].owner(ir::Index{0});
  const auto owner = std::find_if(w.joined.begin(), w.joined.end(),
                                  [&](const msg::Welcome& welcome) { return welcome.devices[0] == first; });
  REQUIRE(owner != w.joined.end());
  w.lose(static_cast<std::size_t>(owner - w.joined.begin()) + 1);
  w.answer(held);
  const std::vector<msg::Recover> recovers = w.log<msg::Recover>(w.workers[0].first);
  REQUIRE(recovers.size() == 1);
  std::size_t again = 0;
  for (const msg::Plan& plan : recovers[0].plans) {
    for (const msg::PlannedOp& op : plan.ops) {
      if (op.done) continue;
      ++again;
      for (const ir::OutputSpec& output : op.op.outputs)
        CHECK(std::find(anchors.begin(), anchors.end(), ArrayId{output.array}) == anchors.end());
    }
  }
  CHECK(again >= 1);
  CHECK(again <= 4);  // a few turns, not 50
  w.finish();
  w.turn_both();
}

TEST_CASE("with one worker and no folder for checkpoints nothing is cut: its disk would go with it") {
  Looping w(1);
  for (int i = 0; i < 200; ++i) w.turn(), w.finish();
  CHECK(w.seen().lineage == 200);
  CHECK(w.seen().anchors == 0);
}

TEST_CASE("it can be turned off") {
  Options options = Looping::limited(50);
  options.max_recompute_ns = 0;
  World w(options);
  w.add_worker(1, 1, "one");
  w.add_worker(2, 1, "two");
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourBlocks)}, {1});
  for (std::uint64_t i = 1; i < 100; ++i) w.submit(10, i + 1, {map(i + 1, kFourBlocks, {i})}, {i + 1});
  CHECK(std::get<Overview>(w.core.view(OverviewRequest{}, w.now)).anchors == 0);
}

TEST_CASE("a past that takes long is cut, whatever its length in ops") {
  Options options = Looping::limited(1'000'000);
  options.max_recompute_ns = 10 * kMillisecond;
  World w(options);
  w.add_worker(1, 1, "one");
  w.add_worker(2, 1, "two");
  w.join(10, w.client());
  const ir::Grid large = grid({20'000'000}, {1'000'000});  // 160 MB
  w.submit(10, 1, {fill(1, large)}, {1});
  std::uint64_t step = 1;
  for (; std::get<Overview>(w.core.view(OverviewRequest{}, w.now)).anchors == 0; ++step) {
    REQUIRE(step < 20);
    w.submit(10, step + 1, {map(step + 1, large, {step})}, {step + 1});
  }
  CHECK(step > 1);
}

TEST_CASE("what is made from an anchor is made again from there, and no further") {
  Looping w(3);
  for (int i = 0; i < 52; ++i) w.turn(), w.finish();
  REQUIRE(w.seen().anchors == 1);
  CHECK(w.seen().lineage <= 4);
  // The anchor has been let go by its session, and is there all the same. Who has what:
  std::map<ArrayId, msg::Plan> plans;
  ArrayId anchor;
  ir::Placement copies, blocks;
  for (const auto& [to, entry] : w.logs) {
    const auto* plan = std::get_if<msg::Plan>(&entry);
    if (plan == nullptr || to != Conn{1}) continue;
    for (const msg::PlannedOp& op : plan->ops) {
      if (op.op.kind == ir::OpKind::kKeep) anchor = ArrayId{op.op.operands[0].array}, copies = op.placement;
      if (!op.op.outputs.empty()) plans[ArrayId{op.op.outputs[0].array}] = *plan;
    }
  }
  REQUIRE(plans.contains(anchor));
  for (const msg::PlannedOp& op : plans[anchor].ops)
    if (!op.op.outputs.empty() && ArrayId{op.op.outputs[0].array} == anchor) blocks = op.placement;
  std::map<DeviceId, msg::Held::Blocks> by_device;
  for (std::int64_t b = 0; b < 4; ++b) {
    for (const DeviceId device : {blocks.owner(ir::Index{b}), copies.owner(ir::Index{b})})
      by_device.try_emplace(device, msg::Held::Blocks{anchor, device, {}, {}})
          .first->second.sealed.push_back({b, 1});
  }
  std::vector<msg::Held::Blocks> held;
  for (auto& [device, of] : by_device) held.push_back(std::move(of));
  const WorkerId owner = [&] {
    for (const msg::Welcome& welcome : w.joined)
      if (welcome.devices[0] == blocks.owner(ir::Index{0})) return welcome.you;
    return WorkerId{};
  }();
  w.lose(owner.value);
  SUBCASE("its other copy is there") {
    w.answer(held);
    const std::vector<msg::Recover> recovers = w.log<msg::Recover>(w.workers[0].first);
    REQUIRE(recovers.size() == 1);
    std::size_t again = 0;
    for (const msg::Plan& plan : recovers[0].plans)
      for (const msg::PlannedOp& op : plan.ops) again += !op.done;
    CHECK(again <= 4);  // a few turns, not 50
    w.finish();
    const msg::Outcome next = w.submit(10, ++w.request, {map(1000, kFourBlocks, {w.number})}, {1000}).outcome;
    CHECK_MESSAGE(next.ok(), next.message);
  }
  SUBCASE("nobody has it any more") {
    w.answer({});
    const msg::Outcome lost = w.submit(10, ++w.request, {map(1000, kFourBlocks, {w.number})}, {1000}).outcome;
    CHECK(lost.code == Errc::kWorkerLost);
    CHECK(lost.message.find("past was cut") != std::string::npos);
    CHECK(lost.message.find("array " + std::to_string(w.number)) != std::string::npos);
  }
}

}  // namespace
}  // namespace tilewise::scheduler::test
