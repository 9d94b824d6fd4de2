// The ring between GPUs and a file, with host memory in the GPU's place: what it does does not depend on the kind.
#include "below.h"

#include <tilewise/base/time.h>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>

#include "temp_folder.h"

using namespace tilewise;
using namespace tilewise::worker;

namespace {

constexpr std::int64_t kPiece = 512 << 10;  // more than the copier makes on the spot
constexpr int kPieces = 3;

struct Ring {
  explicit Ring(std::int64_t limit) {
    auto opened = store::SpillFile::open({.directory = folder.path(), .limit_bytes = limit});
    REQUIRE(opened.has_value());
    file = std::move(*opened);
    copier.add_device(device.get());
    ring.emplace(buffers.data(), StagingRing::Options{kPiece, kPieces}, copier, *file,
                 [this](std::function<void()> call) {
                   const std::lock_guard lock(mutex);
                   calls.push_back(std::move(call));
                 });
  }
  ~Ring() { device->synchronize(); }

  void turn() {
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(calls);
    }
    for (const auto& call : now) call();
    copier.poll();
  }
  void until(const std::function<bool()>& met) {
    const TimeNs deadline = monotonic_now() + 60 * kSecond;
    while (!met() && monotonic_now() < deadline) turn();
    REQUIRE(met());
  }

  testing::TempFolder folder;
  std::unique_ptr<device::Device> device = device::make_host_device({.memory_bytes = 1 << 20});
  device::Copier copier;
  std::unique_ptr<store::SpillFile> file;
  std::vector<std::byte> buffers = std::vector<std::byte>(kPiece * kPieces + 4096);
  std::mutex mutex;
  std::vector<std::function<void()>> calls;
  std::optional<StagingRing> ring;
};

std::vector<std::byte> pattern(std::int64_t bytes, unsigned seed) {
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>((i + seed) * 2654435761u >> 11);
  return out;
}

}  // namespace

TEST_CASE("blocks of any size go through the ring to disk and come back, many at once, both ways at once") {
  Ring r(64 << 20);
  const std::vector<std::int64_t> sizes{1, 4096, kPiece - 1, kPiece, kPiece + 1, 7 * kPiece + 4095};
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::int64_t> places;
  std::size_t written = 0, read = 0;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < 24; ++i) {
    blocks.push_back(pattern(sizes[i % sizes.size()], static_cast<unsigned>(i)));
    places.push_back(at);
    at += (static_cast<std::int64_t>(blocks[i].size()) + 4095) / 4096 * 4096;
  }
  std::vector<std::vector<std::byte>> back(blocks.size());
  // Each comes back as soon as it is there, while others leave.
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(blocks[i].size());
    r.ring->write(*r.device, blocks[i].data(), places[i], bytes, [&, i, bytes](const Status& status) {
      REQUIRE(status.has_value());
      ++written;
      back[i].assign(blocks[i].size(), std::byte{0x5A});
      r.ring->read(*r.device, back[i].data(), places[i], bytes, [&](const Status& again) {
        CHECK(again.has_value());
        ++read;
      });
    });
  }
  r.until([&] { return read == blocks.size(); });
  CHECK(written == blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) CHECK(back[i] == blocks[i]);
}

TEST_CASE("a block that fails is told once, when nothing of it is under way, and the ring goes on") {
  Ring r(64 << 20);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<std::byte> large = pattern(8 << 20, 1), fits = pattern(kPiece * 2, 2);
  std::optional<Status> failed, fine;
  int told = 0;
  r.ring->write(*r.device, large.data(), 1 << 20, 8 << 20, [&](const Status& status) {
    failed = status;
    ++told;
  });
  r.ring->write(*r.device, fits.data(), 0, kPiece * 2, [&](const Status& status) { fine = status; });
  r.until([&] { return failed && fine; });
  setrlimit(RLIMIT_FSIZE, &before);
  for (int i = 0; i < 1000; ++i) r.turn();
  CHECK(told == 1);
  REQUIRE_FALSE(failed->has_value());
  CHECK(failed->error().code == Errc::kDiskFull);
  CHECK(fine->has_value());
  // All buffers are there again: what needs them all comes through.
  std::optional<Status> again;
  r.ring->write(*r.device, large.data(), 1 << 20, 8 << 20, [&](const Status& status) { again = status; });
  r.until([&] { return again.has_value(); });
  CHECK(again->has_value());
}
