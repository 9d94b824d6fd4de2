// What every kind of device must do. One suite, instantiated in a few lines per kind:
//
//   TEST_CASE("host device") { device_conformance({.make = ..., .runs_host_work = true}); }
//
// Work is made of copies, which every kind has; a stream is held up by waiting for a host stream that the test controls.
#pragma once
#include <tilewise/device/device.h>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "print_result.h"

namespace tilewise::device::conformance {

struct Subject {
  // A device with that much memory (CUDA: at most) and two compute streams.
  std::function<std::unique_ptr<Device>(std::int64_t memory_bytes)> make;
  bool runs_host_work = false;  // enqueue() takes work
};

// A host stream that stands still until it is opened.
class Gate {
 public:
  Gate() : device_(make_host_device({.ordinal = 99, .threads = 1, .memory_bytes = 1 << 20, .spin_ns = 0})) {
    auto opened = opened_.get_future().share();
    REQUIRE(device_->compute_stream(0).enqueue([opened] {
      opened.wait();
      return Status();
    }));
    sequence_ = device_->compute_stream(0).record();
  }
  ~Gate() { open(); }
  void hold(Stream& stream) { REQUIRE(stream.wait(device_->compute_stream(0), sequence_)); }
  void open() {
    if (!std::exchange(is_open_, true)) opened_.set_value();
  }

 private:
  std::promise<void> opened_;
  bool is_open_ = false;
  std::unique_ptr<Device> device_;
  std::uint64_t sequence_ = 0;
};

// Generous: the machine may be busy. Returns whether `ready` came true.
template <class Ready> bool eventually(Ready ready) {
  const TimeNs until = monotonic_now() + 30 * kSecond;
  while (!ready()) {
    if (monotonic_now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

inline std::vector<std::int32_t> numbers(std::size_t count, std::int32_t first) {
  std::vector<std::int32_t> v(count);
  std::iota(v.begin(), v.end(), first);
  return v;
}

inline void describes_itself(Device& device) {
  const Info& info = device.info();
  CHECK(info.name == std::string(name_of(info.kind)) + ":" + std::to_string(info.ordinal));
  CHECK_FALSE(info.model.empty());
  CHECK(info.numeric_class.starts_with(name_of(info.kind)));
  CHECK(info.memory_bytes > 0);
  CHECK(info.compute_streams >= 1);
  CHECK(device.health());
  CHECK(device.compute_stream(0).kind() == info.kind);
  CHECK((device.compute_stream(0).native() != nullptr) == (info.kind == Kind::kCuda));
}

inline void grows_and_names_what_is_missing(Device& device) {
  const std::int64_t all = device.info().memory_bytes, part = all / 4;
  auto first = device.add_slab(part), second = device.add_slab(part);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->bytes == part);
  CHECK(first->data != nullptr);
  CHECK((first->data + part <= second->data || second->data + part <= first->data));
  const auto refused = device.add_slab(all);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::kOutOfMemory);
  for (const std::string& named : {device.info().name, std::to_string(all), std::to_string(all - 2 * part)}) {
    CHECK_MESSAGE(refused.error().message.find(named) != std::string::npos, refused.error().message);
  }
  CHECK(device.add_slab(part));  // a refusal takes nothing
  const auto negative = device.add_slab(-1);
  REQUIRE_FALSE(negative);
  CHECK(negative.error().code == Errc::kInvalidArgument);
}

inline void copies_in_order_and_numbers_steps(Device& device) {
  constexpr std::size_t kCount = 100'000;
  auto slab = device.add_slab(2 * kCount * 4);
  REQUIRE(slab);
  Stream& stream = device.compute_stream(0);
  CHECK(stream.completed() == 0);
  const auto in = numbers(kCount, 7);
  std::vector<std::int32_t> out(kCount);
  REQUIRE(stream.copy(slab->data, in.data(), kCount * 4));
  CHECK(stream.record() == 1);
  REQUIRE(stream.copy(slab->data + kCount * 4, slab->data, kCount * 4));
  CHECK(stream.record() == 2);
  REQUIRE(stream.copy(out.data(), slab->data + kCount * 4, kCount * 4));
  REQUIRE(stream.copy(nullptr, nullptr, 0));
  CHECK(stream.record() == 3);
  CHECK(stream.record() == 4);  // an empty step
  CHECK(eventually([&] { return stream.completed() == 4; }));
  CHECK(out == in);
  CHECK(device.copy_stream().record() == 1);  // numbers are per stream
  CHECK(device.compute_stream(0).record() == 5);
  device.synchronize();
  CHECK(stream.completed() == 5);
  std::vector<StepFailure> failures;
  stream.take_failures(failures);
  CHECK(failures.empty());
}

// Between copies to and from memory that the call looks at and changes.
inline void makes_calls_in_stream_order(Device& device) {
  auto slab = device.add_slab(1 << 16);
  REQUIRE(slab);
  Stream& stream = device.compute_stream(0);
  Gate gate;
  gate.hold(stream);
  std::vector<std::int32_t> in = numbers(1024, 1), middle(1024), out(1024);
  std::atomic<int> calls{0};
  REQUIRE(stream.copy(slab->data, in.data(), 4096));
  REQUIRE(stream.copy(middle.data(), slab->data, 4096));
  REQUIRE(stream.call([&] {
    ++calls;
    for (std::int32_t& x : middle) x += 7;
  }));
  REQUIRE(stream.copy(slab->data, middle.data(), 4096));
  REQUIRE(stream.call([&] { ++calls; }));
  REQUIRE(stream.copy(out.data(), slab->data, 4096));
  const std::uint64_t last = stream.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(calls == 0);
  gate.open();
  CHECK(eventually([&] { return stream.completed() == last; }));
  CHECK(calls == 2);
  for (std::int32_t& x : in) x += 7;
  CHECK(out == in);
  // A host stream goes on when the call is made, and this stream when the host stream has: the way of a step that the host
  // makes in the middle of a device's stream.
  auto host = make_host_device({.ordinal = 98, .memory_bytes = 1 << 20, .spin_ns = 0});
  for (int i = 0; i < 20; ++i) {
    auto came = std::make_shared<std::promise<void>>();
    std::shared_future<void> gone = came->get_future().share();
    REQUIRE(stream.copy(middle.data(), slab->data, 4096));
    REQUIRE(stream.call([came] { came->set_value(); }));
    REQUIRE(host->compute_stream(0).enqueue([gone, &middle] {
      gone.wait();
      for (std::int32_t& x : middle) x += 1;
      return Status();
    }));
    REQUIRE(stream.wait(host->compute_stream(0), host->compute_stream(0).record()));
    REQUIRE(stream.copy(slab->data, middle.data(), 4096));
    stream.record();
  }
  REQUIRE(stream.copy(out.data(), slab->data, 4096));
  const std::uint64_t end = stream.record();
  CHECK(eventually([&] { return stream.completed() == end; }));
  for (std::int32_t& x : in) x += 20;
  CHECK(out == in);
}

inline void returns_at_once_behind_a_blocked_event(Device& device) {
  auto slab = device.add_slab(1 << 16);
  REQUIRE(slab);
  Stream& stream = device.compute_stream(0);
  const std::vector<std::int32_t> in = numbers(1024, 1);
  std::vector<std::int32_t> out(1024);
  Gate gate;
  gate.hold(stream);
  const TimeNs start = monotonic_now();
  for (int i = 0; i < 100; ++i) {
    REQUIRE(stream.copy(slab->data, in.data(), 4096));
    stream.record();
  }
  REQUIRE(stream.copy(out.data(), slab->data, 4096));
  const std::uint64_t last = stream.record();
  CHECK(last == 101);
  // Nothing of this needed the gate: that it has returned at all is the test; the time is for the reader.
  MESSAGE("101 copies behind a closed gate: " << (monotonic_now() - start) / 1000 << " us");
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(stream.completed() == 0);
  CHECK(out[5] == 0);
  gate.open();
  CHECK(eventually([&] { return stream.completed() == last; }));
  CHECK(out == in);
}

inline void waits_for_another_stream_only(Device& device) {
  auto slab = device.add_slab(1 << 16);
  REQUIRE(slab);
  Stream& one = device.compute_stream(0);
  Stream& two = device.copy_stream();
  const auto in = numbers(1024, 5);
  std::vector<std::int32_t> out(1024);
  Gate gate;
  gate.hold(one);
  REQUIRE(one.copy(slab->data, in.data(), 4096));
  const std::uint64_t made = one.record();
  const std::uint64_t before = two.record();  // not behind the wait
  REQUIRE(two.wait(one, made));
  REQUIRE(two.copy(out.data(), slab->data, 4096));
  const std::uint64_t after = two.record();
  CHECK(eventually([&] { return two.completed() == before; }));
  if (device.info().compute_streams > 1) {  // nor does a third stream care
    Stream& three = device.compute_stream(1);
    const std::uint64_t free_step = three.record();
    CHECK(eventually([&] { return three.completed() == free_step; }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(two.completed() == before);
  gate.open();
  CHECK(eventually([&] { return two.completed() == after; }));
  CHECK(one.completed() == made);
  CHECK(out == in);
  REQUIRE(two.wait(one, made));  // long complete
  REQUIRE(two.wait(two, after));
  CHECK(two.record() == after + 1);
  CHECK(eventually([&] { return two.completed() == after + 1; }));
}

inline void never_goes_back(Device& device) {
  Stream& stream = device.compute_stream(0);
  std::atomic<bool> stop{false}, went_back{false};
  std::thread reader([&] {
    for (std::uint64_t last = 0; !stop;) {
      const std::uint64_t now = stream.completed();
      if (now < last) went_back = true;
      last = now;
    }
  });
  std::uint64_t last = 0;
  for (int i = 0; i < 3000; ++i) last = stream.record();
  CHECK(eventually([&] { return stream.completed() == last; }));
  stop = true;
  reader.join();
  CHECK_FALSE(went_back);
  CHECK(last == 3000);
}

inline void tells_of_progress(Device& device) {
  std::atomic<int> calls{0};
  device.on_progress([&] { ++calls; });
  Stream& stream = device.compute_stream(0);
  for (int round = 1; round <= 20; ++round) {
    const int before = calls;
    const std::uint64_t step = stream.record();
    // Only the call makes us look: if it were lost, this would hang.
    CHECK(eventually([&] { return calls > before; }));
    CHECK(eventually([&] { return stream.completed() == step; }));
  }
  // A step that completes after a look is told of, however many complete together.
  Gate gate;
  gate.hold(stream);
  std::uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) last = stream.record();
  (void)stream.completed();
  const int before = calls;
  gate.open();
  CHECK(eventually([&] { return calls > before; }));
  CHECK(eventually([&] { return stream.completed() == last; }));
  CHECK(calls - before <= 1000);
  device.synchronize();
}

inline void drains_on_destruction(std::unique_ptr<Device> device) {
  auto slab = device->add_slab(1 << 16);
  REQUIRE(slab);
  const auto in = numbers(1024, 3);
  std::vector<std::int32_t> out(1024);
  Gate gate;
  gate.hold(device->compute_stream(0));
  REQUIRE(device->compute_stream(0).copy(slab->data, in.data(), 4096));
  const std::uint64_t made = device->compute_stream(0).record();
  REQUIRE(device->copy_stream().wait(device->compute_stream(0), made));
  REQUIRE(device->copy_stream().copy(out.data(), slab->data, 4096));
  device->copy_stream().record();
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.open();
  });
  device.reset();
  CHECK(out == in);
  opener.join();
}

inline void attaches_failures_to_their_steps(Device& device) {
  Stream& stream = device.compute_stream(0);
  const auto ok = [] { return Status(); };
  REQUIRE(stream.enqueue(ok));
  stream.record();
  Gate gate;
  gate.hold(stream);
  REQUIRE(stream.enqueue([]() -> Status { return error(Errc::kTaskFailed, "first"); }));
  REQUIRE(stream.enqueue([]() -> Status { return error(Errc::kTaskFailed, "second of the same step"); }));
  stream.record();
  bool ran = false;
  REQUIRE(stream.enqueue([&]() -> Status {
    ran = true;
    throw std::runtime_error("thrown");
  }));
  stream.record();
  REQUIRE(stream.enqueue(ok));
  stream.record();
  std::vector<StepFailure> failures;
  stream.take_failures(failures);
  CHECK(failures.empty());  // not yet
  gate.open();
  CHECK(eventually([&] { return stream.completed() == 4; }));
  stream.take_failures(failures);
  REQUIRE(failures.size() == 2);
  CHECK(failures[0].sequence == 2);
  CHECK((failures[0].error == error(Errc::kTaskFailed, "first")));
  CHECK(failures[1].sequence == 3);
  CHECK(failures[1].error.code == Errc::kInternal);
  CHECK(failures[1].error.message.find("thrown") != std::string::npos);
  CHECK(ran);
  failures.clear();
  stream.take_failures(failures);
  CHECK(failures.empty());  // taken once
  CHECK(device.health());
}

}  // namespace tilewise::device::conformance

namespace tilewise::device {

// Runs the whole suite; call from a TEST_CASE.
inline void device_conformance(const conformance::Subject& subject) {
  using namespace conformance;
  constexpr std::int64_t kMemory = std::int64_t{64} << 20;
  std::unique_ptr<Device> device = subject.make(kMemory);
  REQUIRE(device);
  SUBCASE("describes itself") { describes_itself(*device); }
  SUBCASE("grows, and names what is missing") { grows_and_names_what_is_missing(*device); }
  SUBCASE("copies in order and numbers steps") { copies_in_order_and_numbers_steps(*device); }
  SUBCASE("returns at once behind a blocked event") { returns_at_once_behind_a_blocked_event(*device); }
  SUBCASE("makes calls in stream order") { makes_calls_in_stream_order(*device); }
  SUBCASE("waits for another stream, and only the waiting stream does") {
    waits_for_another_stream_only(*device);
  }
  SUBCASE("completed() never goes back") { never_goes_back(*device); }
  SUBCASE("tells of progress") { tells_of_progress(*device); }
  SUBCASE("drains on destruction") { drains_on_destruction(std::move(device)); }
  SUBCASE("host work: failures belong to their steps, or work is refused") {
    if (subject.runs_host_work) {
      attaches_failures_to_their_steps(*device);
    } else {
      const Status refused = device->compute_stream(0).enqueue([] { return Status(); });
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == Errc::kUnsupported);
    }
  }
}

}  // namespace tilewise::device
