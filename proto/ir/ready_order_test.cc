#include <tilewise/ir/ready_order.h>

#include <doctest/doctest.h>

#include <vector>

namespace tilewise::ir {
namespace {

constexpr std::int64_t kBig = kLargeBytes + 1;

std::vector<std::uint32_t> drained(ReadyOrder& order, bool short_of_memory = false) {
  std::vector<std::uint32_t> out;
  while (!order.empty()) {
    const std::uint32_t next = order.next(short_of_memory);
    CHECK(order.take(short_of_memory) == next);
    out.push_back(next);
  }
  CHECK(order.next(short_of_memory) == ReadyOrder::kNone);
  return out;
}
using Tasks = std::vector<std::uint32_t>;

TEST_CASE("what the longest path needs goes first; of equal ones what has just been given a large block") {
  ReadyOrder order;
  order.push({.task = 1, .level = 5, .came = true, .reads_large = true});
  order.push({.task = 2, .level = 9, .came = true, .reads_large = true});
  order.push({.task = 3, .level = 5, .came = true, .awaited = true});
  order.push({.task = 4, .level = 5, .awaited = true});  // nothing came: in turn among its equals
  order.push({.task = 5, .level = 5, .awaited = true});
  CHECK(order.size() == 5);
  CHECK(drained(order) == Tasks{2, 1, 3, 4, 5});
}

TEST_CASE("who was under way goes on; who reads nothing large for nobody elsewhere goes in turn") {
  ReadyOrder order;
  order.push({.task = 1, .level = 100});
  order.push({.task = 2,
              .level = 200,
              .reads_large = true});  // it could run from the beginning: it frees nothing new
  order.push({.task = 3, .level = 300, .came = true});
  order.push({.task = 4, .level = 1, .came = true, .reads_large = true});
  order.push_last(5);
  order.push_first(6);
  order.push_first(7);
  CHECK(drained(order) == Tasks{7, 6, 4, 1, 2, 3, 5});
}

TEST_CASE("what only makes memory grow here goes in plan order, behind what lets go of some") {
  ReadyOrder order;
  order.push({.task = 1, .level = 50, .op = 3, .came = true, .reads_large = true, .grows_bytes = kBig});
  order.push({.task = 2, .level = 90, .op = 7, .came = true, .reads_large = true, .grows_bytes = kBig});
  order.push({.task = 3, .level = 60, .op = 3, .came = true, .reads_large = true, .grows_bytes = kBig});
  order.push({.task = 4, .level = 1, .op = 9, .came = true, .reads_large = true, .grows_bytes = 0});
  CHECK(drained(order) == Tasks{4, 3, 1, 2});
}

TEST_CASE("the critical path goes first only while memory is not short") {
  ReadyOrder order;
  const auto fill = [&] {
    order.push({.task = 1, .level = 10, .came = true, .reads_large = true});
    order.push({.task = 2, .level = 90, .came = true, .awaited = true, .grows_bytes = kBig});
    order.push({.task = 3, .level = 5, .came = true, .awaited = true, .grows_bytes = kLargeBytes});
    order.push({.task = 4, .level = 99, .op = 1, .came = true, .reads_large = true, .grows_bytes = kBig});
  };
  fill();
  CHECK(drained(order) == Tasks{2, 1, 3, 4});
  fill();
  CHECK(drained(order, true) == Tasks{1, 3, 2, 4});
  fill();  // it may change from one to the next
  CHECK(order.take(true) == 1);
  CHECK(order.take(false) == 2);
  CHECK(drained(order, true) == Tasks{3, 4});
}

TEST_CASE("tasks are taken out, the others stay in order") {
  ReadyOrder order;
  for (std::uint32_t i = 0; i < 20; ++i)
    order.push({.task = i, .level = i % 7, .came = true, .awaited = i % 2 == 0, .reads_large = i % 3 == 0});
  order.push_first(20);
  ReadyOrder without = order;
  without.erase_if([](std::uint32_t t) { return t % 5 == 0; });
  CHECK(without.size() == 16);
  std::size_t seen = 0;
  without.for_each([&](std::uint32_t t) { seen += t % 5 != 0 ? 1 : 100; });
  CHECK(seen == 16);
  Tasks expected = drained(order);
  std::erase_if(expected, [](std::uint32_t t) { return t % 5 == 0; });
  CHECK(drained(without) == expected);
}

}  // namespace
}  // namespace tilewise::ir
