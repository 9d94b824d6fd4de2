// What an event costs when thousands of graphs wait for others: counted in queues that are looked at.
#include "queue_list.h"

#include "lists.h"

namespace tilewise::worker::test {
namespace {

// As a client does that loops without waiting: each graph reads what the one before it makes.
std::vector<msg::LogEntry> chain_of(std::uint64_t graphs) {
  const ir::Op first = source(1, 1);
  std::vector<msg::LogEntry> log{plan_of({on(kHere, 1, first)}, {ArrayId{1}}, 1)};
  for (std::uint64_t g = 2; g <= graphs; ++g)
    log.push_back(plan_of({on(kHere, g, map_of(g - 1, g, first.space))}, {ArrayId{g}}, g));
  return log;
}

// Queues looked at in each of the steps in which the next graphs of the chain end and begin.
std::vector<std::int64_t> looked_at(Lists& lists, std::uint64_t from, std::uint64_t steps) {
  std::vector<std::int64_t> each;
  for (std::uint64_t i = from; i < from + steps; ++i) {
    const std::int64_t before = lists.core->counters().queues_looked_at;
    const Actions& actions = lists.completed(i);
    each.push_back(lists.core->counters().queues_looked_at - before);
    REQUIRE(actions.launches.size() == 1);
    CHECK(actions.launches[0].run.graph == GraphId{i + 1});
  }
  return each;
}

TEST_CASE("an event costs no more when a thousand graphs wait than when ten do") {
  std::vector<std::int64_t> few, many;
  for (const std::uint64_t graphs : {10u, 1000u}) {
    Lists lists(1 << 24, 1);  // a stream holds one step
    lists.log(chain_of(graphs));
    (graphs == 10 ? few : many) = looked_at(lists, 1, 8);
  }
  CHECK(few == many);
  CHECK(*std::ranges::max_element(many) <= 16);
}

TEST_CASE("graphs that wait for a peer cost nothing while others run") {
  std::vector<std::int64_t> few, many;
  for (const std::uint64_t graphs : {10u, 1000u}) {
    Lists lists(1 << 24, 1);
    const ir::Grid grid = source(1, 1).space;
    lists.log({plan_of({on(kPeer, 1, source(1, 1))}, {ArrayId{1}}, 1)});
    std::vector<msg::LogEntry> waiting;
    for (std::uint64_t g = 2; g <= graphs; ++g)
      waiting.push_back(plan_of({on(kHere, g, map_of(1, g, grid))}, {ArrayId{g}}, g));
    lists.log(std::move(waiting));
    const std::uint64_t last = graphs + 1;
    lists.log({plan_of({on(kHere, last, source(last, 64))}, {ArrayId{last}}, last)});
    std::vector<std::int64_t>& each = graphs == 10 ? few : many;
    for (std::uint64_t i = 1; i <= 32; ++i) {
      const std::int64_t before = lists.core->counters().queues_looked_at;
      CHECK(lists.completed(i).launches.size() == 1);
      each.push_back(lists.core->counters().queues_looked_at - before);
    }
  }
  CHECK(few == many);
  CHECK(*std::ranges::max_element(many) <= 8);
}

TEST_CASE("of a list those of the highest priority come in turn") {
  QueueList list;
  list.add({GraphId{3}, 0}, 30);
  list.add({GraphId{2}, 1}, 20);
  list.add({GraphId{5}, 1}, 50);
  list.add({GraphId{1}, 0}, 10);
  std::vector<Slot> all;
  for (const QueueEntry& entry : list) all.push_back(entry.queue);
  CHECK(all == std::vector<Slot>{20, 50, 10, 30});
  CHECK(list.after(kBeforeAllQueues).queue == 20);
  CHECK(list.after({GraphId{2}, 1}).queue == 50);
  CHECK(list.after({GraphId{5}, 1}).queue == 10);
  CHECK(list.after({GraphId{3}, 0}).queue == 20);
  CHECK(list.after({GraphId{4}, 1}).queue == 50);  // it has gone
  CHECK(list.highest_after({GraphId{2}, 1}).queue == 50);
  CHECK(list.highest_after({GraphId{5}, 1}).queue == 20);
  CHECK(list.highest_after({GraphId{1}, 0}).queue == 20);
  CHECK(list.position({GraphId{1}, 0}) == 2);
  list.remove({GraphId{2}, 1});
  list.remove({GraphId{5}, 1});
  CHECK(list.highest_after({GraphId{1}, 0}).queue == 30);
}

}  // namespace
}  // namespace tilewise::worker::test
