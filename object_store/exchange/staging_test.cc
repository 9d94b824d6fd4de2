// Staging, with a device that says it is a GPU and whose memory is the host's.
#include <tilewise/exchange/staging.h>

#include "../../tests/make_believe_gpu.h"
#include "exchange_test_util.h"

namespace tilewise::exchange::test {
namespace {

// A node whose memory is a GPU's, with so much host memory to pass through.
struct GpuNode {
  GpuNode(net::EventLoop& loop, std::uint32_t n, std::int64_t limit, Options options = options_of())
      : node(loop, n, std::move(options)) {
    gpu.on_progress([&loop] { loop.wake(); });
    copier.add_device(&gpu);
    staging.emplace(*node.exchange, copier, limit);
  }
  device::Copier copier;
  testing::MakeBelieveGpu gpu;  // goes before what is being copied
  Node node;
  std::optional<Staging> staging;
};

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed));
  return out;
}

}  // namespace

TEST_CASE("GPU memory crosses processes through bounded host memory, whatever the order of calls") {
  auto loop = make_loop();
  GpuNode a(*loop, 1, 300'000), b(*loop, 2, 300'000);
  loop->set_batch_hook([&] {
    const bool one = a.copier.poll(), two = b.copier.poll();
    return one || two;
  });
  REQUIRE(meet(*loop, a.node, b.node));
  // Alone larger than the limit; a few that fit together; many more than do; nothing at all.
  const std::size_t sizes[] = {1'000'000, 100'000, 100'000, 100'000, 250'000, 8, 0, 200'000, 299'999, 1};
  std::vector<std::vector<std::byte>> out, in;
  std::vector<End> sent(std::size(sizes)), received(std::size(sizes));
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    out.push_back(pattern(sizes[i], static_cast<int>(i)));
    in.emplace_back(sizes[i] + 1);  // one more, so that there is an address
  }
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    const auto bytes = static_cast<std::int64_t>(sizes[i]);
    b.staging->receive(a.node.id, 100 + i, in[i].data(), bytes, into(received[i]));
    a.staging->transmit(b.node.id, 100 + i, out[i].data(), bytes, into(sent[i]));
  }
  const auto over = [](const std::vector<End>& ends) {
    return std::all_of(ends.begin(), ends.end(), [](const End& end) { return end.times > 0; });
  };
  REQUIRE(loop->run_until([&] { return over(sent) && over(received); }, kPatience));
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    CAPTURE(i);
    CHECK(sent[i].code() == Errc::kOk);
    CHECK(received[i].code() == Errc::kOk);
    CHECK(received[i].lane == msg::Lane::kStaged);
    CHECK(received[i].times == 1);
    CHECK(std::equal(out[i].begin(), out[i].end(), in[i].begin()));
  }

  // Failures pass through, and what they held is free again.
  End nobody, gone;
  a.staging->transmit(WorkerId{77}, 1, out[0].data(), 1'000'000, into(nobody));
  a.staging->receive(WorkerId{77}, 2, in[0].data(), 1'000'000, into(gone));
  REQUIRE(loop->run_until([&] { return nobody.times > 0 && gone.times > 0; }, kPatience));
  CHECK(nobody.code() == Errc::kUnavailable);
  CHECK(gone.code() == Errc::kUnavailable);
  End again, back;
  b.staging->receive(a.node.id, 500, in[1].data(), 100'000, into(back));
  a.staging->transmit(b.node.id, 500, out[0].data(), 100'000, into(again));
  REQUIRE(loop->run_until([&] { return back.times > 0; }, kPatience));
  CHECK(back.code() == Errc::kOk);
  CHECK(std::equal(in[1].begin(), in[1].begin() + 100'000, out[0].begin()));
  loop->set_batch_hook({});
}

TEST_CASE("who is strict about lanes takes nothing staged into a GPU, and says why") {
  auto loop = make_loop();
  Options strict = options_of();
  strict.strict_lanes = true;
  GpuNode a(*loop, 1, 1'000, strict), b(*loop, 2, 1'000);
  REQUIRE(meet(*loop, a.node, b.node));
  loop->set_batch_hook([&] { return a.copier.poll(); });
  auto bytes = pattern(100, 1), there = pattern(100, 2);
  End denied, sent, received;
  a.staging->receive(b.node.id, 2, bytes.data(), 100, into(denied));
  CHECK(denied.times == 1);
  CHECK(denied.code() == Errc::kLaneDenied);
  CHECK(denied.lane == msg::Lane::kStaged);
  CHECK(denied.status.error().message.find("through the host") != std::string::npos);
  // What a host's memory is to have comes: nobody would tell it otherwise.
  b.node.exchange->receive(a.node.id, 3, there.data(), 100, device::Kind::kHost, into(received));
  a.staging->transmit(b.node.id, 3, bytes.data(), 100, into(sent));
  REQUIRE(loop->run_until([&] { return sent.times > 0 && received.times > 0; }, kPatience));
  CHECK(sent.code() == Errc::kOk);
  CHECK(received.code() == Errc::kOk);
  CHECK(there == bytes);
  loop->set_batch_hook({});
}

TEST_CASE("what is staged when everything ends is let go") {
  auto loop = make_loop();
  auto bytes = pattern(5'000, 1);
  GpuNode a(*loop, 1, 1'000), b(*loop, 2, 1'000);
  REQUIRE(meet(*loop, a.node, b.node));
  End never, neither;
  for (std::uint64_t i = 0; i < 5; ++i) {
    b.staging->receive(a.node.id, 10 + i, bytes.data(), 5'000, into(never));
    a.staging->transmit(b.node.id, 20 + i, bytes.data(), 5'000, into(neither));
  }
  CHECK(never.times == 0);
  a.node.exchange.reset();
  b.node.exchange.reset();
  CHECK(never.times == 0);
}

}  // namespace tilewise::exchange::test
