// Which tasks a failed step fails, and what is told as the cause.
#include <functional>

#include "lists.h"

namespace tilewise::worker::test {
namespace {

TEST_CASE("a failed step fails exactly its dependents, enqueued ones included") {
  Lists lists;
  const ir::Op a = source(10, 2);
  lists.log({plan_of({on(kHere, 1, a), on(kHere, 2, map_of(10, 11, a.space))}, {ArrayId{11}})});
  lists.step({StepFailed{0, 0, 1, {Errc::kTaskFailed, "told to"}}, StreamCompleted{0, 0, 4}});
  CHECK(lists.core->counters().tasks_failed == 2);  // block 0 and what was made of it
  CHECK(!lists.core->holds({ArrayId{11}, 0}));
  CHECK(lists.core->holds({ArrayId{11}, 1}));
  int told = 0;
  for (const msg::Message& m : lists.actions.to_scheduler) {
    if (const auto* failed = std::get_if<msg::TaskFailed>(&m)) {
      ++told;
      CHECK(failed->why.message.find("told to") != std::string::npos);
    }
  }
  CHECK(told == 2);  // each op names the root cause once
}

TEST_CASE("a step that fails of what another one has left is not the cause, whichever is told of first") {
  struct Step {
    OpId op;
    std::uint8_t stream;
    std::uint64_t sequence;
  };
  // c reads b, which reads a; on two streams at least.
  const auto with = [](const std::function<void(Lists&, const Step&, const Step&, const Step&)>& fn) {
    Lists lists(Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 3, false}));
    const ir::Op a = source(10, 1);
    const Actions& actions = lists.log({plan_of(
        {on(kHere, 1, a), on(kHere, 2, map_of(10, 11, a.space)), on(kHere, 3, map_of(11, 12, a.space))},
        {ArrayId{12}})});
    std::vector<Step> steps;
    for (const Launch& l : actions.launches) steps.push_back({l.run.id, l.stream, l.sequence});
    REQUIRE(steps.size() == 3);
    REQUIRE(steps[2].op == OpId{3});
    REQUIRE(steps[0].stream != steps[2].stream);
    fn(lists, steps[0], steps[1], steps[2]);
  };
  const auto failed = [](const Step& step, const char* why) {
    return StepFailed{0, step.stream, step.sequence, {Errc::kTaskFailed, why}};
  };
  const auto through = [](const Step& step) { return StreamCompleted{0, step.stream, step.sequence}; };
  const auto told = [](const Actions& actions) {
    std::vector<std::string> out;
    for (const msg::Message& m : actions.to_scheduler)
      if (const auto* task = std::get_if<msg::TaskFailed>(&m)) out.push_back(task->why.message);
    return out;
  };
  const auto say = [&](const Actions& actions, std::size_t times, const char* why) {
    const std::vector<std::string> all = told(actions);
    CHECK(all.size() == times);
    for (const std::string& text : all) CHECK(text.ends_with(why));
  };
  with([&](Lists& lists, const Step& a, const Step& b, const Step& c) {  // all at once, the last first
    say(lists.step({failed(c, "nonsense"), failed(a, "cause"), through(c), through(b), through(a)}), 3,
        "cause");
    CHECK(lists.core->counters().tasks_failed == 3);
  });
  with([&](Lists& lists, const Step& a, const Step& b, const Step& c) {  // the last one's failure by itself
    say(lists.step({failed(c, "nonsense"), failed(b, "nonsense, too")}), 0, "");
    say(lists.step({failed(a, "cause")}), 3, "cause");
    say(lists.step({through(c), through(b), through(a)}), 0, "");
    CHECK(lists.core->counters().tasks_failed == 3);
  });
  with([&](Lists& lists, const Step& a, const Step& b,
           const Step& c) {  // two that are not proven: the first launched
    say(lists.step({failed(c, "nonsense"), failed(b, "cause")}), 0, "");
    say(lists.step({through(c)}), 2, "cause");
    say(lists.step({through(a), through(b)}), 0, "");
    CHECK(lists.core->counters().tasks_failed == 2);
  });
  with([&](Lists& lists, const Step& a, const Step& b,
           const Step& c) {  // who read it is through first, and well
    REQUIRE(b.stream != c.stream);
    say(lists.step({failed(b, "cause")}), 0, "");
    say(lists.step({through(c)}), 2, "cause");
    CHECK(!lists.core->holds({ArrayId{12}, 0}));
    say(lists.step({through(b), through(a)}), 0, "");
    CHECK(lists.core->counters().tasks_failed == 2);
  });
  with([&](Lists& lists, const Step& a, const Step& b, const Step& c) {  // what it read was right
    say(lists.step({failed(c, "its own"), failed(c, "what is said again")}), 0, "");
    say(lists.step({through(a), through(b)}), 0, "");
    say(lists.step({through(c)}), 1, "its own");
    CHECK(lists.core->counters().tasks_failed == 1);
  });
}

TEST_CASE("a step that goes on with what a failed one has left is not the cause") {
  Lists lists(Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 4, false}));
  const auto panels = [](std::uint64_t id, std::int64_t rows, std::int64_t columns) {
    ir::Op op = source(id, 1);
    op.space = op.outputs[0].grid = *ir::Grid::uniform({rows, columns}, {1, 1});
    return op;
  };
  const ir::Op a = panels(10, 1, 2), b = panels(11, 2, 1);
  ir::Op c = panels(12, 1, 1);
  c.kind = ir::OpKind::kMatmul;
  c.operands = {{10, ir::View::identity({1, 2})}, {11, ir::View::identity({2, 1})}};
  c.attrs = ir::MatmulAttrs{};
  const std::vector<Launch> all =
      lists.log({plan_of({on(kHere, 1, a), on(kHere, 2, b), on(kHere, 3, c)}, {ArrayId{12}})}).launches;
  REQUIRE(all.size() == 6);
  const Launch &first = all[4], &second = all[5];
  REQUIRE(second.step == 1);
  // What only the second one reads is proven.
  std::vector<Event> events;
  for (const Launch& l : all)
    if (l.run.id != OpId{3} && l.point == 1) events.push_back(StreamCompleted{0, l.stream, l.sequence});
  REQUIRE(events.size() == 2);
  lists.step(std::move(events));
  const auto failed = [&](const Launch& l, const char* why) {
    return StepFailed{0, l.stream, l.sequence, {Errc::kTaskFailed, why}};
  };
  lists.step({failed(second, "nonsense"), failed(first, "cause")});
  lists.step({StreamCompleted{0, second.stream, second.sequence}});
  REQUIRE(lists.actions.to_scheduler.size() == 1);
  CHECK(std::get<msg::TaskFailed>(lists.actions.to_scheduler[0]).why.message.ends_with("cause"));
}

}  // namespace
}  // namespace tilewise::worker::test
