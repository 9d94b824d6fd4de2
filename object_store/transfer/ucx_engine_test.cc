#include "transfer_test_util.h"

#include "ucx_lanes.h"

#include <algorithm>

using namespace tilewise;
using namespace tilewise::transfer;
using namespace tilewise::transfer::test;

namespace {

constexpr auto kHost = device::Kind::kHost;

Errc code_of(const Status& status) { return status ? Errc::kOk : status.error().code; }

}  // namespace

TEST_CASE("bytes of any size go both ways, by the transports chosen and by tcp alone") {
  for (const std::string transports : {"", "tcp"}) {
    CAPTURE(transports);
    Pair pair({.transports = transports});
    std::uint64_t transfer = 1;
    for (std::int64_t bytes :
         {std::int64_t{1}, std::int64_t{7}, std::int64_t{4096}, std::int64_t{8192}, std::int64_t{8193},
          std::int64_t{100'001}, std::int64_t{4} << 20, (std::int64_t{64} << 20) + 3}) {
      CAPTURE(bytes);
      std::vector<std::byte> in(static_cast<std::size_t>(bytes)), out(in.size());
      fill(out, transfer);
      End received, sent;
      REQUIRE(pair.engine->expect(cookie_of(0), transfer, in.data(), bytes, kHost, into(received)));
      CHECK(code_of(pair.engine->expect(cookie_of(0), transfer, in.data(), bytes, kHost, {})) ==
            Errc::kAlreadyExists);
      pair.child_transmits(transfer, bytes, transfer + 1000);
      pair.child_expects(transfer + 1, bytes, transfer);
      REQUIRE(pair.run_until([&] { return received.times > 0; }));
      REQUIRE(pair.engine->transmit(cookie_of(0), transfer + 1, out.data(), bytes, kHost, into(sent)));
      REQUIRE(pair.run_until([&] { return sent.times > 0 && pair.child_done.contains(transfer + 1); }));
      CHECK(code_of(received.status) == Errc::kOk);
      CHECK(filled(in, transfer + 1000));
      CHECK(code_of(sent.status) == Errc::kOk);
      CHECK(pair.child_done[transfer + 1].good);
      CHECK(received.times == 1);
      CHECK(sent.times == 1);
      // Read back, not inferred: with tcp alone nothing else can have been used.
      CHECK(received.via != Via::kNone);
      if (transports == "tcp") {
        CHECK(received.via == Via::kTcp);
        CHECK(sent.via == Via::kTcp);
        CHECK(pair.child_done[transfer + 1].via == static_cast<int>(Via::kTcp));
      }
      transfer += 2;
    }
    CHECK(pair.engine->counters().received == 8);
    CHECK(pair.engine->counters().sent == 8);
    CHECK(pair.engine->idle());
  }
}

TEST_CASE("many transfers at once, each done once") {
  Pair pair({});
  constexpr int kMany = 500;
  std::vector<std::vector<std::byte>> memory(kMany);
  std::vector<End> ends(kMany);
  for (int i = 0; i < kMany; ++i) {
    memory[i].resize(static_cast<std::size_t>(1 + i * 97 % 30'000));
    const auto bytes = static_cast<std::int64_t>(memory[i].size());
    REQUIRE(pair.engine->expect(cookie_of(0), 1 + i, memory[i].data(), bytes, kHost, into(ends[i])));
    pair.child_transmits(1 + i, bytes, 1 + i);
    if (i % 8 == 7) pair.turn();
  }
  CHECK(pair.run_until(
      [&] { return std::ranges::all_of(ends, [](const End& end) { return end.times > 0; }); }));
  for (int i = 0; i < kMany; ++i) {
    CHECK(code_of(ends[i].status) == Errc::kOk);
    CHECK(ends[i].times == 1);
    CHECK(filled(memory[i], 1 + i));
  }
}

TEST_CASE("what is not expected, under a wrong cookie or of another length touches no memory") {
  for (std::int64_t bytes : {100, 1'000'000}) {  // eager and rendezvous
    CAPTURE(bytes);
    Pair pair({});
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes)), zeros(memory.size());
    End end;
    REQUIRE(pair.engine->expect(cookie_of(0), 5, memory.data(), bytes, kHost, into(end)));
    pair.child_transmits(6, bytes, 1);     // never granted
    pair.child_transmits(5, bytes, 1, 1);  // granted to another pair
    REQUIRE(pair.run_until([&] {
      return pair.child_done.contains(5) && pair.child_done.contains(6) &&
             pair.engine->counters().refused_unknown == 2;
    }));
    CHECK(end.times == 0);
    CHECK(memory == zeros);
    pair.child_transmits(5, bytes - 1, 1);
    REQUIRE(pair.run_until([&] { return end.times > 0; }));
    CHECK(code_of(end.status) == Errc::kCorruptData);
    CHECK(pair.engine->counters().refused_length == 1);
    CHECK(memory == zeros);
    // Nothing is harmed: the next transfer works.
    End next;
    REQUIRE(pair.engine->expect(cookie_of(0), 8, memory.data(), bytes, kHost, into(next)));
    pair.child_transmits(8, bytes, 2);
    REQUIRE(pair.run_until([&] { return next.times > 0; }));
    CHECK(code_of(next.status) == Errc::kOk);
    CHECK(filled(memory, 2));
  }
}

TEST_CASE("a stranger's malformed messages are counted and dropped") {
  Pair pair({}, "child: stranger");
  std::vector<std::byte> memory(1'000), zeros(1'000);
  End end;
  REQUIRE(pair.engine->expect(cookie_of(0), 77, memory.data(), 1'000, kHost, into(end)));
  REQUIRE(pair.run_until([&] { return end.times > 0; }));
  CHECK(code_of(end.status) == Errc::kCorruptData);  // 1000 claimed, 999 sent
  CHECK(memory == zeros);
  CHECK(pair.engine->counters().refused_malformed == 10);
  CHECK(pair.engine->counters().refused_unknown == 2);
  CHECK(pair.engine->counters().refused_length == 1);
}

TEST_CASE("a peer that is killed fails what it had under way, soon and typed, and its memory is free") {
  for (const std::string transports : {"", "tcp"}) {
    CAPTURE(transports);
    Pair pair({.transports = transports});
    const std::int64_t bytes = std::int64_t{64} << 20;
    std::vector<std::byte> in(static_cast<std::size_t>(bytes)), out(in.size());
    End warm, receiving, waiting, sending;
    REQUIRE(pair.engine->expect(cookie_of(0), 1, in.data(), 100, kHost, into(warm)));
    pair.child_transmits(1, 100, 1);
    REQUIRE(pair.run_until([&] { return warm.times > 0; }));
    // Stopped, so that neither direction can end before the kill.
    pair.child_transmits(2, 64 << 20, 2);
    pair.child_expects(4, bytes, 4);
    REQUIRE(pair.engine->expect(cookie_of(0), 2, in.data(), 64 << 20, kHost, into(receiving)));
    REQUIRE(pair.engine->expect(cookie_of(0), 3, in.data(), 1'000, kHost, into(waiting)));
    pair.child.kill(SIGSTOP);
    REQUIRE(pair.engine->transmit(cookie_of(0), 4, out.data(), bytes, kHost, into(sending)));
    pair.run_until([] { return false; }, 100 * kMillisecond);
    CHECK(sending.times == 0);
    pair.child.kill(SIGKILL);
    const TimeNs killed = monotonic_now();
    REQUIRE(pair.run_until([&] { return receiving.times > 0 && waiting.times > 0 && sending.times > 0; },
                           10 * kSecond));
    MESSAGE("all failed after " << (monotonic_now() - killed) / kMillisecond << " ms");
    CHECK(code_of(sending.status) == Errc::kUnavailable);
    CHECK(code_of(waiting.status) == Errc::kUnavailable);
    CHECK((receiving.status || receiving.status.error().code == Errc::kUnavailable));  // may have come before
    CHECK(pair.engine->idle());
    CHECK(pair.engine->counters().quarantined == 0);
    // The survivor goes on; connecting to the dead again is an error, not a wait.
    End again;
    const Status ok = pair.engine->transmit(cookie_of(0), 9, out.data(), 1'000'000, kHost, into(again));
    if (ok) CHECK(pair.run_until([&] { return again.times > 0; }, 10 * kSecond));
    CHECK((!ok || !again.status));
  }
}

TEST_CASE("past its deadline a transfer with a hung peer is given up, and free once UCX has let go") {
  for (const std::string transports : {"", "tcp"}) {
    CAPTURE(transports);
    Pair pair({.transports = transports, .deadline_ns = 300 * kMillisecond, .grace_ns = 200 * kMillisecond});
    const std::int64_t bytes = std::int64_t{64} << 20;
    std::vector<std::byte> in(static_cast<std::size_t>(bytes)), out(in.size());
    End warm, waiting, sending;
    REQUIRE(pair.engine->expect(cookie_of(0), 1, in.data(), 100'000, kHost, into(warm)));
    pair.child_transmits(1, 100'000, 1);
    REQUIRE(pair.run_until([&] { return warm.times > 0; }));
    CHECK(code_of(warm.status) == Errc::kOk);
    pair.child.kill(SIGSTOP);
    REQUIRE(pair.engine->expect(cookie_of(0), 2, in.data(), 1'000, kHost, into(waiting)));
    REQUIRE(pair.engine->transmit(cookie_of(0), 3, out.data(), bytes, kHost, into(sending)));
    REQUIRE(pair.run_until([&] { return waiting.times > 0; }, 5 * kSecond));
    CHECK(code_of(waiting.status) == Errc::kTimeout);
    CHECK(sending.times == 0);
    REQUIRE(pair.run_until([&] { return sending.times > 0; }, 5 * kSecond));
    CHECK(code_of(sending.status) == Errc::kTimeout);
    CHECK(sending.times == 1);
    CHECK(pair.engine->idle());
    CHECK(pair.engine->counters().quarantined == 0);
    CHECK(pair.engine->counters().timed_out == 2);
  }
}

TEST_CASE("a receive that UCX does not let go of is told to have failed, and done when it does") {
  // A sender that stands still, and no connection of the receiver's own that it could close.
  const UcxOptions options{.transports = "tcp",
                           .net_devices = "lo",
                           .deadline_ns = 200 * kMillisecond,
                           .grace_ns = 50 * kMillisecond};
  auto receiver = UcxEngine::create(options).value();
  auto sender = UcxEngine::create({.transports = "tcp", .net_devices = "lo"}).value();
  REQUIRE(receiver->add_peer(cookie_of(0), ""));
  REQUIRE(sender->add_peer(cookie_of(0), receiver->address()));
  const std::int64_t bytes = std::int64_t{64} << 20;
  std::vector<std::byte> in(static_cast<std::size_t>(bytes)), out(in.size());
  fill(out, 1);
  End received, sent;
  std::vector<Errc> held;
  REQUIRE(receiver->expect(cookie_of(0), 1, in.data(), bytes, kHost, into(received), [&](const Error& why) {
    CHECK(received.times == 0);
    held.push_back(why.code);
  }));
  REQUIRE(sender->transmit(cookie_of(0), 1, out.data(), bytes, kHost, into(sent)));
  const auto some = [&] {
    return std::any_of(in.begin(), in.begin() + 4096, [](std::byte b) { return b != std::byte{}; });
  };
  const TimeNs patience = monotonic_now() + kPatience;
  while (!some() && monotonic_now() < patience) sender->progress(), receiver->progress();
  REQUIRE(some());
  REQUIRE(received.times == 0);
  while (held.empty() && monotonic_now() < patience) receiver->progress();
  CHECK(held == std::vector{Errc::kTimeout});
  CHECK(received.times == 0);
  CHECK(receiver->counters().quarantined == 1);
  CHECK(receiver->next_deadline() == TimeNs{1} << 62);
  while (received.times == 0 && monotonic_now() < patience) sender->progress(), receiver->progress();
  CHECK(code_of(received.status) == Errc::kTimeout);
  CHECK(received.times == 1);
  CHECK(held.size() == 1);
  CHECK(receiver->idle());
  CHECK(receiver->counters().quarantined == 0);
}

TEST_CASE("a removed peer's transfers end with the reason given") {
  Pair pair({});
  std::vector<std::byte> memory(1'000);
  End end;
  REQUIRE(pair.engine->expect(cookie_of(0), 1, memory.data(), 1'000, kHost, into(end)));
  pair.engine->remove_peer(cookie_of(0), error(Errc::kWorkerLost, "gone"));
  CHECK(end.times == 0);  // never inside the call
  REQUIRE(pair.run_until([&] { return end.times > 0; }));
  CHECK(code_of(end.status) == Errc::kWorkerLost);
  CHECK(code_of(pair.engine->transmit(cookie_of(0), 2, memory.data(), 1, kHost, {})) == Errc::kNotFound);
}

TEST_CASE("addresses that are none, kinds that UCX cannot move and sizes that cannot be are refused") {
  auto engine = UcxEngine::create({});
  REQUIRE(engine);
  const std::string good = (*engine)->address();
  std::string flipped = good;
  flipped[flipped.size() / 2] ^= 1;
  for (const std::string& bad : {std::string("x"), good.substr(0, 16), good.substr(0, good.size() - 1),
                                 flipped, std::string(100'000, 'a')}) {
    CHECK(code_of((*engine)->add_peer(cookie_of(1), bad)) == Errc::kCorruptData);
  }
  REQUIRE((*engine)->add_peer(cookie_of(1), good));
  CHECK(code_of((*engine)->add_peer(cookie_of(1), good)) == Errc::kAlreadyExists);
  CHECK((*engine)->supports(kHost));
  std::byte byte{};
  if (!(*engine)->supports(device::Kind::kCuda)) {
    CHECK(code_of((*engine)->expect(cookie_of(1), 1, &byte, 1, device::Kind::kCuda, {})) ==
          Errc::kUnsupported);
  }
  CHECK(code_of((*engine)->expect(cookie_of(1), 1, &byte, -1, kHost, {})) == Errc::kInvalidArgument);
  std::vector<std::byte> slab(1 << 20);
  CHECK((*engine)->register_slab({.data = slab.data(), .bytes = 1 << 20}, kHost));
  const auto none = UcxEngine::create({.transports = "no_such_transport"});
  REQUIRE(!none);
  CHECK(none.error().code == Errc::kUnavailable);
}

TEST_CASE("lanes are read from UCX's description") {
  const Lanes cma = read_lanes(
      "#                 lane[0]:  1:tcp/lo.0 md[1]      -> md[1]/tcp/sysdev[255] am am_bw#0 keepalive "
      "wireup\n"
      "#                 lane[1]:  4:cma/memory.0 md[4]  -> md[4]/cma/sysdev[255] rma_bw#0\n");
  CHECK(cma.eager == Via::kTcp);
  CHECK(cma.bulk == Via::kSharedMemory);
  CHECK(cma.bulk_cuda == Via::kStaged);
  const Lanes tcp =
      read_lanes("#  lane[0]:  0:tcp/lo.0 md[0]  -> md[0]/tcp/sysdev[255] am am_bw#0 keepalive wireup\n");
  CHECK(tcp.eager == Via::kTcp);
  CHECK(tcp.bulk == Via::kTcp);
  const Lanes gpu = read_lanes(
      "# lane[0]: 9:rc_mlx5/mlx5_0:1.0 md[7] -> md[7]/ib/sysdev[1] rma_bw#1 am am_bw#0\n"
      "# lane[1]: 3:cuda_ipc/cuda.0 md[3] -> md[3]/cuda_ipc/sysdev[9] rma_bw#0\n");
  CHECK(gpu.eager == Via::kRdma);
  CHECK(gpu.bulk == Via::kRdma);
  CHECK(gpu.bulk_cuda == Via::kCudaIpc);
  const Lanes none = read_lanes("lane[ -> ]: :\n#\nlane[0]: 1:\n");
  CHECK(none.eager == Via::kNone);
  CHECK(none.bulk_cuda == Via::kNone);
}

TEST_CASE("what UCX says of host memory is proven by a transfer to itself, and nothing of that stays") {
  for (const std::string transports : {"", "tcp"}) {
    CAPTURE(transports);
    auto engine = UcxEngine::create({.transports = transports, .net_devices = "lo"}).value();
    std::vector<std::byte> memory(1 << 20);
    const device::Slab slab{.data = memory.data(), .bytes = static_cast<std::int64_t>(memory.size())};
    CHECK(code_of(engine->prove(slab, kHost)) == Errc::kOk);
    CHECK(engine->counters().received == 2);
    CHECK(engine->counters().failed == 0);
    CHECK(engine->idle());
    CHECK(engine->supports(kHost));
    CHECK(memory[1] != memory[2]);                  // it went there
    CHECK(memory[(64 << 10) + 1] == std::byte{0});  // and no further
    const device::Slab small{.data = memory.data(), .bytes = 100};
    CHECK(code_of(engine->prove(small, kHost)) == Errc::kOk);
    if (!engine->supports(device::Kind::kCuda))
      CHECK(code_of(engine->prove(slab, device::Kind::kCuda)) == Errc::kUnsupported);
  }
}

TEST_CASE("memory of which UCX was wrong is not given to it any more") {
  auto engine = UcxEngine::create({.net_devices = "lo"}).value();
  const device::Slab gone{.data = nullptr, .bytes = 1 << 20};  // what a registration refuses
  CHECK(code_of(engine->register_slab(gone, kHost)) != Errc::kOk);
  std::vector<std::byte> memory(1 << 20);
  End end;
  REQUIRE(engine->add_peer(cookie_of(3), engine->address()));
  REQUIRE(engine->expect(cookie_of(3), 1, memory.data(), 100, kHost, into(end)));
  CHECK(code_of(engine->prove({.data = memory.data(), .bytes = 4096}, kHost)) == Errc::kUnavailable);
  CHECK(engine->supports(kHost));  // nothing was tried

  // Transports that UCX counts, and that make no connection: it says that it moves host memory.
  auto liar = UcxEngine::create({.transports = "cma"}).value();
  REQUIRE(liar->supports(kHost));
  CHECK(code_of(liar->prove({.data = memory.data(), .bytes = 4096}, kHost)) == Errc::kUnavailable);
  CHECK(!liar->supports(kHost));
  REQUIRE(liar->add_peer(cookie_of(4), engine->address()));
  CHECK(code_of(liar->expect(cookie_of(4), 1, memory.data(), 100, kHost, {})) == Errc::kUnsupported);
}
