// Data connections between hosts, over a way that is cut.
#include "way.h"

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

TEST_CASE(
    "between hosts blocks have a connection of their own, which is made again without the link noticing") {
  auto loop = make_loop();
  Options first = tcp_options("a's"), second = tcp_options("b's");
  first.use_ucx = second.use_ucx = true;
  Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
  Way way(b.addresses[0]);
  introduce_over(way, a, b);
  const auto streams = [&](std::int64_t count) {
    return a.exchange->ucx_counters().streams == count && b.exchange->ucx_counters().streams == count;
  };
  constexpr std::int64_t kBytes = 50'000'000;
  std::vector<std::byte> out(kBytes);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  REQUIRE(loop->run_until([&] { return a.ready.contains(b.id) && b.ready.contains(a.id); }, kPatience));
  std::uint64_t transfer = 0;
  for (int turn = 0; turn < 4; ++turn) {
    CAPTURE(turn);
    Node &from = turn % 2 == 0 ? a : b, &to = turn % 2 == 0 ? b : a;
    std::vector<std::byte> in(kBytes), again(kBytes);
    // Before there is a connection, or over the one there is.
    End good, sent;
    to.exchange->receive(from.id, ++transfer, in.data(), kBytes, kHost, into(good));
    from.exchange->transmit(to.id, transfer, out.data(), kBytes, kHost, into(sent));
    REQUIRE(loop->run_until([&] { return good.times > 0 && sent.times > 0; }, kPatience));
    CHECK(good.code() == Errc::kOk);
    CHECK(sent.code() == Errc::kOk);
    CHECK(good.lane == msg::Lane::kTcp);
    CHECK(in == out);
    CHECK(streams(turn + 1));
    End cut, cut_sent, never;
    to.exchange->receive(from.id, ++transfer, again.data(), kBytes, kHost, into(cut));
    from.exchange->transmit(to.id, transfer, out.data(), kBytes, kHost, into(cut_sent));
    to.exchange->receive(from.id, ++transfer, in.data(), 1'000, kHost, into(never));  // nobody sends it
    loop->run_until([] { return false; }, 2 * kMillisecond);
    way.cut_latest();
    REQUIRE(
        loop->run_until([&] { return cut.times > 0 && cut_sent.times > 0 && never.times > 0; }, kPatience));
    CHECK((cut.code() == Errc::kUnavailable || again == out));  // it may have been quick
    CHECK(never.code() == Errc::kUnavailable);                  // may have been lost, is asked for again
    REQUIRE(loop->run_until([&] { return streams(turn + 2); }, kPatience));
  }
  CHECK(a.exchange->counters().breaks == 0);
  CHECK(b.exchange->counters().breaks == 0);
  CHECK(a.exchange->ucx_counters().endpoints_failed == 4);
}

TEST_CASE(
    "a data connection that only one end knows to be over: what the other puts into it is asked for again") {
  auto loop = make_loop();
  Options first = tcp_options("a's"), second = tcp_options("b's");
  first.use_ucx = second.use_ucx = true;
  Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
  Way way(b.addresses[0]);  // a dials
  introduce_over(way, a, b);
  const auto streams = [&](std::int64_t count) {
    return a.exchange->ucx_counters().streams == count && b.exchange->ucx_counters().streams == count;
  };
  REQUIRE(loop->run_until([&] { return streams(1); }, kPatience));
  way.cut_latest_for_connector();
  REQUIRE(loop->run_until([&] { return a.exchange->ucx_counters().endpoints_failed == 1; }, kPatience));
  std::vector<std::byte> out(5'000, std::byte{7}), in(5'000);
  End lost, sent;
  a.exchange->receive(b.id, 1, in.data(), 5'000, kHost, into(lost));
  b.exchange->transmit(a.id, 1, out.data(), 5'000, kHost, into(sent));
  const TimeNs before = monotonic_now();
  REQUIRE(loop->run_until([&] { return lost.times > 0 && sent.times > 0 && streams(2); }, kPatience));
  CHECK(lost.code() == Errc::kUnavailable);
  // Into the old one; unless the new one came first on a busy machine.
  CHECK((sent.code() == Errc::kOk || sent.code() == Errc::kUnavailable));
  CHECK(monotonic_now() - before < 10 * kSecond);
  End good;
  a.exchange->receive(b.id, 2, in.data(), 5'000, kHost, into(good));
  b.exchange->transmit(a.id, 2, out.data(), 5'000, kHost, into(sent));
  REQUIRE(loop->run_until([&] { return good.times > 0; }, kPatience));
  CHECK(good.code() == Errc::kOk);
  CHECK(in == out);
}
