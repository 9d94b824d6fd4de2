#include "window.h"

#include <doctest/doctest.h>

#include <tilewise/base/prng.h>

#include <vector>

using namespace tilewise;
using namespace tilewise::worker;

namespace {
constexpr WorkerId kW1{1}, kW2{2}, kW3{3};
Turn turn(std::int64_t ordinal, std::int64_t rank = 0) { return {rank, GraphId{1}, 1, ordinal}; }
}  // namespace

TEST_CASE("one peer may have so much on its way, all together more, and one block always may") {
  Window w(100, 60);
  CHECK(w.admits(kW1, 1000, turn(0)));
  w.begin(kW1, 60);
  CHECK_FALSE(w.admits(kW1, 1, turn(0)));
  CHECK(w.admits(kW2, 40, turn(0)));
  CHECK_FALSE(w.admits(kW2, 41, turn(0)));
  w.begin(kW2, 40);
  CHECK_FALSE(w.admits(kW3, 1, turn(0)));
  w.end(kW2, 40);
  w.end(kW1, 60);
  CHECK(w.bytes() == 0);
  w.begin(kW1, 1000);  // too large for any bound: it goes alone
  CHECK_FALSE(w.admits(kW2, 1, turn(0)));
}

TEST_CASE("whoever is needed first is next, and nobody overtakes for the same room") {
  Window w(100, 100);
  w.begin(kW1, 90);
  w.wait(1, kW2, 50, turn(3));
  w.wait(2, kW2, 5, turn(7));
  w.wait(3, kW3, 20, turn(5));
  CHECK_FALSE(w.admits(kW3, 5, turn(6)));  // would fit, beside those who wait: the room is theirs
  CHECK(w.admits(kW3, 5, turn(1)));
  CHECK(w.next() == kNone);
  CHECK_FALSE(w.take_news());
  w.end(kW1, 90);
  CHECK(w.take_news());
  CHECK(w.next() == 1);
  w.begin(kW2, 50);
  CHECK(w.next() == 3);
  w.begin(kW3, 20);
  CHECK(w.next() == 2);
  CHECK(w.waiting() == 0);
}

TEST_CASE("a peer that is full keeps nobody else waiting, however soon its blocks are needed") {
  Window w(100, 50);
  w.begin(kW1, 50);
  w.wait(1, kW1, 10, turn(0));
  CHECK(w.admits(kW2, 50, turn(9)));
  CHECK_FALSE(w.admits(kW1, 0, turn(9)));
  w.begin(kW2, 40);
  CHECK(w.next() == kNone);
  w.leave(1);
  CHECK_FALSE(w.take_news());  // nobody waits any more
}

TEST_CASE("whoever stood first and leaves lets others go") {
  Window w(100, 100);
  w.begin(kW1, 60);
  w.wait(1, kW2, 80, turn(0));
  w.wait(2, kW3, 40, turn(1));
  CHECK(w.next() == kNone);
  w.leave(1);
  CHECK(w.take_news());
  CHECK(w.next() == 2);
}

TEST_CASE("at any time what is on its way is bounded, and at rest nobody waits who could go") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Prng p(seed);
    Window w(p.between(1, 300), p.between(1, 200));
    std::vector<std::pair<WorkerId, std::int64_t>> size(1, {kW1, 0});  // by slot
    std::vector<Slot> on_their_way;
    std::map<WorkerId, std::int64_t> of;
    const auto begin = [&](Slot slot) {
      w.begin(size[slot].first, size[slot].second);
      on_their_way.push_back(slot);
    };
    for (int i = 0; i < 2000 || !on_their_way.empty(); ++i) {
      if (i < 2000 && p.chance(0.5)) {
        const auto slot = static_cast<Slot>(size.size());
        size.emplace_back(WorkerId{static_cast<std::uint32_t>(p.between(1, 4))}, p.between(1, 150));
        const auto& [peer, bytes] = size.back();
        const Turn at = turn(p.between(0, 1000), p.between(-1, 0));
        w.admits(peer, bytes, at) ? begin(slot) : w.wait(slot, peer, bytes, at);
      } else if (!on_their_way.empty()) {
        const std::size_t k = p.below(on_their_way.size());
        w.end(size[on_their_way[k]].first, size[on_their_way[k]].second);
        on_their_way.erase(on_their_way.begin() + static_cast<std::ptrdiff_t>(k));
        while (w.take_news())
          for (Slot next = w.next(); next != kNone; next = w.next()) begin(next);
      }
      CHECK_FALSE(w.stalls());
    }
    CHECK(w.waiting() == 0);
    CHECK(w.bytes() == 0);
  }
}
