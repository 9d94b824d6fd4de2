#include <tilewise/journal/journal.h>

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "print_result.h"
#include "temp_folder.h"

namespace tilewise::journal {
namespace {

struct Folder {
  testing::TempFolder above;
  const std::string path = above / "state";
  std::string file() const {  // the only generation there is
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const std::string name = entry.path().string();
      if (name.find("journal.") == std::string::npos) continue;
      CHECK(found.empty());
      found = name;
    }
    return found;
  }
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

using Records = std::vector<std::pair<std::uint32_t, std::string>>;

struct Found {
  Result<Journal::Past> past = Journal::Past{};
  Header header;
  Records records;
};

Found read(const Folder& folder) {
  Found found;
  auto journal = Journal::open(folder.path, {});
  REQUIRE(journal);
  found.past = (*journal)->read(
      [&](const Header& header) -> Status {
        found.header = header;
        return {};
      },
      [&](std::uint32_t kind, std::string_view bytes) -> Status {
        found.records.emplace_back(kind, std::string(bytes));
        return {};
      });
  return found;
}

const Records kWritten{{0, "snapshot"}, {1, "a"}, {2, ""}, {1, std::string(1000, 'x')}};

void write_some(const Folder& folder) {
  auto journal = Journal::open(folder.path, {});
  REQUIRE(journal);
  REQUIRE((*journal)->begin({7, 3, "1.2.3"}, kWritten[0].second));
  for (std::size_t i = 1; i < kWritten.size(); ++i) (*journal)->append(kWritten[i].first, kWritten[i].second);
  REQUIRE((*journal)->flush());
  (*journal)->append(1, "never flushed");
}

TEST_CASE("what was flushed is read again, in order; nothing was there before") {
  const Folder folder;
  CHECK_FALSE(read(folder).past->any);
  write_some(folder);
  const Found found = read(folder);
  REQUIRE(found.past);
  CHECK(found.past->any);
  CHECK(found.header.state == 7);
  CHECK(found.header.term == 3);
  CHECK(found.header.software == "1.2.3");
  CHECK(found.records == kWritten);
  CHECK(found.past->torn == 0);
}

TEST_CASE("a generation replaces the one before, and what a death left behind") {
  const Folder folder;
  write_some(folder);
  spill(folder.path + "/next", "half a generation");
  {
    auto journal = Journal::open(folder.path, {.sync = true});
    REQUIRE(journal);
    REQUIRE((*journal)->begin({7, 4, "1.2.3"}, "later"));
    (*journal)->append(5, "b");
    REQUIRE((*journal)->flush());
    CHECK(Journal::open(folder.path, {}).error().code == Errc::kAlreadyExists);
  }
  const Found found = read(folder);
  REQUIRE(found.past);
  CHECK(found.header.term == 4);
  CHECK(found.records == Records{{0, "later"}, {5, "b"}});
  (void)folder.file();
}

TEST_CASE("cut anywhere: whole records before the cut are there, a snapshot that is not whole is refused") {
  const Folder folder;
  write_some(folder);
  const std::string file = folder.file(), bytes = slurp(file);
  std::size_t most = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    spill(file, bytes.substr(0, size));
    const Found found = read(folder);
    CAPTURE(size);
    if (!found.past) {
      CHECK(found.past.error().code == Errc::kCorruptData);
      CHECK(found.past.error().message.find(file) != std::string::npos);
      CHECK(most == 0);
      continue;
    }
    CHECK(found.records.size() >= most);
    CHECK(found.records.size() < kWritten.size());
    most = found.records.size();
    CHECK(found.records == Records(kWritten.begin(), kWritten.begin() + static_cast<std::ptrdiff_t>(most)));
  }
  CHECK(most == kWritten.size() - 1);
}

TEST_CASE("any byte altered: never another value; with good records behind it, refused by place") {
  const Folder folder;
  write_some(folder);
  const std::string file = folder.file(), bytes = slurp(file);
  const std::size_t last = bytes.size() - 1000 - 24;  // where the last record begins
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    spill(file, damaged);
    const Found found = read(folder);
    CAPTURE(at);
    if (at < last) {
      // Padding is nobody's.
      if (found.past) {
        CHECK(found.records == kWritten);
      } else {
        CHECK(found.past.error().code == Errc::kCorruptData);
      }
    } else {
      REQUIRE(found.past);
      CHECK(found.records == Records(kWritten.begin(), kWritten.end() - 1));
      CHECK(found.past->torn == bytes.size() - last);
    }
  }
}

TEST_CASE("a directory that cannot be written is an error that names it") {
  CHECK(Journal::open("/proc/nowhere", {}).error().message.find("/proc/nowhere") != std::string::npos);
  const Folder folder;
  auto journal = Journal::open(folder.path, {});
  REQUIRE(journal);
  std::filesystem::remove_all(folder.path);
  const Status begun = (*journal)->begin({1, 1, ""}, "x");
  REQUIRE_FALSE(begun);
  CHECK(begun.error().code == Errc::kNotFound);
  CHECK(begun.error().message.find(folder.path) != std::string::npos);
}

}  // namespace
}  // namespace tilewise::journal
