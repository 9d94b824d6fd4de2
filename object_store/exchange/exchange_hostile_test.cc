// A peer that holds the token and breaks every rule loses its link; nobody else notices.
#include "by_hand.h"

#include <fcntl.h>
#include <sys/mman.h>

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

namespace {

using Hostile = ByHand;

net::UniqueFd sealed(std::int64_t bytes) {
  net::UniqueFd fd(::memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(fd.get(), bytes) == 0);
  REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  return fd;
}

msg::ArenaMap map_of(DeviceId device, std::uint32_t slab, std::int64_t bytes, std::string address = {}) {
  return {.slabs = {{.device = device, .slab = slab, .bytes = bytes}}, .ucx_address = std::move(address)};
}

std::vector<net::UniqueFd> one(net::UniqueFd fd) {
  std::vector<net::UniqueFd> fds;
  fds.push_back(std::move(fd));
  return fds;
}

msg::PeerBatch offer_of(DeviceId from, std::uint32_t slab, std::int64_t offset, std::int64_t bytes) {
  msg::PeerBatch batch;
  msg::Offer offer;
  offer.block = {ArrayId{7}, 0};
  offer.from = from, offer.to = DeviceId{200};
  offer.slab = slab, offer.offset = offset, offer.bytes = bytes;
  batch.offers.push_back(std::move(offer));
  return batch;
}

struct Misdeed {
  const char* name;
  Errc expected;
  std::function<void(Hostile&)> commit;  // after hello
};

}  // namespace

TEST_CASE("a peer that breaks the rules loses its own link, typed") {
  const Misdeed misdeeds[] = {
      {"garbage", Errc::kCorruptData,
       [](Hostile& h) {
         const std::vector<std::byte> junk(1'000, std::byte{0xA5});
         REQUIRE(h.link->send(20, junk));
       }},
      {"an empty frame", Errc::kCorruptData,
       [](Hostile& h) { REQUIRE(h.link->send(20, std::span<const std::byte>())); }},
      {"a type that is not the payload's", Errc::kCorruptData,
       [](Hostile& h) {
         codec::Buffer buffer;
         REQUIRE(codec::encode(msg::Message(msg::PeerBatch{}), buffer));
         REQUIRE(h.link->send(19, buffer.bytes()));
       }},
      {"hello again", Errc::kCorruptData, [](Hostile& h) { h.hello(); }},
      {"a scheduler's message", Errc::kCorruptData, [](Hostile& h) { h.send(msg::Shutdown{}); }},
      {"a batch before the map", Errc::kCorruptData, [](Hostile& h) { h.send(grant_of(1)); }},
      {"a slab without a descriptor", Errc::kCorruptData,
       [](Hostile& h) { h.send(map_of(h.device, 0, 4'096)); }},
      {"a descriptor without a slab", Errc::kCorruptData,
       [](Hostile& h) { h.send(msg::ArenaMap{}, one(sealed(4'096))); }},
      {"descriptors with a batch", Errc::kCorruptData,
       [](Hostile& h) {
         h.send(msg::ArenaMap{});
         h.send(grant_of(1), one(sealed(4'096)));
       }},
      {"a slab larger than its memory", Errc::kCorruptData,
       [](Hostile& h) { h.send(map_of(h.device, 0, 1 << 30), one(sealed(4'096))); }},
      {"a slab that cannot be", Errc::kOutOfRange,
       [](Hostile& h) { h.send(map_of(h.device, 0, INT64_MAX), one(sealed(4'096))); }},
      {"a slab of negative size", Errc::kOutOfRange,
       [](Hostile& h) { h.send(map_of(h.device, 0, -4'096), one(sealed(4'096))); }},
      {"a slab of somebody else's device", Errc::kPermissionDenied,
       [](Hostile& h) { h.send(map_of(DeviceId{300}, 0, 4'096), one(sealed(4'096))); }},
      {"a slab of our own device", Errc::kPermissionDenied,
       [](Hostile& h) { h.send(map_of(DeviceId{200}, 0, 4'096), one(sealed(4'096))); }},
      {"a handle for a host's slab", Errc::kCorruptData,
       [](Hostile& h) {
         msg::ArenaMap map = map_of(h.device, 0, 4'096);
         map.slabs[0].ipc_handle = "handle";
         h.send(map);
       }},
      {"a descriptor beside a handle", Errc::kCorruptData,
       [](Hostile& h) {
         msg::ArenaMap map = map_of(h.device, 0, 4'096);
         map.slabs[0].ipc_handle = "handle";
         h.send(map, one(sealed(4'096)));
       }},
      {"the same slab twice", Errc::kAlreadyExists,
       [](Hostile& h) {
         h.send(map_of(h.device, 0, 4'096), one(sealed(4'096)));
         h.send(map_of(h.device, 0, 4'096), one(sealed(4'096)));
       }},
      {"a UCX address that is none", Errc::kCorruptData,
       [](Hostile& h) { h.send(map_of(h.device, 0, 4'096, std::string(300, 'u')), one(sealed(4'096))); }},
      {"an offer outside the slab", Errc::kOutOfRange,
       [](Hostile& h) {
         h.send(map_of(h.device, 0, 4'096), one(sealed(4'096)));
         h.send(offer_of(h.device, 0, 4'000, 97));
       }},
      {"an offer that wraps around", Errc::kOutOfRange,
       [](Hostile& h) {
         h.send(map_of(h.device, 0, 4'096), one(sealed(4'096)));
         h.send(offer_of(h.device, 0, INT64_MAX, 4'096));
       }},
      {"an offer before the slab", Errc::kOutOfRange,
       [](Hostile& h) {
         h.send(map_of(h.device, 0, 4'096), one(sealed(4'096)));
         h.send(offer_of(h.device, 0, -1, 1));
       }},
      {"an offer of an unknown slab", Errc::kOutOfRange,
       [](Hostile& h) {
         h.send(map_of(h.device, 0, 4'096), one(sealed(4'096)));
         h.send(offer_of(h.device, 1, 0, 1));
       }},
      {"an offer of somebody else's device", Errc::kPermissionDenied,
       [](Hostile& h) {
         h.send(map_of(h.device, 0, 4'096), one(sealed(4'096)));
         h.send(offer_of(DeviceId{300}, 0, 0, 100));
       }},
  };
  for (const Misdeed& misdeed : misdeeds) {
    CAPTURE(misdeed.name);
    auto loop = make_loop();
    Options plain = options_of();
    plain.ucx.transports = "tcp";  // quick to start
    Options friendly = plain;
    friendly.listen.clear();
    Node victim(*loop, 2, std::move(plain)), friend_of(*loop, 3, std::move(friendly));
    REQUIRE(meet(*loop, victim, friend_of));
    Hostile hostile(*loop, victim);
    hostile.settle();
    misdeed.commit(hostile);
    REQUIRE(loop->run_until([&] { return victim.unreachable.contains(hostile.id) && hostile.closed; },
                            kPatience));
    CHECK(victim.why(hostile.id) == misdeed.expected);
    CHECK(victim.exchange->counters().protocol_errors == 1);
    // The others do not notice.
    REQUIRE(friend_of.exchange->send(victim.id, grant_of(9)));
    CHECK(loop->run_until(
        [&] { return !victim.batches.empty() && victim.batches.back().first == friend_of.id; }, kPatience));
    CHECK(friend_of.unreachable.empty());
    victim.exchange->peer_lost(hostile.id);
    victim.exchange->readers_done(hostile.id);
    CHECK(victim.exchange->counters().mapped_bytes == 0);
  }
}

TEST_CASE("what is right next to wrong is taken") {
  auto loop = make_loop();
  Node victim(*loop, 2, options_of());
  Hostile honest(*loop, victim);
  honest.settle();
  honest.send(map_of(honest.device, 0, 4'096), one(sealed(4'096)));
  honest.send(offer_of(honest.device, 0, 4'000, 96));
  honest.send(offer_of(honest.device, 0, 4'096, 0));
  REQUIRE(loop->run_until([&] { return victim.batches.size() == 2; }, kPatience));
  CHECK(victim.ready[honest.id]);
  CHECK(victim.unreachable.empty());
}

TEST_CASE("strangers: for another incarnation, silent, or too many") {
  auto loop = make_loop();
  Options few = options_of();
  few.max_strangers = 3;
  few.link_deadline_ns = 300 * kMillisecond;
  Node victim(*loop, 2, std::move(few));
  {
    Hostile wrong(*loop, victim);
    wrong.send(msg::PeerHello{.from = WorkerId{1}, .to = WorkerId{99}});
    CHECK(loop->run_until([&] { return wrong.closed; }, kPatience));
    Hostile rude(*loop, victim);  // no hello at all
    rude.send(msg::ArenaMap{});
    CHECK(loop->run_until([&] { return rude.closed; }, kPatience));
    Hostile unknown(*loop, victim);  // nobody announces it
    unknown.hello();
    CHECK(loop->run_until([&] { return unknown.closed; }, kPatience));
    CHECK(victim.exchange->counters().strangers_closed == 3);
  }
  std::vector<std::unique_ptr<Hostile>> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(std::make_unique<Hostile>(*loop, victim));
  CHECK(loop->run_until([&] { return crowd[0]->closed; }, kPatience));
  CHECK(!crowd[3]->closed);
}
