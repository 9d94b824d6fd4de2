// Measuring links: what is asked of peers and of the shell, what is told, and what ends it.
#include <doctest/doctest.h>

#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr msg::LinkProbe kAsked{7, kPeer, kHere};

struct Measuring : Lists {
  using Lists::Lists;
  // In the last step.
  const msg::LinkProbed* told() const {
    for (const msg::Message& m : actions.to_scheduler) {
      if (const auto* found = std::get_if<msg::LinkProbed>(&m)) return found;
    }
    return nullptr;
  }
  void arrives(TimeNs after, Error how = {Errc::kOk, {}}) {
    REQUIRE(actions.probe_receives.size() == 1);
    const std::uint64_t transfer = actions.probe_receives[0].transfer;
    now += after - kMicrosecond;
    step({TransferDone{transfer, std::move(how), msg::Lane::kRdma}});
  }
  // Until it is told, on a link of so many nanoseconds and so many bytes a second. Bytes that moved.
  std::int64_t measure(TimeNs latency, double bytes_per_s) {
    std::int64_t moved = 0;
    for (int i = 0; told() == nullptr; ++i) {
      REQUIRE(i < 100);
      REQUIRE(actions.probe_receives.size() == 1);
      REQUIRE(actions.batches.size() == 1);
      const ProbeReceive receive = actions.probe_receives[0];
      const msg::PeerBatch& batch = actions.batches[0].second;
      REQUIRE(batch.probes.size() == 1);
      CHECK(batch.probes[0] == msg::Probe{kPeer, kHere, receive.transfer, receive.bytes});
      moved += receive.bytes;
      arrives(latency + static_cast<TimeNs>(1e9 * static_cast<double>(receive.bytes) / bytes_per_s));
    }
    return moved;
  }
  bool measures() const { return core->counters().probing > 0; }
};

}  // namespace

TEST_CASE("a link is measured size by size; nothing else knows of it") {
  Measuring w;
  const std::vector<msg::DeviceStats> before = w.core->device_stats();
  w.step({kAsked});
  CHECK(w.actions.batches[0].first == kOther);
  CHECK(w.actions.receives.empty());
  const TimeNs began = w.now;
  const std::int64_t moved = w.measure(50'000, 10e9);
  const msg::LinkProbed told = *w.told();
  CHECK(told.nonce == 7);
  CHECK(told.end == msg::ProbeEnd::kMeasured);
  CHECK(told.mapped);
  REQUIRE(told.sizes.size() == 4);
  const std::int64_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 8 << 20};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(told.sizes[i].bytes == sizes[i]);
    CHECK(told.sizes[i].took_ns == 50'000 + sizes[i] / 10);
    CHECK(told.sizes[i].lane == msg::Lane::kRdma);
    CHECK(told.sizes[i].transfers >= 2);
  }
  CHECK(moved <= 29 << 20);
  CHECK(w.now - began < 60 * kMillisecond);
  CHECK(!w.measures());
  CHECK(w.actions.to_scheduler.size() == 1);  // no progress, no lanes, no pairs
  CHECK(w.actions.notes.empty());
  CHECK(w.core->device_stats() == before);
  const Counters counts = w.core->counters();
  CHECK(counts.copies_live + counts.tasks_live + counts.ops_known + counts.launches == 0);
}

TEST_CASE("what pays for the connection does not count") {
  Measuring w;
  w.step({kAsked});
  w.arrives(300 * kMillisecond);
  w.measure(50'000, 10e9);
  CHECK(w.told()->sizes.size() == 4);
  CHECK(w.told()->sizes[0].took_ns < 60'000);
}

TEST_CASE("slow links are measured with small sizes, in bounded time") {
  struct Link {
    TimeNs latency;
    double bytes_per_s;
    std::size_t sizes;
  };
  for (const Link link : {Link{100'000, 125e6, 3},
                          {100'000, 12.5e6, 2},
                          {100'000, 1e6, 1},
                          {40 * kMillisecond, 1e9, 1},
                          {1, 1e12, 4}}) {
    CAPTURE(link.bytes_per_s);
    Measuring w;
    w.step({kAsked});
    const auto one = [&](std::int64_t bytes) {
      return link.latency + static_cast<TimeNs>(1e9 * static_cast<double>(bytes) / link.bytes_per_s);
    };
    const TimeNs began = w.now + one(4096);
    w.measure(link.latency, link.bytes_per_s);
    CHECK(w.told()->end == msg::ProbeEnd::kMeasured);
    CHECK(w.told()->sizes.size() == link.sizes);
    CHECK(w.now - began <= std::max(60 * kMillisecond, one(4096)));
  }
}

TEST_CASE("a measurement ends at once where there is work, and its bytes are not waited for") {
  for (const bool own : {true, false}) {  // work here, or of somebody else
    CAPTURE(own);
    Measuring w;
    w.log({plan_of({on(kHere, 1, source(90, 1))}, {}, 90)});  // its memory is there
    w.completed(1);
    w.step({kAsked});
    for (int i = 0; i < 12; ++i) w.arrives(60'000);
    REQUIRE(w.measures());
    const std::uint64_t under_way = w.actions.probe_receives[0].transfer;
    w.log({plan_of({on(own ? kHere : kPeer, 2, source(10, 2))}, {ArrayId{10}})});
    REQUIRE(w.told() != nullptr);
    CHECK(w.told()->end == msg::ProbeEnd::kGivenUp);
    CHECK(w.told()->sizes.size() == 1);  // what was measured by then
    REQUIRE(w.actions.disarms.size() == 1);
    CHECK(w.actions.disarms[0].transfer == under_way);
    CHECK(w.actions.launches.empty() == !own);
    CHECK(!w.measures());
    // Until the transport has let go no other one begins.
    w.step({msg::LinkProbe{8, kPeer, kHere}});
    REQUIRE(w.told() != nullptr);
    CHECK(w.told()->nonce == 8);
    CHECK(w.told()->end == msg::ProbeEnd::kGivenUp);
    w.step({TransferDone{under_way, {Errc::kNotFound, "disarmed"}, msg::Lane::kTcp}});
    CHECK(w.told() == nullptr);
    if (own) w.completed(3);
    w.step({msg::LinkProbe{9, kPeer, kHere}});
    CHECK(w.measures());
  }
}

TEST_CASE("who has work measures nothing, and sends nothing to be measured") {
  Measuring w;
  w.log({plan_of({on(kHere, 1, source(10, 2))}, {ArrayId{10}})});
  w.step({kAsked});
  REQUIRE(w.told() != nullptr);
  CHECK(w.told()->end == msg::ProbeEnd::kGivenUp);
  msg::PeerBatch batch;
  batch.probes = {{kHere, kPeer, 3, 4096}};
  CHECK(w.from_peer(batch).probe_sends.empty());
  REQUIRE(w.actions.batches.size() == 1);  // but says so
  CHECK(w.actions.batches[0].first == kOther);
  CHECK(w.actions.batches[0].second.probes == std::vector<msg::Probe>{{kHere, kPeer, 3, 0}});
  w.completed(2);
  REQUIRE(w.core->counters().tasks_live == 0);
  CHECK(w.from_peer(batch).probe_sends.empty());  // that one has been answered
  batch.probes = {{kHere, kPeer, 4, 4096}};
  REQUIRE(w.from_peer(batch).probe_sends.size() == 1);
  CHECK(w.actions.probe_sends[0].to == kOther);
  CHECK(w.actions.probe_sends[0].transfer == 4);
  CHECK(w.actions.probe_sends[0].bytes == 4096);
}

TEST_CASE("a measurement whose other end has work is given up, not failed") {
  Measuring w;
  w.step({kAsked});
  const std::uint64_t transfer = w.actions.probe_receives[0].transfer;
  const auto busy = [&](msg::Probe probe, WorkerId from = kOther) {
    msg::PeerBatch batch;
    batch.probes = {probe};
    w.from_peer(batch, from);
  };
  busy({kPeer, kHere, transfer + 1, 0});
  busy({kPeer, kHere, transfer, 0}, kClientProcess);
  busy({kHere, kPeer, transfer, 0});
  CHECK(w.measures());
  busy({kPeer, kHere, transfer, 0});
  REQUIRE(w.told() != nullptr);
  CHECK(w.told()->end == msg::ProbeEnd::kGivenUp);
  CHECK(w.actions.disarms.size() == 1);
  CHECK(!w.measures());
  busy({kPeer, kHere, transfer, 0});  // again
  CHECK(w.told() == nullptr);
}

TEST_CASE("bytes are sent once, and only as many as may be, from own devices to a worker's own") {
  Measuring w;
  const auto sends = [&](msg::Probe probe, WorkerId from = kOther) {
    msg::PeerBatch batch;
    batch.probes = {probe};
    return w.from_peer(batch, from).probe_sends.size();
  };
  CHECK(sends({kHere, kPeer, 5, msg::kMaxProbeBytes}) == 1);
  CHECK(sends({kHere, kPeer, 5, msg::kMaxProbeBytes}) == 0);  // again
  CHECK(sends({kHere, kPeer, 4, 4096}) == 0);                 // late
  CHECK(sends({kHere, kPeer, 6, msg::kMaxProbeBytes + 1}) == 0);
  CHECK(sends({kHere, kPeer, 7, 0}) == 0);
  CHECK(sends({kHere, kPeer, 8, -1}) == 0);
  CHECK(sends({kPeer, kPeer, 9, 4096}) == 0);                     // not ours to send
  CHECK(sends({kHere, kHere, 10, 4096}) == 0);                    // not for them
  CHECK(sends({kHere, kClient, 11, 4096}, kClientProcess) == 0);  // not a worker
  CHECK(sends({kHere, DeviceId{77}, 12, 4096}) == 0);
  CHECK(sends({kHere, kPeer, 13, 4096}) == 1);
  w.log({msg::PeerLost{kOther, 1, {}}, msg::Recover{1, {}}});
  CHECK(sends({kHere, kPeer, 14, 4096}) == 0);  // from a dead incarnation
}

TEST_CASE("questions twice, late, and of devices that there are not") {
  Measuring w;
  w.step({kAsked});
  w.step({kAsked});  // again
  CHECK(w.actions.probe_receives.empty());
  CHECK(w.actions.to_scheduler.empty());
  CHECK(w.measures());
  w.step({msg::LinkProbe{6, kPeer, kHere}});  // an older one
  CHECK(w.actions.to_scheduler.empty());
  CHECK(w.measures());
  w.step({msg::LinkProbe{8, kPeer, kHere}});  // a newer one: the first is over
  CHECK(w.told()->nonce == 7);
  CHECK(w.told()->end == msg::ProbeEnd::kGivenUp);
  CHECK(!w.measures());  // its bytes may still come
  Measuring other;
  for (const msg::LinkProbe& probe :
       {msg::LinkProbe{1, kPeer, kPeer}, {2, kHere, kHere}, {3, DeviceId{88}, kHere}, {4, kClient, kHere}}) {
    other.step({probe});
    REQUIRE(other.told() != nullptr);
    CHECK(other.told()->nonce == probe.nonce);
    CHECK(other.told()->end == msg::ProbeEnd::kFailed);
    CHECK(other.actions.probe_receives.empty());
  }
}

TEST_CASE("a link that is not up yet is waited for, a lost peer is not, and nothing for ever") {
  Measuring w;
  constexpr WorkerId kNew{9};
  constexpr DeviceId kNewDevice{9};
  w.log({msg::PeerJoined{{kNew, msg::Role::kWorker, "new", "afar", {}, {kNewDevice}, {}}}});
  w.step({msg::LinkProbe{1, kNewDevice, kHere}});
  CHECK(w.measures());
  CHECK(w.actions.probe_receives.empty());
  w.step({PeerReady{kNew, false}});
  CHECK(w.actions.probe_receives.size() == 1);
  const std::uint64_t transfer = w.actions.probe_receives[0].transfer;
  w.log({msg::PeerLost{kNew, 1, {}}});
  REQUIRE(w.told() != nullptr);
  CHECK(w.told()->end == msg::ProbeEnd::kFailed);
  CHECK(!w.measures());
  w.step({TransferDone{transfer, {Errc::kWorkerLost, "lost"}, msg::Lane::kTcp}});
  w.log({msg::Recover{1, {}}});
  w.step({msg::LinkProbe{2, kPeer, kHere}});
  CHECK(w.measures());
  CHECK(w.core->next_deadline() <= w.now + kSecond);
  w.now += 900 * kMillisecond;
  w.step({});
  CHECK(w.measures());
  CHECK(w.core->next_deadline() <= w.now + 100 * kMillisecond);
  w.now += 100 * kMillisecond;
  w.step({});
  REQUIRE(w.told() != nullptr);
  CHECK(w.told()->end == msg::ProbeEnd::kFailed);
  CHECK(w.actions.disarms.size() == 1);
}

TEST_CASE("a transfer that fails ends the measurement; what is read in place is told too") {
  Measuring w;
  w.step({kAsked});
  w.arrives(60'000, {Errc::kUnavailable, "no copying lane"});
  REQUIRE(w.told() != nullptr);
  CHECK(w.told()->end == msg::ProbeEnd::kFailed);
  CHECK(w.told()->why == "no copying lane");
  CHECK(w.told()->mapped);
  CHECK(w.actions.disarms.empty());
}

TEST_CASE("devices of one process are measured by its own lane") {
  Options options = Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 1, false});
  constexpr DeviceId kGpu{5};
  options.devices.push_back({kGpu, 1, 1 << 20, 1 << 20, 1, false});
  Measuring w(options);
  w.step({msg::LinkProbe{1, kGpu, kHere}});
  REQUIRE(w.actions.probe_receives.size() == 1);
  REQUIRE(w.actions.probe_sends.size() == 1);
  CHECK(w.actions.probe_receives[0].from == kSelf);
  CHECK(w.actions.probe_receives[0].device == 0);
  CHECK(w.actions.probe_sends[0].to == kSelf);
  CHECK(w.actions.probe_sends[0].device == 1);
  CHECK(w.actions.probe_sends[0].transfer == w.actions.probe_receives[0].transfer);
  CHECK(w.actions.batches.empty());
}
