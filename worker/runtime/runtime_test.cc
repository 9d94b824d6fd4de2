// The shell around the core by itself: host devices, real kernels, a service that only listens.
#include <tilewise/worker/runtime.h>

#include <tilewise/base/limits.h>

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "../core/lists.h"
#include "print_result.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

struct Listening final : DataService {
  void peer_joined(const msg::PeerInfo&) override {}
  void peer_lost(WorkerId) override {}
  void slab_added(DeviceId, std::uint32_t, const device::Slab&) override {}
  void send(WorkerId, msg::PeerBatch batch) override {
    ++batches;
    relays.insert(relays.end(), batch.relays.begin(), batch.relays.end());
  }
  bool inlines(WorkerId) const override { return true; }
  const std::byte* mapped(DeviceId, std::uint32_t) const override { return nullptr; }
  std::optional<WorkerId> fenced_by() const override { return fence; }
  void transmit(WorkerId, std::uint64_t, const std::byte*, std::int64_t, device::Kind, Parts,
                OnSent sent) override {
    sent(how);
  }
  void refuse(WorkerId, std::uint64_t, const Error&) override {}
  void receive(WorkerId, std::uint64_t, std::byte*, std::int64_t, device::Kind, bool) override {}
  void disarm(WorkerId, std::uint64_t) override {}

  std::optional<WorkerId> fence;
  Status how;  // sends end
  int batches = 0;
  std::vector<msg::Relay> relays;  // said to peers
};

// Says of itself what the test wants.
struct Breaking final : device::Device {
  const device::Info& info() const override { return host->info(); }
  Result<device::Slab> add_slab(std::int64_t bytes) override { return host->add_slab(bytes); }
  device::Stream& compute_stream(int i) override { return host->compute_stream(i); }
  device::Stream& copy_stream() override { return host->copy_stream(); }
  void on_progress(std::function<void()> notify) override { host->on_progress(std::move(notify)); }
  Status health() const override { return state; }
  void synchronize() override { host->synchronize(); }

  std::unique_ptr<device::Device> host = device::make_host_device({.memory_bytes = 1 << 22});
  Status state;
};

struct Shell {
  explicit Shell(RuntimeOptions options = {.slab_bytes = 1 << 20},
                 std::vector<std::unique_ptr<device::Device>> own = devices())
      : runtime(std::move(own), nullptr, std::move(options), copier, [] {}) {
    msg::Welcome welcome;
    welcome.term = 1, welcome.you = kSelf, welcome.devices = {kHere};
    REQUIRE(runtime.start(welcome, service, [this](const msg::Message& m) {
      if (const auto* progress = std::get_if<msg::Progress>(&m)) {
        for (const msg::OpProgress& op : progress->ops) completed[op.op] = op.completed;
      }
    }));
  }
  static std::vector<std::unique_ptr<device::Device>> devices() {
    std::vector<std::unique_ptr<device::Device>> all;
    all.push_back(device::make_host_device({.memory_bytes = 1 << 22}));
    return all;
  }
  // Pumps until it is so, or for long.
  template <class Done> bool until(const Done& over) {
    for (int i = 0; i < 20'000 && !over(); ++i) {
      runtime.pump(monotonic_now());
      copier.poll();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return over();
  }
  void plan(std::uint64_t number, std::uint64_t array) {
    runtime.post(
        msg::Log{1, number, {plan_of({on(kHere, number, source(array, 4))}, {ArrayId{array}}, number)}});
  }

  Listening service;
  device::Copier copier;
  std::map<OpId, std::int64_t> completed;  // as the scheduler was told
  Runtime runtime;
};

}  // namespace

TEST_CASE("what was made is told, unless the worker finds that its peers have given it up for lost") {
  Shell shell;
  shell.plan(1, 10);
  REQUIRE(shell.until([&] { return shell.completed[OpId{1}] == 4; }));
  CHECK(shell.runtime.health());
  shell.service.fence = kOther;
  shell.plan(2, 20);
  REQUIRE(shell.until([&] { return !shell.runtime.health(); }));
  CHECK(shell.runtime.health().error().code == Errc::kUnavailable);
  CHECK(shell.runtime.health().error().message.find("worker 2") != std::string::npos);
  for (int i = 0; i < 100; ++i) CHECK(!shell.runtime.pump(monotonic_now() + i * kMillisecond));
  CHECK(shell.completed[OpId{2}] == 0);
  CHECK(shell.service.batches == 0);
}

TEST_CASE("a log with a gap that is not filled ends the worker, which says what is missing") {
  Shell shell;
  shell.runtime.post(msg::Log{1, 2, std::vector<msg::LogEntry>(limits::kMaxParked + 1, msg::ForgetPlans{})});
  REQUIRE(shell.until([&] { return !shell.runtime.health(); }));
  CHECK(shell.runtime.health().error().code == Errc::kLimitExceeded);
  CHECK(shell.runtime.health().error().message.find("entry 1 ") != std::string::npos);
}

TEST_CASE("who was granted bytes that cannot be sent is told so, each time") {
  Shell shell;
  msg::PeerInfo peer{kOther, msg::Role::kWorker, "other", "elsewhere", {}, {kPeer}, {{.name = "host:0"}}};
  const ir::Op made = source(10, 1);
  shell.runtime.post(msg::Log{
      1,
      1,
      {msg::PeerJoined{peer}, plan_of({on(kHere, 1, made), on(kPeer, 2, map_of(10, 20, made.space))})}});
  REQUIRE(shell.until([&] { return shell.completed[OpId{1}] == 1; }));
  const msg::BlockRef block{ArrayId{10}, 0};
  const auto grant = [&](std::uint64_t transfer) {
    msg::PeerBatch batch;
    batch.grants.push_back({block, kHere, kPeer, transfer});
    shell.runtime.post(PeerBatchReceived{kOther, std::move(batch)});
  };
  shell.service.how = error(Errc::kOutOfMemory, "no memory to stage it in");
  grant(7);
  REQUIRE(shell.until([&] { return shell.service.relays.size() == 1; }));
  CHECK(shell.service.relays[0] == msg::Relay{block, kHere, kPeer, msg::RelayWord::kMissing, 7});
  grant(8);
  REQUIRE(shell.until([&] { return shell.service.relays.size() == 2; }));
  CHECK(shell.service.relays[1].transfer == 8);
  shell.service.how = {};
  grant(9);
  for (int i = 0; i < 100; ++i) shell.runtime.pump(monotonic_now());
  CHECK(shell.service.relays.size() == 2);
}

TEST_CASE(
    "a device that breaks after the last turn: who finds that has told the black box, which blames no host's "
    "step") {
  const auto box = BlackBox::create().value();
  std::vector<std::unique_ptr<device::Device>> devices;
  devices.push_back(std::make_unique<Breaking>());
  auto& device = static_cast<Breaking&>(*devices.front());
  Shell shell({.slab_bytes = 1 << 20, .black_box = box.get(), .on_broken = [](const Error&) {}},
              std::move(devices));
  box->slot(0, 0)->begin(OpId{1}, kHere, 0);
  shell.runtime.pump(monotonic_now());
  CHECK(shell.runtime.health());
  CHECK(box->words("killed").running.size() == 1);
  device.state = error(Errc::kDeviceError, "broken");
  CHECK(shell.runtime.health().error().message == "broken");
  CHECK(box->words("ended").running.empty());
}
