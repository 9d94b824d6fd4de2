// Saves that are disturbed: workers that are killed or stopped at any moment of one, clients that die or change their minds. A whole file
// is there, or none, and nothing else is left in the folder.
#include <doctest/doctest.h>
#include <csignal>
#include <numeric>
#include <thread>

#include "harness.h"
#include "programs.h"

using namespace tilewise;
using namespace tilewise::testing;
using std::chrono::milliseconds;

namespace {

// Everything in the folder, hidden files included, but `path`.
std::vector<std::string> others_in(const TempFolder& folder, const std::string& path = {}) {
  std::vector<std::string> out;
  for (const std::string& name : folder.names()) {
    if (folder / name != path) out.push_back(name);
  }
  return out;
}

bool stays_empty(const TempFolder& folder, const std::string& path = {}) {
  if (!eventually([&] { return others_in(folder, path).empty(); })) return false;
  std::this_thread::sleep_for(milliseconds(500));
  return others_in(folder, path).empty();
}

// Thousands of small blocks: something to be in the middle of.
Array many_blocks(const Session& session) {
  return session.random.uniform({2000, 500}, {.seed = 3, .block = {20, 25}});
}

}  // namespace

TEST_CASE("a worker that is stopped while a save is given up makes nothing anew when it goes on") {
  Cluster cluster;
  INFO(cluster.words());
  const Session session = cluster.session();
  const TempFolder folder;
  Array x = many_blocks(session);
  x.persist().wait({.timeout = kPatience});
  for (const bool zarr : {false, true}) {
    CAPTURE(zarr);
    Future save = zarr ? x.write_zarr(folder / "x") : x.save_npy(folder / "x");
    REQUIRE(eventually([&] { return !others_in(folder).empty(); }));
    cluster.worker(1).signal(SIGSTOP);
    save.cancel();
    std::this_thread::sleep_for(milliseconds(1200));
    cluster.worker(1).signal(SIGCONT);
    const bool whole = std::filesystem::exists(folder / "x");  // it was over before
    if (whole) std::filesystem::remove_all(folder / "x");
    CHECK(stays_empty(folder));
    CHECK(sum(x).item<double>() > 0);
  }
}

TEST_CASE("the client of a save is killed in the middle: what it began is removed") {
  Cluster cluster;
  INFO(cluster.words());
  const TempFolder folder;
  Environment environment = cluster.environment();
  environment["TILEWISE_LEASE"] = "1";
  const std::string path = folder / "x.npy";
  for (int round = 0; round < 3; ++round) {
    Process client("client", {client_program(), "save", path}, environment);
    REQUIRE(eventually([&] { return !others_in(folder, path).empty(); }));
    client.signal(SIGKILL);
    (void)client.wait();
    CHECK(stays_empty(folder, path));
  }
  CHECK(eventually([&] { return nothing_left(cluster); }));
}

TEST_CASE(
    "workers are killed at any moment of a save: it ends well, with all of the file and nothing beside it") {
  Cluster cluster({.workers = 3, .devices = 1, .worker_args = {"--silence-timeout", "4"}});
  INFO(cluster.words());
  const Session session = cluster.session();
  const TempFolder folder;
  const Array x = session.random.uniform({400, 300}, {.seed = 3, .block = {40, 30}});
  const std::vector<double> right = x.get<double>({.timeout = kPatience});
  std::vector<int> members{0, 1, 2};
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const bool zarr = round % 2 == 1;
    const std::string path = folder / (zarr ? "x.zarr" : "x.npy");
    Future save = zarr ? x.write_zarr(path) : x.save_npy(path);
    std::this_thread::sleep_for(milliseconds(2 * round));
    int& victim = members[static_cast<std::size_t>(round) % 3];
    cluster.worker(victim).signal(SIGKILL);
    (void)cluster.worker(victim).wait();
    save.wait({.timeout = kPatience});
    const Array again = zarr ? session.read_zarr(path) : session.load_npy(path);
    CHECK(same_bits(again.get<double>({.timeout = kPatience}), right));
    CHECK(eventually([&] { return others_in(folder, path).empty(); }));
    std::filesystem::remove_all(path);
    victim = static_cast<int>(3 + round);
    cluster.add_worker({"--silence-timeout", "4"});
    REQUIRE(session.wait_for_devices(3, kPatience));
  }
  CHECK(stays_empty(folder));
}

TEST_CASE("two saves to one place at once: one of the two files is there, whole") {
  Cluster cluster;
  INFO(cluster.words());
  const Session one = cluster.session("one"), two = cluster.session("two");
  const TempFolder folder;
  const Array a = one.full({300, 200}, 1.0, {.block = {30, 40}}),
              b = two.full({300, 200}, 2.0, {.block = {50, 20}});
  for (int round = 0; round < 4; ++round) {
    const bool zarr = round % 2 == 1;
    const std::string path = folder / (zarr ? "x.zarr" : "x.npy");
    Future first = zarr ? a.write_zarr(path) : a.save_npy(path),
           second = zarr ? b.write_zarr(path) : b.save_npy(path);
    first.wait({.timeout = kPatience});
    second.wait({.timeout = kPatience});
    const Array there = zarr ? one.read_zarr(path) : one.load_npy(path);
    const std::vector<double> values = there.get<double>({.timeout = kPatience});
    CHECK((values.front() == 1 || values.front() == 2));
    CHECK(std::all_of(values.begin(), values.end(), [&](double v) { return v == values.front(); }));
    CHECK(others_in(folder, path).empty());
    std::filesystem::remove_all(path);
  }
}
