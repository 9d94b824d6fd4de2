// Staging, with a device that says it is a GPU and whose memory is the host's.
#include <tilewise/exchange/staging.h>

#include "../../tests/make_believe_gpu.h"
#include "way.h"

namespace tilewise::exchange::test {
namespace {

// A node whose memory is a GPU's, with so much host memory to pass through.
struct GpuNode {
  GpuNode(net::EventLoop& loop, std::uint32_t n, std::int64_t limit, Options options = options_of(),
          const ChunkOptions& chunks = {})
      : node(loop, n, std::move(options)) {
    gpu.on_progress([&loop] { loop.wake(); });
    copier.add_device(&gpu);
    staging.emplace(*node.exchange, copier, chunks, limit);
  }
  ~GpuNode() {
    gpu.synchronize();
    node.exchange.reset();
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

bool over(const std::vector<End>& ends) {
  return std::all_of(ends.begin(), ends.end(), [](const End& end) { return end.times > 0; });
}

Options between_hosts(const char* host) {
  Options options = tcp_options(host);
  options.use_ucx = true;
  return options;
}

// Two hosts, and blocks of which each has so many bytes in a chunk.
struct TwoHosts {
  static constexpr std::int64_t kChunk = 10'000;
  explicit TwoHosts(std::int64_t buffers)
      : chunks{.bytes = kChunk, .limit_bytes = buffers * kChunk},
        a(*loop, 1, 0, between_hosts("a's"), chunks),
        b(*loop, 2, 0, between_hosts("b's"), chunks),
        way(b.node.addresses[0]) {
    loop->set_batch_hook([this] {
      const bool one = a.copier.poll(), two = b.copier.poll();
      return one || two;
    });
    introduce_over(way, a.node, b.node);
    until([&] { return streams() == 1; });
  }
  ~TwoHosts() { loop->set_batch_hook({}); }
  std::int64_t streams() const {
    return std::min(a.node.exchange->ucx_counters().streams, b.node.exchange->ucx_counters().streams);
  }
  void from_a_to_b(std::uint64_t transfer, const std::vector<std::byte>& out, std::vector<std::byte>& in,
                   End& sent, End& received) {
    const auto bytes = static_cast<std::int64_t>(out.size());
    b.staging->receive(a.node.id, transfer, in.data(), bytes, into(received));
    a.staging->transmit(b.node.id, transfer, out.data(), bytes, into(sent));
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); }

  std::unique_ptr<net::EventLoop> loop = make_loop();
  ChunkOptions chunks;
  GpuNode a, b;
  Way way;
};

}  // namespace

TEST_CASE(
    "between hosts GPU memory goes in chunks, both ways, through no more host memory than was allowed") {
  for (const std::int64_t buffers : {1, 8}) {
    CAPTURE(buffers);
    TwoHosts h(buffers);
    std::vector<std::size_t> sizes = {1'000'000, 0, 1, 9'999, 10'000, 10'001, 100'000, 5'000'000};
    for (std::size_t i = 0; i < 40; ++i) sizes.push_back(777 * i);
    struct Way {
      GpuNode &from, &to;
      std::vector<std::vector<std::byte>> out = {}, in = {};
      std::vector<End> sent = {}, received = {};
    };
    Way ways[] = {{h.a, h.b}, {h.b, h.a}};
    for (Way& way : ways) {
      way.sent.resize(sizes.size()), way.received.resize(sizes.size());
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        way.out.push_back(pattern(sizes[i], static_cast<int>(i)));
        way.in.emplace_back(sizes[i] + 1);
      }
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      for (Way& way : ways) {
        const auto bytes = static_cast<std::int64_t>(sizes[i]);
        way.to.staging->receive(way.from.node.id, 100 + i, way.in[i].data(), bytes, into(way.received[i]));
        way.from.staging->transmit(way.to.node.id, 100 + i, way.out[i].data(), bytes, into(way.sent[i]));
        way.from.staging->transmit(way.to.node.id, 100 + i, nullptr, bytes, {});  // a repeat
      }
    }
    h.until([&] {
      return over(ways[0].sent) && over(ways[0].received) && over(ways[1].sent) && over(ways[1].received);
    });
    for (Way& way : ways) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        CAPTURE(i);
        CHECK(way.sent[i].code() == Errc::kOk);
        CHECK(way.received[i].code() == Errc::kOk);
        CHECK(way.received[i].lane == msg::Lane::kStaged);
        CHECK(way.received[i].times == 1);
        CHECK(std::equal(way.out[i].begin(), way.out[i].end(), way.in[i].begin()));
      }
      // Four are made at once, and one or two more for the peer.
      const std::int64_t most = std::max<std::int64_t>(buffers, 4) + 2;
      CHECK(way.from.staging->buffer_bytes() <= 2 * most * TwoHosts::kChunk);
    }
    CHECK(h.a.node.exchange->ucx_counters().sent == static_cast<std::int64_t>(sizes.size()));
  }
}

TEST_CASE("a GPU's block and a host's memory are each other's ends between hosts too") {
  TwoHosts h(8);
  const auto out = pattern(200'000, 1), back = pattern(300'000, 2);
  std::vector<std::byte> in(out.size()), home(back.size());
  End sent, received, sent_back, received_back;
  h.b.node.exchange->receive(h.a.node.id, 1, in.data(), 200'000, kHost, into(received));
  h.a.staging->transmit(h.b.node.id, 1, out.data(), 200'000, into(sent));
  h.a.staging->receive(h.b.node.id, 2, home.data(), 300'000, into(received_back));
  h.b.node.exchange->transmit(h.a.node.id, 2, back.data(), 300'000, kHost, into(sent_back));
  h.until([&] { return received.times > 0 && sent.times > 0 && received_back.times > 0; });
  CHECK(received.lane == msg::Lane::kTcp);
  CHECK(received_back.lane == msg::Lane::kStaged);
  CHECK(in == out);
  CHECK(home == back);
}

TEST_CASE("a data connection that breaks in the middle of chunks gives all of them back") {
  TwoHosts h(8);
  const auto out = pattern(20'000'000, 1), small = pattern(1'000, 2);
  std::vector<std::byte> ins[5];
  for (auto& in : ins) in.resize(out.size());
  std::uint64_t transfer = 0;
  int cut = 0;
  for (int turn = 0; turn < 8; ++turn) {
    CAPTURE(turn);
    const std::int64_t streams = h.streams();
    std::vector<End> sent(5), received(5);
    for (std::size_t i = 0; i < 5; ++i) {
      h.from_a_to_b(++transfer, out, ins[i], sent[i], received[i]);
    }
    h.loop->run_until([] { return false; }, turn * kMillisecond);
    h.way.cut_latest();
    h.until([&] { return over(sent) && over(received) && h.streams() > streams; });
    for (const End& end : received) {
      CHECK((end.code() == Errc::kOk || end.code() == Errc::kUnavailable));
      cut += end.code() == Errc::kUnavailable;
    }
  }
  CHECK(cut > 0);
  End sent, received;
  std::fill(ins[0].begin(), ins[0].end(), std::byte{});
  h.from_a_to_b(++transfer, out, ins[0], sent, received);
  h.until([&] { return sent.times > 0 && received.times > 0; });
  CHECK(received.code() == Errc::kOk);
  CHECK(ins[0] == out);
  CHECK(h.a.staging->buffer_bytes() <= 20 * TwoHosts::kChunk);
  CHECK(h.b.staging->buffer_bytes() <= 20 * TwoHosts::kChunk);
}

TEST_CASE(
    "a block that cannot be copied out of the GPU fails alone, or with the connection where some of it was "
    "sent") {
  for (const int good :
       {0, 1, 2, 3, 10, 20, 25, 29}) {  // chunks of thirty that are copied before the one that is not
    CAPTURE(good);
    const auto out = pattern(100'000, 1);
    std::vector<std::vector<std::byte>> ins(3, std::vector<std::byte>(out.size()));
    std::vector<End> sent(3), received(3);
    TwoHosts h(8);
    h.a.gpu.copy_stream().fail_copy_after(good);
    for (std::size_t i = 0; i < 3; ++i) {  // one after the other, so that the order of chunks is known
      CAPTURE(i);
      h.from_a_to_b(i, out, ins[i], sent[i], received[i]);
      h.until([&] { return sent[i].times > 0; });
      if (i != static_cast<std::size_t>(good / 10)) {
        h.until([&] { return received[i].times > 0; });
        CHECK(sent[i].code() == Errc::kOk);
        CHECK(received[i].code() == Errc::kOk);
        CHECK(ins[i] == out);
        continue;
      }
      CHECK(sent[i].code() == Errc::kDeviceError);
      // Of what was not begun the receiver hears nothing here: the worker's core tells its core.
      const bool begun = good % 10 != 0;
      if (begun) h.until([&] { return received[i].times > 0 && h.streams() == 2; });
      CHECK(received[i].times == (begun ? 1 : 0));
      if (begun) CHECK(received[i].code() == Errc::kUnavailable);
    }
    CHECK(h.streams() == (good % 10 == 0 ? 1 : 2));
  }
}

TEST_CASE("a block that cannot be copied into the GPU fails alone") {
  for (const int good : {0, 4, 9, 15, 29}) {
    CAPTURE(good);
    const auto out = pattern(100'000, 1);
    std::vector<std::vector<std::byte>> ins(3, std::vector<std::byte>(out.size()));
    std::vector<End> sent(3), received(3);
    TwoHosts h(8);
    h.b.gpu.copy_stream().fail_copy_after(good);
    for (std::size_t i = 0; i < 3; ++i) {
      h.from_a_to_b(i, out, ins[i], sent[i], received[i]);
    }
    h.until([&] { return over(sent) && over(received); });
    int failed = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(sent[i].code() == Errc::kOk);  // it has done its part
      const bool fails = received[i].code() != Errc::kOk;
      failed += fails;
      if (fails)
        CHECK(received[i].code() == Errc::kDeviceError);
      else
        CHECK(ins[i] == out);
    }
    CHECK(failed == 1);
    CHECK(h.streams() == 1);
    CHECK(h.b.staging->buffer_bytes() <= 20 * TwoHosts::kChunk);
  }
}

TEST_CASE("what a peer does not read any more stops nobody else's chunks") {
  TwoHosts h(4);
  const auto out = pattern(50'000'000, 1);
  // One that announces itself, takes the connections, and then nothing.
  auto other_loop = make_loop();
  GpuNode stopped(*other_loop, 3, 0, between_hosts("c's"), h.chunks);
  h.a.node.exchange->peer_joined(stopped.node.info());
  stopped.node.exchange->peer_joined(h.a.node.info());
  REQUIRE(h.loop->run_until(
      [&] {
        other_loop->run_until([] { return false; }, kMillisecond);
        return stopped.node.exchange->ucx_counters().streams == 1;
      },
      kPatience));
  std::vector<End> never(20);
  for (std::size_t i = 0; i < never.size(); ++i)
    h.a.staging->transmit(stopped.node.id, i, out.data(), 50'000'000, into(never[i]));
  std::vector<std::byte> in(out.size());
  for (std::uint64_t i = 0; i < 3; ++i) {
    End sent, received;
    h.from_a_to_b(i, out, in, sent, received);
    h.until([&] { return sent.times > 0 && received.times > 0; });
    CHECK(received.code() == Errc::kOk);
    CHECK(in == out);
  }
  CHECK(!std::any_of(never.begin(), never.end(), [](const End& end) { return end.times > 0; }));
  h.a.node.exchange->peer_lost(stopped.node.id);
  h.until([&] { return over(never); });
  for (const End& end : never) CHECK(!end.status);
}

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
