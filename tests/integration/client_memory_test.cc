// Buffers of clients that daemons of the same host read where they lie.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "harness.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

constexpr std::int64_t kRows = 3000, kColumns = 40, kBytes = kRows * kColumns * 8;

Array filled(const Session& session, double start) {
  const HostBuffer<double> buffer = session.allocate<double>({kRows, kColumns});
  std::iota(buffer.values.begin(), buffer.values.end(), start);
  return session.from_buffer(buffer, {.block = {500, kColumns}});
}

double expected_sum(double start) {
  const double n = kRows * kColumns;
  return n * start + n * (n - 1) / 2;
}

int memfds() {  // of clients' buffers, mapped here
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:tilewise client") != line.npos;
  return count;
}

}  // namespace

TEST_CASE("workers take a client's buffer from where it lies, and the client uses it again") {
  Cluster cluster({.workers = 2, .devices = 1});
  INFO(cluster.words());
  const Session session = cluster.session();
  for (int round = 0; round < 5; ++round) {
    Array x = filled(session, round);
    x.persist().wait();
    CHECK(sum(x).item<double>() == expected_sum(round));
    CHECK(session.uploads().in_place == (round + 1) * kBytes);
    CHECK(session.uploads().sent == 0);
    CHECK(session.uploads().adopted == 0);
  }
  CHECK(memfds() <= 2);  // the last one may still be held when the next is taken
  // What is no buffer's is sent.
  Array y = session.from_memory(std::vector<double>(100'000, 1.0), {100'000});
  y.persist().wait();
  CHECK(session.uploads().sent == 800'000);
  CHECK(sum(y).item<double>() == 100'000);
}

TEST_CASE("who does not map has a buffer's bytes sent") {
  for (const bool client_maps : {false, true}) {
    CAPTURE(client_maps);
    Cluster cluster(
        {.workers = 1,
         .devices = 2,
         .worker_args = client_maps ? std::vector<std::string>{"--no-map"} : std::vector<std::string>{}});
    INFO(cluster.words());
    const Session session = cluster.session("test", client_maps);
    Array x = filled(session, 7);
    x.persist().wait();
    CHECK(sum(x).item<double>() == expected_sum(7));
    CHECK(session.uploads().in_place == 0);
    CHECK(session.uploads().sent == kBytes);
  }
}
