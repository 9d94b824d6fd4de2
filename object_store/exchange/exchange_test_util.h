// Private to the tests of this folder: processes in miniature, each with a host device, on one loop or
// several.
#pragma once
#include <tilewise/exchange/exchange.h>

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "print_result.h"
#include "sanitizers.h"

namespace tilewise::exchange::test {

constexpr TimeNs kPatience =
    30 * testing::kTimesSlower * kSecond;  // on a busy machine; nothing waits so long when all is well
constexpr auto kHost = device::Kind::kHost;
constexpr const char* kTokenHex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
constexpr const char* kOtherTokenHex = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

inline net::Token token(const char* hex = kTokenHex) { return net::Token::from_hex(hex).value(); }

inline std::unique_ptr<net::EventLoop> make_loop() {
  auto loop = net::EventLoop::create();
  REQUIRE(loop);
  return std::move(*loop);
}

inline Options options_of(const char* hex = kTokenHex) {
  static std::atomic<int> serial{0};
  Options options{.token = token(hex)};
  options.host_id = "this-host";
  options.listen = {
      "unix-abstract:tilewise-exchange-test-" + std::to_string(::getpid()) + "-" + std::to_string(++serial),
      "tcp://127.0.0.1:0"};
  return options;
}

// One process in miniature. Device ids are 100 times the worker's.
struct Node {
  net::EventLoop& loop;
  WorkerId id;
  std::unique_ptr<device::Device> device = device::make_host_device({.memory_bytes = std::int64_t{1} << 30});
  std::unique_ptr<Exchange> exchange;
  std::vector<std::string> addresses;
  std::string host_id;
  std::vector<device::Slab> slabs;
  // What came.
  std::vector<std::pair<WorkerId, msg::PeerBatch>> batches;
  std::vector<msg::SlabDesc> lent;
  std::map<WorkerId, bool> ready;
  std::map<WorkerId, Error> unreachable;
  std::map<WorkerId, int> cut_off, back;  // how often
  std::function<void(WorkerId, msg::PeerBatch)> on_batch;

  Node(net::EventLoop& l, std::uint32_t n, Options options, bool know_self = true)
      : loop(l), id(n), host_id(options.host_id) {
    auto made = Exchange::create(
        loop, std::move(options),
        {.on_batch =
             [this](WorkerId from, msg::PeerBatch batch) {
               if (on_batch) return on_batch(from, std::move(batch));
               batches.emplace_back(from, std::move(batch));
             },
         .on_ready = [this](WorkerId peer, bool mapped) { CHECK(ready.emplace(peer, mapped).second); },
         .on_unreachable = [this](WorkerId peer,
                                  const Error& why) { CHECK(unreachable.emplace(peer, why).second); },
         .on_back = [this](WorkerId peer) { ++back[peer]; },
         .on_cut_off = [this](WorkerId peer, const Error&) { ++cut_off[peer]; },
         .on_lent = [this](WorkerId, const msg::SlabDesc& slab) { lent.push_back(slab); }});
    REQUIRE(made);
    exchange = std::move(*made);
    auto listening = exchange->listen();
    REQUIRE(listening);
    addresses = *listening;
    if (know_self) exchange->set_self(id);
  }

  DeviceId device_id() const { return DeviceId{id.value * 100}; }
  msg::PeerInfo info(msg::Role role = msg::Role::kWorker) const {
    return {.id = id,
            .role = role,
            .name = "node-" + std::to_string(id.value),
            .host_id = host_id,
            .addresses = addresses,
            .devices = {device_id()},
            .descriptions = {{.name = "host:0"}}};
  }
  device::Slab& add_slab(std::int64_t bytes, std::string_view text = {}) {
    auto slab = device->add_slab(bytes);
    REQUIRE(slab);
    if (!text.empty()) std::memcpy(slab->data, text.data(), text.size());
    slabs.push_back(*slab);
    exchange->slab_added(device_id(), static_cast<std::uint32_t>(slabs.size() - 1), slabs.back());
    return slabs.back();
  }
  msg::Offer offer(std::uint32_t slab, std::int64_t offset, std::int64_t bytes, const Node& to) const {
    msg::Offer o;
    o.block = {ArrayId{7}, 0};
    o.op = OpId{8};
    o.from = device_id(), o.to = to.device_id();
    o.slab = slab, o.offset = offset, o.bytes = bytes;
    return o;
  }
  Errc why(WorkerId peer) const {
    const auto found = unreachable.find(peer);
    return found == unreachable.end() ? Errc::kOk : found->second.code;
  }
};

inline void introduce(Node& a, Node& b) {
  a.exchange->peer_joined(b.info());
  b.exchange->peer_joined(a.info());
}

inline bool meet(net::EventLoop& loop, Node& a, Node& b) {
  introduce(a, b);
  return loop.run_until([&] { return a.ready.contains(b.id) && b.ready.contains(a.id); }, kPatience);
}

inline msg::PeerBatch grant_of(std::uint64_t transfer) {
  msg::PeerBatch batch;
  batch.grants.push_back(
      {.block = {ArrayId{7}, 0}, .from = DeviceId{1}, .to = DeviceId{2}, .transfer = transfer});
  return batch;
}

// How one transfer ended.
struct End {
  Status status;
  msg::Lane lane = msg::Lane::kSameDevice;
  int times = 0;
  Errc code() const { return status ? Errc::kOk : status.error().code; }
};
inline Exchange::Done into(End& end) {
  return [&end](Status status, msg::Lane lane) {
    end.status = std::move(status);
    end.lane = lane;
    ++end.times;
  };
}

}  // namespace tilewise::exchange::test
