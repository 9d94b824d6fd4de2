#include <tilewise/store/spill_file.h>

#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <thread>

#include "temp_folder.h"

using namespace tilewise;
using store::SpillFile;
using testing::TempFolder;

namespace {

Status wait(const std::function<void(SpillFile::Done)>& begin) {
  std::promise<Status> ended;
  begin([&](Status status) { ended.set_value(std::move(status)); });
  return ended.get_future().get();
}

}  // namespace

TEST_CASE("bytes come back from disk whatever their size and place in memory, and no file is to be seen") {
  const TempFolder folder;
  auto file = SpillFile::open({.directory = folder.path(), .limit_bytes = 64 << 20});
  REQUIRE(file.has_value());
  CHECK((*file)->limit_bytes() == 64 << 20);
  CHECK(folder.files() == 0);
  std::vector<std::byte> memory(12 << 20), back(memory.size());
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  std::int64_t at = 0;
  for (const std::int64_t bytes : {1, 511, 4096, 4097, 100'000, 1 << 20, (1 << 20) + 1, 9 << 20}) {
    for (const std::size_t shift : {0, 256, 512, 8}) {
      const std::byte* from = memory.data() + shift;
      REQUIRE(
          wait([&](SpillFile::Done done) { (*file)->write(at, from, bytes, std::move(done)); }).has_value());
      std::memset(back.data(), 0x5A, back.size());
      std::byte* to = back.data() + 1024 - shift;
      REQUIRE(wait([&](SpillFile::Done done) { (*file)->read(at, to, bytes, std::move(done)); }).has_value());
      CHECK(std::memcmp(from, to, static_cast<std::size_t>(bytes)) == 0);
      CHECK(to[bytes] == std::byte{0x5A});  // not a byte more
      CHECK(to[-1] == std::byte{0x5A});
    }
    at += (bytes + 4095) / 4096 * 4096;
  }
  CHECK(folder.files() == 0);
}

TEST_CASE("parts that are written and read at once do not mix") {
  const TempFolder folder;
  auto file = SpillFile::open({.directory = folder.path(), .limit_bytes = 32 << 20, .threads = 4});
  REQUIRE(file.has_value());
  constexpr int kParts = 64, kBytes = 300'000, kRoom = 303'104;
  std::vector<std::vector<std::byte>> parts;
  std::vector<std::promise<Status>> ends(kParts);
  for (int i = 0; i < kParts; ++i) parts.emplace_back(kBytes, static_cast<std::byte>(i + 1));
  for (int i = 0; i < kParts; ++i)
    (*file)->write(std::int64_t{i} * kRoom, parts[i].data(), kBytes,
                   [&, i](Status s) { ends[i].set_value(s); });
  for (auto& end : ends) REQUIRE(end.get_future().get().has_value());
  for (int i = 0; i < kParts; ++i) {
    std::vector<std::byte> back(kBytes);
    REQUIRE(wait([&](SpillFile::Done done) {
              (*file)->read(std::int64_t{i} * kRoom, back.data(), kBytes, std::move(done));
            }).has_value());
    CHECK(back == parts[i]);
  }
}

TEST_CASE("every call that moves bytes is told of, by the thread that makes it, before and after") {
  const TempFolder folder;
  auto file = SpillFile::open({.directory = folder.path(), .limit_bytes = 64 << 20, .threads = 3});
  REQUIRE(file.has_value());
  std::array<std::atomic<int>, 3> open{}, calls{};
  std::atomic<bool> right = true;
  (*file)->on_io([&](int thread, bool begins) {
    if (thread < 0 || thread >= 3 || (open[thread] += begins ? 1 : -1) != (begins ? 1 : 0)) right = false;
    if (thread >= 0 && thread < 3 && begins) ++calls[thread];
  });
  std::vector<std::byte> memory(34 << 20);  // three calls of at most 16 MiB
  REQUIRE(wait([&](SpillFile::Done done) {
            (*file)->write(0, memory.data(), 34 << 20, std::move(done));
          }).has_value());
  CHECK(calls[0] + calls[1] + calls[2] >= 3);
  REQUIRE(wait([&](SpillFile::Done done) {
            (*file)->read(0, memory.data(), 34 << 20, std::move(done));
          }).has_value());
  CHECK(calls[0] + calls[1] + calls[2] >= 6);
  CHECK(right);
  CHECK(open[0] + open[1] + open[2] == 0);
}

TEST_CASE("what is vacated goes back to the disk when the file is not in use, and everything else stays") {
  const TempFolder folder;
  bool holes = false;
  SUBCASE("with holes in the file") { holes = true; }
  SUBCASE("without: from its end") {}
  auto file = SpillFile::open({.directory = folder.path(), .limit_bytes = 64 << 20, .holes = holes});
  REQUIRE(file.has_value());
  std::atomic<std::int64_t> told = -1;
  (*file)->on_taken([&](std::int64_t bytes) { told = bytes; });
  constexpr std::int64_t kPart = 1 << 20;
  std::vector<std::vector<std::byte>> parts;
  for (int i = 0; i < 16; ++i) parts.emplace_back(kPart, static_cast<std::byte>(i + 1));
  const auto write = [&](int i) {
    return wait([&](SpillFile::Done done) {
             (*file)->write(i * kPart, parts[i].data(), kPart, std::move(done));
           })
        .has_value();
  };
  const auto is_there = [&](int i) {
    std::vector<std::byte> back(kPart);
    return wait([&](SpillFile::Done done) {
             (*file)->read(i * kPart, back.data(), kPart, std::move(done));
           }).has_value() &&
           back == parts[i];
  };
  const auto takes = [&](std::int64_t bytes) {
    for (int tries = 0; tries < 400; ++tries) {
      if ((*file)->taken_bytes() <= bytes + (64 << 10)) return (*file)->taken_bytes() >= bytes;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return false;
  };
  for (int i = 0; i < 16; ++i) REQUIRE(write(i));
  CHECK((*file)->taken_bytes() >= 16 * kPart);
  for (int i = 8; i < 16; ++i) (*file)->vacate(i * kPart, kPart - 100);
  CHECK(takes(8 * kPart));
  CHECK(told == (*file)->taken_bytes());
  // Holes in the middle: the file gives them back at once, or with what lies after them.
  for (const int i : {2, 4, 3}) (*file)->vacate(i * kPart, kPart);
  REQUIRE(write(4));  // used again before it went
  CHECK(takes((holes ? 6 : 8) * kPart));
  for (const int i : {0, 1, 4, 5, 6, 7}) CHECK(is_there(i));
  for (const int i : {4, 5, 6, 7}) (*file)->vacate(i * kPart, kPart);
  CHECK(takes(2 * kPart));
  for (const int i : {3, 9}) REQUIRE(write(i));
  for (const int i : {0, 1, 3, 9}) CHECK(is_there(i));
  for (const int i : {0, 1, 3, 9}) (*file)->vacate(i * kPart, kPart);
  CHECK(takes(0));
}

TEST_CASE(
    "much that is vacated goes back while the file is in use, and never what is being written or read") {
  const TempFolder folder;
  bool holes = false;
  SUBCASE("with holes in the file") { holes = true; }
  SUBCASE("without: from its end") {}
  constexpr std::int64_t kPart = 4 << 20;
  constexpr int kParts = 80, kRounds = 3;
  auto file = SpillFile::open(
      {.directory = folder.path(), .limit_bytes = kParts * kPart, .threads = 3, .holes = holes});
  REQUIRE(file.has_value());
  std::vector<std::vector<std::byte>> parts(kParts, std::vector<std::byte>(kPart));
  std::vector<std::byte> back(kPart);
  std::atomic<int> wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    // All are written and then vacated but for some, which are read back amid writes of the next round.
    std::vector<std::promise<Status>> ends(kParts);
    for (int i = 0; i < kParts; ++i) {
      if (round > 0 && i % 16 == 0) continue;
      std::memset(parts[i].data(), round * 17 + i, kPart);
      (*file)->write(i * kPart, parts[i].data(), kPart, [&, i](Status s) {
        wrong += !s;
        ends[i].set_value(s);
      });
    }
    for (int i = 0; i < kParts; i += 16) {
      if (round == 0) continue;
      CHECK(wait([&](SpillFile::Done done) {
              (*file)->read(i * kPart, back.data(), kPart, std::move(done));
            }).has_value());
      CHECK(back == parts[i]);
    }
    for (int i = 0; i < kParts; ++i) {
      if (round > 0 && i % 16 == 0) continue;
      ends[i].get_future().wait();
    }
    for (int i = 0; i < kParts; ++i)
      if (i % 16 != 0) (*file)->vacate(i * kPart, kPart);
  }
  CHECK(wrong == 0);
  // It is never idle for a second here.
  const auto begun = std::chrono::steady_clock::now();
  bool less = false;
  while (!less && std::chrono::steady_clock::now() - begun < std::chrono::seconds(10)) {
    for (int i = 0; i < kParts; i += 16) {
      CHECK(wait([&](SpillFile::Done done) {
              (*file)->read(i * kPart, back.data(), kPart, std::move(done));
            }).has_value());
      CHECK(back == parts[i]);
    }
    less = (*file)->taken_bytes() < (kParts - 5) * kPart;
  }
  CHECK(less);
}

TEST_CASE("a directory that is not there, a part beyond the bound and a full disk are typed errors") {
  CHECK(SpillFile::open({.directory = "/nowhere/at/all"}).error().code == Errc::kNotFound);
  CHECK(SpillFile::open({.directory = ""}).error().code == Errc::kInvalidArgument);
  const TempFolder folder;
  auto file = SpillFile::open({.directory = folder.path(), .limit_bytes = 8 << 20});
  REQUIRE(file.has_value());
  std::vector<std::byte> memory(2 << 20);
  const auto write = [&](std::int64_t at) {
    return wait([&](SpillFile::Done done) { (*file)->write(at, memory.data(), 2 << 20, std::move(done)); });
  };
  CHECK(write(7 << 20).error().code == Errc::kInternal);
  // As large as a file may get: what the system says of a full disk, too.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK(write(0).has_value());
  const Status full = write(6 << 20);
  CHECK(full.error().code == Errc::kDiskFull);
  CHECK(full.error().message.find("the file takes 2.0 MiB of the 8.0 MiB that it may, and the disk has ") !=
        std::string::npos);
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(write(6 << 20).has_value());
}
