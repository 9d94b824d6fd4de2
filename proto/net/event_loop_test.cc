#include "net_test_util.h"

#include <tilewise/base/prng.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

TEST_CASE("posted functions run in order, on the loop's thread, also when it is parked") {
  for (TimeNs spin : {TimeNs{0}, kMillisecond}) {
    auto loop = make_loop({.spin_ns = spin});
    std::vector<int> seen;
    std::thread::id ran_on;
    std::thread runner([&] { loop->run(); });
    for (int i = 0; i < 2000; ++i) {
      loop->post([&, i] {
        seen.push_back(i);
        ran_on = std::this_thread::get_id();
      });
      if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));  // let it park
    }
    auto id = runner.get_id();
    loop->post([&] { loop->stop(); });
    runner.join();
    REQUIRE(seen.size() == 2000);
    for (int i = 0; i < 2000; ++i) REQUIRE(seen[static_cast<std::size_t>(i)] == i);
    CHECK(ran_on == id);
  }
}

TEST_CASE("no wake-up is lost between the hook's look and parking") {
  auto loop = make_loop();
  std::atomic<int> mailbox = 0;
  std::atomic<bool> given_up = false;
  int taken = 0;
  loop->set_batch_hook([&] {
    int n = mailbox.exchange(0);
    taken += n;
    // Long enough for the sender to fill the mailbox between the look into it and parking.
    for (TimeNs until = monotonic_now() + 2 * kMicrosecond; monotonic_now() < until;) {
    }
    return n > 0;
  });
  constexpr int kRounds = 4000;
  std::thread sender([&] {
    Prng prng(5);
    for (int i = 0; i < kRounds && !given_up; ++i) {
      TimeNs pause = prng.between(0, 10 * kMicrosecond);  // so that every moment of the loop's turn is hit
      for (TimeNs until = monotonic_now() + pause; monotonic_now() < until;) {
      }
      mailbox.fetch_add(1);
      loop->wake();
      while (mailbox.load() != 0 && !given_up) std::this_thread::yield();  // for ever if the wake-up is lost
    }
  });
  CHECK(loop->run_until([&] { return taken == kRounds; }, kPatience));
  given_up = true;
  sender.join();
}

TEST_CASE("stop comes from any thread, before or during run") {
  auto loop = make_loop();
  loop->stop();
  loop->run();
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    loop->stop();
  });
  loop->run();
  stopper.join();
  CHECK(!loop->run_until([] { return false; }, kMillisecond));
}

TEST_CASE("a turn is: events, hook, deferred; a working hook keeps the loop awake") {
  auto loop = make_loop();
  std::string order;
  int hooks = 0;
  loop->set_batch_hook([&] {
    if (hooks == 0) order += "hook ";
    return ++hooks <= 5;
  });
  loop->post([&] {
    loop->defer([&] { order += "deferred "; });
    order += "event ";
  });
  loop->poll();
  CHECK(order == "event hook deferred ");
  while (loop->poll()) {
  }
  CHECK(hooks == 6);
}

TEST_CASE("timers fire in order, once, unless cancelled") {
  auto loop = make_loop();
  std::string order;
  TimeNs begin = monotonic_now();
  loop->after(6 * kMillisecond, [&] { order += 'c'; });
  TimerId b = loop->after(4 * kMillisecond, [&] { order += 'b'; });
  TimerId x = loop->after(2 * kMillisecond, [&] { order += 'x'; });
  loop->after(kMillisecond, [&] {
    order += 'a';
    loop->cancel(x);
  });
  CHECK(loop->run_until([&] { return order.size() == 3; }, kPatience));
  CHECK(order == "abc");
  CHECK(monotonic_now() - begin >= 6 * kMillisecond);
  loop->cancel(b);  // long gone
  // Two that expire together: the first cancels the second, whose handler is already queued.
  TimerId second = 0;
  bool fired = false;
  loop->after(0, [&] { loop->cancel(second); });
  second = loop->after(0, [&] { fired = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  settle(*loop, 2 * kMillisecond);
  CHECK(!fired);
}

TEST_CASE("a watched descriptor calls once per arm, and is left open") {
  auto loop = make_loop();
  UniqueFd fd(::eventfd(1, EFD_CLOEXEC));
  int calls = 0;
  auto watch = loop->watch_fd(fd.get(), [&] { ++calls; });
  REQUIRE(watch);
  settle(*loop, 2 * kMillisecond);
  CHECK(calls == 0);  // not armed
  (*watch)->arm();
  (*watch)->arm();
  CHECK(loop->run_until([&] { return calls == 1; }, kPatience));
  settle(*loop, 2 * kMillisecond);
  CHECK(calls == 1);
  (*watch)->arm();  // readable all the time: also counts
  CHECK(loop->run_until([&] { return calls == 2; }, kPatience));
  auto twice = loop->watch_fd(fd.get(), [] {});
  CHECK(!twice);
  (*watch)->arm();
  watch->reset();
  settle(*loop, 2 * kMillisecond);
  CHECK(calls == 2);
  std::uint64_t value = 0;
  CHECK(::read(fd.get(), &value, sizeof(value)) == sizeof(value));  // not closed
  std::unique_ptr<FdWatch> again;
  again =
      std::move(loop->watch_fd(fd.get(), [&] { again.reset(); }).value());  // destroyed in its own callback
  again->arm();
  value = 1;
  CHECK(::write(fd.get(), &value, sizeof(value)) == sizeof(value));
  CHECK(loop->run_until([&] { return again == nullptr; }, kPatience));
  UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  auto refused = loop->watch_fd(file.get(), [] {});
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::kIo);
}

TEST_CASE("signals come as callbacks") {
  auto loop = make_loop();
  std::vector<int> seen;
  REQUIRE(loop->on_signals([&](int signal) { seen.push_back(signal); }));
  CHECK(!loop->on_signals([](int) {}));
  ::raise(SIGTERM);
  CHECK(loop->run_until([&] { return seen.size() == 1; }, kPatience));
  ::raise(SIGINT);
  CHECK(loop->run_until([&] { return seen.size() == 2; }, kPatience));
  CHECK((seen == std::vector<int>{SIGTERM, SIGINT}));
}

TEST_CASE("what callbacks own may use the loop while the loop is destroyed") {
  auto loop = make_loop();
  EventLoop* raw = loop.get();
  struct Owner {
    EventLoop* loop;
    TimerId id;
    ~Owner() { loop->cancel(id); }
  };
  TimerId other = loop->after(kSecond, [] {});
  loop->after(kSecond, [owner = std::make_shared<Owner>(raw, other)] {});
  loop->defer([owner = std::make_shared<Owner>(raw, other)] {});
  loop->post([owner = std::make_shared<Owner>(raw, other)] {});
  loop.reset();
}
