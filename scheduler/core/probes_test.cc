// Which links are measured, when, and what comes of it.
#include "core_world.h"

#include <set>
#include <tuple>

namespace tilewise::scheduler::test {
namespace {

struct Probing : World {
  explicit Probing(bool on = true) : World(options(on)) {}
  static Options options(bool on) {
    Options o;
    o.link_probes = on;
    return o;
  }
  msg::Welcome add(std::uint32_t conn, std::string host, int devices = 1, int kind = 0) {
    msg::Join message = worker(devices, "w" + std::to_string(conn), std::int64_t{1} << 30, kind);
    message.host_id = std::move(host);
    message.lease_ns = lease_ns;
    const msg::Welcome welcome = join(conn, message);
    workers.emplace_back(conn, welcome);
    return welcome;
  }
  TimeNs lease_ns = 0;  // of those that join
  struct Asked {
    std::uint32_t conn;
    msg::LinkProbe probe;
    friend bool operator==(const Asked& a, const Asked& b) { return a.conn == b.conn && a.probe == b.probe; }
  };
  std::vector<Asked> asked() const {  // of anybody, ever
    std::vector<Asked> out;
    for (const Send& sent : inbox) {
      if (const auto* probe = std::get_if<msg::LinkProbe>(&sent.message))
        out.push_back({sent.to.value, *probe});
    }
    return out;
  }
  static msg::LinkProbed answer(std::uint64_t nonce, double bytes_per_s = 1e9, TimeNs latency = 20'000) {
    msg::LinkProbed told{nonce, msg::ProbeEnd::kMeasured, false, {}, {}};
    for (const std::int64_t bytes : {4 << 10, 1 << 20, 8 << 20})
      told.sizes.push_back({bytes, 2,
                            latency + static_cast<TimeNs>(1e9 * static_cast<double>(bytes) / bytes_per_s),
                            msg::Lane::kTcp});
    return told;
  }
  LinkList links() const { return std::get<LinkList>(core.view(LinksRequest{}, now)); }
  std::size_t in_state(std::string_view state) const {
    const auto all = links().classes;
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [&](const LinkClassView& c) { return c.state == state; }));
  }
  void pass(TimeNs ns) {  // and everybody is heard
    wait(ns);
    for (const auto& [conn, welcome] : workers) receive(conn, msg::Pong{});
  }
  // Everybody answers all that it is asked, until nobody is asked any more. Questions.
  std::size_t answer_all() {
    std::size_t answered = 0;
    for (std::vector<Asked> all = asked(); answered < all.size(); all = asked()) {
      const Asked next = all[answered++];
      receive(next.conn, answer(next.probe.nonce));
    }
    return answered;
  }
};

TEST_CASE("a link is measured at join, in both directions, one at a time for each host") {
  Probing w;
  const auto a = w.add(1, "here");
  CHECK(w.asked().empty());
  const auto b = w.add(2, "there");
  REQUIRE(w.asked().size() == 1);  // the other direction has the same two hosts
  CHECK(w.asked()[0].probe.from != w.asked()[0].probe.to);
  w.receive(w.asked()[0].conn, Probing::answer(w.asked()[0].probe.nonce));
  REQUIRE(w.asked().size() == 2);
  CHECK(w.asked()[1].conn != w.asked()[0].conn);
  CHECK(w.asked()[1].probe.from == w.asked()[0].probe.to);
  CHECK(w.in_state("under way") == 1);
  w.receive(w.asked()[1].conn, Probing::answer(w.asked()[1].probe.nonce));
  CHECK(w.in_state("measured") == 2);
  w.wait(100 * kSecond);
  CHECK(w.asked().size() == 2);
  CHECK(!Probing(false).links().count);
}

TEST_CASE("off unless the shell says that workers answer") {
  Probing w(false);
  w.add(1, "here"), w.add(2, "there");
  w.wait(kSecond);
  CHECK(w.asked().empty());
  CHECK(w.links().classes.empty());
}

TEST_CASE("of links that are alike one is measured: questions follow hosts, not pairs of devices") {
  Probing w;
  for (std::uint32_t i = 0; i < 40; ++i) w.add(i + 1, "host-" + std::to_string(i % 4), 8);
  const std::size_t asked = w.answer_all();
  CHECK(asked == 4 * 3 + 4);  // between hosts, and inside each
  CHECK(w.in_state("measured") == asked);
  for (const auto& [conn, probe] : w.asked()) CHECK(conn <= 8);
  for (std::uint32_t i = 40; i < 44; ++i) w.add(i + 1, "host-" + std::to_string(i % 4), 8);
  CHECK(w.asked().size() == asked);  // nothing new
}

TEST_CASE("a host has so many neighbours at most") {
  Probing w;
  for (std::uint32_t i = 0; i < 60; ++i) w.add(i + 1, "host-" + std::to_string(i));
  CHECK(w.answer_all() <= 16 * 60);
  CHECK(w.answer_all() >= 14 * 60);
}

TEST_CASE(
    "GPUs: of one process among each other and with its host, and beside other processes' host devices") {
  Probing w;
  msg::Join mixed = w.worker(2, "w1", std::int64_t{1} << 30, 1);
  mixed.host_id = "here";
  mixed.devices.push_back({"host:0", 0, "cpu", "x", 1 << 30, 1});
  w.join(1, mixed);
  std::size_t inside = 0;
  w.answer_all();
  for (const LinkClassView& c : w.links().classes) inside += c.inside;
  CHECK(inside == 3);  // GPU to GPU, GPU to host, host to GPU; not what is read in place
  CHECK(w.links().classes.size() == 3);
  w.add(2, "there");
  w.answer_all();
  CHECK(w.in_state("measured") == 3 + 4);
}

TEST_CASE("both ways between a GPU and another process's host device, whoever joined first") {
  Probing w;
  const auto mixed = [&](std::uint32_t conn, bool gpu) {
    msg::Join message = w.worker(1, "w" + std::to_string(conn), std::int64_t{1} << 30, gpu ? 1 : 0);
    if (gpu) message.devices.push_back({"host:0", 0, "cpu", "x", 1 << 30, 1});
    message.host_id = "here";
    w.workers.emplace_back(conn, w.join(conn, message));
  };
  bool gpu_first = false;
  SUBCASE("the GPU") { gpu_first = true; }
  SUBCASE("the other") {}
  mixed(1, gpu_first), mixed(2, !gpu_first);
  for (int i = 0; i < 10; ++i) w.answer_all(), w.pass(kSecond);
  std::set<std::tuple<int, int, bool>> measured;
  for (const LinkClassView& c : w.links().classes)
    if (c.state == "measured") measured.emplace(c.from_kind, c.to_kind, c.inside);
  CHECK(measured == std::set<std::tuple<int, int, bool>>{
                        {0, 0, false}, {0, 1, false}, {1, 0, false}, {0, 1, true}, {1, 0, true}});
}

TEST_CASE("what nobody can measure now is wanted until somebody can") {
  Probing w;
  w.lease_ns = 60 * kSecond;
  w.add(1, "here");
  w.add(2, "there");
  REQUIRE(w.asked().size() == 1);
  w.step({Broken{Conn{2}}});
  for (int i = 0; i < 5; ++i) w.wait(2 * kSecond), w.receive(1, msg::Pong{});
  CHECK(w.asked().size() == 1);  // the only one of its host is away
  CHECK(w.links().classes.size() == 2);
  CHECK(w.in_state("due") == 2);
  w.step({Returned{Conn{2}}});
  for (int i = 0; i < 10; ++i) w.pass(8 * kSecond), w.answer_all();
  CHECK(w.in_state("measured") == 2);
}

TEST_CASE("after a try that failed others of the class are asked") {
  Probing w;
  for (std::uint32_t i = 0; i < 3; ++i) w.add(i + 1, "here");
  REQUIRE(w.asked().size() == 1);
  const auto first = w.asked()[0];
  w.receive(first.conn, msg::LinkProbed{first.probe.nonce, msg::ProbeEnd::kFailed, false, {}, "broken"});
  w.pass(2 * kSecond);
  REQUIRE(w.asked().size() == 2);
  CHECK(std::pair(w.asked()[1].probe.from, w.asked()[1].probe.to) !=
        std::pair(first.probe.from, first.probe.to));
}

TEST_CASE("nothing is measured while a graph runs, nor right after") {
  Probing w;
  w.add(1, "here");
  w.join(10, w.client());
  w.submit(10, 1, {random(1, kEightBlocks)}, {1});
  w.add(2, "there");
  w.wait(kSecond);
  CHECK(w.asked().empty());
  w.complete(w.log<msg::Plan>(1).back());
  CHECK(w.asked().empty());
  w.step({});
  CHECK(w.asked().empty());
  CHECK(w.core.next_deadline() <= w.now + 250 * kMillisecond);
  w.wait(250 * kMillisecond);
  CHECK(w.asked().size() == 1);
}

TEST_CASE("what is given up for work is measured later, what fails is tried a few times") {
  Probing w;
  w.add(1, "here");
  w.add(2, "there");
  for (int i = 0; i < 3; ++i) {
    const auto [conn, probe] = w.asked().back();
    msg::LinkProbed told{probe.nonce, msg::ProbeEnd::kGivenUp, false, {}, "work came"};
    w.receive(conn, told);
    w.pass(100 * kSecond);
  }
  CHECK(w.in_state("given up") == 0);
  const std::size_t before = w.asked().size();
  for (int i = 0; i < 50; ++i) w.pass(100 * kSecond);  // nobody answers any more
  CHECK(w.in_state("given up") == 2);
  CHECK(w.asked().size() - before <= 8);
}

TEST_CASE("answers twice, late, from others, and nonsense") {
  Probing w;
  w.add(1, "here");
  w.add(2, "there");
  const auto [conn, probe] = w.asked()[0];
  const std::uint64_t before = w.core.digest();
  w.receive(3 - conn, Probing::answer(probe.nonce));  // not of whom it was asked
  w.receive(conn, Probing::answer(probe.nonce + 100));
  CHECK(w.core.digest() == before);
  msg::LinkProbed strange = Probing::answer(probe.nonce);
  SUBCASE("a negative time") { strange.sizes[0].took_ns = -1; }
  SUBCASE("sizes that fall") { strange.sizes[1].bytes = 1; }
  SUBCASE("a size that may not be") { strange.sizes.back().bytes = msg::kMaxProbeBytes + 1; }
  SUBCASE("years") { strange.sizes.back().took_ns = INT64_MAX; }
  SUBCASE("nothing that counts") { strange.sizes[0].transfers = 0; }
  SUBCASE("nothing at all") { strange.sizes.clear(); }
  w.receive(conn, strange);
  CHECK(w.in_state("measured") == 0);
  const std::uint64_t after = w.core.digest();
  w.receive(conn, Probing::answer(probe.nonce));  // a second one
  CHECK(w.core.digest() == after);
}

TEST_CASE("who dies or leaves is not waited for, and the link is measured with another") {
  Probing w;
  w.add(1, "here");
  w.add(2, "here");
  w.answer_all();
  w.add(3, "there");
  const auto [conn, probe] = w.asked().back();
  const bool with_first = probe.from == DeviceId{1} || probe.to == DeviceId{1};
  REQUIRE(with_first);
  CHECK(w.in_state("under way") == 1);
  w.workers.erase(w.workers.begin());
  w.drop(1);  // the first of its host stood for all
  w.receive(3, Probing::answer(probe.nonce));
  w.receive(conn, Probing::answer(probe.nonce));  // nobody waits for it
  CHECK(w.in_state("measured") == 1);
  // Its blocks are nobody's; the loss is answered.
  for (const std::uint32_t other : {2u, 3u}) {
    msg::Held held;
    held.version = w.log<msg::PeerLost>(other).back().version;
    w.receive(other, held);
  }
  for (int i = 0; i < 4; ++i) w.pass(2 * kSecond), w.answer_all();
  CHECK(w.in_state("measured") == 3);
  for (const LinkClassView& c : w.links().classes) {
    if (c.from != c.to) CHECK(c.from_device.value + c.to_device.value == 2 + 3);
  }
  w.drop(3);  // the last of its host: nothing is known of it any more
  CHECK(w.links().classes.size() == 1);
}

TEST_CASE("a figure has its time, sizes and lanes, is reckoned with, and gives way to what blocks show") {
  Probing w;
  const auto a = w.add(1, "here");
  const auto b = w.add(2, "there");
  w.now += 3 * kSecond;
  w.answer_all();
  const LinkList seen = w.links();
  REQUIRE(seen.classes.size() == 2);
  CHECK(seen.class_count == 2);
  for (const LinkClassView& c : seen.classes) {
    CHECK(c.state == "measured");
    CHECK(c.from != c.to);
    CHECK(c.from_device != c.to_device);
    CHECK(c.at == 3 * kSecond);
    REQUIRE(c.last.sizes.size() == 3);
    CHECK(c.last.sizes[0].lane == msg::Lane::kTcp);
    CHECK(c.bytes_per_s == doctest::Approx(1e9).epsilon(0.01));
    CHECK(c.latency_s == doctest::Approx(24e-6).epsilon(0.01));
  }
  w.join(10, w.client());
  msg::Explain explain;
  ir::Op here = random(1, kEightBlocks), there = map(2, kEightBlocks, {1});
  here.hint.devices = {a.devices[0]};
  there.hint.devices = {b.devices[0]};
  explain.submit = {1, 0, {here, there}, {2}};
  const auto link = [&] {
    w.receive(10, explain);
    const msg::Explanation* told = w.last<msg::Explanation>(10);
    REQUIRE_MESSAGE(told->outcome.ok(), told->outcome.message);
    REQUIRE(told->links.size() == 1);
    return told->links[0];
  };
  CHECK(link().measured);
  CHECK(link().bytes_per_s == doctest::Approx(1e9).epsilon(0.01));
  msg::Progress progress;
  progress.links.push_back({a.you, 2, 100, 1'000'000'000, 10'000'000'000});
  w.receive(2, progress);
  CHECK(link().bytes_per_s == doctest::Approx(1e8));
}

TEST_CASE("a restarted scheduler knows what was measured, and asks again what was not answered") {
  const SnapshotCodec codec{
      [](const msg::Message&) -> Result<std::string> { return error(Errc::kInternal, "no ops"); },
      [](std::string_view) -> Result<msg::Message> { return error(Errc::kInternal, "no ops"); }};
  Probing w;
  w.add(1, "here");
  w.add(2, "there");
  w.receive(w.asked()[0].conn, Probing::answer(w.asked()[0].probe.nonce));
  REQUIRE(w.in_state("under way") == 1);
  std::vector<Action> actions;
  w.core.settle(w.now, actions);
  const std::string bytes = *w.core.snapshot(codec);
  Core next(Probing::options(true));
  REQUIRE(next.restore(bytes, codec).has_value());
  next.check_invariants();
  CHECK(next.digest() == w.core.digest());
  Options life = Probing::options(true);
  life.term = 2;
  next.begin_life(life, w.now, actions);
  next.check_invariants();
  const auto count = [&](std::string_view state) {
    const auto all = std::get<LinkList>(next.view(LinksRequest{}, w.now)).classes;
    return std::count_if(all.begin(), all.end(), [&](const LinkClassView& c) { return c.state == state; });
  };
  CHECK(count("measured") == 1);
  CHECK(count("under way") == 0);
  std::vector<Event> late{Received{Conn{w.asked()[1].conn}, Probing::answer(w.asked()[1].probe.nonce)}};
  next.step(late, w.now, actions);
  CHECK(count("measured") == 1);  // nobody waits for it
  actions.clear();
  std::vector<Event> none;
  next.step(none, w.now + 3 * kSecond, actions);
  CHECK(count("under way") == 1);
}

}  // namespace
}  // namespace tilewise::scheduler::test
