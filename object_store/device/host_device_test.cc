// What only host devices promise.
#include <tilewise/base/prng.h>
#include <tilewise/device/device.h>

#include "device_conformance.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace tilewise;
using namespace tilewise::device;
using conformance::eventually;
using conformance::Gate;

namespace {

std::unique_ptr<Device> small(int threads, TimeNs spin_ns = 20'000) {
  return make_host_device({.ordinal = 3, .threads = threads, .memory_bytes = 64 << 20, .spin_ns = spin_ns});
}

TimeNs cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) { return t.tv_sec * kSecond + t.tv_usec * kMicrosecond; };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

}  // namespace

TEST_CASE("a slab for which there is no file descriptor is not one for which there is no memory") {
  auto device = small(1);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = dup(0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  close(next);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto refused = device->add_slab(1 << 20);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::kLimitExceeded);
  CHECK(refused.error().message.find("Too many open files") != std::string::npos);
  CHECK(device->add_slab(1 << 20));
}

TEST_CASE("a slab can be mapped by others and never changes its size") {
  auto device = small(1);
  auto slab = device->add_slab(1 << 20);
  REQUIRE(slab);
  const int fd = dup(slab->memfd);
  auto* there = static_cast<std::byte*>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  REQUIRE(there != MAP_FAILED);
  slab->data[12345] = std::byte{77};
  CHECK(there[12345] == std::byte{77});
  CHECK(ftruncate(fd, 0) != 0);
  CHECK((fcntl(slab->memfd, F_GETFD) & FD_CLOEXEC) != 0);
  device.reset();
  CHECK(there[12345] == std::byte{77});  // the memory lives while a peer maps it
  munmap(there, 1 << 20);
  close(fd);
}

TEST_CASE("slabs of odd sizes, and pre-faulted ones") {
  auto device = make_host_device({.memory_bytes = 1 << 26, .prefault = true});
  auto odd = device->add_slab(12'345);
  REQUIRE(odd);
  odd->data[12'344] = std::byte{1};
  REQUIRE(device->add_slab(40 << 20));
  device.reset();  // does not wait for all of it
}

TEST_CASE("memory that the system refuses is an error, not a crash") {
  auto device = make_host_device({.memory_bytes = std::int64_t{1} << 60});
  const auto slab = device->add_slab(std::int64_t{1} << 59);
  REQUIRE_FALSE(slab);
  CHECK(slab.error().code == Errc::kOutOfMemory);
  CHECK(slab.error().message.find(std::to_string(std::int64_t{1} << 59)) != std::string::npos);
}

TEST_CASE("calls that can never be right are refused") {
  auto device = small(1);
  Stream& stream = device->compute_stream(0);
  int x = 0;
  CHECK(stream.enqueue(nullptr).error().code == Errc::kInvalidArgument);
  CHECK(stream.copy(nullptr, &x, 4).error().code == Errc::kInvalidArgument);
  CHECK(stream.wait(stream, 1).error().code == Errc::kInvalidArgument);
  CHECK(stream.record() == 1);
}

TEST_CASE("what work holds is released before its step is complete") {
  auto device = small(1);
  Stream& stream = device->compute_stream(0);
  for (int i = 0; i < 200; ++i) {
    auto held = std::make_shared<int>(1);
    std::weak_ptr<int> watch = held;
    REQUIRE(stream.enqueue([held = std::move(held)] { return Status(); }));
    const std::uint64_t step = stream.record();
    REQUIRE(eventually([&] { return stream.completed() >= step; }));
    REQUIRE(watch.expired());
  }
}

TEST_CASE("an idle stream runs work on the calling thread, a busy one refuses") {
  auto device = small(2);
  Stream& stream = device->compute_stream(0);
  std::thread::id where;
  const Stream::HostWork note = [&]() -> Status {
    where = std::this_thread::get_id();
    return {};
  };
  for (int i = 1; i <= 100; ++i) {
    REQUIRE(stream.run_now(note));
    CHECK(where == std::this_thread::get_id());
    CHECK(stream.completed() == static_cast<std::uint64_t>(2 * i - 1));
    REQUIRE(stream.enqueue(note));  // the executor takes over, and hands back
    CHECK_FALSE(stream.run_now(note));
    const std::uint64_t step = stream.record();
    CHECK(step == static_cast<std::uint64_t>(2 * i));
    REQUIRE(eventually([&] { return stream.completed() >= step; }));
    CHECK(where != std::this_thread::get_id());
  }
  // Others may wait for it, and its failures are kept.
  Stream& other = device->compute_stream(1);
  Gate gate;
  gate.hold(other);
  REQUIRE(other.wait(stream, 201));
  const std::uint64_t after = other.record();
  REQUIRE(stream.run_now([] { return Status(error(Errc::kInternal, "on purpose")); }));
  REQUIRE(stream.run_now([]() -> Status { throw std::runtime_error("thrown"); }));
  CHECK_FALSE(other.run_now(note));
  gate.open();
  CHECK(eventually([&] { return other.completed() >= after; }));
  std::vector<StepFailure> failures;
  stream.take_failures(failures);
  REQUIRE(failures.size() == 2);
  CHECK(failures[0].sequence == 201);
  CHECK(failures[0].error.message == "on purpose");
  CHECK(failures[1].sequence == 202);
  CHECK(failures[1].error.message.find("thrown") != std::string::npos);
}

TEST_CASE("a waiting or idle stream does not burn a core") {
  auto device = small(2);
  Gate gate;
  gate.hold(device->compute_stream(0));
  device->compute_stream(0).record();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const TimeNs before = cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(cpu_time() - before < 50 * kMillisecond);
  gate.open();
  device->synchronize();
}

TEST_CASE("a stream that outlives the one it waits for goes on, and says so") {
  auto waiting = small(1);
  auto other = small(1);
  Stream& stream = waiting->compute_stream(0);
  REQUIRE(stream.wait(other->compute_stream(0), 1));  // never recorded
  const std::uint64_t failed = stream.record();
  REQUIRE(stream.wait(other->copy_stream(), other->copy_stream().record()));
  const std::uint64_t fine = stream.record();
  other.reset();
  CHECK(eventually([&] { return stream.completed() == fine; }));
  std::vector<StepFailure> failures;
  stream.take_failures(failures);
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].sequence == failed);
  CHECK(failures[0].error.code == Errc::kUnavailable);
}

TEST_CASE("streams that wait for each other in turn run in the one order allowed") {
  auto a = small(2, 0), b = small(2, 5'000);
  std::vector<Stream*> streams;
  for (auto* d : {a.get(), b.get()}) {
    for (int i = 0; i < 2; ++i) streams.push_back(&d->compute_stream(i));
    streams.push_back(&d->copy_stream());
  }
  Prng rng(11);
  constexpr int kSteps = 5000;
  int value = 0;  // written by one stream after the other: no lock, the waits are what orders it
  bool ordered = true;
  Stream* last = streams[0];
  std::uint64_t last_step = 0;
  for (int i = 0; i < kSteps; ++i) {
    Stream* next = streams[rng.below(streams.size())];
    if (next != last) REQUIRE(next->wait(*last, last_step));
    REQUIRE(next->enqueue([&value, &ordered, i] {
      ordered = ordered && value == i;
      value = i + 1;
      return Status();
    }));
    last_step = next->record();
    last = next;
  }
  REQUIRE(eventually([&] { return last->completed() == last_step; }));
  CHECK(ordered);
  CHECK(value == kSteps);
}

TEST_CASE("tiny steps") {
  auto device = small(1);
  Stream& stream = device->compute_stream(0);
  std::atomic<int> calls{0};
  device->on_progress([&] { ++calls; });
  constexpr int kSteps = 1'000'000;
  std::uint64_t sum = 0;
  const auto run = [&] {
    const TimeNs start = monotonic_now();
    for (int i = 0; i < kSteps; ++i) {
      (void)stream.enqueue([&sum] {
        ++sum;
        return Status();
      });
      stream.record();
      if (i % 1000 == 0) (void)stream.completed();
    }
    const TimeNs queued = monotonic_now();
    device->synchronize();
    const TimeNs end = monotonic_now();
    const double rate = kSteps * 1e3 / static_cast<double>(end - start);
    const double enqueue_ns = static_cast<double>(queued - start) / kSteps;
    MESSAGE("million steps/s: " << rate << ", ns to enqueue one: " << enqueue_ns
                                << ", notices: " << calls.load());
  };
  run();
  run();
  CHECK(sum == 2 * kSteps);
  CHECK(calls >= 1);
  CHECK(calls <= 2100);  // one per look at most
}

TEST_CASE("round trip through a stream") {
  auto device = small(1);
  Stream& stream = device->compute_stream(0);
  for (const bool asleep : {false, true}) {
    TimeNs total = 0;
    constexpr int kRounds = 200;
    for (int i = 0; i < kRounds; ++i) {
      if (asleep) std::this_thread::sleep_for(std::chrono::microseconds(200));
      const TimeNs start = monotonic_now();
      const std::uint64_t step = stream.record();
      while (stream.completed() < step) {
      }
      total += monotonic_now() - start;
    }
    const TimeNs each_ns = total / kRounds;
    CAPTURE(asleep);
    MESSAGE("ns a round trip: " << each_ns);
  }
}
