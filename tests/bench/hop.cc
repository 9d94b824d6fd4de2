#include "hop.h"

#include <tilewise/net/link.h>

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace tilewise::bench {
namespace {

constexpr std::size_t kFrameBytes = 200;  // a batch with an offer and a done

void bind_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  (void)pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);  // where there is one core: no matter
}

struct Player {
  std::unique_ptr<net::EventLoop> loop;
  std::unique_ptr<net::Link> link;
  int received = 0;

  explicit Player(TimeNs spin) : loop(net::EventLoop::create({.spin_ns = spin}).value()) {}
  void start(std::unique_ptr<net::ByteStream> stream, int rounds) {
    link = net::Link::adopt(*loop, std::move(stream), {});
    link->start({.on_frame =
                     [this, rounds](net::Frame& frame) {
                       if (++received <= rounds) (void)!link->send(1, frame.payload);
                     },
                 .on_close = [this](const Error&) { loop->stop(); }});
  }
};

double one_way_us(bool ring, TimeNs spin) {
  const int rounds = spin > 0 ? 20'000 : 3'000;
  Player here(spin), there(spin);
  auto streams =
      ring ? net::make_ring_pair(*here.loop, *there.loop) : net::make_socket_pair(*here.loop, *there.loop);
  if (!streams) throw std::runtime_error(streams.error().message);
  here.start(std::move(streams->first), rounds);
  there.start(std::move(streams->second), rounds);
  std::atomic<bool> over = false;
  std::thread other([&] {
    bind_to(1);
    there.loop->run_until([&] { return over.load(); }, 20 * kSecond);
  });
  const double took = seconds_of([&] {
    std::thread([&] {
      bind_to(0);
      (void)!here.link->send(1, std::vector<std::byte>(kFrameBytes));
      here.loop->run_until([&] { return here.received >= rounds; }, 20 * kSecond);
    }).join();
  });
  over = true;
  there.loop->wake();
  other.join();
  if (here.received < rounds) throw std::runtime_error("a frame did not come back in time");
  return took / rounds / 2 * 1e6;
}

}  // namespace

void bench_hop(Report& report) {
  for (const TimeNs spin : {kMillisecond, TimeNs{0}}) {
    std::vector<double> sockets, rings;
    for (int i = 0; i < 5; ++i) {
      sockets.push_back(one_way_us(false, spin));
      rings.push_back(one_way_us(true, spin));
    }
    const std::string how = spin > 0 ? "polled" : "parked";
    report.note("a frame of 200 bytes one way, " + how + ": " + std::to_string(median(sockets)) +
                " us over a Unix socket, " + std::to_string(median(rings)) + " us through shared memory");
  }
}

}  // namespace tilewise::bench
