#include "loop_role.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

using namespace tilewise;
using namespace tilewise::remote;

namespace {

constexpr TimeNs kTurnsAtMost = 20 * kSecond;

struct Running {
  explicit Running(TimeNs lease_ns = LoopRole::kLeaseNs) : role(*loop, lease_ns) {}
  std::unique_ptr<net::EventLoop> loop = std::move(net::EventLoop::create().value());
  LoopRole role;
  std::thread background{[this] { role.serve(); }};

  ~Running() { stop(); }
  void stop() {
    role.stop();
    if (background.joinable()) background.join();
  }
  bool take() { return role.take(monotonic_now() + kTurnsAtMost); }
  // Until a function posted to the loop has run, by whichever thread.
  bool served(std::thread::id* by = nullptr) {
    std::atomic<bool> ran = false;
    loop->post([&] {
      if (by != nullptr) *by = std::this_thread::get_id();
      ran = true;
    });
    const TimeNs until = monotonic_now() + kTurnsAtMost;
    while (!ran && monotonic_now() < until) std::this_thread::yield();
    return ran;
  }
};

}  // namespace

TEST_CASE("role: the background thread runs the loop until somebody waits, and again afterwards") {
  Running r;
  std::thread::id by;
  CHECK(r.served(&by));
  CHECK(by == r.background.get_id());
  CHECK(!r.role.take_free());  // it is not
  REQUIRE(r.take());
  bool ran = false;
  r.loop->post([&] {
    by = std::this_thread::get_id();
    ran = true;
  });
  CHECK(r.loop->run_until([&] { return ran; }, kTurnsAtMost));
  CHECK(by == std::this_thread::get_id());
  r.role.release();
  CHECK(r.served(&by));  // after the lease
  CHECK(by == r.background.get_id());
}

TEST_CASE("role: between two waits it is free, and urgent work ends that") {
  Running r;
  REQUIRE(r.take());
  CHECK(!r.take());  // taken
  r.role.release();
  bool free = r.role.take_free();
  for (int i = 0; i < 1000 && !free; ++i) {  // a slow machine: the lease was over
    if (r.take()) r.role.release();
    free = r.role.take_free();
  }
  CHECK(free);
  r.role.release();
  r.role.hurry();
  CHECK(r.served());
}

TEST_CASE("role: stop ends the background thread whoever has the role") {
  {
    Running r;
    r.stop();
    CHECK(!r.take());
    CHECK(!r.role.take_free());
  }
  {
    Running r;
    REQUIRE(r.take());
    std::thread stopper([&] { r.stop(); });
    stopper.join();
    r.role.release();
  }
}

TEST_CASE("role: a take gives up when the background thread does not let go") {
  Running r;
  std::atomic<bool> busy = false, over = false;
  r.loop->post([&] {
    busy = true;
    while (!over) std::this_thread::yield();  // a long callback
  });
  while (!busy) std::this_thread::yield();
  CHECK(!r.role.take(monotonic_now() + 5 * kMillisecond));
  over = true;
  CHECK(r.take());
  r.role.release();
  CHECK(r.served());
}

TEST_CASE("role: whoever it was let go for gets it, although the lease is over when he wakes up") {
  Running r(0);
  for (int i = 0; i < 2'000; ++i) {
    REQUIRE(r.take());
    r.role.release();
  }
}

TEST_CASE("role: one thread at a time runs the loop, and what is posted is always done") {
  constexpr int kThreads = 4, kRounds = 300;
  TimeNs lease_ns = LoopRole::kLeaseNs;
  SUBCASE("with a lease") {}
  SUBCASE("without") { lease_ns = 0; }
  Running r(lease_ns);
  int inside = 0;  // not atomic: the role is what protects it
  std::atomic<int> clashes = 0, missed = 0;
  const auto user = [&](int seed) {
    for (int i = 0; i < kRounds; ++i) {
      std::atomic<bool> ran = false;
      r.loop->post([&] {
        if (++inside != 1) ++clashes;
        --inside;
        ran = true;
      });
      if (r.take()) {
        r.loop->set_spin((i + seed) % 3 == 0 ? 20 * kMicrosecond : 0);
        if (!r.loop->run_until([&] { return ran.load(); }, kTurnsAtMost)) ++missed;
        r.loop->set_spin(0);
        r.role.release();
      }
      if ((i + seed) % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));  // past the lease
      const TimeNs until = monotonic_now() + kTurnsAtMost;
      while (!ran && monotonic_now() < until) std::this_thread::yield();
      if (!ran) ++missed;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(user, t);
  for (std::thread& thread : threads) thread.join();
  CHECK(clashes == 0);
  CHECK(missed == 0);
}
