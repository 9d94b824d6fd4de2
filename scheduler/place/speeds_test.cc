#include <tilewise/place/speeds.h>

#include <doctest/doctest.h>

namespace tilewise::place {
namespace {

TEST_CASE(
    "links: by topology until enough has been measured, then throughput from large blocks, latency from "
    "small") {
  Speeds speeds;
  const Device a{.id = DeviceId{1}, .kind = kCudaKind, .host = 0, .worker = WorkerId{1}};
  const Device b{.id = DeviceId{2}, .kind = kCudaKind, .host = 1, .worker = WorkerId{2}};
  Device beside = a;  // of the same process
  beside.id = DeviceId{3};
  const LinkSpeed guess = link_between(a, b);
  CHECK(!speeds.link(a, b).measured);
  CHECK(speeds.link(a, b).bytes_per_s == guess.bytes_per_s);
  speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, 2, 1, 1 << 20, 1'000'000);  // too little
  CHECK(!speeds.link(a, b).measured);
  speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, 2, 100, 10'000'000'000, 1'000'000'000);
  CHECK(speeds.link(a, b).measured);
  CHECK(speeds.link(a, b).bytes_per_s == doctest::Approx(10e9));
  CHECK(speeds.link(a, b).latency_s == guess.latency_s);
  speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, 0, 1000, 8000, 5'000'000);
  CHECK(speeds.link(a, b).latency_s == doctest::Approx(5e-6));
  // The other way is another link; while nothing is known of it, it is as others between two hosts are.
  CHECK(!speeds.link(b, a).measured);
  CHECK(speeds.link(b, a).bytes_per_s == doctest::Approx(10e9));
  CHECK(speeds.link(b, a).latency_s == doctest::Approx(5e-6));
  const Device near{.id = DeviceId{4}, .kind = kCudaKind, .host = 0, .worker = WorkerId{3}};
  CHECK(speeds.link(a, near).bytes_per_s == link_between(a, near).bytes_per_s);
  speeds.learn_link(near.worker, a.worker, Speeds::Way::kSameHost, 2, 10, 2'000'000'000, 1'000'000'000);
  CHECK(speeds.link(a, near).bytes_per_s == doctest::Approx(2e9));
  CHECK(speeds.link(b, a).bytes_per_s == doctest::Approx(10e9));
  CHECK(speeds.link(a, beside).bytes_per_s == link_between(a, beside).bytes_per_s);
  speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, 2, 50, 1, 1);   // late
  speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, 7, 500, 1, 1);  // nonsense
  speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, 2, 500, -1, 1);
  CHECK(speeds.link(a, b).bytes_per_s == doctest::Approx(10e9));
  speeds.forget_links(b.worker);
  CHECK(!speeds.link(a, b).measured);
  CHECK(speeds.link(a, b).bytes_per_s == doctest::Approx(10e9));  // what it taught stays
}

TEST_CASE("links: a probe speaks for its class until blocks have moved, and for classes like it") {
  Speeds speeds;
  const auto device = [](std::uint32_t id, std::uint8_t kind, std::uint32_t host, std::uint32_t worker) {
    return Device{.id = DeviceId{id}, .kind = kind, .host = host, .worker = WorkerId{worker}};
  };
  const Device a = device(1, kCudaKind, 0, 1), b = device(2, kCudaKind, 1, 2),
               also_b = device(3, kCudaKind, 1, 3);
  const Device c = device(4, kCudaKind, 2, 4), cpu = device(5, kHostKind, 1, 2);
  speeds.learn_probe(class_of(a, b), {30'000, 500'000, false});
  for (const Device& to : {b, also_b}) {
    CHECK(speeds.link(a, to).measured);
    CHECK(speeds.link(a, to).latency_s == doctest::Approx(30e-6));
    CHECK(speeds.link(a, to).bytes_per_s == doctest::Approx(1048576 / 500e-6));
  }
  // Nobody has measured these: as the one that is alike in kinds and nearness, the others by topology.
  CHECK(!speeds.link(a, c).measured);
  CHECK(speeds.link(a, c).latency_s == doctest::Approx(30e-6));
  CHECK(!speeds.link(a, cpu).measured);
  CHECK(speeds.link(a, cpu).latency_s == link_between(a, cpu).latency_s);
  CHECK(speeds.link(b, also_b).latency_s == link_between(b, also_b).latency_s);
  speeds.learn_probe(class_of(a, c), {50'000, 0, false});  // too slow for more than one size
  CHECK(speeds.link(a, c).latency_s == doctest::Approx(50e-6));
  CHECK(speeds.link(a, c).bytes_per_s == doctest::Approx(1048576 / 500e-6));  // as others
  CHECK(speeds.link(c, b).latency_s == doctest::Approx(40e-6));               // on average
  speeds.learn_probe(class_of(a, c), {70'000, 0, false});                     // again
  CHECK(speeds.link(c, b).latency_s == doctest::Approx(50e-6));
  speeds.forget_probe(class_of(a, c));
  CHECK(speeds.link(c, b).latency_s == doctest::Approx(30e-6));
  for (const ProbedLink& nonsense :
       {ProbedLink{0, 1, false}, {-5, 1, false}, {1, -1, false}, {INT64_MAX, 1, false}})
    speeds.learn_probe(class_of(a, b), nonsense);
  CHECK(speeds.link(a, b).latency_s == doctest::Approx(30e-6));
  // Blocks that moved between two processes say more of these two.
  speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, 2, 100, 10'000'000'000, 1'000'000'000);
  CHECK(speeds.link(a, b).bytes_per_s == doctest::Approx(10e9));
  CHECK(speeds.link(a, b).latency_s == doctest::Approx(30e-6));
  CHECK(speeds.link(a, also_b).bytes_per_s == doctest::Approx(1048576 / 500e-6));
}

TEST_CASE(
    "links: what could be read in place is copied where a probe has seen so, and GPUs of a process are told "
    "apart") {
  Speeds speeds;
  const auto device = [](std::uint32_t id, std::uint8_t kind, std::uint32_t worker) {
    return Device{.id = DeviceId{id}, .kind = kind, .host = 0, .worker = WorkerId{worker}};
  };
  const Device a = device(1, kHostKind, 1), b = device(2, kHostKind, 2);
  CHECK(speeds.link(a, b).mapped);
  speeds.learn_probe(class_of(a, b), {90'000, 400'000, true});
  CHECK(speeds.link(a, b).mapped);
  CHECK(speeds.link(a, b).bytes_per_s == link_between(a, b).bytes_per_s);
  CHECK(speeds.copying(a, b).bytes_per_s == doctest::Approx(1048576 / 400e-6));
  speeds.learn_probe(class_of(a, b), {90'000, 400'000, false});
  CHECK(!speeds.link(a, b).mapped);
  CHECK(speeds.link(a, b).measured);
  CHECK(speeds.link(a, b).bytes_per_s == doctest::Approx(1048576 / 400e-6));
  const Device gpu = device(3, kCudaKind, 1), other_gpu = device(4, kCudaKind, 1);
  speeds.learn_probe(class_of(gpu, other_gpu), {5'000, 20'000, false});
  CHECK(speeds.link(gpu, other_gpu).bytes_per_s == doctest::Approx(1048576 / 20e-6));
  CHECK(speeds.link(gpu, a).bytes_per_s == link_between(gpu, a).bytes_per_s);
  CHECK(speeds.link(gpu, gpu).bytes_per_s == 0);
}

// Cumulative figures of a device that works at one speed, then at another.
struct Reports {
  Speeds& speeds;
  Device device;
  std::int64_t busy_ns = 0, model_ns = 0;
  void work(double seconds, double ratio, int reports) {
    for (int i = 0; i < reports; ++i) {
      busy_ns += static_cast<std::int64_t>(seconds * 1e9) / reports;
      model_ns += static_cast<std::int64_t>(seconds * 1e9 / ratio) / reports;
      speeds.learn(device, "map", busy_ns, model_ns);
    }
  }
};

TEST_CASE(
    "a device that has become slow is seen, however long it was fast, and so is one that is fast again") {
  for (const int reports : {1, 100, 10'000}) {
    CAPTURE(reports);
    Speeds speeds;
    Reports a{speeds, {.id = DeviceId{1}}}, b{speeds, {.id = DeviceId{2}}};
    a.work(100'000, 1, reports), b.work(100'000, 1, reports);
    CHECK(speeds.ratio(a.device, "map") == doctest::Approx(1));
    a.work(50, 5, reports);
    CHECK(speeds.ratio(a.device, "map") >= 4);
    CHECK(speeds.ratio(a.device, "map") <= 5);
    CHECK(speeds.ratio(b.device, "map") == doctest::Approx(1));
    const std::vector<Device> both{a.device, b.device};
    CHECK(speeds.coarse_ratios(both, "map")[0] > 3);
    a.work(50, 1, reports);
    CHECK(speeds.ratio(a.device, "map") <= 1.3);
    // Devices of which nothing is known are as its kind is now.
    for (int i = 0; i < 20; ++i) a.work(50, 5, reports), b.work(50, 5, reports);
    CHECK(speeds.ratio({.id = DeviceId{3}}, "map") >= 4.5);
  }
  Speeds speeds;  // a moment does not change much
  Reports a{speeds, {.id = DeviceId{1}}};
  a.work(1000, 1, 1000);
  a.work(0.2, 5, 4);
  CHECK(speeds.ratio(a.device, "map") <= 1.1);
}

TEST_CASE("a process that stood still for a moment is not a slow one, and one that is slow is seen") {
  Speeds speeds;
  Reports a{speeds, {.id = DeviceId{1}}}, b{speeds, {.id = DeviceId{2}}};
  a.work(0.001, 1, 1), b.work(0.001, 1, 1);
  for (int i = 0; i < 12;
       ++i) {  // in two of twelve reports it was stopped for 60 ms beside a millisecond of work
    a.work(0.001, 1, 1), b.work(0.001, 1, 1);
    if (i % 6 == 0) a.busy_ns += 60'000'000;
  }
  CHECK(speeds.ratio(a.device, "map") < 1.5);
  CHECK(speeds.ratio(b.device, "map") == doctest::Approx(1));
  for (int i = 0; i < 100; ++i) a.work(0.06, 60, 1);
  CHECK(speeds.ratio(a.device, "map") > 20);
  // A pause of many seconds says something of the process, in whichever report it is.
  Reports c{speeds, {.id = DeviceId{3}}};
  c.work(0.001, 1, 1);
  c.busy_ns += 10'000'000'000;
  c.work(0.001, 1, 1);
  CHECK(speeds.ratio(c.device, "map") > 100);
}

TEST_CASE("a process that stood still did so on all its streams") {
  for (const std::int32_t streams : {1, 16, 64}) {
    CAPTURE(streams);
    Speeds speeds;
    Reports a{speeds, {.id = DeviceId{1}, .streams = streams}};
    a.work(0.1, 1, 100);
    a.busy_ns += 60'000'000 * std::int64_t{streams};
    a.work(0.001, 1, 1);
    CHECK(speeds.ratio(a.device, "map") < 1.1);
  }
}

TEST_CASE("one that was fast for long and is many times as slow is seen, in reports of whatever size") {
  for (const double each : {0.001, 0.01, 1.0}) {
    CAPTURE(each);
    Speeds speeds;
    Reports a{speeds, {.id = DeviceId{1}}};
    a.work(1000, 1, 10'000);
    a.work(11, 60, static_cast<int>(11 / each));
    CHECK(speeds.ratio(a.device, "map") > 2);
    a.work(30, 60, static_cast<int>(30 / each));
    CHECK(speeds.ratio(a.device, "map") > 20);
  }
}

TEST_CASE("years of work, and nonsense, are reports like others") {
  Speeds speeds;
  Reports a{speeds, {.id = DeviceId{1}}}, b{speeds, {.id = DeviceId{2}}};
  for (int i = 0; i < 1500; ++i)
    a.work(5e6, 1, 1), b.work(5e6, 1, 1);  // 2.4e2 years each, 4.8e2 of their kind
  CHECK(speeds.ratio(a.device, "map") == doctest::Approx(1));
  a.work(20, 5, 100);
  CHECK(speeds.ratio(a.device, "map") > 3);
  const double before = speeds.ratio(b.device, "map");
  speeds.learn(b.device, "map", INT64_MAX, INT64_MAX);
  CHECK(speeds.ratio(b.device, "map") == before);
  CHECK(speeds.ratio({.id = DeviceId{3}}, "map") > 1);
}

TEST_CASE("a link that has become slow is seen, and what is known of it is not lost where it is slow") {
  Speeds speeds;
  const Device a{.id = DeviceId{1}, .host = 0, .worker = WorkerId{1}};
  const Device b{.id = DeviceId{2}, .host = 1, .worker = WorkerId{2}};
  std::int64_t transfers = 0, bytes = 0, busy_ns = 0;
  const auto move = [&](std::uint8_t size, int blocks, std::int64_t each, std::int64_t each_ns) {
    for (int i = 0; i < blocks; ++i)
      speeds.learn_link(a.worker, b.worker, Speeds::Way::kOtherHost, size, ++transfers, bytes += each,
                        busy_ns += each_ns);
  };
  move(2, 10'000, 1 << 20, 100'000);
  CHECK(speeds.link(a, b).bytes_per_s == doctest::Approx((1 << 20) * 1e4));
  move(2, 1000, 1 << 20, 10'000'000);  // a hundredth of that
  CHECK(speeds.link(a, b).bytes_per_s <= (1 << 20) * 150.0);
  CHECK(speeds.link(a, b).measured);
  transfers = bytes = busy_ns = 0;
  move(0, 100'000, 8, 5'000);
  CHECK(speeds.link(a, b).latency_s == doctest::Approx(5e-6).epsilon(0.01));
  move(0, 4, 8, 1'000'000'000);  // four that took a second
  CHECK(speeds.link(a, b).latency_s >= 1e-3);
  move(0, 20'000, 8, 50'000);
  CHECK(speeds.link(a, b).latency_s == doctest::Approx(50e-6).epsilon(0.05));
}

}  // namespace
}  // namespace tilewise::place
