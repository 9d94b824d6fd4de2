// Memory that workers' processes are refused: while copies are kept, while others leave, while what was lost is made again, and on
// GPUs. Each refusal is a typed error or waited out; what is held stays, and the process goes on.
#include "../conformance/refusals.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <functional>
#include <new>
#include <set>

#include "harness.h"
#include "programs.h"
#ifdef TILEWISE_EMULATED_LIBRARIES
#include "emulated_gpus.h"
#endif

using namespace tilewise;
using namespace tilewise::testing;

namespace {

// The allocators of a worker that is started with `environment`.
class Refusing {
 public:
  Refusing() {
    const int file = open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
    REQUIRE(ftruncate(file, sizeof(Refusals)) == 0);
    void* at = mmap(nullptr, sizeof(Refusals), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    REQUIRE(at != MAP_FAILED);
    shared_ = new (at) Refusals();
  }
  ~Refusing() { munmap(shared_, sizeof(Refusals)); }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;
  Refusals* operator->() { return shared_; }
  Environment environment() const { return {{"LD_PRELOAD", TILEWISE_REFUSING}, {"REFUSALS", path()}}; }

 private:
  std::string path() const { return folder_ / "refusals"; }
  TempFolder folder_;
  Refusals* shared_;
};

int times(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct Counted {
  int refused = 0, errors = 0;
};

// The k-th request fails while `attempt` runs, for every k up to some twenty, then further and further apart, until there are no more
// requests. Afterwards, with nothing refused any more, `whole` must go well.
Counted refuse_in_turn(Refusing& worker, Allocator which, std::int64_t most,
                       const std::function<void(std::int64_t k)>& attempt,
                       const std::function<void()>& whole) {
  Counted counted;
  std::int64_t requests = 0, k = 1, step = 1;
  do {
    CAPTURE(k);
    worker->refuse(which, k);
    try {
      attempt(k);
      requests = worker->allow();
    } catch (const ArrayError& e) {
      requests = worker->allow();
      ++counted.errors;
      INFO(std::string(e.what()));
      CHECK(e.code() == Errc::kOutOfMemory);
    }
    counted.refused += requests >= k;
    whole();
    step = 1 + k / 20;
    k += step;
  } while (requests >= k - step && k <= most);
  CHECK(counted.refused > 0);
  MESSAGE(counted.refused << " requests refused in turn, " << counted.errors << " errors");
  return counted;
}

// Of workers with two devices: steps run on threads of their own, where requests are counted.
struct Refused {
  Refusing refusing;
  Cluster cluster;
  Session session;
  int workers = 2;  // started so far
  int process;      // of the second worker, whose requests fail

  explicit Refused(const std::vector<std::string>& args = {})
      : cluster({.workers = 1, .devices = 2, .worker_args = args}), session(cluster.session()) {
    cluster.add_worker(args, {}, refusing.environment());
    REQUIRE(session.wait_for_devices(4, kPatience));
    process = working(cluster.worker(1).pid());
  }
  int add_worker(const std::vector<std::string>& args = {}) {
    const std::size_t devices = session.devices().size();
    cluster.add_worker(args);
    REQUIRE(session.wait_for_devices(devices + 2, kPatience));
    return workers++;
  }
  Array numbers(std::uint64_t seed) const {
    return session.random.normal({512, 128}, {.seed = seed, .block = {32, 128}});
  }
  // The same process, which nobody had to start again.
  void check_alive() { CHECK(working(cluster.worker(1).pid()) == process); }
};

std::vector<double> counting(std::size_t n) {
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i % 977);
  return x;
}

}  // namespace

TEST_CASE(
    "copies that are kept: what one worker is refused loses nothing, and the copies are there in the end") {
  Refused w({"--no-map"});
  INFO(w.cluster.words());
  const std::vector<double> uploaded = counting(256 * 64);
  std::vector<double> expected;
  {
    Array x = w.numbers(3) * 2.0;
    expected = x.get<double>();
  }
  const auto keep = [&] {
    Array x = w.numbers(3) * 2.0, u = w.session.from_memory(uploaded, {256, 64}, {.block = {16, 64}});
    x.persist({.copies = 2}).wait({.timeout = kPatience});
    u.persist({.copies = 2}).wait({.timeout = kPatience});
    CHECK(same_bits(x.get<double>({.timeout = kPatience}), expected));
    CHECK(u.get<double>({.timeout = kPatience}) == uploaded);
  };
  refuse_in_turn(
      w.refusing, Allocator::kHost, 150, [&](std::int64_t) { keep(); }, [&] { keep(); });
  CHECK(nothing_left(w.cluster));
  w.check_alive();
  // They are really two: whoever had the others dies.
  Array u = w.session.from_memory(uploaded, {256, 64}, {.block = {16, 64}});
  u.persist({.copies = 2}).wait({.timeout = kPatience});
  w.cluster.worker(0).signal(SIGKILL);
  CHECK(u.get<double>({.timeout = kPatience}) == uploaded);
}

TEST_CASE("memory for the second copies cannot be had on the only worker that could keep them") {
  for (const std::int64_t k : {1, 2}) {
    CAPTURE(k);
    Refused w({"--no-map"});
    INFO(w.cluster.words());
    const std::vector<double> uploaded = counting(256 * 64);
    w.refusing->refuse(Allocator::kDevice, k);
    Array u = w.session.from_memory(uploaded, {256, 64}, {.block = {16, 64}});
    const Future kept = u.persist({.copies = 2});
    try {
      kept.wait({.timeout = kPatience});
    } catch (const ArrayError& e) {
      CHECK_MESSAGE(e.code() == Errc::kOutOfMemory, e.what());
    }
    CHECK(w.refusing->allow() >= k);
    Array again = w.session.from_memory(uploaded, {256, 64}, {.block = {16, 64}});
    again.persist({.copies = 2}).wait({.timeout = kPatience});
    w.check_alive();
    w.cluster.worker(0).signal(SIGKILL);
    CHECK(again.get<double>({.timeout = kPatience}) == uploaded);
  }
}

TEST_CASE(
    "a worker leaves while the only one that could take over is refused memory for a moment: it goes when "
    "that is "
    "over, without a loss") {
  for (const std::int64_t k : {1, 2}) {  // one for each device
    CAPTURE(k);
    Refusing refusing;
    Cluster cluster({.workers = 1, .devices = 2, .worker_args = {"--no-map"}});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(2, kPatience));
    const std::vector<double> uploaded = counting(256 * 64);
    Array x = session.random.normal({512, 128}, {.seed = 3, .block = {32, 128}}) * 2.0;
    Array u = session.from_memory(uploaded, {256, 64}, {.block = {16, 64}});
    session.persist({x, u}).wait({.timeout = kPatience});
    const std::vector<double> expected = x.get<double>();
    cluster.add_worker({"--no-map"}, {}, refusing.environment());
    REQUIRE(session.wait_for_devices(4, kPatience));
    const int process = working(cluster.worker(1).pid());
    refusing->refuse(Allocator::kDevice, k);
    // It is asked for again by and by, so this one goes in the end, with nobody's help.
    const Ran ran = cluster.tool({"drain", "worker-0", "--wait", "30"});
    CHECK(refusing->allow() > k);
    CHECK_MESSAGE(ran.code == 0, ran.errors);
    CHECK(cluster.worker(0).wait() == 0);
    CHECK(same_bits(x.get<double>({.timeout = kPatience}), expected));
    CHECK(u.get<double>({.timeout = kPatience}) == uploaded);
    CHECK(working(cluster.worker(1).pid()) == process);
  }
}

TEST_CASE(
    "checkpoints: room on the disk, reads and memory are refused in turn: nothing is lost, and the next is "
    "whole") {
  struct Kind {
    Allocator which;
    std::int64_t gap;   // the next request to be refused is one and a `gap`-th further
    const char* words;  // of a checkpoint's task
  };
  for (const Kind& kind : {Kind{Allocator::kDisk, 50, "No space left on device"},
                           Kind{Allocator::kRead, 50, "Input/output error"},
                           Kind{Allocator::kHost, 1, "the process has no memory"}}) {
    CAPTURE(kind.words);
    Refusing refusing;
    const TempFolder folder;
    Cluster cluster({.workers = 0,
                     .devices = 1,
                     .scheduler_args = {"--checkpoint-dir", folder / ""},
                     .keep_state = true});
    INFO(cluster.words());
    cluster.add_worker({"--respawn"}, {}, refusing.environment());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(1, kPatience));
    Loop loop(session);
    const auto of_checkpoints = [&] {
      const std::string log = cluster.scheduler().errors();
      return log.substr(std::min(log.size(), log.find("checkpoint, block")));
    };
    std::int64_t requests = 0, refused = 0;
    // Where the gaps are wide all of them may be somebody else's: then others are refused.
    for (std::int64_t first = 1; first <= 8 && of_checkpoints().empty(); ++first) {
      for (std::int64_t k = first;; k += 1 + k / kind.gap, ++refused) {
        CAPTURE(k);
        REQUIRE(refused < first * 50);
        refusing->refuse(kind.which, k);
        loop.run(4'500);
        CHECK(loop.right());
        requests = refusing->allow();
        if (requests < k) break;
      }
    }
    CHECK(refused > 4);  // each block, and what is said of them
    const std::string told = of_checkpoints();
    CHECK_MESSAGE(told.find(kind.words) != std::string::npos, cluster.scheduler().errors());
    kill(working(cluster.worker(0).pid()), SIGKILL);
    CHECK(loop.right());
  }
}

TEST_CASE(
    "what was lost is made again by a worker that is refused memory: nothing that is held is lost for that") {
  Refused w;
  INFO(w.cluster.words());
  std::vector<double> expected;
  {
    Array x = matmul(w.numbers(3), w.numbers(4).T());
    expected = x.get<double>();
  }
  for (const std::int64_t k : {1, 2, 3, 5, 8, 13, 21, 34}) {
    CAPTURE(k);
    const int victim = w.add_worker();
    Array x = matmul(w.numbers(3), w.numbers(4).T());
    x.persist().wait({.timeout = kPatience});
    w.refusing->refuse(Allocator::kHost, k);
    const std::size_t before = w.session.devices().size();
    kill(working(w.cluster.worker(victim).pid()), SIGKILL);
    REQUIRE(eventually([&] { return w.session.devices().size() < before; }));
    try {
      CHECK(same_bits(x.get<double>({.timeout = kPatience}), expected));
    } catch (const ArrayError& e) {
      MESSAGE(e.what());
      CHECK(e.code() == Errc::kOutOfMemory);
    }
    const std::int64_t requests = w.refusing->allow();
    MESSAGE(requests << " requests");
    CHECK(same_bits(x.get<double>({.timeout = kPatience}), expected));
    w.check_alive();
  }
  CHECK(nothing_left(w.cluster));
}

TEST_CASE(
    "a worker's loop that is refused memory, wherever, ends its process in so many words, and nothing is "
    "wrong") {
  Cluster cluster({.workers = 1, .devices = 2});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const auto work = [&] { return values(session.compute({products(session, 256, 64, 6)})); };
  const std::vector<double> expected = work();
  int next = 1, ended = 0;
  // Each number is some half more than the last: from what comes at once to where there are no more requests.
  for (std::int64_t k = 1;; k += 1 + k / 2) {
    CAPTURE(k);
    REQUIRE(k < 1'000'000);
    Refusing refusing;
    cluster.add_worker({}, {}, refusing.environment());
    Process& parent = cluster.worker(next++);
    REQUIRE(session.wait_for_devices(4, kPatience));
    REQUIRE(eventually([&] { return parent.errors().find("ready address=") != std::string::npos; }));
    refusing->thread = working(parent.pid());
    refusing->refuse(Allocator::kThread, k);
    CHECK(same_bits(work(), expected));
    const std::int64_t requests = refusing->allow();
    if (requests < k) parent.signal(SIGTERM);
    const int code = parent.wait().value_or(-99);
    REQUIRE(eventually([&] { return session.devices().size() == 2; }));
    if (requests < k) break;
    ++ended;
    CHECK(code == 3);
    CHECK_MESSAGE(
        parent.errors().find("tilewise-worker: out of memory: the system refused") != std::string::npos,
        parent.errors());
    CHECK_MESSAGE(eventually([&] {
                    return times(cluster.scheduler().errors(),
                                 "why=\"it was refused host memory or a thread\"") == ended;
                  }),
                  cluster.scheduler().errors());
  }
  MESSAGE(ended << " ended");
  CHECK(ended > 5);
  CHECK(nothing_left(cluster));
}

TEST_CASE("a worker whose loop was refused memory is started again, and a graph goes on") {
  Refusing refusing;
  Cluster cluster({.workers = 0, .devices = 2});
  INFO(cluster.words());
  cluster.add_worker({"--respawn"}, {}, refusing.environment());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));
  Process& parent = cluster.worker(0);
  const int worker = working(parent.pid());
  refusing->thread = worker;
  const Future request = session.compute({products(session)});
  refusing->refuse(Allocator::kThread, 100);
  CHECK(same_bits(values(request), expected));
  CHECK(refusing->allow() >= 100);
  CHECK(working(parent.pid()) != worker);
  CHECK(parent.running());
  CHECK_MESSAGE(parent.errors().find("starting it again") != std::string::npos, parent.errors());
  CHECK_MESSAGE(parent.errors().find("why=\"it was refused host memory or a thread\"") != std::string::npos,
                parent.errors());
  CHECK(nothing_left(cluster));
}

#ifdef TILEWISE_EMULATED_LIBRARIES
TEST_CASE("GPUs: pinned memory is refused at the start, memory of the device while steps run") {
  const TempFolder folder;
  Cluster cluster({.workers = 0, .memory = "64MiB"});
  INFO(cluster.words());
  const std::vector<std::string> below{"--spill-dir", folder / "",      "--spill-limit",
                                       "256MiB",      "--pinned-limit", "16MiB"};
  int next = 0;
  const auto start = [&](Refusing& refusing) -> Process& {
    add_gpu_worker(cluster, "cuda:0", below, refusing.environment());
    return cluster.worker(next++);
  };
  const Session session = cluster.session();
  // A worker that cannot have the pinned memory that it was to have says so, and does not start.
  int not_started = 0;
  for (std::int64_t k = 1;; ++k) {
    CAPTURE(k);
    REQUIRE(k < 20);
    Refusing refusing;
    refusing->refuse(Allocator::kPinned, k);
    Process& worker = start(refusing);
    REQUIRE(eventually([&] { return !worker.running() || session.devices().size() == 1; }));
    if (refusing->allow() < k) break;
    if (worker.running()) continue;  // it went without
    ++not_started;
    CHECK(worker.wait() == 1);
    CHECK_MESSAGE(worker.errors().find("out of memory") != std::string::npos, worker.errors());
  }
  CHECK(not_started > 0);
  cluster.worker(next - 1).signal(SIGTERM);
  CHECK(cluster.worker(next - 1).wait() == 0);

  const auto work = [&] {
    Array x = session.random.uniform({256, 128}, {.seed = 3, .block = {64, 128}});
    x.persist().wait({.timeout = kPatience});
    return (x * 2.0 + x).get<double>({.timeout = kPatience});
  };
  std::vector<double> expected;
  int refused = 0;
  for (std::int64_t k = 1;; ++k) {
    CAPTURE(k);
    REQUIRE(k < 20);
    REQUIRE(eventually([&] { return session.devices().empty(); }));
    Refusing refusing;
    Process& worker = start(refusing);
    REQUIRE(session.wait_for_devices(1, kPatience));
    const int process = working(worker.pid());
    refusing->refuse(Allocator::kGpu, k);
    try {
      const std::vector<double> had = work();
      if (!expected.empty()) CHECK(same_bits(had, expected));
    } catch (const ArrayError& e) {
      INFO(std::string(e.what()));
      CHECK(e.code() == Errc::kOutOfMemory);
    }
    const std::int64_t requests = refusing->allow();
    const std::vector<double> whole = work();
    if (expected.empty()) expected = whole;
    CHECK(same_bits(whole, expected));
    CHECK(nothing_left(cluster));
    CHECK(working(worker.pid()) == process);
    worker.signal(SIGTERM);
    CHECK(worker.wait() == 0);
    if (requests < k) break;
    ++refused;
  }
  CHECK(refused > 0);
}
#endif
