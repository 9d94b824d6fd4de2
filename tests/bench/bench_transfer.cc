#include "bench_transfer.h"
#include "report.h"

#include <tilewise/net/endpoint.h>
#include <tilewise/transfer/ucx_engine.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "../integration/harness.h"

namespace tilewise::bench {
namespace {

constexpr int kWindow = 32;                // granted at once, as ucx_perftest has that many on their way
constexpr std::int64_t kPool = 256 << 20;  // memory that blocks come from and go to
constexpr transfer::Cookie kCookie = {std::byte{0x42}};

std::byte* pool() {  // as the engine's arenas: a memfd's pages, touched
  const int fd = memfd_create("bench", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kPool) != 0) throw std::runtime_error("no memory for blocks");
  void* at = mmap(nullptr, kPool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) throw std::runtime_error("no memory for blocks");
  std::memset(at, 1, kPool);
  return static_cast<std::byte*>(at);
}

// What the two processes say to each other: grants stand for the control link's, in batches as there.
struct Word {
  enum What : std::int32_t { kHello, kRun, kGrant, kDone } what = kHello;
  std::int32_t failed = 0;
  std::int64_t bytes = 0, count = 0, granted = 0;
  std::int32_t address_bytes = 0;
  char address[2048] = {};
};

void say(int socket, const Word& word) {
  if (send(socket, &word, sizeof word, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof word))
    throw std::runtime_error("the other process went away");
}
bool hear(int socket, Word& word, bool wait) {
  const ssize_t n = recv(socket, &word, sizeof word, wait ? 0 : MSG_DONTWAIT);
  if (n == 0) throw std::runtime_error("the other process went away");
  return n == static_cast<ssize_t>(sizeof word);
}

Word hello_of(const transfer::UcxEngine& engine) {
  Word hello;
  if (engine.address().size() > sizeof hello.address) throw std::runtime_error("a long UCX address");
  hello.address_bytes = static_cast<std::int32_t>(engine.address().size());
  std::memcpy(hello.address, engine.address().data(), engine.address().size());
  return hello;
}

void add_peer(transfer::UcxEngine& engine, const Word& hello) {
  if (Status ok = engine.add_peer(kCookie, {hello.address, static_cast<std::size_t>(hello.address_bytes)});
      !ok)
    throw std::runtime_error(ok.error().message);
}

// Host memory over a data connection, as workers and clients have it between hosts and inside one. What the exchange proves beyond the
// token, before this, is left out.
constexpr const char *kBetweenHosts = "data connection, tcp", *kInHost = "data connection, shared memory",
                     *kCopied = "data connection, shared memory, copied";
bool streams(const std::string& how) { return how.starts_with("data connection"); }

net::HandshakeOptions handshake() {
  const std::string token(64, '7');
  return {.token = net::Token::from_hex(token).value(), .ring_bytes = net::kUsualRingBytes};
}

std::unique_ptr<transfer::UcxEngine> engine_of(const std::string& how) {
  transfer::UcxEngine::prepare_process();
  auto engine = transfer::UcxEngine::create(
      {.transports = streams(how) ? "tcp" : how, .net_devices = "lo", .in_place = how != kCopied});
  if (!engine) throw std::runtime_error(engine.error().message);
  return std::move(*engine);
}

// An engine and, for streams, the loop that drives it.
struct Side {
  std::unique_ptr<net::EventLoop> loop;
  std::unique_ptr<transfer::UcxEngine> engine;

  explicit Side(const std::string& how) : engine(engine_of(how)) {
    if (streams(how)) loop = net::EventLoop::create().value();
  }
  void listen(const std::string& how, const std::function<void(const std::string&)>& at) {
    const std::string address = how == kBetweenHosts
                                    ? "tcp://127.0.0.1:0"
                                    : "unix-abstract:tilewise-bench-" + std::to_string(getpid());
    std::unique_ptr<net::Link> link;
    auto listener = net::Listener::open(
        *loop, net::Address::parse(address).value(), {.handshake = handshake()},
        [&](std::unique_ptr<net::Link> made) { link = std::move(made); },
        [](const Error& why, const std::string&) { throw std::runtime_error(why.message); });
    if (!listener) throw std::runtime_error(listener.error().message);
    at((*listener)->address().to_string());
    loop->run_until([&] { return link != nullptr; }, 10 * kSecond);
    attach(std::move(link), false);
  }
  void dial(const std::string& address) {
    std::unique_ptr<net::Link> link;
    const auto attempt = net::connect(*loop, net::Address::parse(address).value(), handshake(),
                                      [&](Result<std::unique_ptr<net::Link>> made) {
                                        if (made) link = std::move(*made);
                                      });
    loop->run_until([&] { return link != nullptr; }, 10 * kSecond);
    attach(std::move(link), true);
  }
  void attach(std::unique_ptr<net::Link> link, bool dialled) {
    if (!link) throw std::runtime_error("no connection");
    engine->use_stream(kCookie);
    auto stream = net::Link::into_stream(std::move(link));
    if (!stream || !engine->attach_stream(kCookie, std::move(*stream), dialled))
      throw std::runtime_error("no stream");
  }
  bool progress() {
    const bool moved = loop && loop->poll();
    return engine->progress() || moved;
  }
};

class Receiver {  // the other process
 public:
  explicit Receiver(const std::string& how) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
      throw std::runtime_error("no socket");
    const std::string number = std::to_string(pair[1]);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      fcntl(pair[1], F_SETFD, 0);  // it shall have it
      execl("/proc/self/exe", "bench_store", kReceiverFlag, number.c_str(), how.c_str(), nullptr);
      _exit(127);
    }
    close(pair[1]);
    socket_ = pair[0];
    side_.emplace(how);
    engine_ = side_->engine.get();
    say(socket_, hello_of(*engine_));
    Word hello;
    hear(socket_, hello, true);
    add_peer(*engine_, hello);
    if (streams(how)) {
      side_->listen(how, [this](const std::string& at) {
        Word word;
        at.copy(word.address, sizeof word.address - 1);
        say(socket_, word);
      });
    }
    memory_ = pool();
  }
  ~Receiver() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(socket_);
    munmap(memory_, kPool);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Bytes a second of `count` blocks, one after the other as they are granted.
  double rate(std::int64_t bytes, std::int64_t count) {
    const std::int64_t places = kPool / bytes;
    std::int64_t sent = 0, left = 0, granted = 0;
    const double start = now();
    say(socket_, {.what = Word::kRun, .bytes = bytes, .count = count});
    for (Word word;;) {
      if (hear(socket_, word, false)) {
        if (word.what == Word::kDone) {
          if (word.failed != 0) throw std::runtime_error("transfers failed at the receiver");
          break;
        }
        granted = word.granted;
      }
      for (; sent < granted; ++sent) {
        const Status ok = engine_->transmit(kCookie, number_ + static_cast<std::uint64_t>(sent),
                                            memory_ + sent % places * bytes, bytes, device::Kind::kHost,
                                            [&](Status status, transfer::Via via) {
                                              failed_ |= !status.has_value();
                                              via_ = via;
                                              --left;
                                            });
        if (!ok) throw std::runtime_error(ok.error().message);
        ++left;
      }
      side_->progress();
    }
    const double took = now() - start;
    while (left > 0) side_->progress();
    if (failed_) throw std::runtime_error("transfers failed at the sender");
    number_ += static_cast<std::uint64_t>(count);
    return static_cast<double>(bytes) * static_cast<double>(count) / took;
  }
  transfer::Via via() const { return via_; }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::optional<Side> side_;
  transfer::UcxEngine* engine_ = nullptr;  // of side_
  std::byte* memory_ = nullptr;
  std::uint64_t number_ = 0;
  bool failed_ = false;
  transfer::Via via_ = transfer::Via::kNone;
};

int count_of(std::int64_t bytes, bool quick) {
  const std::int64_t volume = std::int64_t{quick ? 1 : 4} << 30;
  return static_cast<int>(std::clamp<std::int64_t>(volume / bytes, 8, 20'000));
}

}  // namespace

int receive_blocks(int argc, char** argv) {
  if (argc != 4) return 2;
  pin(1);
  const int socket = std::atoi(argv[2]);
  Side side(argv[3]);
  transfer::UcxEngine* const engine = side.engine.get();
  std::byte* memory = pool();
  Word word;
  hear(socket, word, true);
  add_peer(*engine, word);
  say(socket, hello_of(*engine));
  if (streams(argv[3])) {
    hear(socket, word, true);
    side.dial(word.address);
  }
  std::uint64_t number = 0;
  for (;;) {
    hear(socket, word, true);
    const std::int64_t bytes = word.bytes, count = word.count, places = kPool / bytes;
    const std::int64_t window = std::min<std::int64_t>({kWindow, places, count});
    std::int64_t granted = 0, done = 0, told = 0, failed = 0;
    while (done < count) {
      for (; granted < count && granted - done < window; ++granted) {
        const Status ok = engine->expect(kCookie, number + static_cast<std::uint64_t>(granted),
                                         memory + granted % places * bytes, bytes, device::Kind::kHost,
                                         [&](Status status, transfer::Via) {
                                           failed += !status.has_value();
                                           ++done;
                                         });
        if (!ok) return 1;
      }
      if (granted - told >= std::max<std::int64_t>(1, window / 4) || (granted == count && told < granted)) {
        say(socket, {.what = Word::kGrant, .granted = granted});
        told = granted;
      }
      side.progress();
    }
    number += static_cast<std::uint64_t>(count);
    say(socket, {.what = Word::kDone, .failed = failed > 0});
    while (side.progress()) {
    }
    // The sender's last completions may still need us.
    for (pollfd fd{socket, POLLIN, 0}; ::poll(&fd, 1, 0) == 0;) side.progress();
  }
}

std::optional<Perftest> ucx_perftest(const std::string& test, const std::string& tls, std::int64_t bytes,
                                     int count) {
  const std::string program = "/usr/bin/ucx_perftest";
  if (access(program.c_str(), X_OK) != 0) return {};
  static int port = 20'000 + static_cast<int>(getpid() % 10'000);
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string at = std::to_string(++port);
    const testing::Environment environment = {{"UCX_TLS", tls},
                                              {"UCX_NET_DEVICES", "lo"},
                                              {"UCX_CMA_MEMORY_INVALIDATE", "y"},
                                              {"UCX_POSIX_ERROR_HANDLING", "y"},
                                              {"UCX_LOG_LEVEL", "error"}};
    testing::Process server("perftest", {"/usr/bin/taskset", "-c", "1", program, "-p", at, "-e"},
                            environment);
    usleep(300'000);
    const testing::Ran ran = testing::run({"/usr/bin/taskset",
                                           "-c",
                                           "0",
                                           program,
                                           "127.0.0.1",
                                           "-p",
                                           at,
                                           "-t",
                                           test,
                                           "-s",
                                           std::to_string(bytes),
                                           "-n",
                                           std::to_string(count),
                                           "-w",
                                           std::to_string(std::min(count / 4 + 1, 1000)),
                                           "-O",
                                           std::to_string(kWindow),
                                           "-e",
                                           "-f",
                                           "-v"},
                                          environment, std::chrono::seconds(60));
    // One line of names, one of values; rates in 2^20 bytes.
    const std::size_t line = ran.output.rfind('\n', ran.output.size() - 2);
    Perftest out;
    double median_us = 0, average_us = 0, overall_us = 0, average_bw = 0, overall_bw = 0;
    if (ran.code == 0 && line != std::string::npos &&
        std::sscanf(ran.output.c_str() + line + 1, "%*d,%lf,%lf,%lf,%lf,%lf", &median_us, &average_us,
                    &overall_us, &average_bw, &overall_bw) == 5) {
      out.latency_us = median_us;
      out.bytes_per_second = overall_bw * (1 << 20);
      return out;
    }
  }
  return {};
}

void bench_copy(const Settings& settings, Report& report) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  struct Way {
    const char *name, *how, *tls;
  };
  // What Tilewise uses inside a host and between hosts, beside the same of UCX; what it uses inside one where a process may not read
  // another's memory; and for comparison what it would have of UCX.
  for (const Way& way :
       {Way{"shared memory", kInHost, "sm,tcp"}, Way{"shared memory, copied", kCopied, "sm,tcp"},
        Way{"UCX over shared memory", "sm,tcp", "sm,tcp"}, Way{"UCX over tcp", "tcp", "tcp"},
        Way{"tcp", kBetweenHosts, "tcp"}}) {
    Receiver receiver(way.how);
    struct Size {
      const char* name;
      std::int64_t bytes;
      double bound;
    };
    for (const Size& size :
         {Size{"64 KiB", 64 << 10, 0.8}, Size{"8 MiB", 8 << 20, 0.95}, Size{"128 MiB", 128 << 20, 0.95}}) {
      const int count = count_of(size.bytes, settings.quick);
      std::vector<double> ours, theirs;
      for (int i = -1; i < settings.repeats; ++i) {
        pin(0);
        const double one = receiver.rate(size.bytes, count);
        sched_setaffinity(0, sizeof all, &all);
        const auto two = ucx_perftest("ucp_am_bw", way.tls, size.bytes, count);
        if (i < 0) continue;
        ours.push_back(one * 1e-9);
        if (two) theirs.push_back(two->bytes_per_second * 1e-9);
      }
      if (theirs.empty() || !streams(way.how)) {
        report.note(std::string("copying ") + size.name + ", " + way.name + ": " +
                    std::to_string(median(ours)) + " GB/s; ucx_perftest " +
                    (theirs.empty() ? "is not here" : std::to_string(median(theirs))));
        continue;
      }
      report.at_least({.metric = std::string("copying transfer, ") + size.name + ", " + way.name,
                       .value = median(ours),
                       .unit = "GB/s",
                       .reference = std::string("ucx_perftest ucp_am_bw -e, UCX_TLS=") + way.tls,
                       .reference_value = median(theirs)},
                      size.bound);
    }
    report.note(std::string("asked for ") + way.how + "; went over " + std::string(name_of(receiver.via())));
  }
}

}  // namespace tilewise::bench
