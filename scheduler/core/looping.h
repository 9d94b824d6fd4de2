// For tests: a program that makes the same array anew, step by step, and lets go of what it was.
#pragma once
#include <tilewise/ir/checkpoint.h>

#include "core_world.h"

#include <utility>

namespace tilewise::scheduler::test {

struct Looping : World {
  // `folder`: of checkpoints.
  explicit Looping(int workers, std::size_t most_ops = 50, const std::string& folder = {})
      : Looping(workers, limited(most_ops, folder)) {}
  Looping(int workers, Options options) : World(std::move(options)) {
    for (int i = 0; i < workers; ++i) add(static_cast<std::uint32_t>(i + 1));
    join(10, client());
    if (workers > 0) begin();
  }
  void begin() {
    submit(10, ++request, {fill(1, kFourBlocks)}, {1});
    finish();
  }
  void add(std::uint32_t conn) {
    msg::Join with = worker(1, "w" + std::to_string(conn));
    with.plugins = {{std::string(ir::checkpoint::kRestore), "1", 1}, {"step", "1", 42}};
    joined.push_back(join(conn, with));
    workers.emplace_back(conn, joined.back());
  }
  static Options limited(std::size_t most_ops, const std::string& folder = {}) {
    Options options;
    options.checkpoint_dir = folder;
    options.max_recompute_ops = most_ops;
    options.history_graphs = 1;
    return options;
  }
  // x = -x, kept under the next number; what it was before is let go when the next is on its way.
  void turn() {
    submit(10, ++request, {map(number + 1, kFourBlocks, {number})}, {number + 1});
    receive(10, msg::ReleaseArrays{{number}});
    ++number;
  }
  // (x, y) = step(x, y) by a kernel with both results. `more`: it has a third one, that nobody keeps, and what is made from that is kept
  // for a turn.
  void turn_both(bool more = false) {
    const std::uint64_t made = number + 2;
    std::vector<std::uint64_t> holds{made, made + 1}, were{number};
    if (number > 1) were.push_back(number + 1);
    std::vector<ir::Op> ops{map(made, kFourBlocks, {number, number == 1 ? 1 : number + 1})};
    ops[0].kind = ir::OpKind::kCall;
    ops[0].outputs.push_back({made + 1, ir::DType::kFloat64, kFourBlocks});
    ops[0].attrs = ir::CallAttrs{.kernel = "step", .version = "1", .maps = {{ir::DimMap{}}, {ir::DimMap{}}}};
    if (more) {
      constexpr std::uint64_t kThird = 1'000'000'000;
      ops[0].outputs.push_back({kThird + made, ir::DType::kFloat64, kFourBlocks});
      ops.push_back(map(kThird + made + 1, kFourBlocks, {kThird + made}));
      holds.push_back(kThird + made + 1);
      if (number > 1) were.push_back(kThird + number + 1);
    }
    REQUIRE(submit(10, ++request, std::move(ops), std::move(holds)).outcome.ok());
    receive(10, msg::ReleaseArrays{std::move(were)});
    number = made;
  }
  // Whatever was told since is done.
  void finish() {
    for (; done < logs.size(); ++done) {
      const auto* plan = std::get_if<msg::Plan>(&logs[done].second);
      const auto* recover = std::get_if<msg::Recover>(&logs[done].second);
      if (logs[done].first != Conn{workers[0].first}) continue;
      if (plan != nullptr) complete(msg::Plan(*plan));
      if (recover == nullptr) continue;
      for (const msg::Plan& again : msg::Recover(*recover).plans) complete(again);
    }
    apply_logs();
    inbox.erase(inbox.begin(), inbox.end() - std::min<std::ptrdiff_t>(64, inbox.end() - inbox.begin()));
  }
  Overview seen() const { return std::get<Overview>(core.view(OverviewRequest{}, now)); }
  void lose(std::size_t worker) {
    std::erase_if(workers, [&](const auto& w) { return w.first == worker; });
    drop(static_cast<std::uint32_t>(worker));
  }
  void answer(const std::vector<msg::Held::Blocks>& blocks) {
    for (const auto& [conn, welcome] : std::vector(workers)) {
      msg::Held held;
      held.version = log<msg::PeerLost>(conn).back().version;
      held.blocks = blocks;  // those of others are not believed
      receive(conn, held);
    }
  }

  std::uint64_t number = 1, request = 0;
  std::size_t done = 0;
  std::vector<msg::Welcome> joined;
};

}  // namespace tilewise::scheduler::test
