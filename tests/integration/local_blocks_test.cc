// Arrays from pieces of several client processes, through real daemons; and their blocks, read where they lie.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fstream>
#include <set>
#include <thread>

#include "harness.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

constexpr int kProcesses = 3;

// Who is killed is given up at once.
Environment without_lease(const Cluster& cluster) {
  Environment environment = cluster.environment();
  environment["TILEWISE_LEASE"] = "0";
  return environment;
}

// `client.cc gather INDEX HOW`.
std::unique_ptr<Process> gatherer(int index, const Environment& environment,
                                  const std::string& how = "right") {
  return std::make_unique<Process>(
      "gather" + std::to_string(index),
      std::vector<std::string>{client_program(), "gather", std::to_string(index), how}, environment);
}

// The bytes are a mapping of somebody's memfd, and cannot be written.
bool in_memfd(std::span<const std::byte> bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%zx-%zx %4s", &begin, &end, rights) != 3) continue;
    if (begin <= address && address + bytes.size() <= end)
      return line.find("/memfd:") != std::string::npos && rights[1] == '-';
  }
  return false;
}

}  // namespace

TEST_CASE("processes with a piece each have one array, whatever becomes of the scheduler meanwhile") {
  Cluster cluster({.workers = 2, .devices = 1, .keep_state = true});
  INFO(cluster.words());
  std::vector<std::unique_ptr<Process>> clients;
  for (int i = 0; i < kProcesses; ++i) {
    clients.push_back(gatherer(i, cluster.environment()));
    if (i == 0) {  // it has announced: that is on record
      REQUIRE(eventually([&] { return clients[0]->output().find("announcing") != std::string::npos; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      cluster.scheduler().signal(SIGKILL);
      REQUIRE(cluster.scheduler().wait());
      cluster.restart_scheduler();
    }
  }
  for (auto& client : clients) {
    CHECK(client->wait() == 0);
    CHECK_MESSAGE(client->output().find("right\n") != std::string::npos, client->output(), client->errors());
  }
  CHECK(nothing_left(cluster));
}

TEST_CASE("all processes are told what one of them did wrong") {
  Cluster cluster({.workers = 1, .devices = 1});
  INFO(cluster.words());
  for (const auto& [how, text] : {std::pair("overlap", "already exists: 'rows': both client"),
                                  std::pair("gap", "not found: 'rows': nobody has"),
                                  std::pair("shape", "invalid argument: 'rows': client"),
                                  std::pair("bytes", "shape mismatch: 'rows': ")}) {
    CAPTURE(how);
    std::vector<std::unique_ptr<Process>> clients;
    for (int i = 0; i < kProcesses; ++i)
      clients.push_back(gatherer(i, cluster.environment(), i == 1 ? how : "right"));
    for (auto& client : clients) {
      CHECK(client->wait() == 1);
      CHECK_MESSAGE(client->output().find(text) != std::string::npos, client->output());
    }
  }
  CHECK(nothing_left(cluster));
}

TEST_CASE("a process that is killed, or never comes, is named to the others") {
  Cluster cluster({.workers = 1, .devices = 1});
  INFO(cluster.words());
  const Environment environment = without_lease(cluster);
  auto first = gatherer(0, environment), second = gatherer(1, environment);
  for (Process* p : {first.get(), second.get()})
    REQUIRE(eventually([&] { return p->output().find("announcing") != std::string::npos; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  first->signal(SIGKILL);
  CHECK(second->wait() == 1);
  CHECK_MESSAGE(second->output().find("worker lost: 'rows': client 'gather 0' has left") != std::string::npos,
                second->output());
  auto late = gatherer(2, environment, "hasty");
  CHECK(late->wait() == 1);
  CHECK_MESSAGE(late->output().find("timeout: 'rows': only 1 of 3") != std::string::npos, late->output());
}

TEST_CASE("a process that is killed before its bytes are taken over ends the array for all") {
  Cluster cluster({.workers = 1, .devices = 1});
  INFO(cluster.words());
  const int worker = working(cluster.worker(0).pid());
  REQUIRE(kill(worker, SIGSTOP) == 0);  // nothing is taken over yet
  std::vector<std::unique_ptr<Process>> clients;
  for (int i = 0; i < kProcesses; ++i) clients.push_back(gatherer(i, without_lease(cluster)));
  for (auto& client : clients)
    REQUIRE(eventually([&] { return client->output().find("announced") != std::string::npos; }));
  clients[0]->signal(SIGKILL);
  for (int i = 1; i < kProcesses; ++i) {
    CHECK(clients[static_cast<std::size_t>(i)]->wait() == 1);
    const std::string output = clients[static_cast<std::size_t>(i)]->output();
    CHECK_MESSAGE(output.find("worker lost: ") != std::string::npos, output);
    CHECK_MESSAGE(output.find("'gather 0'") != std::string::npos, output);
  }
  CHECK(kill(worker, SIGCONT) == 0);
  CHECK(nothing_left(cluster));
  CHECK(cluster.session().ones({10}).get<double>()[9] == 1.0);
}

TEST_CASE("what a process that is killed had on loan is free again") {
  Cluster cluster({.workers = 1, .devices = 1, .memory = "16MiB"});
  INFO(cluster.words());
  for (int i = 0; i < 3; ++i) {  // 8 MiB each: two do not fit beside what is made of the array
    Process client("borrow", {client_program(), "borrow"}, without_lease(cluster));
    const bool all =
        eventually([&] { return client.output().find("16 blocks on loan") != std::string::npos; });
    CHECK_MESSAGE(all, client.output(), client.errors());
    client.signal(SIGKILL);
    CHECK(client.wait() == 128 + SIGKILL);
  }
  CHECK(nothing_left(cluster));
}

TEST_CASE("blocks of workers on this host are read where they lie, and stay when their worker dies") {
  Cluster cluster({.workers = 2, .devices = 1});
  INFO(cluster.words());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  Array x = session.arange(0, 1 << 20, 1, {.block = {1 << 16}});
  x.persist().wait();
  AddressableBlocks blocks = session.addressable_blocks(x);
  CHECK(blocks.elsewhere() == 0);
  REQUIRE(blocks.size() == 16);
  const auto right = [&] {
    std::int64_t next = 0;
    for (const AddressableBlock& block : blocks) {
      CHECK(block.box.lo[0] == next);
      for (const std::int64_t value : block.values<std::int64_t>()) {
        if (value != next++) return false;
      }
    }
    return next == 1 << 20;
  };
  CHECK(right());
  std::set<DeviceId> devices;
  for (const AddressableBlock& block : blocks) devices.insert(block.device.id);
  CHECK(devices.size() == 2);
  for (const AddressableBlock& block : blocks) CHECK(in_memfd(block.bytes));  // the worker's own memory

  SUBCASE("after the array is gone, and its memory is wanted") {
    x = {};
    for (int i = 0; i < 4; ++i) session.full({1 << 20}, 7.0, {.block = {1 << 16}}).get<double>();
    CHECK(right());
    blocks = {};
    CHECK(nothing_left(cluster));
  }
  SUBCASE("after a worker has died") {
    cluster.worker(0).signal(SIGKILL);
    CHECK(eventually([&] { return session.devices().size() == 1; }));
    CHECK(right());
    CHECK(sum(x).item<std::int64_t>() == (std::int64_t{1} << 19) * ((1 << 20) - 1));  // made again elsewhere
    CHECK(right());
  }
  SUBCASE("in a child of this process") {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {  // reads, and ends without running what the session's threads would be needed for
      std::int64_t next = 0;
      for (const AddressableBlock& block : blocks) {
        for (const std::int64_t value : block.values<std::int64_t>()) {
          if (value != next++) _exit(1);
        }
      }
      _exit(next == 1 << 20 ? 0 : 2);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(right());
  }
  SUBCASE("a client that does not map has none") {
    const Session other = cluster.session("copies", false);
    const AddressableBlocks none = other.addressable_blocks(other.ones({1 << 20}, {.block = {1 << 16}}));
    CHECK(none.size() == 0);
    CHECK(none.elsewhere() == 16);
  }
}
