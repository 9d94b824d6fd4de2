#include "exchange_test_util.h"

#include <tilewise/net/fault_stream.h>

#include <thread>

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

TEST_CASE("two processes meet, exchange batches in order, and read each other's slabs in place") {
  auto loop = make_loop();
  Node a(*loop, 1, options_of()), b(*loop, 2, options_of());
  a.add_slab(10'000, "from a");
  REQUIRE(meet(*loop, a, b));
  CHECK(a.ready[b.id]);
  CHECK(b.ready[a.id]);
  CHECK(!a.exchange->inlines(b.id));
  CHECK(a.exchange->inlines(WorkerId{77}));

  const auto seen = b.exchange->mapped(a.device_id(), 0);
  REQUIRE(seen.size() == 10'000);
  CHECK(std::memcmp(seen.data(), "from a", 6) == 0);
  CHECK(seen.data() != a.slabs[0].data);
  std::memcpy(a.slabs[0].data + 500, "later", 5);
  CHECK(std::memcmp(seen.data() + 500, "later", 5) == 0);
  CHECK(b.exchange->mapped(a.device_id(), 1).empty());
  CHECK(b.exchange->mapped(b.device_id(), 0).empty());

  for (std::uint64_t i = 1; i <= 100; ++i) {
    REQUIRE(a.exchange->send(b.id, grant_of(i)));
    REQUIRE(b.exchange->send(a.id, grant_of(1000 + i)));
  }
  REQUIRE(loop->run_until([&] { return a.batches.size() == 100 && b.batches.size() == 100; }, kPatience));
  for (std::uint64_t i = 0; i < 100; ++i) {
    CHECK(b.batches[i].first == a.id);
    CHECK((b.batches[i].second == grant_of(i + 1)));
    CHECK((a.batches[i].second == grant_of(1001 + i)));
  }
  CHECK(a.exchange->counters().links == 1);
  CHECK(a.unreachable.empty());
}

TEST_CASE("an offer without a place is taken from whoever maps too: the block may be on disk") {
  auto loop = make_loop();
  Node a(*loop, 1, options_of()), b(*loop, 2, options_of());
  REQUIRE(meet(*loop, a, b));
  int offers = 0;
  a.on_batch = [&](WorkerId, msg::PeerBatch batch) { offers += static_cast<int>(batch.offers.size()); };
  msg::PeerBatch batch;
  b.add_slab(5'000);
  batch.offers.push_back(b.offer(0, 0, 5'000, a));
  batch.offers[0].slab = msg::kNoSlab;
  REQUIRE(b.exchange->send(a.id, std::move(batch)));
  REQUIRE(loop->run_until([&] { return offers == 1; }, kPatience));
}

TEST_CASE("a slab added later is mapped before an offer that names it arrives") {
  auto loop = make_loop();
  Node a(*loop, 1, options_of()), b(*loop, 2, options_of());
  REQUIRE(meet(*loop, a, b));
  int offers = 0;
  a.on_batch = [&](WorkerId, msg::PeerBatch batch) {
    for (const msg::Offer& offer : batch.offers) {
      const auto slab = a.exchange->mapped(offer.from, offer.slab);
      REQUIRE(slab.size() == static_cast<std::size_t>(offer.bytes));
      CHECK(static_cast<std::uint32_t>(slab[0]) == offer.slab);
      ++offers;
    }
  };
  for (std::uint32_t i = 0; i < 40; ++i) {  // more than one frame takes
    b.add_slab(5'000).data[0] = static_cast<std::byte>(i);
    msg::PeerBatch batch;
    batch.offers.push_back(b.offer(i, 0, 5'000, a));
    REQUIRE(b.exchange->send(a.id, std::move(batch)));
  }
  REQUIRE(loop->run_until([&] { return offers == 40; }, kPatience));
  Node late(*loop, 3, options_of());
  REQUIRE(meet(*loop, b, late));  // gets all forty at once, in several frames
  REQUIRE(loop->run_until([&] { return !late.exchange->mapped(b.device_id(), 39).empty(); }, kPatience));
  CHECK(late.exchange->counters().mapped_bytes == 40 * 5'000);
}

TEST_CASE(
    "a GPU's slab goes to peers of the host by its handle, before an offer that names it, and its bounds are "
    "kept") {
  auto loop = make_loop();
  const auto gpu = [](msg::PeerInfo info) {
    info.descriptions = {{.name = "cuda:0", .kind = static_cast<std::uint8_t>(device::Kind::kCuda)}};
    return info;
  };
  Options unmapped = options_of();
  unmapped.map_peers = false;
  Node a(*loop, 1, options_of()), b(*loop, 2, options_of()), copies(*loop, 3, std::move(unmapped));
  const auto lend = [&](std::uint32_t number) {
    device::Slab slab{.bytes = 4096 + number, .ipc_handle = "handle " + std::to_string(number)};
    b.exchange->slab_added(b.device_id(), number, slab);
  };
  lend(0);
  for (Node* reader : {&a, &copies}) {
    reader->exchange->peer_joined(gpu(b.info()));
    b.exchange->peer_joined(reader->info());
    REQUIRE(loop->run_until([&] { return reader->ready.contains(b.id) && b.ready.contains(reader->id); },
                            kPatience));
  }
  REQUIRE(a.lent.size() == 1);  // before it was ready
  CHECK(a.lent[0] == msg::SlabDesc{b.device_id(), 0, 4096, "handle 0"});
  CHECK(copies.lent.empty());
  CHECK(a.exchange->mapped(b.device_id(), 0).empty());  // not for the host
  std::vector<std::uint32_t> offered;
  a.on_batch = [&](WorkerId, msg::PeerBatch batch) {
    for (const msg::Offer& offer : batch.offers) {
      CHECK(a.lent.back().slab == offer.slab);
      offered.push_back(offer.slab);
    }
  };
  for (std::uint32_t number = 1; number < 40; ++number) {  // more than one frame takes
    lend(number);
    msg::PeerBatch batch;
    batch.offers.push_back(b.offer(number, 4000, 96, a));
    REQUIRE(b.exchange->send(a.id, std::move(batch)));
  }
  REQUIRE(loop->run_until([&] { return offered.size() == 39; }, kPatience));
  SUBCASE("an offer beyond its end is a broken rule") {
    msg::PeerBatch batch;
    batch.offers.push_back(b.offer(1, 4000, 98, a));
    REQUIRE(b.exchange->send(a.id, std::move(batch)));
    REQUIRE(loop->run_until([&] { return a.unreachable.contains(b.id); }, kPatience));
    CHECK(a.why(b.id) == Errc::kOutOfRange);
  }
  SUBCASE("and so is one of a slab that was never lent") {
    msg::PeerBatch batch;
    batch.offers.push_back(b.offer(40, 0, 8, a));
    REQUIRE(b.exchange->send(a.id, std::move(batch)));
    REQUIRE(loop->run_until([&] { return a.unreachable.contains(b.id); }, kPatience));
    CHECK(a.why(b.id) == Errc::kOutOfRange);
  }
}

TEST_CASE("without mapping, blocks are copied, and the lane is told") {
  for (int who = 0; who < 3; ++who) {  // one side, the other, or a different host
    CAPTURE(who);
    auto loop = make_loop();
    Options first = options_of(), second = options_of();
    if (who == 0) first.map_peers = false;
    if (who == 1) second.map_peers = false;
    if (who == 2) second.host_id = "another-host", first.ucx.transports = second.ucx.transports = "tcp";
    Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
    a.add_slab(1'000'000, "unseen");
    REQUIRE(meet(*loop, a, b));
    CHECK(!a.ready[b.id]);
    CHECK(!b.ready[a.id]);
    CHECK(a.exchange->inlines(b.id));
    CHECK(b.exchange->inlines(a.id));
    CHECK(b.exchange->mapped(a.device_id(), 0).empty());
    std::uint64_t transfer = 10;
    for (std::int64_t bytes : {1, 5'000, 1'000'000}) {
      for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        std::vector<std::byte> out(static_cast<std::size_t>(bytes), std::byte{0x33}), in(out.size());
        End sent, received, again;
        to->exchange->receive(from->id, ++transfer, in.data(), bytes, kHost, into(received));
        to->exchange->receive(from->id, transfer, in.data(), bytes, kHost, into(again));
        from->exchange->transmit(to->id, transfer, out.data(), bytes, kHost, into(sent));
        CHECK(received.times == 0);
        REQUIRE(loop->run_until([&] { return received.times > 0 && sent.times > 0; }, kPatience));
        CHECK(received.code() == Errc::kOk);
        CHECK(sent.code() == Errc::kOk);
        CHECK(in == out);
        CHECK(again.times == 0);
        // Between hosts; and what is too small to be read in place, where no memory is shared.
        CHECK(received.lane == (who == 2 || bytes < 128 << 10 ? msg::Lane::kTcp : msg::Lane::kSharedMemory));
      }
    }
    // Nobody answers for a stranger, and nothing waits for it.
    End nobody;
    std::byte byte{};
    a.exchange->receive(WorkerId{99}, 1, &byte, 1, kHost, into(nobody));
    CHECK(nobody.times == 0);
    REQUIRE(loop->run_until([&] { return nobody.times > 0; }, kPatience));
    CHECK(nobody.code() == Errc::kUnavailable);
  }
}

TEST_CASE("who is strict about lanes hears of sockets inside a host, and of nothing else") {
  for (const bool unreached : {false, true}) {  // by Unix sockets
    for (const bool near : {true, false}) {
      CAPTURE(unreached);
      CAPTURE(near);
      auto loop = make_loop();
      Options first = options_of(), second = options_of();
      second.strict_lanes = true;
      if (unreached) first.listen = second.listen = {"tcp://127.0.0.1:0"};
      if (!near) first.host_id = "another-host";
      Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
      REQUIRE(meet(*loop, a, b));
      std::vector<std::byte> out(200'000, std::byte{0x33}), in(out.size());
      for (std::uint64_t transfer = 1; transfer <= 3; ++transfer) {
        End sent, received;
        b.exchange->receive(a.id, transfer, in.data(), 200'000, kHost, into(received));
        a.exchange->transmit(b.id, transfer, out.data(), 200'000, kHost, into(sent));
        REQUIRE(loop->run_until([&] { return received.times > 0 && sent.times > 0; }, kPatience));
        CHECK(sent.code() == Errc::kOk);  // it is not strict
        CHECK(received.code() == (unreached && near ? Errc::kLaneDenied : Errc::kOk));
        CHECK(received.lane == (unreached || !near ? msg::Lane::kTcp : msg::Lane::kSharedMemory));
        if (received.code() != Errc::kOk)
          CHECK(received.status.error().message.find("a socket") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a process that does not listen connects to all, whatever the ids") {
  auto loop = make_loop();
  Options quiet = options_of();
  quiet.listen.clear();
  Options quiet_too = quiet;
  Node worker(*loop, 1, options_of()), client(*loop, 9, std::move(quiet)),
      other(*loop, 8, std::move(quiet_too));
  worker.add_slab(1'000, "result");
  worker.exchange->peer_joined(client.info(msg::Role::kClient));
  client.exchange->peer_joined(worker.info());
  REQUIRE(loop->run_until(
      [&] { return client.ready.contains(worker.id) && worker.ready.contains(client.id); }, kPatience));
  CHECK(std::memcmp(client.exchange->mapped(worker.device_id(), 0).data(), "result", 6) == 0);
  // Clients do not look for each other.
  client.exchange->peer_joined(other.info(msg::Role::kClient));
  CHECK(client.exchange->send(other.id, grant_of(1)).error().code == Errc::kNotFound);
  // A client offers without a place.
  msg::PeerBatch batch;
  batch.offers.push_back(client.offer(UINT32_MAX, 0, 1'000'000, worker));
  REQUIRE(client.exchange->send(worker.id, std::move(batch)));
  CHECK(loop->run_until([&] { return worker.batches.size() == 1; }, kPatience));
}

TEST_CASE("the connector may be faster than the announcement, and than our own welcome") {
  auto loop = make_loop();
  Node a(*loop, 1, options_of()), b(*loop, 2, options_of(), /*know_self=*/false);
  a.exchange->peer_joined(b.info());
  REQUIRE(a.exchange->send(b.id, grant_of(5)));  // waits
  loop->run_until([] { return false; }, 100 * kMillisecond);
  CHECK(b.ready.empty());
  b.exchange->set_self(b.id);
  loop->run_until([] { return false; }, 50 * kMillisecond);
  CHECK(b.ready.empty());
  b.exchange->peer_joined(a.info());
  b.exchange->peer_joined(a.info());  // a repeat is nothing
  REQUIRE(loop->run_until([&] { return b.batches.size() == 1; }, kPatience));
  CHECK((b.batches[0].second == grant_of(5)));
  CHECK(a.ready.contains(b.id));
}

TEST_CASE("who has another token is rejected, on both sides typed") {
  auto loop = make_loop();
  Options other = options_of(kOtherTokenHex);
  other.link_deadline_ns = 500 * kMillisecond;
  Options ours = options_of();
  ours.link_deadline_ns = 500 * kMillisecond;
  Node a(*loop, 1, std::move(other)), b(*loop, 2, std::move(ours));
  introduce(a, b);
  REQUIRE(loop->run_until([&] { return a.unreachable.contains(b.id) && b.unreachable.contains(a.id); },
                          kPatience));
  CHECK(a.why(b.id) == Errc::kUnauthenticated);
  CHECK(b.why(a.id) == Errc::kTimeout);
  CHECK(b.exchange->counters().rejected >= 1);
  CHECK(b.ready.empty());
  CHECK(a.exchange->send(b.id, grant_of(1)).error().code == Errc::kUnavailable);
}

TEST_CASE("over TCP a peer proves its way with large packets, where the other one would") {
  auto loop = make_loop();
  Node node(*loop, 1, options_of());
  // What comes back is lost behind the proofs: nothing but the proof of the way misses it.
  const auto meet = [&](bool probes, std::uint64_t lost_from, TimeNs deadline) {
    std::unique_ptr<net::ByteStream> way;
    const auto attempt = net::connect_stream(
        *loop, net::Address::parse(node.addresses.back()).value(), {.token = token()}, [&](auto made) {
          REQUIRE(made);
          way = net::inject_faults(*loop, std::move(*made),
                                   std::make_shared<net::Faults>(net::Faults{.stall_at = lost_from}));
        });
    REQUIRE(loop->run_until([&] { return way != nullptr; }, kPatience));
    std::optional<Errc> end;
    const auto greeting =
        net::Handshake::start(*loop, std::move(way), net::Role::kConnector,
                              {.token = token(), .deadline_ns = deadline, .probes_path = probes},
                              [&](auto link) { end = link ? Errc::kOk : link.error().code; });
    REQUIRE(loop->run_until([&] { return end.has_value(); }, kPatience));
    return *end;
  };
  constexpr std::uint64_t kProofs = 56 + 48, kAll = kProofs + net::kFrameHeaderBytes + net::kPathProbeBytes;
  CHECK(meet(true, kAll, kPatience) == Errc::kOk);
  CHECK(meet(true, kAll - 1, 300 * kMillisecond) == Errc::kTimeout);
  CHECK(meet(false, kProofs, kPatience) == Errc::kOk);
}

TEST_CASE("another incarnation at the same address is not taken for the one announced") {
  auto loop = make_loop();
  Node a(*loop, 1, options_of()), b(*loop, 5, options_of());
  msg::PeerInfo stale = b.info();
  stale.id = WorkerId{4};  // what lived there before
  a.exchange->peer_joined(stale);
  REQUIRE(loop->run_until([&] { return a.unreachable.contains(stale.id); }, kPatience));
  CHECK(a.why(stale.id) == Errc::kUnavailable);
  CHECK(b.exchange->counters().strangers_closed == 1);
  a.exchange->peer_lost(stale.id);
  a.exchange->peer_joined(stale);  // a late log entry of a dead one
  CHECK(a.exchange->send(stale.id, grant_of(1)).error().code == Errc::kNotFound);
  // A lost peer cannot come back under its old id.
  b.exchange->peer_lost(a.id);
  a.exchange->peer_joined(b.info());
  REQUIRE(loop->run_until([&] { return a.unreachable.contains(b.id); }, kPatience));
  CHECK(b.ready.empty());
  CHECK(b.exchange->counters().strangers_closed == 2);
}

TEST_CASE("a batch that no frame can hold arrives in parts, in order") {
  auto loop = make_loop();
  Options first = options_of(), second = options_of();
  first.host_id = "elsewhere";
  Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
  constexpr int kOffers = 40'000;  // 160 MB of inlined data: three frames, and more than a link queues
  msg::PeerBatch batch;
  for (int i = 0; i < kOffers; ++i) {
    msg::Offer offer = a.offer(0, i, 4'096, b);
    offer.inlined = true;
    offer.data.assign(4'096, static_cast<char>(i));
    batch.offers.push_back(std::move(offer));
  }
  batch.grants = grant_of(5).grants;
  int next = 0, parts = 0;
  bool granted = false;
  b.on_batch = [&](WorkerId, msg::PeerBatch part) {
    ++parts;
    for (const msg::Offer& offer : part.offers) {
      if (offer.offset != next || offer.data[7] != static_cast<char>(next)) break;
      ++next;
    }
    granted |= !part.grants.empty() && next == kOffers;
  };
  introduce(a, b);
  REQUIRE(a.exchange->send(b.id, std::move(batch)));
  REQUIRE(loop->run_until([&] { return granted; }, kPatience));
  CHECK(parts > 2);
  CHECK(a.unreachable.empty());
}

TEST_CASE("a peer that takes no messages becomes unreachable, typed, before memory is short") {
  auto loop = make_loop();
  Options small = options_of();
  small.max_queued_bytes = 10'000;
  Node a(*loop, 1, std::move(small)), b(*loop, 2, options_of());
  a.exchange->peer_joined(b.info());
  Status status;
  int sent = 0;
  while ((status = a.exchange->send(b.id, grant_of(1))) && sent < 1'000) ++sent;
  CHECK(sent > 10);
  CHECK(sent < 1'000);
  CHECK(status.error().code == Errc::kLimitExceeded);
  CHECK(a.unreachable.empty());  // never inside a call
  REQUIRE(loop->run_until([&] { return a.unreachable.contains(b.id); }, kPatience));
  CHECK(a.why(b.id) == Errc::kLimitExceeded);
}

TEST_CASE("a peer lost by decree: transfers end, its memory stays for those who read it, then goes") {
  auto loop = make_loop();
  Options with_grace = options_of();
  with_grace.unmap_grace_ns = 100 * kMillisecond;
  Node a(*loop, 1, std::move(with_grace)), b(*loop, 2, options_of()), c(*loop, 3, options_of());
  b.add_slab(1'000, "still here");
  c.add_slab(1'000, "and here");
  REQUIRE(meet(*loop, a, b));
  REQUIRE(meet(*loop, a, c));
  std::vector<std::byte> memory(1'000);
  End end;
  a.exchange->receive(b.id, 1, memory.data(), 1'000, kHost, into(end));
  const std::shared_ptr<const void> pin = a.exchange->pin(b.device_id(), 0);
  const std::byte* const pinned = a.exchange->mapped(b.device_id(), 0).data();
  CHECK(a.exchange->pin(b.device_id(), 1) == nullptr);
  a.exchange->peer_lost(b.id);
  a.exchange->peer_lost(c.id);
  CHECK(end.times == 0);
  CHECK(std::memcmp(a.exchange->mapped(b.device_id(), 0).data(), "still here", 10) == 0);
  a.exchange->readers_done(c.id);
  CHECK(a.exchange->mapped(c.device_id(), 0).empty());
  REQUIRE(loop->run_until([&] { return end.times > 0; }, kPatience));
  CHECK(end.code() == Errc::kWorkerLost);
  REQUIRE(loop->run_until([&] { return a.exchange->mapped(b.device_id(), 0).empty(); }, kPatience));
  CHECK(a.exchange->counters().mapped_bytes == 0);
  CHECK(a.exchange->pin(b.device_id(), 0) == nullptr);
  CHECK(std::memcmp(pinned, "still here", 10) == 0);  // for whoever has pinned it
  CHECK(a.exchange->counters().links == 0);
  REQUIRE(loop->run_until([&] { return b.unreachable.contains(a.id); }, kPatience));
  CHECK(b.why(a.id) == Errc::kUnavailable);
  CHECK(a.unreachable.empty());  // whom it was told of, it does not tell
}

TEST_CASE("each on a thread of its own") {
  constexpr std::uint64_t kMany = 2'000;
  auto main_loop = make_loop();
  Options mapped = options_of(), copying = options_of();
  copying.map_peers = false;
  std::unique_ptr<net::EventLoop> loops[] = {make_loop(), make_loop()};
  Node a(*loops[0], 1, std::move(mapped)), b(*loops[1], 2, std::move(copying));
  introduce(a, b);
  std::vector<std::byte> out(300'000, std::byte{0x44}), in(out.size());
  std::uint64_t echoed = 0;
  End received;
  // b grants, a transmits, b says that it has it; a thousand small batches go along.
  a.on_batch = [&](WorkerId, msg::PeerBatch batch) {
    for (const msg::Grant& grant : batch.grants) {
      if (grant.transfer == 1)
        a.exchange->transmit(b.id, 1, out.data(), 300'000, kHost, {});
      else
        REQUIRE(a.exchange->send(b.id, grant_of(grant.transfer)));
    }
  };
  b.on_batch = [&](WorkerId, msg::PeerBatch batch) {
    for (const msg::Grant& grant : batch.grants) echoed += grant.transfer == echoed + 2;
  };
  std::jthread thread([&] { loops[0]->run(); });
  b.exchange->receive(a.id, 1, in.data(), 300'000, kHost, into(received));  // waits for the link
  REQUIRE(loops[1]->run_until([&] { return b.ready.contains(a.id); }, kPatience));
  for (std::uint64_t i = 1; i <= kMany + 1; ++i) REQUIRE(b.exchange->send(a.id, grant_of(i)));
  CHECK(loops[1]->run_until([&] { return received.times > 0 && echoed == kMany; }, kPatience));
  CHECK(received.code() == Errc::kOk);
  CHECK(in == out);
  loops[0]->stop();
  thread.join();
}

TEST_CASE(
    "who is taken for lost and lives finds a fence when it looks, also behind a link that has ended, and "
    "only then") {
  auto loop = make_loop();
  Node a(*loop, 1, options_of()), b(*loop, 2, options_of());
  a.add_slab(1 << 16, "of a");
  REQUIRE(meet(*loop, a, b));
  CHECK(!a.exchange->fenced_by());
  CHECK(!b.exchange->fenced_by());
  const auto memory = b.exchange->mapped(a.device_id(), 0);
  SUBCASE("before it has heard anything") {
    a.exchange->peer_lost(b.id);
    CHECK(b.exchange->fenced_by() == a.id);  // no loop has run
    CHECK(!a.exchange->fenced_by());
    REQUIRE(loop->run_until([&] { return b.unreachable.contains(a.id); }, kPatience));
    CHECK(b.exchange->fenced_by() == a.id);
    CHECK(memory[0] == std::byte{'o'});  // still mapped
  }
  SUBCASE("although the link had ended before, for another reason") {
    b.add_slab(1 << 16);
    msg::PeerBatch wrong;
    wrong.offers.push_back(b.offer(0, 1 << 20, 64, a));  // outside its slab
    REQUIRE(b.exchange->send(a.id, wrong));
    REQUIRE(loop->run_until([&] { return a.unreachable.contains(b.id) && b.unreachable.contains(a.id); },
                            kPatience));
    CHECK(!b.exchange->fenced_by());
    a.exchange->peer_lost(b.id);
    CHECK(b.exchange->fenced_by() == a.id);
  }
  SUBCASE("not where the other one ends") {
    a.exchange.reset();
    REQUIRE(loop->run_until([&] { return b.unreachable.contains(a.id); }, kPatience));
    CHECK(!b.exchange->fenced_by());
  }
  SUBCASE("not by who has lent it nothing") {  // a client that is told that a worker leaves, say
    b.exchange->peer_lost(a.id);
    CHECK(!a.exchange->fenced_by());
    CHECK(!b.exchange->fenced_by());
  }
}
