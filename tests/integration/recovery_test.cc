// Workers killed with -9 at bad moments: graphs end with the same bits as undisturbed ones.
#include <doctest/doctest.h>
#include <cmath>
#include <csignal>
#include <functional>
#include <regex>
#include <string>
#include <thread>

#include "slow_rows.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

using Program = std::function<Array(const Session&)>;

// For what is about the time after a loss: it is known when this returns. (Requests need not wait for that.) The kernel closes the
// dead one's sockets, so nobody has to wait for as long as for one that says nothing.
void kill_and_wait(Cluster& cluster, const Session& session, int worker) {
  const std::size_t before = session.devices().size();
  const auto begin = Clock::now();
  cluster.worker(worker).signal(SIGKILL);
  REQUIRE(eventually([&] { return session.devices().size() < before; }));
  CHECK(Clock::now() - begin < seconds(3));  // some milliseconds where the machine is not busy
}

}  // namespace

TEST_CASE("a worker killed in the middle: the graph goes on and ends with the same bits") {
  struct Case {
    const char* name;
    Program program;
    std::vector<std::string> worker_args;
    double at;  // how far it is when the worker dies
  };
  const Program power = [](const Session& session) { return products(session); };
  const Program steps = [](const Session& session) { return regression(session); };
  const Program sums = [](const Session& session) { return reductions(session); };
  const Case cases[] = {{"products", power, {}, 0.4},
                        {"products, copied", power, {"--no-map"}, 0.7},
                        {"regression", steps, {}, 0.5},
                        {"reductions", sums, {"--no-map"}, 0.3}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Cluster cluster({.workers = 3, .devices = 1, .worker_args = c.worker_args});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(3, kPatience));
    const std::vector<double> expected = values(session.compute({c.program(session)}));
    const Future future = session.compute({c.program(session)});
    REQUIRE(eventually([&] {
      const auto progress = future.progress();
      return progress.total > 0 &&
             static_cast<double>(progress.done) >= c.at * static_cast<double>(progress.total);
    }));
    cluster.worker(1).signal(SIGKILL);
    CHECK(same_bits(values(future), expected));
    CHECK(nothing_left(cluster));
  }
}

TEST_CASE("what a client has got of a fetch is not made again for it") {
  Counted w({"--no-rebalance"});
  w.add(5), w.add(1);
  INFO(w.cluster.words());
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const Values want = expected(session, 1);
  const Future future = session.compute({slow_rows(session, 1).rows});
  REQUIRE(
      eventually([&] { return w.points(1) == kBlocks / 2; }));  // long before the other one has made its half
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for the last of them to come
  w.cluster.worker(1).signal(SIGKILL);
  future.wait({.timeout = kPatience});
  CHECK(same_bits(future.get<double>(), want.rows));
  CHECK(nothing_left(w.cluster));
  CHECK(w.all_points() < kBlocks + 8);  // by now all has been made that was to be
}

TEST_CASE("steps of a loop whose constants change are made again each with its own") {
  constexpr int kSteps = 60;
  std::vector<std::vector<double>> expected;
  for (const bool loses : {false, true}) {
    Cluster cluster({.workers = 3, .devices = 1});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(3, kPatience));
    const std::vector<Array> made = decay(session, kSteps, [&](int step) {
      if (loses && step % 20 == 0 && step < kSteps) cluster.worker(step / 20).signal(SIGKILL);
    });
    for (std::size_t i = 0; i < made.size(); ++i) {
      const std::vector<double> got = made[i].get<double>({.timeout = kPatience});
      if (!loses) expected.push_back(got);
      CHECK(same_bits(got, expected[i]));
    }
  }
}

// Nobody knows of the loss yet: what is asked for is promised by the dead one, too, before and after its death.
TEST_CASE("held arrays are whole again after a loss, and another after that, for whoever asks at once") {
  for (const std::vector<std::string>& args : {std::vector<std::string>{}, {"--no-map"}}) {
    CAPTURE(args.size());  // copied from there, or read in place
    Cluster cluster({.workers = 3, .devices = 2, .worker_args = args});
    INFO(cluster.words());
    const Session session = cluster.session("test", args.empty());
    REQUIRE(session.wait_for_devices(6, kPatience));
    Array x = session.random.normal({500, 400}, {.seed = 5, .block = {60, 70}});
    Array y = matmul(x, x.T());
    session.persist({x, y}).wait({.timeout = kPatience});
    const auto whole_x = x.get<double>(), whole_y = y.get<double>();
    for (const int dies : {0, 2}) {
      const Future before = session.compute({y, x}), computed_before = session.compute({matmul(x, x.T())});
      cluster.worker(dies).signal(SIGKILL);
      const Future after = session.compute({y, x});
      CHECK(same_bits(matmul(x, x.T()).get<double>({.timeout = kPatience}), whole_y));
      for (const Future* fetched : {&before, &after}) {
        REQUIRE(fetched->wait_for(kPatience));
        CHECK(same_bits(fetched->get<double>(0), whole_y));
        CHECK(same_bits(fetched->get<double>(1), whole_x));
      }
      CHECK(same_bits(values(computed_before), whole_y));
      CHECK(same_bits(y.get<double>({.timeout = kPatience}), whole_y));
    }
  }
}

TEST_CASE("the last worker dies, another one comes: lost blocks are made by it") {
  Cluster cluster({.workers = 1, .devices = 1});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  const std::vector<double> expected = values(session.compute({products(session)}));
  const Future future = session.compute({products(session)});
  REQUIRE(eventually([&] { return future.progress().done > 0; }));
  cluster.worker(0).signal(SIGKILL);
  cluster.add_worker({});
  CHECK(same_bits(values(future), expected));
}

TEST_CASE("what is asked for while the only worker is being started again waits for it") {
  Cluster cluster({.workers = 1, .devices = 1, .worker_args = {"--respawn"}, .keep_state = true});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  Array x = session.random.normal({200, 30}, {.seed = 2, .block = {40, 30}});
  x.persist().wait({.timeout = kPatience});
  const auto whole = x.get<double>(), twice = (x * 2.0).get<double>();
  for (const bool scheduler_too : {false, true}) {
    CAPTURE(scheduler_too);
    const int worker = child_of(cluster.worker(0).pid());
    REQUIRE(worker > 0);
    // Stopped, so that the next one comes only when all that follows has been asked for.
    cluster.worker(0).signal(SIGSTOP);
    ::kill(worker, SIGKILL);
    REQUIRE(eventually([&] { return session.devices().empty(); }));
    const Array y = x * 2.0;
    const Future first = session.compute({y}), second = session.compute({y + 1.0, x});
    Future unwanted = session.compute({y + 2.0});
    unwanted.cancel();
    CHECK(!first.ready());
    if (scheduler_too) {
      cluster.scheduler().signal(SIGKILL);
      cluster.scheduler().wait();
      cluster.restart_scheduler();
    }
    cluster.worker(0).signal(SIGCONT);
    CHECK(same_bits(values(first), twice));
    CHECK(second.get<double>(1) == whole);
    CHECK_THROWS_AS(unwanted.wait({.timeout = kPatience}), ArrayError);
  }
}

TEST_CASE("files are read again; uploads that are gone are a typed error that names them") {
  Cluster cluster({.workers = 2, .devices = 1});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  TempFolder folder;
  const std::string path = folder / "x.npy";
  session.random.normal({400, 30}, {.seed = 2, .block = {40, 30}})
      .save_npy(path)
      .wait({.timeout = kPatience});
  Array file = session.load_npy(path, {.block = {50, 30}});
  const std::vector<double> numbers(64 * 64, 1.5);
  Array upload = session.from_memory(numbers, {64, 64}, {.block = {8, 64}});
  session.persist({file, upload}).wait({.timeout = kPatience});
  const auto whole = file.get<double>();
  cluster.worker(0).signal(SIGKILL);
  REQUIRE(
      eventually([&] { return session.devices().size() == 1; }));  // else what it has may still be fetched
  CHECK(same_bits(file.get<double>({.timeout = kPatience}), whole));
  // By the session's number of it, the same whoever reads it, and by its shape and blocks: the file's are others.
  std::vector<std::string> names;
  for (const Array& read : {upload, upload + 1.0}) {
    std::string text;
    try {
      (void)read.get<double>({.timeout = kPatience});
    } catch (const ArrayError& e) {
      CHECK(e.code() == Errc::kWorkerLost);
      text = e.what();
    }
    CAPTURE(text);
    std::smatch name;
    REQUIRE(std::regex_search(text, name, std::regex(R"(array (\d+) \(64, 64\) in blocks of \(8, 64\))")));
    names.push_back(name[1]);
    CHECK(names.back() != "0");
    CHECK(text.find("uploaded by the client") != std::string::npos);
  }
  CHECK(names[0] == names[1]);
}

TEST_CASE("a file that has been written over is not read for what was lost of the one before") {
  Cluster cluster({.workers = 2, .devices = 1});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  TempFolder folder;
  const std::string path = folder / "x.npy";
  session.ones({400, 30}, {.block = {40, 30}}).save_npy(path).wait({.timeout = kPatience});
  Array x = session.load_npy(path, {.block = {40, 30}});
  x.persist().wait({.timeout = kPatience});
  (x + 1.0).save_npy(path).wait({.timeout = kPatience});  // a checkpoint where the last one was
  kill_and_wait(cluster, session, 0);
  std::string text;
  try {
    (void)x.get<double>({.timeout = kPatience});
  } catch (const ArrayError& e) {
    text = e.what();
  }
  CHECK_MESSAGE(text.find(path + ": has been changed since") != std::string::npos, text);
  CHECK(session.load_npy(path).get<double>({.timeout = kPatience}) == std::vector<double>(12'000, 2.0));
}

TEST_CASE("an upload on two workers outlives each of them in turn, copied or mapped") {
  for (const std::vector<std::string>& args : {std::vector<std::string>{}, {"--no-map"}}) {
    Cluster cluster({.workers = 4, .devices = 1, .worker_args = args});
    INFO(cluster.words());
    const Session session = cluster.session();
    REQUIRE(session.wait_for_devices(4, kPatience));
    std::vector<double> numbers(96 * 64);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i * i % 977);
    Array upload = session.from_memory(numbers, {96, 64}, {.block = {8, 64}});
    upload.persist({.copies = 2}).wait({.timeout = kPatience});
    for (const int dies : {0, 1, 2}) {
      CAPTURE(dies);
      kill_and_wait(cluster, session, dies);
      CHECK(same_bits(upload.get<double>({.timeout = kPatience}), numbers));
      // What was lost is copied again before the next one dies; asking for what is there waits for that.
      if (dies < 2) upload.persist({.copies = 2}).wait({.timeout = kPatience});
    }
    CHECK((upload * 2.0).get<double>({.timeout = kPatience})[65] == numbers[65] * 2.0);
  }
}

TEST_CASE("data larger than all memory, on disk, and made again when a worker dies with its disk") {
  const TempFolder folder;
  Cluster cluster({.workers = 3,
                   .devices = 1,
                   .memory = "4MiB",
                   .worker_args = {"--spill-dir", folder / "", "--spill-limit", "1GiB"}});
  INFO(cluster.words());
  const Session session = cluster.session();
  Array x = session.random.uniform({3072, 1024}, {.seed = 5, .block = {32, 1024}});  // 24 MiB over 12
  x.persist().wait({.timeout = kPatience});
  const std::vector<double> values = x.get<double>(), means = mean(x, 0).get<double>();
  const std::vector<double> turned = sum(x.T() * 2.0, 1).get<double>();
  cluster.worker(0).signal(SIGKILL);
  CHECK(x.get<double>() == values);
  CHECK(mean(x, 0).get<double>() == means);
  CHECK(sum(x.T() * 2.0, 1).get<double>() == turned);
  CHECK(folder.files() == 0);  // the files have no names: nothing is left by who was killed
}

TEST_CASE(
    "a scheduler that keeps no lineage: what dies with a worker is an error that says so, all else goes on") {
  Cluster cluster({.workers = 2, .devices = 1, .scheduler_args = {"--max-lineage", "0"}});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const auto made = [&] { return session.random.normal({300, 300}, {.seed = 3, .block = {50, 60}}); };
  Array x = matmul(made(), made());  // what it was made from is held by nobody
  x.persist().wait({.timeout = kPatience});
  cluster.worker(0).signal(SIGKILL);
  REQUIRE(eventually([&] { return session.devices().size() == 1; }));
  try {
    (void)x.get<double>();
    FAIL("it was made again");
  } catch (const ArrayError& e) {
    CHECK(e.code() == Errc::kWorkerLost);
  }
  CHECK(std::isfinite(sum(matmul(made(), made())).item<double>()));
}

TEST_CASE(
    "without any worker what was lost waits as long as it is told to: for one that comes, or to say so") {
  bool comes = false;
  SUBCASE("a worker comes in time") { comes = true; }
  SUBCASE("nobody comes") {}
  Cluster cluster({.workers = 1, .devices = 1, .scheduler_args = {"--worker-wait", comes ? "600" : "1.5"}});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  Array x = session.random.normal({300, 300}, {.seed = 3, .block = {50, 60}});
  x.persist().wait({.timeout = kPatience});
  const std::vector<double> whole = x.get<double>();
  kill_and_wait(cluster, session, 0);
  const auto began = Clock::now();
  const Future again = session.compute({x + 0.0});
  const auto code_of = [](const std::function<void()>& ask) {
    try {
      ask();
    } catch (const ArrayError& e) {
      return e.code();
    }
    return Errc::kOk;
  };
  if (comes) {
    cluster.add_worker({});
    CHECK(same_bits(again.get<double>(0, {.timeout = kPatience}), whole));
    return;
  }
  CHECK(code_of([&] { again.wait({.timeout = kPatience}); }) == Errc::kUnavailable);
  const auto took = Clock::now() - began;
  CHECK(took > seconds(1));
  CHECK(took < seconds(15 * kTimesSlower));
  cluster.add_worker({});
  REQUIRE(session.wait_for_devices(1, kPatience));
  CHECK(code_of([&] { (void)x.get<double>({.timeout = kPatience}); }) == Errc::kWorkerLost);
  CHECK(session.ones({8}).get<double>({.timeout = kPatience}) == std::vector<double>(8, 1));
}

TEST_CASE("a task that takes its workers down fails after the third, with its story; all else goes on") {
  ClusterOptions options{.workers = 4, .devices = 1, .worker_args = {"--plugin", TILEWISE_CRASH_PLUGIN}};
  std::size_t left = 1;
  SUBCASE("workers that are not started again: the fourth goes on") {}
  SUBCASE("workers that are started again") {
    left = 2;
    options.workers = 2;
    options.worker_args.emplace_back("--respawn");
  }
  Cluster cluster(options);
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(static_cast<std::size_t>(options.workers), kPatience));
  const auto unlucky = [&](double first) {
    const Array x = session.arange(first, first + 64, 1, {.block = {8}}).astype(DType::kFloat64);
    return map_blocks({.name = "crash.unlucky"}, std::vector{x}, {}, {{DType::kFloat64, x.grid()}})[0];
  };
  const Array bystander = session.random.normal({300, 300}, {.seed = 3, .block = {50, 60}});
  const std::vector<double> expected = values(session.compute({matmul(bystander, bystander)}));

  const Future other = session.compute({matmul(bystander, bystander)});
  const Future doomed = session.compute({sum(unlucky(13) * 2.0)});
  std::string text;
  try {
    (void)values(doomed);
  } catch (const ArrayError& e) {
    CHECK(e.code() == Errc::kTaskFailed);
    text = e.what();
  }
  MESSAGE(text);
  for (const char* part : {"kernel 'crash.unlucky', for array ", ", point 0 is not run again",
                           "3 workers died while they were executing it", "killed by signal 6"})
    CHECK(text.find(part) != std::string::npos);
  CHECK(same_bits(values(other), expected));
  const std::string said = cluster.scheduler().errors();
  for (const char* part : {"worker ended", "killed by signal 6", " point 0"})
    CHECK(said.find(part) != std::string::npos);
  // The same kernel on other data, and the cluster is whole.
  REQUIRE(session.wait_for_devices(left, kPatience));
  CHECK(session.devices().size() == left);
  double want = 0;
  for (int i = 0; i < 64; ++i) want += 2.0 * (14 + i + 1);
  CHECK(sum(unlucky(14) * 2.0).item<double>() == want);
  CHECK(nothing_left(cluster));
}
