// Host tasks with the test playing the GPU: it raises `arrived` and looks at `released`.
#include "host_tasks.h"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <vector>

using namespace tilewise;
using namespace tilewise::cuda;

namespace {
struct HostTasksFixture {
  std::unique_ptr<HostTaskWords> words = std::make_unique<HostTaskWords>();
  HostTasks tasks{words.get()};
  std::vector<std::byte> data = std::vector<std::byte>(4096, std::byte{7});
};
}  // namespace

TEST_CASE("a move waits for the stream to arrive, then releases it") {
  HostTasksFixture f;
  const auto ticket = f.tasks.add_move(f.words->staging, f.data.data(), 4096);
  CHECK(ticket.arrival == 1);
  CHECK(ticket.release == 1);
  CHECK_FALSE(f.tasks.run());
  CHECK(f.words->released == 0);
  f.words->arrived = 1;
  CHECK(f.tasks.run());
  CHECK(f.words->released == 1);
  CHECK(std::memcmp(f.words->staging, f.data.data(), 4096) == 0);
  CHECK_FALSE(f.tasks.open());
  CHECK_FALSE(f.tasks.run());
}

TEST_CASE("tasks of a stream are done in order, waits for host streams among them") {
  HostTasksFixture f;
  const auto host = device::make_host_device({.memory_bytes = 1 << 20});
  device::Stream& stream = host->compute_stream(0);
  const auto wait = f.tasks.add_wait(stream, 1);
  const auto move = f.tasks.add_move(f.words->staging, f.data.data(), 16);
  CHECK(wait.arrival == 0);
  CHECK(wait.release == 1);
  CHECK(move.release == 2);
  f.words->arrived = 1;  // of the move; the wait before it is still open
  CHECK_FALSE(f.tasks.run());
  stream.record();
  host->synchronize();
  CHECK(f.tasks.run());
  CHECK(f.words->released == 1);
  CHECK(f.tasks.run());
  CHECK(f.words->released == 2);
}

TEST_CASE("neighbouring moves into staging share a task until something lies between") {
  HostTasksFixture f;
  f.tasks.add_move(f.words->staging, f.data.data(), 100);
  std::byte* const second = f.tasks.join_move(f.data.data() + 100, 200);
  CHECK(second == f.words->staging + 256);
  CHECK(f.tasks.join_move(f.data.data(), HostTaskWords::kStagingBytes) == nullptr);  // no room
  f.words->arrived = 1;
  CHECK(f.tasks.run());
  CHECK(std::memcmp(second, f.data.data() + 100, 200) == 0);
  CHECK(f.tasks.join_move(f.data.data(), 16) == nullptr);  // done already
  f.tasks.add_move(f.words->staging, f.data.data(), 16);
  f.tasks.close();
  CHECK(f.tasks.join_move(f.data.data(), 16) == nullptr);
  std::byte out[16];
  f.tasks.add_move(out, f.words->staging, 16);  // out of staging: nothing joins that
  CHECK(f.tasks.join_move(f.data.data(), 16) == nullptr);
}

TEST_CASE("the thread does what is ready, and parks between") {
  HostTasksFixture f;
  HostThread thread({&f.tasks});
  for (std::uint64_t round = 1; round <= 50; ++round) {
    const auto ticket = f.tasks.add_move(f.words->staging, f.data.data(), 64);
    f.words->arrived.store(ticket.arrival);
    thread.wake();
    while (f.words->released.load() < round) std::this_thread::yield();
  }
  f.tasks.add_move(f.words->staging, f.data.data(), 64);
  f.tasks.abandon();
  CHECK_FALSE(f.tasks.open());
}
