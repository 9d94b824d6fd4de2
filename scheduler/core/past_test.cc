// How much is looked at to know how long pasts are, and that it is known.
#include "past.h"

#include <doctest/doctest.h>
#include <tilewise/base/prng.h>

#include "looping.h"

#include <set>

namespace tilewise::scheduler::test {
namespace {

constexpr std::size_t kLimit = 400;

// Programs as their users wrote them: each op is planned as it is.
Options plainly(std::size_t most_ops) {
  Options options = Looping::limited(most_ops);
  options.passes_off = {"dead-code", "common-subexpressions", "fusion", "shared-tapes"};
  return options;
}

// Layers that are trained with momentum, step by step: all of them at every step, and all that is made anew is made from all there was.
struct Model {
  std::vector<std::uint64_t> weights, momenta;
};

struct Training : World {
  explicit Training(int workers, std::size_t most_ops = kLimit) : World(plainly(most_ops)) {
    for (int i = 0; i < workers; ++i)
      add_worker(static_cast<std::uint32_t>(i + 1), 1, "w" + std::to_string(i));
    join(10, client());
    data = next++;
    submit(10, ++request, {fill(data, kFourBlocks)}, {data});
    finish();
  }
  Model model(int layers) {
    Model m;
    for (int l = 0; l < layers; ++l)
      m.weights.push_back(make(fill(0, kFourBlocks))), m.momenta.push_back(make(fill(0, kFourBlocks)));
    request_what_was_made({&m});
    return m;
  }
  std::uint64_t make(ir::Op op) {
    op.outputs[0].array = next;
    ops.push_back(std::move(op));
    return next++;
  }
  std::uint64_t sum(std::uint64_t a, std::uint64_t b) { return make(map(0, kFourBlocks, {a, b})); }

  void train(Model& m) {
    std::vector<std::uint64_t> layers{data};
    for (const std::uint64_t w : m.weights) layers.push_back(sum(layers.back(), w));
    std::uint64_t gradient = layers.back();
    for (std::size_t l = m.weights.size(); l-- > 0;) {
      gradient = sum(gradient, layers[l]);
      was.insert(was.end(), {m.weights[l], m.momenta[l]});
      m.momenta[l] = sum(m.momenta[l], gradient);
      m.weights[l] = sum(m.weights[l], m.momenta[l]);
    }
  }
  void request_what_was_made(const std::vector<const Model*>& models) {
    std::vector<std::uint64_t> holds;
    for (const Model* m : models) {
      holds.insert(holds.end(), m->weights.begin(), m->weights.end());
      holds.insert(holds.end(), m->momenta.begin(), m->momenta.end());
    }
    std::sort(holds.begin(), holds.end());
    ask(std::move(holds));
  }
  void ask(std::vector<std::uint64_t> holds) {
    planned += static_cast<std::int64_t>(ops.size());
    REQUIRE(submit(10, ++request, std::exchange(ops, {}), std::move(holds)).outcome.ok());
    receive(10, msg::ReleaseArrays{std::exchange(was, {})});
    finish();
  }
  void finish() {
    for (; done < logs.size(); ++done) {
      const auto* plan = std::get_if<msg::Plan>(&logs[done].second);
      if (plan == nullptr || logs[done].first != Conn{1}) continue;
      copied += std::count_if(plan->ops.begin(), plan->ops.end(),
                              [](const msg::PlannedOp& op) { return op.op.kind == ir::OpKind::kKeep; });
      complete(msg::Plan(*plan));
    }
    logs.clear(), done = 0;
    apply_logs();
    inbox.clear();
  }
  Overview seen() const { return std::get<Overview>(core.view(OverviewRequest{}, now)); }
  std::int64_t walked() const { return core.counters().past_walked; }

  std::uint64_t data = 0, next = 1, request = 0;
  std::vector<ir::Op> ops;
  std::vector<std::uint64_t> was;
  std::int64_t planned = 0, copied = 0;
  std::size_t done = 0;
};

TEST_CASE("a long loop of many arrays costs a few looks an op, and its lineage is bounded") {
  int workers = 2;
  SUBCASE("where they get copies") {}
  SUBCASE("where nothing can be cut") { workers = 1; }
  Training w(workers);
  Model m = w.model(8);
  std::int64_t most = 0, anchors = 0;
  for (int step = 0; step < 300; ++step) {
    const std::int64_t before = w.walked();
    w.train(m);
    w.request_what_was_made({&m});
    CHECK(w.walked() - before <=
          3 * static_cast<std::int64_t>(kLimit));  // a request; all arrays of it at once
    most = std::max(most, w.seen().lineage), anchors = std::max(anchors, w.seen().anchors);
  }
  CHECK(w.planned > 300 * 32);
  CHECK(w.walked() <= 4 * w.planned);
  CHECK((anchors > 0) == (workers > 1));
  // All together, each once a stretch; not some of them at each request, because others are a little below the limit.
  CHECK(w.copied <= 16 * 3 * w.planned / (2 * static_cast<std::int64_t>(kLimit)));
  if (workers > 1) CHECK(most <= 3 * static_cast<std::int64_t>(kLimit));
}

TEST_CASE("programs that share no more than their data do not count for each other") {
  constexpr int kModels = 6;
  bool at_once = false;
  SUBCASE("by turns") {}
  SUBCASE("in one request each") { at_once = true; }
  Training w(2);
  std::vector<Model> models;
  for (int i = 0; i < kModels; ++i) models.push_back(w.model(2));
  for (int step = 0; step < 150; ++step) {
    for (Model& m : models) {
      w.train(m);
      if (!at_once) w.request_what_was_made({&m});
    }
    if (at_once)
      w.request_what_was_made({&models[0], &models[1], &models[2], &models[3], &models[4], &models[5]});
    // Of 8 ops a step each: together they are beyond the limit from the eighth step on, each alone from the fiftieth.
    if (step == 45) CHECK(w.seen().anchors == 0);
  }
  CHECK(w.seen().anchors > 0);
  CHECK(w.walked() <= 4 * w.planned);
}

TEST_CASE("steps that read the last two, in requests of their own, are no walk each") {
  Training w(2);
  std::uint64_t last = w.make(fill(0, kFourBlocks)), now = w.make(fill(0, kFourBlocks));
  w.ask({last, now});
  for (int step = 0; step < 1000; ++step) {
    const std::uint64_t next = w.sum(w.sum(now, now), last);
    w.was = {last};
    last = std::exchange(now, next);
    w.ask({now});
  }
  CHECK(w.seen().anchors > 0);
  CHECK(w.walked() <= 4 * w.planned);
}

TEST_CASE("what is made from an array of a long past is not counted for what else is") {
  Training w(2);
  std::uint64_t long_past = w.sum(w.data, w.data);
  for (std::size_t i = 0; i < kLimit - 20; ++i) long_past = w.sum(long_past, w.data);
  w.ask({long_past});
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t one = w.sum(long_past, w.data), two = w.sum(long_past, long_past);
    w.ask({w.sum(one, two)});
  }
  CHECK(w.seen().anchors == 0);
  CHECK(w.walked() <= 50 * w.planned);  // close below the limit; a walk a request would be 130
}

// Random programs whose results are kept at random. Which become anchors is worked out anew at each request.
struct Pasts : World {
  static constexpr std::size_t kMostOps = 24;
  explicit Pasts(std::uint64_t seed) : World(plainly(kMostOps)), rng(seed) {}

  std::size_t length(ArrayId of) const {
    std::set<ArrayId> seen{of};
    std::vector<ArrayId> work{of};
    while (!work.empty()) {
      const ArrayId at = work.back();
      work.pop_back();
      for (const ArrayId read : reads.at(at))
        if (!anchors.contains(read) && seen.insert(read).second) work.push_back(read);
    }
    return seen.size();
  }
  void compare() {
    std::vector<ArrayId> holds;
    std::set<ArrayId> kept, expected;
    for (const auto& [to, entry] : std::exchange(logs, {})) {
      const auto* plan = std::get_if<msg::Plan>(&entry);
      if (plan == nullptr || to != Conn{1}) continue;
      holds.insert(holds.end(), plan->holds.begin(), plan->holds.end());
      for (const msg::PlannedOp& op : plan->ops) {
        if (op.op.kind == ir::OpKind::kKeep) kept.insert(ArrayId{op.op.operands[0].array});
        for (const ir::OutputSpec& output : op.op.outputs)
          for (std::vector<ArrayId>& from = reads[ArrayId{output.array}];
               const ir::Operand& operand : op.op.operands)
            from.push_back(ArrayId{operand.array});
      }
    }
    for (const ArrayId id : holds) {
      if (reads.at(id).empty() || length(id) <= (expected.empty() ? kMostOps : kMostOps / 2)) continue;
      expected.insert(id);
      anchors.insert(id);
    }
    CHECK(kept == expected);
    found += expected.size();
  }

  Prng rng;
  std::map<ArrayId, std::vector<ArrayId>> reads;
  std::set<ArrayId> anchors;
  std::size_t found = 0;
};

struct Program {
  std::vector<ir::Op> ops;
  std::vector<std::uint64_t> holds, releases;
};

TEST_CASE("anchors are those whose pasts are too long, one by one, and a restart changes nothing") {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::vector<msg::Message> shelf;
    const SnapshotCodec codec{[&](const msg::Message& m) -> Result<std::string> {
                                shelf.push_back(m);
                                return std::to_string(shelf.size() - 1);
                              },
                              [&](std::string_view bytes) -> Result<msg::Message> {
                                return shelf.at(std::stoul(std::string(bytes)));
                              }};
    Pasts w(seed);
    std::optional<World> restarted;
    w.add_worker(1, 1, "a"), w.add_worker(2, 1, "b");
    w.join(10, w.client());
    std::vector<std::uint64_t> held;
    std::uint64_t next = 1;
    const std::uint64_t wide = 1 + w.rng.below(6), restart = w.rng.below(40);
    for (std::uint64_t request = 1; request <= 60; ++request) {
      Program p;
      std::vector<std::uint64_t> may_read = held;
      for (std::uint64_t n = 1 + w.rng.below(request % 7 == 0 ? 120 : 12); n > 0; --n, ++next) {
        const auto some = [&] {
          const std::size_t last = std::min<std::size_t>(may_read.size(), 2 * wide);
          return may_read[w.rng.below(8) == 0 ? w.rng.below(may_read.size())
                                              : may_read.size() - 1 - w.rng.below(last)];
        };
        if (may_read.empty() || w.rng.below(20) == 0)
          p.ops.push_back(fill(next, kFourBlocks, static_cast<double>(next)));
        else
          p.ops.push_back(map(next, kFourBlocks, {some(), some()}));
        may_read.push_back(next);
        if (w.rng.below(3) == 0 || n == 1) p.holds.push_back(next);
      }
      while (held.size() > wide) {
        const auto at = held.begin() + static_cast<std::ptrdiff_t>(w.rng.below(held.size()));
        p.releases.push_back(*at);
        held.erase(at);
      }
      held.insert(held.end(), p.holds.begin(), p.holds.end());
      if (request == restart) {
        w.core.settle(w.now, w.actions);
        restarted.emplace();
        REQUIRE(restarted->core.restore(*w.core.snapshot(codec), codec).has_value());
        restarted->now = w.now;
        restarted->workers = w.workers;
      }
      const auto run = [&](World& on) {
        REQUIRE(on.submit(10, request, p.ops, p.holds).outcome.ok());
        on.receive(10, msg::ReleaseArrays{p.releases});
      };
      run(w);
      const auto told = w.logs;
      w.compare();
      const auto finish = [&](World& on) {
        for (const auto& [to, entry] : told)
          if (const auto* plan = std::get_if<msg::Plan>(&entry); plan != nullptr && to == Conn{1})
            on.complete(*plan);
      };
      finish(w);
      if (!restarted) continue;
      run(*restarted);
      finish(*restarted);
      CHECK(restarted->core.digest() == w.core.digest());
    }
    found += w.found;
  }
  CHECK(found > 1000);
}

}  // namespace
}  // namespace tilewise::scheduler::test
